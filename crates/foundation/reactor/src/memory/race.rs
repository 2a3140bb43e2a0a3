//! Copies from and to memory that other threads may copy from and to at the same time.
//!
//! Rust calls an unsynchronised access that races with a write undefined behaviour, unless both are
//! atomic; a disk in memory is allowed to tear. So nothing here touches the bytes by ordinary loads
//! and stores. A copy is a loop of relaxed atomics, by words where the alignment allows; on x86-64 a
//! long one is a string instruction in inline assembly, which to the compiler is what such a loop by
//! bytes would be. No reference to the bytes ever exists.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::mapping::Mapping;

/// From this length on the string instruction reads faster than a loop.
const LOAD_STRING_BYTES_MIN: usize = 256;
/// From this length on the string instruction writes faster than a loop: it has to get hold of the
/// first cache lines, and then moves whole ones.
const STORE_STRING_BYTES_MIN: usize = 1024;

/// Writes `from` at `start`.
pub(super) fn store(region: &Mapping, start: usize, from: &[u8]) {
    let end = start.checked_add(from.len());
    assert!(end.is_some_and(|end| end <= region.len()), "in the region");
    // SAFETY: the destination lies within the mapping (asserted), which outlives this call. Nobody
    // holds a reference to it (module documentation), so `from` cannot overlap it. Racing accesses
    // all come from this module, that is, are atomic or count as such.
    unsafe {
        let to = region.start().as_ptr().add(start);
        if from.len() >= STORE_STRING_BYTES_MIN && copy_string(from.as_ptr(), to, from.len()) {
            return;
        }
        store_words(from, to);
    }
}

/// Reads at `start` into all of `into`.
pub(super) fn load(region: &Mapping, start: usize, into: &mut [u8]) {
    let end = start.checked_add(into.len());
    assert!(end.is_some_and(|end| end <= region.len()), "in the region");
    // SAFETY: as in `store`, with the directions exchanged.
    unsafe {
        let from = region.start().as_ptr().add(start);
        if into.len() >= LOAD_STRING_BYTES_MIN && copy_string(from, into.as_mut_ptr(), into.len()) {
            return;
        }
        load_words(from, into);
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

/// False: there is no such instruction here, and nothing has been copied.
///
/// # Safety
/// `from` is readable and `to` is writable for `len` bytes, and they do not overlap.
unsafe fn copy_string(from: *const u8, to: *mut u8, len: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: the instruction reads `len` bytes at `from` and writes them at `to`, both of which
        // the caller vouches for. The direction flag is clear by the ABI.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = (from, to, len);
        false
    }
}

/// Bytes before the first aligned word, and the number of whole words after them.
fn head_and_words(shared: *const u8, len: usize) -> (usize, usize) {
    let head = shared.align_offset(align_of::<AtomicU64>()).min(len);
    (head, (len - head) / 8)
}

/// # Safety
/// `to` is writable for the length of `from`, and does not overlap it.
unsafe fn store_words(from: &[u8], to: *mut u8) {
    let (head, words) = head_and_words(to, from.len());
    let (first, rest) = from.split_at(head);
    let (middle, last) = rest.split_at(words * 8);
    // SAFETY: all three parts lie one after the other within the range that the caller vouches for,
    // and the middle one begins where `AtomicU64` may.
    unsafe {
        for (at, byte) in first.iter().enumerate() {
            (*to.add(at).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
        let to_words = to.add(head).cast::<AtomicU64>();
        for (at, word) in middle.as_chunks::<8>().0.iter().enumerate() {
            (*to_words.add(at)).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let to_last = to.add(head + words * 8);
        for (at, byte) in last.iter().enumerate() {
            (*to_last.add(at).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
    }
}

/// # Safety
/// `from` is readable for the length of `into`, and does not overlap it.
unsafe fn load_words(from: *const u8, into: &mut [u8]) {
    let (head, words) = head_and_words(from, into.len());
    let (first, rest) = into.split_at_mut(head);
    let (middle, last) = rest.split_at_mut(words * 8);
    // SAFETY: as in `store_words`.
    unsafe {
        for (at, byte) in first.iter_mut().enumerate() {
            *byte = (*from.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
        let from_words = from.add(head).cast::<AtomicU64>();
        for (at, word) in middle.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (*from_words.add(at)).load(Ordering::Relaxed).to_ne_bytes();
        }
        let from_last = from.add(head + words * 8);
        for (at, byte) in last.iter_mut().enumerate() {
            *byte = (*from_last.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
    }
}
