//! Attributes of the driver: accounts of discovery, and Adaptive Nagle.
//!
//! They are settings of the server that can change while it runs: `discovery` and `transmit`.

use longshore_api::object::{DISCOVERY, Keys, ObjectId, ObjectKind, TRANSMIT};
use serde_json::Value;

use crate::change::Change;
use crate::command::{self, word};
use crate::device::Attribute;
use crate::errno::Refusal;
use crate::state::State;
use crate::target;

/// Attributes that are added and removed.
pub(crate) const DYNAMIC: [&str; 2] = ["IncomingUser", "OutgoingUser"];

/// Settings of Adaptive Nagle: attribute, key of the setting.
pub(crate) const NAGLE: [(&str, &str); 2] = [
    ("nagle_threshold", "nagle-threshold"),
    ("nagle_margin", "nagle-margin"),
];

/// The threshold that no number of requests reaches.
const INFINITE: &str = "infinite";

pub(crate) fn names(state: &State) -> Vec<String> {
    let nagle = NAGLE.iter().map(|row| row.0.to_owned());
    nagle
        .chain(target::account_names(&state.discovery))
        .collect()
}

pub(crate) fn attribute(state: &State, name: &str) -> Option<Attribute> {
    if let Some((_, key)) = NAGLE.iter().find(|row| row.0 == name) {
        let value = match name {
            "nagle_threshold" => state.nagle.threshold.clone(),
            _ => state.nagle.margin.to_string(),
        };
        return Some(Attribute::settable(
            value,
            state.transmit.contains_key(*key),
        ));
    }
    target::account_attribute(&state.discovery, name)
}

fn put(name: &str, keys: Keys, was_there: bool) -> Change {
    let id = ObjectId {
        kind: ObjectKind::Setting,
        name: name.to_owned(),
    };
    match (keys.is_empty(), was_there) {
        (true, false) => Change::Nothing,
        (true, true) => Change::objects(vec![(id, None)]),
        (false, _) => Change::put(id, keys),
    }
}

/// A write to an attribute.
pub(crate) fn write(state: &State, name: &str, value: &str) -> Result<Change, Refusal> {
    let now = attribute(state, name);
    let now = now.ok_or_else(|| Refusal::missing(format!("the driver has no attribute {name}")))?;
    if now.value == value {
        return Ok(Change::Nothing);
    }
    let Some((_, key)) = NAGLE.iter().find(|row| row.0 == name) else {
        let mut keys = state.discovery.clone();
        target::write_account(&mut keys, name, value)?;
        return Ok(put(DISCOVERY, keys, true));
    };
    let read = match command::number(value).and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Value::from(number),
        None if value == INFINITE && name == "nagle_threshold" => value.into(),
        None => {
            return Err(Refusal::invalid(format!(
                "{name}: `{value}` is no value of it"
            )));
        }
    };
    let mut keys = state.transmit.clone();
    keys.insert((*key).to_owned(), read);
    Ok(put(TRANSMIT, keys, true))
}

/// Carries out `add_attribute NAME VALUE`, or `del_attribute`.
pub(crate) fn change(state: &State, verb: &str, rest: &str) -> Result<Change, Refusal> {
    let (name, value) = word(rest);
    if !DYNAMIC.contains(&name) {
        let text = format!("the driver has no attribute `{name}` to add or remove");
        return Err(Refusal::invalid(text));
    }
    let mut keys = state.discovery.clone();
    match verb {
        "add_attribute" => target::add_attribute(&mut keys, name, value)?,
        _ => target::remove_attribute(&mut keys, "discovery", name, value)?,
    }
    Ok(put(DISCOVERY, keys, !state.discovery.is_empty()))
}
