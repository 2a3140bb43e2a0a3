//! The process's allocator: that of the C library, with a reserve for small allocations.
//!
//! An allocation of Rust that fails ends the process. Where the address space is bounded (RLIMIT_AS), payload could take
//! all of it, and then any small allocation would fail. [`keep_reserve`] sets some address space aside, and [`Reserving`], as
//! the global allocator, gives it to small allocations alone, once they find no other:
//!
//! ```text
//!  ┌ 1 MiB ┬ 1 MiB ┬ 1 MiB ┬ 1 MiB ┐ ── an allocation fails: one is unmapped, and it tries again ──►
//!  └───────┴───────┴───────┴───────┘ ◄── mapped again before payload gets anything ───────────────
//!          payload and new connections get nothing while fewer than three are left
//! ```

mod reserve;
mod thread_room;

pub(crate) use reserve::is_low;
pub use reserve::{Reserving, has_reserve, keep_reserve};
pub use thread_room::{ThreadRoom, spawn};

/// Has all threads allocate from one heap from now on. The allocator of glibc reserves 64 MiB of address space for
/// each thread otherwise, which nobody else gets where the address space is bounded (RLIMIT_AS).
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and changes settings of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
