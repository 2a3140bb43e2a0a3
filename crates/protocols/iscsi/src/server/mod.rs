//! The target's end of a connection.

mod command;
mod connection;
pub mod directory;
pub mod discovery;
pub mod login;
mod task;
mod window;

pub use command::{
    Cdb, Completion, DataOutFailure, Payload, PayloadWanted, ScsiCommand, TaskAttribute, TaskId,
    TaskInfo, TaskManagementFunction, TaskManagementId, TaskManagementRequest,
    TaskManagementResult,
};
pub use connection::{CloseReason, Connection, ConnectionConfig, ConnectionEvent};
