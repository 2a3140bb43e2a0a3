//! Who can reach what: the configuration against the addresses that are listened on in the end.
//!
//! The service manager may have passed other sockets than the configuration names, and ports that were 0
//! have a number by then.

use std::net::SocketAddr;

use longshore_server::config::{RelativePorts, SubsystemConfig, TargetConfig};

use super::problem::{Problem, ProblemKind};
use super::warning::Warning;
use super::{Config, VolumeSource};

/// The addresses that are listened on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// iSCSI, with the portal group tag.
    pub iscsi: Vec<(SocketAddr, u16)>,
    pub nvme: Vec<SocketAddr>,
    /// Addresses that serve NVMe discovery alone.
    pub nvme_discovery: Vec<SocketAddr>,
}

impl Config {
    /// The addresses as configured, with ports that may still be 0.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let iscsi = self.listeners.iter();
        let discovery = self.nvme_discovery.by_name().iter();
        Addresses {
            iscsi: iscsi.map(|one| (one.address, one.tag)).collect(),
            nvme: self.nvme_listeners.iter().map(|one| one.address).collect(),
            nvme_discovery: discovery.map(|one| one.address).collect(),
        }
    }

    /// Checks targets and subsystems against the addresses that will really be used: every portal group
    /// named exists, and nobody from outside reaches what has no access control unasked.
    pub fn check_reach(&self, addresses: &Addresses) -> Result<Vec<Warning>, Problem> {
        let mut warnings = Vec::new();
        self.check_slow(addresses)?;
        if addresses.iscsi.is_empty() {
            if self.named.targets {
                warnings.push(Warning::NotListening {
                    table: "target",
                    protocol: "iSCSI",
                    option: "--iscsi",
                    key: "iscsi",
                });
            }
        } else {
            self.check_targets(&addresses.iscsi, &mut warnings)?;
        }
        if addresses.nvme.is_empty() {
            if self.named.subsystems {
                warnings.push(Warning::NotListening {
                    table: "subsystem",
                    protocol: "NVMe",
                    option: "--nvme",
                    key: "nvme",
                });
            }
        } else {
            self.check_subsystems(&addresses.nvme, &mut warnings)?;
        }
        self.check_other_side(addresses, &mut warnings);
        Ok(warnings)
    }

    /// Checks that volumes that are made slow, for tests, are nobody else's unless that was asked for.
    fn check_slow(&self, addresses: &Addresses) -> Result<(), Problem> {
        let iscsi = addresses.iscsi.iter().map(|(address, _)| address);
        let mut all = iscsi.chain(&addresses.nvme);
        let Some(outside) = all.find(|address| !is_loopback(**address)) else {
            return Ok(());
        };
        let is_refused = |source: &&VolumeSource| {
            source.enabled && source.spec.slow.any() && !source.spec.slow.anywhere
        };
        match self.volumes.iter().find(is_refused) {
            None => Ok(()),
            Some(source) => Err(Problem::general(ProblemKind::Slow {
                listener: outside.to_string(),
                volume: source.spec.name.clone(),
            })),
        }
    }

    /// Checks targets against portals.
    fn check_targets(
        &self,
        portals: &[(SocketAddr, u16)],
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Problem> {
        for target in &self.targets {
            for tag in &target.portal_groups {
                if !portals.iter().any(|(_, used)| used == tag) {
                    return Err(unknown_portal_group(target, *tag, portals));
                }
            }
            let reaches =
                |tag: u16| target.portal_groups.is_empty() || target.portal_groups.contains(&tag);
            check_relative_port(target, portals)?;
            let outside = portals
                .iter()
                .find(|(address, tag)| reaches(*tag) && !is_loopback(*address));
            let Some((address, _)) = outside.filter(|_| target.is_open()) else {
                continue;
            };
            let (listener, target) = (address.to_string(), target.name.as_str().to_owned());
            if !self.allow_open {
                return Err(Problem::general(ProblemKind::Open { listener, target }));
            }
            warnings.push(Warning::Open { listener, target });
        }
        Ok(())
    }

    /// Checks subsystems against listeners, through each of which all of them are reached.
    fn check_subsystems(
        &self,
        listeners: &[SocketAddr],
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Problem> {
        let Some(outside) = listeners.iter().find(|address| !is_loopback(**address)) else {
            return Ok(());
        };
        for subsystem in self.subsystems.iter().filter(|one| one.is_open()) {
            let (listener, subsystem) = (outside.to_string(), subsystem.nqn.to_string());
            if !self.allow_open {
                let kind = ProblemKind::OpenSubsystem {
                    listener,
                    subsystem,
                };
                return Err(Problem::general(kind));
            }
            warnings.push(Warning::OpenSubsystem {
                listener,
                subsystem,
            });
        }
        Ok(())
    }

    /// What one protocol keeps from peers may stand open over the other, where nothing was said.
    fn check_other_side(&self, addresses: &Addresses, warnings: &mut Vec<Warning>) {
        let are_guarded = self.named.targets && !self.targets.iter().all(TargetConfig::is_open);
        if are_guarded && !self.named.subsystems && !addresses.nvme.is_empty() {
            warnings.push(Warning::OpenBeside {
                guarded: "target",
                open: "subsystem",
                protocol: "NVMe",
            });
        }
        let are_guarded =
            self.named.subsystems && !self.subsystems.iter().all(SubsystemConfig::is_open);
        if are_guarded && !self.named.targets && !addresses.iscsi.is_empty() {
            warnings.push(Warning::OpenBeside {
                guarded: "subsystem",
                open: "target",
                protocol: "iSCSI",
            });
        }
    }
}

/// Whether only this machine can reach it.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Checks that a target that has one number has one port.
fn check_relative_port(
    target: &TargetConfig,
    portals: &[(SocketAddr, u16)],
) -> Result<(), Problem> {
    let RelativePorts::Single(identifier) = &target.relative_ports else {
        return Ok(());
    };
    let groups = &target.portal_groups;
    let mut tags = tags_of(portals);
    tags.retain(|tag| groups.is_empty() || groups.contains(tag));
    if tags.len() < 2 {
        return Ok(());
    }
    let example = format!("{{ {} = {identifier}, {} = … }}", tags[0], tags[1]);
    Err(Problem::general(ProblemKind::OneRelativePort {
        target: target.name.as_str().to_owned(),
        tags: joined(&tags),
        example,
    }))
}

/// The tags of portals, each once, ascending.
fn tags_of(portals: &[(SocketAddr, u16)]) -> Vec<u16> {
    let mut tags: Vec<u16> = portals.iter().map(|(_, tag)| *tag).collect();
    tags.sort_unstable();
    tags.dedup();
    tags
}

fn joined(tags: &[u16]) -> String {
    let tags: Vec<String> = tags.iter().map(u16::to_string).collect();
    tags.join(", ")
}

/// A target names a portal group that no portal is in.
fn unknown_portal_group(target: &TargetConfig, tag: u16, portals: &[(SocketAddr, u16)]) -> Problem {
    Problem::general(ProblemKind::UnknownPortalGroup {
        target: target.name.as_str().to_owned(),
        tag,
        used: joined(&tags_of(portals)),
    })
}
