//! TCP connections to a portal.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::url::HostPort;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to the first address of the portal that answers, within `timeout` for all of them.
///
/// # Errors
/// The name has no address, or none of its addresses answers.
pub(crate) fn connect(
    portal: &HostPort,
    timeout: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let deadline = Instant::now() + timeout;
    let unresolved = |source| Error::Resolve {
        portal: portal.clone(),
        source: Arc::new(source),
    };
    let addresses = resolve(portal, timeout).map_err(unresolved)?;
    let mut last = None;
    for (tried, address) in addresses.iter().enumerate() {
        // An address that nothing answers from leaves time for those behind it.
        let untried = u32::try_from(addresses.len() - tried).expect("they are few");
        let left = deadline.saturating_duration_since(Instant::now()) / untried;
        // Zero would be an error of another kind.
        let left = left.max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, left) {
            Ok(stream) => {
                // A segment is sent when it is there; this is speed, so a refusal is no reason to fail.
                let _ = stream.set_nodelay(true);
                return Ok((stream, *address));
            }
            Err(source) => last = Some((*address, source)),
        }
    }
    Err(match last {
        Some((address, source)) => Error::Connect {
            portal: portal.clone(),
            address,
            source: Arc::new(source),
        },
        None => unresolved(io::Error::other("the name has no address")),
    })
}

/// The addresses of a portal, at most [`ADDRESSES_MAX`].
fn resolve(portal: &HostPort, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = portal.host.parse() {
        return Ok(vec![SocketAddr::new(address, portal.port)]);
    }
    // The resolver takes its own time, which nothing can cut short; so it runs where nobody waits for it.
    let (sender, answers) = mpsc::channel();
    let (host, port) = (portal.host.clone(), portal.port);
    thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            // Nobody listens when it took too long.
            let _ = sender.send(found.map(|found| found.take(ADDRESSES_MAX).collect()));
        })?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer");
    answers.recv_timeout(timeout).map_err(late)?
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn portal(host: &str, port: u16) -> HostPort {
        HostPort {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn a_name_is_resolved_and_the_address_that_answers_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Where it stands for ::1 as well, nothing answers there.
        let (stream, address) = connect(&portal("localhost", port), TIMEOUT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        assert!(stream.nodelay().unwrap());
    }

    #[test]
    fn a_refusal_names_the_address() {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let error = connect(&portal("127.0.0.1", port), TIMEOUT).unwrap_err();
        let Error::Connect { address, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(address.port(), port);
        assert!(
            error.to_string().contains("check that the server runs"),
            "{error}"
        );
    }

    #[test]
    fn a_name_without_an_address_is_told_apart() {
        let error = connect(&portal("no-such-host.invalid", 1), TIMEOUT).unwrap_err();
        assert!(matches!(error, Error::Resolve { .. }), "{error}");
    }
}
