//! Files, ports and neighbours, by Landlock.

use std::fs;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::policy::{Policy, Use};

/// The threads of this process, by number.
const THREADS: &str = "/proc/self/task";

/// The newest ABI whose rights are handled.
const NEWEST: ABI = ABI::V7;

/// The ABI that has all of the layers: files with their devices, ports, and neighbours.
const COMPLETE: ABI = ABI::V6;

/// What Landlock holds back.
#[derive(Debug)]
pub struct Restricted {
    pub abi: ABI,
}

impl Restricted {
    /// TCP ports are bound.
    pub fn has_ports(&self) -> bool {
        self.abi >= ABI::V4
    }

    /// No layer is missing.
    pub fn is_complete(&self) -> bool {
        self.abi >= COMPLETE
    }
}

/// Whether this thread is the only one: another would stay outside.
///
/// # Errors
/// Why not.
pub fn is_alone() -> Result<(), String> {
    match fs::read_dir(THREADS).map(Iterator::count) {
        Ok(1) => Ok(()),
        Ok(count) => Err(format!("the process has {count} threads already")),
        Err(error) => Err(format!("{THREADS}: {error}")),
    }
}

/// Leaves this thread, and those that it starts, what the policy names.
///
/// # Errors
/// Why not.
pub fn restrict(policy: &Policy) -> Result<Restricted, String> {
    let status = created(policy)
        .and_then(|ruleset| with_places(ruleset, policy))
        .and_then(|ruleset| with_ports(ruleset, policy))
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error| error.to_string())?;
    match status.landlock {
        LandlockStatus::NotImplemented => Err("the kernel has no Landlock".to_owned()),
        LandlockStatus::NotEnabled => {
            Err("Landlock is not enabled: boot with lsm=landlock,…".to_owned())
        }
        LandlockStatus::Available { .. } if status.ruleset == RulesetStatus::NotEnforced => {
            Err("the kernel enforces no rule".to_owned())
        }
        LandlockStatus::Available { effective_abi, .. } => Ok(Restricted { abi: effective_abi }),
    }
}

fn created(policy: &Policy) -> Result<RulesetCreated, RulesetError> {
    let mut scope = BitFlags::from(Scope::Signal);
    if !policy.abstract_sockets {
        scope |= Scope::AbstractUnixSocket;
    }
    let mut ports = BitFlags::from(AccessNet::ConnectTcp);
    if policy.listen_ports.is_some() {
        ports |= AccessNet::BindTcp;
    }
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(ports)?
        .scope(scope)?
        .create()
}

fn with_places(
    mut ruleset: RulesetCreated,
    policy: &Policy,
) -> Result<RulesetCreated, RulesetError> {
    for (path, usage) in &policy.places {
        // One that is gone again, or is not shown to this user.
        let Ok(place) = PathFd::new(path) else {
            continue;
        };
        let mut rights = rights(*usage);
        if !path.is_dir() {
            rights &= AccessFs::from_file(NEWEST);
        }
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights))?;
    }
    Ok(ruleset)
}

fn with_ports(
    mut ruleset: RulesetCreated,
    policy: &Policy,
) -> Result<RulesetCreated, RulesetError> {
    for (ports, access) in [
        (policy.listen_ports.as_deref(), AccessNet::BindTcp),
        (Some(&*policy.connect_ports), AccessNet::ConnectTcp),
    ] {
        for port in ports.unwrap_or_default() {
            ruleset = ruleset.add_rule(NetPort::new(*port, access))?;
        }
    }
    Ok(ruleset)
}

/// No program is run from any place.
fn rights(usage: Use) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let files = AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer;
    match usage {
        Use::Read => read,
        Use::ReadWrite => write,
        Use::Keep => write | files | AccessFs::MakeDir | AccessFs::RemoveDir,
        Use::Sockets => AccessFs::MakeSock | AccessFs::RemoveFile,
    }
}
