//! Logical unit numbers (SAM-5 §4.7).

use std::fmt;

/// The eight bytes of a logical unit number as they travel.
///
/// Numbers below 256 use the peripheral device addressing method, larger ones (up to 16,383) the
/// flat space method; both address the first level only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// The largest number [`Lun::from_number`] takes.
    pub const MAX_NUMBER: u16 = 0x3fff;

    /// REPORT LUNS well known logical unit (not served; for comparison).
    pub const REPORT_LUNS: Self = Self([0xc1, 0x01, 0, 0, 0, 0, 0, 0]);

    /// The LUN of a single-level number; `None` beyond [`Lun::MAX_NUMBER`].
    pub fn from_number(number: u16) -> Option<Self> {
        let [high, low] = number.to_be_bytes();
        match number {
            0..=0xff => Some(Self([0, low, 0, 0, 0, 0, 0, 0])),
            0x100..=Self::MAX_NUMBER => Some(Self([0x40 | high, low, 0, 0, 0, 0, 0, 0])),
            _ => None,
        }
    }

    /// The number of a single-level LUN in either addressing method.
    pub fn number(self) -> Option<u16> {
        let [first, second, rest @ ..] = self.0;
        if rest != [0; 6] {
            return None;
        }
        match first >> 6 {
            0 if first == 0 => Some(u16::from(second)),
            1 => Some(u16::from_be_bytes([first & 0x3f, second])),
            _ => None,
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "LUN {number}"),
            None => write!(f, "LUN {:#018x}", u64::from_be_bytes(self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_from_its_lun() {
        for number in 0..=Lun::MAX_NUMBER {
            assert_eq!(Lun::from_number(number).and_then(Lun::number), Some(number));
        }
        assert_eq!(Lun::from_number(Lun::MAX_NUMBER + 1), None);
    }

    #[test]
    fn flat_space_names_small_numbers_too() {
        assert_eq!(Lun([0x40, 7, 0, 0, 0, 0, 0, 0]).number(), Some(7));
    }

    #[test]
    fn other_levels_and_methods_have_no_number() {
        assert_eq!(Lun::REPORT_LUNS.number(), None);
        assert_eq!(Lun([0, 1, 0, 1, 0, 0, 0, 0]).number(), None);
        assert_eq!(Lun([1, 1, 0, 0, 0, 0, 0, 0]).number(), None);
    }
}
