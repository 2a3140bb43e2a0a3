//! Exports: portals, targets, logical units and access control.
//!
//! This crate joins the machines to the world: each reactor thread is a `shard` that drives the
//! iSCSI machines of its connections with bytes from their sockets, hands commands to the SCSI machine,
//! and carries their operations to volumes. What connections on different cores share is in
//! `exports` (immutable), `sessions` and `gate`; everything else travels as a `message`.

#![forbid(unsafe_code)]

mod abort;
mod channel;
pub mod config;
mod connection;
mod core;
mod exports;
mod gate;
mod iscsi;
mod life;
mod listeners;
mod mail;
mod medium;
mod message;
mod nvme;
pub mod platform;
mod request;
mod reservation_store;
mod server;
mod shard;
mod statistics;
pub mod stepped;
mod task;

pub use server::{Resized, Server, StartError, Stopper};
