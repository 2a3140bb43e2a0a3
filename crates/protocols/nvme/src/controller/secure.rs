//! Secure channels: with which keys hosts open TLS, and whether they have to.

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
    pub(super) fn find(&self, offered: &Identity) -> Option<TlsPsk> {
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
