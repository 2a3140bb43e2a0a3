//! Measures a server, a file or a device, so that its parts can be told from each other.
//!
//! What comes out is the document of [`longshore_model::probe`]; nothing is fitted here. A probe reads and sends pings;
//! it writes only to a region that it was given, and there what it has read before.
//!
//! | part | how |
//! |---|---|
//! | network | handshakes of connections of their own, pings at a short and at a long interval, pings with data, TCP_INFO |
//! | network and storage | when the bytes of one large read come: late, or slowly |
//! | protocol | what was negotiated; R2Ts that come while the data of a write is held back; PDUs of a read |
//! | storage | short loads by size, depth, direction and pattern, by turns; some of them are for the fit and some are kept back |
//! | processors | the clock of the thread that makes the load; the server's own statistics, or its process on this machine |
//!
//! A peer can lie about everything but time. What it says is bounded before it is kept, and whatever it leaves out ends
//! with a time-out.

#![forbid(unsafe_code)]

mod arrival;
mod client;
mod convert;
mod course;
mod error;
mod network;
mod options;
mod ping;
mod plan;
mod points;
mod probing;
mod server;
mod source;
mod subject;
mod transfer;
mod turn;

pub use error::Error;
pub use options::{Asked, Options, ServerView, Unwatched, Watch, WriteRegion};
pub use probing::probe;
pub use server::since;
pub use source::{document, obtain};
