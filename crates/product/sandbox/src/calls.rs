//! The system calls of the server, as tables.
//!
//! [`allowed`] has what event loops (both engines), helpers, the control plane and the libraries below them call, error
//! paths included. Arguments are looked at where one call does many things: sockets by family and kind, memory by its
//! protection, threads (no process is forked), controls of terminals and of the process itself.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::policy::Policy;

/// Calls that end the process: they run other programs, trace or read other processes, or change the kernel. No part of the
/// server makes them, so whoever does has taken it over.
pub const FATAL: [c_long; 33] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
];

/// Of the fatal ones, those that mount a file system.
pub const MOUNTING: [c_long; 2] = [libc::SYS_mount, libc::SYS_umount2];

/// Of the fatal ones, those that start programs.
pub const STARTING: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// Calls that libraries try first and do without on older kernels. The filter cannot read what `clone3` points to, so that
/// threads start with `clone`.
pub const ABSENT: [c_long; 1] = [libc::SYS_clone3];

// The library does not have these for all of its targets. Newer numbers are the same on all architectures.
const CACHESTAT: c_long = 451;
const FCHMODAT2: c_long = 452;
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: c_long = 320;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: c_long = 294;

/// Allowed with any arguments.
const ANY: [c_long; 134] = [
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // Files.
    CACHESTAT,
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_tee,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets; `socket` itself below.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Events.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    // Threads and the process.
    libc::SYS_capget,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_uname,
];

/// Older forms that libraries still use on this architecture.
#[cfg(target_arch = "x86_64")]
const OLDER: [c_long; 28] = [
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_creat,
];
#[cfg(target_arch = "aarch64")]
const OLDER: [c_long; 2] = [
    38, // renameat
    84, // sync_file_range
];

/// Options of `prctl`: names of threads and of memory, precision of timers, and what the process may learn about itself.
const PRCTL: [u64; 8] = [
    2,           // PR_GET_PDEATHSIG
    3,           // PR_GET_DUMPABLE
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    29,          // PR_SET_TIMERSLACK
    30,          // PR_GET_TIMERSLACK
    39,          // PR_GET_NO_NEW_PRIVS
    0x5356_4d41, // PR_SET_VMA
];

/// Controls of terminals that put words into the mouth of their user.
const TERMINAL: [u64; 2] = [
    0x5412, // TIOCSTI
    0x541c, // TIOCLINUX
];

/// Bits of the kind of a socket that are the kind; the others are flags.
const SOCKET_KIND: u64 = 0xf;

/// Bits that no stream of TCP has in its protocol, which is 0 or 6. Landlock does not know other streams, such as MPTCP.
const NOT_TCP: u64 = 0xffff_fff9;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The calls that the server makes, with their arguments.
///
/// # Errors
/// The tables are not a filter.
pub fn allowed(policy: &Policy) -> Result<Rules, BackendError> {
    let mut rules: Rules = ANY
        .iter()
        .chain(&OLDER)
        .map(|call| (*call, Vec::new()))
        .collect();
    for call in ABSENT.iter().chain(&FATAL) {
        // These have an answer of their own, or, with a mount, the usual one.
        if ABSENT.contains(call) || (policy.mounts && MOUNTING.contains(call)) {
            rules.insert(*call, Vec::new());
        }
    }
    rules.insert(libc::SYS_socket, sockets(policy)?);
    rules.insert(
        libc::SYS_clone,
        vec![rule(&[is_set(0, bits(libc::CLONE_THREAD))])?],
    );
    let options = PRCTL.iter().map(|option| rule(&[is(0, *option)]));
    rules.insert(libc::SYS_prctl, options.collect::<Result<_, _>>()?);
    rules.insert(
        libc::SYS_ioctl,
        vec![rule(&TERMINAL.map(|control| is_not(1, control)))?],
    );
    // Nothing that was written is run: MemoryDenyWriteExecute= of systemd.
    let (write, run) = (bits(libc::PROT_WRITE), bits(libc::PROT_EXEC));
    let mapped = vec![rule(&[is_clear(2, write)])?, rule(&[is_clear(2, run)])?];
    rules.insert(libc::SYS_mmap, mapped);
    for call in [libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, vec![rule(&[is_clear(2, run)])?]);
    }
    // Limits are read, and those of descriptors set: of this process, as zero or by no number.
    let own = vec![rule(&[is(0, 0)])?];
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_getparam,
        libc::SYS_sched_getscheduler,
    ] {
        rules.insert(call, own.clone());
    }
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_getrlimit, libc::SYS_setrlimit] {
        rules.insert(call, Vec::new());
    }
    // A filter can only take more away.
    let filter = rule(&[is(0, u64::from(libc::SECCOMP_SET_MODE_FILTER))])?;
    rules.insert(libc::SYS_seccomp, vec![filter]);
    // To this process only; the number of a process does not change.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_kill, vec![rule(&[is(0, own)])?]);
    Ok(rules)
}

/// TCP and Unix sockets. A server that connects to others asks for their addresses: by datagrams, and by way of the
/// kernel's list of its own addresses.
fn sockets(policy: &Policy) -> Result<Vec<SeccompRule>, BackendError> {
    let stream = bits(libc::SOCK_STREAM);
    let (inet, inet6) = (bits(libc::AF_INET), bits(libc::AF_INET6));
    let mut rules = vec![
        rule(&[is(0, bits(libc::AF_UNIX))])?,
        rule(&[
            is(0, inet),
            is_masked(1, SOCKET_KIND, stream),
            is_clear(2, NOT_TCP),
        ])?,
        rule(&[
            is(0, inet6),
            is_masked(1, SOCKET_KIND, stream),
            is_clear(2, NOT_TCP),
        ])?,
    ];
    if policy.anywhere || !policy.connect_ports.is_empty() {
        let datagram = bits(libc::SOCK_DGRAM);
        rules.push(rule(&[is(0, inet), is_masked(1, SOCKET_KIND, datagram)])?);
        rules.push(rule(&[is(0, inet6), is_masked(1, SOCKET_KIND, datagram)])?);
        let route = bits(libc::NETLINK_ROUTE);
        rules.push(rule(&[is(0, bits(libc::AF_NETLINK)), is(2, route)])?);
    }
    Ok(rules)
}

/// The number of a constant, none of which is negative.
fn bits(constant: libc::c_int) -> u64 {
    u64::from(constant.unsigned_abs())
}

/// A comparison of an argument: its place, how, with what.
type Comparison = (u8, SeccompCmpOp, u64);

const fn is(argument: u8, value: u64) -> Comparison {
    (argument, SeccompCmpOp::Eq, value)
}

const fn is_not(argument: u8, value: u64) -> Comparison {
    (argument, SeccompCmpOp::Ne, value)
}

const fn is_masked(argument: u8, mask: u64, value: u64) -> Comparison {
    (argument, SeccompCmpOp::MaskedEq(mask), value)
}

const fn is_set(argument: u8, bits: u64) -> Comparison {
    is_masked(argument, bits, bits)
}

const fn is_clear(argument: u8, bits: u64) -> Comparison {
    is_masked(argument, bits, 0)
}

/// A call whose arguments all compare. The kernel takes 32 bits of those that are looked at.
fn rule(comparisons: &[Comparison]) -> Result<SeccompRule, BackendError> {
    let conditions = comparisons.iter().cloned().map(|(argument, how, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_call_has_two_answers() {
        for policy in [Policy::default(), Policy::base()] {
            let allowed = allowed(&policy).unwrap();
            for call in FATAL {
                assert!(!allowed.contains_key(&call), "{call}");
            }
        }
        let all: Vec<i64> = ANY.into_iter().chain(OLDER).chain(FATAL).collect();
        let distinct: HashSet<i64> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn a_mount_is_allowed_where_the_server_mounts() {
        let mut policy = Policy::default();
        policy.mount();
        let allowed = allowed(&policy).unwrap();
        assert!(MOUNTING.iter().all(|call| allowed.contains_key(call)));
        assert!(STARTING.iter().all(|call| !allowed.contains_key(call)));
    }
}
