//! iSCSI TransportIDs (SPC-4 §7.6.4.6): initiator ports named in parameter data.
//!
//! ```text
//!  0      TPID FORMAT (7..6) | PROTOCOL IDENTIFIER 5h (3..0)
//!  1      reserved
//!  2..3   ADDITIONAL LENGTH: a multiple of 4, at least 20
//!  4..    format 00b: iSCSI name, zero, zero padding
//!         format 01b: iSCSI name ",i,0x" ISID in hexadecimal, zero, zero padding
//! ```

use longshore_wire::Reader;

use super::NexusIdentity;

/// Longest iSCSI name (RFC 7143 §4.2.7.1).
const MAX_NAME_LENGTH: usize = 223;
const PROTOCOL_ISCSI: u8 = 5;
const SEPARATOR: &str = ",i,0x";

/// An initiator port, or with format 00b all ports of an initiator device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportId {
    /// iSCSI name in lower case.
    pub initiator_name: String,
    /// Initiator session identifier, unless the whole device is meant.
    pub isid: Option<[u8; 6]>,
}

/// The bytes are no iSCSI TransportID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransportId;

impl TransportId {
    /// Takes one TransportID off a list.
    ///
    /// # Errors
    /// Another protocol, a length that is too short, no multiple of 4 or more than there is, or a
    /// name that cannot be one.
    pub fn decode(list: &mut Reader<'_>) -> Result<Self, InvalidTransportId> {
        let [format_and_protocol, _, high, low] = list.array().map_err(|_| InvalidTransportId)?;
        let additional_length = u16::from_be_bytes([high, low]);
        if format_and_protocol & 0x0f != PROTOCOL_ISCSI
            || additional_length < 20
            || additional_length % 4 != 0
        {
            return Err(InvalidTransportId);
        }
        let name = list
            .take(usize::from(additional_length))
            .map_err(|_| InvalidTransportId)?;
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(InvalidTransportId)?;
        let name = std::str::from_utf8(&name[..end]).map_err(|_| InvalidTransportId)?;
        match format_and_protocol >> 6 {
            0 => Self::new(name, None),
            1 => {
                let (name, isid) = name.rsplit_once(SEPARATOR).ok_or(InvalidTransportId)?;
                Self::new(name, Some(decode_isid(isid)?))
            }
            _ => Err(InvalidTransportId),
        }
    }

    fn new(name: &str, isid: Option<[u8; 6]>) -> Result<Self, InvalidTransportId> {
        let plausible = !name.contains(|c: char| c == ',' || c.is_control() || c.is_whitespace());
        if !plausible || name.is_empty() || name.len() > MAX_NAME_LENGTH {
            return Err(InvalidTransportId);
        }
        Ok(Self {
            initiator_name: name.to_lowercase(),
            isid,
        })
    }

    /// Whether a registrant or nexus comes from this port, or from this device.
    pub fn matches(&self, identity: &NexusIdentity) -> bool {
        match identity {
            NexusIdentity::Iscsi {
                initiator_name,
                isid,
                ..
            } => {
                *initiator_name == self.initiator_name
                    && self.isid.is_none_or(|wanted| wanted == *isid)
            }
            NexusIdentity::NvmeHost { .. } => false,
        }
    }
}

fn decode_isid(digits: &str) -> Result<[u8; 6], InvalidTransportId> {
    if digits.len() != 12 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(InvalidTransportId);
    }
    let value = u64::from_str_radix(digits, 16).map_err(|_| InvalidTransportId)?;
    let [_, _, isid @ ..] = value.to_be_bytes();
    Ok(isid)
}

/// Appends the format 01b TransportID of an initiator port.
pub fn encode_initiator_port(initiator_name: &str, isid: [u8; 6], out: &mut Vec<u8>) {
    use std::fmt::Write as _;

    let mut name = String::with_capacity(initiator_name.len() + SEPARATOR.len() + 12);
    name.push_str(initiator_name);
    name.push_str(SEPARATOR);
    for byte in isid {
        write!(name, "{byte:02x}").expect("writing to a String cannot fail");
    }
    // At least one terminating zero.
    let length = (name.len() + 1).next_multiple_of(4).max(20);
    let field = u16::try_from(length).expect("iSCSI names have at most 223 bytes");
    out.extend_from_slice(&[0x40 | PROTOCOL_ISCSI, 0]);
    out.extend_from_slice(&field.to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.resize(out.len() + length - name.len(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_port_is_encoded_byte_exact() {
        let mut bytes = Vec::new();
        encode_initiator_port("iqn.2026-11.a:b", [0x80, 0, 0, 0x01, 0, 0xab], &mut bytes);
        assert_eq!(bytes[..4], [0x45, 0, 0, 36]);
        assert_eq!(&bytes[4..], b"iqn.2026-11.a:b,i,0x8000000100ab\0\0\0\0");
    }

    #[test]
    fn a_device_name_has_no_isid_and_matches_all_its_ports() {
        let mut bytes = vec![0x05, 0, 0, 20];
        bytes.extend_from_slice(b"iqn.2026-11.A:b\0\0\0\0\0");
        let id = TransportId::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(
            id,
            TransportId {
                initiator_name: "iqn.2026-11.a:b".into(),
                isid: None
            }
        );
        for last in 0..3 {
            assert!(id.matches(&NexusIdentity::Iscsi {
                initiator_name: "iqn.2026-11.a:b".into(),
                isid: [0, 0, 0, 0, 0, last],
                relative_target_port: 1,
            }));
        }
        assert!(!id.matches(&NexusIdentity::NvmeHost {
            host_identifier: [0; 16]
        }));
    }

    #[test]
    fn malformed_ids_are_refused() {
        let good = {
            let mut bytes = Vec::new();
            encode_initiator_port("iqn.2026-11.a:b", [1; 6], &mut bytes);
            bytes
        };
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            TransportId::decode(&mut Reader::new(&bytes)).is_err()
        };
        assert!(!refused(&|_| {}));
        assert!(refused(&|bytes| bytes[0] = 0x46), "another protocol");
        assert!(refused(&|bytes| bytes[0] = 0x85), "unknown format");
        assert!(refused(&|bytes| bytes[3] = 34), "length no multiple of 4");
        assert!(refused(&|bytes| bytes[3] = 16), "length too short");
        assert!(
            refused(&|bytes| bytes.truncate(30)),
            "length beyond the end"
        );
        assert!(refused(&|bytes| bytes[36..].fill(b'x')), "no terminator");
        assert!(refused(&|bytes| bytes[20] = b'x'), "no separator");
        assert!(
            refused(&|bytes| bytes[30] = b'g'),
            "ISID is not hexadecimal"
        );
        assert!(refused(&|bytes| bytes[4] = 0), "no name");
    }

    proptest! {
        #[test]
        fn every_port_comes_back(name in "iqn\\.[a-z0-9.:-]{1,219}", isid: [u8; 6]) {
            let mut bytes = Vec::new();
            encode_initiator_port(&name, isid, &mut bytes);
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut list = Reader::new(&bytes);
            let id = TransportId::decode(&mut list).unwrap();
            prop_assert!(list.is_empty());
            prop_assert_eq!(id, TransportId { initiator_name: name, isid: Some(isid) });
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = TransportId::decode(&mut Reader::new(&bytes));
        }
    }
}
