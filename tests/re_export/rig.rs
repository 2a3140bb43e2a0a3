//! Servers in a row, and a client in front.

use std::time::Duration;

use longshore_initiator::options::Options;
use longshore_initiator::volume::{RemoteVolume, block_on};
use longshore_reactor::Buffer;
use longshore_tests::server::{Server, ServerBuilder, TARGET};

pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// The protocols between two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Iscsi,
    NvmeTcp,
}

pub use Protocol::{Iscsi, NvmeTcp};

pub const BOTH: [Protocol; 2] = [Iscsi, NvmeTcp];

pub const ENGINES: [&str; 2] = ["io_uring", "epoll"];

impl Protocol {
    /// The backend that speaks it.
    pub fn backend(self) -> &'static str {
        match self {
            Iscsi => "iscsi",
            NvmeTcp => "nvme-tcp",
        }
    }

    /// The first volume of a server.
    pub fn url(self, server: &Server) -> String {
        match self {
            Iscsi => format!("iscsi://{}/{TARGET}/0", server.portal(0)),
            NvmeTcp => format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.nvme(0)),
        }
    }
}

/// A server of one volume over both protocols.
pub fn serving(volume: &str) -> ServerBuilder {
    ServerBuilder::new().volume(volume).iscsi().nvme()
}

/// A server A over the first volume of B. `keys` go behind its URL, such as `,give-up=1s`.
pub fn over(b: &Server, protocol: Protocol, keys: &str) -> ServerBuilder {
    over_url(protocol, &protocol.url(b), keys)
}

/// The same with a URL.
pub fn over_url(protocol: Protocol, url: &str, keys: &str) -> ServerBuilder {
    serving(&format!("r,backend={},url={url}{keys}", protocol.backend()))
}

/// A client of a server's first volume.
pub struct Client(pub RemoteVolume);

impl Client {
    pub fn new(server: &Server, protocol: Protocol) -> Self {
        let url = protocol.url(server).parse().expect("a URL");
        let mut options = Options::default();
        // What takes longer at A than this is a failure of A, not of patience.
        options.timeouts.request = Duration::from_secs(60);
        // Nobody waits for a server that the test has ended.
        options.volume.close_wait = Duration::from_secs(1);
        Self(RemoteVolume::open(&url, &options).expect("the server is there"))
    }

    pub fn size(&self) -> u64 {
        self.0.info().size_bytes()
    }

    pub fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), String> {
        let mut buffer = Buffer::allocate(bytes.len());
        buffer.copy_from_slice(bytes);
        let (result, _) = block_on(self.0.write(offset, buffer, fua));
        result.map_err(|failure| failure.to_string())
    }

    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let (result, buffer) = block_on(self.0.read(offset, Buffer::allocate(length)));
        result
            .map(|()| buffer.to_vec())
            .map_err(|failure| failure.to_string())
    }

    pub fn flush(&self) -> Result<(), String> {
        block_on(self.0.flush()).map_err(|failure| failure.to_string())
    }
}

/// Bytes that tell their place and generation.
pub fn pattern(offset: u64, length: usize, generation: u8) -> Vec<u8> {
    (offset..)
        .step_by(8)
        .flat_map(|at| (at ^ u64::from(generation) << 56).to_le_bytes())
        .take(length)
        .collect()
}
