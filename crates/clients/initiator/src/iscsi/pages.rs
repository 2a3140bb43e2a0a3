//! What a logical unit tells about itself: INQUIRY, vital product data, capacity, mode pages, supported
//! commands (SPC-4, SBC-3). Bytes from a peer, read without trust.
//!
//! A field beyond the end of a page reads as zero, which here means "not reported" almost everywhere;
//! where it does not, the reader looks at the length.

use crate::info::{AccessState, Identifier};

/// A page of bytes, big-endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a>(pub &'a [u8]);

impl<'a> Page<'a> {
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let field = self.0.get(at..).and_then(<[u8]>::first_chunk);
        field.copied().unwrap_or([0; N])
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        u8::from_be_bytes(self.array(at))
    }

    pub(super) fn bit(self, at: usize, bit: u8) -> bool {
        self.u8(at) >> bit & 1 != 0
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// At most `length` bytes from `at` on.
    pub(super) fn bytes(self, at: usize, length: usize) -> &'a [u8] {
        let rest = self.0.get(at..).unwrap_or_default();
        &rest[..rest.len().min(length)]
    }

    /// The body of a vital product data page, if this is page `code`.
    pub(super) fn vital_product_data(self, code: u8) -> Option<&'a [u8]> {
        let is_it = self.0.len() >= 4 && self.u8(1) == code;
        is_it.then(|| self.bytes(4, self.u16(2).into()))
    }

    /// Text without what would confuse a terminal, trimmed.
    pub(super) fn text(self, at: usize, length: usize) -> String {
        text(self.bytes(at, length))
    }
}

fn text(bytes: &[u8]) -> String {
    let printable = |byte: &u8| match byte {
        0x20..=0x7e => char::from(*byte),
        0 => ' ',
        _ => '?',
    };
    let text: String = bytes.iter().map(printable).collect();
    text.trim().to_owned()
}

/// Standard INQUIRY data (SPC-4 §6.6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inquiry {
    /// 0: there is a unit; others: there is none at this LUN.
    pub(super) peripheral_qualifier: u8,
    pub(super) device_type: u8,
    /// TPGS: the target has REPORT TARGET PORT GROUPS.
    pub(super) reports_port_groups: bool,
    pub(super) vendor: String,
    pub(super) product: String,
    pub(super) revision: String,
}

impl Inquiry {
    pub(super) fn parse(data: &[u8]) -> Self {
        let page = Page(data);
        Self {
            peripheral_qualifier: page.u8(0) >> 5,
            device_type: page.u8(0) & 0x1f,
            reports_port_groups: page.u8(5) & 0x30 != 0,
            vendor: page.text(8, 8),
            product: page.text(16, 16),
            revision: page.text(32, 4),
        }
    }

    /// Whether commands for disks can be sent: direct access, optical memory, simplified direct access, and
    /// what is managed in zones but written anywhere.
    pub(super) const fn is_disk(&self) -> bool {
        matches!(self.device_type, 0x00 | 0x07 | 0x0e)
    }
}

/// Designators of a logical unit (VPD page 83h, SPC-4 §7.8.6), and the port group of the port that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Designators {
    pub(super) identifiers: Vec<Identifier>,
    pub(super) port_group: Option<u16>,
}

/// Designators that are read.
const DESIGNATORS_MAX: usize = 32;

impl Designators {
    /// From the body of the page.
    pub(super) fn parse(mut body: &[u8]) -> Self {
        let mut all = Self::default();
        for _ in 0..DESIGNATORS_MAX {
            let Some((header, rest)) = body.split_first_chunk::<4>() else {
                break;
            };
            let [code_set, kind, _, length] = *header;
            let (designator, later) = rest.split_at(rest.len().min(length.into()));
            body = later;
            let (association, kind) = (kind >> 4 & 3, kind & 0xf);
            match (association, kind) {
                (0, _) => all
                    .identifiers
                    .extend(identifier(kind, code_set & 0xf, designator)),
                (1, 5) => all.port_group = Some(Page(designator).u16(2)),
                _ => {}
            }
        }
        all
    }
}

fn identifier(kind: u8, code_set: u8, designator: &[u8]) -> Option<Identifier> {
    let kind = match kind {
        1 => "t10",
        2 => "eui",
        3 => "naa",
        8 => "scsi-name",
        10 => "uuid",
        _ => return None,
    };
    let value = match code_set {
        // Binary; that of a UUID has two bytes in front.
        1 => {
            let bytes = match kind {
                "uuid" => designator.get(2..).unwrap_or_default(),
                _ => designator,
            };
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        _ => text(designator),
    };
    (!value.is_empty()).then(|| Identifier {
        kind: kind.to_owned(),
        value,
    })
}

/// Block limits (VPD page B0h, SBC-3 §6.5.3), zero where nothing is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockLimits {
    pub(super) max_compare_and_write: u8,
    pub(super) max_transfer: u32,
    pub(super) optimal_transfer: u32,
    pub(super) max_unmap: u32,
    pub(super) unmap_granularity: u32,
    pub(super) max_write_same: u64,
}

impl BlockLimits {
    /// From the page, header included. Pages of before SBC-3 end early.
    pub(super) fn parse(page: Page<'_>) -> Self {
        Self {
            max_compare_and_write: page.u8(5),
            max_transfer: page.u32(8),
            optimal_transfer: page.u32(12),
            max_unmap: page.u32(20),
            unmap_granularity: page.u32(28),
            max_write_same: page.u64(36),
        }
    }
}

/// Logical block provisioning (VPD page B2h, SBC-3 §6.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Provisioning {
    pub(super) unmap: bool,
    pub(super) write_same_unmap: bool,
    pub(super) unmapped_reads_zeros: bool,
}

impl Provisioning {
    pub(super) fn parse(page: Page<'_>) -> Self {
        Self {
            unmap: page.bit(5, 7),
            write_same_unmap: page.bit(5, 6),
            // LBPRZ: 001b, and in SBC-4 xx1b, are zeros.
            unmapped_reads_zeros: page.bit(5, 2),
        }
    }
}

/// READ CAPACITY (10) or (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) block_count: u64,
    pub(super) block_size: u32,
    /// Logical blocks of a physical one, as a power of two.
    pub(super) physical_exponent: u8,
    /// LBPME: blocks can be deallocated.
    pub(super) provisioned: bool,
    pub(super) unmapped_reads_zeros: bool,
}

impl Capacity {
    pub(super) fn parse_16(data: &[u8]) -> Option<Self> {
        let page = Page(data.get(..12).map(|_| data)?);
        Some(Self {
            block_count: page.u64(0).checked_add(1)?,
            block_size: page.u32(8),
            physical_exponent: page.u8(13) & 0xf,
            provisioned: page.bit(14, 7),
            unmapped_reads_zeros: page.bit(14, 6),
        })
    }

    pub(super) fn parse_10(data: &[u8]) -> Option<Self> {
        let page = Page(data.get(..8).map(|_| data)?);
        Some(Self {
            block_count: u64::from(page.u32(0)) + 1,
            block_size: page.u32(4),
            physical_exponent: 0,
            provisioned: false,
            unmapped_reads_zeros: false,
        })
    }
}

/// The caching page, and the header of mode parameters (SPC-4 §7.5.5, SBC-3 §6.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) write_protected: bool,
    pub(super) fua: bool,
    /// `None`: there is no caching page.
    pub(super) write_cache: Option<bool>,
}

impl Mode {
    /// From the answer to MODE SENSE (6).
    pub(super) fn parse_6(data: &[u8]) -> Self {
        let header = Page(data);
        let page = Page(header.bytes(4 + usize::from(header.u8(3)), 255));
        let is_caching = page.u8(0) & 0x7f == CACHING_PAGE && page.0.len() > 2;
        Self {
            write_protected: header.bit(2, 7),
            fua: header.bit(2, 4),
            write_cache: is_caching.then(|| page.bit(2, 2)),
        }
    }
}

/// PAGE CODE of the caching page.
pub(super) const CACHING_PAGE: u8 = 0x08;

/// LUNs of REPORT LUNS, as the eight bytes of each.
pub(super) fn luns(data: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    const LUNS_MAX: usize = 16_384;
    let length = usize::try_from(Page(data).u32(0)).unwrap_or(usize::MAX);
    let entries = Page(data).bytes(8, length.min(8 * LUNS_MAX));
    entries.as_chunks::<8>().0.iter().copied()
}

/// One command of REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandSupport<'a> {
    pub(super) is_supported: bool,
    /// CDB USAGE DATA: a bit for each bit of the CDB that means something.
    usage: &'a [u8],
}

impl<'a> CommandSupport<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let page = Page(data);
        let is_supported = match page.u8(1) & 7 {
            1 => false,
            3 | 5 => true,
            // Nothing is known of it, at present.
            _ => return None,
        };
        Some(Self {
            is_supported,
            usage: page.bytes(4, page.u16(2).into()),
        })
    }

    /// Whether a bit of the CDB means something.
    pub(super) fn uses(&self, at: usize, bit: u8) -> bool {
        self.is_supported && Page(self.usage).bit(at, bit)
    }
}

/// The access state of a port group in the answer to REPORT TARGET PORT GROUPS (SPC-4 §6.37).
pub(super) fn access_state(data: &[u8], port_group: u16) -> Option<AccessState> {
    const GROUPS_MAX: usize = 256;
    let length = usize::try_from(Page(data).u32(0)).unwrap_or(usize::MAX);
    let mut groups = Page(data).bytes(4, length);
    for _ in 0..GROUPS_MAX {
        let group = Page(groups);
        if groups.len() < 8 {
            return None;
        }
        if group.u16(2) == port_group {
            return Some(match group.u8(0) & 0xf {
                0x0 => AccessState::Optimized,
                0x1 => AccessState::NonOptimized,
                0xf => AccessState::Change,
                // Standby, unavailable, dependent on the LBA, offline.
                _ => AccessState::Inaccessible,
            });
        }
        let length = 8 + 4 * usize::from(group.u8(7));
        groups = groups.get(length..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn inquiry_data_names_a_disk() {
        let mut data = vec![0, 0, 6, 2, 31, 0x10, 0, 2];
        data.extend(b"LONGSHORVIRTUAL\x07DISK    0.1 ");
        let inquiry = Inquiry::parse(&data);
        assert!(inquiry.is_disk() && inquiry.reports_port_groups);
        assert_eq!(inquiry.vendor, "LONGSHOR");
        assert_eq!(inquiry.product, "VIRTUAL?DISK");
        assert_eq!(inquiry.revision, "0.1");
        assert_eq!(Inquiry::parse(&[0x7f]).peripheral_qualifier, 3);
        assert!(!Inquiry::parse(&[0x0c]).is_disk());
    }

    #[test]
    fn designators_of_the_unit_are_its_identifiers_and_those_of_ports_are_not() {
        let mut body = vec![1, 3, 0, 8, 0x60, 1, 2, 3, 4, 5, 6, 7];
        body.extend([2, 1, 0, 4]);
        body.extend(b"T10 ");
        body.extend([3, 8, 0, 8]);
        body.extend(b"iqn.x:1\0");
        body.extend([1, 0x14, 0, 4, 0, 0, 0, 1]);
        body.extend([1, 0x15, 0, 4, 0, 0, 1, 2]);
        body.extend([1, 2, 0, 0]);
        body.extend([1, 3, 0, 16, 0x61]);
        let designators = Designators::parse(&body);
        let text: Vec<String> = designators
            .identifiers
            .iter()
            .map(|identifier| format!("{}:{}", identifier.kind, identifier.value))
            .collect();
        assert_eq!(
            text,
            [
                "naa:6001020304050607",
                "t10:T10",
                "scsi-name:iqn.x:1",
                "naa:61"
            ]
        );
        assert_eq!(designators.port_group, Some(0x102));
    }

    #[test]
    fn capacity_of_sixteen_bytes_has_more_to_say_than_that_of_ten() {
        let mut data = vec![0; 32];
        data[..8].copy_from_slice(&0x1_ffff_ffff_u64.to_be_bytes());
        data[8..12].copy_from_slice(&512_u32.to_be_bytes());
        data[13] = 3;
        data[14] = 0xc0;
        let capacity = Capacity::parse_16(&data).unwrap();
        assert_eq!(capacity.block_count, 1 << 33);
        assert_eq!((capacity.block_size, capacity.physical_exponent), (512, 3));
        assert!(capacity.provisioned && capacity.unmapped_reads_zeros);
        assert_eq!(Capacity::parse_16(&data[..11]), None);
        assert_eq!(Capacity::parse_16(&[0xff; 32]), None, "no such count");
        let short = Capacity::parse_10(&[0, 0, 0, 9, 0, 0, 16, 0]).unwrap();
        assert_eq!((short.block_count, short.block_size), (10, 4096));
        assert_eq!(Capacity::parse_10(&[0; 7]), None);
    }

    #[test]
    fn a_caching_page_is_found_behind_block_descriptors_or_not_at_all() {
        let page = [0x88, 18, 4, 0];
        let plain = [&[7, 0, 0x90, 0][..], &page].concat();
        let expected = Mode {
            write_protected: true,
            fua: true,
            write_cache: Some(true),
        };
        assert_eq!(Mode::parse_6(&plain), expected);
        let behind = [&[15, 0, 0x90, 8][..], &[0; 8], &page].concat();
        assert_eq!(Mode::parse_6(&behind), expected);
        assert_eq!(Mode::parse_6(&[3, 0, 0, 0]).write_cache, None);
        assert_eq!(Mode::parse_6(&[7, 0, 0, 0, 0x0a, 18, 4]).write_cache, None);
    }

    #[test]
    fn a_supported_command_tells_which_bits_it_uses() {
        let data = [0, 3, 0, 3, 0x93, 0xe9, 0xff];
        let support = CommandSupport::parse(&data).unwrap();
        assert!(support.is_supported && support.uses(1, 0) && !support.uses(1, 1));
        let none = CommandSupport::parse(&[0, 1, 0, 2, 0xff, 0xff]).unwrap();
        assert!(!none.is_supported && !none.uses(0, 0));
        assert_eq!(CommandSupport::parse(&[]), None);
    }

    #[test]
    fn the_state_of_the_own_port_group_counts() {
        let mut data = vec![0, 0, 0, 24];
        data.extend([0x00, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        data.extend([0x82, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(access_state(&data, 1), Some(AccessState::Optimized));
        assert_eq!(access_state(&data, 2), Some(AccessState::Inaccessible));
        assert_eq!(access_state(&data, 3), None);
    }

    proptest! {
        #[test]
        fn no_page_makes_a_reader_panic(
            data in prop::collection::vec(any::<u8>(), 0..300),
            group: u16,
            small in any::<[bool; 2]>(),
        ) {
            let mut data = data;
            // Lengths that fit are more interesting than those that do not.
            for (at, is_small) in [(0, small[0]), (2, small[1])] {
                if let Some(length) = data.get_mut(at).filter(|_| is_small) {
                    *length = 0;
                }
            }
            let page = Page(&data);
            let body = page.vital_product_data(page.u8(1)).unwrap_or_default();
            prop_assert!(body.len() <= data.len());
            let _ = (Inquiry::parse(&data), Designators::parse(body), BlockLimits::parse(page));
            let _ = (Provisioning::parse(page), Mode::parse_6(&data));
            let _ = (Capacity::parse_10(&data), Capacity::parse_16(&data));
            let _ = CommandSupport::parse(&data).map(|support| support.uses(1, 0));
            let _ = access_state(&data, group);
            prop_assert!(luns(&data).count() <= data.len() / 8);
        }
    }
}
