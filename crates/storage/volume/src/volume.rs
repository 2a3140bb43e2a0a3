//! The interface of a backend or layer.

use std::sync::Arc;

use longshore_reactor::PagePipe;

use crate::condition::Condition;
use crate::description::{Characteristics, Geometry, Identity};
use crate::error::VolumeError;
use crate::io::Io;
use crate::request::{Execution, Request};
use crate::throttle::Throttle;
use longshore_block::extent::{Extent, Lba};
use longshore_block::operation::Reply;

/// Result of trying to work without sleeping.
#[derive(Debug)]
pub enum Attempt {
    /// All of it was done, or it failed.
    Done(Result<(), VolumeError>),
    /// Nothing was done that matters; use [`Volume::execute`].
    WouldSleep,
}

/// What an attempt that succeeds costs, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptCost {
    /// Nothing to speak of, or attempts never succeed.
    #[default]
    Nothing,
    /// The server copies the bytes.
    Copy,
    SystemCall,
}

/// How full storage is that thin volumes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// Percent of it that are in use, rounded down, at most 100.
    pub percent: u8,
    /// The highest soft threshold that use has reached, in percent; 0: none. It stays until use is well below it.
    pub threshold: u8,
    /// Size in bytes, which changes only as drives come and go; 0: the volume shares none.
    pub size: u64,
    /// Capacity for data in bytes.
    pub capacity: u64,
    /// Bytes that are in use.
    pub used: u64,
}

/// Usage levels of shared storage that are reported to hosts, in percent.
pub const SOFT_THRESHOLDS: [u8; 3] = [80, 90, 95];

/// A block volume. See the crate's documentation.
pub trait Volume: Send + Sync {
    /// What it is called.
    fn identity(&self) -> &Identity;
    /// How large it is now.
    fn geometry(&self) -> Geometry;
    /// What it can do.
    fn characteristics(&self) -> Characteristics;

    /// The limits of its clients, if it can have any. Whoever exports the volume keeps to them.
    fn throttle(&self) -> Option<&Arc<Throttle>> {
        None
    }

    /// True when the range is known to read as zeros without looking (the null volume), so that a
    /// sender may use shared zeros in place of a read.
    fn known_zeros(&self, _extent: Extent) -> bool {
        false
    }

    /// What [`Self::try_read`] and [`Self::try_write`] cost.
    fn attempt_cost(&self) -> AttemptCost {
        AttemptCost::Nothing
    }

    /// Takes references to the pages that hold the range, if that needs no sleep. `false`: they are not all
    /// there, or this volume has none, or the range is not its own; read the ordinary way then.
    ///
    /// A later write may change what the pages hold.
    fn take_pages(&self, _extent: Extent, _into: &mut PagePipe) -> bool {
        false
    }

    /// Reads whole blocks if that needs no sleep.
    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt;

    /// Writes whole blocks if that needs no sleep. `fua`: they are on the medium when it is done.
    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt;

    /// Carries out a request on the event loop that `io` belongs to.
    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution;

    /// An event loop begins to serve the volume: called once by each event loop of the server, before its
    /// first request. A volume that works of its own accord (garbage collection, scrubbing, read-ahead)
    /// spawns that here. Owners that use a volume for a while, such as a copy, need not call it.
    fn attach(self: Arc<Self>, io: &Io) {
        let _ = io;
    }

    /// Stops what the volume does of its own accord on this event loop. Once the execution has ended,
    /// the volume starts no operation there but those of requests, until [`Self::resume`]. The owner holds
    /// requests back meanwhile if they must not run either. An error says what could not be brought to an
    /// end.
    fn quiesce(self: Arc<Self>, io: Io) -> Execution {
        let _ = io;
        Execution::ended(Ok(Reply::Done), None)
    }

    /// The volume may work of its own accord again on this event loop.
    fn resume(self: Arc<Self>, io: &Io) {
        let _ = io;
    }

    /// What is known to be wrong with the volume as a whole.
    fn condition(&self) -> Condition {
        Condition::Sound
    }

    /// How full the storage is that a thin volume takes its space from. Zeros when it takes none from others.
    fn fullness(&self) -> Fullness {
        Fullness::default()
    }

    /// Looks at the backing object, and tells what is wrong with the volume. May block; called from
    /// control threads only, every now and then.
    fn inspect(&self) -> Condition {
        self.condition()
    }

    /// Looks whether the backing object changed its size, and takes the new size up. May block;
    /// called from control threads only. Returns the geometry now in force.
    /// A backing object that became shorter is reported ([`VolumeError::Shortened`], of a remote volume
    /// [`VolumeError::ShortFile`]) and the old size stays in force: a volume never shrinks under its
    /// users.
    fn refresh_geometry(&self) -> Result<Geometry, VolumeError>;

    /// The server is about to end: what still waits for something that is away (another server) fails after
    /// `within`, if it would wait longer. Everything else goes on as before. Does not block.
    fn hurry(&self, within: std::time::Duration) {
        let _ = within;
    }

    /// Makes the volume `size_bytes` long, growing the backing object where it has one. May block;
    /// called from control threads only. Returns the geometry now in force. A smaller or uneven size
    /// is refused with [`VolumeError::OutOfRange`], a backend that cannot grow with
    /// [`VolumeError::Unsupported`].
    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        let _ = size_bytes;
        Err(VolumeError::Unsupported)
    }
}
