//! The fast path of Read and Write past [`Command::begin`].
//!
//! A driver that can carry them out where they arrive needs no [`Command`] for them: it asks
//! [`plain`], and begins a command when the answer is no. The rules are those of `decode`, which
//! decides all other cases, each with its own answer to the host.
//!
//! [`Command`]: crate::io::Command
//! [`Command::begin`]: crate::io::Command::begin

use longshore_block::extent::Lba;
use longshore_block::operation::MediaError;
use longshore_block::reservation::ReservationClass;

use crate::command::{Fuse, SubmissionEntry};
use crate::io::namespace::Attached;
use crate::io::status::media_failure;
use crate::opcode::io;
use crate::status::Status;

/// What a plain Read or Write moves: at least one block, all within the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// By its place among those of the controller.
    pub namespace: usize,
    pub lba: Lba,
    /// Bytes; as many as the SGL describes.
    pub length: u32,
    pub writes: bool,
    /// A Write that is on the medium when it completes (Force Unit Access).
    pub fua: bool,
}

impl Plain {
    /// How it ends when the medium fails.
    #[cold]
    #[must_use]
    pub fn failed(self, error: MediaError) -> Status {
        media_failure(error, self.writes)
    }
}

/// A Read or Write that [`Command::begin`](crate::io::Command::begin) would have done as one operation
/// on the medium. `data_length` is what the SGL describes.
#[inline]
#[must_use]
pub fn plain<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Option<Plain> {
    let (writes, class) = match entry.opcode() {
        io::READ => (false, ReservationClass::Reads),
        io::WRITE => (true, ReservationClass::Changes),
        _ => return None,
    };
    // They are nearly always numbered from 1 without gaps.
    let id = entry.namespace();
    let place = usize::try_from(id.0.wrapping_sub(1)).ok()?;
    let namespace = namespaces.get(place).filter(|found| found.id() == id)?;
    let fua = entry.force_unit_access();
    if entry.fuse() != Fuse::Normal
        || namespace.conflicts(class)
        || writes && namespace.is_write_protected()
        // There may be something in a cache to be flushed first.
        || !writes && fua
    {
        return None;
    }
    let extent = entry.extent();
    let length = extent.bytes(namespace.block_size());
    if !extent.fits(namespace.block_count())
        || length > u64::from(namespace.max_transfer_bytes())
        || length != u64::from(data_length)
    {
        return None;
    }
    Some(Plain {
        namespace: place,
        lba: extent.lba,
        length: data_length,
        writes,
        fua,
    })
}
