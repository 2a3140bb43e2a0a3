//! A SCSI block device server without I/O: SAM-5, SPC-4, SBC-3 and parts of SBC-4.
//!
//! [`LogicalUnit`](unit::LogicalUnit) is the thing exported, [`Nexus`](nexus::Nexus) one
//! initiator's relation to it, and [`Command`](command::Command) one CDB in progress. The crate
//! never touches a medium, a socket or a clock: a command says what it needs as a
//! [`Step`](command::Step), and its driver does it.
//!
//! All multi-byte fields of SCSI are big-endian.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod access;
mod capacity;
mod cdb;
pub mod command;
mod command_table;
mod completion;
mod copies;
mod decode;
pub mod extended_copy;
pub mod inquiry;
mod log_page;
pub mod lun;
mod media;
pub mod mode;
mod mode_state;
pub mod nexus;
mod parameter;
pub mod plain;
mod provisioning;
pub mod reservation;
pub mod sense;
pub mod status;
mod step;
mod supported_commands;
mod target_port_groups;
pub mod unit;
pub mod unit_attention;
mod unit_config;

pub use longshore_block as block;

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
