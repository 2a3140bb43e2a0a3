//! TLS for NVMe/TCP: handshakes beside the event loops, and links that encrypt.
//!
//! ```text
//! listener ─► Handshakes: first byte 16h? ── no ─► TcpLink ─► shard
//!                           │ yes                             ▲
//!                           └─► handshake ─► TlsLink ─────────┘
//! ```
//!
//! One thread takes the newcomers of all listeners with TLS. A shard gets a connection when both ends have proved that they
//! know a key, and no sooner. Connect then holds the names of host and subsystem against the key's identity.

mod fairness;
mod handshakes;
mod keys;
mod link;

pub(crate) use handshakes::{Handshakes, Newcomer};
