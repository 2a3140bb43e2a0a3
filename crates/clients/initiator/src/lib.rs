//! User-mode initiators: volumes of iSCSI and NVMe/TCP servers, from an ordinary process.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]
#![warn(missing_docs)]

pub mod attach;
mod attach_path;
mod attachment;
pub mod channel;
mod connect;
mod digest;
pub mod error;
pub mod info;
pub mod iscsi;
pub mod nvme;
pub mod operation;
pub mod options;
mod other_protocol;
pub mod queue;
pub mod url;
pub mod volume;

pub use longshore_block::extent;
pub use longshore_reactor::Buffer;

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
