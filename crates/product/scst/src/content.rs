//! What the trees show: the names in a directory, and the text of a file.

use std::sync::Arc;

use crate::command;
use crate::copies;
use crate::device;
use crate::driver;
use crate::node::{DRIVER_SETTINGS, Directory, File, Handler, Link, Map, Node, SETTINGS};
use crate::procfs;
use crate::state::{Connection, Group, Session, State};
use crate::target;
use crate::{DRIVER, VERSION};

type Name = Arc<str>;

pub(crate) const PROC_FILES: [&str; 7] = [
    "help",
    "scsi_tgt",
    "sessions",
    "sgv",
    "threads",
    "trace_level",
    "version",
];

const SESSION: [&str; 6] = [
    "initiator_name",
    "sid",
    "commands",
    "active_commands",
    "reinstating",
    "force_close",
];

const CONNECTION: [&str; 12] = [
    "cid",
    "ip",
    "state",
    "commands",
    "policy",
    "mode",
    "busy",
    "max_busy",
    "avg_busy",
    "idles",
    "reads",
    "reads_in_nagle",
];

fn known<'a>(names: &[&'a str], name: &str) -> Option<&'a str> {
    names.iter().find(|known| **known == name).copied()
}

fn setting(
    settings: &[(&'static str, &'static str)],
    name: &str,
) -> Option<(&'static str, &'static str)> {
    settings.iter().find(|row| row.0 == name).copied()
}

impl Node {
    #[must_use]
    pub fn exists(&self, state: &State) -> bool {
        match self {
            Self::Directory(directory) => directory.exists(state),
            Self::File(file) => file.exists(state),
            Self::Link(link) => link.text(state).is_some(),
        }
    }
}

impl Map {
    fn depth(&self) -> usize {
        if self.group.is_some() { 2 } else { 0 }
    }

    fn lun<'a>(&self, state: &'a State, lun: u64) -> Option<&'a crate::state::Lun> {
        state.luns(&self.target, self.group.as_deref())?.get(&lun)
    }
}

fn session<'a>(state: &'a State, target: &str, name: &str) -> Option<&'a Session> {
    state.targets.get(target)?.sessions.get(name)
}

fn group<'a>(state: &'a State, target: &str, name: &str) -> Option<&'a Group> {
    state.targets.get(target)?.group(name)
}

impl Directory {
    fn exists(&self, state: &State) -> bool {
        match self {
            Self::Device(name) | Self::Exported(name) => state.devices.contains_key(&**name),
            Self::Target(name) => state.targets.contains_key(&**name),
            Self::Groups(name) | Self::Sessions(name) => state.has(name, None),
            Self::Luns(map) => state.luns(&map.target, map.group.as_deref()).is_some(),
            Self::Lun(map, lun) => map.lun(state, *lun).is_some(),
            Self::Group(target, name) | Self::Initiators(target, name) => {
                group(state, target, name).is_some()
            }
            Self::Session(target, name) => session(state, target, name).is_some(),
            Self::Connection(target, name, place) => {
                session(state, target, name).is_some_and(|it| *place < it.connections.len())
            }
            Self::ProcGroup(name) => procfs::group_exists(state, name),
            _ => true,
        }
    }

    /// Whether it is always there.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Root
                | Self::Sys
                | Self::Handlers
                | Self::Handler(_)
                | Self::Devices
                | Self::Targets
                | Self::Driver
                | Self::Copies
                | Self::CopyTarget
                | Self::Proc
                | Self::ScsiTgt
                | Self::ProcHandler(_)
                | Self::ProcGroups
        )
    }

    /// What a name in it stands for. It takes the time of a look-up in a map.
    #[must_use]
    pub fn child(&self, state: &State, name: &str) -> Option<Node> {
        let node = self.node(state, name)?;
        node.exists(state).then_some(node)
    }

    fn node(&self, state: &State, name: &str) -> Option<Node> {
        use Directory as D;
        use File as F;
        let directory = |directory| Some(Node::Directory(directory));
        let file = |file| Some(Node::File(file));
        let own: Name = name.into();
        match self {
            D::Root => match name {
                "sys" => directory(D::Sys),
                "proc" => directory(D::Proc),
                _ => None,
            },
            D::Sys => match name {
                "handlers" => directory(D::Handlers),
                "devices" => directory(D::Devices),
                "targets" => directory(D::Targets),
                "device_groups" => directory(D::DeviceGroups),
                "sgv" => directory(D::Sgv),
                "version" => file(F::Version),
                "last_sysfs_mgmt_res" => file(F::LastResult),
                _ => file(F::Setting(setting(&SETTINGS, name)?.0)),
            },
            D::Handlers => directory(D::Handler(Handler::named(name)?)),
            D::Handler(handler) => match name {
                "mgmt" => file(F::HandlerManagement(*handler)),
                "type" => file(F::HandlerType(*handler)),
                _ => Some(Node::Link(Link::DeviceOfHandler(*handler, own))),
            },
            D::Devices => directory(D::Device(own)),
            D::Device(device) => match name {
                "handler" => Some(Node::Link(Link::HandlerOfDevice(device.clone()))),
                "exported" => directory(D::Exported(device.clone())),
                _ => file(F::Device(device.clone(), own)),
            },
            D::Exported(device) => {
                let place = name.strip_prefix("export")?.parse().ok()?;
                Some(Node::Link(Link::Export(device.clone(), place)))
            }
            D::DeviceGroups => known(&["mgmt"], name).and_then(|_| file(F::DeviceGroupsManagement)),
            D::Sgv => None,
            D::Targets => match name {
                DRIVER => directory(D::Driver),
                copies::DRIVER => directory(D::Copies),
                _ => None,
            },
            D::Copies => match (name, setting(&copies::DRIVER_SETTINGS, name)) {
                (copies::TARGET, _) => directory(D::CopyTarget),
                (_, found) => file(F::Copies(found?.0)),
            },
            D::Driver => match (name, setting(&DRIVER_SETTINGS, name)) {
                ("mgmt", _) => file(F::DriverManagement),
                (_, Some((name, _))) => file(F::Driver(name)),
                ("version", _) => file(F::Driver("version")),
                _ if driver::attribute(state, name).is_some() => file(F::DriverAttribute(own)),
                _ => directory(D::Target(state.target_name(name).into())),
            },
            D::Target(target) => {
                folder_of(target, name).or_else(|| file(F::Target(target.clone(), own)))
            }
            D::CopyTarget => {
                folder_of(&copies::TARGET.into(), name).or_else(|| file(F::CopyTarget(own)))
            }
            D::Luns(map) if name == "mgmt" => file(F::LunsManagement(map.clone())),
            D::Luns(map) => directory(D::Lun(map.clone(), number(name)?)),
            D::Lun(map, lun) => match name {
                "device" => Some(Node::Link(Link::DeviceOfLun(map.clone(), *lun))),
                "read_only" => file(F::ReadOnly(map.clone(), *lun)),
                _ => None,
            },
            D::Groups(target) if name == "mgmt" => file(F::GroupsManagement(target.clone())),
            D::Groups(target) => directory(D::Group(target.clone(), own)),
            D::Group(target, group) => match name {
                "luns" => directory(D::Luns(Map {
                    target: target.clone(),
                    group: Some(group.clone()),
                })),
                "initiators" => directory(D::Initiators(target.clone(), group.clone())),
                _ => {
                    let (name, _) = setting(&target::GROUP_FIXED, name)?;
                    file(F::Group(target.clone(), group.clone(), name))
                }
            },
            D::Initiators(target, group) if name == "mgmt" => {
                file(F::InitiatorsManagement(target.clone(), group.clone()))
            }
            D::Initiators(target, group) => file(F::Initiator(target.clone(), group.clone(), own)),
            D::Sessions(target) => directory(D::Session(target.clone(), own)),
            D::Session(target, session_name) => match name {
                "luns" => Some(Node::Link(Link::LunsOfSession(
                    target.clone(),
                    session_name.clone(),
                ))),
                _ => match known(&SESSION, name) {
                    Some(name) => file(F::Session(target.clone(), session_name.clone(), name)),
                    None => {
                        let connections = &session(state, target, session_name)?.connections;
                        let place = connections.iter().position(|it| it.address == name)?;
                        directory(D::Connection(target.clone(), session_name.clone(), place))
                    }
                },
            },
            D::Connection(target, session, place) => {
                let name = known(&CONNECTION, name)?;
                file(F::Connection(target.clone(), session.clone(), *place, name))
            }
            D::Proc => known(&["scsi_tgt"], name).and_then(|_| directory(D::ScsiTgt)),
            D::ScsiTgt => match name {
                "groups" => directory(D::ProcGroups),
                "iscsi" => directory(D::ProcIscsi),
                "vdisk" => directory(D::ProcHandler("vdisk")),
                "vcdrom" => directory(D::ProcHandler("vcdrom")),
                _ => file(F::Proc(known(&PROC_FILES, name)?)),
            },
            D::ProcHandler(handler) => match name {
                "type" => file(F::ProcType(handler)),
                _ if name != *handler => None,
                "vdisk" => file(F::ProcVdisk),
                _ => file(F::Proc("vcdrom")),
            },
            D::ProcGroups => directory(D::ProcGroup(own)),
            D::ProcGroup(group) => match name {
                "names" => file(F::ProcNames(group.clone())),
                "devices" => file(F::ProcDevices(group.clone())),
                "addr_method" => file(F::ProcAddressing(group.clone())),
                _ => None,
            },
            D::ProcIscsi => match name {
                "session" => file(F::ProcSession),
                "version" => file(F::ProcVersion),
                _ => file(F::ProcNagle(setting(&driver::NAGLE, name)?.0)),
            },
        }
    }

    /// The names in it.
    #[must_use]
    pub fn names(&self, state: &State) -> Vec<String> {
        let own = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let with = |names: &[&str], more: Vec<String>| {
            let mut all = own(names);
            all.extend(more);
            all
        };
        let of = |target: &str| state.targets.get(target);
        let settings = |rows: &[(&str, &str)]| rows.iter().map(|row| row.0.to_owned()).collect();
        match self {
            Self::Root => own(&["sys", "proc"]),
            Self::Sys => with(
                &[
                    "handlers",
                    "devices",
                    "targets",
                    "device_groups",
                    "sgv",
                    "version",
                    "last_sysfs_mgmt_res",
                ],
                settings(&SETTINGS),
            ),
            Self::Handlers => {
                let is_shown = |handler: &Handler| {
                    let is_own = |device: &crate::state::Device| device.handler() == *handler;
                    *handler != Handler::Other || state.devices.values().any(is_own)
                };
                let all = Handler::ALL.into_iter().filter(is_shown);
                all.map(|handler| handler.name().to_owned()).collect()
            }
            Self::Handler(handler) => {
                let devices = state.devices.iter();
                let devices = devices.filter(|(_, device)| device.handler() == *handler);
                with(
                    &["mgmt", "type"],
                    devices.map(|(name, _)| name.clone()).collect(),
                )
            }
            Self::Devices => state.devices.keys().cloned().collect(),
            Self::Device(name) => {
                let attributes = state.devices.get(&**name).map(device::names);
                with(
                    &["handler", "exported"],
                    own(&attributes.unwrap_or_default()),
                )
            }
            Self::Exported(name) => {
                let exports = 0..state.exports_of(name).len();
                exports.map(|place| format!("export{place}")).collect()
            }
            Self::DeviceGroups => own(&["mgmt"]),
            Self::Sgv => Vec::new(),
            Self::Targets => own(&[copies::DRIVER, DRIVER]),
            Self::Copies => with(&[copies::TARGET], settings(&copies::DRIVER_SETTINGS)),
            Self::CopyTarget => with(&["luns", "ini_groups", "sessions"], copies::names()),
            Self::Driver => {
                let mut names: Vec<String> = settings(&DRIVER_SETTINGS);
                names.extend(own(&["mgmt", "version"]));
                names.extend(driver::names(state));
                names.extend(state.targets.keys().cloned());
                names
            }
            Self::Target(name) => {
                let attributes = of(name).map(target::names).unwrap_or_default();
                with(&["luns", "ini_groups", "sessions"], attributes)
            }
            Self::Luns(map) => {
                let luns = state.luns(&map.target, map.group.as_deref());
                let numbers = luns.into_iter().flat_map(|luns| luns.keys());
                with(&["mgmt"], numbers.map(ToString::to_string).collect())
            }
            Self::Lun(..) => own(&["device", "read_only"]),
            Self::Groups(name) => {
                let groups = of(name).map_or(&[][..], |target| &target.groups);
                with(&["mgmt"], groups.iter().map(|it| it.name.clone()).collect())
            }
            Self::Group(..) => with(&["luns", "initiators"], settings(&target::GROUP_FIXED)),
            Self::Initiators(target, name) => {
                let names = group(state, target, name).map(|it| it.initiators.clone());
                with(&["mgmt"], names.unwrap_or_default())
            }
            Self::Sessions(name) => {
                let sessions = of(name).map(|target| target.sessions.keys().cloned().collect());
                sessions.unwrap_or_default()
            }
            Self::Session(target, name) => {
                let mut names = own(&SESSION);
                names.push("luns".to_owned());
                if let Some(session) = session(state, target, name) {
                    names.extend(session.connections.iter().map(|it| it.address.clone()));
                }
                names
            }
            Self::Connection(..) => own(&CONNECTION),
            Self::Proc => own(&["scsi_tgt"]),
            Self::ScsiTgt => with(&["groups", "iscsi", "vdisk", "vcdrom"], own(&PROC_FILES)),
            Self::ProcHandler(handler) => own(&[handler, "type"]),
            Self::ProcGroups => procfs::group_names(state),
            Self::ProcGroup(_) => own(&["names", "devices", "addr_method"]),
            Self::ProcIscsi => with(&["session", "version"], settings(&driver::NAGLE)),
        }
    }
}

/// A directory in that of a target.
fn folder_of(target: &Name, name: &str) -> Option<Node> {
    let target = target.clone();
    Some(Node::Directory(match name {
        "luns" => Directory::Luns(Map {
            target,
            group: None,
        }),
        "ini_groups" => Directory::Groups(target),
        "sessions" => Directory::Sessions(target),
        _ => return None,
    }))
}

fn number(name: &str) -> Option<u64> {
    let is_plain =
        name.bytes().all(|it| it.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_plain { name.parse().ok() } else { None }
}

impl Link {
    /// Where it leads, if it is there.
    #[must_use]
    pub fn text(&self, state: &State) -> Option<String> {
        match self {
            Self::DeviceOfHandler(handler, name) => {
                let device = state.devices.get(&**name)?;
                (device.handler() == *handler).then(|| format!("../../devices/{name}"))
            }
            Self::HandlerOfDevice(name) => {
                let device = state.devices.get(&**name)?;
                Some(format!("../../handlers/{}", device.handler().name()))
            }
            Self::Export(name, place) => {
                let export = state.exports_of(name).get(*place)?;
                let group = export.group.as_ref();
                let group = group.map_or_else(String::new, |it| format!("/ini_groups/{it}"));
                let (target, lun) = (&export.target, export.lun);
                Some(format!(
                    "../../../targets/{DRIVER}/{target}{group}/luns/{lun}"
                ))
            }
            Self::DeviceOfLun(map, lun) => {
                let device = &map.lun(state, *lun)?.device;
                Some(format!("{}devices/{device}", "../".repeat(5 + map.depth())))
            }
            Self::LunsOfSession(target, name) => {
                let group = &session(state, target, name)?.group;
                Some(match group {
                    Some(group) => format!("../../ini_groups/{group}/luns"),
                    None => "../../luns".to_owned(),
                })
            }
        }
    }
}

impl File {
    fn exists(&self, state: &State) -> bool {
        match self {
            Self::Device(device, name) => state
                .devices
                .get(&**device)
                .is_some_and(|device| device::attribute(device, name).is_some()),
            Self::Target(name, attribute) => state
                .targets
                .get(&**name)
                .is_some_and(|target| target::attribute(state, target, attribute).is_some()),
            Self::LunsManagement(map) => Directory::Luns(map.clone()).exists(state),
            Self::ReadOnly(map, lun) => map.lun(state, *lun).is_some(),
            Self::GroupsManagement(target) => state.has(target, None),
            Self::CopyTarget(name) => copies::attribute(state, name).is_some(),
            Self::DriverAttribute(name) => driver::attribute(state, name).is_some(),
            Self::Group(target, name, _) | Self::InitiatorsManagement(target, name) => {
                group(state, target, name).is_some()
            }
            Self::Initiator(target, name, initiator) => {
                group(state, target, name).is_some_and(|group| {
                    group
                        .initiators
                        .iter()
                        .any(|it| it.eq_ignore_ascii_case(initiator))
                })
            }
            Self::Session(target, name, _) => session(state, target, name).is_some(),
            Self::Connection(target, name, place, _) => {
                Directory::Connection(target.clone(), name.clone(), *place).exists(state)
            }
            Self::ProcNames(name) | Self::ProcDevices(name) | Self::ProcAddressing(name) => {
                procfs::group_exists(state, name)
            }
            _ => true,
        }
    }

    #[must_use]
    pub fn mode(&self, state: &State) -> u16 {
        match self {
            Self::Device(device, name) => {
                let device = state.devices.get(&**device);
                let attribute = device.and_then(|device| device::attribute(device, name));
                attribute.map_or(0o444, |it| it.mode)
            }
            Self::Target(target, name) => {
                let target = state.targets.get(&**target);
                let attribute = target.and_then(|it| target::attribute(state, it, name));
                attribute.map_or(0o444, |it| it.mode)
            }
            Self::DriverAttribute(name) => {
                let attribute = driver::attribute(state, name);
                attribute.map_or(0o444, |it| it.mode)
            }
            Self::Session(_, _, "force_close") => 0o200,
            Self::Setting(_)
            | Self::HandlerManagement(_)
            | Self::DeviceGroupsManagement
            | Self::DriverManagement
            | Self::LunsManagement(_)
            | Self::GroupsManagement(_)
            | Self::Copies(_)
            | Self::CopyTarget(_)
            | Self::Group(..)
            | Self::InitiatorsManagement(..)
            | Self::Proc("scsi_tgt")
            | Self::ProcVdisk
            | Self::ProcNagle(_)
            | Self::ProcNames(_)
            | Self::ProcDevices(_)
            | Self::ProcAddressing(_) => 0o644,
            Self::Driver(name) if *name != "version" && *name != "open_state" => 0o644,
            // It begins the counts anew, which is not for everybody.
            Self::ProcSession => 0o400,
            _ => 0o444,
        }
    }

    /// What it reads as.
    #[must_use]
    pub fn text(&self, state: &State) -> String {
        let fixed = |value: &str| format!("{value}\n");
        match self {
            Self::Version | Self::ProcVersion | Self::Proc("version") | Self::Driver("version") => {
                fixed(VERSION)
            }
            Self::LastResult => fixed("0"),
            Self::Setting(name) => setting_text(state, name),
            Self::Driver(name) => fixed(setting(&DRIVER_SETTINGS, name).map_or("", |row| row.1)),
            Self::DriverAttribute(name) => {
                let attribute = driver::attribute(state, name);
                attribute.map(|it| it.text()).unwrap_or_default()
            }
            Self::ProcNagle(name) => {
                let attribute = driver::attribute(state, name);
                fixed(&attribute.map(|it| it.value).unwrap_or_default())
            }
            Self::Copies(name) => {
                fixed(setting(&copies::DRIVER_SETTINGS, name).map_or("", |row| row.1))
            }
            Self::CopyTarget(name) => {
                let attribute = copies::attribute(state, name);
                attribute.map(|it| it.text()).unwrap_or_default()
            }
            Self::HandlerType(Handler::Cdrom) => fixed("5 - CD-ROM device"),
            Self::HandlerType(_) => fixed("0 - Direct-access device (e.g., magnetic disk)"),
            Self::HandlerManagement(handler) => help(
                "Usage: echo \"add_device device_name [parameters]\" >mgmt\n       echo \"del_device device_name\" >mgmt\n",
                &[(
                    "The following parameters available: ",
                    &device::listed(*handler).join(", "),
                )],
            ),
            Self::DriverManagement => help(
                "Usage: echo \"add_target target_name [parameters]\" >mgmt\n       echo \"del_target target_name\" >mgmt\n       \
                 echo \"add_attribute <attribute> <value>\" >mgmt\n       echo \"del_attribute <attribute> <value>\" >mgmt\n       \
                 echo \"add_target_attribute target_name <attribute> <value>\" >mgmt\n       \
                 echo \"del_target_attribute target_name <attribute> <value>\" >mgmt\n",
                &[
                    // Parameters of `add_target` are not listed, as SCST lists none for iSCSI: scstadmin would take accounts
                    // for parameters, and remove them at its next `-config -force`.
                    (
                        "The following target driver attributes available: ",
                        &driver::DYNAMIC.join(", "),
                    ),
                    (
                        "The following target attributes available: ",
                        &target::DYNAMIC.join(", "),
                    ),
                ],
            ),
            Self::LunsManagement(_) => help(
                "Usage: echo \"add DEVICE lun [parameters]\" >mgmt\n       echo \"del lun\" >mgmt\n       \
                 echo \"replace DEVICE lun [parameters]\" >mgmt\n       echo \"clear\" >mgmt\n",
                &[("The following parameters available: ", "read_only")],
            ),
            Self::GroupsManagement(_) => help(
                "Usage: echo \"create GROUP_NAME\" >mgmt\n       echo \"del GROUP_NAME\" >mgmt\n",
                &[],
            ),
            Self::InitiatorsManagement(..) => help(
                "Usage: echo \"add INITIATOR_NAME\" >mgmt\n       echo \"del INITIATOR_NAME\" >mgmt\n       \
                 echo \"move INITIATOR_NAME DEST_GROUP_NAME\" >mgmt\n       echo \"clear\" >mgmt\n",
                &[],
            ),
            Self::DeviceGroupsManagement => {
                fixed("There are no device groups: all paths are active/optimized")
            }
            Self::Device(device, name) => {
                let device = state.devices.get(&**device);
                let attribute = device.and_then(|device| device::attribute(device, name));
                attribute.map(|it| it.text()).unwrap_or_default()
            }
            Self::Target(target, name) => {
                if let Some(value) = target::tuned(state, target, None, name) {
                    return format!("{value}\n[key]\n");
                }
                let target = state.targets.get(&**target);
                let attribute = target.and_then(|it| target::attribute(state, it, name));
                attribute.map(|it| it.text()).unwrap_or_default()
            }
            Self::ReadOnly(map, lun) => match map.lun(state, *lun) {
                Some(lun) if lun.read_only => "1\n[key]\n".to_owned(),
                _ => fixed("0"),
            },
            Self::Group(target, group, name) => {
                match target::tuned(state, target, Some(group), name) {
                    Some(value) => format!("{value}\n[key]\n"),
                    None => fixed(target::of_group(state, name)),
                }
            }
            Self::Initiator(_, _, name) => fixed(name),
            Self::Session(target, name, attribute) => {
                let text = session(state, target, name).map(|it| session_text(it, attribute));
                fixed(&text.unwrap_or_default())
            }
            Self::Connection(target, name, place, attribute) => {
                let connection =
                    session(state, target, name).and_then(|it| it.connections.get(*place));
                let text = connection.map(|it| connection_text(it, *place, attribute));
                fixed(&text.unwrap_or_default())
            }
            Self::Proc(_)
            | Self::ProcVdisk
            | Self::ProcType(_)
            | Self::ProcNames(_)
            | Self::ProcDevices(_)
            | Self::ProcAddressing(_)
            | Self::ProcSession => procfs::text(state, self),
        }
    }
}

/// Settings with another value than that of the beginning are in the file that scstadmin writes.
fn setting_text(state: &State, name: &str) -> String {
    let default = setting(&SETTINGS, name).map_or("", |row| row.1);
    match state.settings.get(name) {
        Some(value) if command::number(default) != Some(*value) => match name {
            "setup_id" => format!("0x{value:x}\n[key]\n"),
            _ => format!("{value}\n[key]\n"),
        },
        _ => format!("{default}\n"),
    }
}

fn help(usage: &str, lists: &[(&str, &str)]) -> String {
    let lists = lists.iter().filter(|(_, names)| !names.is_empty());
    let lists = lists.map(|(title, names)| format!("\n{title}{names}\n"));
    usage.to_owned() + &lists.collect::<String>()
}

fn session_text(session: &Session, name: &str) -> String {
    match name {
        "initiator_name" => session.initiator.clone(),
        "sid" => session.id.clone(),
        "commands" => {
            let commands = session.connections.iter().map(|it| it.commands);
            commands.sum::<u64>().to_string()
        }
        "active_commands" => {
            let active = session.connections.iter().map(|it| it.active);
            active.sum::<u64>().to_string()
        }
        "reinstating" => "0".to_owned(),
        _ => String::new(),
    }
}

fn connection_text(connection: &Connection, place: usize, name: &str) -> String {
    match name {
        "cid" => place.to_string(),
        "ip" => connection.address.clone(),
        "state" => "established".to_owned(),
        "commands" => connection.commands.to_string(),
        "policy" => connection.policy.clone(),
        "mode" => if connection.nagle { "nagle" } else { "nodelay" }.to_owned(),
        "busy" => connection.busy.to_string(),
        "max_busy" => connection.max_busy.to_string(),
        "avg_busy" => format!("{:.1}", connection.avg_busy),
        "idles" => connection.idles.to_string(),
        "reads" => connection.reads.to_string(),
        "reads_in_nagle" => connection.reads_in_nagle.to_string(),
        _ => String::new(),
    }
}
