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
//! They are installed in this order.

use std::collections::BTreeMap;

use longshore_reactor::seccomp::{self, Audit, Instruction};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

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
        let program: Vec<Instruction> = program
            .iter()
            .map(|it| Instruction {
                code: it.code,
                jump_true: it.jt,
                jump_false: it.jf,
                value: it.k,
            })
            .collect();
        seccomp::install(&program, audit).map_err(|error| format!("seccomp: {error}"))?;
    }
    Ok(())
}

fn programs(policy: &Policy) -> Result<[(BpfProgram, Audit); 3], seccompiler::BackendError> {
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
    let compiled = |rules, other, named| -> Result<BpfProgram, seccompiler::BackendError> {
        SeccompFilter::new(rules, other, named, ARCHITECTURE)?.try_into()
    };
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
    // The last one does not allow the installation of filters. Each start of a thread meets the first one.
    Ok([
        (absent, Audit::Nothing),
        (fatal, Audit::Refusals),
        (allowed, Audit::Refusals),
    ])
}
