//! One way for every change: of the file (SIGHUP) and of the API.
//!
//! ```text
//!  file ──────────┐
//!  command line ──┼─► objects ─► checked ─► plan ─► prepare ─► commit ─► switch ─► tell, drain
//!  API ───────────┘     (owner)  (config)  (steps)  volumes    revision  server
//!                                                   opened     fsync
//! ```
//!
//! - Each object has one owner. The API changes its own objects alone, and SIGHUP those of the file alone.
//! - The checker of the file reads the API's objects too: each is written as a table of a file of its own.
//! - All that can fail is done before the commit, and undone when something fails. The commit is the rename of a revision
//!   file: a crash before it leaves the revision before, one after it the new one.
//! - One change is carried out at a time. What may wait for a disk is done on threads of its own (`helpers.rs`), and the
//!   change is refused if that takes too long. Nothing waits for a disk after the switch: volumes leave by themselves.

pub mod exports;
pub mod keys;
pub mod objects;
pub mod plan;
pub mod plane;
pub mod server;
pub mod start;
pub mod store;
pub mod switch;

mod growth;
mod helpers;
mod listening;
mod locks;
mod prepare;
mod problems;
mod step;
mod turn;

pub use listening::{Listening, listening};
pub use step::prepare_steps;
pub(crate) use step::step;

#[cfg(test)]
mod tests;
