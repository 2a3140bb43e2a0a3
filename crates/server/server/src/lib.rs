//! Exports: portals, targets and subsystems; logical units and namespaces; access control.
//!
//! This crate joins the machines to the world: each reactor thread is a `shard` that drives the
//! machines of its connections with bytes from their sockets, hands commands to the SCSI or NVMe
//! machine, and carries their operations to volumes. A `connection` consists of `transport`, which moves its
//! bytes, of `iscsi` or `nvme`, which speak the protocol, and of the tasks of `execute`, which carry out commands.
//! What connections on different cores share is in `exports` (each shard's own version), `sessions`, the controllers of
//! `longshore_nvme`, and `gate`; everything else travels as `mail`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod address;
mod computations;
pub mod config;
mod connection;
mod core;
mod counters;
mod delayed;
mod execute;
mod exports;
mod fairness;
mod gate;
mod iscsi;
mod listeners;
mod mail;
mod memory;
mod nvme;
pub mod observe;
mod placement;
pub mod platform;
mod sanitize;
mod server;
mod sessions;
mod shard;
mod spin;
mod state_file;
mod statistics;
pub mod stepped;
mod target_ports;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod volume_store;

pub use config::{ListenerId, StartError};
pub use longshore_transmit::{TransmitStatistics, WaitingState, Way};
pub use observe::{MappedVolume, NoSuchSession, SessionId, SessionReport, Sessions, Statistics};
pub use server::switch::{
    ClosedVolume, DrainOptions, DrainState, DrainingVolume, OnClosed, PreparedSwitch, SwitchError,
    Switched,
};
pub use server::{Control, Resized, Server};
