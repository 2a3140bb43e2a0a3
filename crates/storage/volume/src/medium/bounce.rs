//! Memory of the volume's own, for transfers that cannot use that of the request.
//!
//! No budget counts it, and peers decide how much of it is in use at once, so the system may have none
//! left for it. That ends one request; its host may repeat it.

use longshore_reactor::buffer::Buffer;

/// Zeros. `None` when the system has no memory.
pub(super) fn allocate(len: usize) -> Option<Buffer> {
    #[cfg(test)]
    if tests::is_scarce() {
        return None;
    }
    Buffer::try_allocate(len)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        static SCARCE: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_scarce() -> bool {
        SCARCE.get()
    }

    /// What `act` does on this thread finds no memory.
    pub(crate) fn without_memory<T>(act: impl FnOnce() -> T) -> T {
        SCARCE.set(true);
        let outcome = act();
        SCARCE.set(false);
        outcome
    }
}
