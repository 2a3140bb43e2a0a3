//! The trees: directories, files and links, by the objects that they stand for.

use std::ops::RangeInclusive;
use std::sync::Arc;

type Name = Arc<str>;

/// Something in the trees. It need not be there any more: see [`Node::exists`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    Directory(Directory),
    File(File),
    Link(Link),
}

/// A handler of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handler {
    File,
    Block,
    Null,
    Cdrom,
    /// Volumes that SCST has nothing like: `mem`, and those of other servers.
    Other,
}

impl Handler {
    pub const ALL: [Self; 5] = [
        Self::File,
        Self::Block,
        Self::Null,
        Self::Cdrom,
        Self::Other,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "vdisk_fileio",
            Self::Block => "vdisk_blockio",
            Self::Null => "vdisk_nullio",
            Self::Cdrom => "vcdrom",
            Self::Other => "longshore",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|handler| handler.name() == name)
    }
}

/// A map of logical units: of a target, or of one of its groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Map {
    pub target: Name,
    pub group: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Directory {
    /// The mount point: both trees.
    Root,
    Sys,
    Handlers,
    Handler(Handler),
    Devices,
    Device(Name),
    Exported(Name),
    DeviceGroups,
    Sgv,
    Targets,
    Driver,
    Target(Name),
    /// The driver of the copy manager.
    Copies,
    CopyTarget,
    Luns(Map),
    Lun(Map, u64),
    Groups(Name),
    Group(Name, Name),
    Initiators(Name, Name),
    Sessions(Name),
    Session(Name, Name),
    Connection(Name, Name, usize),
    Proc,
    ScsiTgt,
    ProcHandler(&'static str),
    ProcGroups,
    ProcGroup(Name),
    ProcIscsi,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum File {
    Version,
    LastResult,
    /// A setting of SCST as a whole, with one value.
    Setting(&'static str),
    HandlerManagement(Handler),
    HandlerType(Handler),
    Device(Name, Name),
    DeviceGroupsManagement,
    DriverManagement,
    Driver(&'static str),
    /// An attribute that is a setting of the server.
    DriverAttribute(Name),
    Target(Name, Name),
    /// A setting of the copy manager.
    Copies(&'static str),
    CopyTarget(Name),
    LunsManagement(Map),
    ReadOnly(Map, u64),
    GroupsManagement(Name),
    Group(Name, Name, &'static str),
    InitiatorsManagement(Name, Name),
    Initiator(Name, Name, Name),
    Session(Name, Name, &'static str),
    Connection(Name, Name, usize, &'static str),
    Proc(&'static str),
    ProcVdisk,
    ProcType(&'static str),
    ProcNames(Name),
    ProcDevices(Name),
    ProcAddressing(Name),
    ProcSession,
    ProcNagle(&'static str),
    ProcVersion,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// The link `handlers/H/DEVICE`, to the device.
    DeviceOfHandler(Handler, Name),
    /// The link `devices/D/handler`, to the handler.
    HandlerOfDevice(Name),
    /// The link `devices/D/exported/exportN`, to a LUN.
    Export(Name, usize),
    /// The link `luns/N/device`, to the device.
    DeviceOfLun(Map, u64),
    /// The link `sessions/S/luns`, to the map of its initiator.
    LunsOfSession(Name, Name),
}

/// Settings of SCST as a whole, each with the value that it has here unless it is [tuned](TUNED).
pub(crate) const SETTINGS: [(&str, &str); 7] = [
    ("setup_id", "0x0"),
    ("threads", "1"),
    ("max_tasklet_cmd", "10"),
    ("poll_us", "0"),
    ("suspend", "0"),
    ("force_global_sgv_pool", "0"),
    ("measure_latency", "0"),
];

/// Settings that tune the threads and the memory of SCST's modules, each with its values. Configurations carry them, and
/// nothing here depends on them: a value is kept while the server runs, and shown.
pub(crate) const TUNED: [(&str, RangeInclusive<u64>); 5] = [
    ("setup_id", 0..=0xffff_ffff),
    ("threads", 1..=0x7fff_ffff),
    ("max_tasklet_cmd", 0..=0x7fff_ffff),
    ("poll_us", 0..=0xffff_ffff),
    ("force_global_sgv_pool", 0..=1),
];

/// Settings of the driver.
pub(crate) const DRIVER_SETTINGS: [(&str, &str); 4] = [
    ("enabled", "1"),
    ("link_local", "1"),
    ("iSNSServer", ""),
    ("open_state", "open"),
];
