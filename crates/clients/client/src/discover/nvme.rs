//! Subsystems that NVMe/TCP discovery controllers tell of, and their namespaces.

use std::time::Duration;

use longshore_initiator::error::Error;
use longshore_initiator::info::Protocol;
use longshore_initiator::nvme::{Admin, DiscoveryEntry, EntryKind};
use longshore_initiator::options::Options;
use longshore_initiator::url::{DigestWishes, HostPort, NvmeUrl, Url};
use longshore_nvme::command::NamespaceId;
use longshore_nvme::nqn::Nqn;

use super::found::{FoundTarget, FoundVolume, Portal, VOLUMES_MAX, reachable};

/// A subsystem that was told of.
pub(super) struct Lead {
    name: String,
    portals: Vec<Portal>,
    /// Of these the ones that we can reach.
    addresses: Vec<HostPort>,
    nqn: Option<Nqn>,
}

/// Asks a portal for its subsystems.
pub(super) fn ask(portal: &HostPort, options: &Options) -> Result<Vec<Lead>, Error> {
    let entries = longshore_initiator::nvme::discover(portal, options)?;
    let mut leads: Vec<Lead> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Nvm) {
        let lead = Lead::new(entry, portal, options.nvme.tls.is_some());
        match leads.iter_mut().find(|known| known.is_same(&lead)) {
            Some(known) => known.add(lead),
            None => leads.push(lead),
        }
    }
    Ok(leads)
}

impl Lead {
    fn new(entry: &DiscoveryEntry, asked: &HostPort, has_tls_key: bool) -> Self {
        let address = entry
            .portal()
            .map(|portal| reachable(&portal.into(), asked));
        let text = match &address {
            Some(address) => address.to_string(),
            None => format!("{}:{}", entry.address, entry.service),
        };
        let usable = has_tls_key || !entry.requires_secure_channel;
        Self {
            name: entry.subsystem.clone(),
            portals: vec![Portal {
                address: text,
                transport: entry.transport.clone(),
                portal_group_tag: None,
            }],
            addresses: address.into_iter().filter(|_| usable).collect(),
            nqn: entry.nqn(),
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// More portals of the same subsystem.
    pub(super) fn add(&mut self, other: Self) {
        for portal in other.portals {
            if !self.portals.contains(&portal) {
                self.portals.push(portal);
            }
        }
        for address in other.addresses {
            if !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
    }

    /// The subsystem, without its volumes.
    pub(super) fn found(&self) -> FoundTarget {
        FoundTarget {
            protocol: Protocol::NvmeTcp,
            name: self.name.clone(),
            portals: self.portals.clone(),
            volumes: Vec::new(),
            problem: None,
        }
    }

    /// Connects and asks for the namespaces.
    pub(super) fn visit(&self, options: &Options) -> FoundTarget {
        let mut found = self.found();
        let Some(nqn) = &self.nqn else {
            found.problem = Some("its name is not an NQN".to_owned());
            return found;
        };
        found.problem = self.addresses.is_empty().then(|| {
            "not reachable here: it is not on TCP, or requires TLS; give its key with --tls-key-file".to_owned()
        });
        for address in &self.addresses {
            match namespaces(address, nqn, options) {
                Ok(volumes) => {
                    found.volumes = volumes;
                    found.problem = None;
                    return found;
                }
                Err(error) => _ = found.problem.get_or_insert_with(|| error.to_string()),
            }
        }
        found
    }
}

fn namespaces(address: &HostPort, nqn: &Nqn, options: &Options) -> Result<Vec<FoundVolume>, Error> {
    // Nothing here takes so long that the controller has to be kept alive.
    let mut admin = Admin::connect(address, nqn, Duration::ZERO, options)?;
    let product = admin.identify_controller()?.model;
    let mut volumes = Vec::new();
    for id in admin.active_namespaces()?.into_iter().take(VOLUMES_MAX) {
        let NamespaceId(namespace) = id;
        let url = Url::NvmeTcp(NvmeUrl {
            portals: vec![address.clone()],
            subsystem: nqn.clone(),
            namespace,
            digests: DigestWishes::default(),
        });
        let answer = admin.identify_namespace(id);
        // A controller that has stopped answering is not asked a thousand times more.
        let is_over = matches!(&answer, Err(error) if !matches!(error, Error::Command { .. }));
        let (capacity, problem) = match answer {
            Ok(identity) => (
                identity
                    .block_size()
                    .map(|block_size| (identity.block_count, block_size)),
                (identity.metadata_bytes != 0).then(|| {
                    format!(
                        "has {} bytes of metadata in each block",
                        identity.metadata_bytes
                    )
                }),
            ),
            Err(error) => (None, Some(error.to_string())),
        };
        volumes.push(FoundVolume {
            number: u64::from(namespace),
            size_bytes: capacity.map(|(blocks, size)| blocks.saturating_mul(u64::from(size))),
            block_size: capacity.map(|(_, size)| size),
            product: product.clone(),
            url: Some(url.to_string()),
            problem,
        });
        if is_over {
            break;
        }
    }
    admin.shut_down();
    Ok(volumes)
}
