//! Where the server is that a verb speaks to: a Unix socket or a URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use longshore_api::place;

/// The variable that names it.
const VARIABLE: &str = "LONGSHORE_SERVER";
/// Of the control API.
const PORT: u16 = 9260;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    Socket(PathBuf),
    Http {
        host: String,
        port: u16,
        is_encrypted: bool,
    },
}

/// Whether the environment names it.
pub fn is_named() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|text| !text.is_empty())
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither the path of a socket nor a URL; write for example http://127.0.0.1:9260")]
pub struct AddressError(String);

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let (rest, is_encrypted) = match text.split_once("://") {
            None if text.is_empty() => return Err(wrong()),
            None => return Ok(Self::Socket(text.into())),
            Some(("http", rest)) => (rest, false),
            Some(("https", rest)) => (rest, true),
            Some(("unix", path)) => return Ok(Self::Socket(path.into())),
            Some(_) => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '@', '?', '#', ' ']) {
            return Err(wrong());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => {
                (host, digits.parse().map_err(|_| wrong())?)
            }
            _ => (authority, PORT),
        };
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        if host.is_empty() || is_bare_v6 {
            return Err(wrong());
        }
        Ok(Self::Http {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            is_encrypted,
        })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Http {
                is_encrypted: true, ..
            } => write!(f, "https://{}", self.authority()),
            Self::Http { .. } => write!(f, "http://{}", self.authority()),
        }
    }
}

impl ServerAddress {
    /// For the header `Host`.
    pub fn authority(&self) -> String {
        match self {
            Self::Socket(_) => "localhost".to_owned(),
            Self::Http { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Http { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// The addresses to try, in order: what is asked for, what the environment says, or the usual sockets.
    pub fn candidates(asked: Option<&Self>) -> Result<Vec<Self>, AddressError> {
        if let Some(asked) = asked {
            return Ok(vec![asked.clone()]);
        }
        if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
            return Ok(vec![text.to_string_lossy().parse()?]);
        }
        let is_root = rustix::process::geteuid().is_root();
        let sockets = place::of_client(is_root, |name| std::env::var_os(name));
        Ok(sockets.into_iter().map(Self::Socket).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_a_url() {
        let http = |host: &str, port, is_encrypted| ServerAddress::Http {
            host: host.to_owned(),
            port,
            is_encrypted,
        };
        for (text, address) in [
            ("/run/x.sock", ServerAddress::Socket("/run/x.sock".into())),
            (
                "unix:///run/x.sock",
                ServerAddress::Socket("/run/x.sock".into()),
            ),
            ("http://127.0.0.1:1", http("127.0.0.1", 1, false)),
            ("https://a.example/", http("a.example", 9260, true)),
            ("http://[::1]:7", http("::1", 7, false)),
        ] {
            assert_eq!(text.parse(), Ok(address.clone()), "{text}");
        }
        for text in [
            "",
            "ftp://x",
            "http://",
            "http://a:b",
            "http://u@h",
            "http://h/x",
            "http://::1",
        ] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
        assert_eq!(http("::1", 7, false).to_string(), "http://[::1]:7");
    }
}
