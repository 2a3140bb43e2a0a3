//! Listening sockets: our own, and those the service manager hands over.
//!
//! A socket is bound early, so that a port that is taken is found before anything else is touched,
//! and listens only once there is something to serve.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::config::listener::{DEFAULT_TAG, ListenerConfig};

/// Connections the kernel keeps for us until we accept them; it caps this by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A portal with its socket.
#[derive(Debug)]
pub struct Portal {
    socket: Socket,
    /// Bound by the service manager, and listening already.
    inherited: bool,
    /// Where it is bound; the port is the real one.
    pub address: SocketAddr,
    /// What discovery tells instead.
    pub advertise: Option<String>,
    /// Its portal group.
    pub tag: u16,
}

/// Why a portal cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}\n{}", bind_hint(*.address, source))]
    Bind {
        /// What was asked for.
        address: SocketAddr,
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
fn bind_hint(address: SocketAddr, source: &io::Error) -> String {
    let port = address.port();
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "Another program listens there (`ss -ltnp 'sport = :{port}'` shows which). Stop it, or \
             choose another port, for example --iscsi {}",
            SocketAddr::new(address.ip(), 0)
        ),
        io::ErrorKind::PermissionDenied => format!(
            "Port {port} needs CAP_NET_BIND_SERVICE; choose a port from 1024 on, or let the service \
             manager pass the socket"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "No interface of this machine has that address; `ip address` shows those there are"
                .to_owned()
        }
        _ => "Choose another address with --iscsi or [listen] iscsi".to_owned(),
    }
}

/// The portals of a configuration, bound.
///
/// Sockets from the service manager come first. One that is bound where a configured listener would
/// be takes that listener's tag and advertised address; any of them replace the default listener.
pub fn bind(config: &Config) -> Result<Vec<Portal>, PortalError> {
    let mut wanted = config.listeners.clone();
    let mut portals = inherit(&mut ListenFd::from_env(), &mut wanted)?;
    if !portals.is_empty() && config.listeners_by_default {
        return Ok(portals);
    }
    for listener in &wanted {
        portals.push(Portal::bind(listener)?);
    }
    Ok(portals)
}

/// Takes the sockets over that were passed, and what is configured for them out of `wanted`.
fn inherit(
    passed: &mut ListenFd,
    wanted: &mut Vec<ListenerConfig>,
) -> Result<Vec<Portal>, PortalError> {
    let mut portals = Vec::new();
    for number in 0..passed.len() {
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
        let configured = wanted
            .iter()
            .position(|listener| listener.address == address);
        let configured = configured.map(|index| wanted.remove(index));
        let advertise = configured
            .as_ref()
            .and_then(|listener| listener.advertise.as_ref());
        portals.push(Portal {
            advertise: advertise.map(|advertise| advertise.with_port_of(address)),
            tag: configured
                .as_ref()
                .map_or(DEFAULT_TAG, |listener| listener.tag),
            socket,
            inherited: true,
            address,
        });
    }
    Ok(portals)
}

/// True when the service manager passed sockets to this process.
#[must_use]
pub fn are_inherited() -> bool {
    env::var_os("LISTEN_FDS").is_some()
}

impl Portal {
    /// Binds a socket; it does not listen yet.
    fn bind(listener: &ListenerConfig) -> Result<Self, PortalError> {
        let address = listener.address;
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
        let (socket, bound) = bind().map_err(|source| PortalError::Bind { address, source })?;
        Ok(Self {
            socket,
            inherited: false,
            address: bound,
            advertise: listener
                .advertise
                .as_ref()
                .map(|other| other.with_port_of(bound)),
            tag: listener.tag,
        })
    }

    /// Lets peers in, and gives the socket up.
    pub fn listen(self) -> Result<TcpListener, PortalError> {
        if !self.inherited {
            let address = self.address;
            self.socket
                .listen(BACKLOG)
                .map_err(|source| PortalError::Bind { address, source })?;
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

    fn listener(text: &str) -> ListenerConfig {
        text.parse().unwrap()
    }

    #[test]
    fn a_free_port_is_picked_and_told() {
        let portal = Portal::bind(&listener("127.0.0.1:0,advertise=192.0.2.7,tag=3")).unwrap();
        assert_ne!(portal.address.port(), 0);
        assert_eq!(
            portal.advertise,
            Some(format!("192.0.2.7:{}", portal.address.port()))
        );
        assert_eq!(portal.tag, 3);
        let address = portal.address;
        let listening = portal.listen().unwrap();
        assert_eq!(listening.local_addr().unwrap(), address);
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_a_way_out() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let config = ListenerConfig {
            address,
            advertise: None,
            tag: 1,
        };
        let error = match Portal::bind(&config).and_then(Portal::listen) {
            Ok(_) => panic!("{address} was bound twice"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.starts_with(&format!("cannot listen on {address}: ")),
            "{error}"
        );
        assert!(error.contains("Another program listens there"), "{error}");
        assert!(error.contains("--iscsi 127.0.0.1:0"), "{error}");
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
        let v4 = ListenerConfig {
            address: SocketAddr::new([0, 0, 0, 0].into(), v6.address.port()),
            advertise: None,
            tag: 1,
        };
        let v6 = v6.listen().unwrap();
        assert!(Portal::bind(&v4).and_then(Portal::listen).is_ok());
        drop(v6);
    }
}
