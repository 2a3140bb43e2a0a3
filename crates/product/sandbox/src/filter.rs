//! System calls, by seccomp.
//!
//! The kernel asks all filters and takes the strictest answer. So each question has a filter of its own:
//!
//! | filter | a call that it names | any other call |
//! |---|---|---|
//! | [`calls::ABSENT`] | fails with ENOSYS, as on an older kernel | allowed |
//! | [`calls::FATAL`] | ends the process (SIGSYS) | allowed |
//! | [`calls::allowed`] | allowed, if its arguments are | fails with EPERM |
//!
//! They are installed in this order. Once the event loops run, a fourth filter refuses further rings of io_uring
//! (EPERM): those of the loops are restricted to reads and writes of open files and the like.

use std::collections::BTreeMap;

use longshore_reactor::seccomp::{self, Audit, Instruction};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch,
};

use crate::calls;
use crate::policy::Policy;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters, for all threads.
///
/// # Errors
/// Why not.
pub fn install(policy: &Policy) -> Result<(), String> {
    let programs = programs(policy).map_err(|error| error.to_string())?;
    for (program, audit) in programs {
        install_program(&program, audit)?;
    }
    Ok(())
}

/// Refuses further rings of io_uring, for all threads.
///
/// # Errors
/// Why not.
pub fn refuse_rings() -> Result<(), String> {
    let rules = Rules::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program = compiled(rules, SeccompAction::Allow, refusal);
    install_program(
        &program.map_err(|error| error.to_string())?,
        Audit::Refusals,
    )
}

fn install_program(program: &BpfProgram, audit: Audit) -> Result<(), String> {
    let program: Vec<Instruction> = program
        .iter()
        .map(|it| Instruction {
            code: it.code,
            jump_true: it.jt,
            jump_false: it.jf,
            value: it.k,
        })
        .collect();
    seccomp::install(&program, audit).map_err(|error| format!("seccomp: {error}"))
}

fn compiled(
    rules: Rules,
    other: SeccompAction,
    named: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, other, named, ARCHITECTURE)?.try_into()
}

fn programs(policy: &Policy) -> Result<[(BpfProgram, Audit); 3], BackendError> {
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let all =
        |numbers: &[i64]| -> Rules { numbers.iter().map(|number| (*number, Vec::new())).collect() };
    let mut fatal = all(&calls::FATAL);
    if policy.mounts {
        // Without the right to mount, the helper of FUSE is tried.
        fatal.retain(|number, _| {
            !calls::MOUNTING.contains(number) && !calls::STARTING.contains(number)
        });
    }
    let absent = compiled(
        all(&calls::ABSENT),
        SeccompAction::Allow,
        errno(libc::ENOSYS),
    )?;
    let fatal = compiled(fatal, SeccompAction::Allow, SeccompAction::KillProcess)?;
    let allowed = compiled(
        calls::allowed(policy)?,
        errno(libc::EPERM),
        SeccompAction::Allow,
    )?;
    // Each start of a thread meets the first one.
    Ok([
        (absent, Audit::Nothing),
        (fatal, Audit::Refusals),
        (allowed, Audit::Refusals),
    ])
}
