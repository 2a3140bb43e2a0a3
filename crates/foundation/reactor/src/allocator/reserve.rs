//! Address space that is there when an allocation finds none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::mapping::{Mapping, PAGE_SIZE};

/// The reserve is given away in parts. The C library takes as much at a time where its heap cannot grow in place.
const PART_BYTES: usize = 1 << 20;
const PARTS: usize = 4;

/// Of fewer parts, nothing is left to those who can be refused.
const PARTS_MIN: usize = 3;

/// Others may be about to return what was given away, which they have seen first.
const ATTEMPTS: usize = 1000;

static RESERVE: Mutex<[Option<Mapping>; PARTS]> = Mutex::new([const { None }; PARTS]);

/// Parts that were given away, and [`PARTS`] for each thread that starts. Parts change with [`RESERVE`] locked.
static MISSING: AtomicUsize = AtomicUsize::new(0);

/// Whether there is a reserve at all.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// The C library's allocator, and the reserve where that finds no memory. See the [module's documentation](super).
#[derive(Debug)]
pub struct Reserving;

// SAFETY: all that comes from it is the system allocator's, for the layout that was asked for. Nothing here unwinds: neither
// the lock nor the calls to the kernel panic. They do not allocate either, so that there is no call within a call.
unsafe impl GlobalAlloc for Reserving {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises, passed on.
        let start = unsafe { System.alloc(layout) };
        if !start.is_null() {
            return start;
        }
        // SAFETY: as above.
        try_again(layout.align(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises, passed on.
        let start = unsafe { System.alloc_zeroed(layout) };
        if !start.is_null() {
            return start;
        }
        // SAFETY: as above.
        try_again(layout.align(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises, passed on.
        let start = unsafe { System.realloc(old, layout, size) };
        if !start.is_null() {
            return start;
        }
        // SAFETY: as above; where it has failed, `old` is as it was.
        try_again(layout.align(), || unsafe {
            System.realloc(old, layout, size)
        })
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises, passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Gives away parts of the reserve until it succeeds. Null for payload, whose memory is whole pages.
#[cold]
fn try_again(align: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    if align >= PAGE_SIZE || !IS_KEPT.load(Ordering::Relaxed) {
        return null_mut();
    }
    for _ in 0..ATTEMPTS {
        if !give() {
            std::thread::yield_now();
        }
        let start = allocate();
        if !start.is_null() {
            return start;
        }
    }
    null_mut()
}

/// Gives a part away, if there is one.
fn give() -> bool {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(part) = reserve.iter_mut().find(|part| part.is_some()) else {
        return false;
    };
    // First: whoever gets the room sees that it was not meant for him.
    MISSING.fetch_add(1, Ordering::SeqCst);
    *part = None;
    true
}

/// Reserves address space from now on.
///
/// # Errors
/// There is not enough. Nothing is reserved then.
pub fn keep_reserve() -> io::Result<()> {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    if IS_KEPT.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut parts = [const { None }; PARTS];
    for part in &mut parts {
        *part = Some(Mapping::new(PART_BYTES)?);
    }
    *reserve = parts;
    IS_KEPT.store(true, Ordering::Relaxed);
    Ok(())
}

/// Refills the reserve as far as there is room, and tells whether it is large enough. If it is not, payload and new
/// connections are refused. `true` where no reserve is kept.
#[inline]
#[must_use]
pub fn has_reserve() -> bool {
    if MISSING.load(Ordering::SeqCst) > 0 {
        restore();
    }
    !is_low()
}

/// Whether there is too little in reserve at this moment.
#[inline]
pub(crate) fn is_low() -> bool {
    MISSING.load(Ordering::SeqCst) > PARTS - PARTS_MIN
}

#[cold]
fn restore() {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    for part in reserve.iter_mut().filter(|part| part.is_none()) {
        let Ok(mapping) = Mapping::new(PART_BYTES) else {
            return;
        };
        *part = Some(mapping);
        MISSING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// While it lives, whoever can be refused is.
#[derive(Debug)]
pub(super) struct Hold(());

impl Hold {
    /// None where no reserve is kept.
    pub(super) fn begin() -> Option<Self> {
        let is_kept = IS_KEPT.load(Ordering::Relaxed);
        is_kept.then(|| {
            MISSING.fetch_add(PARTS, Ordering::SeqCst);
            Self(())
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        MISSING.fetch_sub(PARTS, Ordering::SeqCst);
    }
}
