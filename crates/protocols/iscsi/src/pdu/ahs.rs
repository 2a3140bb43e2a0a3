//! Additional header segments (RFC 7143 §11.2.2).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0| AHSLength                     | AHSType       | AHS-Specific  |
//!    4/ AHS-Specific, padded to a whole word                          /
//! ```
//!
//! AHSLength counts the specific bytes, the one at offset 3 included, without padding. An extended
//! CDB (type 1) has CDB bytes 16 and up from offset 4; a bidirectional read length (type 2) has four
//! bytes there. Other types are reserved; they and a type given twice are errors (§11: "Receipt of
//! reserved code values in defined fields MUST be reported as a protocol error").

use longshore_wire::{OutOfBytes, Reader};
use thiserror::Error;

/// Longest CDB: SAM limits it to 260 bytes.
pub const CDB_LENGTH_MAX: usize = 260;

/// What the additional header segments of a SCSI Command say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdditionalHeaders<'a> {
    /// Bytes of the CDB after its first 16; empty for short ones.
    pub extended_cdb: &'a [u8],
    /// Bytes the initiator expects to read by a bidirectional command.
    pub bidirectional_read_length: Option<u32>,
}

/// Why additional header segments are not understood.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AhsError {
    /// A segment goes on beyond TotalAHSLength.
    #[error("additional header segment is cut short: {0}")]
    CutShort(#[from] OutOfBytes),
    /// A type no standard defines.
    #[error("additional header segment type {0:#04x} is unknown")]
    UnknownType(u8),
    /// A length that its type cannot have.
    #[error("additional header segment type {ahs_type:#04x} cannot have length {length}")]
    Length {
        /// AHSType (RFC 7143 §11.2.2.1): 1 extended CDB, 2 bidirectional read length.
        ahs_type: u8,
        /// AHSLength: bytes of the AHS without AHSType, AHSLength and padding.
        length: u16,
    },
    /// A type that came before.
    #[error("additional header segment type {0:#04x} comes twice")]
    Duplicate(u8),
}

const EXTENDED_CDB: u8 = 1;
const BIDIRECTIONAL_READ_LENGTH: u8 = 2;

impl<'a> AdditionalHeaders<'a> {
    /// Reads all segments of a header; `bytes` are TotalAHSLength words.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AhsError> {
        let mut reader = Reader::new(bytes);
        let mut headers = Self::default();
        while !reader.is_empty() {
            let length = reader.be16()?;
            let ahs_type = reader.u8()? & 0x3f;
            let specific = reader.take(usize::from(length))?;
            reader.take(super::padding(usize::from(length) + 3))?;
            headers.add(ahs_type, length, specific)?;
        }
        Ok(headers)
    }

    fn add(&mut self, ahs_type: u8, length: u16, specific: &'a [u8]) -> Result<(), AhsError> {
        let wrong_length = AhsError::Length { ahs_type, length };
        match ahs_type {
            EXTENDED_CDB => {
                let [_reserved, spillover @ ..] = specific else {
                    return Err(wrong_length);
                };
                if spillover.is_empty() || spillover.len() > CDB_LENGTH_MAX - 16 {
                    return Err(wrong_length);
                }
                if !self.extended_cdb.is_empty() {
                    return Err(AhsError::Duplicate(ahs_type));
                }
                self.extended_cdb = spillover;
            }
            BIDIRECTIONAL_READ_LENGTH => {
                let [_reserved, a, b, c, d] = *specific else {
                    return Err(wrong_length);
                };
                let read_length = u32::from_be_bytes([a, b, c, d]);
                if self
                    .bidirectional_read_length
                    .replace(read_length)
                    .is_some()
                {
                    return Err(AhsError::Duplicate(ahs_type));
                }
            }
            unknown => return Err(AhsError::UnknownType(unknown)),
        }
        Ok(())
    }

    /// The segments as they travel.
    ///
    /// # Panics
    /// When the CDB is longer than [`CDB_LENGTH_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.extended_cdb.is_empty() {
            assert!(
                self.extended_cdb.len() <= CDB_LENGTH_MAX - 16,
                "CDB too long"
            );
            let length = u16::try_from(self.extended_cdb.len() + 1).expect("checked above");
            bytes.extend(length.to_be_bytes());
            bytes.extend([EXTENDED_CDB, 0]);
            bytes.extend(self.extended_cdb);
            bytes.resize(bytes.len() + super::padding(bytes.len()), 0);
        }
        if let Some(read_length) = self.bidirectional_read_length {
            bytes.extend(5_u16.to_be_bytes());
            bytes.extend([BIDIRECTIONAL_READ_LENGTH, 0]);
            bytes.extend(read_length.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_32_byte_cdb_takes_five_words() {
        let spillover: Vec<u8> = (16..32).collect();
        let headers = AdditionalHeaders {
            extended_cdb: &spillover,
            bidirectional_read_length: Some(0x200),
        };
        let mut expected = vec![0, 17, 1, 0];
        expected.extend(&spillover);
        expected.extend([0, 5, 2, 0, 0, 0, 2, 0]);
        assert_eq!(headers.encode(), expected);
        assert_eq!(AdditionalHeaders::decode(&expected), Ok(headers));
    }

    #[test]
    fn a_segment_longer_than_the_header_is_refused() {
        let error = AdditionalHeaders::decode(&[0, 9, 1, 0, 1, 2, 3, 4]).unwrap_err();
        assert_eq!(
            error,
            AhsError::CutShort(OutOfBytes {
                wanted: 9,
                available: 5
            })
        );
    }

    #[test]
    fn unknown_duplicate_and_misshapen_segments_are_refused() {
        let decode = AdditionalHeaders::decode;
        assert_eq!(decode(&[0, 1, 3, 0]), Err(AhsError::UnknownType(3)));
        assert_eq!(decode(&[0, 0, 0, 0]), Err(AhsError::UnknownType(0)));
        let misshapen = AhsError::Length {
            ahs_type: 2,
            length: 1,
        };
        assert_eq!(decode(&[0, 1, 2, 0]), Err(misshapen));
        let twice = [[0, 5, 2, 0, 0, 0, 0, 1]; 2].concat();
        assert_eq!(decode(&twice), Err(AhsError::Duplicate(2)));
    }

    proptest! {
        #[test]
        fn decoding_anything_never_panics(bytes: Vec<u8>) {
            let _ = AdditionalHeaders::decode(&bytes);
        }

        #[test]
        fn segments_decode_to_what_was_encoded(
            spillover in prop::collection::vec(any::<u8>(), 0..=CDB_LENGTH_MAX - 16),
            bidirectional_read_length: Option<u32>,
        ) {
            let headers =
                AdditionalHeaders { extended_cdb: &spillover, bidirectional_read_length };
            let bytes = headers.encode();
            prop_assert_eq!(bytes.len() % 4, 0);
            prop_assert_eq!(AdditionalHeaders::decode(&bytes), Ok(headers));
        }
    }
}
