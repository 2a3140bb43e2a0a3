//! Ports for servers under test.
//!
//! A test has to know a port before its server listens there, and test programs run side by side. So each process
//! claims blocks of ports by abstract Unix sockets, which go with it however it ends, and takes ports from its own
//! blocks only.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Ports stay below 32768, from where the kernel takes those of outgoing connections.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 240;
const PORTS_OF_BLOCK: u16 = 50;

/// The blocks of this process, and the port looked at last.
struct Claims {
    blocks: Vec<Block>,
    next: usize,
}

struct Block {
    first: u16,
    /// Keeps the block from other processes.
    _claim: UnixListener,
}

static CLAIMS: Mutex<Claims> = Mutex::new(Claims {
    blocks: Vec::new(),
    next: 0,
});

/// A loopback address with a port that is free now, and that no other test program takes.
///
/// # Panics
/// When no port is left.
pub fn free_port() -> SocketAddr {
    // A test that panicked has left nothing half done here.
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    claims.free_port()
}

impl Claims {
    fn free_port(&mut self) -> SocketAddr {
        loop {
            // Each port comes once around before it comes again: it may be given to a server that does not listen yet.
            let count = self.blocks.len() * usize::from(PORTS_OF_BLOCK);
            while self.next < count {
                let port = self.port(self.next);
                self.next += 1;
                if is_free(port) {
                    return port;
                }
            }
            match claim() {
                Some(block) => self.blocks.push(block),
                None if count > 0 && (0..count).any(|index| is_free(self.port(index))) => {
                    self.next = 0
                }
                None => panic!("no free port from {FIRST} on"),
            }
        }
    }

    fn port(&self, index: usize) -> SocketAddr {
        let of_block = usize::from(PORTS_OF_BLOCK);
        let offset = u16::try_from(index % of_block).expect("less than a block");
        SocketAddr::from((
            Ipv4Addr::LOCALHOST,
            self.blocks[index / of_block].first + offset,
        ))
    }
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// Claims a block that no process has.
fn claim() -> Option<Block> {
    (0..BLOCKS).find_map(|number| {
        let first = FIRST + number * PORTS_OF_BLOCK;
        let name = format!("longshore-tests-ports-{first}");
        let address = UnixAddress::from_abstract_name(name).ok()?;
        let claim = UnixListener::bind_addr(&address).ok()?;
        Some(Block {
            first,
            _claim: claim,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_port_is_given_once_although_nobody_listens_there() {
        let ports: HashSet<_> = (0..120).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 120);
    }

    #[test]
    fn a_block_is_claimed_by_one_at_a_time() {
        let first = claim().unwrap();
        let second = claim().unwrap();
        assert_ne!(first.first, second.first);
    }
}
