//! Copies from and to memory that other threads may copy from and to at the same time.
//!
//! Rust calls an unsynchronised access that races with a write undefined behaviour, unless both are
//! atomic; a disk in memory is allowed to tear. So nothing here touches the bytes by ordinary loads
//! and stores: on x86-64 the copy is one string instruction in inline assembly, which to the
//! compiler is what a loop of relaxed byte-sized atomics would be; elsewhere, and under Miri, it is
//! such a loop, by words where the alignment allows. No reference to the bytes ever exists.

use crate::mapping::Mapping;

/// Writes `from` at `start`.
pub(super) fn store(region: &Mapping, start: usize, from: &[u8]) {
    assert!(
        start
            .checked_add(from.len())
            .is_some_and(|end| end <= region.len()),
        "in the region"
    );
    // SAFETY: the destination lies within the mapping (asserted), which outlives this call. Nobody
    // holds a reference to it (module documentation), so `from` cannot overlap it. Racing accesses
    // all come from this module, that is, count as atomic.
    unsafe {
        copy(
            from.as_ptr(),
            region.start().as_ptr().add(start),
            from.len(),
            Shared::Destination,
        )
    }
}

/// Reads at `start` into all of `into`.
pub(super) fn load(region: &Mapping, start: usize, into: &mut [u8]) {
    assert!(
        start
            .checked_add(into.len())
            .is_some_and(|end| end <= region.len()),
        "in the region"
    );
    // SAFETY: as in `store`, with the directions exchanged.
    unsafe {
        copy(
            region.start().as_ptr().add(start),
            into.as_mut_ptr(),
            into.len(),
            Shared::Source,
        )
    }
}

/// Makes `start..end` zero in place.
pub(super) fn fill_zero(region: &Mapping, start: usize, end: usize) {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut at = start;
    while at < end {
        let len = ZEROS.len().min(end - at);
        store(region, at, &ZEROS[..len]);
        at += len;
    }
}

/// Frees the whole pages of `start..end`. False: it did not work, and nothing has changed.
pub(super) fn discard(region: &Mapping, start: usize, end: usize) -> bool {
    // SAFETY: no reference to the bytes exists (module documentation).
    unsafe { region.discard_pages(start, end - start) }.is_ok()
}

/// Which side of a copy other threads may access meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    Source,
    Destination,
}

/// # Safety
/// `from` is readable and `to` is writable for `len` bytes, and they do not overlap. Only the side
/// that is not `shared` is free of races.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize, _shared: Shared) {
    // SAFETY: the instruction reads `len` bytes at `from` and writes them at `to`, both of which the
    // caller vouches for. The direction flag is clear by the ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// As above.
#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize, shared: Shared) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    let mut at = 0;
    while at < len {
        // SAFETY: `at` stays below `len`, so all accesses lie in the two ranges; words are used only
        // where eight bytes are left and the shared side is aligned to eight, as AtomicU64 wants.
        // The other side is accessed unaligned, by this thread alone.
        unsafe {
            let (source, target) = (from.add(at), to.add(at));
            let shared_side = if shared == Shared::Source {
                source
            } else {
                target.cast_const()
            };
            let word = len - at >= 8 && shared_side.cast::<AtomicU64>().is_aligned();
            match (shared, word) {
                (Shared::Source, true) => {
                    let value = (*source.cast::<AtomicU64>()).load(Ordering::Relaxed);
                    target.cast::<u64>().write_unaligned(value);
                }
                (Shared::Source, false) => {
                    *target = (*source.cast::<AtomicU8>()).load(Ordering::Relaxed);
                }
                (Shared::Destination, true) => {
                    let value = source.cast::<u64>().read_unaligned();
                    (*target.cast::<AtomicU64>()).store(value, Ordering::Relaxed);
                }
                (Shared::Destination, false) => {
                    (*target.cast::<AtomicU8>()).store(*source, Ordering::Relaxed);
                }
            }
            at += if word { 8 } else { 1 };
        }
    }
}
