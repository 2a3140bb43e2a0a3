//! The keys of hosts, as the subsystems have them now.

use std::sync::Arc;

use longshore_nvme::controller::Subsystems;
use longshore_nvme::psk::PskHash;
use longshore_tls::{Psk, PskStore, Suite};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct HostKeys(pub(super) Arc<Subsystems>);

impl PskStore for HostKeys {
    fn find(&self, identity: &[u8]) -> Option<Psk> {
        let found = self.0.tls_psk(identity)?;
        let suite = match found.identity.hash {
            PskHash::Sha256 => Suite::Aes128GcmSha256,
            PskHash::Sha384 => Suite::Aes256GcmSha384,
        };
        Psk::new(identity, suite, found.key()).ok()
    }
}
