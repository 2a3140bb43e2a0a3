//! The keys that hosts offer, of all subsystems.

use std::sync::Arc;

use super::subsystem::Subsystem;
use super::subsystems::Subsystems;
use crate::psk::{Identity, Origin, TlsPsk};

impl Subsystems {
    /// The key that a host offers, which nobody has proved to know yet. Hosts of discovery use a key of any subsystem.
    #[must_use]
    pub fn tls_psk(&self, identity: &[u8]) -> Option<TlsPsk> {
        let offered = Identity::parse(identity).ok()?;
        if offered.origin == Origin::Generated {
            let member = self.find(&offered.subsystem)?;
            let now = member.subsystem.access().credentials(&offered.host)?;
            return member.subsystem.generated.find(&offered, &now);
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
