//! The initiator's end of a connection.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod connection;
pub mod login;

pub use connection::{
    CloseReason, Command, CommandId, CommandOutcome, Connection, ConnectionEvent, NotSent,
    PayloadWanted, R2tRequest, Residual, Transfer,
};
