//! What every wire format of Longshore is read and written with.
//!
//! - [`field`]: fixed-offset integers of a fixed-size header, big and little endian;
//! - [`Reader`] and [`Writer`]: bounded cursors for the variable parts;
//! - [`Crc32c`]: the incremental CRC of iSCSI and NVMe/TCP digests;
//! - [`pattern`]: names that rules of access mean;
//! - [`pdu_data`]: the data of a PDU while they arrive;
//! - [`serial_number!`]: sequence numbers that wrap around (RFC 1982);
//! - [`transmit`]: what a connection has to send, by copy and by reference.
//!
//! Nothing here panics on what a peer sent: running out of bytes is an error value.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "test-support"))]
pub mod back_to_back;
mod crc32c;
pub mod field;
pub mod pattern;
pub mod pdu_data;
mod reader;
mod serial;
pub mod transmit;
mod writer;

pub use crate::crc32c::{Crc32c, crc32c, crc32c_of_zeros};
pub use crate::reader::{OutOfBytes, Reader};
pub use crate::writer::{NoRoom, Writer};
