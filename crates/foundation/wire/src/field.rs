//! Integers at fixed offsets of a fixed-size header.
//!
//! The header is an array, so that with a constant offset the bounds check happens while compiling.
//! An offset beyond the array is a programming error and panics.

/// Copies `M` bytes at `at`.
#[inline]
#[must_use]
pub fn bytes<const N: usize, const M: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    let mut field = [0; M];
    field.copy_from_slice(&header[at..at + M]);
    field
}

/// Overwrites `M` bytes at `at`.
#[inline]
pub fn set_bytes<const N: usize, const M: usize>(header: &mut [u8; N], at: usize, field: [u8; M]) {
    header[at..at + M].copy_from_slice(&field);
}

macro_rules! integers {
    ($($get:ident $set:ident $type:ty, $from:ident, $to:ident, $name:literal;)*) => {$(
        #[doc = concat!("The ", $name, " integer at `at`.")]
        #[inline]
        #[must_use]
        pub fn $get<const N: usize>(header: &[u8; N], at: usize) -> $type {
            <$type>::$from(bytes(header, at))
        }

        #[doc = concat!("Stores a ", $name, " integer at `at`.")]
        #[inline]
        pub fn $set<const N: usize>(header: &mut [u8; N], at: usize, value: $type) {
            set_bytes(header, at, value.$to());
        }
    )*};
}

integers! {
    be16 set_be16 u16, from_be_bytes, to_be_bytes, "16-bit big-endian";
    be32 set_be32 u32, from_be_bytes, to_be_bytes, "32-bit big-endian";
    be64 set_be64 u64, from_be_bytes, to_be_bytes, "64-bit big-endian";
    le16 set_le16 u16, from_le_bytes, to_le_bytes, "16-bit little-endian";
    le32 set_le32 u32, from_le_bytes, to_le_bytes, "32-bit little-endian";
    le64 set_le64 u64, from_le_bytes, to_le_bytes, "64-bit little-endian";
}

/// The 24-bit big-endian integer at `at`.
#[inline]
#[must_use]
pub fn be24<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    let [a, b, c] = bytes(header, at);
    u32::from_be_bytes([0, a, b, c])
}

/// Stores the low 24 bits of `value` at `at`.
///
/// # Panics
/// When `value` does not fit.
#[inline]
pub fn set_be24<const N: usize>(header: &mut [u8; N], at: usize, value: u32) {
    let [zero, a, b, c] = value.to_be_bytes();
    assert_eq!(zero, 0, "{value:#x} does not fit 24 bits");
    set_bytes(header, at, [a, b, c]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_where_they_were_written_and_nowhere_else() {
        let mut header = [0; 12];
        set_be16(&mut header, 0, 0x0102);
        set_be24(&mut header, 3, 0x03_0405);
        set_le32(&mut header, 7, 0x0607_0809);
        assert_eq!(header, [1, 2, 0, 3, 4, 5, 0, 9, 8, 7, 6, 0]);
        assert_eq!(be16(&header, 0), 0x0102);
        assert_eq!(be24(&header, 3), 0x03_0405);
        assert_eq!(le32(&header, 7), 0x0607_0809);
    }

    #[test]
    #[should_panic(expected = "does not fit 24 bits")]
    fn a_value_wider_than_24_bits_is_refused() {
        set_be24(&mut [0; 3], 0, 0x0100_0000);
    }
}
