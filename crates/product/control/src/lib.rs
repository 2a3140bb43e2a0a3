//! The control API of a server: HTTP on a Unix socket and on TCP.
//!
//! ```text
//!  curl, longshore, browser ─► thread `control` (tokio, axum) ─► ControlPlane ─► messages to event loops
//!                                   │      ▲                     statistics
//!                                   │      └─ events, audit ◄─── change engine, log
//!                                   └─ guard: Host, Origin, who calls
//! ```
//!
//! Everything runs on one thread beside the event loops. Calls of [`ControlPlane`](longshore_api::plane::ControlPlane)
//! block; they run on a few threads of their own, changes apart from all others. Nothing here is on the data path.
//!
//! The pages of the dashboard come from the same port. They are made of what the API answers.
//!
//! `docs/operating/api.md` describes the API, `docs/operating/metrics.md` the metrics, `docs/operating/dashboard.md` the
//! dashboard.

#![forbid(unsafe_code)]

mod answer;
mod app;
pub mod audit;
mod call_pool;
mod caller;
mod change;
mod clock;
mod collection;
mod cookies;
mod dashboard;
pub mod events;
mod guard;
mod history;
mod input;
pub mod listen;
mod logins;
mod metrics;
pub mod openapi;
mod operations;
mod places;
mod process;
mod requests;
mod resources;
mod route;
mod routes;
mod server;
pub mod tls;
pub mod tokens;

pub use app::Parts;
pub use server::{ControlServer, Listeners};
