//! The identity of the initiator: InitiatorName, and the ISIDs of its sessions.
//!
//! Targets keep access lists and reservations by these, so the name stays the same from run to run. ISIDs
//! are of the random kind (RFC 7143 §11.12.5):
//!
//! ```text
//!  byte 0    1    2    3    4    5
//!      |0x80| random       | qualifier, counted by queue and portal |
//! ```

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::Isid;

use crate::options::Options;

/// What names of initiators that were not given one begin with.
const NAME_PREFIX: &str = "iqn.2026-11.local.longshore:";

/// Longest part of a host's name that goes into an initiator's.
const HOST_LENGTH_MAX: usize = 64;

/// Type "random", in the two upper bits.
const RANDOM: u8 = 0x80;

/// The initiator's name: that of the options, or one made of the machine's name.
#[must_use]
pub fn initiator_name(options: &Options) -> IscsiName {
    if let Some(name) = &options.initiator_name {
        return name.clone();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name_of_host(&host)
}

fn name_of_host(host: &str) -> IscsiName {
    let host: String = host
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-' || *c == '.')
        .take(HOST_LENGTH_MAX)
        .collect();
    let host = if host.is_empty() { "client" } else { &host };
    IscsiName::parse(&format!("{NAME_PREFIX}{host}")).expect("letters, digits, - and . make a name")
}

/// An ISID that no other session of anybody has, but by an accident of odds one in 2^40.
///
/// # Panics
/// When the kernel gives no random bytes.
#[must_use]
pub fn fresh_isid() -> Isid {
    let mut bytes = [0; 6];
    random(&mut bytes);
    bytes[0] = RANDOM;
    Isid(bytes)
}

/// The ISID of the session that comes `steps` after the first.
pub(super) fn later_isid(Isid(first): Isid, steps: usize) -> Isid {
    let mut bytes = first;
    let steps = u16::try_from(steps).unwrap_or(u16::MAX);
    let qualifier = u16::from_be_bytes([first[4], first[5]]).wrapping_add(steps);
    bytes[4..].copy_from_slice(&qualifier.to_be_bytes());
    Isid(bytes)
}

/// Fills with unpredictable bytes.
pub(super) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_machine_is_called_its_initiator_has_a_name() {
        for (host, name) in [
            ("box\n", "iqn.2026-11.local.longshore:box"),
            ("Büro_1.example", "iqn.2026-11.local.longshore:bro1.example"),
            ("", "iqn.2026-11.local.longshore:client"),
            ("(none)", "iqn.2026-11.local.longshore:none"),
        ] {
            assert_eq!(name_of_host(host).as_str(), name);
        }
        let long = name_of_host(&"x".repeat(300));
        assert!(long.as_str().len() < 100);
    }

    #[test]
    fn queues_of_all_portals_have_isids_of_their_own() {
        let first = Isid([RANDOM, 1, 2, 3, 0xff, 0xfe]);
        let later: Vec<Isid> = (0..4).map(|n| later_isid(first, n)).collect();
        assert_eq!(later[0], first);
        assert_eq!(later[2], Isid([RANDOM, 1, 2, 3, 0, 0]));
        assert_eq!(later[3], Isid([RANDOM, 1, 2, 3, 0, 1]));
        assert_ne!(fresh_isid(), fresh_isid());
        assert_eq!(fresh_isid().0[0], RANDOM);
    }
}
