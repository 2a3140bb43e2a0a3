//! Filters of system calls: programs that the kernel runs at each call of this process.

use std::io;

/// An instruction of classic BPF, as `linux/filter.h` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    /// Instructions to skip where a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip where it does not.
    pub jump_false: u8,
    pub value: u32,
}

/// Whether calls that a filter refuses are written to the kernel's audit log. Those that end the process always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audit {
    Refusals,
    Nothing,
}

/// Installs a filter for all threads of this process. It stays until the process ends, and holds for its children. The
/// process needs `no_new_privs`.
///
/// # Errors
/// The kernel has no seccomp, or refuses the program.
pub fn install(program: &[Instruction], audit: Audit) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|it| libc::sock_filter {
            code: it.code,
            jt: it.jump_true,
            jf: it.jump_false,
            k: it.value,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    let flags = match audit {
        Audit::Refusals => libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG,
        Audit::Nothing => libc::SECCOMP_FILTER_FLAG_TSYNC,
    };
    // SAFETY: the call reads `program` and the `len` instructions that `filter` points to. Both live until it returns, and
    // nothing else has them. The kernel checks the instructions, keeps a copy, and writes to no memory of this process.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    match outcome {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} has a filter of its own"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_refused() {
        rustix::thread::set_no_new_privs(true).unwrap();
        // A comparison whose jumps leave the program.
        let wild = Instruction {
            code: 0x15,
            jump_true: 7,
            jump_false: 7,
            value: 0,
        };
        for program in [&[][..], &[wild]] {
            let refused = install(program, Audit::Refusals).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{refused}");
        }
    }
}
