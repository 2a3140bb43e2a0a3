//! Payload memory: page-aligned, owned by whoever holds it, recycled per core.
//!
//! - [`Buffer`] is an owned, `Send`, page-aligned block of initialised bytes with a length that may
//!   be less than its capacity; it derefs to `[u8]`. Dropping it frees the memory.
//! - [`BufferPool`] belongs to one reactor and hands out buffers by size class (4 KiB to 16 MiB,
//!   powers of two). It keeps returned ones up to a bound, so that a warm reactor neither allocates
//!   nor touches memory shared with other cores.
//! - [`MemoryBudget`] bounds what all pools of a process hold together, in use or kept. A buffer
//!   counts against it from allocation until it is freed, wherever that happens.
//!
//! The contents of a recycled buffer are stale: never send what was not written.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod block;

use block::Block;

/// Capacity of the smallest class, and the unit of all capacities.
const CLASS_MIN: usize = 4096;
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
}

impl Buffer {
    /// A zero-filled buffer of `len` bytes that no budget counts. Its capacity is `len` rounded up to
    /// a multiple of 4096, and at least 4096.
    #[must_use]
    pub fn allocate(len: usize) -> Self {
        Self {
            block: Block::zeroed(rounded_capacity(len)),
            len,
            charge: None,
        }
    }

    /// Most bytes it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
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
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
        })
    }

    /// The bound.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes held at this moment, in use or kept by pools.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        // Relaxed: the counter guards an amount, not other memory.
        self.used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|sum| *sum <= self.limit_bytes)
            })
            .ok()?;
        Some(Charge {
            budget: self.clone(),
            bytes,
        })
    }
}

/// Bytes taken from a budget, given back when dropped.
struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget
            .used_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
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
    pub fn take(&mut self, len: usize) -> Option<Buffer> {
        let class = class_for(len);
        if let Some(mut buffer) = class.and_then(|class| self.kept[class].pop()) {
            self.kept_bytes -= buffer.capacity();
            buffer.set_len(len);
            return Some(buffer);
        }
        let capacity = class.map_or_else(|| rounded_capacity(len), class_capacity);
        let charge = self.budget.charge(capacity).or_else(|| {
            // What is kept in other classes may be what is missing.
            self.release_kept();
            self.budget.charge(capacity)
        })?;
        Some(Buffer {
            block: Block::zeroed(capacity),
            len,
            charge: Some(charge),
        })
    }

    /// Gives a buffer back, to be kept or freed. It may come from another pool.
    pub fn put(&mut self, buffer: Buffer) {
        let capacity = buffer.capacity();
        let ours = buffer
            .charge
            .as_ref()
            .is_some_and(|c| Arc::ptr_eq(&c.budget, &self.budget));
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
