//! Support for tests of volumes: storage that completes at once and fails to order, a client, and the suite that every
//! backend passes.

pub mod client;
pub mod harness;
mod storage;
pub mod suite;

pub use client::VolumeClient;
pub use storage::{CompletionSource, Effect, EngineStorage, OperationName, TestStorage};
