//! The initiator's end of a connection.

mod connection;
pub mod login;

pub use connection::{
    CloseReason, Command, CommandId, Connection, ConnectionEvent, NotSent, Outcome, PayloadWanted,
    R2tRequest, Residual, Transfer,
};
