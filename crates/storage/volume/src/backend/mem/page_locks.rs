//! Locks that keep blocks whole.
//!
//! Two copies into the same memory at the same time may leave a mixture of both. Peers may rely on a
//! block being one writer's (AWUN of NVMe is one block), so each page has a lock while bytes move in or
//! out of it. There are few locks for many pages; a thread that finds one taken waits for a copy of at most a page.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks are not longer, and do not cross a multiple of it.
const PAGE: u64 = 4096;
/// More cores than this are not expected to copy at a time.
const LOCKS: usize = 256;

/// A lock on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct PageLock(Mutex<()>);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct PageLocks(Box<[PageLock]>);

impl PageLocks {
    pub(super) fn new() -> Self {
        Self((0..LOCKS).map(|_| PageLock::default()).collect())
    }

    /// Calls `copy` with the range, a page at a time, and with that page to itself: offset in the volume,
    /// and the place of these bytes in the range.
    #[inline]
    pub(super) fn each_page(
        &self,
        offset: u64,
        length: usize,
        mut copy: impl FnMut(u64, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let left_in_page = usize::try_from(PAGE - at % PAGE).expect("at most a page");
            let end = length.min(done + left_in_page);
            let _page = self.lock(at / PAGE);
            copy(at, done..end);
            done = end;
        }
    }

    /// All pages at once, for what changes many.
    pub(super) fn all(&self) -> Vec<MutexGuard<'_, ()>> {
        self.0.iter().map(lock).collect()
    }

    fn lock(&self, page: u64) -> MutexGuard<'_, ()> {
        let number = usize::try_from(page % LOCKS as u64).expect("fewer than there are locks");
        lock(&self.0[number])
    }
}

fn lock(page: &PageLock) -> MutexGuard<'_, ()> {
    // What is protected is bytes; a copy that panicked has left some.
    page.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_pages_only() {
        let mut pieces = Vec::new();
        PageLocks::new().each_page(3584, 9216, |at, range| pieces.push((at, range)));
        assert_eq!(
            pieces,
            [
                (3584, 0..512),
                (4096, 512..4608),
                (8192, 4608..8704),
                (12288, 8704..9216)
            ]
        );
    }

    #[test]
    fn nothing_is_copied_of_an_empty_range() {
        PageLocks::new().each_page(4096, 0, |_, _| panic!("a piece of nothing"));
    }
}
