//! Objects as text of the configuration file.

use serde_json::Value;

use crate::object::{Document, Keys, ObjectKind, TRANSMIT};

/// Objects as tables of the configuration file.
#[must_use]
pub fn tables(document: &Document) -> String {
    let mut text = String::new();
    for kind in ObjectKind::SERVED {
        let name_key = match kind {
            ObjectKind::Subsystem => "nqn",
            ObjectKind::Volume | ObjectKind::Target => "name",
            ObjectKind::Setting => continue,
        };
        for (name, keys) in document.of_kind(kind) {
            let separator = if text.is_empty() { "" } else { "\n" };
            text += &format!(
                "{separator}[[{kind}]]\n{name_key} = {}\n",
                Value::from(name.as_str())
            );
            text += &lines(keys);
        }
    }
    for (name, keys) in &document.settings {
        let separator = if text.is_empty() { "" } else { "\n" };
        text += &format!("{separator}[{}]\n", table_of_setting(name));
        text += &lines(keys);
    }
    text
}

/// The table of the configuration file that has the keys of a setting.
#[must_use]
pub fn table_of_setting(name: &str) -> &str {
    match name {
        TRANSMIT => "engine",
        name => name,
    }
}

fn lines(keys: &Keys) -> String {
    let lines = keys.iter().filter(|(_, value)| !value.is_null());
    lines
        .map(|(key, value)| format!("{key} = {}\n", inline(value)))
        .collect()
}

/// A value in one line of TOML. Its texts are those of JSON, which TOML understands.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(keys) => {
            let pairs: Vec<String> = keys
                .iter()
                .map(|(key, value)| format!("{key} = {}", inline(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}
