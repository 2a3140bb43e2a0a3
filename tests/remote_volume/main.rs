//! Remote volumes of the library over real servers of ours that die, stall and come back under load: nothing that was
//! acknowledged may be lost, and nothing may be done twice.

#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers, in tests only"
)]

mod compare;
mod load;
mod paths;
mod restarts;
mod submitting;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_initiator::volume::RemoteVolume;
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET, free_port};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which protocol a test speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Iscsi,
    Nvme,
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Iscsi, Protocol::Nvme];

impl Protocol {
    /// The URL of the first volume at these portals, all of them paths to it.
    fn url(self, portals: &[SocketAddr]) -> Url {
        let others: Vec<_> = portals[1..]
            .iter()
            .map(|portal| format!("portal={portal}"))
            .collect();
        let query = match others.as_slice() {
            [] => String::new(),
            others => format!("?{}", others.join("&")),
        };
        let first = portals[0];
        let text = match self {
            Self::Iscsi => format!("iscsi://{first}/{TARGET}/0{query}"),
            Self::Nvme => format!("nvme+tcp://{first}/{SUBSYSTEM}/1{query}"),
        };
        text.parse().unwrap()
    }
}

/// A server of one file, which can be killed and started again at the same address.
struct Restartable {
    scratch: Scratch,
    address: SocketAddr,
    protocol: Protocol,
    server: Option<Server>,
}

impl Restartable {
    fn start(protocol: Protocol) -> Self {
        let mut this = Self {
            scratch: Scratch::new("remote-volume"),
            address: free_port(),
            protocol,
            server: None,
        };
        this.restart("disk0.img");
        this
    }

    fn url(&self) -> Url {
        self.protocol.url(&[self.address])
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn kill(&mut self) {
        self.server.take().unwrap().kill().unwrap();
    }

    /// Starts the server over this file of its folder.
    fn restart(&mut self, file: &str) {
        let path = self.scratch.join(file);
        let builder = file_server(&path);
        let builder = match self.protocol {
            Protocol::Iscsi => builder.iscsi_at(self.address, ""),
            Protocol::Nvme => builder.nvme_at(self.address, ""),
        };
        self.server = Some(builder.start().unwrap());
    }
}

fn file_server(path: &Path) -> ServerBuilder {
    ServerBuilder::new().volume(&format!(
        "disk0,backend=file,path={},size=64M",
        path.display()
    ))
}

/// Options under which losses are found and repaired quickly.
fn options() -> Options {
    let mut options = Options::default();
    options.timeouts.reconnect_min = Duration::from_millis(10);
    options.timeouts.reconnect_max = Duration::from_millis(100);
    options.volume.settle = Duration::from_millis(300);
    options
}

fn open(url: &Url, options: &Options) -> RemoteVolume {
    RemoteVolume::open(url, options).unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
