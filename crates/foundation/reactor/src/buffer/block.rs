//! The memory of one buffer.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::allocator;
use crate::mapping::Mapping;

/// Capacity of the smallest class, and the unit of all capacities.
pub(super) const CLASS_MIN: usize = 4096;

/// From this size on a block is a mapping of its own: it costs no memory until it is touched, and
/// freeing it gives the memory back to the system.
const MAPPING_MIN: usize = 256 * 1024;

/// Owned, zero-filled memory of fixed size, aligned to 4096 bytes.
#[derive(Debug)]
pub(super) struct Block(Memory);

#[derive(Debug)]
enum Memory {
    Heap { start: NonNull<u8>, capacity: usize },
    Mapped { mapping: Mapping, capacity: usize },
}

// SAFETY: a block owns its memory alone, and freeing it is not tied to a thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives out shared slices only.
unsafe impl Sync for Block {}

impl Block {
    /// `None` when the system has no memory, RLIMIT_AS or RLIMIT_DATA or a limit of mappings, or only for others than
    /// payload ([`allocator`]).
    pub(super) fn zeroed(capacity: usize) -> Option<Self> {
        if !allocator::has_reserve() {
            return None;
        }
        // It may be what has just been given to somebody else.
        Self::allocated(capacity).filter(|_| !allocator::is_low())
    }

    fn allocated(capacity: usize) -> Option<Self> {
        assert!(
            capacity > 0 && capacity.is_multiple_of(CLASS_MIN),
            "whole pages"
        );
        if capacity >= MAPPING_MIN && !cfg!(miri) {
            let mapping = Mapping::new(capacity).ok()?;
            return Some(Self(Memory::Mapped { mapping, capacity }));
        }
        // SAFETY: the layout's size is not zero (asserted above).
        let start = unsafe { alloc_zeroed(layout(capacity)) };
        let start = NonNull::new(start)?;
        Some(Self(Memory::Heap { start, capacity }))
    }

    /// Aborts the process, as every allocation of Rust does that fails.
    pub(super) fn fail(capacity: usize) -> ! {
        handle_alloc_error(layout(capacity))
    }

    pub(super) fn capacity(&self) -> usize {
        match self.0 {
            Memory::Heap { capacity, .. } | Memory::Mapped { capacity, .. } => capacity,
        }
    }

    fn start(&self) -> NonNull<u8> {
        match &self.0 {
            Memory::Heap { start, .. } => *start,
            Memory::Mapped { mapping, .. } => mapping.start(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` points to `capacity` bytes that live as long as `self`, zeroed when they
        // were allocated and so initialised ever since. They change through `bytes_mut` only, which
        // borrows `self` exclusively, or in the kernel, while an engine owns the buffer.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.capacity()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.capacity()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Memory::Heap { start, capacity } = self.0 {
            // SAFETY: allocated in `zeroed` with this very layout, and freed only here.
            unsafe { dealloc(start.as_ptr(), layout(capacity)) }
        }
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, CLASS_MIN).expect("a buffer is smaller than memory")
}
