//! How operations on a pool fail.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::format::FormatError;

impl PoolError {
    /// Whether there is no space, in the pool or in the file system below.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    /// Whether what lies on the drives does not make a pool: trying again does not help.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::RecordLost { .. }
                | Self::DrivesMissing { .. }
                | Self::WentApart { .. }
                | Self::NotMember { .. }
                | Self::Stale { .. }
                | Self::NoPool { .. }
        )
    }
}

/// Why a pool refused or failed something.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The drive holds no pool.
    #[error("{}: holds no pool; make one with: longshore pool create", path.display())]
    NoPool { path: PathBuf },
    /// What a drive was to begin with is there already.
    #[error("{}: holds data already; name an empty file or device, or use --force", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{}: a drive of a pool needs at least {} MiB", path.display(), crate::open::DRIVE_MIN >> 20)]
    TooSmall { path: PathBuf },
    /// The list of drives does not fit the pool.
    #[error(
        "pool {pool}: {found} of its {expected} drives were named; name all of them. Those with these UUIDs are missing: \
         {missing}{advice}"
    )]
    DrivesMissing {
        pool: String,
        expected: usize,
        found: usize,
        /// UUIDs of the drives that were not named.
        missing: String,
        /// What else can be done, if anything.
        advice: &'static str,
    },
    /// A drive that is needed could not be opened.
    #[error("{source}{advice}")]
    DriveAway {
        source: Box<PoolError>,
        /// What else can be done, if anything.
        advice: &'static str,
    },
    /// Either side of a mirror has data that the other one lacks.
    #[error(
        "pool {pool}: both sides of a mirror were used without the other one. {} is the one that was written less; \
         look at each by naming one alone, and leave the other one out", path.display()
    )]
    WentApart { pool: String, path: PathBuf },
    /// A drive carries the pool's name, and the others do not list it.
    #[error(
        "{}: is no drive of pool {pool}: it was removed, or was not added to the end; leave it out, or add it by: \
         longshore pool add --force", path.display()
    )]
    NotMember { path: PathBuf, pool: String },
    /// A verb names a drive that the pool does not lie on.
    #[error("pool {pool}: {} is none of its drives; longshore pool show lists them", path.display())]
    NoDrive { pool: String, path: PathBuf },
    #[error("pool {pool}: {} is its only drive; to end the pool, use: longshore pool destroy", path.display())]
    LastDrive { pool: String, path: PathBuf },
    #[error("{}: is a drive of pool {pool} already", path.display())]
    DriveThere { pool: String, path: PathBuf },
    /// What would be left does not hold the data.
    #[error(
        "pool {pool}: without {} there is room for {room} bytes, and {used} are in use; free some, or add a drive first",
        path.display()
    )]
    NoRoomWithout {
        pool: String,
        path: PathBuf,
        room: u64,
        used: u64,
    },
    #[error("pool {pool}: segment {segment} on {} cannot be read, so its data cannot be moved", path.display())]
    CannotMove {
        pool: String,
        segment: u32,
        path: PathBuf,
    },
    /// A task is under way.
    #[error(
        "pool {pool}: {kind} is under way; wait for its end, or stop it by: longshore pool stop"
    )]
    Working { pool: String, kind: &'static str },
    #[error(
        "pool {pool}: {volumes} volumes and {snapshots} snapshots are in it; add --force to lose them"
    )]
    NotVacant {
        pool: String,
        volumes: usize,
        snapshots: usize,
    },
    #[error("pool {pool}: no scrub and no removal of a drive is under way")]
    NoWork { pool: String },
    #[error("no thread can be started: {source}")]
    Thread { source: io::Error },
    #[error("pool {pool}: was destroyed")]
    Destroyed { pool: String },
    #[error("pool {pool}: a volume of it is in use; stop exporting it first")]
    PoolInUse { pool: String },
    #[error("{}: belongs to another pool than the drives before it", path.display())]
    OtherPool { path: PathBuf },
    #[error("{}: is an old copy of a drive of the pool", path.display())]
    Stale { path: PathBuf },
    /// No superblock is left, and segments do not tell how the pool was made.
    #[error(
        "{}: no superblock of its pool is whole, and its segments do not tell how the pool was made", path.display()
    )]
    Nameless { path: PathBuf },
    /// No superblock and no segment is left.
    #[error("{}: nothing of a pool is left there; leave it out", path.display())]
    NoTrace { path: PathBuf },
    /// Both sides of a mirror were named, and nothing tells which of them is current.
    #[error(
        "{}: holds the same segments as another drive, as the sides of a mirror do, and no superblock tells which one has \
         all data; name one of them", path.display()
    )]
    SameDrive { path: PathBuf },
    #[error("{}: named twice", path.display())]
    DriveTwice { path: PathBuf },
    #[error("a pool has 1 to {} drives", crate::format::superblock::DRIVES_MAX)]
    DriveCount,
    #[error("mirrors have two drives each; name an even number of them")]
    OddMirror,
    /// The pool would have data of which there is one copy.
    #[error("pool {pool}: all its drives are mirrors; add two, the second one with --mirror")]
    NeedsMirror { pool: String },
    #[error("pool {pool}: {} is no side of a mirror; make it one by: longshore pool attach", path.display())]
    NoMirror { pool: String, path: PathBuf },
    #[error("pool {pool}: {} is part of a mirror already; a mirror has two sides", path.display())]
    IsMirror { pool: String, path: PathBuf },
    /// The other side has not all data.
    #[error(
        "pool {pool}: {} is the only side of its mirror that has all data; fill the other one first, by: \
         longshore pool replace", path.display()
    )]
    LastSide { pool: String, path: PathBuf },
    #[error(
        "pool {pool}: {} has all data of its mirror; scrub the pool, leave it out by longshore pool offline, and then \
         replace it", path.display()
    )]
    SideInUse { pool: String, path: PathBuf },
    #[error("pool {pool}: {} failed; if it is lost for good, leave it out by: longshore pool offline", path.display())]
    SideFailed { pool: String, path: PathBuf },
    #[error(
        "{}: is smaller than the drive that it is to mirror; name one of {needed} bytes at least", path.display()
    )]
    SmallSide { path: PathBuf, needed: u64 },
    #[error(
        "a snapshot is made of 1 to {} volumes at a time",
        crate::pool::GROUP_MAX
    )]
    GroupSize,
    /// What a later version wrote can be read only.
    #[error("pool {pool}: a later version has written to it; this one can only read it")]
    LaterVersion { pool: String },
    /// A name that the pool cannot keep.
    #[error("{name:?} is no name: use 1 to 64 letters, digits, '.', '-' and '_'")]
    Name { name: String },
    /// A structure of the pool is damaged.
    #[error("pool {pool}: {what}: {source}; see: longshore pool check")]
    Damaged {
        pool: String,
        /// Which structure it is.
        what: String,
        source: FormatError,
    },
    /// Records are lost, and nothing tells what they held.
    #[error(
        "pool {pool}: record {number} is lost, and with it what it wrote; see: longshore pool check"
    )]
    RecordLost { pool: String, number: u64 },
    #[error("pool {pool}: there is no volume {volume}; longshore pool show lists them")]
    NoVolume { pool: String, volume: String },
    #[error(
        "pool {pool}: there is no snapshot {name} of volume {volume}; longshore pool show lists them"
    )]
    NoSnapshot {
        pool: String,
        volume: String,
        name: String,
    },
    /// The name is taken.
    #[error("pool {pool}: {name} exists already")]
    Exists { pool: String, name: String },
    /// Somebody has the volume open.
    #[error("pool {pool}: volume {volume} is in use; stop exporting it first")]
    InUse { pool: String, volume: String },
    #[error("volume {volume}: a size is a multiple of {block_size} bytes, and at most 256 TiB")]
    Size { volume: String, block_size: u32 },
    #[error(
        "volume {volume}: has {present} bytes; shrinking to {asked} drops what lies behind, which needs --shrink"
    )]
    WouldShrink {
        volume: String,
        present: u64,
        asked: u64,
    },
    /// A volume is asked for that is smaller than the one that is there.
    #[error(
        "volume {volume}: has {present} bytes in its pool, more than size={asked}; a volume is never \
         shrunk when it is opened"
    )]
    Larger {
        volume: String,
        present: u64,
        asked: u64,
    },
    #[error("pool {pool}: no space left")]
    NoSpace { pool: String },
    /// Space that was to be kept for a volume is not there.
    #[error(
        "volume {volume}: its space cannot be reserved in pool {pool}: {missing} bytes are missing; delete \
         something there, or reserve less"
    )]
    CannotReserve {
        volume: String,
        pool: String,
        missing: u64,
    },
    /// An earlier write or sync failed.
    #[error(
        "pool {pool}: a write or sync failed before, and nothing is written until the pool is opened anew"
    )]
    Poisoned { pool: String },
    #[error("pool {pool}: a part of its maps cannot be read; the log names the drive")]
    MapUnreadable { pool: String },
    #[error("pool {pool}: was opened for reading only")]
    ReadOnly { pool: String },
    #[error("out of memory")]
    OutOfMemory,
    /// The operating system said so.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A volume does not say which pool it is in.
    #[error("volume {volume}: backend=pool needs pool=, a drive of the pool or the name of one")]
    PoolMissing { volume: String },
    #[error(
        "volume {volume}: has blocks of {present} bytes, not {asked}; use block-size={present}"
    )]
    BlockSize {
        volume: String,
        present: u32,
        asked: u32,
    },
    /// Another server has it open, and what else opening finds.
    #[error(transparent)]
    Open(#[from] longshore_volume::OpenError),
}

/// Whether the error says that there is no space.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
    )
}
