//! NAA identifiers: worldwide names of disks, and the names of NVMe that follow from them.
//!
//! ```text
//!         bits  4    24      36                     64
//! NAA 3        3h   locally assigned: 60
//! NAA 5        5h   OUI     vendor specific
//! NAA 6        6h   OUI     vendor specific        vendor specific extension     (SPC-4 §7.8.6.6)
//!
//! EUI-64            OUI     0h, vendor specific: 40
//! NGUID             extension: 64   OUI   0h, vendor specific: 40                (NVMe base 2.0 §4.7.1)
//! ```
//!
//! A company that owns an OUI gives each number behind it to one disk, so an EUI-64 or NGUID with the same OUI and
//! the same numbers names that disk too. NAA 3 has no OUI, so nothing follows from it.

use std::fmt;
use std::str::FromStr;

/// A designator of type NAA, of 8 or 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Naa {
    bytes: [u8; 16],
    length: usize,
}

/// Why a text is not an NAA identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NaaError {
    #[error("{0:?} is not a hexadecimal digit")]
    Digit(char),
    #[error("it is empty")]
    Empty,
    /// A first digit that is not 3, 5 or 6.
    #[error("it begins with {0}; this server knows types 3, 5 and 6")]
    Type(char),
    #[error("type {naa} has {expected} hexadecimal digits, this has {found}")]
    Length {
        /// The NAA type, which is the first digit: 3, 5 or 6.
        naa: char,
        /// Digits of that type.
        expected: usize,
        /// Hexadecimal digits of the text, separators left out.
        found: usize,
    },
}

impl Naa {
    /// The name of a disk of which only a UUID is known. We own no OUI, so the company identifier is one with the
    /// U/L bit set ("locally administered"): no registered one looks like it. All other bits come from the UUID.
    #[must_use]
    pub fn locally_administered(uuid: &[u8; 16]) -> Self {
        let mut bytes = *uuid;
        // The type takes the upper half of byte 0; the company identifier starts in the lower one, so its U/L bit
        // (bit 1 of its first byte) is bit 5 of byte 1, and the group bit is bit 4.
        bytes[0] = 0x60 | (uuid[0] & 0x0f);
        bytes[1] = (uuid[1] & !0x30) | 0x20;
        Self { bytes, length: 16 }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The EUI-64 that follows from NAA 5.
    #[must_use]
    pub fn eui64(&self) -> Option<[u8; 8]> {
        (self.bytes[0] >> 4 == 5).then(|| self.company_and_number())
    }

    /// The NGUID that follows from NAA 6.
    #[must_use]
    pub fn nguid(&self) -> Option<[u8; 16]> {
        (self.bytes[0] >> 4 == 6).then(|| {
            let mut nguid = [0; 16];
            nguid[..8].copy_from_slice(&self.bytes[8..]);
            nguid[8..].copy_from_slice(&self.company_and_number());
            nguid
        })
    }

    /// OUI, four bits of zero, vendor specific identifier.
    fn company_and_number(&self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes;
        let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let company = (word >> 36) & 0x00ff_ffff;
        let number = word & 0xf_ffff_ffff;
        (company << 40 | number).to_be_bytes()
    }
}

impl FromStr for Naa {
    type Err = NaaError;

    /// Hexadecimal digits, perhaps behind `naa.` or `0x`.
    fn from_str(text: &str) -> Result<Self, NaaError> {
        let lower = text.to_ascii_lowercase();
        let digits = lower
            .strip_prefix("naa.")
            .or_else(|| lower.strip_prefix("0x"))
            .unwrap_or(&lower);
        if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(NaaError::Digit(other));
        }
        let naa = digits.chars().next().ok_or(NaaError::Empty)?;
        let expected = match naa {
            '3' | '5' => 16,
            '6' => 32,
            other => return Err(NaaError::Type(other)),
        };
        let found = digits.len();
        if found != expected {
            return Err(NaaError::Length {
                naa,
                expected,
                found,
            });
        }
        let mut bytes = [0; 16];
        for (at, digit) in digits.chars().enumerate() {
            let value = digit
                .to_digit(16)
                .and_then(|value| u8::try_from(value).ok());
            bytes[at / 2] = bytes[at / 2] << 4 | value.unwrap_or(0);
        }
        Ok(Self {
            bytes,
            length: expected / 2,
        })
    }
}

impl fmt::Display for Naa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naa(text: &str) -> Naa {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn designators_are_read_and_shown_in_hexadecimal() {
        for (written, shown) in [
            ("naa.50014EE20CAFE123", "50014ee20cafe123"),
            ("0x3123456789abcdef", "3123456789abcdef"),
            (
                "6001405123456789abcdef0123456789",
                "6001405123456789abcdef0123456789",
            ),
        ] {
            assert_eq!(naa(written).to_string(), shown);
        }
        assert_eq!(naa("3123456789abcdef").as_bytes().len(), 8);
    }

    #[test]
    fn what_is_no_designator_is_refused_with_its_reason() {
        for (text, expected) in [
            ("", "it is empty"),
            ("naa.", "it is empty"),
            ("5001 4ee20cafe123", "' ' is not a hexadecimal digit"),
            ("5001é", "'é' is not a hexadecimal digit"),
            ("2001405123456789", "it begins with 2"),
            ("50014ee2", "type 5 has 16 hexadecimal digits, this has 8"),
            ("6001405123456789", "type 6 has 32"),
        ] {
            let error = text.parse::<Naa>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_names_of_nvme_keep_company_and_numbers() {
        let five = naa("5001405aaaabbbbb");
        assert_eq!(
            five.eui64(),
            Some([0x00, 0x14, 0x05, 0x0a, 0xaa, 0xab, 0xbb, 0xbb])
        );
        assert_eq!(five.nguid(), None);
        let six = naa("6001405aaaabbbbb0123456789abcdef");
        assert_eq!(
            six.nguid(),
            Some([
                0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x00, 0x14, 0x05, 0x0a, 0xaa, 0xab,
                0xbb, 0xbb
            ])
        );
        assert_eq!(six.eui64(), None);
        let three = naa("3123456789abcdef");
        assert_eq!((three.eui64(), three.nguid()), (None, None));
    }

    #[test]
    fn a_uuid_gives_a_locally_administered_name() {
        let naa = Naa::locally_administered(&[0xff; 16]);
        assert_eq!(naa.to_string(), "6fefffffffffffffffffffffffffffff");
    }
}
