//! The reservation of a logical unit: PERSISTENT RESERVE IN (SPC-4 §6.16).
//!
//! READ FULL STATUS names the registrants; targets without it give their keys only (READ KEYS and READ
//! RESERVATION).

use super::cdb::Cdb;
use super::identify::Asking;
use super::pages::Page;
use crate::error::Error;
use crate::info::{Registration, ReservationReport};

/// Service actions of PERSISTENT RESERVE IN.
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const READ_FULL_STATUS: u8 = 3;

/// Bytes of an answer that are asked for.
const LENGTH: u16 = 16 << 10;
/// Registrants that are listed.
const REGISTRANTS_MAX: usize = 1024;

/// Asks; `None` when the target has no persistent reservations.
pub(super) fn report(asking: &mut Asking<'_>) -> Result<Option<ReservationReport>, Error> {
    let mut ask = |action| asking.ask(Cdb::persistent_reserve_in(action, LENGTH), LENGTH.into());
    let Some(reservation) = ask(READ_RESERVATION)? else {
        return Ok(None);
    };
    let held = Held::parse(&reservation);
    let registrations = match ask(READ_FULL_STATUS)? {
        Some(status) => parse_full_status(&status),
        None => parse_keys(&ask(READ_KEYS)?.unwrap_or_default(), held),
    };
    let holder = registrations.iter().find(|registration| registration.holds);
    let holder = holder.map(|holder| match holder.registrant.as_str() {
        "" => format!("{:#018x}", holder.key),
        registrant => format!("{:#018x}, {registrant}", holder.key),
    });
    Ok(Some(ReservationReport {
        generation: Page(&reservation).u32(0),
        kind: held.map(|held| held.kind_name().to_owned()),
        holder: holder.filter(|_| held.is_some()),
        registrations,
    }))
}

/// A reservation that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    key: u64,
    kind: u8,
}

impl Held {
    fn parse(data: &[u8]) -> Option<Self> {
        let page = Page(data);
        (page.u32(4) >= 16).then(|| Self {
            key: page.u64(8),
            kind: page.u8(21) & 0xf,
        })
    }

    const fn kind_name(self) -> &'static str {
        match self.kind {
            1 => "Write Exclusive",
            3 => "Exclusive Access",
            5 => "Write Exclusive - Registrants Only",
            6 => "Exclusive Access - Registrants Only",
            7 => "Write Exclusive - All Registrants",
            8 => "Exclusive Access - All Registrants",
            _ => "of an unknown type",
        }
    }

    const fn is_held_by_all(self) -> bool {
        matches!(self.kind, 7 | 8)
    }
}

fn list(data: &[u8]) -> &[u8] {
    let length = usize::try_from(Page(data).u32(4)).unwrap_or(usize::MAX);
    Page(data).bytes(8, length)
}

fn parse_keys(data: &[u8], held: Option<Held>) -> Vec<Registration> {
    let (keys, _) = list(data).as_chunks::<8>();
    keys.iter()
        .take(REGISTRANTS_MAX)
        .map(|key| {
            let key = u64::from_be_bytes(*key);
            Registration {
                key,
                registrant: String::new(),
                holds: held.is_some_and(|held| held.is_held_by_all() || held.key == key),
            }
        })
        .collect()
}

/// Descriptors of 24 bytes and a TransportID each.
fn parse_full_status(data: &[u8]) -> Vec<Registration> {
    let mut registrations = Vec::new();
    let mut rest = list(data);
    while rest.len() >= 24 && registrations.len() < REGISTRANTS_MAX {
        let descriptor = Page(rest);
        let length = usize::try_from(descriptor.u32(20)).unwrap_or(usize::MAX);
        registrations.push(Registration {
            key: descriptor.u64(0),
            registrant: transport_id(descriptor.bytes(24, length)),
            holds: descriptor.bit(12, 0),
        });
        rest = rest[24..].get(length..).unwrap_or_default();
    }
    registrations
}

/// Who a TransportID names (SPC-4 §7.6.4): for iSCSI a name, and with format 01b `,i,0x` and the ISID.
fn transport_id(id: &[u8]) -> String {
    const ISCSI: u8 = 5;
    let page = Page(id);
    if page.u8(0) & 0xf == ISCSI {
        return page.text(4, page.u16(2).into());
    }
    let significant = id
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    id[..significant]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn registrants_are_named_and_the_holder_is_told_from_others() {
        let name = b"iqn.2001-04.com.example:a,i,0x800000000001\0\0";
        let mut data = vec![0, 0, 0, 9, 0, 0, 0, 0];
        for (key, holds) in [(5_u64, 0), (7, 1)] {
            data.extend(key.to_be_bytes());
            data.extend([0, 0, 0, 0, holds, 1, 0, 0, 0, 0, 0, 1]);
            data.extend(u32::try_from(4 + name.len()).unwrap().to_be_bytes());
            data.extend([0x45, 0]);
            data.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
            data.extend(name);
        }
        let length = u32::try_from(data.len() - 8).unwrap();
        data[4..8].copy_from_slice(&length.to_be_bytes());
        let registrations = parse_full_status(&data);
        assert_eq!(registrations.len(), 2);
        assert_eq!((registrations[1].key, registrations[1].holds), (7, true));
        assert!(!registrations[0].holds);
        assert_eq!(
            registrations[0].registrant,
            "iqn.2001-04.com.example:a,i,0x800000000001"
        );
    }

    #[test]
    fn keys_alone_tell_the_holder_by_its_key_or_that_all_hold() {
        let mut data = vec![0, 0, 0, 1, 0, 0, 0, 16];
        data.extend(5_u64.to_be_bytes());
        data.extend(7_u64.to_be_bytes());
        let holders = |kind| {
            let registrations = parse_keys(&data, Some(Held { key: 7, kind }));
            let holders = registrations.iter().filter(|it| it.holds);
            holders.map(|it| it.key).collect::<Vec<_>>()
        };
        assert_eq!(holders(1), [7]);
        assert_eq!(holders(7), [5, 7]);
        assert!(parse_keys(&data, None).iter().all(|it| !it.holds));
    }

    #[test]
    fn a_reservation_has_a_type_and_none_has_none() {
        let mut data = vec![0, 0, 0, 1, 0, 0, 0, 16];
        data.extend(7_u64.to_be_bytes());
        data.extend([0, 0, 0, 0, 0, 5, 0, 0]);
        let held = Held::parse(&data).unwrap();
        assert_eq!(held, Held { key: 7, kind: 5 });
        assert_eq!(held.kind_name(), "Write Exclusive - Registrants Only");
        assert_eq!(Held::parse(&data[..4]), None);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(data in prop::collection::vec(any::<u8>(), 0..200), short: bool) {
            let mut data = data;
            if let Some(length) = data.get_mut(4..7).filter(|_| short) {
                length.fill(0);
            }
            if let Some(length) = data.get_mut(28..31).filter(|_| short) {
                length.fill(0);
            }
            let registrations = parse_full_status(&data);
            prop_assert!(registrations.len() <= data.len() / 24 + 1);
            let _ = parse_keys(&data, Held::parse(&data));
        }
    }
}
