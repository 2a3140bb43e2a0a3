//! Who is met, where, and what is known of them.
//!
//! Names, secrets and volumes are those that `xtask/src/peers.rs` and `tests/peers/guest/targets.sh` set up;
//! that file's module page lists the variables with the addresses.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_initiator::info::Protocol;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_tests::proxy;
use longshore_tests::server::{Server, ServerBuilder, TARGET};

/// Bytes of every volume.
pub const VOLUME_SIZE: u64 = 64 << 20;

/// Targets and subsystems of tgt and of the guest.
const PEER_IQN: &str = "iqn.2026-11.local.longshore.peer";
const PEER_NQN: &str = "nqn.2026-11.local.longshore.peer";
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// CHAP user of every peer.
pub const USER: &str = "alice";
pub const SECRET: &str = "longshore-secret";
pub const TARGET_USER: &str = "server";
pub const TARGET_SECRET: &str = "longshore-mutual";

/// A server that is there.
pub struct Peer {
    /// The first part of the names of tests.
    pub name: &'static str,
    pub maker: Maker,
    pub protocol: Protocol,
    /// Two ways to the same volumes.
    pub portals: [SocketAddr; 2],
    /// The way to a server of the same volumes that is cut at each PDU.
    pub cut_portal: SocketAddr,
    /// TargetName or SUBNQN of the peer.
    pub target: String,
    /// LUN or NSID of a volume with blocks of 512 bytes.
    pub volume: u32,
    /// And of one with blocks of 4096 bytes.
    pub wide_volume: u32,
    /// Portal and name of targets with CHAP, one-way and mutual.
    pub chap: Option<[(SocketAddr, String); 2]>,
    /// Where it takes commands of ours.
    pub control: Option<SocketAddr>,
    /// Held by the fact that is looked at. Peers that share volumes share it.
    pub turn: Arc<Mutex<()>>,
    /// Held so that ours keep running.
    servers: Vec<Arc<Server>>,
}

/// Who wrote a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// tgt 1.0.85, in user space.
    Tgt,
    /// LIO of Linux 6.1.
    Lio,
    /// nvmet of Linux 6.1.
    Nvmet,
    /// This project's server, as a control.
    Longshore,
}

impl Maker {
    /// Whether it runs in a guest whose processor is emulated, at a thirtieth of the speed.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::Lio | Self::Nvmet)
    }
}

/// A server that is not there, and the variable that would say where.
pub struct Absent {
    pub peer: &'static str,
    pub variable: &'static str,
}

impl Peer {
    /// The URL of a volume by number, with a query (`?portal=…`) or without.
    fn url_of(&self, portal: SocketAddr, target: &str, volume: u32, query: &str) -> Url {
        let scheme = match self.protocol {
            Protocol::Iscsi => "iscsi",
            Protocol::NvmeTcp => "nvme+tcp",
        };
        let text = format!("{scheme}://{portal}/{target}/{volume}{query}");
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Its volume with blocks of 512 bytes.
    pub fn url(&self) -> Url {
        self.url_at(self.portals[0])
    }

    /// The same volume through another address, such as a proxy's.
    pub fn url_at(&self, portal: SocketAddr) -> Url {
        self.url_of(portal, &self.target, self.volume, "")
    }

    /// The same volume through two addresses.
    pub fn url_over(&self, portals: [SocketAddr; 2]) -> Url {
        let query = format!("?portal={}", portals[1]);
        self.url_of(portals[0], &self.target, self.volume, &query)
    }

    /// A volume by its number.
    pub fn url_of_volume(&self, volume: u32) -> Url {
        self.url_of(self.portals[0], &self.target, volume, "")
    }

    /// A volume of another target or subsystem.
    pub fn url_of_target(&self, target: &str) -> Url {
        self.url_of(self.portals[0], target, self.volume, "")
    }

    /// The volume behind CHAP: one-way, or mutual.
    pub fn chap_url(&self, mutual: bool) -> Url {
        let targets = self
            .chap
            .as_ref()
            .expect("the fact is about peers with CHAP");
        let (portal, target) = &targets[usize::from(mutual)];
        self.url_of(*portal, target, self.volume, "")
    }

    /// Blocks of the volume with such blocks.
    pub fn blocks(block_size: u32) -> u64 {
        VOLUME_SIZE / u64::from(block_size)
    }

    /// Which proxy understands it.
    pub fn proxy_protocol(&self) -> proxy::Protocol {
        match self.protocol {
            Protocol::Iscsi => proxy::Protocol::Iscsi,
            Protocol::NvmeTcp => proxy::Protocol::NvmeTcp,
        }
    }

    /// Options for tests: shorter time-outs, generous for what is emulated.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        options.timeouts.connect = Duration::from_secs(5);
        options.timeouts.reconnect_min = Duration::from_millis(10);
        options.timeouts.reconnect_max = Duration::from_millis(500);
        options.timeouts.give_up = Duration::from_secs(30);
        options
    }

    /// Has the peer do something (the guest's script lists what); its answer.
    pub fn command(&self, command: &str) -> String {
        let address = self
            .control
            .expect("the fact is about peers that take commands");
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        let answer = answer.trim_end();
        let done = answer.strip_prefix("ok");
        done.unwrap_or_else(|| panic!("{command}: {answer}"))
            .trim()
            .to_owned()
    }

    /// How much it holds for its initiators, where that can be seen: files that ours has open, sessions of
    /// LIO's open target.
    pub fn holds(&self) -> Option<usize> {
        if let Some(server) = self.servers.first() {
            let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
            return Some(files.expect("the server runs").count());
        }
        (self.maker == Maker::Lio && self.control.is_some())
            .then(|| self.command("sessions").parse().expect("a number"))
    }

    /// Whether it has COMPARE AND WRITE, or Compare and Write as fused commands.
    pub fn has_compare_and_write(&self) -> bool {
        matches!(self.maker, Maker::Lio | Maker::Longshore)
    }
}

/// All peers that are there, and those that are not.
pub fn all() -> (Vec<Arc<Peer>>, Vec<Absent>) {
    let mut peers = ours();
    let mut absent = Vec::new();
    let mut meet =
        |names: &[&'static str], variable, make: fn(&[SocketAddr]) -> Vec<Peer>| match addresses(
            variable,
        ) {
            Some(addresses) => peers.extend(make(&addresses)),
            None => absent.extend(names.iter().map(|peer| Absent { peer, variable })),
        };
    meet(&["tgt"], "LONGSHORE_PEER_TGT", tgt);
    meet(&["lio-file", "lio-block"], "LONGSHORE_PEER_LIO", lio);
    meet(&["nvmet"], "LONGSHORE_PEER_NVMET", nvmet);
    (peers.into_iter().map(Arc::new).collect(), absent)
}

fn addresses(variable: &str) -> Option<Vec<SocketAddr>> {
    let text = env::var(variable).ok()?;
    let parse = |word: &str| {
        word.parse()
            .unwrap_or_else(|error| panic!("{variable}: {word}: {error}"))
    };
    Some(text.split_whitespace().map(parse).collect())
}

/// Our server, with volumes of its own for each protocol, and another with CHAP.
fn ours() -> Vec<Peer> {
    let size = format!("{}M", VOLUME_SIZE >> 20);
    let volumes = || {
        ServerBuilder::new()
            .volume(&format!("disk0,backend=mem,size={size}"))
            .volume(&format!("disk1,backend=mem,size={size},block-size=4096"))
            .volume(&format!("disk2,backend=mem,size={size}"))
            .volume(&format!("disk3,backend=mem,size={size},block-size=4096"))
            .iscsi()
    };
    let start = |builder: ServerBuilder| Arc::new(builder.start().expect("our server starts"));
    let open = start(volumes().iscsi());
    let open_nvme = start(volumes().nvme().nvme());
    let core = first_core();
    let single = start(volumes().nvme().argument("--cores").argument(&core));
    let closed = start(volumes().config(&format!(
        r#"
        [[target]]
        name = "{PEER_IQN}:chap"
        accounts = [{{ user = "{USER}", secret = "{SECRET}" }}]

        [[target]]
        name = "{PEER_IQN}:mutual"
        accounts = [{{ user = "{USER}", secret = "{SECRET}" }}]
        mutual = {{ user = "{TARGET_USER}", secret = "{TARGET_SECRET}" }}
        "#
    )));
    let chap = ["chap", "mutual"].map(|name| (closed.portal(0), format!("{PEER_IQN}:{name}")));
    let iscsi = Peer {
        name: "longshore-iscsi",
        maker: Maker::Longshore,
        protocol: Protocol::Iscsi,
        portals: [open.portal(0), open.portal(1)],
        cut_portal: open.portal(0),
        target: TARGET.to_owned(),
        volume: 0,
        wide_volume: 1,
        chap: Some(chap),
        control: None,
        turn: Arc::default(),
        servers: vec![open, closed],
    };
    let nvme = Peer {
        name: "longshore-nvme",
        maker: Maker::Longshore,
        protocol: Protocol::NvmeTcp,
        portals: [open_nvme.nvme(0), open_nvme.nvme(1)],
        cut_portal: single.nvme(0),
        target: SUBSYSTEM.to_owned(),
        volume: 3,
        wide_volume: 4,
        chap: None,
        control: None,
        turn: Arc::default(),
        servers: vec![open_nvme, single],
    };
    vec![iscsi, nvme]
}

/// A processor this process may use.
fn first_core() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    first.expect("there is a processor").to_owned()
}

fn tgt(portals: &[SocketAddr]) -> Vec<Peer> {
    let chap = ["chap", "mutual"].map(|name| (portals[0], format!("{PEER_IQN}:{name}")));
    vec![Peer {
        name: "tgt",
        maker: Maker::Tgt,
        protocol: Protocol::Iscsi,
        portals: [portals[0], portals[1]],
        cut_portal: portals[0],
        target: TARGET.to_owned(),
        volume: 1,
        wide_volume: 2,
        chap: Some(chap),
        control: None,
        turn: Arc::default(),
        servers: Vec::new(),
    }]
}

fn lio(portals: &[SocketAddr]) -> Vec<Peer> {
    let turn: Arc<Mutex<()>> = Arc::default();
    let peer = |name, volume| Peer {
        name,
        maker: Maker::Lio,
        protocol: Protocol::Iscsi,
        portals: [portals[0], portals[1]],
        cut_portal: portals[0],
        target: format!("{PEER_IQN}:open"),
        volume,
        wide_volume: 2,
        chap: Some([
            (portals[2], format!("{PEER_IQN}:chap")),
            (portals[3], format!("{PEER_IQN}:mutual")),
        ]),
        control: control(),
        turn: Arc::clone(&turn),
        servers: Vec::new(),
    };
    vec![peer("lio-file", 0), peer("lio-block", 1)]
}

/// Its second namespace is a file, which nvmet serves in blocks of the file system's size.
fn nvmet(portals: &[SocketAddr]) -> Vec<Peer> {
    vec![Peer {
        name: "nvmet",
        maker: Maker::Nvmet,
        protocol: Protocol::NvmeTcp,
        portals: [portals[0], portals[1]],
        cut_portal: portals[0],
        target: format!("{PEER_NQN}:disks"),
        volume: 1,
        wide_volume: 2,
        chap: None,
        control: control(),
        turn: Arc::default(),
        servers: Vec::new(),
    }]
}

fn control() -> Option<SocketAddr> {
    addresses("LONGSHORE_PEER_CONTROL")?.first().copied()
}
