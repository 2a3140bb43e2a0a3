//! TLS 1.3 with external pre-shared keys (RFC 8446 §2.2, RFC 9257), as client and as server.
//!
//! Nobody has a certificate here. A peer proves that it knows a [`Psk`], both add an ephemeral Diffie-Hellman exchange
//! (`psk_dhe_ke`), and what a connection carried stays secret when the key is lost later. Each key belongs to one
//! [`Suite`], because its hash does.
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

pub mod client;
#[allow(unsafe_code)]
mod ffi;
pub mod hello;
pub mod psk;
pub mod server;
pub mod session;
mod wire;

pub use client::Client;
pub use psk::{Psk, PskError, PskStore, Suite};
pub use server::Server;
pub use session::{Handshake, Session, TlsError};

/// OpenSSL could not be set up: it lacks memory, or what TLS 1.3 needs.
#[derive(Debug, thiserror::Error)]
#[error("OpenSSL: {0}")]
pub struct SetUpError(#[from] openssl::error::ErrorStack);

/// Groups of the key exchange, in order of preference. Finite fields are left out: their exponentiations are dear, and
/// anybody can ask for one.
const GROUPS: &str = "X25519:P-256:P-384";

/// What both roles allow.
fn context() -> Result<openssl::ssl::SslContextBuilder, SetUpError> {
    use openssl::ssl::{
        SslContext, SslMethod, SslMode, SslOptions, SslSessionCacheMode, SslVersion,
    };
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites(&format!(
        "{}:{}",
        Suite::Aes128GcmSha256.name(),
        Suite::Aes256GcmSha384.name()
    ))?;
    context.set_groups_list(GROUPS)?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(
        SslOptions::NO_TICKET | SslOptions::NO_COMPRESSION | SslOptions::IGNORE_UNEXPECTED_EOF,
    );
    context.set_num_tickets(0)?;
    // One receive takes what has arrived of several records.
    context.set_read_ahead(true);
    ffi::set_read_buffer_length(&context, session::READ_BUFFER_BYTES);
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(context)
}
