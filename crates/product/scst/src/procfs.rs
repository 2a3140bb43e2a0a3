//! The tree of the procfs era: tables, and groups that hold for all targets.
//!
//! - `Default` is the map of targets for initiators of no group; other groups are rules of every target.
//! - The tree shows a group of the first target that has it. A change is made to every target of the API at once. If there
//!   is no target of any owner, one is made, since the targets of that era stood in another file.

use std::fmt::Write as _;

use longshore_api::object::Owner;

use crate::change::{Change, Wanted};
use crate::command::word;
use crate::errno::{EEXIST, EROFS, Refusal};
use crate::node::{File, Handler};
use crate::state::{DEFAULT_GROUP, Edited, Group, Lun, State, target};
use crate::target as targets;
use crate::{VERSION, device};

/// The target that the old tree makes.
const TARGET: &str = "iqn.2026-11.local.longshore:scst";

pub(crate) fn group_exists(state: &State, name: &str) -> bool {
    name == DEFAULT_GROUP || group(state, name).is_some()
}

fn group<'a>(state: &'a State, name: &str) -> Option<&'a Group> {
    state.targets.values().find_map(|target| target.group(name))
}

pub(crate) fn group_names(state: &State) -> Vec<String> {
    let mut names = vec![DEFAULT_GROUP.to_owned()];
    for group in state.targets.values().flat_map(|target| &target.groups) {
        if !names.contains(&group.name) {
            names.push(group.name.clone());
        }
    }
    names
}

pub(crate) fn text(state: &State, file: &File) -> String {
    match file {
        File::Proc("help") => "Write one of these commands into the file:\n\n\
             scsi_tgt: add_group NAME, del_group NAME, rename_group NAME NEW\n\
             vdisk/vdisk: open NAME [PATH] [BLOCK_SIZE] [OPTIONS], close NAME, resync_size NAME, set_t10_dev_id NAME ID\n\
             groups/NAME/devices: add DEVICE LUN [READ_ONLY], replace DEVICE LUN [READ_ONLY], del DEVICE, clear\n\
             groups/NAME/names: add INITIATOR, del INITIATOR, move INITIATOR GROUP, clear\n"
            .to_owned(),
        File::Proc("scsi_tgt") => {
            let mut table = format!("{:<60}{}\n", "Device (host:ch:id:lun or name)", "Device handler");
            for (name, device) in &state.devices {
                if device.handler() != Handler::Other {
                    let _ = writeln!(table, "{name:<60}{}", device.handler().name());
                }
            }
            table
        }
        File::Proc("sessions") => {
            let mut table = format!("{:<33} {:<45} {:<35} Commands\n", "Target name", "Initiator name", "Group name");
            for (name, target) in &state.targets {
                for session in target.sessions.values() {
                    let group = session.group.as_deref().unwrap_or(DEFAULT_GROUP);
                    let commands: u64 = session.connections.iter().map(|it| it.commands).sum();
                    let _ = writeln!(table, "{name:<33} {:<45} {group:<35} {commands}", session.initiator);
                }
            }
            table
        }
        File::Proc("sgv") => format!("{:<20} {:>10} {:>10}\n", "Name", "Hit", "Total"),
        File::Proc("threads") => "1\n".to_owned(),
        File::Proc("trace_level") => "none\n".to_owned(),
        File::Proc("vcdrom") => format!("{:<16} {:<10} {}\n", "Name", "Size(MB)", "File name"),
        File::Proc(_) => format!("{VERSION}\n"),
        File::ProcType("vcdrom") => "5 - CD-ROM device\n".to_owned(),
        File::ProcType(_) => "0 - Direct-access device (e.g., magnetic disk)\n".to_owned(),
        File::ProcVdisk => vdisk(state),
        File::ProcNames(name) => {
            let names = group(state, name).map_or(&[][..], |group| &group.initiators);
            names.iter().map(|name| format!("{name}\n")).collect()
        }
        File::ProcDevices(name) => {
            let mut table = format!("{:<60}{:<13}{}\n", "Device (host:ch:id:lun or name)", "LUN", "Options");
            let luns = match group(state, name) {
                Some(group) => Some(&group.luns),
                None => state.targets.values().next().map(|target| &target.luns),
            };
            for (number, lun) in luns.into_iter().flatten() {
                let options = if lun.read_only { "RO" } else { "" };
                let _ = writeln!(table, "{:<60}{number:<13}{options}", lun.device);
            }
            table
        }
        File::ProcAddressing(_) => "PERIPHERAL\n".to_owned(),
        File::ProcSession => session_table(state, |_| (0, 0, 0)),
        _ => String::new(),
    }
}

fn vdisk(state: &State) -> String {
    let row = |cells: [&str; 6]| {
        let [name, size, block, options, file, id] = cells;
        format!("{name:<17} {size:<11} {block:<11} {options:<15} {file:<45} {id}\n")
    };
    let mut table = row([
        "Name",
        "Size(MB)",
        "Block size",
        "Options",
        "File name",
        "T10 device id",
    ]);
    for (name, device) in &state.devices {
        let file = match device.handler() {
            Handler::Other => continue,
            Handler::Null => "/dev/zero",
            _ => device.filename(),
        };
        let size = (device.size_bytes >> 20).to_string();
        let block = device.block_size().to_string();
        table += &row([
            name,
            &size,
            &block,
            &device.options(),
            file,
            device.t10_dev_id(),
        ]);
    }
    table
}

/// `iscsi/session`: sessions, their connections, and what the transmit policy did since the counts of `since` (idles, reads,
/// reads in Nagle mode of a connection by its address).
pub fn session_table(state: &State, since: impl Fn(&str) -> (u64, u64, u64)) -> String {
    let mut table = String::new();
    for (place, (name, target)) in state.targets.iter().enumerate() {
        let _ = writeln!(table, "tid:{} name:{name}", place + 1);
        for session in target.sessions.values() {
            let _ = writeln!(
                table,
                "\tsid:{} initiator:{} (reinstating no)",
                session.id, session.initiator
            );
            for (cid, it) in session.connections.iter().enumerate() {
                let (idles, reads, nagle) = since(&it.address);
                let (reads, nagle) = (
                    it.reads.saturating_sub(reads),
                    it.reads_in_nagle.saturating_sub(nagle),
                );
                #[expect(clippy::cast_precision_loss, reason = "a percentage is shown")]
                let percent = if reads == 0 {
                    0.0
                } else {
                    nagle as f64 * 100.0 / reads as f64
                };
                let _ = writeln!(
                    table,
                    "\t\tcid:{cid} ip:{} state:established\n\
                     \t\tmode:{} busy:{} max_busy:{} avg_busy:{:.1} idles:{} reads:{reads} nagle:{percent:.1}%",
                    it.address,
                    if it.nagle { "nagle" } else { "nodelay" },
                    it.busy,
                    it.max_busy,
                    it.avg_busy,
                    it.idles.saturating_sub(idles),
                );
            }
        }
    }
    table
}

pub(crate) fn write(state: &State, file: &File, verb: &str, rest: &str) -> Result<Wanted, Refusal> {
    match file {
        File::ProcVdisk => vdisk_command(state, verb, rest),
        File::Proc(_) => groups_command(state, verb, rest).map(Wanted::from),
        File::ProcNames(group) if &**group == DEFAULT_GROUP => Err(Refusal::unsupported(
            "the group Default holds for initiators that no other group names",
        )),
        File::ProcNames(group) => everywhere(state, |edited| {
            if verb == "add" && edited.group(group).is_none() {
                edited.add_group(group);
            }
            targets::edit_initiators(edited, group, verb, rest)
        })
        .map(Wanted::from),
        File::ProcDevices(group) => devices_command(state, group, verb, rest).map(Wanted::from),
        _ => Err(Refusal::new(EROFS, "this file cannot be written")),
    }
}

/// `open NAME [PATH] [BLOCK_SIZE] [OPTIONS]` and others.
fn vdisk_command(state: &State, verb: &str, rest: &str) -> Result<Wanted, Refusal> {
    let (name, rest) = word(rest);
    match verb {
        "open" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let has = |option: &str| words.contains(&option);
            let handler = match () {
                () if has("NULLIO") => Handler::Null,
                () if has("BLOCKIO") || has("O_DIRECT") => Handler::Block,
                () => Handler::File,
            };
            let mut parameters = String::new();
            for word in &words {
                let _ = match *word {
                    "NULLIO" | "BLOCKIO" | "O_DIRECT" => Ok(()),
                    "READ_ONLY" => write!(parameters, "read_only=1;"),
                    "WRITE_THROUGH" => write!(parameters, "write_through=1;"),
                    "NV_CACHE" => write!(parameters, "nv_cache=1;"),
                    "REMOVABLE" => write!(parameters, "removable=1;"),
                    path if path.starts_with('/') && handler == Handler::Null => Ok(()),
                    path if path.starts_with('/') => write!(parameters, "filename={path};"),
                    size if size.bytes().all(|it| it.is_ascii_digit()) => {
                        write!(parameters, "blocksize={size};")
                    }
                    other => {
                        return Err(Refusal::invalid(format!(
                            "`{other}` is no option of a device"
                        )));
                    }
                };
            }
            device::add(state, handler, name, &parameters)
        }
        "close" => device::remove(state, name).map(Wanted::from),
        "resync_size" => device::write(state, name, "resync_size", "1"),
        "set_t10_dev_id" => device::write(state, name, "usn", rest),
        _ => Err(targets::unknown(verb)),
    }
}

/// The same change of every target of the API.
fn everywhere(
    state: &State,
    change: impl Fn(&mut Edited) -> Result<(), Refusal>,
) -> Result<Change, Refusal> {
    let mut objects = Vec::new();
    for (name, found) in &state.targets {
        if found.owner == Owner::Api {
            let mut edited = Edited::of(found);
            change(&mut edited)?;
            objects.push((target(name), Some(edited.keys())));
        }
    }
    if objects.is_empty() {
        if !state.targets.is_empty() {
            let text = "all targets belong to the configuration file: change them there";
            return Err(Refusal::new(EROFS, text));
        }
        let mut edited = Edited::new();
        edited.keys_mut().remove("enabled");
        change(&mut edited)?;
        objects.push((target(TARGET), Some(edited.keys())));
    }
    Ok(Change::objects(objects))
}

fn groups_command(state: &State, verb: &str, rest: &str) -> Result<Change, Refusal> {
    let (name, new) = word(rest);
    let missing = || Refusal::missing(format!("there is no group {name}"));
    match verb {
        "add_group" => {
            if group_exists(state, name) {
                return Err(Refusal::new(
                    EEXIST,
                    format!("group {name} is there already"),
                ));
            }
            targets::check_group(name)?;
            everywhere(state, |edited| {
                edited.add_group(name);
                Ok(())
            })
        }
        "del_group" | "rename_group" if group(state, name).is_none() => Err(missing()),
        "del_group" => everywhere(state, |edited| {
            edited.remove_group(name);
            Ok(())
        }),
        "rename_group" => {
            targets::check_group(new)?;
            if state
                .targets
                .values()
                .any(|target| target.group(new).is_some())
            {
                return Err(Refusal::new(
                    EEXIST,
                    format!("group {new} is there already"),
                ));
            }
            everywhere(state, |edited| {
                if let Some(group) = edited.group(name) {
                    new.clone_into(&mut group.name);
                }
                Ok(())
            })
        }
        "assign" => Err(Refusal::unsupported(
            "devices of the system are not passed through",
        )),
        _ => Err(targets::unknown(verb)),
    }
}

fn devices_command(state: &State, group: &str, verb: &str, rest: &str) -> Result<Change, Refusal> {
    let own = (group != DEFAULT_GROUP).then_some(group);
    let (name, rest) = word(rest);
    let (lun, options) = word(rest);
    let mut replace = false;
    if matches!(verb, "add" | "replace") && !state.devices.contains_key(name) {
        return Err(Refusal::invalid(format!("there is no device {name}")));
    }
    let change = everywhere(state, |edited| {
        let missing = || Refusal::missing(format!("there is no group {group}"));
        let map = edited.map(own).ok_or_else(missing)?;
        match verb {
            "add" | "replace" => {
                let number = lun.parse::<u64>().ok().filter(|it| *it < 16_384);
                let number = number.ok_or_else(|| {
                    Refusal::invalid(format!("`{lun}` is no logical unit number"))
                })?;
                if verb == "add" && map.contains_key(&number) {
                    return Err(Refusal::new(
                        EEXIST,
                        format!("LUN {number} is there already"),
                    ));
                }
                let entry = Lun {
                    device: name.to_owned(),
                    read_only: options.split_whitespace().any(|it| it == "READ_ONLY"),
                };
                map.insert(number, entry);
            }
            "del" => {
                let found = map.iter().find(|(_, it)| it.device == name);
                let gone = || Refusal::missing(format!("group {group} has no device {name}"));
                let number = *found.ok_or_else(gone)?.0;
                map.remove(&number);
            }
            "clear" => map.clear(),
            _ => return Err(targets::unknown(verb)),
        }
        Ok(())
    })?;
    if verb == "replace" {
        replace = true;
    }
    Ok(match change {
        Change::Objects {
            objects, create, ..
        } => Change::Objects {
            objects,
            create,
            replace,
        },
        other => other,
    })
}
