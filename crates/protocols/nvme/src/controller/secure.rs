//! Secure channels: which hosts open TLS with which keys, and what a connection over TLS has proved.

use std::sync::Arc;

use super::subsystem::Subsystem;
use super::subsystems::Subsystems;
use crate::nqn::Nqn;
use crate::psk::{ConfiguredKey, Derivation, Identity, Origin, TlsPsk, Version};

/// Keys with which the hosts of a rule open TLS.
#[derive(Clone, Debug)]
pub struct TlsKeys {
    /// Several while they are being replaced. Version 0 of identities does not tell them apart: the first counts.
    pub keys: Vec<ConfiguredKey>,
    /// How keys are derived where the identity does not tell: in version 0, and of keys without a hash.
    pub derivation: Derivation,
    /// Whether these hosts are refused without TLS.
    pub required: bool,
}

impl TlsKeys {
    /// The key that goes with an identity.
    fn find(&self, offered: &Identity) -> Option<TlsPsk> {
        let second = match self.derivation {
            Derivation::Standard => Derivation::Compat,
            Derivation::Compat => Derivation::Standard,
        };
        let derivations = match offered.version {
            Version::V0 => &[self.derivation][..],
            Version::V1 => &[self.derivation, second],
        };
        let derive = |key: &ConfiguredKey, derivation| {
            let retained = key.retained(&offered.host, derivation);
            let psk = retained.tls_psk(
                &offered.host,
                &offered.subsystem,
                offered.version,
                Origin::Configured,
            );
            psk.ok().filter(|psk| psk.identity == *offered)
        };
        derivations
            .iter()
            .find_map(|derivation| self.keys.iter().find_map(|key| derive(key, *derivation)))
    }
}

/// Whether a subsystem is reached over TLS at a port (TREQ, TSAS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsUse {
    #[default]
    None,
    Permitted,
    Required,
}

impl Subsystem {
    /// Whether a host reaches it over TLS.
    pub(super) fn tls_use(&self, host: &Nqn) -> TlsUse {
        match self.access().tls(host) {
            Some(tls) if tls.required => TlsUse::Required,
            Some(_) => TlsUse::Permitted,
            None => TlsUse::None,
        }
    }
}

impl Subsystems {
    /// The key that a host offers, which nobody has proved to know yet. Hosts of discovery use a key of any subsystem.
    #[must_use]
    pub fn tls_psk(&self, identity: &[u8]) -> Option<TlsPsk> {
        let offered = Identity::parse(identity).ok()?;
        if offered.origin != Origin::Configured {
            return None;
        }
        let find = |subsystem: &Subsystem| {
            let tls = subsystem.access().tls(&offered.host)?;
            tls.find(&offered)
        };
        let member = self.find(&offered.subsystem)?;
        if !member.subsystem.is_discovery {
            return find(&member.subsystem);
        }
        self.nvm_subsystems()
            .iter()
            .find_map(|subsystem| find(subsystem))
    }

    /// Whether any host may open TLS.
    #[must_use]
    pub fn has_tls_keys(&self) -> bool {
        self.nvm_subsystems()
            .iter()
            .any(|subsystem| subsystem.access().has_tls_keys())
    }

    fn nvm_subsystems(&self) -> Vec<Arc<Subsystem>> {
        let members = self.members();
        let all = members.values().map(|member| Arc::clone(&member.subsystem));
        all.collect()
    }
}
