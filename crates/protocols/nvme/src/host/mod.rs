//! The host: one end of a queue's connection, and the commands to send.

pub mod commands;
mod connection;

pub use self::commands::{Command, Transfer};
pub use self::connection::{
    CloseReason, CommandOutcome, CommandSlot, Connection, ConnectionConfig, ConnectionEvent,
    NotSent, PayloadWanted, R2tRequest,
};
