//! What the control API says: types shared by the server that answers and the clients that ask.
//!
//! They are JSON on the wire, in `kebab-case`. Times are milliseconds since 1970 (UTC), sizes are bytes. Objects (volumes,
//! targets, subsystems) have the keys of the configuration file: one form, whether a file or the API describes them.

pub mod access;
pub mod change;
pub mod envelope;
pub mod object;
pub mod operation;
pub mod place;
pub mod plane;
pub mod pool;
pub mod problem;
pub mod rates;
pub mod record;
pub mod sample;
pub mod state;
pub mod tables;

/// Version of every document that the API answers with. A field that goes or changes its meaning raises it; a new one
/// does not.
pub const VERSION: u32 = 1;
