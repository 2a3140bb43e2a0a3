//! The keys of objects: from the file's TOML to the API's JSON and back, without secrets, and compared.

use std::collections::BTreeMap;
use std::path::Path;

use longshore_api::change::KeyChange;
use longshore_api::object::{Keys, ObjectId, ObjectKind, PATHS};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::tables::table_of_setting;
use longshore_volume::{Eui64, Naa, Nguid};
use serde_json::Value;

use crate::config::masked::Masked;
use crate::config::size::{Size, Span};

/// What stands for a secret that is there.
const SET: &str = "set";

/// Keys with the value that they have when they are not given.
const DEFAULTS: [(&str, Value); 9] = [
    ("enabled", Value::Bool(true)),
    ("read-only", Value::Bool(false)),
    ("direct", Value::Bool(false)),
    ("write-through", Value::Bool(false)),
    ("moved-permanently", Value::Bool(false)),
    ("dhchap-required", Value::Bool(true)),
    ("tls-required", Value::Bool(true)),
    ("access", Value::Array(Vec::new())),
    ("accounts", Value::Array(Vec::new())),
];

/// The list of tables that describes objects of a kind in the file, and the key that holds their names. `None`: each has a
/// table of its own.
pub(super) const fn list_of(kind: ObjectKind) -> Option<(&'static str, &'static str)> {
    match kind {
        ObjectKind::Volume => Some(("volume", "name")),
        ObjectKind::Target => Some(("target", "name")),
        ObjectKind::Subsystem => Some(("subsystem", "nqn")),
        ObjectKind::Setting => None,
    }
}

/// A value of the file.
pub(super) fn from_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(yes) => yes.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(from_toml).collect(),
        toml::Value::Table(table) => Value::Object(table_from_toml(table)),
    }
}

pub(super) fn table_from_toml(table: toml::Table) -> Keys {
    let entries = table.into_iter();
    entries
        .map(|(key, value)| (key, from_toml(value)))
        .collect()
}

/// An object as text of a file. The numbers of JSON that TOML cannot hold are refused, and `null`.
pub(super) fn to_text(id: &ObjectId, keys: &Keys) -> Result<String, Box<Problem>> {
    let list = list_of(id.kind);
    let name_key = list.map(|(_, key)| key);
    let mut table = toml::Table::new();
    if let Some(key) = name_key {
        table.insert(key.to_owned(), toml::Value::String(id.name.clone()));
    }
    for (key, value) in keys {
        if Some(&**key) == name_key {
            if value.as_str() != Some(&*id.name) {
                let title = format!("`{key}` is not the name of {id}");
                let problem = Problem::new(ProblemCode::Invalid, title).about(id);
                return Err(Box::new(problem.advise(format!("remove the key `{key}`"))));
            }
            continue;
        }
        table.insert(key.clone(), to_toml(id, key, value)?);
    }
    let table = toml::Value::Table(table);
    let (name, described) = match list {
        Some((name, _)) => (name, toml::Value::Array(vec![table])),
        None => (table_of_setting(&id.name), table),
    };
    let document = toml::Table::from_iter([(name.to_owned(), described)]);
    toml::to_string(&document).map_err(|_| {
        let title = "its keys cannot be written as TOML";
        Box::new(Problem::new(ProblemCode::Invalid, title).about(id))
    })
}

fn to_toml(id: &ObjectId, key: &str, value: &Value) -> Result<toml::Value, Box<Problem>> {
    let refused = |what: &str, advice: &str| {
        let title = format!("{id}: `{key}` is {what}");
        let problem = Problem::new(ProblemCode::Invalid, title).about(id);
        Box::new(problem.advise(advice))
    };
    Ok(match value {
        Value::Null => return Err(refused("null", "leave the key out, or give it a value")),
        Value::Bool(yes) => toml::Value::Boolean(*yes),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => toml::Value::Integer(number),
            (None, Some(number)) if !number.is_nan() && number.abs() < 9e18 => {
                toml::Value::Float(number)
            }
            _ => return Err(refused("too large a number", "write a smaller one")),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(list) => {
            let list = list.iter().map(|value| to_toml(id, key, value));
            toml::Value::Array(list.collect::<Result<_, _>>()?)
        }
        Value::Object(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| Ok((key.clone(), to_toml(id, key, value)?)));
            toml::Value::Table(entries.collect::<Result<_, Box<Problem>>>()?)
        }
    })
}

/// Calls `change` with every key and value, from the inside out.
fn walk(keys: &mut Keys, change: &mut dyn FnMut(&str, &mut Value)) {
    for (key, value) in keys.iter_mut() {
        match value {
            Value::Object(table) => walk(table, change),
            Value::Array(list) => {
                for item in list {
                    match item {
                        Value::Object(table) => walk(table, change),
                        Value::String(_) => change(key, item),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        change(key, value);
    }
}

/// The keys as they may be shown: secrets read as `"set"`, passwords of URLs as `***`.
#[must_use]
pub fn without_secrets(keys: &Keys) -> Keys {
    let mut shown = keys.clone();
    walk(&mut shown, &mut |key, value| {
        *value = shown_value(key, value)
    });
    shown
}

fn shown_value(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("secret", _) => SET.into(),
        ("url", Value::String(url)) => Masked::new(url).text.into(),
        _ => value.clone(),
    }
}

/// Puts the secrets of `before` back where `keys` has them as they are shown, so that what was read can be written.
pub(super) fn restore_secrets(
    id: &ObjectId,
    keys: &mut Keys,
    before: Option<&Keys>,
) -> Result<(), Box<Problem>> {
    if let Some(before) = before
        && without_secrets(before) == *keys
    {
        keys.clone_from(before);
        return Ok(());
    }
    let known = before.map(secrets).unwrap_or_default();
    let mut lost = None;
    let mut restore = |user: &str, key: &str, value: &mut Value| {
        let Value::String(text) = value else { return };
        let is_shown = match key {
            "secret" => text == SET,
            "url" => text.contains("***"),
            _ => false,
        };
        if !is_shown {
            return;
        }
        let stands_for = |(other, kind, secret): &&(String, String, String)| {
            kind == key && other == user && (key == "secret" || Masked::new(secret).text == *text)
        };
        let mut meant = known.iter().filter(stands_for).map(|(_, _, secret)| secret);
        match meant.next() {
            // One user may have another secret in each rule.
            Some(secret) if meant.all(|other| other == secret) => text.clone_from(secret),
            Some(_) => lost = Some((key.to_owned(), "several secrets match")),
            None => lost = Some((key.to_owned(), "no secret is stored")),
        }
    };
    walk_secrets(keys, &mut restore);
    match lost {
        Some((key, why)) => {
            let title = format!("{id}: `{key}` stands for a stored secret, but {why}");
            let problem = Problem::new(ProblemCode::Invalid, title).about(id);
            Err(Box::new(problem.advise("write the secret itself")))
        }
        None => Ok(()),
    }
}

/// The secrets with the user and the key that they belong to.
fn secrets(keys: &Keys) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut keys = keys.clone();
    walk_secrets(&mut keys, &mut |user, key, value| {
        if let Value::String(text) = value {
            found.push((user.to_owned(), key.to_owned(), text.clone()));
        }
    });
    found
}

/// Calls `act` with the user, the key and the value of each secret.
fn walk_secrets(keys: &mut Keys, act: &mut dyn FnMut(&str, &str, &mut Value)) {
    let user = keys.get("user").and_then(Value::as_str).unwrap_or_default();
    let user = user.to_owned();
    for (key, value) in keys.iter_mut() {
        match value {
            Value::Object(table) => walk_secrets(table, act),
            Value::Array(list) => {
                for table in list.iter_mut().filter_map(Value::as_object_mut) {
                    walk_secrets(table, act);
                }
            }
            _ if matches!(&**key, "secret" | "url") => act(&user, key, value),
            _ => {}
        }
    }
}

/// Refuses paths whose meaning would depend on where the server was started.
pub(super) fn check_paths(id: &ObjectId, keys: &Keys) -> Result<(), Box<Problem>> {
    let mut keys = keys.clone();
    let mut relative = None;
    walk(&mut keys, &mut |key, value| {
        let Value::String(text) = value else { return };
        let mut paths: Box<dyn Iterator<Item = &str>> = match key {
            "pool" if text.contains('/') => Box::new(text.split('+')),
            _ if PATHS.contains(&key) => Box::new(std::iter::once(&**text)),
            _ => return,
        };
        if let Some(path) = paths.find(|path| Path::new(path).is_relative()) {
            relative = Some((key.to_owned(), path.to_owned()));
        }
    });
    match relative {
        Some((key, path)) => {
            let title = format!("{id}: `{key}` is the relative path {path}");
            let problem = Problem::new(ProblemCode::Invalid, title).about(id);
            Err(Box::new(problem.advise("write an absolute path")))
        }
        None => Ok(()),
    }
}

/// The keys in one form, so that two that mean the same are equal: sizes in bytes, times in milliseconds, whole paths, no
/// key with its default. `directory` is where relative paths start.
pub(super) fn normal(keys: &Keys, directory: &Path) -> Keys {
    let mut normal = keys.clone();
    walk(&mut normal, &mut |key, value| {
        if let Value::Object(table) = value {
            remove_defaults(table);
        }
        if let Value::Array(list) = value {
            for table in list.iter_mut().filter_map(Value::as_object_mut) {
                remove_defaults(table);
            }
        }
        if key == "pool"
            && let Value::Array(drives) = value
        {
            let drives: Vec<&str> = drives.iter().filter_map(Value::as_str).collect();
            *value = drives.join("+").into();
            return;
        }
        let Value::String(text) = value else { return };
        if key == "pool" && text.contains('/') {
            let drives = text.split('+').map(|drive| directory.join(drive));
            let drives = drives.map(|drive| drive.to_string_lossy().into_owned());
            *value = drives.collect::<Vec<_>>().join("+").into();
        } else if PATHS.contains(&key) {
            *value = directory.join(&*text).to_string_lossy().into();
        } else if matches!(
            key,
            "size" | "block-size" | "physical-block-size" | "quota" | "reserve"
        ) || key.ends_with("-length")
            || key.starts_with("max-")
        {
            if let Ok(Size(bytes)) = Size::parse(text) {
                *value = bytes.into();
            }
        } else if key == "naa" {
            if let Ok(naa) = text.parse::<Naa>() {
                *value = naa.to_string().into();
            }
        } else if key == "nguid" {
            if let Ok(nguid) = text.parse::<Nguid>() {
                *value = nguid.to_string().into();
            }
        } else if key == "eui64" {
            if let Ok(eui64) = text.parse::<Eui64>() {
                *value = eui64.to_string().into();
            }
        } else if matches!(key, "give-up" | "burst")
            && let Ok(span) = Span::parse(text)
        {
            let ms = u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
            *value = format!("{ms}ms").into();
        }
    });
    remove_defaults(&mut normal);
    normal
}

fn remove_defaults(keys: &mut Keys) {
    keys.retain(|key, value| {
        !DEFAULTS
            .iter()
            .any(|(known, default)| known == key && value == default)
    });
}

/// Changes a value by a JSON merge patch (RFC 7396).
pub(super) fn merge(keys: &mut Keys, patch: &Keys) {
    for (key, change) in patch {
        match change {
            Value::Null => {
                keys.remove(key);
            }
            Value::Object(patch) => {
                let value = keys.entry(key.clone()).or_insert(Value::Null);
                if !value.is_object() {
                    *value = Value::Object(Keys::new());
                }
                merge(
                    value.as_object_mut().expect("an object since just now"),
                    patch,
                );
            }
            other => {
                keys.insert(key.clone(), other.clone());
            }
        }
    }
}

/// The keys that differ, by their paths: `luns.1.read-only`. Secrets are compared, and shown as `"set"`.
#[must_use]
pub fn differences(before: &Keys, after: &Keys) -> Vec<KeyChange> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten("", before, &mut old);
    flatten("", after, &mut new);
    let mut changes = BTreeMap::new();
    let shown = |path: &str, value: &Value| {
        let key = path.rsplit('.').next().unwrap_or_default();
        shown_value(key, value)
    };
    for (path, value) in &old {
        if new.get(path) != Some(value) {
            let after = new.get(path).map(|value| shown(path, value));
            changes.insert(path.clone(), (Some(shown(path, value)), after));
        }
    }
    for (path, value) in &new {
        if !old.contains_key(path) {
            changes.insert(path.clone(), (None, Some(shown(path, value))));
        }
    }
    let changes = changes.into_iter();
    changes
        .map(|(key, (before, after))| KeyChange { key, before, after })
        .collect()
}

fn flatten(prefix: &str, keys: &Keys, into: &mut BTreeMap<String, Value>) {
    for (key, value) in keys {
        flatten_value(format!("{prefix}{key}"), value, into);
    }
}

fn flatten_value(path: String, value: &Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) if !table.is_empty() => flatten(&format!("{path}."), table, into),
        Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_object) => {
            for (place, entry) in list.iter().enumerate() {
                let Value::Object(table) = entry else {
                    continue;
                };
                let (own, number) = distinction(table, place);
                // The key that tells it apart is in the path already.
                let mut rest = table.clone();
                if let Some(own) = own {
                    rest.remove(own);
                }
                let path = format!("{path}.{number}");
                if rest.is_empty() {
                    into.insert(path, true.into());
                } else {
                    flatten(&format!("{path}."), &rest, into);
                }
            }
        }
        other => {
            into.insert(path, other.clone());
        }
    }
}

/// What tells an entry of a list apart from the others: the key, and its value.
fn distinction(table: &Keys, place: usize) -> (Option<&'static str>, String) {
    for key in ["lun", "nsid", "user"] {
        match table.get(key) {
            Some(Value::Number(number)) => return (Some(key), number.to_string()),
            Some(Value::String(text)) => return (Some(key), text.clone()),
            _ => {}
        }
    }
    for key in ["initiators", "hosts"] {
        if let Some(Value::Array(names)) = table.get(key) {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            return (Some(key), format!("[{}]", names.join(",")));
        }
    }
    (None, place.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys(value: Value) -> Keys {
        match value {
            Value::Object(keys) => keys,
            other => panic!("{other} is no object"),
        }
    }

    fn target() -> ObjectId {
        ObjectId {
            kind: ObjectKind::Target,
            name: "iqn.2026-11.x:t".to_owned(),
        }
    }

    #[test]
    fn differences_name_the_keys_within_lists_by_what_tells_entries_apart() {
        let before = keys(json!({
            "luns": [{"lun": 0, "volume": "a"}, {"lun": 1, "volume": "b"}],
            "accounts": [{"user": "ann", "secret": "first-secret"}],
            "alias": "x",
        }));
        let after = keys(json!({
            "luns": [{"lun": 1, "volume": "b", "read-only": true}, {"lun": 2, "volume": "c"}],
            "accounts": [{"user": "ann", "secret": "other-secret"}],
            "alias": "x",
        }));
        let changes = differences(&before, &after);
        let shown: Vec<String> = changes
            .iter()
            .map(|it| format!("{}: {:?} {:?}", it.key, it.before, it.after))
            .collect();
        assert_eq!(
            shown,
            [
                "accounts.ann.secret: Some(String(\"set\")) Some(String(\"set\"))",
                "luns.0.volume: Some(String(\"a\")) None",
                "luns.1.read-only: None Some(Bool(true))",
                "luns.2.volume: None Some(String(\"c\"))",
            ]
        );
        assert_eq!(differences(&after, &after), []);
    }

    #[test]
    fn one_user_with_other_secrets_in_other_rules_keeps_each_or_is_refused() {
        let stored = keys(json!({
            "accounts": [{"user": "ann", "secret": "one"}],
            "access": [{"initiators": ["iqn.2026-11.x:y"], "accounts": [{"user": "ann", "secret": "two"}]}],
        }));
        let mut shown = without_secrets(&stored);
        restore_secrets(&target(), &mut shown, Some(&stored)).unwrap();
        assert_eq!(shown, stored);
        let mut changed = without_secrets(&stored);
        changed.insert("alias".to_owned(), "t".into());
        let refused = restore_secrets(&target(), &mut changed, Some(&stored)).unwrap_err();
        assert!(refused.title.contains("several"), "{refused}");
    }

    #[test]
    fn what_is_shown_can_be_written_back_and_keeps_its_secrets() {
        let stored = keys(json!({
            "url": "iscsi://u%pass@h/iqn.2026-11.x:y/0",
            "mutual": {"user": "us", "secret": "another"},
            "accounts": [{"user": "ann", "secret": "one"}, {"user": "bob", "secret": "two"}],
        }));
        let mut shown = without_secrets(&stored);
        let text = serde_json::to_string(&shown).unwrap();
        for secret in ["pass", "another", "one", "two"] {
            assert!(
                !text.contains(&format!("{secret}\"")) && !text.contains("pass@"),
                "{text}"
            );
        }
        let mut changed = shown.clone();
        changed.insert("alias".to_owned(), "t".into());
        restore_secrets(&target(), &mut changed, Some(&stored)).unwrap();
        assert_eq!(changed.remove("alias"), Some("t".into()));
        assert_eq!(changed, stored);
        restore_secrets(&target(), &mut shown, Some(&stored)).unwrap();
        assert_eq!(shown, stored);
        let mut fresh = keys(json!({"accounts": [{"user": "eve", "secret": "set"}]}));
        let refused = restore_secrets(&target(), &mut fresh, Some(&stored)).unwrap_err();
        assert!(
            refused.to_string().contains("write the secret itself"),
            "{refused}"
        );
    }

    #[test]
    fn what_means_the_same_is_equal_in_its_normal_form() {
        let here = Path::new("/srv");
        let one = keys(
            json!({"size": "1M", "path": "a.img", "read-only": false, "luns": [{"lun": 0, "read-only": false}]}),
        );
        let other = keys(
            json!({"size": 1_048_576, "path": "/srv/a.img", "enabled": true, "luns": [{"lun": 0}]}),
        );
        assert_eq!(normal(&one, here), normal(&other, here));
        let one = keys(json!({"pool": "a.img+./b/c.img", "quota": "1G"}));
        let other = keys(json!({"pool": ["/srv/a.img", "/srv/./b/c.img"], "quota": 1_073_741_824}));
        assert_eq!(normal(&one, here), normal(&other, here));
        let named = keys(json!({"pool": "tank"}));
        assert_eq!(normal(&named, here), named);
    }

    #[test]
    fn drives_of_pools_have_whole_paths() {
        let volume = ObjectId {
            kind: ObjectKind::Volume,
            name: "a".to_owned(),
        };
        for good in [json!("tank"), json!("/a.img+/b.img"), json!(["/a.img"])] {
            check_paths(&volume, &keys(json!({ "pool": good }))).unwrap();
        }
        for bad in [json!("/a.img+b.img"), json!("./a.img"), json!(["./a.img"])] {
            let refused = check_paths(&volume, &keys(json!({ "pool": bad }))).unwrap_err();
            assert!(refused.title.contains("relative path"), "{refused}");
        }
    }

    #[test]
    fn a_patch_merges_tables_replaces_lists_and_removes_by_null() {
        let mut object = keys(json!({"alias": "x", "iscsi": {"a": 1, "b": 2}, "luns": [1, 2]}));
        let patch = keys(json!({"alias": null, "iscsi": {"a": null, "c": 3}, "luns": [3]}));
        merge(&mut object, &patch);
        assert_eq!(
            object,
            keys(json!({"iscsi": {"b": 2, "c": 3}, "luns": [3]}))
        );
    }

    #[test]
    fn an_object_becomes_a_table_of_the_file() {
        let text = to_text(
            &target(),
            &keys(json!({"luns": [{"lun": 0, "volume": "a"}]})),
        )
        .unwrap();
        let parsed: toml::Table = text.parse().unwrap();
        assert!(
            text.starts_with("[[target]]\nname = \"iqn.2026-11.x:t\"\n"),
            "{text}"
        );
        assert_eq!(parsed["target"][0]["luns"][0]["volume"].as_str(), Some("a"));
        for bad in [
            json!({"alias": null}),
            json!({"name": "other"}),
            json!({"x": 1e300}),
        ] {
            to_text(&target(), &keys(bad)).unwrap_err();
        }
    }
}
