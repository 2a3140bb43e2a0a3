//! NVMe/TCP: both ends of a queue's connection, and what commands do.
//!
//! | file | subject |
//! |---|---|
//! | `codecs.rs` | headers, entries, names |
//! | `stream.rs` | PDUs as a peer writes and reads them |
//! | `bytes.rs` | the controller's end, told anything |
//! | `sequences.rs` | the controller's end and a host that mostly keeps to the rules |
//! | `host.rs` | the host's end and a controller that mostly keeps to the rules |
//! | `authentication.rs` | messages of DH-HMAC-CHAP, both roles |
//! | `admin.rs` | Connect, Fabrics and admin commands |
//! | `io.rs` | commands of I/O queues, on a medium that answers anything |
//! | `server.rs` | a whole server and a host of two queues |
//!
//! `subsystem.rs` has what several of them use.

mod admin;
mod authentication;
mod bytes;
mod codecs;
mod host;
mod io;
mod sequences;
mod server;
mod stream;
mod subsystem;

pub(crate) use admin::nvme_admin_commands;
pub(crate) use authentication::nvme_authentication;
pub(crate) use bytes::nvme_target_bytes;
pub(crate) use codecs::nvme_headers;
pub(crate) use host::nvme_host_sequences;
pub(crate) use io::nvme_io_commands;
pub(crate) use sequences::nvme_target_sequences;
pub(crate) use server::nvme_server;
