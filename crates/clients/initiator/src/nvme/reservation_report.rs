//! The Reservation Report (NVMe base 2.0 §7.5), in the extended data structure.
//!
//! ```text
//! 0 GEN (4)   4 RTYPE   5 REGCTL (2)   9 PTPLS   64 registrants:
//!   0 CNTLID (2)   2 RCSTS   8 RKEY (8)   16 HOSTID (16)   (64 each)
//! ```

use super::page::Page;

/// Bytes of the header, and of a registrant.
pub(super) const UNIT_BYTES: u32 = 64;

/// Most registrants that are read.
pub(super) const REGISTRANTS_MAX: u32 = 255;

/// Who is registered with a namespace, and what is reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// GEN: counts changes of registrations.
    pub(super) generation: u32,
    /// RTYPE: kind of reservation; 0 when there is none.
    pub(super) kind: u8,
    /// PTPLS: it outlasts a power loss.
    pub(super) persists: bool,
    /// The registrants, as far as the report has them.
    pub(super) registrants: Vec<Registrant>,
}

/// A host that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registrant {
    /// CNTLID; FFFFh where controllers are dynamic.
    pub(super) controller_id: u16,
    /// RCSTS: it holds the reservation.
    pub(super) is_holder: bool,
    /// RKEY: the key under which the host is registered.
    pub(super) key: u64,
    /// HOSTID: 16 bytes in the extended data structure.
    pub(super) host_id: [u8; 16],
}

impl Report {
    /// From the data structure.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let page = Page(bytes);
        let (units, _) = bytes.as_chunks::<{ UNIT_BYTES as usize }>();
        let registrants = units.iter().skip(1).take(usize::from(page.u16(5)));
        Self {
            generation: page.u32(0),
            kind: page.u8(4),
            persists: page.u8(9) & 1 != 0,
            registrants: registrants.map(Registrant::decode).collect(),
        }
    }

    /// The kind in the standard's words.
    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            0 => "none",
            1 => "Write Exclusive",
            2 => "Exclusive Access",
            3 => "Write Exclusive - Registrants Only",
            4 => "Exclusive Access - Registrants Only",
            5 => "Write Exclusive - All Registrants",
            6 => "Exclusive Access - All Registrants",
            _ => "unknown",
        }
    }
}

impl Registrant {
    fn decode(bytes: &[u8; UNIT_BYTES as usize]) -> Self {
        let page = Page(bytes);
        Self {
            controller_id: page.u16(0),
            is_holder: page.u8(2) & 1 != 0,
            key: page.u64(8),
            host_id: page.identifier(16).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holder_and_registrants_are_told_apart() {
        let mut bytes = vec![0; 64 * 3];
        bytes[0] = 9;
        bytes[4] = 3;
        bytes[5] = 2;
        bytes[9] = 1;
        bytes[64..66].copy_from_slice(&[0xff, 0xff]);
        bytes[66] = 1;
        bytes[72] = 0x11;
        bytes[80..96].fill(0xaa);
        bytes[128 + 8] = 0x22;
        let report = Report::decode(&bytes);
        assert_eq!((report.generation, report.persists), (9, true));
        assert_eq!(report.kind_name(), "Write Exclusive - Registrants Only");
        let [first, second] = report.registrants[..] else {
            panic!("two registrants")
        };
        assert!(first.is_holder && !second.is_holder);
        assert_eq!((first.key, second.key), (0x11, 0x22));
        assert_eq!((first.controller_id, first.host_id), (0xffff, [0xaa; 16]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_report_makes_a_host_panic(bytes in prop::collection::vec(any::<u8>(), 0..=1024)) {
            let _ = Report::decode(&bytes).kind_name();
        }
    }
}
