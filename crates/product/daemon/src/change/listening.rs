//! What is listened on, and what a configuration changes of it.
//!
//! A listener is known by what it was configured as: one with another address is another listener. Sockets of the service
//! manager stay what they are until the next start, and so does one whose address stays and whose options change.

use std::net::SocketAddr;

use longshore_api::change::{Action, ListenerStep};
use longshore_api::state::Listener;
use longshore_server::ListenerId;

use crate::config::Config;
use crate::config::reach::Addresses;
use crate::portals::{Kind, Portal, Service, Wanted};

/// A listener of the server.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: ListenerId,
    /// Where it is bound.
    pub address: SocketAddr,
    pub service: Service,
    /// What it was configured as.
    pub wanted: Option<Wanted>,
    /// Bound by the service manager.
    pub inherited: bool,
}

/// The listeners of the server.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    pub entries: Vec<Entry>,
    /// They come and go as the configuration says. Otherwise there are none, whatever it says.
    pub is_served: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Difference {
    pub coming: Vec<Wanted>,
    /// Indices into [`Listening`] of listeners to close.
    pub going: Vec<usize>,
    /// What needs a restart.
    pub needs_restart: Vec<String>,
}

/// What a server listens on that has started with these portals.
#[must_use]
pub fn listening(portals: &[Portal]) -> Listening {
    // The server counts those of iSCSI first.
    let (iscsi, nvme): (Vec<_>, Vec<_>) = portals
        .iter()
        .partition(|portal| portal.kind() == Kind::Iscsi);
    let all = iscsi.into_iter().chain(nvme).enumerate();
    let entries = all.map(|(place, portal)| entry(ListenerId(place), portal));
    Listening {
        entries: entries.collect(),
        is_served: true,
    }
}

/// A portal that the server knows by this id.
pub(super) fn entry(id: ListenerId, portal: &Portal) -> Entry {
    Entry {
        id,
        address: portal.address,
        service: portal.service.clone(),
        wanted: portal.wanted.clone(),
        inherited: portal.inherited,
    }
}

impl Entry {
    fn kind(&self) -> Kind {
        match self.service {
            Service::Iscsi { .. } => Kind::Iscsi,
            Service::Nvme { discovery_only, .. } if discovery_only => Kind::NvmeDiscovery,
            Service::Nvme { .. } => Kind::Nvme,
        }
    }

    fn step(&self) -> ListenerStep {
        ListenerStep {
            action: Action::Remove,
            service: self.kind().name().to_owned(),
            address: self.address.to_string(),
        }
    }
}

impl Listening {
    /// As the API shows them: each service with its addresses.
    #[must_use]
    pub fn shown(&self) -> Vec<Listener> {
        let kinds = [Kind::Iscsi, Kind::Nvme, Kind::NvmeDiscovery];
        let of_kind = |kind: Kind| {
            self.entries
                .iter()
                .filter(move |entry| entry.kind() == kind)
        };
        let all = kinds.into_iter().flat_map(of_kind);
        all.map(|entry| Listener {
            service: entry.kind().name().to_owned(),
            address: entry.address.to_string(),
        })
        .collect()
    }

    /// What a configuration changes.
    #[must_use]
    pub fn difference(&self, config: &Config) -> Difference {
        if !self.is_served {
            return Difference::default();
        }
        let has_inherited = self.entries.iter().any(|entry| entry.inherited);
        // Sockets of the service manager take the place of the default.
        let mut wanted = match config.listeners_by_default && has_inherited {
            true => Vec::new(),
            false => Wanted::by_name(config),
        };
        let mut found = Difference::default();
        let restart = |kind: Kind, address: SocketAddr, why: &str| {
            format!("listen.{} ({address}: {why})", kind.name())
        };
        for entry in self.entries.iter().filter(|entry| entry.inherited) {
            let (kind, address) = (entry.kind(), entry.address);
            let same = wanted
                .iter()
                .position(|it| it.address() == address && it.kind() == kind);
            let is_as_started = match same.map(|at| wanted.remove(at)) {
                Some(now) => now.service(address) == entry.service,
                None => entry.wanted.is_none(),
            };
            if !is_as_started {
                let why = "a socket of the service manager";
                found.needs_restart.push(restart(kind, address, why));
            }
        }
        let beside: Vec<Wanted> = wanted
            .iter()
            .filter_map(|it| it.discovery_beside(config))
            .collect();
        for (place, entry) in self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.inherited)
        {
            let same = wanted
                .iter()
                .position(|it| entry.wanted.as_ref() == Some(it));
            match same {
                Some(at) => drop(wanted.remove(at)),
                // Where nobody has asked for one, there may be one.
                None if beside.iter().any(|it| entry.wanted.as_ref() == Some(it)) => {}
                None => found.going.push(place),
            }
        }
        found.coming = wanted;
        // The socket of an address that stays cannot be had a second time.
        let Difference {
            coming,
            going,
            needs_restart,
        } = &mut found;
        coming.retain(|it| {
            let Some(at) = going
                .iter()
                .position(|place| self.entries[*place].address == it.address())
            else {
                return true;
            };
            let entry = &self.entries[going.remove(at)];
            let why = "other options for an address that stays";
            needs_restart.push(restart(entry.kind(), entry.address, why));
            false
        });
        found
    }

    /// The steps of a difference.
    pub(super) fn steps(&self, difference: &Difference) -> Vec<ListenerStep> {
        let coming = difference.coming.iter().map(|wanted| ListenerStep {
            action: Action::Add,
            service: wanted.kind().name().to_owned(),
            address: wanted.address().to_string(),
        });
        let going = difference.going.iter();
        coming
            .chain(going.map(|place| self.entries[*place].step()))
            .collect()
    }

    /// The addresses under a difference. Ports of those that come may be 0 still.
    pub(super) fn addresses(&self, difference: &Difference) -> Addresses {
        let stays = |place: &usize| !difference.going.contains(place);
        let staying = (0..self.entries.len()).filter(stays);
        let staying = staying.map(|place| {
            let entry = &self.entries[place];
            (entry.address, entry.service.clone())
        });
        let coming = difference.coming.iter();
        let coming = coming.map(|it| (it.address(), it.service(it.address())));
        let mut addresses = Addresses::default();
        for (address, service) in staying.chain(coming) {
            match service {
                Service::Iscsi { tag, .. } => addresses.iscsi.push((address, tag)),
                Service::Nvme { discovery_only, .. } if discovery_only => {
                    addresses.nvme_discovery.push(address);
                }
                Service::Nvme { .. } => addresses.nvme.push(address),
            }
        }
        addresses
    }

    /// Portal groups that have a listener, and have none any more under a difference.
    pub(super) fn groups_lost(&self, difference: &Difference) -> Vec<u16> {
        let left = self.addresses(difference).iscsi;
        let going = difference
            .going
            .iter()
            .map(|place| &self.entries[*place].service);
        let mut lost: Vec<u16> = going
            .filter_map(|service| match service {
                Service::Iscsi { tag, .. } => Some(*tag),
                Service::Nvme { .. } => None,
            })
            .filter(|tag| !left.iter().any(|(_, other)| other == tag))
            .collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Arguments;

    fn config(iscsi: &[&str], nvme: &[&str]) -> Config {
        let arguments = Arguments {
            iscsi: iscsi.iter().map(|it| it.parse().unwrap()).collect(),
            nvme: nvme.iter().map(|it| it.parse().unwrap()).collect(),
            volumes: vec!["a,backend=mem,size=1M".parse().unwrap()],
            ..Arguments::default()
        };
        Config::assemble(None, arguments).unwrap()
    }

    /// Listens as configured, without a socket; the first by one of the service manager.
    fn serving(config: &Config, inherited: usize) -> Listening {
        let all = Wanted::by_name(config).into_iter().enumerate();
        let entries = all.map(|(place, wanted)| Entry {
            id: ListenerId(place),
            address: wanted.address(),
            service: wanted.service(wanted.address()),
            wanted: Some(wanted),
            inherited: place < inherited,
        });
        Listening {
            entries: entries.collect(),
            is_served: true,
        }
    }

    fn shown(listening: &Listening, config: &Config) -> Vec<String> {
        let difference = listening.difference(config);
        let steps = listening.steps(&difference);
        let steps = steps.iter().map(ToString::to_string);
        steps.chain(difference.needs_restart).collect()
    }

    #[test]
    fn listeners_are_told_apart_by_address_and_those_that_stay_are_left_alone() {
        let before = config(&["127.0.0.1:3260", "127.0.0.1:3261"], &["127.0.0.1:4421"]);
        let listening = serving(&before, 0);
        assert!(shown(&listening, &before).is_empty());
        let after = config(
            &["127.0.0.1:3261", "127.0.0.2:3260"],
            &["127.0.0.1:4421", "127.0.0.1:4422"],
        );
        assert_eq!(
            shown(&listening, &after),
            [
                "add listener 127.0.0.2:3260 (iscsi)",
                "add listener 127.0.0.1:4422 (nvme)",
                "remove listener 127.0.0.1:3260 (iscsi)",
            ]
        );
    }

    #[test]
    fn other_options_and_sockets_of_the_service_manager_need_a_restart_and_are_named() {
        let before = config(&["127.0.0.1:3260", "127.0.0.1:3261"], &[]);
        let listening = serving(&before, 1);
        let after = config(&["127.0.0.1:3261,tag=2"], &["127.0.0.1:4421"]);
        assert_eq!(
            shown(&listening, &after),
            [
                "add listener 127.0.0.1:4421 (nvme)",
                "listen.iscsi (127.0.0.1:3260: a socket of the service manager)",
                "listen.iscsi (127.0.0.1:3261: other options for an address that stays)",
            ]
        );
        // The default is not listened on beside the sockets that were passed.
        assert!(
            !shown(&listening, &config(&[], &[]))
                .iter()
                .any(|it| it.contains("add"))
        );
    }

    #[test]
    fn a_portal_group_is_lost_with_its_last_listener() {
        let before = config(
            &[
                "127.0.0.1:1,tag=1",
                "127.0.0.1:2,tag=1",
                "127.0.0.1:3,tag=2",
            ],
            &[],
        );
        let listening = serving(&before, 0);
        let lost = |iscsi: &[&str]| {
            let difference = listening.difference(&config(iscsi, &[]));
            listening.groups_lost(&difference)
        };
        assert!(lost(&["127.0.0.1:1,tag=1", "127.0.0.1:3,tag=2"]).is_empty());
        assert_eq!(lost(&["127.0.0.1:1,tag=1"]), [2]);
    }
}
