//! Pools of drives: what they hold, and what can be changed while a server has them open.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool with its volumes and snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    pub name: String,
    /// Absent if the pool was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    pub state: PoolState,
    /// Files and devices that it lies on.
    pub drives: Vec<String>,
    /// Both sides of each mirror.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<PoolSide>,
    /// Absent if the pool was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<PoolUsage>,
    #[serde(default)]
    pub volumes: Vec<PoolVolume>,
    /// Snapshots whose volumes were deleted.
    #[serde(default)]
    pub orphans: Vec<PoolSnapshot>,
    /// What is being done to the whole pool, or was last since it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<PoolWork>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// Volumes of it are served.
    Open,
    /// A write or sync failed: it takes no more writes until it is opened anew.
    Failed,
    /// No volume of it is served.
    Closed,
    /// Its drives hold it no more.
    Destroyed,
}

impl PoolState {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Failed => "failed",
            Self::Closed => "closed",
            Self::Destroyed => "destroyed",
        }
    }
}

/// A side of a mirror: one of two files or devices that hold the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolSide {
    /// Number of the mirror in the pool.
    pub mirror: u8,
    pub uuid: String,
    /// Absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub state: PoolSideState,
    /// Reads that failed since the pool was opened.
    #[serde(default)]
    pub read_errors: u32,
    /// Places that were damaged, and were copied from the other side, since then.
    #[serde(default)]
    pub mended: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolSideState {
    /// It has all data.
    Current,
    /// It is being filled.
    Filling,
    /// It is missing, has failed, or was left out.
    Stale,
}

impl PoolSideState {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Filling => "filling",
            Self::Stale => "stale",
        }
    }
}

/// The space of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolUsage {
    /// Sum of all segments.
    pub size_bytes: u64,
    /// Data that there is room for.
    pub capacity_bytes: u64,
    /// Data that is there, compressed.
    pub used_bytes: u64,
    /// What is kept for volumes with reserved space, beside the data that they have.
    #[serde(default)]
    pub reserved_bytes: u64,
    pub segment_bytes: u64,
    pub segments: u64,
    /// Segments that can be written.
    pub free_segments: u64,
    /// Bytes that hosts have written since the pool was opened.
    pub host_bytes: u64,
    /// What these writes, and moving old data, took on the drives.
    pub record_bytes: u64,
    /// Memory of the maps.
    pub map_bytes: u64,
}

/// A volume of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolVolume {
    pub name: String,
    pub uuid: String,
    pub size_bytes: u64,
    pub block_size: u32,
    /// How new data is kept: `none`, `lz4` or `zstd`.
    pub compression: String,
    /// Bytes that it and its snapshots may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Bytes that are kept for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<u64>,
    /// They follow its size.
    #[serde(default)]
    pub reserve_full: bool,
    /// Bytes of the pool that deleting it would free.
    pub owned_bytes: u64,
    /// Bytes that it shares with snapshots.
    pub shared_bytes: u64,
    /// Whether it is served.
    pub in_use: bool,
    pub snapshots: Vec<PoolSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolSnapshot {
    pub name: String,
    /// The volume that it is of.
    pub volume: String,
    pub uuid: String,
    pub size_bytes: u64,
    /// Bytes of its own.
    pub owned_bytes: u64,
    /// Whether it is served.
    pub in_use: bool,
}

/// A scrub of a pool, the removal of a drive, or the rebuild of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolWork {
    pub kind: PoolWorkKind,
    /// The drive that is removed or filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    pub state: PoolWorkState,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Bytes that were read or moved.
    pub done_bytes: u64,
    /// Bytes that are to be read or moved.
    pub sum_bytes: u64,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Damage that was found.
    #[serde(default)]
    pub findings: Vec<PoolFinding>,
    /// Findings beyond those that are listed.
    #[serde(default)]
    pub more_findings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolWorkKind {
    /// All data is read, and compared with its checksums.
    Scrub,
    /// The data of a drive is moved to the others; then the drive is taken out.
    RemoveDrive,
    /// A side of a mirror is filled from the other one.
    Rebuild,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolWorkState {
    Running,
    Done,
    /// It was told to end before.
    Stopped,
    Failed,
}

impl PoolWorkState {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// Something that is wrong in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolFinding {
    /// Volumes, snapshots or the drive that it is about.
    pub subject: String,
    pub text: String,
}

/// A drive to be added to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NewPoolDrive {
    /// Absolute path of the file or device.
    pub path: String,
    /// The same of another one: both are a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// A file that does not exist is made, with so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What the drive holds is overwritten.
    #[serde(default)]
    pub force: bool,
}

/// A side of a mirror to be filled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolRebuild {
    /// Absolute path of the drive that gets a second side, or of the side that is replaced.
    pub path: String,
    /// Absolute path of the file or device that is filled. It may be the side that is replaced.
    pub with: String,
    /// Size in bytes of a file that has to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// What the file or device holds is overwritten.
    #[serde(default)]
    pub force: bool,
    /// Bytes that are copied in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
}

/// A side of a mirror to be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolOffline {
    /// Absolute path of the file or device.
    pub path: String,
}

/// A drive to be taken out of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolDriveRemoval {
    /// Absolute path of the file or device.
    pub path: String,
    /// Bytes that are moved in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
}

/// How all data of a pool is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolScrub {
    /// Bytes that are read in a second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
}

/// The end of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolEnd {
    /// Its volumes and snapshots are lost.
    pub force: bool,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NewPoolVolume {
    pub name: String,
    pub size_bytes: u64,
    /// 512 (default) or 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// `none` (default), `lz4` or `zstd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// `none` (default), `full`, or a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<String>,
}

/// Other settings of a volume; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolVolumeSettings {
    /// `none`, `lz4` or `zstd`, for what is written from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Bytes that it and its snapshots may take; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// `none`, `full`, or a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<String>,
}

/// Another size of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolResize {
    pub size_bytes: u64,
    /// What lies behind a smaller size is dropped.
    #[serde(default)]
    pub shrink: bool,
}

/// A snapshot of volumes, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NewPoolSnapshot {
    pub name: String,
    pub volumes: Vec<String>,
}

/// A volume made of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NewPoolClone {
    pub name: String,
}

/// A snapshot by its volume and its name: `disk0@monday`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    pub volume: String,
    pub name: String,
}

impl SnapshotId {
    /// Reads the form `VOLUME@NAME`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (volume, name) = text.split_once('@')?;
        (!volume.is_empty() && !name.is_empty()).then(|| Self {
            volume: volume.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.name)
    }
}

/// Where a snapshot holds something else than an older one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolChanges {
    /// UUID of the snapshot.
    pub uuid: String,
    /// UUID of the older one.
    pub since_uuid: String,
    /// Bytes of the snapshot.
    pub size_bytes: u64,
    pub ranges: Vec<PoolRange>,
    /// If there are more: where to go on (`from`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A range of a volume; those of a list are in order, and apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolRange {
    pub offset: u64,
    pub bytes: u64,
}

/// A change of what a pool holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolChange {
    CreateVolume(NewPoolVolume),
    Resize {
        volume: String,
        to: PoolResize,
    },
    Set {
        volume: String,
        to: PoolVolumeSettings,
    },
    DeleteVolume {
        volume: String,
    },
    Snapshot(NewPoolSnapshot),
    DeleteSnapshot(SnapshotId),
    /// The volume holds again what the snapshot holds.
    RollBack(SnapshotId),
    Clone {
        of: SnapshotId,
        name: String,
    },
    AddDrive(NewPoolDrive),
    /// Begins to move its data to the others.
    RemoveDrive(PoolDriveRemoval),
    /// Begins to fill a second side of a drive.
    Attach(PoolRebuild),
    /// Begins to fill a side of a mirror anew.
    Replace(PoolRebuild),
    /// Goes on without a side of a mirror.
    Offline(PoolOffline),
    /// Begins to read all data.
    Scrub(PoolScrub),
    /// Has a scrub, a removal or a rebuild end.
    Stop,
    Destroy(PoolEnd),
}

impl fmt::Display for PoolChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateVolume(new) => write!(f, "create volume {}", new.name),
            Self::Resize { volume, to } => {
                write!(f, "resize volume {volume} to {} bytes", to.size_bytes)
            }
            Self::Set { volume, to } => {
                write!(f, "set")?;
                if let Some(compression) = &to.compression {
                    write!(f, " compression={compression}")?;
                }
                if let Some(quota) = to.quota_bytes {
                    write!(f, " quota={quota}")?;
                }
                if let Some(reserve) = &to.reserve {
                    write!(f, " reserve={reserve}")?;
                }
                write!(f, " of volume {volume}")
            }
            Self::DeleteVolume { volume } => write!(f, "delete volume {volume}"),
            Self::Snapshot(new) => {
                write!(f, "snapshot {} of {}", new.name, new.volumes.join(", "))
            }
            Self::DeleteSnapshot(snapshot) => write!(f, "delete snapshot {snapshot}"),
            Self::RollBack(snapshot) => {
                write!(f, "roll volume {} back to {snapshot}", snapshot.volume)
            }
            Self::Clone { of, name } => write!(f, "clone {of} as volume {name}"),
            Self::AddDrive(new) => write!(f, "add drive {}", new.path),
            Self::RemoveDrive(of) => write!(f, "remove drive {}", of.path),
            Self::Attach(of) => write!(f, "mirror drive {} on {}", of.path, of.with),
            Self::Replace(of) => write!(f, "replace drive {} with {}", of.path, of.with),
            Self::Offline(of) => write!(f, "leave out drive {}", of.path),
            Self::Scrub(_) => f.write_str("scrub"),
            Self::Stop => f.write_str("stop the work on it"),
            Self::Destroy(_) => f.write_str("destroy it"),
        }
    }
}
