//! What a write to a file of the trees asks for.

use crate::change::{Change, Wanted};
use crate::command::{self, Command, word};
use crate::errno::{E2BIG, EROFS, Refusal};
use crate::node::{DRIVER_SETTINGS, File, Handler, SETTINGS, TUNED};
use crate::state::State;
use crate::{copies, device, driver, procfs, target};

/// Commands are shorter, as in sysfs.
pub const COMMAND_MAX: usize = 4096;

/// What a write asks for.
///
/// # Errors
/// It can be refused without a look at anything but the state.
pub fn write(state: &State, file: &File, bytes: &[u8]) -> Result<Wanted, Refusal> {
    if bytes.len() >= COMMAND_MAX {
        let text = format!("a command has less than {COMMAND_MAX} bytes");
        return Err(Refusal::new(E2BIG, text));
    }
    let text =
        command::text(bytes).ok_or_else(|| Refusal::invalid("a command is one line of text"))?;
    let command = Command::parse(text);
    let (verb, rest) = (command.verb, command.rest);
    match file {
        File::HandlerManagement(handler) => of_handler(state, *handler, verb, rest),
        File::Device(name, attribute) => device::write(state, name, attribute, text),
        File::DriverManagement => of_driver(state, verb, rest).map(Wanted::from),
        File::Target(name, attribute) => target::tune(state, name, None, attribute, text)
            .unwrap_or_else(|| target::write(state, name, attribute, text).map(Wanted::from)),
        File::LunsManagement(map) if &*map.target == copies::TARGET => {
            copies::luns(state, verb, rest)
        }
        File::Copies(name) => fixed(&copies::DRIVER_SETTINGS, name, text),
        File::CopyTarget(name) => copies::write(state, name, text),
        File::GroupsManagement(name) if &**name == copies::TARGET => Err(Refusal::unsupported(
            "the copy manager has no groups: no initiator logs in to it",
        )),
        File::LunsManagement(map) => {
            target::luns(state, &map.target, map.group.as_deref(), verb, rest).map(Wanted::from)
        }
        File::GroupsManagement(name) => target::groups(state, name, verb, rest).map(Wanted::from),
        File::InitiatorsManagement(name, group) => {
            target::initiators(state, name, group, verb, rest).map(Wanted::from)
        }
        File::Setting(name) => set(name, text),
        // scstadmin says so when it has cleared the configuration.
        File::Driver("enabled") if text == "0" && state.targets.is_empty() => {
            Ok(Change::Nothing.into())
        }
        File::Driver(name) => fixed(&DRIVER_SETTINGS, name, text),
        File::DriverAttribute(name) => driver::write(state, name, text).map(Wanted::from),
        File::ProcNagle(name) => driver::write(state, name, text).map(Wanted::from),
        File::Group(target, group, name) => target::tune(state, target, Some(group), name, text)
            .unwrap_or_else(|| fixed(&target::GROUP_FIXED, name, text)),
        File::Session(target, name, "force_close") => {
            let target = state.targets.get(&**target);
            let session = target.and_then(|target| target.sessions.get(&**name));
            let gone = || Refusal::missing(format!("there is no session {name}"));
            Ok(Change::CloseSession(session.ok_or_else(gone)?.id.clone()).into())
        }
        File::DeviceGroupsManagement => Err(Refusal::unsupported(
            "there are no device groups: all paths are active/optimized",
        )),
        File::Proc("scsi_tgt") | File::ProcVdisk | File::ProcNames(_) | File::ProcDevices(_) => {
            procfs::write(state, file, verb, rest)
        }
        _ => Err(Refusal::new(EROFS, "this file cannot be written")),
    }
}

/// A write to a setting of SCST as a whole.
fn set(name: &'static str, text: &str) -> Result<Wanted, Refusal> {
    let Some((_, values)) = TUNED.iter().find(|row| row.0 == name) else {
        return match name {
            // A negative number ends what a positive one, or 0, begins, and it never began here.
            "suspend" if text.strip_prefix('-').and_then(command::number).is_some() => {
                Ok(Change::Nothing.into())
            }
            "suspend" => Err(Refusal::unsupported(
                "suspend: commands are not held back; each change is made in one step",
            )),
            _ => fixed(&SETTINGS, name, text),
        };
    };
    let value = command::number(text).filter(|it| values.contains(it));
    let value = value.ok_or_else(|| {
        let (least, most) = (values.start(), values.end());
        Refusal::invalid(format!(
            "{name} `{text}`: it is a number from {least} to {most}"
        ))
    })?;
    Ok(Wanted {
        change: Change::Setting { name, value },
        ignored: vec![format!("{name} {text} has no effect here")],
    })
}

/// What has one value: writing that one is no error.
fn fixed(rows: &[(&str, &str)], name: &str, text: &str) -> Result<Wanted, Refusal> {
    match rows.iter().find(|row| row.0 == name) {
        Some((_, value)) if is_same(value, text) => Ok(Change::Nothing.into()),
        _ if text.is_empty() => Err(Refusal::invalid(format!("{name}: no value is given"))),
        _ => Err(target::fixed(name, text)),
    }
}

/// Whether two texts are the same value: `0x0` is 0.
fn is_same(one: &str, other: &str) -> bool {
    let numbers = command::number(one).zip(command::number(other));
    one == other || numbers.is_some_and(|(one, other)| one == other)
}

fn of_handler(state: &State, handler: Handler, verb: &str, rest: &str) -> Result<Wanted, Refusal> {
    let (name, rest) = word(rest);
    match verb {
        "add_device" => device::add(state, handler, name, rest),
        "del_device" => device::remove(state, name).map(Wanted::from),
        _ => Err(target::unknown(verb)),
    }
}

fn of_driver(state: &State, verb: &str, rest: &str) -> Result<Change, Refusal> {
    if matches!(verb, "add_attribute" | "del_attribute") {
        return driver::change(state, verb, rest);
    }
    let (name, rest) = word(rest);
    let name = &*state.target_name(name);
    match verb {
        "add_target" => target::add(state, name, rest),
        "del_target" => target::remove(state, name),
        "add_target_attribute" => target::add_target_attribute(state, name, rest),
        "del_target_attribute" => target::remove_target_attribute(state, name, rest),
        _ => Err(target::unknown(verb)),
    }
}
