//! Payload memory: page-aligned, owned by whoever holds it, recycled per core.
//!
//! Contract (the implementation fills in the bodies):
//! - `Buffer` is an owned, `Send`, page-aligned (4096) block of initialised bytes with a `len` that
//!   may be less than its capacity; it derefs to `[u8]`. Dropping it frees the memory.
//! - `BufferPool` belongs to one reactor, hands out buffers by size class (4 KiB … 16 MiB, powers of
//!   two), keeps returned ones up to a bound, and counts all bytes handed out against `budget`.
//!   `take(len) -> Option<Buffer>` is `None` when the budget is used up. Contents of a recycled
//!   buffer are stale: never send what was not written. `put(buffer)` gives one back.

/// See the module documentation.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
