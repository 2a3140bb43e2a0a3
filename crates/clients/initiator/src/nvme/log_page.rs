//! Log pages (NVMe base 2.0 §5.16.1) that a host acts on or shows. What they say is not trusted: counts are
//! held against the bytes that are there.

use super::page::Page;
use crate::info::AccessState;

/// Log page identifiers (LID).
pub(super) mod lid {
    /// SMART / Health Information.
    pub(in super::super) const HEALTH: u8 = 0x02;
    pub(in super::super) const CHANGED_NAMESPACES: u8 = 0x04;
    pub(in super::super) const ANA: u8 = 0x0c;
    pub(in super::super) const DISCOVERY: u8 = 0x70;
}

/// Bytes of the SMART / Health Information log page, and of the first page of others.
pub(super) const HEALTH_BYTES: u32 = 512;

/// Bytes of the Changed Namespace List.
pub(super) const CHANGED_NAMESPACES_BYTES: u32 = 4096;

/// The Asymmetric Namespace Access State with this code, if there is such a state.
const fn access_state(code: u8) -> Option<AccessState> {
    match code & 15 {
        0x1 => Some(AccessState::Optimized),
        0x2 => Some(AccessState::NonOptimized),
        0x3 => Some(AccessState::Inaccessible),
        0x4 => Some(AccessState::PersistentLoss),
        0xf => Some(AccessState::Change),
        _ => None,
    }
}

/// Bytes of the header of the ANA log page.
pub(super) const ANA_HEADER_BYTES: u32 = 16;
/// Bytes of the descriptor of a group without its namespaces.
pub(super) const ANA_GROUP_BYTES: u32 = 32;
/// LSP of the ANA log page: Return Groups Only, without lists of namespaces.
pub(super) const ANA_GROUPS_ONLY: u8 = 1;

/// Most groups whose states are read.
const ANA_GROUPS_MAX: u32 = 1024;

/// Bytes of the log page when it has `groups` groups and no lists of namespaces, as far as a transfer of `most` bytes
/// goes.
pub(super) fn ana_log_bytes(groups: u32, most: u32) -> u32 {
    let all = ANA_HEADER_BYTES + groups.clamp(1, ANA_GROUPS_MAX) * ANA_GROUP_BYTES;
    all.min(most & !3)
}

/// The state of a group in the ANA log page, if it is listed.
///
/// ```text
/// header: 0 CHGCNT (8)   8 groups (2)
/// group:  0 ANAGRPID (4)   4 namespaces (4)   8 CHGCNT (8)   16 state (4 bits)   32 NSIDs
/// ```
#[must_use]
pub fn ana_state(bytes: &[u8], group: u32) -> Option<AccessState> {
    let page = Page(bytes);
    let mut at = ANA_HEADER_BYTES as usize;
    for _ in 0..page.u16(8) {
        let entry = bytes.get(at..at.checked_add(ANA_GROUP_BYTES as usize)?)?;
        let entry = Page(entry);
        if entry.u32(0) == group {
            return access_state(entry.u8(16));
        }
        let namespaces = usize::try_from(entry.u32(4)).ok()?.checked_mul(4)?;
        at = at
            .checked_add(ANA_GROUP_BYTES as usize)?
            .checked_add(namespaces)?;
    }
    None
}

/// Of the SMART / Health Information log page, what matters of a volume over a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Critical Warning: bit 0 spare is low, 1 temperature, 2 reliability, 3 media read-only, 4 backup failed.
    pub critical_warning: u8,
    /// Available Spare in percent, 0 to 100.
    pub available_spare_percent: u8,
    /// Percentage Used; may pass 100.
    pub used_percent: u8,
    /// Media and Data Integrity Errors.
    pub media_errors: u128,
}

impl Health {
    /// From the log page.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let page = Page(bytes);
        Self {
            critical_warning: page.u8(0),
            available_spare_percent: page.u8(3),
            used_percent: page.u8(5),
            media_errors: page.u128(160),
        }
    }
}

/// What an asynchronous event tells: dword 0 of the completion of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AsyncEvent {
    pub(super) kind: AsyncEventKind,
    /// The log page that tells more, and that has to be read before another event of the kind comes.
    pub(super) log_page: u8,
}

/// Kinds of asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncEventKind {
    /// Notice: Namespace Attribute Changed.
    Namespaces,
    /// Notice: Asymmetric Namespace Access Change.
    Ana,
    /// Notice: Discovery Log Page Change.
    Discovery,
    Other,
}

impl AsyncEvent {
    /// Decodes dword 0 of the completion of the request.
    pub(super) fn decode(result: u64) -> Self {
        let [first, information, log_page, ..] = result.to_le_bytes();
        const NOTICE: u8 = 2;
        let kind = match (first & 7, information) {
            (NOTICE, 0x00) => AsyncEventKind::Namespaces,
            (NOTICE, 0x03) => AsyncEventKind::Ana,
            (NOTICE, 0xf0) => AsyncEventKind::Discovery,
            _ => AsyncEventKind::Other,
        };
        Self { kind, log_page }
    }
}

/// Bits of OAES and of the Asynchronous Event Configuration feature.
pub(super) mod notices {
    pub(in super::super) const NAMESPACES: u32 = 1 << 8;
    /// Asymmetric Namespace Access Change Notices.
    pub(in super::super) const ANA: u32 = 1 << 11;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(id: u32, state: u8, namespaces: &[u32]) -> Vec<u8> {
        let mut entry = vec![0; 32];
        entry[..4].copy_from_slice(&id.to_le_bytes());
        let count = u32::try_from(namespaces.len()).unwrap();
        entry[4..8].copy_from_slice(&count.to_le_bytes());
        entry[16] = state;
        entry.extend(namespaces.iter().flat_map(|id| id.to_le_bytes()));
        entry
    }

    fn ana_log(groups: &[Vec<u8>]) -> Vec<u8> {
        let mut log = vec![0; 16];
        log[8] = u8::try_from(groups.len()).unwrap();
        log.extend(groups.concat());
        log
    }

    #[test]
    fn the_state_of_a_group_is_found_behind_others_with_namespaces() {
        let log = ana_log(&[
            group(1, 3, &[1, 2, 3]),
            group(7, 1, &[]),
            group(9, 15, &[4]),
        ]);
        assert_eq!(ana_state(&log, 1), Some(AccessState::Inaccessible));
        assert_eq!(ana_state(&log, 7), Some(AccessState::Optimized));
        assert_eq!(ana_state(&log, 9), Some(AccessState::Change));
        assert_eq!(ana_state(&log, 2), None);
    }

    #[test]
    fn counts_that_lie_end_the_search() {
        let mut log = ana_log(&[group(1, 3, &[]), group(7, 1, &[])]);
        log[16 + 4..16 + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(ana_state(&log, 7), None);
        assert_eq!(ana_log_bytes(u32::MAX, 1 << 20), 16 + 1024 * 32);
        assert_eq!(ana_log_bytes(u32::MAX, 8192), 8192);
        assert_eq!(ana_log_bytes(0, 8192), 48);
    }

    #[test]
    fn events_say_what_to_read() {
        let event = AsyncEvent::decode(0x0004_0002);
        assert_eq!(event.kind, AsyncEventKind::Namespaces);
        assert_eq!(event.log_page, 4);
        assert_eq!(AsyncEvent::decode(0x000c_0302).kind, AsyncEventKind::Ana);
        assert_eq!(
            AsyncEvent::decode(0x0070_f002).kind,
            AsyncEventKind::Discovery
        );
        assert_eq!(AsyncEvent::decode(0x0002_0001).kind, AsyncEventKind::Other);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_log_page_makes_a_host_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..=2048),
            group: u32,
            result: u64,
        ) {
            let _ = ana_state(&bytes, group);
            let _ = Health::decode(&bytes);
            let _ = AsyncEvent::decode(result);
        }
    }
}
