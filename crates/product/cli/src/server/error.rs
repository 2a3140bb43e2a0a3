//! Why a server did not answer a request, or refused it.

use std::io;
use std::path::PathBuf;

use longshore_api::problem::Problem;

use super::address::AddressError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    ServerAddress(#[from] AddressError),
    #[error(
        "no server answers at {addresses}: {source}\nStart one (longshore serve), or name its socket or address with \
         --server PATH|URL or LONGSHORE_SERVER"
    )]
    Unreachable {
        addresses: String,
        source: io::Error,
    },
    #[error(
        "no permission for the socket {0}: become the user of the server or root, or join the group longshore"
    )]
    Socket(String),
    #[error("cannot read the token file {}: {source}; correct the path or its permissions", path.display())]
    TokenFile { path: PathBuf, source: io::Error },
    #[error(
        "{address} requires a token; give one with --token-file FILE or LONGSHORE_TOKEN\n{problem}"
    )]
    Token {
        address: String,
        problem: Box<Problem>,
    },
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The change was made, and what it took away did not end well.
    #[error("{0}")]
    Ending(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{address} is not a Longshore server: {reason}")]
    Answer { address: String, reason: String },
}
