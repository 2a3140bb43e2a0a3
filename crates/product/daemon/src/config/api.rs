//! Where the control API is reached, and how: `[listen] api`, `[listen] socket`, `[api]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

use super::listener::{ListenerError, parse_address};

/// Of the control API, and of the dashboard.
pub const API_PORT: u16 = 9260;

/// All of it, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiConfig {
    /// Where to listen for HTTP; nowhere when absent.
    pub address: Option<ApiAddress>,
    pub socket: ApiSocket,
    /// Where SCST's trees are mounted; nowhere when absent.
    pub scst_tree: Option<PathBuf>,
    /// Paths of the file `[api]`, resolved.
    pub table: ApiTable,
}

impl ApiConfig {
    /// Somebody has said where it is to be, so that volumes can come later.
    #[must_use]
    pub const fn is_asked_for(&self) -> bool {
        self.address.is_some()
            || self.scst_tree.is_some()
            || matches!(self.socket, ApiSocket::At(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiAddress(pub SocketAddr);

impl FromStr for ApiAddress {
    type Err = ListenerError;

    fn from_str(text: &str) -> Result<Self, ListenerError> {
        parse_address(text, API_PORT).map(Self)
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiSocket {
    /// Where clients look for it. If it cannot be made, the server does without.
    #[default]
    Default,
    Nowhere,
    At(PathBuf),
}

impl FromStr for ApiSocket {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "none" => Self::Nowhere,
            path => Self::At(path.into()),
        })
    }
}

deserialize_from_str!(ApiAddress, ApiSocket);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ApiTable {
    /// Certificates in PEM, that of the server first.
    pub tls_certificate: Option<PathBuf>,
    /// Its private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// Allows HTTP without TLS beyond loopback.
    pub allow_plain: bool,
    /// Names of the server that requests may have in `Host`, beside its addresses.
    pub names: Vec<String>,
}
