//! What all connections of either role allow.

use openssl::ssl::{
    SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode, SslVersion,
};

use crate::ffi;
use crate::psk::Suite;

/// What one receive takes of a stream: records of 16 KiB and more of the next.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// OpenSSL could not be set up: it lacks memory, or what TLS 1.3 needs.
#[derive(Debug, thiserror::Error)]
#[error("OpenSSL: {0}")]
pub struct SetUpError(#[from] openssl::error::ErrorStack);

/// Groups of the key exchange, in order of preference. Finite fields are left out: their exponentiations are dear, and
/// anybody can ask for one.
const GROUPS: &str = "X25519:P-256:P-384";

/// What both roles allow.
pub(crate) fn context() -> Result<SslContextBuilder, SetUpError> {
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
    ffi::set_read_buffer_length(&context, READ_BUFFER_BYTES);
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(context)
}
