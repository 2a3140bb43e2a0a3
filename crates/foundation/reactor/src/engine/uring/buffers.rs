//! Payload memory that the ring has registered: its pages are pinned once, not for each operation.
//!
//! A buffer of a pool is registered when 16 KiB or more are read into it from an O_DIRECT file, or written from it, for
//! the second time, and stays so until it is freed. Pools keep their buffers, so that soon nothing is registered any more.
//! One that comes from another ring, with a connection, loses its place there and gets one here.
//!
//! What is registered is bounded by [`EngineConfig::registered_bytes_max`]. Buffers beyond go the ordinary
//! way, and so do all new ones once the kernel has refused one (RLIMIT_MEMLOCK).

use std::io;
use std::sync::{Arc, Once};

use super::ring::Ring;
use crate::buffer::Buffer;
use crate::buffer::registration::{Registration, Returned, TableEntry};
use crate::engine::{EngineConfig, EngineCounters};
use crate::wake::Waker;

/// Most buffers of one ring.
const PLACES: u16 = 4096;
/// Smaller operations gain nothing that can be told from noise.
const LENGTH_MIN: usize = 16 << 10;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct RegisteredBuffers {
    bytes_max: usize,
    waker: Waker,
    /// Made when the first buffer is to be registered.
    table: Option<Table>,
}

#[derive(Debug)]
struct Table {
    returned: Arc<Returned>,
    /// Places that no buffer has.
    free: Vec<u16>,
    /// Bytes that the kernel holds, by place.
    held: Vec<usize>,
    /// The sum of them.
    bytes: usize,
}

impl RegisteredBuffers {
    pub(super) fn new(config: EngineConfig, waker: Waker) -> Self {
        Self {
            bytes_max: config.registered_bytes_max,
            waker,
            table: None,
        }
    }

    /// Where the ring knows the buffer from of an operation on an O_DIRECT file, which moves `length` bytes. `None`: it
    /// does not.
    #[inline]
    pub(super) fn index(
        &mut self,
        ring: &Ring,
        buffer: &mut Buffer,
        length: usize,
        counters: &mut EngineCounters,
    ) -> Option<u16> {
        counters.direct_operations += 1;
        if self.bytes_max == 0 || length < LENGTH_MIN {
            return None;
        }
        let known = match (buffer.registration(), &self.table) {
            (Registration::At(place), Some(table)) => place.index_in(&table.returned),
            _ => None,
        };
        let index = match known {
            Some(index) => index,
            None => self.register(ring, buffer, counters)?,
        };
        counters.registered_operations += 1;
        Some(index)
    }

    #[cold]
    fn register(
        &mut self,
        ring: &Ring,
        buffer: &mut Buffer,
        counters: &mut EngineCounters,
    ) -> Option<u16> {
        if matches!(buffer.registration(), Registration::New) {
            // It may be one that is freed after its first use.
            buffer.set_registration(Registration::Used);
            return None;
        }
        if !buffer.is_pooled() {
            return None;
        }
        let table = match &mut self.table {
            Some(table) => table,
            None => {
                counters.system_calls += 1;
                match ring.register_buffers_sparse(PLACES) {
                    Ok(()) => self.table.insert(Table::new(self.waker.clone())),
                    Err(error) => {
                        say_why(0, Some(&error));
                        self.bytes_max = 0;
                        return None;
                    }
                }
            }
        };
        if table.bytes + buffer.capacity() > self.bytes_max {
            say_why(table.bytes, None);
            return None;
        }
        let index = table.free.pop()?;
        counters.system_calls += 1;
        match ring.register_buffer(u32::from(index), buffer) {
            Ok(()) => {
                let held = &mut table.held[usize::from(index)];
                table.bytes = table.bytes - *held + buffer.capacity();
                *held = buffer.capacity();
                buffer.set_registration(Registration::At(TableEntry::new(index, &table.returned)));
                Some(index)
            }
            Err(error) => {
                say_why(table.bytes, Some(&error));
                table.free.push(index);
                self.bytes_max = table.bytes;
                None
            }
        }
    }

    /// Bytes that are registered, and the most that can be.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let registered = self.table.as_ref().map_or(0, |table| table.bytes);
        (registered, self.bytes_max)
    }

    /// Lets go of the memory of buffers that have been freed.
    #[inline]
    pub(super) fn let_go(&mut self, ring: &Ring, counters: &mut EngineCounters) {
        let Some(table) = &mut self.table else {
            return;
        };
        let Table {
            returned,
            free,
            held,
            bytes,
        } = table;
        returned.take_all(|index| {
            free.push(index);
            counters.system_calls += 1;
            // Where the kernel had no memory for that, the pages go when the place is used again.
            if ring.unregister_buffer(u32::from(index)).is_ok() {
                *bytes -= std::mem::take(&mut held[usize::from(index)]);
            }
        });
    }
}

impl Table {
    fn new(waker: Waker) -> Self {
        Self {
            returned: Returned::new(PLACES, waker),
            free: (0..PLACES).rev().collect(),
            held: vec![0; usize::from(PLACES)],
            bytes: 0,
        }
    }
}

/// Why buffers are not registered: once for all rings of the process, which meet the same limits.
fn say_why(registered_bytes: usize, refusal: Option<&io::Error>) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let reason = refusal.map_or_else(|| "by its bounds".to_owned(), ToString::to_string);
        tracing::info!(
            registered_bytes,
            reason,
            "no more memory of direct volumes can be registered with io_uring; other buffers are used unregistered, \
             which takes more processor time (bounds: a quarter of limits.memory, a quarter of RLIMIT_MEMLOCK)"
        );
    });
}
