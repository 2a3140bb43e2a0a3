//! Where to listen for NVMe/TCP: the `--nvme` and `--nvme-discovery` grammar.
//!
//! ```text
//! ADDR:PORT[,advertise=ADDR:PORT][,tls=none|permitted|required]
//!
//!   ADDR        an IPv4 address, an IPv6 address in brackets, or localhost
//!   PORT        0 picks a free one; when left out, 4420, or 8009 for --nvme-discovery
//!   advertise   the IP address (and port) that discovery tells hosts instead of the one they are
//!               served on, for NAT and port forwarding
//!   tls         permitted, if not given: hosts with keys come over TLS, others without
//! ```
//!
//! `--nvme-discovery none` stands for no listener.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use longshore_server::config::TlsUse;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::listener::{HAS_TLS, ListenerError, parse_address, parse_advertise, read};
use super::volume::ArgumentError;

/// The port IANA assigned to NVMe over fabrics.
pub const NVME_PORT: u16 = 4420;

/// The port IANA assigned to NVMe discovery.
pub const DISCOVERY_PORT: u16 = 8009;

/// Where hosts connect to when nothing else was said.
pub const DEFAULT_NVME_LISTENER: NvmeListenerConfig = NvmeListenerConfig {
    address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), NVME_PORT),
    advertise: None,
    tls: TlsUse::Permitted,
};

/// The keys of the grammar.
const KEYS: &[&str] = &["advertise", "tls"];

/// One address to serve hosts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeListenerConfig {
    /// Where to listen. Port 0 picks a free one.
    pub address: SocketAddr,
    /// What discovery tells instead.
    pub advertise: Option<AdvertiseIp>,
    /// Whether connections are over TLS.
    pub tls: TlsUse,
}

/// An address for hosts to use. The discovery log page has no place for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertiseIp {
    /// The address; never the unspecified one.
    pub ip: IpAddr,
    /// The port; `None` means the one that is listened on.
    pub port: Option<u16>,
}

impl AdvertiseIp {
    /// What hosts are told of a listener that is bound to `bound`.
    #[must_use]
    pub fn with_port_of(self, bound: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(bound.port()))
    }
}

impl NvmeListenerConfig {
    fn parse(argument: &str, default_port: u16) -> Result<Self, ArgumentError<ListenerError>> {
        let (mut advertise, mut tls) = (None, TlsUse::Permitted);
        let address = read(argument, default_port, KEYS, |key, value| {
            if key == "tls" {
                tls = parse_tls(value)?;
            } else {
                advertise = Some(parse_advertise_ip(value)?);
            }
            Ok(())
        })?;
        Ok(Self {
            address,
            advertise,
            tls,
        })
    }

    /// The listener for discovery alone beside this one: where this one has the port of the standard,
    /// hosts look for discovery on the other port of the standard.
    #[must_use]
    pub fn discovery_beside(&self) -> Option<Self> {
        (self.address.port() == NVME_PORT).then(|| {
            let mut address = self.address;
            address.set_port(DISCOVERY_PORT);
            Self {
                address,
                advertise: self
                    .advertise
                    .map(|told| AdvertiseIp { port: None, ..told }),
                tls: self.tls,
            }
        })
    }
}

impl FromStr for NvmeListenerConfig {
    type Err = ArgumentError<ListenerError>;

    fn from_str(argument: &str) -> Result<Self, Self::Err> {
        Self::parse(argument, NVME_PORT)
    }
}

impl fmt::Display for NvmeListenerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

/// Reads an address to tell hosts.
fn parse_advertise_ip(text: &str) -> Result<AdvertiseIp, ListenerError> {
    let wrong = || ListenerError::AdvertiseIp(text.to_owned());
    let told = parse_advertise(text).map_err(|_| wrong())?;
    Ok(AdvertiseIp {
        ip: told.host.parse().map_err(|_| wrong())?,
        port: told.port,
    })
}

/// Reads whether connections are over TLS.
fn parse_tls(text: &str) -> Result<TlsUse, ListenerError> {
    match text {
        "none" => Ok(TlsUse::None),
        "permitted" => Ok(TlsUse::Permitted),
        "required" if HAS_TLS => Ok(TlsUse::Required),
        "required" => Err(ListenerError::NoTls),
        other => Err(ListenerError::Tls(other.to_owned())),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryArgument {
    Nowhere,
    At(NvmeListenerConfig),
}

impl FromStr for DiscoveryArgument {
    type Err = ArgumentError<ListenerError>;

    fn from_str(argument: &str) -> Result<Self, Self::Err> {
        if argument == "none" {
            return Ok(Self::Nowhere);
        }
        NvmeListenerConfig::parse(argument, DISCOVERY_PORT).map(Self::At)
    }
}

/// Where hosts find discovery, beside the listeners that serve them, which answer it as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryListeners {
    /// On port 8009 of every address whose port 4420 is listened on.
    #[default]
    Automatic,
    /// Here; nowhere when there is none.
    At(Vec<NvmeListenerConfig>),
}

impl DiscoveryListeners {
    /// What the command line says: `None` when it says nothing, and when it says both an address and
    /// `none`, that.
    pub(super) fn from_arguments(
        arguments: Vec<DiscoveryArgument>,
    ) -> Result<Option<Self>, Contradiction> {
        if arguments.is_empty() {
            return Ok(None);
        }
        let count = arguments.len();
        let listeners: Vec<NvmeListenerConfig> = arguments
            .into_iter()
            .filter_map(|argument| match argument {
                DiscoveryArgument::Nowhere => None,
                DiscoveryArgument::At(listener) => Some(listener),
            })
            .collect();
        if !listeners.is_empty() && listeners.len() < count {
            return Err(Contradiction);
        }
        Ok(Some(Self::At(listeners)))
    }

    /// The listeners asked for by name.
    #[must_use]
    pub fn by_name(&self) -> &[NvmeListenerConfig] {
        match self {
            Self::Automatic => &[],
            Self::At(listeners) => listeners,
        }
    }
}

/// Both an address and `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

/// An entry of `listen.nvme`: `"ADDR:PORT[,advertise=…]"` or a table with the same keys.
#[derive(Clone, Debug)]
pub struct NvmeEntry(pub NvmeListenerConfig);

impl<'de> Deserialize<'de> for NvmeEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(EntryVisitor(NVME_PORT))
            .map(Self)
    }
}

/// An entry of the list `listen.nvme-discovery`.
struct DiscoveryEntry(NvmeListenerConfig);

impl<'de> Deserialize<'de> for DiscoveryEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(EntryVisitor(DISCOVERY_PORT))
            .map(Self)
    }
}

/// Reads an entry whose port is the given one when left out.
struct EntryVisitor(u16);

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = NvmeListenerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an address such as \"127.0.0.1:{}\" or a table with `address`",
            self.0
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        NvmeListenerConfig::parse(text, self.0).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            address: String,
            advertise: Option<String>,
            tls: Option<String>,
        }

        let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let custom = <A::Error as de::Error>::custom;
        let advertise = table.advertise.as_deref().map(parse_advertise_ip);
        let tls = table.tls.as_deref().map(parse_tls);
        Ok(NvmeListenerConfig {
            address: parse_address(&table.address, self.0).map_err(custom)?,
            advertise: advertise.transpose().map_err(custom)?,
            tls: tls
                .transpose()
                .map_err(custom)?
                .unwrap_or(TlsUse::Permitted),
        })
    }
}

impl<'de> Deserialize<'de> for DiscoveryListeners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;

        impl<'de> Visitor<'de> for ListVisitor {
            type Value = DiscoveryListeners;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of addresses such as [\"127.0.0.1:8009\"], or \"none\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "none" {
                    return Ok(DiscoveryListeners::At(Vec::new()));
                }
                Err(E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut listeners = Vec::new();
                while let Some(DiscoveryEntry(listener)) = list.next_element()? {
                    listeners.push(listener);
                }
                Ok(DiscoveryListeners::At(listeners))
            }
        }

        deserializer.deserialize_any(ListVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listener(text: &str) -> NvmeListenerConfig {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_port_is_that_of_the_standard_when_left_out() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:4420"),
            ("[::1]", "[::1]:4420"),
            ("0.0.0.0:4421", "0.0.0.0:4421"),
            ("localhost:0", "127.0.0.1:0"),
        ] {
            assert_eq!(listener(text).address.to_string(), address, "{text}");
        }
        let Ok(DiscoveryArgument::At(discovery)) = "127.0.0.1".parse() else {
            panic!("an address alone is one");
        };
        assert_eq!(discovery.address.to_string(), "127.0.0.1:8009");
        assert_eq!("none".parse(), Ok(DiscoveryArgument::Nowhere));
    }

    #[test]
    fn hosts_are_told_an_ip_address_and_never_a_name_or_the_unspecified_one() {
        let bound = "127.0.0.1:40001".parse().unwrap();
        let told = |text: &str| listener(text).advertise.unwrap().with_port_of(bound);
        assert_eq!(
            told("0.0.0.0,advertise=192.0.2.7:4421").to_string(),
            "192.0.2.7:4421"
        );
        assert_eq!(
            told("[::],advertise=2001:db8::1").to_string(),
            "[2001:db8::1]:40001"
        );
        for text in ["nas.example.com", "0.0.0.0", "[::]:1", "192.0.2.7:0", ""] {
            let argument = format!("127.0.0.1:1,advertise={text}");
            let message = argument.parse::<NvmeListenerConfig>().unwrap_err();
            assert!(
                message.to_string().contains("cannot be advertised"),
                "{message}"
            );
        }
    }

    #[test]
    fn errors_show_the_ports_of_nvme_and_its_keys() {
        for (text, expected) in [
            ("example.com", "for example 127.0.0.1:4420, [::1]:4420"),
            (
                "127.0.0.1:1,tag=1",
                "unknown key `tag`; known are advertise, tls",
            ),
            ("127.0.0.1:1,adverise=1", "did you mean `advertise`?"),
        ] {
            let message = text.parse::<NvmeListenerConfig>().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let message = "nowhere".parse::<DiscoveryArgument>().unwrap_err();
        assert!(message.to_string().contains("127.0.0.1:8009"), "{message}");
    }

    #[test]
    fn discovery_stands_beside_the_port_of_the_standard_only() {
        let beside = listener("[::1]:4420,advertise=192.0.2.7:14420").discovery_beside();
        let beside = beside.unwrap();
        assert_eq!(beside.address.to_string(), "[::1]:8009");
        let told = beside.advertise.unwrap().with_port_of(beside.address);
        assert_eq!(told.to_string(), "192.0.2.7:8009");
        assert_eq!(listener("127.0.0.1:0").discovery_beside(), None);
        assert_eq!(listener("127.0.0.1:4421").discovery_beside(), None);
    }

    #[test]
    fn none_and_an_address_contradict_each_other() {
        let read = |texts: &[&str]| {
            let arguments = texts.iter().map(|text| text.parse().unwrap()).collect();
            DiscoveryListeners::from_arguments(arguments)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(
            read(&["none"]),
            Ok(Some(DiscoveryListeners::At(Vec::new())))
        );
        assert_eq!(read(&["127.0.0.1:8009", "none"]), Err(Contradiction));
        let both = read(&["127.0.0.1:8009", "[::1]:8009"]).unwrap().unwrap();
        assert_eq!(both.by_name().len(), 2);
    }

    proptest! {
        #[test]
        fn any_argument_is_read_or_refused_without_panic(text in "[0-9a-z.:,=\\[\\]é]{0,40}") {
            if let Err(error) = text.parse::<DiscoveryArgument>() {
                let _ = error.to_string();
            }
        }
    }
}
