//! Where to listen: the grammar all listeners share, and iSCSI's, `--iscsi`.
//!
//! ```text
//! ADDR:PORT[,advertise=ADDR:PORT][,tag=N]
//!
//!   ADDR        an IPv4 address, an IPv6 address in brackets, or localhost
//!   PORT        0 picks a free one; 3260 when left out
//!   advertise   what discovery tells initiators instead of the address they are served on, for
//!               NAT and port forwarding; a host name is accepted here
//!   tag         portal group tag, 0 to 65535; 1 when not given
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::suggest;
use super::volume::{ArgumentError, Part, split_parts};

/// Whether this build speaks TLS to hosts.
pub(super) const HAS_TLS: bool = cfg!(feature = "tls");

/// The port IANA assigned to iSCSI, and the default of a listener that names none.
pub const ISCSI_PORT: u16 = 3260;

/// Where initiators connect to when nothing else was said.
pub const DEFAULT_LISTENER: ListenerConfig = ListenerConfig {
    address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ISCSI_PORT),
    advertise: None,
    tag: DEFAULT_TAG,
};

/// Portal group tag of listeners that name none.
pub const DEFAULT_TAG: u16 = 1;

/// The keys of `--iscsi`.
const KEYS: &[&str] = &["advertise", "tag"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Where to listen. Port 0 picks a free one.
    pub address: SocketAddr,
    /// What discovery tells instead.
    pub advertise: Option<Advertise>,
    /// Portal group the portal belongs to (RFC 7143 §4.1.1).
    pub tag: u16,
}

impl ListenerConfig {
    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// An address for others to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// IP address or host name, without brackets.
    pub host: String,
    /// The port; `None` means the one that is listened on.
    pub port: Option<u16>,
}

impl Advertise {
    /// The form of the key TargetAddress without the portal group tag (RFC 7143 §13.8).
    #[must_use]
    pub fn with_port_of(&self, bound: SocketAddr) -> String {
        self.or_port(bound.port())
    }

    /// The same, with `port` where none was given.
    #[must_use]
    pub fn or_port(&self, port: u16) -> String {
        let port = self.port.unwrap_or(port);
        match self.host.parse::<Ipv6Addr>() {
            Ok(v6) => format!("[{v6}]:{port}"),
            Err(_) => format!("{}:{port}", self.host),
        }
    }
}

/// What is wrong with a part of an argument that names a listener.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenerError {
    /// Not an address to bind.
    #[error(
        "`{text}` is not an address to listen on; write for example 127.0.0.1:{port}, \
         [::1]:{port}, or 0.0.0.0:{port} for every interface"
    )]
    Address {
        /// The address as written.
        text: String,
        /// The port of the examples.
        port: u16,
    },
    /// Not a port number.
    #[error("`{0}` is not a port; use 0 to 65535")]
    Port(String),
    /// An address to tell others that leads nowhere.
    #[error("`{0}` cannot be advertised; write an address or host name that initiators can reach")]
    Advertise(String),
    /// The same for NVMe hosts, whose discovery knows no names.
    #[error(
        "`{0}` cannot be advertised; write an IP address that hosts can reach: NVMe discovery \
         reports addresses, not names"
    )]
    AdvertiseIp(String),
    /// Not a portal group tag.
    #[error("`{0}` is not a portal group tag; use 0 to 65535")]
    Tag(String),
    /// Neither whether nor how.
    #[error("`{0}` is not a use of TLS; use none, permitted or required")]
    Tls(String),
    /// A build that lacks it.
    #[error("this longshore was built without TLS (feature `tls`); install one with it")]
    NoTls,
    /// A key nobody knows.
    #[error("unknown key `{key}`{}", suggest::sentence(.key, .known))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// What could have been.
        known: &'static [&'static str],
    },
    /// A key without a value.
    #[error("`{0}` needs a value: {0}=…")]
    NoValue(&'static str),
    /// The same key twice.
    #[error("`{0}` is given twice")]
    Repeated(&'static str),
    /// Two commas with nothing between them, or one at the end.
    #[error("a key is missing after the comma; add it, or remove the comma")]
    NoKey,
}

impl FromStr for ListenerConfig {
    type Err = ArgumentError<ListenerError>;

    fn from_str(argument: &str) -> Result<Self, Self::Err> {
        let (mut advertise, mut tag) = (None, DEFAULT_TAG);
        let address = read(argument, ISCSI_PORT, KEYS, |key, value| {
            if key == "tag" {
                tag = parse_tag(value)?;
            } else {
                advertise = Some(parse_advertise(value)?);
            }
            Ok(())
        })?;
        Ok(Self {
            address,
            advertise,
            tag,
        })
    }
}

/// Reads `ADDR:PORT[,key=value]…`. Every key is one of `keys` and stands there once; `take` gets it with
/// its value.
pub(super) fn read(
    argument: &str,
    default_port: u16,
    keys: &'static [&'static str],
    mut take: impl FnMut(&str, &str) -> Result<(), ListenerError>,
) -> Result<SocketAddr, ArgumentError<ListenerError>> {
    let fault = |part: &Part<'_>, problem| ArgumentError {
        argument: argument.to_owned(),
        start: part.start,
        end: part.start + part.raw.len(),
        problem,
    };
    let mut parts = split_parts(argument);
    let address = parts.remove(0);
    let socket = parse_address(address.raw, default_port).map_err(|e| fault(&address, e))?;
    let mut seen: Vec<&str> = Vec::new();
    for part in &parts {
        let (key, value) = part.key_and_value();
        let Some(known) = keys.iter().copied().find(|known| *known == key.raw) else {
            let problem = match key.raw {
                "" => ListenerError::NoKey,
                other => ListenerError::UnknownKey {
                    key: other.to_owned(),
                    known: keys,
                },
            };
            return Err(fault(&key, problem));
        };
        let value = value.ok_or_else(|| fault(part, ListenerError::NoValue(known)))?;
        if seen.contains(&known) {
            return Err(fault(part, ListenerError::Repeated(known)));
        }
        seen.push(known);
        take(known, value.raw).map_err(|problem| fault(&value, problem))?;
    }
    Ok(socket)
}

/// Reads an address to bind, the port being optional.
pub fn parse_address(text: &str, default_port: u16) -> Result<SocketAddr, ListenerError> {
    let wrong = || ListenerError::Address {
        text: text.to_owned(),
        port: default_port,
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port) = split_host_and_port(text).ok_or_else(wrong)?;
    let port = port.map_or(Ok(default_port), parse_port)?;
    if host == "localhost" {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let ip = host.parse().map_err(|_| wrong())?;
    Ok(SocketAddr::new(ip, port))
}

/// Reads a portal group tag.
fn parse_tag(text: &str) -> Result<u16, ListenerError> {
    let wrong = || ListenerError::Tag(text.to_owned());
    text.parse().map_err(|_| wrong())
}

/// Reads an address to tell initiators.
pub fn parse_advertise(text: &str) -> Result<Advertise, ListenerError> {
    let wrong = || ListenerError::Advertise(text.to_owned());
    if let Ok(ip) = text.parse::<IpAddr>() {
        return advertise_ip(ip, None).ok_or_else(wrong);
    }
    let (host, port) = split_host_and_port(text).ok_or_else(wrong)?;
    let port = port.map(parse_port).transpose()?;
    if port == Some(0) {
        return Err(wrong());
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return advertise_ip(ip, port).ok_or_else(wrong);
    }
    let is_name = (1..=253).contains(&host.len())
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        && host
            .split('.')
            .all(|label| !label.is_empty() && !label.starts_with('-'));
    if is_name {
        Ok(Advertise {
            host: host.to_owned(),
            port,
        })
    } else {
        Err(wrong())
    }
}

/// An address others can connect to: any but the unspecified one.
fn advertise_ip(ip: IpAddr, port: Option<u16>) -> Option<Advertise> {
    (!ip.is_unspecified()).then(|| Advertise {
        host: ip.to_string(),
        port,
    })
}

/// Splits `host:port`, `[v6]:port`, `[v6]` and `host`. The host is not empty.
fn split_host_and_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    (!host.is_empty() && !port.is_some_and(|port| port.contains(':'))).then_some((host, port))
}

/// Reads a port number.
fn parse_port(text: &str) -> Result<u16, ListenerError> {
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(port) = text.parse()
    {
        return Ok(port);
    }
    Err(ListenerError::Port(text.to_owned()))
}

impl fmt::Display for ListenerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listener(text: &str) -> ListenerConfig {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<ListenerConfig>().unwrap_err().to_string()
    }

    #[test]
    fn both_families_and_left_out_ports_are_read() {
        for (text, address) in [
            ("127.0.0.1:3260", "127.0.0.1:3260"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1", "127.0.0.1:3260"),
            ("[::1]:3261", "[::1]:3261"),
            ("[::1]", "[::1]:3260"),
            ("::1", "[::1]:3260"),
            ("localhost:9", "127.0.0.1:9"),
            ("0.0.0.0:3260", "0.0.0.0:3260"),
        ] {
            assert_eq!(listener(text).address.to_string(), address, "{text}");
        }
    }

    #[test]
    fn another_address_and_tag_can_be_told() {
        let portal = listener("127.0.0.1:3260,advertise=192.0.2.7:3261,tag=2");
        assert_eq!(portal.tag, 2);
        let told = portal.advertise.unwrap();
        assert_eq!(told.with_port_of(portal.address), "192.0.2.7:3261");

        let bound = "127.0.0.1:40001".parse().unwrap();
        let told = |text: &str| parse_advertise(text).unwrap().with_port_of(bound);
        assert_eq!(told("nas.example.com"), "nas.example.com:40001");
        assert_eq!(told("[2001:db8::1]:3260"), "[2001:db8::1]:3260");
        assert_eq!(told("2001:db8::1"), "[2001:db8::1]:40001");
    }

    #[test]
    fn errors_point_at_the_part_at_fault() {
        assert_eq!(
            refusal("127.0.0.1:3260,adverise=10.0.2.2:1"),
            "unknown key `adverise`; did you mean `advertise`?\n  \
             127.0.0.1:3260,adverise=10.0.2.2:1\n                 \
             ^^^^^^^^"
        );
        for (text, expected) in [
            ("", "not an address to listen on"),
            ("example.com:3260", "not an address to listen on"),
            ("[127.0.0.1]:1", "not an address to listen on"),
            ("127.0.0.1:65536", "`65536` is not a port"),
            ("127.0.0.1:+1", "`+1` is not a port"),
            ("127.0.0.1:1,", "a key is missing"),
            ("127.0.0.1:1,tag", "`tag` needs a value"),
            ("127.0.0.1:1,tag=x", "not a portal group tag"),
            ("127.0.0.1:1,tag=1,tag=2", "`tag` is given twice"),
            ("127.0.0.1:1,advertise=0.0.0.0:1", "cannot be advertised"),
            ("127.0.0.1:1,advertise=a b:1", "cannot be advertised"),
            ("127.0.0.1:1,advertise=10.0.0.1:0", "cannot be advertised"),
        ] {
            let message = refusal(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn mapped_loopback_is_loopback_and_the_unspecified_address_is_not() {
        for text in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(listener(text).is_loopback(), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(!listener(text).is_loopback(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_argument_is_read_or_refused_without_panic(text in "[0-9a-z.:,=\\[\\]é]{0,40}") {
            if let Err(error) = text.parse::<ListenerConfig>() {
                let _ = error.to_string();
            }
        }
    }
}
