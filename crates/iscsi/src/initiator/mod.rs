//! The initiator's end of a connection.

mod connection;
pub mod login;

pub use connection::{
    Busy, CloseReason, Command, CommandId, Connection, Event, Outcome, PayloadWanted, R2tRequest,
    Residual, Transfer,
};
