//! What a server does, in a terminal.
//!
//! ```text
//!  Source ─► Sample ─► Rates (differences of two, by the clock of the server) ─► App ─► draw ─► terminal
//!                                                                   keys ─────────┘
//! ```
//!
//! The program that shows it gives the [`Source`]. [`App`] and [`draw`] know no terminal and are tested without one.

#![forbid(unsafe_code)]

pub mod app;
pub mod draw;
mod run;

pub use app::App;
pub use run::{Source, run};
