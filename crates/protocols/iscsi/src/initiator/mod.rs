//! The initiator's end of a connection.

mod connection;
pub mod login;

pub use connection::{
    CloseReason, Command, CommandId, Connection, Event, NotSent, Outcome, PayloadWanted,
    R2tRequest, Residual, Transfer,
};
