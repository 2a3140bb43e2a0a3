//! The parameter list of EXTENDED COPY (LID1), and what we say of our limits.
//!
//! ```text
//!  0        LIST IDENTIFIER
//!  1        STR (5) | LIST ID USAGE (4..3) | PRIORITY (2..0)
//!  2..3     CSCD DESCRIPTOR LIST LENGTH
//!  8..11    SEGMENT DESCRIPTOR LIST LENGTH
//! 12..15    INLINE DATA LENGTH
//! 16..      CSCD descriptors, segment descriptors, inline data
//!
//! CSCD descriptor E4h, 32 bytes                 segment descriptor 02h, 28 bytes
//!  0        E4h                                  0        02h
//!  1        PERIPHERAL DEVICE TYPE (4..0)        1        DC (1) | CAT (0)
//!  4..7     CODE SET … DESIGNATOR LENGTH (7)     2..3     DESCRIPTOR LENGTH 18h
//!  8..27    DESIGNATOR                           4..5     SOURCE CSCD DESCRIPTOR ID
//! 28        PAD (2)                              6..7     DESTINATION CSCD DESCRIPTOR ID
//! 29..31    DISK BLOCK LENGTH                   10..11    BLOCK DEVICE NUMBER OF BLOCKS
//!                                               12..19    SOURCE LOGICAL BLOCK ADDRESS
//!                                               20..27    DESTINATION LOGICAL BLOCK ADDRESS
//! ```
//!
//! PRIORITY and STR are hints and ignored, as are PAD and CAT: segments that do not come out even
//! in both block sizes are refused. LU ID TYPE and NUL are obsolete and ignored.

use longshore_wire::{OutOfBytes, Reader};

use crate::copies::MAX_CONCURRENT_COPIES;
use crate::sense::{AdditionalSense, Sense};

const CSCD_IDENTIFICATION: u8 = 0xe4;
const CSCD_LENGTH: usize = 32;
const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
const SEGMENT_BLOCK_TO_BLOCK_BODY_LENGTH: u16 = 0x18;

/// CSCD descriptors of one copy.
pub(super) const MAX_CSCD_DESCRIPTORS: u16 = 16;
/// Segment descriptors of one copy.
pub(super) const MAX_SEGMENT_DESCRIPTORS: u16 = 64;
/// Bytes of descriptors of one copy. Has room for one descriptor more than allowed of either kind,
/// so that too many of one kind are told from too many bytes.
pub(super) const MAX_DESCRIPTOR_LIST_LENGTH: u32 = 4096;
const _: () = assert!(
    MAX_DESCRIPTOR_LIST_LENGTH as usize
        >= (MAX_CSCD_DESCRIPTORS as usize + 1) * CSCD_LENGTH
            + (MAX_SEGMENT_DESCRIPTORS as usize + 1) * 28
);
/// The longest parameter list.
pub(crate) const MAX_PARAMETER_LIST_LENGTH: u32 = 16 + MAX_DESCRIPTOR_LIST_LENGTH;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) list_identifier: u8,
    list_id_usage: u8,
    pub(super) cscds: Vec<Cscd>,
    pub(super) segments: Vec<SegmentDescriptor>,
}

/// A copy source or copy destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cscd {
    /// DESIGNATOR, of whatever type.
    pub(super) designator: Vec<u8>,
    pub(super) is_direct_access: bool,
    /// DISK BLOCK LENGTH, in bytes.
    pub(super) block_length: u32,
}

/// A block to block segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentDescriptor {
    /// Index of a [`Cscd`].
    pub(super) source: u16,
    /// Index of a [`Cscd`].
    pub(super) destination: u16,
    /// DC: `block_count` counts blocks of the destination.
    pub(super) counts_destination_blocks: bool,
    pub(super) block_count: u16,
    pub(super) source_lba: u64,
    pub(super) destination_lba: u64,
}

impl Parameters {
    /// Decodes a parameter list that is not empty.
    pub(super) fn decode(list: &[u8]) -> Result<Self, Sense> {
        let mut reader = Reader::new(list);
        let [list_identifier, flags] = reader.array().map_err(cut_short)?;
        let cscd_length = u32::from(reader.be16().map_err(cut_short)?);
        reader.be32().map_err(cut_short)?;
        let segment_length = reader.be32().map_err(cut_short)?;
        let inline_length = reader.be32().map_err(cut_short)?;

        let list_id_usage = flags >> 3 & 3;
        if list_id_usage == 1 || (list_id_usage == 3 && list_identifier != 0) {
            return Err(Sense::invalid_field_in_parameter_list(1));
        }
        if inline_length != 0 {
            let additional = AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED;
            return Err(Sense::illegal_request(additional));
        }
        let descriptors = u64::from(cscd_length) + u64::from(segment_length);
        if descriptors > u64::from(MAX_DESCRIPTOR_LIST_LENGTH) {
            return Err(Sense::parameter_list_length_error());
        }
        let cscds = sub_reader(&mut reader, cscd_length)?;
        let segments = sub_reader(&mut reader, segment_length)?;
        Ok(Self {
            list_identifier,
            list_id_usage,
            cscds: decode_cscds(cscds)?,
            segments: decode_segments(segments)?,
        })
    }

    /// LIST ID USAGE 11b: nobody will ask for this copy.
    pub(super) fn uses_list_identifier(&self) -> bool {
        self.list_id_usage != 3
    }

    /// LIST ID USAGE 00b: the outcome is kept. With 10b only the copy under way can be asked for.
    pub(super) fn holds_results(&self) -> bool {
        self.list_id_usage == 0
    }
}

fn cut_short(_: OutOfBytes) -> Sense {
    Sense::parameter_list_length_error()
}

fn sub_reader<'a>(reader: &mut Reader<'a>, length: u32) -> Result<Reader<'a>, Sense> {
    let length = usize::try_from(length).map_err(|_| Sense::parameter_list_length_error())?;
    reader.sub_reader(length).map_err(cut_short)
}

fn decode_cscds(mut reader: Reader<'_>) -> Result<Vec<Cscd>, Sense> {
    let mut cscds = Vec::new();
    while let Some(code) = reader.rest().first() {
        if *code != CSCD_IDENTIFICATION {
            let additional = AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE;
            return Err(Sense::illegal_request(additional));
        }
        if cscds.len() == usize::from(MAX_CSCD_DESCRIPTORS) {
            return Err(Sense::illegal_request(
                AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS,
            ));
        }
        let descriptor: [u8; CSCD_LENGTH] = reader.array().map_err(cut_short)?;
        let designator_length = usize::from(descriptor[7]);
        let Some(designator) = descriptor[8..28].get(..designator_length) else {
            return Err(Sense::invalid_field_in_parameter_list(7));
        };
        cscds.push(Cscd {
            designator: designator.to_vec(),
            is_direct_access: descriptor[1] & 0x1f == 0,
            block_length: u32::from_be_bytes([0, descriptor[29], descriptor[30], descriptor[31]]),
        });
    }
    Ok(cscds)
}

fn decode_segments(mut reader: Reader<'_>) -> Result<Vec<SegmentDescriptor>, Sense> {
    let mut segments = Vec::new();
    while !reader.is_empty() {
        if segments.len() == usize::from(MAX_SEGMENT_DESCRIPTORS) {
            return Err(Sense::illegal_request(
                AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS,
            ));
        }
        segments.push(decode_segment(&mut reader)?);
    }
    Ok(segments)
}

fn decode_segment(reader: &mut Reader<'_>) -> Result<SegmentDescriptor, Sense> {
    let code = reader.u8().map_err(cut_short)?;
    if code != SEGMENT_BLOCK_TO_BLOCK {
        let additional = AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
        return Err(Sense::illegal_request(additional));
    }
    let flags = reader.u8().map_err(cut_short)?;
    if reader.be16().map_err(cut_short)? != SEGMENT_BLOCK_TO_BLOCK_BODY_LENGTH {
        return Err(Sense::illegal_request(
            AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ));
    }
    let source = reader.be16().map_err(cut_short)?;
    let destination = reader.be16().map_err(cut_short)?;
    reader.be16().map_err(cut_short)?;
    Ok(SegmentDescriptor {
        source,
        destination,
        counts_destination_blocks: flags & 0x02 != 0,
        block_count: reader.be16().map_err(cut_short)?,
        source_lba: reader.be64().map_err(cut_short)?,
        destination_lba: reader.be64().map_err(cut_short)?,
    })
}

/// Parameter data of RECEIVE COPY RESULTS, OPERATING PARAMETERS (SPC-4 §6.22).
pub(super) fn operating_parameters(block_size: u32) -> [u8; 46] {
    const SUPPORTS_NO_LIST_IDENTIFIER: u8 = 1;

    let mut data = [0; 46];
    data[0..4].copy_from_slice(&42_u32.to_be_bytes()); // AVAILABLE DATA: what follows
    data[4] = SUPPORTS_NO_LIST_IDENTIFIER;
    data[8..10].copy_from_slice(&MAX_CSCD_DESCRIPTORS.to_be_bytes());
    data[10..12].copy_from_slice(&MAX_SEGMENT_DESCRIPTORS.to_be_bytes());
    data[12..16].copy_from_slice(&MAX_DESCRIPTOR_LIST_LENGTH.to_be_bytes());
    data[16..20].copy_from_slice(&max_segment_length(block_size).to_be_bytes());
    // No inline data (20..24), no held data (24..28), no stream devices (28..32).
    data[34..36].copy_from_slice(&u16::from(MAX_CONCURRENT_COPIES).to_be_bytes());
    data[36] = MAX_CONCURRENT_COPIES;
    data[37] = data_segment_granularity(block_size);
    data[43] = 2;
    data[44] = SEGMENT_BLOCK_TO_BLOCK;
    data[45] = CSCD_IDENTIFICATION;
    data
}

/// As many bytes as the 16-bit number of blocks can say.
fn max_segment_length(block_size: u32) -> u32 {
    u32::from(u16::MAX).saturating_mul(block_size)
}

/// As a power of two.
fn data_segment_granularity(block_size: u32) -> u8 {
    u8::try_from(block_size.trailing_zeros()).unwrap_or(0)
}

/// Appends the descriptors of the third-party copy VPD page (8Fh, SPC-4 §7.8.17): what follows the
/// four bytes of the page's header.
pub(crate) fn third_party_copy_page(block_size: u32, out: &mut Vec<u8>) {
    // Supported commands: EXTENDED COPY (LID1); RECEIVE COPY STATUS, OPERATING PARAMETERS and
    // FAILED SEGMENT DETAILS (LID1).
    let commands = [0x83, 1, 0x00, 0x84, 3, 0x00, 0x03, 0x04];
    third_party_descriptor(0x0001, out, |body| counted_by_byte(&commands, body));
    // Parameter data.
    third_party_descriptor(0x0004, out, |body| {
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&MAX_CSCD_DESCRIPTORS.to_be_bytes());
        body.extend_from_slice(&MAX_SEGMENT_DESCRIPTORS.to_be_bytes());
        body.extend_from_slice(&MAX_DESCRIPTOR_LIST_LENGTH.to_be_bytes());
        body.extend_from_slice(&[0; 4 + 12]);
    });
    // Supported descriptors.
    third_party_descriptor(0x0008, out, |body| {
        counted_by_byte(&[SEGMENT_BLOCK_TO_BLOCK, CSCD_IDENTIFICATION], body);
    });
    // Supported CSCD descriptor IDs: none but the descriptors of the list.
    third_party_descriptor(0x000c, out, |body| body.extend_from_slice(&[0; 2]));
    // General copy operations.
    third_party_descriptor(0x8001, out, |body| {
        body.extend_from_slice(&u32::from(MAX_CONCURRENT_COPIES).to_be_bytes());
        body.extend_from_slice(&u32::from(MAX_CONCURRENT_COPIES).to_be_bytes());
        body.extend_from_slice(&max_segment_length(block_size).to_be_bytes());
        body.push(data_segment_granularity(block_size));
        body.extend_from_slice(&[0; 19]);
    });
}

/// Type, length, and a body padded to a multiple of four bytes.
fn third_party_descriptor(kind: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&kind.to_be_bytes());
    let length_at = out.len();
    out.extend_from_slice(&[0; 2]);
    body(out);
    let length = (out.len() - length_at - 2).next_multiple_of(4);
    out.resize(length_at + 2 + length, 0);
    let length = u16::try_from(length).expect("descriptors are short");
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
}

fn counted_by_byte(list: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(list.len()).expect("lists are short"));
    out.extend_from_slice(list);
}
