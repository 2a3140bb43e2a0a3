//! The server process: configuration, listeners, logs, signals and the service manager.
//!
//! ```text
//!  command line ─┐
//!                ├─► config ─► portals, volumes ─► server::Server ─► ready
//!  file ─────────┘                                      ▲
//!                    SIGTERM, SIGINT, SIGHUP ── control ┘
//! ```
//!
//! [`config`] decides what is meant; [`serve()`] makes it so and stays until the server has ended.
//! Nothing here is on the data path.

#![forbid(unsafe_code)]

mod api;
mod backends;
pub mod change;
pub mod config;
mod confinement;
pub mod connect;
pub mod control;
pub mod descriptors;
mod dumps;
pub mod exports;
mod held;
mod inspection;
pub mod logging;
pub mod machine;
pub mod memory;
mod opening;
pub mod pools;
pub mod portals;
mod scst;
pub mod serve;
pub mod service_manager;
pub mod state;
mod statistics;
mod threads;

pub use serve::{Output, ServerEnd, Sources, StartError, serve};
