//! The copy manager: the driver behind EXTENDED COPY, which files that SCST has written name.
//!
//! ```text
//! targets/copy_manager/allow_not_connected_copy
//! targets/copy_manager/copy_manager_tgt/{luns,ini_groups,sessions,ATTRIBUTE…}
//! ```
//!
//! Here copies reach all LUNs of a session, and need no target. Its target and its map are there so that configurations
//! are carried out and read back; nothing depends on them. They last while the server runs.

use crate::change::{Change, Wanted};
use crate::command::{self, word};
use crate::device::Attribute;
use crate::errno::{EEXIST, Refusal};
use crate::state::{State, Tuned};
use crate::target;

/// The name of the driver.
pub(crate) const DRIVER: &str = "copy_manager";

pub(crate) use crate::map::COPY_TARGET as TARGET;

/// Settings of the driver, with their values here.
pub(crate) const DRIVER_SETTINGS: [(&str, &str); 1] = [("allow_not_connected_copy", "0")];

/// Attributes of the target that are kept and shown, with the values of the beginning.
const ATTRIBUTES: [(&str, &str); 7] = [
    ("addr_method", "PERIPHERAL"),
    ("aen_disabled", "0"),
    ("black_hole", "0"),
    ("comment", ""),
    ("cpu_mask", ""),
    ("io_grouping_type", "auto"),
    ("rel_tgt_id", "0"),
];

/// The names of the target's attributes.
pub(crate) fn names() -> Vec<String> {
    ATTRIBUTES.iter().map(|row| row.0.to_owned()).collect()
}

fn default<'a>(state: &'a State, name: &str) -> Option<(&'static str, &'a str)> {
    let (name, value) = ATTRIBUTES.iter().find(|row| row.0 == name)?;
    let value = match *name {
        "cpu_mask" => &state.cpu_mask,
        _ => *value,
    };
    Some((name, value))
}

fn kept(attribute: &'static str) -> Tuned {
    Tuned {
        target: TARGET.to_owned(),
        group: None,
        attribute,
    }
}

/// An attribute of the target.
pub(crate) fn attribute(state: &State, name: &str) -> Option<Attribute> {
    let (name, default) = default(state, name)?;
    let written = state.tuned.get(&kept(name));
    Some(match written {
        Some(value) => Attribute::settable(value.clone(), true),
        None => Attribute::settable(default, false),
    })
}

/// A write to an attribute of the target.
pub(crate) fn write(state: &State, name: &str, value: &str) -> Result<Wanted, Refusal> {
    let gone = || Refusal::missing(format!("{TARGET} has no attribute {name}"));
    let (name, default) = default(state, name).ok_or_else(gone)?;
    let what = kept(name);
    let is_default = value == default || default == "0" && command::number(value) == Some(0);
    if is_default {
        return Ok(Change::Tune { what, value: None }.into());
    }
    let is_value = match name {
        "rel_tgt_id" => command::number(value).is_some_and(|it| it <= u16::MAX.into()),
        "black_hole" => return Err(target::fixed(name, value)),
        _ => target::is_tuning(name, value),
    };
    if !is_value {
        let text = format!("{name}: `{value}` is no value of it");
        return Err(Refusal::invalid(text));
    }
    Ok(Wanted {
        change: Change::Tune {
            what,
            value: Some(value.to_owned()),
        },
        ignored: vec![format!("{TARGET}: {name} {value} has no effect here")],
    })
}

/// A command to the map.
pub(crate) fn luns(state: &State, verb: &str, rest: &str) -> Result<Wanted, Refusal> {
    let mut map = state.copies.clone();
    match verb {
        "add" | "replace" => {
            let (device, rest) = word(rest);
            let (lun, rest) = word(rest);
            let lun = target::lun(lun)?;
            if !state.devices.contains_key(device) {
                return Err(Refusal::invalid(format!("there is no device {device}")));
            }
            if !rest.trim_matches([';', ' ']).is_empty() {
                let text = format!("a LUN of {TARGET} has no parameter {rest}");
                return Err(Refusal::invalid(text));
            }
            match map.luns().get(&lun) {
                Some(other) if other.device == device => return Ok(Change::Nothing.into()),
                Some(_) if verb == "add" => {
                    return Err(Refusal::new(EEXIST, format!("LUN {lun} is there already")));
                }
                _ => map.put(lun, device),
            }
            return Ok(Change::Copies(map).into());
        }
        "del" => {
            let lun = target::lun(rest.trim())?;
            let gone = || Refusal::missing(format!("there is no LUN {lun}"));
            map.take_out(lun).ok_or_else(gone)?;
        }
        "clear" => map.clear(),
        _ => return Err(target::unknown(verb)),
    }
    Ok(Wanted {
        change: Change::Copies(map),
        ignored: vec![format!(
            "{TARGET}: copies reach all LUNs of a session, whatever its map"
        )],
    })
}
