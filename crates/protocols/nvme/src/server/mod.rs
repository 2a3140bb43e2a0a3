//! The controller's end of a queue's connection: transport only. What commands do is decided elsewhere.

mod command;
mod commands;
mod connection;

pub use command::{
    ArrivedCommand, CommandSlot, Completion, DataTransfer, Payload, PayloadWanted, QueueParameters,
};
pub use connection::{CloseReason, Connection, ConnectionConfig, ConnectionEvent};
