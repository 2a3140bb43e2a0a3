//! The Basic Header Segment: 48 bytes that start every PDU (RFC 7143 §11.2.1).
//!
//! ```text
//! Byte/     0       |       1       |       2       |       3       |
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| Opcode    |F| Opcode-specific fields                      |
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Opcode-specific fields                                 |
//!   12|                                                               |
//!   16| Initiator Task Tag                                            |
//!   20/ Opcode-specific fields                                        /
//!   48
//! ```
//!
//! Integers are big endian. Reserved bits are ignored when received (§11) and sent as zero.

use std::fmt;

use longshore_wire::field;

pub const BHS_LENGTH: usize = 48;

/// Largest value of DataSegmentLength, a 24-bit field.
pub const DATA_SEGMENT_LENGTH_MAX: u32 = (1 << 24) - 1;

/// A header as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_LENGTH]);

impl Bhs {
    /// A header of zeros but for its first byte.
    #[inline]
    #[must_use]
    pub const fn new(opcode: Opcode) -> Self {
        let mut bytes = [0; BHS_LENGTH];
        bytes[0] = opcode.0;
        Self(bytes)
    }

    /// What kind of PDU this is, without the I bit.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.0[0] & 0x3f)
    }

    /// The I bit: the request is for immediate delivery (§11.2.1.1).
    #[inline]
    #[must_use]
    pub const fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Bytes of additional header segments; the field counts words of four.
    #[inline]
    #[must_use]
    pub fn total_ahs_length_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Stores the bytes of additional header segments.
    ///
    /// # Panics
    /// When `bytes` is no multiple of four or beyond 1020.
    pub fn set_total_ahs_length_bytes(&mut self, bytes: usize) {
        assert_eq!(bytes % 4, 0, "header segments are padded to words");
        self.0[4] = u8::try_from(bytes / 4).expect("at most 255 words of additional headers");
    }

    /// Bytes of payload in the data segment, without padding.
    #[inline]
    #[must_use]
    pub fn data_segment_length(&self) -> u32 {
        field::be24(&self.0, 5)
    }

    /// Stores the bytes of payload in the data segment.
    ///
    /// # Panics
    /// When `length` is beyond [`DATA_SEGMENT_LENGTH_MAX`].
    #[inline]
    pub fn set_data_segment_length(&mut self, length: u32) {
        field::set_be24(&mut self.0, 5, length);
    }

    /// Whether any bit of `mask` is set in the byte at `at`.
    #[inline]
    pub(crate) const fn bit(&self, at: usize, mask: u8) -> bool {
        self.0[at] & mask != 0
    }

    /// Sets the bits of `mask` in the byte at `at`.
    #[inline]
    pub(crate) const fn set_bit(&mut self, at: usize, mask: u8, on: bool) {
        if on {
            self.0[at] |= mask;
        }
    }

    /// The number in the bits of `mask` of the byte at `at`.
    #[inline]
    pub(crate) const fn bits(&self, at: usize, mask: u8) -> u8 {
        (self.0[at] & mask) >> mask.trailing_zeros()
    }

    /// Stores a number in the bits of `mask`, which are zero so far.
    #[inline]
    pub(crate) const fn set_bits(&mut self, at: usize, mask: u8, value: u8) {
        self.0[at] |= (value << mask.trailing_zeros()) & mask;
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bhs(")?;
        for word in self.0.chunks(4) {
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            write!(f, " ")?;
        }
        write!(f, "{:?})", self.opcode())
    }
}

/// Bytes that fill a segment up to a whole word (RFC 7143 §11.1).
#[inline]
#[must_use]
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// A value at a byte offset of the header.
pub(crate) trait Field: Sized {
    /// Reads the field that begins at byte `at`, in network byte order.
    fn get(bhs: &Bhs, at: usize) -> Self;
    /// Stores the field at byte `at`, in network byte order.
    fn put(self, bhs: &mut Bhs, at: usize);
}

impl Field for u8 {
    #[inline]
    fn get(bhs: &Bhs, at: usize) -> Self {
        bhs.0[at]
    }

    #[inline]
    fn put(self, bhs: &mut Bhs, at: usize) {
        bhs.0[at] = self;
    }
}

impl Field for u16 {
    #[inline]
    fn get(bhs: &Bhs, at: usize) -> Self {
        field::be16(&bhs.0, at)
    }

    #[inline]
    fn put(self, bhs: &mut Bhs, at: usize) {
        field::set_be16(&mut bhs.0, at, self);
    }
}

impl Field for u32 {
    #[inline]
    fn get(bhs: &Bhs, at: usize) -> Self {
        field::be32(&bhs.0, at)
    }

    #[inline]
    fn put(self, bhs: &mut Bhs, at: usize) {
        field::set_be32(&mut bhs.0, at, self);
    }
}

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn get(bhs: &Bhs, at: usize) -> Self {
        field::bytes(&bhs.0, at)
    }

    #[inline]
    fn put(self, bhs: &mut Bhs, at: usize) {
        field::set_bytes(&mut bhs.0, at, self);
    }
}

/// Declares a number of one byte whose named values are not all there can be.
///
/// An unknown value survives decoding and prints in hexadecimal; the machine refuses it.
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
        pub struct $name(
            /// The number as it travels.
            pub u8,
        );

        impl $name {
            $($(#[$vmeta])* pub const $value: Self = Self($number);)*
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($value)),)*
                    unknown => write!(f, concat!(stringify!($name), "({:#04x})"), unknown),
                }
            }
        }

        impl $crate::pdu::bhs::Field for $name {
            #[inline]
            fn get(bhs: &$crate::pdu::bhs::Bhs, at: usize) -> Self {
                Self(bhs.0[at])
            }

            #[inline]
            fn put(self, bhs: &mut $crate::pdu::bhs::Bhs, at: usize) {
                bhs.0[at] = self.0;
            }
        }
    };
}
pub(crate) use open_enum;

open_enum! {
    /// Kind of a PDU (RFC 7143 §11.2.1.2): initiators send those below 0x20, targets the others.
    Opcode {
        NOP_OUT = 0x00,
        SCSI_COMMAND = 0x01,
        TASK_MANAGEMENT_REQUEST = 0x02,
        LOGIN_REQUEST = 0x03,
        TEXT_REQUEST = 0x04,
        DATA_OUT = 0x05,
        LOGOUT_REQUEST = 0x06,
        SNACK_REQUEST = 0x10,
        NOP_IN = 0x20,
        SCSI_RESPONSE = 0x21,
        TASK_MANAGEMENT_RESPONSE = 0x22,
        LOGIN_RESPONSE = 0x23,
        TEXT_RESPONSE = 0x24,
        DATA_IN = 0x25,
        LOGOUT_RESPONSE = 0x26,
        R2T = 0x31,
        ASYNC_MESSAGE = 0x32,
        REJECT = 0x3f,
    }
}

/// Declares a PDU by the table of its header fields; decoding and encoding follow from it.
///
/// Each line gives a field's name, type and place: `at N` is a value starting at byte N, `bit N M`
/// a flag, `bits N M` a number in the bits of mask M in byte N. The constant after the opcode holds
/// the bits of byte 1 that are always one. Lengths belong to the framing, not to the PDU.
macro_rules! pdu {
    (
        $(#[$meta:meta])*
        $name:ident, $opcode:ident, $byte1:literal {
            $($(#[$fmeta:meta])* $field:ident: $type:ty, $kind:ident $at:literal $($mask:literal)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $type,)*
        }

        impl $name {
            /// What the first byte of its header says, without the I bit.
            pub const OPCODE: $crate::pdu::Opcode = $crate::pdu::Opcode::$opcode;

            /// Reads the fields out of a header of this kind. Reserved fields are ignored.
            #[inline]
            #[must_use]
            pub fn decode(bhs: &$crate::pdu::Bhs) -> Self {
                debug_assert_eq!(bhs.opcode(), Self::OPCODE);
                Self {
                    $($field: $crate::pdu::bhs::pdu!(@get bhs, $type, $kind $at $($mask)?),)*
                }
            }

            /// The header, with both lengths zero.
            #[inline]
            #[must_use]
            pub fn encode(&self) -> $crate::pdu::Bhs {
                let mut bhs = $crate::pdu::Bhs::new(Self::OPCODE);
                bhs.0[1] = $byte1;
                $($crate::pdu::bhs::pdu!(@put bhs, self.$field, $kind $at $($mask)?);)*
                bhs
            }
        }

        #[cfg(test)]
        impl $crate::pdu::tests::Header for $name {
            fn decode(bhs: &$crate::pdu::Bhs) -> Self {
                Self::decode(bhs)
            }

            fn encode(&self) -> $crate::pdu::Bhs {
                self.encode()
            }
        }
    };
    (@get $bhs:ident, $type:ty, at $at:literal) => {
        <$type as $crate::pdu::bhs::Field>::get($bhs, $at)
    };
    (@get $bhs:ident, $type:ty, bit $at:literal $mask:literal) => { $bhs.bit($at, $mask) };
    (@get $bhs:ident, $type:ty, bits $at:literal $mask:literal) => {
        <$type>::from_bits($bhs.bits($at, $mask))
    };
    (@put $bhs:ident, $value:expr, at $at:literal) => {
        $crate::pdu::bhs::Field::put($value, &mut $bhs, $at)
    };
    (@put $bhs:ident, $value:expr, bit $at:literal $mask:literal) => {
        $bhs.set_bit($at, $mask, $value)
    };
    (@put $bhs:ident, $value:expr, bits $at:literal $mask:literal) => {
        $bhs.set_bits($at, $mask, $value.to_bits())
    };
}
pub(crate) use pdu;

/// Declares a number narrower than a byte whose named values are not all there can be.
macro_rules! open_bits {
    ($(#[$meta:meta])* $name:ident($max:literal) { $($(#[$vmeta:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        #[cfg(test)]
        impl ::proptest::arbitrary::Arbitrary for $name {
            type Parameters = ();
            type Strategy = ::proptest::strategy::BoxedStrategy<Self>;

            fn arbitrary_with((): ()) -> Self::Strategy {
                use ::proptest::strategy::Strategy as _;
                (0_u8..=$max).prop_map(Self).boxed()
            }
        }

        impl $name {
            $($(#[$vmeta])* pub const $value: Self = Self($number);)*

            /// Keeps the bits the field has.
            #[inline]
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits & $max)
            }

            /// The number as it travels.
            #[inline]
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($value)),)*
                    unknown => write!(f, concat!(stringify!($name), "({:#04x})"), unknown),
                }
            }
        }
    };
}
pub(crate) use open_bits;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_where_the_drawing_shows_them() {
        let mut bhs = Bhs::new(Opcode::SCSI_COMMAND);
        bhs.set_total_ahs_length_bytes(8);
        bhs.set_data_segment_length(0x01_0203);
        assert_eq!(bhs.0[..8], [0x01, 0, 0, 0, 2, 1, 2, 3]);
        assert_eq!(bhs.total_ahs_length_bytes(), 8);
        assert_eq!(bhs.data_segment_length(), 0x01_0203);
    }

    #[test]
    fn the_opcode_does_not_include_the_flag_bits() {
        let bhs = Bhs([0xc1; BHS_LENGTH]);
        assert_eq!(bhs.opcode(), Opcode::SCSI_COMMAND);
        assert!(bhs.immediate());
        assert!(!Bhs([0xbf; BHS_LENGTH]).immediate());
    }

    #[test]
    fn padding_reaches_the_next_word() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    }

    #[test]
    fn an_unknown_opcode_prints_in_hexadecimal() {
        assert_eq!(format!("{:?}", Opcode(0x1c)), "Opcode(0x1c)");
        assert_eq!(format!("{:?}", Opcode::R2T), "R2T");
    }
}
