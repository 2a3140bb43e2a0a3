//! Memory as a disk: the region behind the `mem` volume, shared by all reactors without a lock.
//!
//! Space is taken from the system page by page when it is first written, and given back by
//! [`SharedRegion::discard`]. Like a disk, the region does not order overlapping accesses: a read
//! that races with a write may see any mix of old and new bytes, and two racing writes may leave any
//! mix of both.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::{Mapping, PAGE_SIZE};

mod race;

/// A fixed-size, initially zero range of memory. See the module documentation.
///
/// # Panics
/// All methods panic when the range they are given does not lie within the region.
#[derive(Debug)]
pub struct SharedRegion {
    bytes: Mapping,
    len: usize,
    /// One bit for each 4096 bytes: set if they may hold data. In a mapping of its own, so that the
    /// map of an empty terabyte takes no memory.
    ///
    /// A write sets bits after it has copied, a discard clears them before it frees: whatever the
    /// interleaving, bytes other than zero never hide behind a clear bit once both are over.
    mapped: PageMap,
}

/// The longest run with one state that [`SharedRegion::extent`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionExtent {
    /// Length of the run.
    pub length_bytes: u64,
    /// Whether memory is allocated for it.
    pub mapped: bool,
}

impl SharedRegion {
    /// Reserves address space for `len_bytes`; no memory yet.
    pub fn new(len_bytes: u64) -> io::Result<Self> {
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let bytes = Mapping::new(len)?;
        let mapped = PageMap::new(len.div_ceil(PAGE_SIZE))?;
        Ok(Self { bytes, len, mapped })
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        to_u64(self.len)
    }

    /// Writes `from` at `offset`.
    pub fn copy_in(&self, offset: u64, from: &[u8]) {
        let start = self.checked(offset, to_u64(from.len())).0;
        race::store(&self.bytes, start, from);
        self.mapped.set(pages_touching(start, start + from.len()));
    }

    /// Reads at `offset` into all of `into`.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) {
        let start = self.checked(offset, to_u64(into.len())).0;
        race::load(&self.bytes, start, into);
    }

    /// Makes the range read as zeros, and frees the pages that lie wholly in it.
    pub fn discard(&self, offset: u64, length_bytes: u64) {
        let (start, end) = self.checked(offset, length_bytes);
        let whole_start = start.next_multiple_of(PAGE_SIZE);
        // The last page of the region counts as whole when the range reaches the region's end.
        let whole_end = if end == self.len {
            end.next_multiple_of(PAGE_SIZE)
        } else {
            end
        };
        let whole_end = whole_end / PAGE_SIZE * PAGE_SIZE;
        if whole_start >= whole_end {
            self.zero(start, end);
            return;
        }
        self.zero(start, whole_start);
        self.zero(whole_end.min(end), end);
        self.mapped
            .clear(whole_start / PAGE_SIZE..whole_end / PAGE_SIZE);
        self.free_pages(whole_start, whole_end);
    }

    /// The state of the longest run from `offset` on that has one state, looking no further than
    /// `length_bytes`.
    #[must_use]
    pub fn extent(&self, offset: u64, length_bytes: u64) -> RegionExtent {
        let (start, end) = self.checked(offset, length_bytes);
        let pages = pages_touching(start, end);
        let mapped = !pages.is_empty() && self.mapped.get(pages.start);
        let run_end = self
            .mapped
            .run_end(pages, mapped)
            .saturating_mul(PAGE_SIZE)
            .clamp(start, end);
        RegionExtent {
            length_bytes: to_u64(run_end - start),
            mapped,
        }
    }

    /// Bytes of pages that have been written and not discarded.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped.count().saturating_mul(to_u64(PAGE_SIZE))
    }

    /// Both ends of a range that lies within the region.
    fn checked(&self, offset: u64, length_bytes: u64) -> (usize, usize) {
        let end = offset
            .checked_add(length_bytes)
            .and_then(|end| usize::try_from(end).ok());
        let end = end
            .filter(|end| *end <= self.len)
            .expect("range lies within the region");
        (
            usize::try_from(offset).expect("not beyond the end, which fits"),
            end,
        )
    }

    /// Zeroes a range within one page, unless it is zero anyway.
    fn zero(&self, start: usize, end: usize) {
        const ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let mut at = start;
        while at < end {
            let next = (at / PAGE_SIZE + 1) * PAGE_SIZE;
            let stop = end.min(next);
            if self.mapped.get(at / PAGE_SIZE) {
                race::store(&self.bytes, at, &ZEROS[..stop - at]);
            }
            at = stop;
        }
    }

    fn free_pages(&self, start: usize, end: usize) {
        // On machines with larger pages than 4 KiB, the edges cannot be freed but only zeroed.
        let page_size = rustix::param::page_size();
        let inner_start = start.next_multiple_of(page_size).min(end);
        let inner_end = if end >= self.len {
            self.bytes.len()
        } else {
            end
        };
        let inner_end = (inner_end / page_size * page_size).max(inner_start);
        race::fill_zero(&self.bytes, start, inner_start);
        race::fill_zero(&self.bytes, inner_end.min(end), end);
        if inner_start < inner_end && !race::discard(&self.bytes, inner_start, inner_end) {
            // Only under lack of memory, or if the pages are locked.
            race::fill_zero(&self.bytes, inner_start, inner_end);
        }
    }
}

fn to_u64(n: usize) -> u64 {
    u64::try_from(n).expect("usize is at most 64 bits on Linux")
}

fn pages_touching(start: usize, end: usize) -> std::ops::Range<usize> {
    if start == end {
        return start / PAGE_SIZE..start / PAGE_SIZE;
    }
    start / PAGE_SIZE..end.div_ceil(PAGE_SIZE)
}

/// One atomic bit per page.
#[derive(Debug)]
struct PageMap {
    words: Mapping,
    pages: usize,
}

impl PageMap {
    fn new(pages: usize) -> io::Result<Self> {
        Ok(Self {
            words: Mapping::new(pages.div_ceil(64) * 8)?,
            pages,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        let len = self.pages.div_ceil(64);
        // SAFETY: the mapping is page-aligned, holds at least `len` words (see `new`), was zeroed by
        // the kernel, and lives as long as `self`. All accesses go through these atomics.
        unsafe { std::slice::from_raw_parts(self.words.start().as_ptr().cast(), len) }
    }

    fn get(&self, page: usize) -> bool {
        self.words()[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    fn set(&self, pages: std::ops::Range<usize>) {
        for_words(pages, |word, mask| {
            let word = &self.words()[word];
            // Writes to pages that are mapped already should not fight over the line.
            if word.load(Ordering::Acquire) & mask != mask {
                word.fetch_or(mask, Ordering::Release);
            }
        });
    }

    fn clear(&self, pages: std::ops::Range<usize>) {
        for_words(pages, |word, mask| {
            let word = &self.words()[word];
            if word.load(Ordering::Acquire) & mask != 0 {
                word.fetch_and(!mask, Ordering::AcqRel);
            }
        });
    }

    /// The first page in the range whose state is not `state`, or its end.
    fn run_end(&self, pages: std::ops::Range<usize>, state: bool) -> usize {
        let mut page = pages.start;
        while page < pages.end {
            let word = self.words()[page / 64].load(Ordering::Acquire);
            let differs = if state { !word } else { word } >> (page % 64);
            if differs != 0 {
                let ahead = usize::try_from(differs.trailing_zeros()).expect("at most 64");
                return (page + ahead).min(pages.end);
            }
            page = (page / 64 + 1) * 64;
        }
        pages.end
    }

    fn count(&self) -> u64 {
        self.words()
            .iter()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum()
    }
}

/// Calls `each` with the index of every word that holds bits of `pages`, and their mask.
fn for_words(pages: std::ops::Range<usize>, mut each: impl FnMut(usize, u64)) {
    let mut page = pages.start;
    while page < pages.end {
        let stop = pages.end.min((page / 64 + 1) * 64);
        let above = u64::MAX << (page % 64);
        let below = u64::MAX >> ((64 - stop % 64) % 64);
        each(page / 64, above & below);
        page = stop;
    }
}

#[cfg(test)]
mod tests;
