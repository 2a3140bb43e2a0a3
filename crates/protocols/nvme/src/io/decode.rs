//! From a submission queue entry to a [`Command`]: checks and admits it, and decides what to do.
//!
//! The order of checks is the order in which a host learns what is wrong: operation code, namespace,
//! fields, reservation (NVMe base 2.0 §8.19, the table of command behaviour in the presence of a
//! reservation), write protection, range, length.
//!
//! | command | reservation group | write-protected |
//! |---|---|---|
//! | Read, Compare, Verify | reads | allowed |
//! | Write, Write Zeroes, Copy | writes | refused |
//! | Flush | writes | allowed |
//! | Dataset Management | writes | refused with Deallocate |
//! | Reservation commands | decide for themselves | allowed |
//!
//! Ignored, as the standard asks of namespaces without protection information and controllers
//! without directives: PRINFO but for Verify, STC, DTYPE, DSPEC and all tags; as hints: LR, DSM,
//! context attributes. Reserved bits are ignored but for NSZ, see [`write_zeroes`].

use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

use crate::command::{Fuse, NamespaceId, SubmissionEntry};
use crate::io::command::{Command, Half};
use crate::io::compare::Compare;
use crate::io::copy::Copy;
use crate::io::dataset::Deallocate;
use crate::io::fields::list_length;
use crate::io::flush::{FlushAll, FlushFirst, Read};
use crate::io::limits::{
    COMPARE_AND_WRITE_BLOCKS, COPY_RANGE_BYTES, COPY_RANGES, DATASET_RANGE_BYTES, NAMESPACES_MAX,
};
use crate::io::namespace::Attached;
use crate::io::reservation;
use crate::io::step::{Procedure, Transfer};
use crate::io::verify::Verify;
use crate::opcode::io;
use crate::status::Status;
use longshore_block::reservation::ReservationClass;
use longshore_block::sanitize::Blocked;

impl Command {
    /// Decodes an entry and admits it. If it is refused, the outcome waits for the first step.
    ///
    /// `namespaces` are those of the controller, in ascending order of NSID. `data_length` is what
    /// the SGL describes.
    #[inline]
    pub fn begin<N: Attached>(namespaces: &[N], entry: &SubmissionEntry, data_length: u32) -> Self {
        begin(namespaces, entry, data_length)
            .unwrap_or_else(|status| Self::decided_with(status.into(), entry.fuse()))
    }
}

#[inline]
fn begin<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    match entry.opcode() {
        io::READ => read(namespaces, entry, data_length),
        io::WRITE => write(namespaces, entry, data_length),
        _ => dispatch(namespaces, entry, data_length),
    }
}

/// Kept out of line, so that Read and Write have a fast path.
#[inline(never)]
fn dispatch<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let opcode = entry.opcode();
    if entry.fuse() != Fuse::Normal && opcode != io::COMPARE {
        return unknown_pair(entry);
    }
    match opcode {
        io::FLUSH if entry.namespace() == NamespaceId::BROADCAST => flush_all(namespaces),
        io::FLUSH => flush(namespaces, entry),
        io::COMPARE => compare(namespaces, entry, data_length),
        io::WRITE_ZEROES => write_zeroes(namespaces, entry),
        io::DATASET_MANAGEMENT => dataset_management(namespaces, entry, data_length),
        io::VERIFY => verify(namespaces, entry),
        io::COPY => copy(namespaces, entry, data_length),
        io::RESERVATION_REGISTER | io::RESERVATION_ACQUIRE | io::RESERVATION_RELEASE => {
            let (at, namespace) = find(namespaces, entry.namespace())?;
            reservation::change(at, namespace, entry, data_length)
        }
        io::RESERVATION_REPORT => {
            let (at, namespace) = find(namespaces, entry.namespace())?;
            reservation::report(at, namespace, entry, data_length)
        }
        _ => Err(Status::INVALID_COMMAND_OPCODE.do_not_retry()),
    }
}

/// A fused command of which no supported pair can come. It is kept until its partner is there, for
/// both are refused then.
#[cold]
fn unknown_pair(entry: &SubmissionEntry) -> Result<Command, Status> {
    let half = Half {
        opcode: entry.opcode(),
        extent: entry.extent(),
        block_size: 0,
        fua: false,
    };
    match entry.fuse() {
        Fuse::First | Fuse::Second => Ok(Command::half(0, Transfer::NONE, entry.fuse(), half)),
        Fuse::Normal | Fuse::Reserved => Err(Status::INVALID_FIELD.do_not_retry()),
    }
}

/// The namespace with this NSID, and its place.
#[inline]
fn find<N: Attached>(namespaces: &[N], id: NamespaceId) -> Result<(usize, &N), Status> {
    // They are nearly always numbered from 1 without gaps.
    let guess = usize::try_from(id.0.wrapping_sub(1)).unwrap_or(usize::MAX);
    match namespaces.get(guess) {
        Some(namespace) if namespace.id() == id => Ok((guess, namespace)),
        _ => search(namespaces, id),
    }
}

#[cold]
fn search<N: Attached>(namespaces: &[N], id: NamespaceId) -> Result<(usize, &N), Status> {
    namespaces
        .binary_search_by_key(&id, Attached::id)
        .map(|at| (at, &namespaces[at]))
        .map_err(|_| no_namespace(id))
}

/// NSIDs up to NN are valid, and inactive if no namespace has them (NVMe base 2.0 §3.2.1).
fn no_namespace(id: NamespaceId) -> Status {
    if (1..=NAMESPACES_MAX).contains(&id.0) {
        Status::INVALID_FIELD.do_not_retry()
    } else {
        Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()
    }
}

/// Whether a reservation stands against it.
#[inline]
fn admit<N: Attached>(namespace: &N, class: ReservationClass) -> Result<(), Status> {
    if namespace.conflicts(class) {
        return Err(refusal(namespace));
    }
    Ok(())
}

/// What stands against it.
#[cold]
fn refusal<N: Attached>(namespace: &N) -> Status {
    match namespace.reservations().sanitize().blocked() {
        Some(Blocked::InProgress) => Status::SANITIZE_IN_PROGRESS,
        // It may be left behind, or sanitized again.
        Some(Blocked::Failed) => Status::SANITIZE_FAILED.do_not_retry(),
        None => Status::RESERVATION_CONFLICT.do_not_retry(),
    }
}

/// The same for what changes the medium.
#[inline]
fn admit_change<N: Attached>(namespace: &N) -> Result<(), Status> {
    admit(namespace, ReservationClass::Changes)?;
    if namespace.is_write_protected() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    Ok(())
}

/// SLBA and NLB, if they lie within the namespace.
#[inline]
fn ranged<N: Attached>(namespace: &N, entry: &SubmissionEntry) -> Result<Extent, Status> {
    let extent = entry.extent();
    if extent.fits(namespace.block_count()) {
        return Ok(extent);
    }
    Err(Status::LBA_OUT_OF_RANGE.do_not_retry())
}

/// The same for commands that transfer the blocks, and the bytes of it. MDTS applies, and the SGL
/// must describe exactly as much: SGLs longer than the data (SGLS bit 18) are not offered.
#[inline]
fn transferable<N: Attached>(
    namespace: &N,
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<(Extent, u32), Status> {
    let extent = ranged(namespace, entry)?;
    let length = extent.bytes(namespace.block_size());
    if length > u64::from(namespace.max_transfer_bytes()) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    if length != u64::from(data_length) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    Ok((extent, data_length))
}

/// As an index into memory.
#[inline]
fn index(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// FUA of a command that reads: whether there can be anything in a cache to be flushed first.
#[inline]
fn flush_first<N: Attached>(namespace: &N, entry: &SubmissionEntry) -> bool {
    entry.force_unit_access() && namespace.has_volatile_cache() && !namespace.is_read_only()
}

#[inline]
fn read<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    if entry.fuse() != Fuse::Normal {
        return unknown_pair(entry);
    }
    let (at, namespace) = find(namespaces, entry.namespace())?;
    admit(namespace, ReservationClass::Reads)?;
    let (extent, length) = transferable(namespace, entry, data_length)?;
    let transfer = Transfer::to_host(length);
    let length = index(length);
    if flush_first(namespace, entry) {
        let machine = FlushFirst::new(Read { extent, length });
        return Ok(Command::procedure(at, transfer, 0, machine));
    }
    Ok(Command::single(
        at,
        transfer,
        Operation::Read { extent },
        DataLocation::DataIn { length },
    ))
}

#[inline]
fn write<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    admit_change(namespace)?;
    let (extent, length) = transferable(namespace, entry, data_length)?;
    let transfer = Transfer::to_controller(length);
    let fua = entry.force_unit_access();
    if entry.fuse() != Fuse::Normal {
        return half(at, namespace, entry, transfer, fua);
    }
    Ok(Command::single(
        at,
        transfer,
        Operation::Write { extent, fua },
        DataLocation::DataOut {
            start: 0,
            length: index(length),
        },
    ))
}

/// A Compare or Write that was admitted, as half of a pair. One that no pair can have is refused here,
/// so that what waits for its other half never holds more than ACWU of data.
#[cold]
fn half<N: Attached>(
    at: usize,
    namespace: &N,
    entry: &SubmissionEntry,
    transfer: Transfer,
    fua: bool,
) -> Result<Command, Status> {
    if entry.fuse() == Fuse::Reserved {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let extent = entry.extent();
    if extent.blocks.0 > u64::from(COMPARE_AND_WRITE_BLOCKS) {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.do_not_retry());
    }
    let half = Half {
        opcode: entry.opcode(),
        extent,
        block_size: namespace.block_size(),
        fua,
    };
    Ok(Command::half(at, transfer, entry.fuse(), half))
}

fn compare<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    admit(namespace, ReservationClass::Reads)?;
    let (extent, length) = transferable(namespace, entry, data_length)?;
    let transfer = Transfer::to_controller(length);
    let flush = flush_first(namespace, entry);
    if entry.fuse() != Fuse::Normal {
        return half(at, namespace, entry, transfer, flush);
    }
    let machine = Compare::new(extent, namespace.block_size());
    let scratch = machine.scratch_length();
    Ok(reading(at, transfer, scratch, flush, machine))
}

fn verify<N: Attached>(namespaces: &[N], entry: &SubmissionEntry) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    if entry.protection_action() {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    admit(namespace, ReservationClass::Reads)?;
    let extent = ranged(namespace, entry)?;
    let machine = Verify::new(extent, namespace.block_size());
    let scratch = machine.scratch_length();
    let flush = flush_first(namespace, entry);
    Ok(reading(at, Transfer::NONE, scratch, flush, machine))
}

fn reading(
    at: usize,
    transfer: Transfer,
    scratch: usize,
    flush: bool,
    machine: impl Procedure + 'static,
) -> Command {
    if flush {
        Command::procedure(at, transfer, scratch, FlushFirst::new(machine))
    } else {
        Command::procedure(at, transfer, scratch, machine)
    }
}

fn flush<N: Attached>(namespaces: &[N], entry: &SubmissionEntry) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    admit(namespace, ReservationClass::Changes)?;
    if namespace.is_read_only() {
        return Ok(Command::nothing_to_do(at));
    }
    Ok(Command::single(
        at,
        Transfer::NONE,
        Operation::Flush,
        DataLocation::None,
    ))
}

fn flush_all<N: Attached>(namespaces: &[N]) -> Result<Command, Status> {
    for namespace in namespaces {
        admit(namespace, ReservationClass::Changes)?;
    }
    let places = namespaces
        .iter()
        .enumerate()
        .filter(|(_, namespace)| !namespace.is_read_only())
        .map(|(at, _)| at)
        .collect();
    Ok(Command::without_namespace(FlushAll::new(places)))
}

/// Namespace Zeroes (NSZ) is of a later revision and not offered. A host that sets it wants all of
/// the namespace zeroed, so it is not one of the reserved bits that can be ignored.
fn write_zeroes<N: Attached>(namespaces: &[N], entry: &SubmissionEntry) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    if entry.zeroes_namespace() {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    admit_change(namespace)?;
    let extent = ranged(namespace, entry)?;
    let operation = Operation::WriteZeroes {
        extent,
        may_unmap: entry.deallocates_zeroes(),
        fua: entry.force_unit_access(),
    };
    Ok(Command::single(
        at,
        Transfer::NONE,
        operation,
        DataLocation::None,
    ))
}

/// Without Deallocate it is nothing but hints, and the ranges are not even fetched.
fn dataset_management<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    let deallocate = entry.deallocates_dataset();
    if deallocate {
        admit_change(namespace)?;
    } else {
        admit(namespace, ReservationClass::Changes)?;
    }
    let length = list_length(entry.dataset_ranges() * DATASET_RANGE_BYTES, data_length)?;
    if !deallocate {
        return Ok(Command::nothing_to_do(at));
    }
    let machine = Deallocate::new(index(length));
    let transfer = Transfer::to_controller(length);
    Ok(Command::procedure(at, transfer, 0, machine))
}

fn copy<N: Attached>(
    namespaces: &[N],
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let (at, namespace) = find(namespaces, entry.namespace())?;
    if entry.copy_format() != 0 {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    if entry.copy_ranges() > u32::from(COPY_RANGES) {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
    }
    // Who may write may read: no reservation excludes reads alone.
    admit_change(namespace)?;
    let length = list_length(entry.copy_ranges() * COPY_RANGE_BYTES, data_length)?;
    let machine = Copy::new(
        index(length),
        entry.copy_destination(),
        namespace.block_size(),
        entry.force_unit_access(),
    );
    let transfer = Transfer::to_controller(length);
    let scratch = machine.scratch_length();
    Ok(Command::procedure(at, transfer, scratch, machine))
}
