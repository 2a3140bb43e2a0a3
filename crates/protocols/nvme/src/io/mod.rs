//! The commands of I/O queues: the NVM command set (NVM command set 1.0 §3) and the reservation
//! commands of the base specification.
//!
//! A [`Command`] is a small machine between a submission queue entry and the operations on the
//! medium that carry it out; a [`FusedPair`] is the same for Compare and Write. Neither does I/O:
//! they name a media operation and go on with its outcome.
//!
//! - `step`: what it and its driver say to each other; `command`: the machine; `decode`: from an entry to a command;
//! - `fields`: where the fields of an entry are; [`limits`]: what Identify says;
//! - a file to each family of commands that need more than one step.
//!
//! Not supported, and not advertised: Write Uncorrectable, metadata and protection information,
//! directives, copies between namespaces.

mod command;
mod compare;
mod copy;
mod dataset;
mod decode;
mod fields;
mod flush;
mod fused;
pub mod limits;
mod namespace;
pub mod plain;
mod reservation;
mod status;
mod step;
mod verify;

#[cfg(test)]
mod tests;

pub use command::Command;
pub use fused::{Arrival, FusedOutcome, FusedPair, FusedStep, Fusing, Next};
pub use namespace::Attached;
pub use step::{Buffers, CommandEvent, IoOutcome, Step, Transfer};
