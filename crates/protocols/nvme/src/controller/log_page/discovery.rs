//! Discovery log page (NVMe base 2.0 §5.16.1.23): 1024 bytes of header, then an entry for each way to a
//! subsystem.
//!
//! ```text
//! 0 GENCTR (8)   8 NUMREC (8)   16 RECFMT (2)   1024 entries
//! ```

use crate::controller::Environment;
use crate::controller::discovery::{DiscoveryEntry, SubsystemType};
use crate::controller::secure::TlsUse;
use crate::controller::state::Controller;
use crate::nqn::Nqn;

impl Controller {
    pub(super) fn discovery_log(&self, environment: &dyn Environment) -> Vec<u8> {
        const HEADER_BYTES: usize = 1024;
        let host = self.host_nqn();
        // Before the entries, so that a change in between shows.
        let generation = environment.discovery_generation();
        let mut entries = environment.discovery_entries(host);
        entries.retain(|entry| {
            entry.kind != SubsystemType::Nvm || self.subsystem.shows(&entry.subsystem, host)
        });
        let count = u64::try_from(entries.len()).expect("no more than memory");
        let mut page = Vec::with_capacity(HEADER_BYTES + entries.len() * DiscoveryEntry::LENGTH);
        page.extend_from_slice(&generation.to_le_bytes());
        page.extend_from_slice(&count.to_le_bytes());
        page.resize(HEADER_BYTES, 0);
        for mut entry in entries {
            entry.tls = self.tls_use(&entry, host);
            page.extend_from_slice(&entry.encode(self.subsystem.limits.queue_entries_max));
        }
        page
    }

    /// What a port with TLS means for this host at a subsystem.
    fn tls_use(&self, entry: &DiscoveryEntry, host: &Nqn) -> TlsUse {
        let here = self.subsystem.other(&entry.subsystem);
        let here = here.map_or(TlsUse::None, |subsystem| subsystem.tls_use(host));
        match entry.tls {
            TlsUse::None => TlsUse::None,
            TlsUse::Permitted => here,
            TlsUse::Required => TlsUse::Required,
        }
    }
}
