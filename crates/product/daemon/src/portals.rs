//! Listening sockets: our own, and those the service manager hands over.
//!
//! A socket is bound early, so that a port that is taken is found before anything else is touched,
//! and listens only once there is something to serve.
//!
//! A socket from the service manager serves what the first of these says:
//!
//! 1. its name (`FileDescriptorName=`): `iscsi`, `nvme` or `nvme-discovery`;
//! 2. the configured listener of the same address, whose settings it takes in any case;
//! 3. its port: 4420 is NVMe, 8009 NVMe discovery, every other one iSCSI.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use longshore_server::config::TlsUse;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::config::listener::{DEFAULT_TAG, ListenerConfig};
use crate::config::nvme_listener::{
    DISCOVERY_PORT, DiscoveryListeners, NVME_PORT, NvmeListenerConfig,
};
use crate::config::reach::Addresses;

/// Connections the kernel keeps for us until we accept them; it caps this by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// What peers find behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Iscsi,
    /// NVMe subsystems, and discovery.
    Nvme,
    NvmeDiscovery,
}

impl Kind {
    /// By the name that the service manager gives a socket.
    fn from_name(name: &str) -> Option<Self> {
        [Self::Iscsi, Self::Nvme, Self::NvmeDiscovery]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// By the ports that IANA has assigned.
    fn from_port(port: u16) -> Self {
        match port {
            NVME_PORT => Self::Nvme,
            DISCOVERY_PORT => Self::NvmeDiscovery,
            _ => Self::Iscsi,
        }
    }

    /// Its name in the `ready` line, in units of the service manager, and in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::Nvme => "nvme",
            Self::NvmeDiscovery => "nvme-discovery",
        }
    }
}

/// What a portal tells its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    Iscsi {
        /// What discovery tells instead of the address.
        advertise: Option<String>,
        tag: u16,
    },
    Nvme {
        /// What discovery tells instead of the address.
        advertise: Option<SocketAddr>,
        /// There is nothing but discovery.
        discovery_only: bool,
        tls: TlsUse,
    },
}

/// A listener of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Iscsi(ListenerConfig),
    Nvme(NvmeListenerConfig),
    NvmeDiscovery(NvmeListenerConfig),
}

impl Wanted {
    /// Those the configuration names.
    pub(crate) fn by_name(config: &Config) -> Vec<Self> {
        let iscsi = config.listeners.iter().cloned().map(Self::Iscsi);
        let nvme = config.nvme_listeners.iter().cloned().map(Self::Nvme);
        let discovery = config.nvme_discovery.by_name().iter().cloned();
        iscsi
            .chain(nvme)
            .chain(discovery.map(Self::NvmeDiscovery))
            .collect()
    }

    /// The listener for discovery alone that nobody has asked for by name, beside this one.
    pub(crate) fn discovery_beside(&self, config: &Config) -> Option<Self> {
        let Self::Nvme(listener) = self else {
            return None;
        };
        let is_automatic = config.nvme_discovery == DiscoveryListeners::Automatic;
        let beside = listener.discovery_beside().filter(|_| is_automatic);
        beside.map(Self::NvmeDiscovery)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Iscsi(listener) => listener.address,
            Self::Nvme(listener) | Self::NvmeDiscovery(listener) => listener.address,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Iscsi(_) => Kind::Iscsi,
            Self::Nvme(_) => Kind::Nvme,
            Self::NvmeDiscovery(_) => Kind::NvmeDiscovery,
        }
    }

    /// What it tells peers once it is bound.
    pub(crate) fn service(&self, bound: SocketAddr) -> Service {
        match self {
            Self::Iscsi(listener) => Service::Iscsi {
                advertise: listener
                    .advertise
                    .as_ref()
                    .map(|told| told.with_port_of(bound)),
                tag: listener.tag,
            },
            Self::Nvme(listener) | Self::NvmeDiscovery(listener) => Service::Nvme {
                advertise: listener.advertise.map(|told| told.with_port_of(bound)),
                discovery_only: self.kind() == Kind::NvmeDiscovery,
                tls: listener.tls,
            },
        }
    }
}

/// A portal with its socket.
#[derive(Debug)]
pub struct Portal {
    socket: Socket,
    /// Bound by the service manager, and listening already.
    pub inherited: bool,
    /// What it was bound for, or takes its settings from. `None`: the service manager alone knows of it.
    pub wanted: Option<Wanted>,
    /// Where it is bound; the port is the real one.
    pub address: SocketAddr,
    /// What it tells peers.
    pub service: Service,
}

/// Why a portal cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}\n{}", bind_hint(*.address, .kind, source))]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        kind: Kind,
        /// What the system said.
        source: io::Error,
    },
    /// The service manager passed something else than a listening TCP socket.
    #[error(
        "socket {number} from the service manager cannot be used: {source}\n\
         Use ListenStream= with an address and port in the .socket unit"
    )]
    Inherited {
        /// Position among the sockets passed, from 0.
        number: usize,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// What to do about an address that cannot be bound.
fn bind_hint(address: SocketAddr, kind: &Kind, source: &io::Error) -> String {
    let (port, name) = (address.port(), kind.name());
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "Another program listens there (`ss -ltnp 'sport = :{port}'` shows which). Stop it, or \
             choose another port, for example --{name} {}",
            SocketAddr::new(address.ip(), 0)
        ),
        io::ErrorKind::PermissionDenied => format!(
            "Port {port} needs CAP_NET_BIND_SERVICE; choose port 1024 or higher, or let the \
             service manager pass the socket"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "No interface of this machine has that address; `ip address` lists its addresses"
                .to_owned()
        }
        _ => format!("Choose another address with --{name} or [listen] {name}"),
    }
}

/// The portals of a configuration, bound.
///
/// Sockets from the service manager come first. One that is bound where a configured listener would
/// be takes what is configured for that; any of them replace the default listeners.
pub fn bind(config: &Config) -> Result<Vec<Portal>, PortalError> {
    let mut wanted = Wanted::by_name(config);
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut portals = inherit(&mut ListenFd::from_env(), &names, &mut wanted)?;
    if !portals.is_empty() && config.listeners_by_default {
        return Ok(portals);
    }
    for listener in &wanted {
        portals.push(Portal::bind(listener)?);
    }
    if config.nvme_discovery == DiscoveryListeners::Automatic {
        bind_discovery(&config.nvme_listeners, &mut portals);
    }
    Ok(portals)
}

/// Binds the listeners for discovery that nobody asked for by name. Hosts find discovery on the listeners
/// beside them as well, so a port that is taken keeps nothing from being served.
fn bind_discovery(beside: &[NvmeListenerConfig], portals: &mut Vec<Portal>) {
    for listener in beside
        .iter()
        .filter_map(NvmeListenerConfig::discovery_beside)
    {
        let address = listener.address;
        if portals.iter().any(|portal| portal.address == address) {
            continue;
        }
        match Portal::bind(&Wanted::NvmeDiscovery(listener)) {
            Ok(portal) => portals.push(portal),
            Err(PortalError::Bind { source, .. } | PortalError::Inherited { source, .. }) => {
                tracing::warn!(
                    "cannot listen on {address} for NVMe discovery: {source}; hosts find it on port \
                     {NVME_PORT}. `ss -ltnp 'sport = :{DISCOVERY_PORT}'` shows who listens there; \
                     --nvme-discovery ADDR:PORT chooses another address, --nvme-discovery none \
                     does without the listener"
                );
            }
        }
    }
}

/// Takes the sockets over that were passed, and what is configured for them out of `wanted`. `names` are
/// those of the sockets, with colons between them.
fn inherit(
    passed: &mut ListenFd,
    names: &str,
    wanted: &mut Vec<Wanted>,
) -> Result<Vec<Portal>, PortalError> {
    let mut names = names.split(':');
    let mut portals = Vec::new();
    for number in 0..passed.len() {
        let named = names.next().and_then(Kind::from_name);
        let inherited = |source| PortalError::Inherited { number, source };
        let Some(listener) = passed.take_tcp_listener(number).map_err(inherited)? else {
            continue;
        };
        let socket = Socket::from(listener);
        if !socket.is_listener().map_err(inherited)? {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it does not listen");
            return Err(inherited(source));
        }
        let address = local_address(&socket).map_err(inherited)?;
        let matches = |listener: &Wanted| {
            listener.address() == address && named.is_none_or(|kind| kind == listener.kind())
        };
        let configured = wanted.iter().position(matches);
        let configured = configured.map(|index| wanted.remove(index));
        let service = match &configured {
            Some(listener) => listener.service(address),
            None => match named.unwrap_or_else(|| Kind::from_port(address.port())) {
                Kind::Iscsi => Service::Iscsi {
                    advertise: None,
                    tag: DEFAULT_TAG,
                },
                kind => Service::Nvme {
                    advertise: None,
                    discovery_only: kind == Kind::NvmeDiscovery,
                    tls: TlsUse::Permitted,
                },
            },
        };
        portals.push(Portal {
            socket,
            inherited: true,
            wanted: configured,
            address,
            service,
        });
    }
    Ok(portals)
}

/// The addresses of portals, by what they are for.
#[must_use]
pub fn addresses(portals: &[Portal]) -> Addresses {
    let mut addresses = Addresses::default();
    for portal in portals {
        let address = portal.address;
        match portal.service {
            Service::Iscsi { tag, .. } => addresses.iscsi.push((address, tag)),
            Service::Nvme { discovery_only, .. } if discovery_only => {
                addresses.nvme_discovery.push(address);
            }
            Service::Nvme { .. } => addresses.nvme.push(address),
        }
    }
    addresses
}

/// True when the service manager passed sockets to this process.
#[must_use]
pub fn are_inherited() -> bool {
    env::var_os("LISTEN_FDS").is_some()
}

impl Portal {
    /// Binds a socket; it does not listen yet.
    pub(crate) fn bind(listener: &Wanted) -> Result<Self, PortalError> {
        let (address, kind) = (listener.address(), listener.kind());
        let bind = || {
            let socket = Socket::new(
                Domain::for_address(address),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            // A server started again must get its port although connections of the last one linger.
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                // So that [::] and 0.0.0.0 can both be listened on.
                socket.set_only_v6(true)?;
            }
            socket.bind(&address.into())?;
            let bound = local_address(&socket)?;
            Ok((socket, bound))
        };
        let (socket, bound) = bind().map_err(|source| PortalError::Bind {
            address,
            kind,
            source,
        })?;
        Ok(Self {
            socket,
            inherited: false,
            wanted: Some(listener.clone()),
            address: bound,
            service: listener.service(bound),
        })
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.service {
            Service::Iscsi { .. } => Kind::Iscsi,
            Service::Nvme { discovery_only, .. } if discovery_only => Kind::NvmeDiscovery,
            Service::Nvme { .. } => Kind::Nvme,
        }
    }

    /// Lets peers in, and gives the socket up.
    pub fn listen(self) -> Result<TcpListener, PortalError> {
        if !self.inherited {
            let (address, kind) = (self.address, self.kind());
            self.socket
                .listen(BACKLOG)
                .map_err(|source| PortalError::Bind {
                    address,
                    kind,
                    source,
                })?;
        }
        Ok(self.socket.into())
    }
}

/// The IP address and port a socket is bound to.
fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?;
    address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(text: &str) -> Wanted {
        Wanted::Iscsi(text.parse().unwrap())
    }

    fn nvme(text: &str) -> Wanted {
        Wanted::Nvme(text.parse().unwrap())
    }

    #[test]
    fn a_free_port_is_picked_and_told() {
        let portal = Portal::bind(&listener("127.0.0.1:0,advertise=192.0.2.7,tag=3")).unwrap();
        let address = portal.address;
        assert_ne!(address.port(), 0);
        assert_eq!(
            portal.service,
            Service::Iscsi {
                advertise: Some(format!("192.0.2.7:{}", address.port())),
                tag: 3
            }
        );
        let listening = portal.listen().unwrap();
        assert_eq!(listening.local_addr().unwrap(), address);

        let portal = Portal::bind(&nvme("127.0.0.1:0,advertise=192.0.2.7")).unwrap();
        let told = SocketAddr::new([192, 0, 2, 7].into(), portal.address.port());
        assert_eq!(
            portal.service,
            Service::Nvme {
                tls: TlsUse::Permitted,
                advertise: Some(told),
                discovery_only: false
            }
        );
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_a_way_out() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        for (wanted, option) in [
            (listener(&address.to_string()), "--iscsi 127.0.0.1:0"),
            (nvme(&address.to_string()), "--nvme 127.0.0.1:0"),
        ] {
            let error = match Portal::bind(&wanted).and_then(Portal::listen) {
                Ok(_) => panic!("{address} was bound twice"),
                Err(error) => error.to_string(),
            };
            assert!(
                error.starts_with(&format!("cannot listen on {address}: ")),
                "{error}"
            );
            assert!(error.contains("Another program listens there"), "{error}");
            assert!(error.contains(option), "{error}");
        }
    }

    #[test]
    fn a_discovery_port_that_is_taken_keeps_nothing_from_being_served() {
        // Whether the port of the standard is free here is not for a test to say; an address that this
        // machine does not have is refused in the same way.
        let beside = "192.0.2.1:4420".parse().unwrap();
        let mut portals = Vec::new();
        bind_discovery(&[beside], &mut portals);
        assert_eq!(portals.len(), 0);
    }

    #[test]
    fn sockets_are_known_by_name_and_port() {
        for (name, kind) in [
            ("iscsi", Some(Kind::Iscsi)),
            ("nvme", Some(Kind::Nvme)),
            ("nvme-discovery", Some(Kind::NvmeDiscovery)),
            ("longshore.socket", None),
            ("", None),
        ] {
            assert_eq!(Kind::from_name(name), kind, "{name}");
        }
        for (port, kind) in [
            (3260, Kind::Iscsi),
            (4420, Kind::Nvme),
            (8009, Kind::NvmeDiscovery),
            (40001, Kind::Iscsi),
        ] {
            assert_eq!(Kind::from_port(port), kind, "{port}");
        }
    }

    #[test]
    fn an_address_of_another_machine_is_named_as_such() {
        let error = Portal::bind(&listener("192.0.2.1:3260"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("No interface of this machine has that address"),
            "{error}"
        );
    }

    #[test]
    fn both_unspecified_addresses_can_share_a_port() {
        let Ok(v6) = Portal::bind(&listener("[::]:0")) else {
            eprintln!("skipped: this machine has no IPv6");
            return;
        };
        let v4 = listener(&format!("0.0.0.0:{}", v6.address.port()));
        let v6 = v6.listen().unwrap();
        assert!(Portal::bind(&v4).and_then(Portal::listen).is_ok());
        drop(v6);
    }
}
