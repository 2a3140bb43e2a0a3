//! INQUIRY (SPC-4 §6.6): standard data and vital product data pages (SPC-4 §7.8, SBC-3 VPD parameters).

use longshore_block::naa::Naa;

use crate::cdb::Cdb;
use crate::extended_copy::third_party_copy_page;
use crate::media::{atomic, compare_and_write, unmap, write_same};
use crate::nexus::NexusPort;
use crate::provisioning;
use crate::sense::Sense;
use crate::target_port_groups::{TARGET_PORT_GROUP, TPGS_IMPLICIT};
use crate::unit::{LogicalUnit, LogicalUnitConfig};

/// T10 VENDOR IDENTIFICATION of volumes that have none of their own.
const VENDOR: &str = "LONGSHOR";

/// PRODUCT IDENTIFICATION of volumes that have none of their own.
const PRODUCT: &str = "VIRTUAL-DISK";

/// Pages we have, in ascending order: what page 00h lists.
const PAGES: [(u8, Page); 8] = [
    (0x00, |_, _, page| supported_pages(page)),
    (0x80, |unit, _, page| {
        page.extend_from_slice(unit.config().serial.as_bytes())
    }),
    (0x83, |unit, port, page| {
        device_identification(unit, port, page)
    }),
    (0x86, |unit, _, page| extended_inquiry(unit.config(), page)),
    (0x8f, |unit, _, page| {
        third_party_copy_page(unit.config().block_size, page)
    }),
    (0xb0, |unit, _, page| block_limits(unit.config(), page)),
    (0xb1, |unit, _, page| {
        block_device_characteristics(unit.config(), page)
    }),
    (0xb2, |unit, _, page| logical_block_provisioning(unit, page)),
];

/// Appends a page's contents after its 4-byte header.
type Page = fn(&LogicalUnit, &NexusPort, &mut Vec<u8>);

/// Answers INQUIRY for a logical unit.
pub(crate) fn inquiry(
    cdb: Cdb,
    unit: &LogicalUnit,
    port: &NexusPort,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    let (evpd, code) = (cdb.flag(1, 0), cdb.byte(2));
    if !evpd {
        if code != 0 {
            return Err(Sense::invalid_field_in_cdb(2, 7));
        }
        let config = unit.config();
        let product = config.product.as_deref().unwrap_or(PRODUCT);
        let start = data_in.len();
        standard(
            0x00,
            vendor(config),
            product,
            &config.product_revision,
            data_in,
        );
        data_in[start + 5] |= TPGS_IMPLICIT;
        return Ok(());
    }
    let page = PAGES.iter().find(|(known, _)| *known == code);
    let (_, page) = page.ok_or(Sense::invalid_field_in_cdb(2, 7))?;
    let start = data_in.len();
    data_in.extend([0, code, 0, 0]);
    page(unit, port, data_in);
    set_length(data_in, start + 2, start + 4);
    Ok(())
}

/// Answers INQUIRY for a LUN without a logical unit: peripheral qualifier 011b, device type 1Fh.
/// Of the VPD pages only the list exists (SPC-4 leaves that open).
pub(crate) fn without_unit(cdb: Cdb, data_in: &mut Vec<u8>) -> Result<(), Sense> {
    match (cdb.flag(1, 0), cdb.byte(2)) {
        (false, 0) => standard(0x7f, VENDOR, PRODUCT, "", data_in),
        (true, 0) => data_in.extend([0x7f, 0, 0, 1, 0]),
        _ => return Err(Sense::invalid_field_in_cdb(2, 7)),
    }
    Ok(())
}

/// Standard INQUIRY data, 96 bytes.
fn standard(peripheral: u8, vendor: &str, product: &str, revision: &str, data_in: &mut Vec<u8>) {
    const VERSION_SPC_4: u8 = 0x06;
    const HISUP: u8 = 0x10;
    const RESPONSE_DATA_FORMAT: u8 = 0x02;
    const THIRD_PARTY_COPY: u8 = 0x08;
    const MULTIP: u8 = 0x10;
    const CMDQUE: u8 = 0x02;
    /// SAM-5, iSCSI, SPC-4, SBC-3, none of a particular revision.
    const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

    let mut data = [0; 96];
    data[0] = peripheral;
    data[2] = VERSION_SPC_4;
    data[3] = HISUP | RESPONSE_DATA_FORMAT;
    data[4] = 96 - 5;
    data[5] = THIRD_PARTY_COPY;
    data[6] = MULTIP;
    data[7] = CMDQUE;
    put_ascii(&mut data[8..16], vendor);
    put_ascii(&mut data[16..32], product);
    put_ascii(&mut data[32..36], revision);
    for (place, version) in data[58..].chunks_exact_mut(2).zip(VERSION_DESCRIPTORS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    data_in.extend(data);
}

/// Left-aligned, padded with spaces, cut to fit.
fn put_ascii(place: &mut [u8], text: &str) {
    place.fill(b' ');
    let printable = text.bytes().filter(|byte| (0x20..=0x7e).contains(byte));
    for (byte, from) in place.iter_mut().zip(printable) {
        *byte = from;
    }
}

/// Writes how much follows `from` into the two bytes at `at`.
fn set_length(data: &mut [u8], at: usize, from: usize) {
    let length = u16::try_from(data.len() - from).unwrap_or(u16::MAX);
    data[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

fn supported_pages(page: &mut Vec<u8>) {
    page.extend(PAGES.map(|(code, _)| code));
}

/// What a designator is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Association {
    LogicalUnit = 0b00,
    TargetPort = 0b01,
    TargetDevice = 0b10,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum DesignatorType {
    T10VendorId = 0x1,
    Eui64 = 0x2,
    Naa = 0x3,
    RelativeTargetPort = 0x4,
    TargetPortGroup = 0x5,
    ScsiNameString = 0x8,
}

impl DesignatorType {
    /// CODE SET: binary, ASCII or UTF-8.
    fn code_set(self) -> u8 {
        match self {
            Self::Eui64 | Self::Naa | Self::RelativeTargetPort | Self::TargetPortGroup => 0x1,
            Self::T10VendorId => 0x2,
            Self::ScsiNameString => 0x3,
        }
    }
}

fn vendor(config: &LogicalUnitConfig) -> &str {
    config.vendor.as_deref().unwrap_or(VENDOR)
}

/// The NAA identifier that the volume was given, or the one of its UUID.
fn naa(config: &LogicalUnitConfig) -> Naa {
    config.names.naa(config.uuid.as_bytes())
}

/// The EUI-64 that the volume was given, if only that it has none, or that follows from its NAA identifier; or one with
/// the U/L bit set, from the end of the UUID, which is its most random part.
fn eui64(config: &LogicalUnitConfig) -> Option<[u8; 8]> {
    let known = config.names.eui64();
    if known.is_some() || config.names.eui64.is_some() {
        return known;
    }
    let [.., a, b, c, d, e, f, g, h] = *config.uuid.as_bytes();
    Some([(a & 0xfc) | 0x02, b, c, d, e, f, g, h])
}

/// T10 vendor ID and the UUID as text.
fn t10_vendor_id(config: &LogicalUnitConfig) -> Vec<u8> {
    let mut designator = vec![b' '; 8];
    put_ascii(&mut designator, vendor(config));
    designator.extend(config.uuid.hyphenated().to_string().into_bytes());
    designator
}

/// A SCSI name string: ended by NUL and padded to a multiple of four.
fn name_string(name: &str) -> Vec<u8> {
    let mut designator = name.as_bytes().to_vec();
    designator.push(0);
    designator.resize(designator.len().next_multiple_of(4), 0);
    designator
}

fn push_designator(
    association: Association,
    designator_type: DesignatorType,
    designator: &[u8],
    page: &mut Vec<u8>,
) {
    const ISCSI: u8 = 0x5;
    // PROTOCOL IDENTIFIER is meant for ports and devices only (PIV).
    let (protocol, piv) = if association == Association::LogicalUnit {
        (0, 0)
    } else {
        (ISCSI << 4, 0x80)
    };
    let flags = piv | ((association as u8) << 4) | designator_type as u8;
    page.extend([protocol | designator_type.code_set(), flags, 0]);
    page.push(u8::try_from(designator.len()).unwrap_or(u8::MAX));
    page.extend(&designator[..designator.len().min(255)]);
}

/// Device identification VPD page (83h).
fn device_identification(unit: &LogicalUnit, port: &NexusPort, page: &mut Vec<u8>) {
    use Association::{LogicalUnit as Unit, TargetDevice, TargetPort};
    let config = unit.config();
    push_designator(Unit, DesignatorType::Naa, naa(config).as_bytes(), page);
    push_designator(
        Unit,
        DesignatorType::T10VendorId,
        &t10_vendor_id(config),
        page,
    );
    if let Some(eui64) = eui64(config) {
        push_designator(Unit, DesignatorType::Eui64, &eui64, page);
    }
    let [high, low] = port.relative_target_port.to_be_bytes();
    push_designator(
        TargetPort,
        DesignatorType::RelativeTargetPort,
        &[0, 0, high, low],
        page,
    );
    let [high, low] = TARGET_PORT_GROUP.to_be_bytes();
    push_designator(
        TargetPort,
        DesignatorType::TargetPortGroup,
        &[0, 0, high, low],
        page,
    );
    let name = name_string(&port.target_port_name);
    push_designator(TargetPort, DesignatorType::ScsiNameString, &name, page);
    if let Some((device, _)) = port.target_port_name.split_once(",t,") {
        push_designator(
            TargetDevice,
            DesignatorType::ScsiNameString,
            &name_string(device),
            page,
        );
    }
}

impl LogicalUnit {
    /// Whether the logical unit has this designator (of its NAA, EUI-64 or T10 vendor ID), as
    /// EXTENDED COPY names it.
    pub fn is_designated_by(&self, designator: &[u8]) -> bool {
        let config = self.config();
        designator == naa(config).as_bytes()
            || eui64(config).is_some_and(|eui64| designator == eui64)
            || designator == t10_vendor_id(config)
    }
}

/// Extended INQUIRY data VPD page (86h), 64 bytes with the header.
fn extended_inquiry(config: &LogicalUnitConfig, page: &mut Vec<u8>) {
    const HEADSUP: u8 = 0x04;
    const ORDSUP: u8 = 0x02;
    const SIMPSUP: u8 = 0x01;
    const V_SUP: u8 = 0x01;
    const LUICLR: u8 = 0x01;
    let mut data = [0; 60];
    data[1] = HEADSUP | ORDSUP | SIMPSUP;
    data[2] = if config.volatile_cache { V_SUP } else { 0 };
    data[3] = LUICLR;
    page.extend(data);
}

/// Block limits VPD page (B0h). Blocks unless said otherwise; byte numbers as in the standard.
fn block_limits(config: &LogicalUnitConfig, page: &mut Vec<u8>) {
    let mut data = [0; 64];
    let mut put = |at: usize, value: u32| {
        data[at..at + 4].copy_from_slice(&value.to_be_bytes());
    };
    let max_transfer = config.max_transfer_blocks;
    put(8, max_transfer);
    put(12, optimal_transfer_blocks(config));
    // Byte 16, MAXIMUM PREFETCH LENGTH: zero, no limit.
    if let Some(granularity) = config.unmap_granularity_blocks {
        put(20, unmap::MAX_BLOCKS);
        put(24, unmap::MAX_DESCRIPTORS);
        // A granularity of one block says nothing. QEMU 7.2 (block/iscsi.c) keeps a map of
        // allocated clusters when it is given, asks for the status of a range that is no multiple
        // of 4096 bytes to fill it, and aborts by an assertion of its own with such blocks.
        if granularity > 1 {
            put(28, granularity);
            // UGAVALID, and alignment 0.
            put(32, 0x8000_0000);
        }
    }
    // MAXIMUM WRITE SAME LENGTH has eight bytes.
    put(40, write_same::MAX_BLOCKS);
    put(44, atomic::max_blocks(max_transfer));
    // Atomic alignment and granularity: none required. With a boundary: not supported.
    const WSNZ: u8 = 0x01;
    data[4] = WSNZ;
    data[5] = compare_and_write::max_blocks(max_transfer);
    let granularity = u16::try_from(config.blocks_per_physical_block()).unwrap_or(u16::MAX);
    data[6..8].copy_from_slice(&granularity.to_be_bytes());
    page.extend(&data[4..]);
}

/// A transfer of 256 KiB amortises what a command costs, without holding up others for long.
fn optimal_transfer_blocks(config: &LogicalUnitConfig) -> u32 {
    (256 * 1024 / config.block_size.max(1)).clamp(1, config.max_transfer_blocks.max(1))
}

/// Block device characteristics VPD page (B1h).
fn block_device_characteristics(config: &LogicalUnitConfig, page: &mut Vec<u8>) {
    /// MEDIUM ROTATION RATE 0001h: a medium that does not rotate.
    const SOLID_STATE: u16 = 0x0001;
    let rate = if config.rotational { 0 } else { SOLID_STATE };
    let mut data = [0; 60];
    data[..2].copy_from_slice(&rate.to_be_bytes());
    // WABEREQ: after SANITIZE by BLOCK ERASE, reads succeed without a write before them.
    data[3] = if config.erases_blocks() { 0x40 } else { 0 };
    page.extend(data);
}

/// Logical block provisioning VPD page (B2h).
fn logical_block_provisioning(unit: &LogicalUnit, page: &mut Vec<u8>) {
    const LBPU: u8 = 0x80;
    const LBPWS: u8 = 0x40;
    const LBPWS10: u8 = 0x20;
    const LBPRZ: u8 = 0x04;
    const ANC_SUP: u8 = 0x02;
    const THIN_PROVISIONED: u8 = 0x02;
    let config = unit.config();
    let mut data = [0; 4];
    data[0] = provisioning::threshold_exponent(unit);
    if config.unmap_granularity_blocks.is_some() {
        let zeros = if config.unmapped_reads_zeros {
            LBPRZ
        } else {
            0
        };
        data[1] = LBPU | LBPWS | LBPWS10 | zeros | ANC_SUP;
        data[2] = THIN_PROVISIONED;
    }
    page.extend(data);
}
