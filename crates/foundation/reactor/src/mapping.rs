//! An anonymous memory mapping that is unmapped when dropped.

use std::io;
use std::ptr::NonNull;

/// Bytes in a page, on every machine this runs on by default; a larger real page size only makes
/// mappings a little longer than asked for.
pub(crate) const PAGE_SIZE: usize = 4096;

/// Private, zero-filled memory that takes up space only where it has been touched.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is owned memory and nothing in it is tied to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` one gets a raw pointer only; what is done with it is up to the user's
// own proof.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least one page, `len` rounded up to whole pages. Does not count against the commit
    /// limit of the system (`MAP_NORESERVE`).
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let page_size = rustix::param::page_size();
        let len = len
            .max(1)
            .checked_next_multiple_of(page_size)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: without MAP_FIXED and with no address given, the kernel chooses a range that
        // nothing else uses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The first byte. The memory lives as long as `self`.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes in the mapping.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives whole pages back to the system: they read as zeros afterwards.
    ///
    /// # Safety
    /// No reference to memory in the range is alive. Raw accesses by other threads may go on; they
    /// find the old contents or zeros.
    pub(crate) unsafe fn discard_pages(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(
            offset.is_multiple_of(rustix::param::page_size()),
            "offset within a page"
        );
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "range within mapping"
        );
        // SAFETY: the range lies within this mapping (asserted), which is private and anonymous, so
        // MADV_DONTNEED replaces its pages by zero pages and touches nothing else. That nobody
        // holds a reference is the caller's promise.
        unsafe {
            let start = self.start.as_ptr().add(offset);
            rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxDontNeed)?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and len are those of the mapping made in `new`, which is unmapped nowhere
        // else; everything that pointed into it borrowed from `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping a whole mapping of ours");
    }
}
