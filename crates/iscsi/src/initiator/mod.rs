//! The initiator's end of a connection.

pub mod login;
