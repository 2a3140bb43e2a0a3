//! iSCSI (RFC 7143) as machines without I/O, both roles.
//!
//! [`server::Connection`] is one TCP connection of a target, from its first Login Request to its
//! last byte; [`initiator`] holds the other end. Bytes go in as slices, what is to be sent comes out
//! in a [`Transmit`](longshore_wire::transmit::Transmit), and time is an argument. A CDB is opaque here, and SCSI never sees a
//! PDU; the `server` crate joins the two.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

#[cfg(test)]
mod back_to_back;
pub mod chap;
mod encoder;
mod framing;
pub mod initiator;
pub mod keys;
pub mod name;
pub mod negotiation;
pub mod pdu;
pub mod server;
pub mod session_parameters;
pub mod text;

pub use longshore_wire as wire;

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
