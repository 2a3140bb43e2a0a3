//! iSCSI PDUs as bytes: a 48-byte header with setters by offset, and a data segment (RFC 7143
//! §11). Nothing is checked when sending, so that a test can send what no initiator should.

/// Opcodes of initiator and target (RFC 7143 §11.2.1.2).
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT_REQUEST: u8 = 0x02;
    pub const LOGIN_REQUEST: u8 = 0x03;
    pub const TEXT_REQUEST: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT_REQUEST: u8 = 0x06;
    pub const SNACK_REQUEST: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNCHRONOUS_MESSAGE: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The reserved value of both task tags.
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// Length of the basic header segment.
pub const BHS_LENGTH: usize = 48;

/// One PDU: header and data segment, without padding and digests.
#[derive(Clone, PartialEq, Eq)]
pub struct Pdu {
    /// The basic header segment as on the wire. Its DataSegmentLength is filled in by [`Pdu::new`]
    /// and [`Pdu::with_data`], and may be made to lie afterwards.
    pub bhs: [u8; BHS_LENGTH],
    /// The data segment, not padded.
    pub data: Vec<u8>,
}

impl std::fmt::Debug for Pdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Pdu {{ opcode {:#04x}, flags {:#04x}, itt {:#x}, word 20 {:#x}, data {} bytes }}",
            self.opcode(),
            self.bhs[1],
            self.initiator_task_tag(),
            self.word(20),
            self.data.len()
        )
    }
}

impl Pdu {
    /// A PDU of this opcode with everything else zero.
    pub fn new(opcode: u8) -> Self {
        let mut bhs = [0; BHS_LENGTH];
        bhs[0] = opcode;
        Self {
            bhs,
            data: Vec::new(),
        }
    }

    /// Sets the data segment and its length in the header.
    #[must_use]
    pub fn with_data(mut self, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).expect("data segments are small");
        self.data = data.to_vec();
        self.set_data_segment_length(length)
    }

    /// Sets the DataSegmentLength field alone (24 bits at byte 5).
    #[must_use]
    pub fn set_data_segment_length(mut self, length: u32) -> Self {
        let bytes = length.to_be_bytes();
        self.bhs[5..8].copy_from_slice(&bytes[1..]);
        self
    }

    /// Sets one byte of the header.
    #[must_use]
    pub fn set_byte(mut self, offset: usize, value: u8) -> Self {
        self.bhs[offset] = value;
        self
    }

    /// Sets the immediate bit, which exempts a request from the command window.
    #[must_use]
    pub fn immediate(mut self) -> Self {
        self.bhs[0] |= 0x40;
        self
    }

    /// Sets four bytes of the header, big-endian.
    #[must_use]
    pub fn set_word(mut self, offset: usize, value: u32) -> Self {
        self.bhs[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Sets the LUN field (bytes 8 to 15) to a LUN below 256, in peripheral addressing.
    #[must_use]
    pub fn set_lun(mut self, lun: u8) -> Self {
        self.bhs[8..16].copy_from_slice(&[0, lun, 0, 0, 0, 0, 0, 0]);
        self
    }

    /// Sets the CDB of a SCSI Command (bytes 32 to 47).
    #[must_use]
    pub fn set_cdb(mut self, cdb: &[u8]) -> Self {
        self.bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        self
    }

    /// The opcode without the immediate bit.
    pub fn opcode(&self) -> u8 {
        self.bhs[0] & 0x3f
    }

    /// Four bytes of the header, big-endian.
    pub fn word(&self, offset: usize) -> u32 {
        let bytes = self.bhs[offset..offset + 4]
            .try_into()
            .expect("four bytes were cut");
        u32::from_be_bytes(bytes)
    }

    /// The Initiator Task Tag (bytes 16 to 19).
    pub fn initiator_task_tag(&self) -> u32 {
        self.word(16)
    }

    /// The Target Transfer Tag, where there is one (bytes 20 to 23).
    pub fn target_transfer_tag(&self) -> u32 {
        self.word(20)
    }

    pub fn data_segment_length(&self) -> usize {
        usize::from(self.bhs[5]) << 16 | usize::from(self.bhs[6]) << 8 | usize::from(self.bhs[7])
    }

    /// The bytes to send, padded, with the digests asked for.
    pub fn to_bytes(&self, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let mut bytes = self.bhs.to_vec();
        if header_digest {
            bytes.extend(crc32c(&self.bhs).to_le_bytes());
        }
        if !self.data.is_empty() {
            let start = bytes.len();
            bytes.extend(&self.data);
            bytes.resize(start + self.data.len().next_multiple_of(4), 0);
            if data_digest {
                let digest = crc32c(&bytes[start..]);
                bytes.extend(digest.to_le_bytes());
            }
        }
        bytes
    }
}

/// CRC32C (Castagnoli), bit by bit over a table of 256: slow and plainly right (RFC 7143 §13.1).
pub fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc32c_table();
    let crc = bytes.iter().fold(u32::MAX, |crc, &byte| {
        (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)]
    });
    !crc
}

const fn crc32c_table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0x82f6_3b78; // 0x1edc6f41 with its bits in reverse
    let mut table = [0; 256];
    let mut index = 0;
    let mut start = 0;
    while index < 256 {
        let mut crc: u32 = start;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        start += 1;
    }
    table
}

/// Joins text keys as a data segment: each followed by a zero byte.
pub fn text(keys: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in keys {
        bytes.extend(format!("{key}={value}\0").bytes());
    }
    bytes
}

/// Takes a text data segment apart. What is no `key=value` is left out.
pub fn parse_text(data: &[u8]) -> Vec<(String, String)> {
    data.split(|&byte| byte == 0)
        .filter_map(|pair| {
            let pair = String::from_utf8_lossy(pair);
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720 §B.4.
    #[test]
    fn crc32c_matches_the_examples_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn data_is_padded_to_four_bytes_and_its_length_is_not() {
        let pdu = Pdu::new(opcode::TEXT_REQUEST).with_data(b"a=b\0c");
        assert_eq!(pdu.data_segment_length(), 5);
        assert_eq!(pdu.to_bytes(false, false).len(), 48 + 8);
        assert_eq!(pdu.to_bytes(true, true).len(), 48 + 4 + 8 + 4);
    }
}
