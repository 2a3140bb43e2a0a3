//! Where PDUs end in a stream of bytes.
//!
//! - iSCSI (RFC 7143 §11.2): 48 bytes of header, `4 * TotalAHSLength` (byte 4), `DataSegmentLength`
//!   (bytes 5 to 7) padded to 4, and a digest of 4 bytes behind header and data where the login agreed
//!   on them. The login is watched for that.
//! - NVMe/TCP (§3.6.1): PLEN, bytes 4 to 7, counts everything, digests among it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Protocol;
use crate::pdu::{BHS_LENGTH, opcode};

/// What of digests a login has agreed on; shared by both directions of a connection. The response
/// that ends the login is seen before the initiator gets it, so nothing can come too early.
#[derive(Debug, Default)]
pub struct Digests {
    header_agreed: AtomicBool,
    data_agreed: AtomicBool,
    in_use: AtomicBool,
}

impl Digests {
    fn header(&self) -> usize {
        4 * usize::from(
            self.in_use.load(Ordering::SeqCst) && self.header_agreed.load(Ordering::SeqCst),
        )
    }

    fn data(&self) -> usize {
        4 * usize::from(
            self.in_use.load(Ordering::SeqCst) && self.data_agreed.load(Ordering::SeqCst),
        )
    }

    /// Learns from a Login Response.
    fn learn(&self, pdu: &[u8]) {
        const TRANSIT: u8 = 0x80;
        const FULL_FEATURE_PHASE: u8 = 3;
        let keys = pdu.get(BHS_LENGTH..).unwrap_or_default();
        for key in keys.split(|&byte| byte == 0) {
            match key {
                b"HeaderDigest=CRC32C" => self.header_agreed.store(true, Ordering::SeqCst),
                b"DataDigest=CRC32C" => self.data_agreed.store(true, Ordering::SeqCst),
                _ => {}
            }
        }
        let ends = pdu[1] & TRANSIT != 0 && pdu[1] & 3 == FULL_FEATURE_PHASE && pdu[36] == 0;
        if ends {
            self.in_use.store(true, Ordering::SeqCst);
        }
    }
}

/// Bytes of one direction that have come and are not passed on yet.
#[derive(Debug)]
pub struct Framing {
    protocol: Protocol,
    bytes: Vec<u8>,
    /// What lies before this is taken.
    start: usize,
}

impl Framing {
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            bytes: Vec::new(),
            start: 0,
        }
    }

    /// Adds what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of the first PDU, once all of it is there.
    pub fn next(&mut self, digests: &Digests) -> Option<usize> {
        let bytes = &self.bytes[self.start..];
        let length = match self.protocol {
            Protocol::Iscsi => iscsi_length(bytes, digests)?,
            Protocol::NvmeTcp => nvme_length(bytes)?,
        };
        let pdu = bytes.get(..length)?;
        if self.protocol == Protocol::Iscsi && pdu[0] == opcode::LOGIN_RESPONSE {
            digests.learn(pdu);
        }
        Some(length)
    }

    /// Takes so many bytes off the front.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let taken = self.bytes[self.start..self.start + length].to_vec();
        self.start += length;
        taken
    }
}

fn iscsi_length(bytes: &[u8], digests: &Digests) -> Option<usize> {
    let bhs = bytes.get(..BHS_LENGTH)?;
    let data = usize::try_from(u32::from_be_bytes([0, bhs[5], bhs[6], bhs[7]])).ok()?;
    let header = BHS_LENGTH + 4 * usize::from(bhs[4]) + digests.header();
    let data = match data {
        0 => 0,
        data => data.next_multiple_of(4) + digests.data(),
    };
    Some(header + data)
}

fn nvme_length(bytes: &[u8]) -> Option<usize> {
    const COMMON_HEADER: usize = 8;
    let header = bytes.get(..COMMON_HEADER)?;
    let plen = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    // A length that lies must not hold the relay up.
    Some(usize::try_from(plen).ok()?.max(COMMON_HEADER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::Pdu;

    fn login_response(keys: &[u8], flags: u8) -> Vec<u8> {
        let mut pdu = Pdu::new(opcode::LOGIN_RESPONSE).with_data(keys);
        pdu.bhs[1] = flags;
        let mut bytes = pdu.bhs.to_vec();
        bytes.extend(&pdu.data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn an_iscsi_pdu_ends_behind_its_additional_headers_and_padded_data() {
        let digests = Digests::default();
        let mut framing = Framing::new(Protocol::Iscsi);
        let mut pdu = Pdu::new(opcode::SCSI_COMMAND).with_data(&[1; 5]);
        pdu.bhs[4] = 2;
        framing.push(&pdu.bhs);
        assert_eq!(framing.next(&digests), None);
        framing.push(&[0; 8 + 7]);
        assert_eq!(framing.next(&digests), None);
        framing.push(&[0; 3]);
        assert_eq!(framing.next(&digests), Some(48 + 8 + 8));
        assert_eq!(framing.take(64).len(), 64);
        assert_eq!(framing.len(), 2);
    }

    #[test]
    fn digests_count_from_the_end_of_the_login_on() {
        let digests = Digests::default();
        let mut framing = Framing::new(Protocol::Iscsi);
        let first = login_response(b"HeaderDigest=CRC32C\0DataDigest=CRC32C\0", 0x04);
        let last = login_response(b"MaxBurstLength=512\0", 0x87);
        for response in [&first, &last] {
            framing.push(response);
            assert_eq!(framing.next(&digests), Some(response.len()));
            framing.take(response.len());
        }
        let pdu = Pdu::new(opcode::DATA_IN).with_data(&[0; 512]);
        framing.push(&pdu.bhs);
        framing.push(&[0; 4 + 512 + 4]);
        assert_eq!(framing.next(&digests), Some(48 + 4 + 512 + 4));
        framing.take(568);
        framing.push(&Pdu::new(opcode::SCSI_RESPONSE).bhs);
        framing.push(&[0; 4]);
        assert_eq!(framing.next(&digests), Some(52));
    }

    #[test]
    fn refused_digests_do_not_count() {
        let digests = Digests::default();
        let mut framing = Framing::new(Protocol::Iscsi);
        framing.push(&login_response(
            b"HeaderDigest=None\0DataDigest=None\0",
            0x87,
        ));
        let length = framing.next(&digests).unwrap();
        framing.take(length);
        framing.push(&Pdu::new(opcode::NOP_IN).bhs);
        assert_eq!(framing.next(&digests), Some(48));
    }

    #[test]
    fn an_nvme_pdu_ends_where_plen_says() {
        let digests = Digests::default();
        let mut framing = Framing::new(Protocol::NvmeTcp);
        framing.push(&[4, 0, 72, 0, 76, 0, 0]);
        assert_eq!(framing.next(&digests), None);
        framing.push(&[0; 69]);
        assert_eq!(framing.next(&digests), Some(76));
    }
}
