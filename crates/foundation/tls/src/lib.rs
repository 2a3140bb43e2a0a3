//! TLS 1.3 with external pre-shared keys (RFC 8446 §2.2, RFC 9257), as client and as server.
//!
//! There are no certificates. Each peer proves that it knows a [`Psk`]. An ephemeral Diffie-Hellman exchange is added
//! (`psk_dhe_ke`), so that recorded traffic stays secret if the key leaks later. A key belongs to one [`Suite`], because
//! its hash does.
//!
//! | module | subject |
//! |---|---|
//! | [`psk`] | keys, and where a server finds them |
//! | [`hello`] | identities in a ClientHello, which anybody can send |
//! | [`server`], [`client`] | what all connections of a role share |
//! | [`session`] | one connection: handshake, records |
//! | `ffi` | calls of OpenSSL that the crate `openssl` lacks; all `unsafe` of this crate |
//!
//! A session reads from and writes to a stream that does not block. It holds no thread and no clock: who drives it limits the
//! time of a handshake.

#![deny(unsafe_code)]

/// The example of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod client;
mod context;
#[allow(unsafe_code)]
mod ffi;
mod held;
pub mod hello;
pub mod psk;
pub mod server;
pub mod session;
mod wire;

pub use client::Client;
pub use context::SetUpError;
pub use psk::{Psk, PskError, PskStore, Suite};
pub use server::Server;
pub use session::{Handshake, Session, TlsError};
