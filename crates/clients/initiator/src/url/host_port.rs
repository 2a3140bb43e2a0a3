//! `HOST[:PORT]`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an address; that of IPv6 without brackets.
    pub host: String,
    /// TCP port, from 1 to 65535.
    pub port: u16,
}

/// Why a text is no host with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostPortError {
    /// No host stands before the port.
    #[error("the host is missing")]
    Empty,
    /// No number, or out of range.
    #[error("the port is a number from 1 to 65535")]
    Port,
    /// A bracket is missing, or something else than an address of IPv6 is in them.
    #[error("an IPv6 address stands in brackets: [fe80::1]:3260")]
    Brackets,
    /// A character that no host name has.
    #[error("{0:?} does not belong in a host name")]
    Character(char),
}

impl HostPort {
    /// A host with the port in `text`, or else with `port`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str, port: u16) -> Result<Self, HostPortError> {
        let (host, rest) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(HostPortError::Brackets)?;
            if !is_v6(host) {
                return Err(HostPortError::Brackets);
            }
            (host, rest)
        } else {
            let end = text.find(':').unwrap_or(text.len());
            if text[end..].bytes().filter(|byte| *byte == b':').count() > 1 {
                return Err(HostPortError::Brackets);
            }
            text.split_at(end)
        };
        if host.is_empty() {
            return Err(HostPortError::Empty);
        }
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if let Some(bad) = host.chars().find(|c| !allowed(*c)) {
            return Err(HostPortError::Character(bad));
        }
        let port = match rest.strip_prefix(':') {
            Some(digits) => parse_port(digits).ok_or(HostPortError::Port)?,
            None if rest.is_empty() => port,
            None => return Err(HostPortError::Brackets),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// The host as it stands in front of a port.
    #[must_use]
    pub fn host_text(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| text.parse().ok()).flatten()?;
    (port > 0).then_some(port)
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            SocketAddr::V4(_) | SocketAddr::V6(_) => address.ip().to_string(),
        };
        Self {
            host,
            port: address.port(),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Whether a host is an address of IPv6, with or without a zone.
fn is_v6(host: &str) -> bool {
    let address = host
        .split_once('%')
        .map_or(host, |(address, _zone)| address);
    matches!(address.parse(), Ok(IpAddr::V6(_)))
}
