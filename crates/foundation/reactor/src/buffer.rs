//! Payload memory: page-aligned, with one owner at a time, recycled per core.
//!
//! - [`Buffer`] is an owned, `Send`, page-aligned block of initialised bytes with a length that may
//!   be less than its capacity; it derefs to `[u8]`. Dropping it frees the memory.
//! - [`BufferPool`] belongs to one reactor and hands out buffers by size class (4 KiB to 16 MiB,
//!   powers of two). It keeps returned ones up to a bound, so that a warm reactor neither allocates
//!   nor touches memory shared with other cores.
//! - [`MemoryBudget`] bounds what all pools of a process hold together, in use or kept. A buffer
//!   counts against it from allocation until it is freed, wherever that happens.
//! - [`Reservation`] is memory promised for data that are still to come. Data that arrives in many pieces takes the
//!   buffer of each piece only on its arrival: that is the one given back last, which is still in the core's cache.
//!
//! The contents of a recycled buffer are stale: never send what was not written.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod block;
pub(crate) mod registration;

use block::{Block, CLASS_MIN};
use registration::Registration;

/// Capacity of the largest class. Larger buffers are made to measure and not kept.
const CLASS_MAX: usize = 16 << 20;
/// Number of classes: each is twice as large as the one before.
const CLASS_COUNT: usize = (CLASS_MAX / CLASS_MIN).ilog2() as usize + 1;

const _: () = assert!(CLASS_MIN << (CLASS_COUNT - 1) == CLASS_MAX);

/// An owned block of initialised bytes whose address is a multiple of 4096. See the module
/// documentation.
pub struct Buffer {
    block: Block,
    len: usize,
    /// Where the capacity is accounted for, if anywhere.
    charge: Option<Charge>,
    /// What rings know of it.
    registration: Registration,
}

impl Buffer {
    /// A zero-filled buffer of `len` bytes that no budget counts. Its capacity is `len` rounded up to
    /// a multiple of 4096, and at least 4096. Aborts the process when the system has no memory.
    #[must_use]
    pub fn allocate(len: usize) -> Self {
        Self::try_allocate(len).unwrap_or_else(|| Block::fail(rounded_capacity(len)))
    }

    /// As [`Self::allocate`]; `None` when the system has no memory.
    #[must_use]
    pub fn try_allocate(len: usize) -> Option<Self> {
        Some(Self {
            block: Block::zeroed(rounded_capacity(len))?,
            len,
            charge: None,
            registration: Registration::New,
        })
    }

    /// `None` when the system has no memory, which the budget notes.
    fn charged(len: usize, charge: Charge) -> Option<Self> {
        let Some(block) = Block::zeroed(charge.bytes()) else {
            charge.budget.failures.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Self {
            block,
            len,
            charge: Some(charge),
            registration: Registration::New,
        })
    }

    /// Most bytes it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Whether it comes from a pool, which keeps it for its next use.
    pub(crate) fn is_pooled(&self) -> bool {
        self.charge.is_some()
    }

    #[inline]
    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// What was known before is forgotten: a place that it had elsewhere goes back.
    pub(crate) fn set_registration(&mut self, registration: Registration) {
        self.registration = registration;
    }

    /// All of its memory, whatever its length.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        self.block.bytes_mut()
    }

    /// Changes how many bytes it is said to hold. Bytes beyond the old length have the value they
    /// had last, or zero.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "length {len} beyond capacity {}",
            self.capacity()
        );
        self.len = len;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block.bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.block.bytes_mut()[..self.len]
    }
}

impl fmt::Debug for Buffer {
    /// Without the contents, which are user data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

fn rounded_capacity(len: usize) -> usize {
    len.max(1)
        .checked_next_multiple_of(CLASS_MIN)
        .expect("a buffer is smaller than memory")
}

/// A bound on the bytes that buffers take, shared by all pools of a process.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    failures: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
        })
    }

    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes held at this moment, in use or kept by pools.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// How often the system had no memory although the budget had room.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }

    fn charge(self: &Arc<Self>, bytes: usize, urgency: Urgency) -> Option<Charge> {
        let reserve = self.limit_bytes / RESERVED_PART;
        let limit = match urgency {
            Urgency::CanWait => self.limit_bytes,
            Urgency::Newcomer => self.limit_bytes.saturating_add(reserve),
            Urgency::CannotWait => self.limit_bytes.saturating_add(2 * reserve),
        };
        // Relaxed: the counter guards an amount, not other memory.
        let used = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            })
            .ok()?;
        let beyond = usize::from(used + bytes > self.limit_bytes);
        Some(Charge {
            budget: self.clone(),
            tagged: bytes | (beyond * Charge::BEYOND),
        })
    }
}

/// Whether somebody who finds no memory can try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    CanWait,
    Newcomer,
    CannotWait,
}

/// So large a part of a budget is there beyond its bound for newcomers, and the same again for those who cannot
/// wait.
const RESERVED_PART: usize = 16;

/// Bytes taken from a budget, given back when dropped.
struct Charge {
    budget: Arc<MemoryBudget>,
    /// Bytes, which are whole pages, and [`Self::BEYOND`]: many of these are kept, in tables of tasks too.
    tagged: usize,
}

impl Charge {
    /// Part of it is beyond the bound.
    const BEYOND: usize = 1;

    const fn bytes(&self) -> usize {
        self.tagged & !Self::BEYOND
    }

    const fn is_beyond(&self) -> bool {
        self.tagged & Self::BEYOND != 0
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes();
        let used = self.budget.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(used >= bytes, "a budget counts all that was taken from it");
    }
}

/// A buffer that is promised. It counts against the budget; dropped, it no longer does.
#[must_use]
pub struct Reservation {
    len: usize,
    charge: Charge,
}

impl Reservation {
    /// Length of the buffer that is promised.
    #[must_use]
    pub fn length(&self) -> usize {
        self.len
    }

    /// Capacity of the buffer that is promised.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.charge.bytes()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// One reactor's stock of buffers. See the module documentation.
#[derive(Debug)]
pub struct BufferPool {
    budget: Arc<MemoryBudget>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// Free buffers by class, the most recently used last.
    kept: [Vec<Buffer>; CLASS_COUNT],
}

impl BufferPool {
    /// An empty pool that counts against `budget` and keeps up to `kept_bytes_max` of returned
    /// buffers.
    #[must_use]
    pub fn new(budget: Arc<MemoryBudget>, kept_bytes_max: usize) -> Self {
        Self {
            budget,
            kept_bytes: 0,
            kept_bytes_max,
            kept: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// A buffer of `len` bytes, or `None` when the budget is used up. Its contents are stale.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<Buffer> {
        self.take_for(len, Urgency::CanWait)
    }

    /// As [`Self::take`], for a peer that has nothing yet. There is a sixteenth more of the budget for these, so that
    /// those who have much never keep all from them.
    pub fn take_as_newcomer(&mut self, len: usize) -> Option<Buffer> {
        self.take_for(len, Urgency::Newcomer)
    }

    /// As [`Self::take`], for those who can neither wait nor be told to come back without harm, such as
    /// data that has arrived already. There is a sixteenth more of the budget for them, beyond that for
    /// newcomers, which is never used up by others.
    pub fn take_at_once(&mut self, len: usize) -> Option<Buffer> {
        self.take_for(len, Urgency::CannotWait)
    }

    fn take_for(&mut self, len: usize, urgency: Urgency) -> Option<Buffer> {
        if let Some(buffer) = self.take_kept(len) {
            return Some(buffer);
        }
        let charge = self.charge(len, urgency)?;
        self.allocate(len, charge)
    }

    fn allocate(&mut self, len: usize, charge: Charge) -> Option<Buffer> {
        let buffer = Buffer::charged(len, charge);
        if buffer.is_none() {
            // The next one to ask may find room there.
            self.release_kept();
        }
        buffer
    }

    /// Promises a buffer of `len` bytes, or `None` when the budget has no room for it beside what is kept:
    /// [`Self::take`] may still find one there.
    pub fn reserve(&self, len: usize) -> Option<Reservation> {
        let charge = self.budget.charge(capacity_for(len), Urgency::CanWait)?;
        Some(Reservation { len, charge })
    }

    /// The buffer that was promised. Its contents are stale. `None` when the system has no memory: the budget does.
    pub fn take_reserved(&mut self, reservation: Reservation) -> Option<Buffer> {
        let Reservation { len, charge } = reservation;
        self.take_kept(len).or_else(|| self.allocate(len, charge))
    }

    #[inline]
    fn take_kept(&mut self, len: usize) -> Option<Buffer> {
        let mut buffer = self.kept[class_for(len)?].pop()?;
        self.kept_bytes -= buffer.capacity();
        buffer.set_len(len);
        Some(buffer)
    }

    /// Takes what a buffer of `len` bytes needs from the budget.
    fn charge(&mut self, len: usize, urgency: Urgency) -> Option<Charge> {
        let capacity = capacity_for(len);
        self.budget.charge(capacity, urgency).or_else(|| {
            // What is kept in other classes may be what is missing.
            self.release_kept();
            self.budget.charge(capacity, urgency)
        })
    }

    /// Gives a buffer back, to be kept or freed. It may come from another pool.
    pub fn put(&mut self, buffer: Buffer) {
        let capacity = buffer.capacity();
        // What is beyond the bound is for the next newcomer, on whatever reactor.
        let ours = buffer
            .charge
            .as_ref()
            .is_some_and(|c| Arc::ptr_eq(&c.budget, &self.budget) && !c.is_beyond());
        let class = class_for(capacity).filter(|class| class_capacity(*class) == capacity);
        if let Some(class) = class
            && ours
            && capacity <= self.kept_bytes_max.saturating_sub(self.kept_bytes)
        {
            self.kept_bytes += capacity;
            self.kept[class].push(buffer);
        }
    }

    /// Frees everything that is kept, for example when the reactor has been idle for a while.
    pub fn release_kept(&mut self) {
        for class in &mut self.kept {
            *class = Vec::new();
        }
        self.kept_bytes = 0;
    }

    /// Bytes in returned buffers that wait for their next use.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The budget it counts against.
    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }
}

/// The smallest class that holds `len` bytes; `None` beyond the largest.
fn class_for(len: usize) -> Option<usize> {
    if len > CLASS_MAX {
        return None;
    }
    let pages = len.div_ceil(CLASS_MIN).max(1);
    Some(pages.next_power_of_two().ilog2() as usize)
}

fn class_capacity(class: usize) -> usize {
    CLASS_MIN << class
}

/// Capacity of a pool's buffer for `len` bytes.
fn capacity_for(len: usize) -> usize {
    class_for(len).map_or_else(|| rounded_capacity(len), class_capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn pool(budget: usize, kept: usize) -> BufferPool {
        BufferPool::new(MemoryBudget::new(budget), kept)
    }

    #[test]
    fn allocated_buffer_is_aligned_and_zero() {
        for len in [0, 1, 4096, 4097, 300_000, MIB] {
            let buffer = Buffer::allocate(len);
            assert_eq!(buffer.as_ptr().align_offset(4096), 0);
            assert_eq!(buffer.len(), len);
            assert!(buffer.capacity() >= len && buffer.capacity() >= 4096);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn length_changes_within_capacity() {
        let mut buffer = Buffer::allocate(10);
        buffer.set_len(4096);
        buffer[4095] = 7;
        buffer.set_len(1);
        buffer.set_len(4096);
        assert_eq!(buffer[4095], 7);
    }

    #[test]
    #[should_panic(expected = "beyond capacity")]
    fn length_beyond_capacity_is_a_bug() {
        Buffer::allocate(10).set_len(4097);
    }

    #[test]
    fn buffer_may_be_dropped_by_another_thread() {
        let budget = MemoryBudget::new(MIB);
        let buffer = BufferPool::new(budget.clone(), 0).take(5000).unwrap();
        assert_eq!(budget.used_bytes(), 8192);
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn returned_buffer_is_used_again() {
        let mut pool = pool(MIB, MIB);
        let mut buffer = pool.take(100).unwrap();
        buffer.fill(9);
        let address = buffer.as_ptr();
        pool.put(buffer);
        assert_eq!(pool.kept_bytes(), 4096);
        let again = pool.take(4000).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, 4000));
        assert_eq!((again[99], again[100]), (9, 0), "stale, but initialised");
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn budget_used_up_gives_none_until_a_buffer_is_freed() {
        let mut pool = pool(16384, 0);
        let first = pool.take(8192).unwrap();
        let _second = pool.take(8000).unwrap();
        assert!(pool.take(1).is_none());
        pool.put(first);
        assert!(pool.take(1).is_some());
    }

    #[test]
    fn those_who_cannot_wait_find_memory_when_others_have_used_it_up() {
        let mut pool = BufferPool::new(MemoryBudget::new(64 * 4096), 0);
        let all = pool.take(64 * 4096).unwrap();
        assert!(pool.take(1).is_none());
        let reserve: Vec<_> = std::iter::from_fn(|| pool.take_at_once(4096)).collect();
        assert_eq!(reserve.len(), 8);
        drop(reserve);
        drop(all);
        assert_eq!(pool.budget().used_bytes(), 0);
    }

    #[test]
    fn newcomers_find_memory_when_others_have_used_it_up_and_leave_some_to_those_who_cannot_wait() {
        let mut pool = BufferPool::new(MemoryBudget::new(64 * 4096), 64 * 4096);
        let all = pool.take(64 * 4096).unwrap();
        let newcomers: Vec<_> = std::iter::from_fn(|| pool.take_as_newcomer(4096)).collect();
        assert_eq!(newcomers.len(), 4);
        assert!(pool.take_at_once(4096).is_some());
        // Nothing of that is kept from others.
        newcomers.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.kept_bytes(), 0);
        drop(all);
        assert_eq!(pool.budget().used_bytes(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "its allocator ends the test")]
    fn memory_that_the_system_does_not_have_is_none() {
        let mut pool = BufferPool::new(MemoryBudget::new(usize::MAX), 0);
        // More than an address space.
        let len = 1 << 60;
        assert!(pool.take(len).is_none());
        let promised = pool.reserve(len).unwrap();
        assert!(pool.take_reserved(promised).is_none());
        assert!(Buffer::try_allocate(len).is_none());
        assert_eq!(
            (pool.budget().used_bytes(), pool.budget().failures()),
            (0, 2)
        );
    }

    #[test]
    fn kept_buffers_of_other_classes_make_room() {
        let mut pool = pool(16384, 16384);
        let small: Vec<_> = (0..4).map(|_| pool.take(4096).unwrap()).collect();
        small.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.kept_bytes(), 16384);
        assert!(pool.take(16384).is_some());
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn a_promise_is_kept_when_the_budget_is_used_up() {
        let mut pool = pool(16384, 0);
        let promised = pool.reserve(5000).unwrap();
        assert_eq!(promised.capacity(), 8192);
        let _other = pool.take(8192).unwrap();
        assert!(pool.take(1).is_none() && pool.reserve(1).is_none());
        let buffer = pool.take_reserved(promised).unwrap();
        assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
        assert_eq!(pool.budget().used_bytes(), 16384);
        drop(buffer);
        drop(pool.reserve(1));
        assert_eq!(pool.budget().used_bytes(), 8192);
    }

    #[test]
    fn what_is_kept_is_neither_promised_nor_freed_for_a_promise() {
        let mut pool = pool(2 * MIB, 2 * MIB);
        let buffers: Vec<_> = (0..2).map(|_| pool.take(MIB).unwrap()).collect();
        buffers.into_iter().for_each(|buffer| pool.put(buffer));
        assert!(pool.reserve(MIB).is_none());
        assert_eq!(pool.kept_bytes(), 2 * MIB);
        let _taken = pool.take(MIB).unwrap();
        assert_eq!(pool.kept_bytes(), MIB);
    }

    #[test]
    fn one_buffer_serves_many_promises_that_are_called_in_one_after_the_other() {
        let mut pool = pool(4 * MIB, 4 * MIB);
        let promised: Vec<_> = (0..3).map(|_| pool.reserve(MIB).unwrap()).collect();
        assert_eq!(pool.budget().used_bytes(), 3 * MIB);
        let mut addresses = Vec::new();
        for promise in promised {
            let buffer = pool.take_reserved(promise).unwrap();
            addresses.push(buffer.as_ptr());
            pool.put(buffer);
        }
        assert!(addresses.iter().all(|address| *address == addresses[0]));
        assert_eq!(pool.budget().used_bytes(), MIB);
        assert_eq!(pool.kept_bytes(), MIB);
    }

    #[test]
    fn pools_share_one_budget() {
        let budget = MemoryBudget::new(8192);
        let mut pools = [(); 2].map(|()| BufferPool::new(budget.clone(), 8192));
        let buffer = pools[0].take(8192).unwrap();
        assert!(pools[1].take(1).is_none());
        // A buffer may end its life in another pool than its first.
        pools[1].put(buffer);
        assert_eq!(pools[1].kept_bytes(), 8192);
        assert!(pools[1].take(8192).is_some());
    }

    #[test]
    fn buffers_not_of_this_budget_or_of_no_class_are_not_kept() {
        let mut pool = pool(64 * MIB, 64 * MIB);
        pool.put(Buffer::allocate(4096));
        let large = pool.take(CLASS_MAX + 1).unwrap();
        assert_eq!(large.capacity(), CLASS_MAX + 4096);
        pool.put(large);
        assert_eq!((pool.kept_bytes(), pool.budget().used_bytes()), (0, 0));
    }

    #[test]
    fn classes_are_powers_of_two_from_4_kib_to_16_mib() {
        let capacity = |len| class_for(len).map(class_capacity);
        assert_eq!(capacity(0), Some(4096));
        assert_eq!(capacity(4096), Some(4096));
        assert_eq!(capacity(4097), Some(8192));
        assert_eq!(capacity(CLASS_MAX), Some(CLASS_MAX));
        assert_eq!(capacity(CLASS_MAX + 1), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        /// Whatever is promised, taken and put, the budget is kept to and ends at zero.
        #[test]
        fn budget_is_exact(steps in proptest::collection::vec((0..200_000_usize, 0..6_u8), 1..60)) {
            let budget = MemoryBudget::new(400_000);
            let mut pool = BufferPool::new(budget.clone(), 100_000);
            let mut taken: Vec<Buffer> = Vec::new();
            let mut promised: Vec<Reservation> = Vec::new();
            for (len, action) in steps {
                match action {
                    0 => taken.extend(pool.take(len)),
                    1 => { taken.pop().into_iter().for_each(|buffer| pool.put(buffer)); }
                    2 => promised.extend(pool.reserve(len)),
                    3 => taken.extend(promised.pop().and_then(|promise| pool.take_reserved(promise))),
                    4 => { promised.pop(); }
                    _ => { taken.pop(); }
                }
                let held: usize = taken.iter().map(Buffer::capacity).sum();
                let held = held + promised.iter().map(Reservation::capacity).sum::<usize>();
                proptest::prop_assert_eq!(budget.used_bytes(), held + pool.kept_bytes());
                proptest::prop_assert!(budget.used_bytes() <= 400_000);
                proptest::prop_assert!(pool.kept_bytes() <= 100_000);
            }
            drop((taken, promised, pool));
            proptest::prop_assert_eq!(budget.used_bytes(), 0);
        }
    }
}
