//! NVMe over TCP without I/O: NVMe base 2.0, NVM command set 1.0, NVMe/TCP transport 1.0.
//!
//! - [`command`], [`completion`], [`status`], [`sgl`], [`nqn`]: what both roles and all transports share;
//! - [`pdu`]: PDUs of NVMe/TCP; [`server`] and [`host`]: the two ends of a queue's connection;
//! - [`controller`]: subsystems, controllers, admin and Fabrics commands;
//! - [`auth`]: DH-HMAC-CHAP, by which both prove who they are; [`psk`]: keys and identities for TLS;
//! - [`io`]: commands of I/O queues; [`reservation`]: who may do what to a shared namespace.
//!
//! All multi-byte fields of NVMe are little-endian.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod auth;
#[cfg(test)]
mod back_to_back;
pub mod command;
pub mod completion;
pub mod controller;
pub mod host;
mod interchange;
pub mod io;
pub mod nqn;
pub mod opcode;
pub mod pdu;
pub mod psk;
pub mod reservation;
pub mod server;
pub mod sgl;
pub mod status;

pub use longshore_wire as wire;

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
