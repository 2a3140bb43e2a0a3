//! The initiator's end of a connection.

mod connection;
pub mod login;

pub use connection::{
    CloseReason, Command, CommandId, CommandOutcome, Connection, ConnectionEvent, NotSent,
    PayloadWanted, R2tRequest, Residual, Transfer,
};
