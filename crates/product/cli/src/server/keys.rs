//! Keys of objects on the command line: `size=10G`, `read-only`.

use std::str::FromStr;

use longshore_api::object::Keys;
use serde_json::Value;

/// Keys whose values are texts, whatever they look like.
const TEXTS: &[&str] = &[
    "alias",
    "compression",
    // One is called `null`.
    "backend",
    "host-nqn",
    "initiator-name",
    "moved-to",
    "naa",
    "nguid",
    "eui64",
    "path",
    "pool",
    "pool-volume",
    "product",
    "secret-file",
    "dhchap-secret-file",
    "dhchap-ctrl-secret-file",
    "tls-derivation",
    "tls-key-file",
    "serial",
    "url",
    "uuid",
    "vendor",
];

/// `KEY=VALUE`, `KEY` (yes), or `KEY=` (as if it were not there).
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    key: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not KEY=VALUE")]
pub struct SettingError(String);

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if key.is_empty() || !key.chars().all(is_plain) {
            return Err(SettingError(text.to_owned()));
        }
        let value = match value {
            None => Value::Bool(true),
            Some("") => Value::Null,
            Some(value) if TEXTS.contains(&key) => Value::String(value.to_owned()),
            Some(value) => match serde_json::from_str(value) {
                Ok(value) => value,
                // Lists and tables also as in the file.
                Err(_) if value.starts_with(['[', '{']) => {
                    as_in_the_file(value).ok_or_else(|| SettingError(text.to_owned()))?
                }
                Err(_) => value.into(),
            },
        };
        Ok(Self {
            key: key.to_owned(),
            value,
        })
    }
}

/// A value of TOML.
fn as_in_the_file(value: &str) -> Option<Value> {
    let table: toml::Table = toml::from_str(&format!("value = {value}")).ok()?;
    match serde_json::to_value(table).ok()? {
        // Nothing else but the one.
        Value::Object(mut found) if found.len() == 1 => found.remove("value"),
        _ => None,
    }
}

/// All of them, for a patch: those to be taken away are null.
pub fn patch(settings: &[Setting]) -> Keys {
    let pairs = settings.iter();
    pairs.map(|it| (it.key.clone(), it.value.clone())).collect()
}

/// All of them, for a new object.
pub fn keys(settings: &[Setting]) -> Keys {
    let mut keys = patch(settings);
    keys.retain(|_, value| !value.is_null());
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_types_of_the_file() {
        let setting = |text: &str| text.parse::<Setting>().unwrap().value;
        assert_eq!(setting("size=10G"), json!("10G"));
        assert_eq!(setting("block-size=4096"), json!(4096));
        assert_eq!(setting("serial=4096"), json!("4096"));
        assert_eq!(setting("backend=null"), json!("null"));
        assert_eq!(setting("read-only"), json!(true));
        assert_eq!(setting("read-only=false"), json!(false));
        assert_eq!(setting("uuid="), json!(null));
        assert_eq!(
            setting(r#"luns=[{"lun":0,"volume":"a"}]"#),
            json!([{"lun": 0, "volume": "a"}])
        );
        assert_eq!(
            setting(r#"luns=[{ lun = 0, volume = "a", read-only = true }]"#),
            json!([{"lun": 0, "volume": "a", "read-only": true}])
        );
        for text in ["=x", "", "Key=x", "a b=x", "luns=[{", "luns=[]\nb = 1"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }
}
