//! Log pages that go with asynchronous events: changed namespaces and asymmetric access (NVMe base
//! 2.0 §5.16.1.5, §5.16.1.13).

use std::sync::Arc;

use crate::command::NamespaceId;
use crate::controller::namespace::ANA_GROUP;
use crate::controller::state::{Controller, State};

impl State {
    /// Changed Namespace List: up to 1024 identifiers; if there are more, FFFFFFFFh alone.
    pub(super) fn changed_namespaces_log(&self) -> Vec<u8> {
        const ENTRIES: usize = 1024;
        let changed = &self.changed_namespaces;
        let mut page: Vec<u8> = if changed.len() > ENTRIES {
            NamespaceId::BROADCAST.0.to_le_bytes().to_vec()
        } else {
            changed.iter().flat_map(|id| id.0.to_le_bytes()).collect()
        };
        page.resize(ENTRIES * 4, 0);
        page
    }
}

impl Controller {
    /// Asymmetric Namespace Access: one group, optimized. Nothing has ever changed, so both change
    /// counts are 0.
    ///
    /// ```text
    /// 0 change count   8 groups   16 group: 0 id   4 NSIDs   8 change count   16 state   32 NSID …
    /// ```
    pub(super) fn asymmetric_access_log(&self, specific: u8) -> Vec<u8> {
        const GROUPS_ONLY: u8 = 1;
        const OPTIMIZED: u8 = 1;
        let namespaces = match specific & GROUPS_ONLY {
            0 => self.namespaces(),
            _ => Arc::default(),
        };
        let count = u32::try_from(namespaces.len()).expect("identifiers are 32 bits");
        let mut page = vec![0; 48];
        page[8..10].copy_from_slice(&1u16.to_le_bytes());
        page[16..20].copy_from_slice(&ANA_GROUP.to_le_bytes());
        page[20..24].copy_from_slice(&count.to_le_bytes());
        page[32] = OPTIMIZED;
        page.extend(namespaces.iter().flat_map(|ns| ns.id.0.to_le_bytes()));
        page
    }
}
