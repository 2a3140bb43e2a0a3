//! The worldwide names of a disk that was given some: by SCSI and by NVMe.
//!
//! What was not given follows from another name, or from the UUID of the volume.

use std::fmt;
use std::str::FromStr;

use crate::naa::Naa;

/// An identifier of a namespace, big-endian (NVMe base 2.0 §4.7.1). All zeros: the namespace has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceName<const LENGTH: usize>(pub [u8; LENGTH]);

/// Namespace Globally Unique Identifier.
pub type Nguid = NamespaceName<16>;

/// IEEE Extended Unique Identifier of 64 bits.
pub type Eui64 = NamespaceName<8>;

/// The text of an identifier that a namespace does not have.
const NONE: &str = "none";

/// Why a text is not an identifier of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceNameError {
    #[error("{0:?} is not a hexadecimal digit")]
    Digit(char),
    #[error("it has {found} hexadecimal digits in place of {expected}")]
    Length {
        /// Digits that there are to be.
        expected: usize,
        /// Hexadecimal digits of the text, separators left out.
        found: usize,
    },
}

impl<const LENGTH: usize> NamespaceName<LENGTH> {
    /// The identifier; `None`: the namespace has none.
    #[must_use]
    pub fn given(self) -> Option<[u8; LENGTH]> {
        (self.0 != [0; LENGTH]).then_some(self.0)
    }
}

impl<const LENGTH: usize> FromStr for NamespaceName<LENGTH> {
    type Err = NamespaceNameError;

    /// Hexadecimal digits, perhaps behind `eui.` or `0x`, perhaps with `-` between them; or `none`.
    fn from_str(text: &str) -> Result<Self, NamespaceNameError> {
        let lower = text.to_ascii_lowercase();
        if lower == NONE {
            return Ok(Self([0; LENGTH]));
        }
        let digits = lower
            .strip_prefix("eui.")
            .or_else(|| lower.strip_prefix("0x"))
            .unwrap_or(&lower);
        let mut bytes = [0; LENGTH];
        let mut found = 0;
        for digit in digits.chars().filter(|digit| *digit != '-') {
            let value = digit
                .to_digit(16)
                .and_then(|value| u8::try_from(value).ok());
            let value = value.ok_or(NamespaceNameError::Digit(digit))?;
            if let Some(byte) = bytes.get_mut(found / 2) {
                *byte = *byte << 4 | value;
            }
            found += 1;
        }
        let expected = 2 * LENGTH;
        match found == expected {
            true => Ok(Self(bytes)),
            false => Err(NamespaceNameError::Length { expected, found }),
        }
    }
}

impl<const LENGTH: usize> fmt::Display for NamespaceName<LENGTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.given() else {
            return f.write_str(NONE);
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Names that a volume was given. `None`: derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldwideNames {
    pub naa: Option<Naa>,
    pub nguid: Option<Nguid>,
    pub eui64: Option<Eui64>,
}

impl WorldwideNames {
    /// The NAA designator: the one given, or one of the UUID.
    #[must_use]
    pub fn naa(&self, uuid: &[u8; 16]) -> Naa {
        self.naa.unwrap_or_else(|| Naa::locally_administered(uuid))
    }

    /// The NGUID: the one given, the one that follows from the NAA designator, or one of the UUID. We own no OUI, so the
    /// company identifier of the latter has the U/L bit set ("locally administered"): no registered one looks like it.
    /// All other bits come from the UUID.
    #[must_use]
    pub fn nguid(&self, uuid: &[u8; 16]) -> Option<[u8; 16]> {
        if let Some(nguid) = self.nguid {
            return nguid.given();
        }
        if let Some(nguid) = self.naa.and_then(|naa| naa.nguid()) {
            return Some(nguid);
        }
        // 8 bytes of vendor specific extension, then a company identifier of 3 and 5 more.
        let mut nguid = *uuid;
        nguid[8] = nguid[8] & !0b11 | 0b10;
        Some(nguid)
    }

    /// The EUI-64: the one given, or the one that follows from the NAA designator.
    #[must_use]
    pub fn eui64(&self) -> Option<[u8; 8]> {
        match self.eui64 {
            Some(eui64) => eui64.given(),
            None => self.naa.and_then(|naa| naa.eui64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_as_tools_show_them() {
        let digits = "0123456789abcdef0014050aaaabbbbb";
        for text in [
            digits,
            "0x0123456789ABCDEF0014050AAAABBBBB",
            "eui.0123456789abcdef0014050aaaabbbbb",
            "01234567-89ab-cdef-0014-050aaaabbbbb",
        ] {
            assert_eq!(text.parse::<Nguid>().unwrap().to_string(), digits);
        }
        let none: Eui64 = "none".parse().unwrap();
        assert_eq!((none.given(), none.to_string()), (None, "none".to_owned()));
        assert_eq!("0000000000000000".parse::<Eui64>().unwrap(), none);
    }

    #[test]
    fn what_is_no_identifier_is_refused_with_its_reason() {
        for (text, expected) in [
            ("", "it has 0 hexadecimal digits in place of 16"),
            ("nobody", "'n' is not a hexadecimal digit"),
            ("0014050aaaabbbb", "it has 15"),
            ("0014050aaaabbbbb0", "it has 17"),
            ("é014050aaaabbbbb", "'é' is not"),
        ] {
            let error = text.parse::<Eui64>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_that_was_given_comes_before_one_that_follows() {
        let uuid = [0x11; 16];
        let derived = WorldwideNames::default();
        assert_eq!(derived.nguid(&uuid).unwrap()[8], 0x12);
        assert_eq!(derived.eui64(), None);
        let six = WorldwideNames {
            naa: "6001405aaaabbbbb0123456789abcdef".parse().ok(),
            eui64: "0014050aaaabbbbb".parse().ok(),
            ..derived
        };
        assert_eq!(six.nguid(&uuid).unwrap()[..2], [0x01, 0x23]);
        assert_eq!(six.eui64().unwrap()[..3], [0x00, 0x14, 0x05]);
        let none = WorldwideNames {
            nguid: "none".parse().ok(),
            eui64: "none".parse().ok(),
            naa: "5001405aaaabbbbb".parse().ok(),
        };
        assert_eq!((none.nguid(&uuid), none.eui64()), (None, None));
    }
}
