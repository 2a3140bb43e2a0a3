//! The identifiers and numbers that PDUs carry, each a type of its own.

use std::fmt;

use longshore_wire::{field, serial_number};

use super::bhs::{Bhs, Field};

/// A 32-bit identifier whose all-ones value is reserved (RFC 7143 §11.2.1.8, §11.7.4).
macro_rules! tag {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
        pub struct $name(
            /// The number as it travels.
            pub u32,
        );

        impl $name {
            /// The value that stands for no tag at all.
            pub const RESERVED: Self = Self(0xffff_ffff);

            /// Whether this is the value that stands for no tag at all.
            #[inline]
            #[must_use]
            pub const fn is_reserved(self) -> bool {
                self.0 == Self::RESERVED.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#010x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }
    };
}

tag! {
    /// Names a task within its session; chosen by the initiator (RFC 7143 §11.2.1.8).
    InitiatorTaskTag
}

tag! {
    /// Names a transfer or exchange the target asked for; chosen by the target (§11.7.4).
    TargetTransferTag
}

serial_number! {
    /// Command sequence number, counted per session (RFC 7143 §4.2.2.1).
    #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
    pub struct CmdSn
}

serial_number! {
    /// Status sequence number, counted per connection (§4.2.2.2).
    #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
    pub struct StatSn
}

serial_number! {
    /// Number of a data PDU, counted per command for Data-In, per sequence for Data-Out (§4.2.2.3).
    #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
    pub struct DataSn
}

serial_number! {
    /// Number of an R2T, counted per command (§11.8.2).
    #[cfg_attr(test, derive(proptest_derive::Arbitrary))]
    pub struct R2tSn
}

/// Logical unit number in its eight-byte SAM form (RFC 7143 §11.2.1.7).
///
/// This crate carries it and compares it; what unit it names is the device server's business.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// LUN 0, also what reserved LUN fields hold.
    pub const ZERO: Self = Self([0; 8]);
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({:#018x})", u64::from_be_bytes(self.0))
    }
}

/// Initiator's part of the session identifier (RFC 7143 §11.12.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Isid(pub [u8; 6]);

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isid({self})")
    }
}

/// Target session identifying handle (RFC 7143 §11.12.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Tsih(pub u16);

impl Tsih {
    /// What the first login of a new session carries.
    pub const NEW_SESSION: Self = Self(0);
}

/// Connection identifier, CID, within a session (RFC 7143 §11.12.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct ConnectionId(pub u16);

/// The command numbers a target takes, as every response announces them (RFC 7143 §4.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct CommandWindow {
    /// The next number the target expects: all before it have been received.
    pub exp_cmd_sn: CmdSn,
    /// The last number the target takes. One less than `exp_cmd_sn` closes the window.
    pub max_cmd_sn: CmdSn,
}

macro_rules! be32_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            #[inline]
            fn get(bhs: &Bhs, at: usize) -> Self {
                Self(u32::get(bhs, at))
            }

            #[inline]
            fn put(self, bhs: &mut Bhs, at: usize) {
                self.0.put(bhs, at);
            }
        }
    )*};
}

be32_fields!(InitiatorTaskTag TargetTransferTag CmdSn StatSn DataSn R2tSn);

macro_rules! be16_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            #[inline]
            fn get(bhs: &Bhs, at: usize) -> Self {
                Self(u16::get(bhs, at))
            }

            #[inline]
            fn put(self, bhs: &mut Bhs, at: usize) {
                self.0.put(bhs, at);
            }
        }
    )*};
}

be16_fields!(Tsih ConnectionId);

macro_rules! byte_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            #[inline]
            fn get(bhs: &Bhs, at: usize) -> Self {
                Self(<_>::get(bhs, at))
            }

            #[inline]
            fn put(self, bhs: &mut Bhs, at: usize) {
                self.0.put(bhs, at);
            }
        }
    )*};
}

byte_fields!(Lun Isid);

impl Field for CommandWindow {
    #[inline]
    fn get(bhs: &Bhs, at: usize) -> Self {
        Self {
            exp_cmd_sn: CmdSn::get(bhs, at),
            max_cmd_sn: CmdSn::get(bhs, at + 4),
        }
    }

    #[inline]
    fn put(self, bhs: &mut Bhs, at: usize) {
        self.exp_cmd_sn.put(bhs, at);
        self.max_cmd_sn.put(bhs, at + 4);
    }
}

impl Bhs {
    /// The tag that is at the same place in every PDU that has one.
    #[inline]
    #[must_use]
    pub fn initiator_task_tag(&self) -> InitiatorTaskTag {
        InitiatorTaskTag(field::be32(&self.0, 16))
    }
}
