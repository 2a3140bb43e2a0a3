//! How the C library's allocator takes memory from the system.

/// Has all threads allocate from one heap from now on. The allocator of glibc reserves 64 MiB of address space for
/// each thread otherwise, which nobody else gets where the address space is bounded (RLIMIT_AS).
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and changes settings of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
