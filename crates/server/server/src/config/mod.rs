//! The exports and limits of a server. Plain values, checked by [`crate::Server::start`].

pub(crate) mod check;
mod copies;
mod error;
mod listener_id;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_nvme::auth::Credentials;
pub use longshore_nvme::controller::{TlsKeys, TlsUse};
use longshore_nvme::nqn::Nqn;
use longshore_reactor::EngineChoice;
use longshore_volume::Volume;
use longshore_wire::pattern::NamePattern;

pub use copies::{ByReference, Copies};
pub use error::StartError;
pub use listener_id::ListenerId;
pub use longshore_transmit::{
    NagleCycles, NagleThreshold, SendUnit, TransmitConfig, TransmitPolicy, UnknownWord,
};

/// Everything a server needs to know.
pub struct ServerConfig {
    /// The volumes, by index.
    pub volumes: Vec<Arc<dyn Volume>>,
    pub targets: Vec<TargetConfig>,
    /// What discovery sessions must prove.
    pub discovery: Authentication,
    /// Where to listen for iSCSI.
    pub listeners: Vec<ListenerConfig>,
    pub subsystems: Vec<SubsystemConfig>,
    /// Where to listen for NVMe/TCP.
    pub nvme_listeners: Vec<NvmeListenerConfig>,
    pub engine: EngineChoice,
    /// One reactor per entry, pinned to that core. Empty: one for every core this process may use.
    pub cores: Vec<usize>,
    pub transmit: TransmitConfig,
    /// What is sent without copying it.
    pub copies: Copies,
    pub reactor: ReactorConfig,
    pub limits: PeerLimits,
    /// Where reservations that must survive a restart are kept. `None`: they are refused.
    pub state_directory: Option<PathBuf>,
    /// One operation in so many is followed through its stages, for statistics; 0: none.
    pub sample: u32,
}

/// What a server exports: all that can change while it runs. Volumes in maps are indices into `volumes`.
#[derive(Clone)]
pub struct ExportsConfig {
    /// The volumes, each once.
    pub volumes: Vec<Arc<dyn Volume>>,
    pub targets: Vec<TargetConfig>,
    /// What discovery sessions must prove.
    pub discovery: Authentication,
    pub subsystems: Vec<SubsystemConfig>,
}

/// Listeners that come and go with a change of the exports.
#[derive(Debug, Default)]
pub struct ListenerChanges {
    /// Sockets that listen already: initiators that connect wait until the change is made.
    pub iscsi: Vec<ListenerConfig>,
    /// The same for NVMe hosts.
    pub nvme: Vec<NvmeListenerConfig>,
    /// Those that go. Their connections stay, but for those of iSCSI whose portal group has no listener left.
    pub removed: Vec<ListenerId>,
}

impl ServerConfig {
    /// Takes out what the server exports at first.
    pub(crate) fn take_exports(&mut self) -> ExportsConfig {
        ExportsConfig {
            volumes: std::mem::take(&mut self.volumes),
            targets: std::mem::take(&mut self.targets),
            discovery: std::mem::replace(&mut self.discovery, Authentication::none()),
            subsystems: std::mem::take(&mut self.subsystems),
        }
    }
}

/// A listening socket, bound already.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The listening socket, bound by the caller.
    pub listener: TcpListener,
    /// `host:port` that peers are told in place of the address of the socket (NAT, forwarding).
    pub advertise: Option<String>,
    /// Portals of one portal group share a tag (RFC 7143 §3.1.1, Portal Group).
    pub portal_group_tag: u16,
}

impl ListenerConfig {
    /// The address it is bound to.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[derive(Clone, Debug)]
pub struct TargetConfig {
    pub name: IscsiName,
    pub alias: Option<String>,
    /// Portal group tags it is reachable through. Empty: all.
    pub portal_groups: Vec<u16>,
    pub relative_ports: RelativePorts,
    /// What it offers in negotiations.
    pub login: LoginConfig,
    /// What initiators must prove, where their access rule says nothing else.
    pub authentication: Authentication,
    /// The logical units of initiators that no rule names. `None`: those initiators are refused.
    pub default_luns: Option<Vec<LunConfig>>,
    /// Rules for initiators by name; the first that matches decides.
    pub access: Vec<AccessRule>,
    /// Where it is served now, if no longer here. Discovery shows it as before; logins are sent on.
    pub moved_to: Option<Moved>,
}

impl TargetConfig {
    /// Every map of the target.
    pub fn maps(&self) -> impl Iterator<Item = &[LunConfig]> {
        let named = self.access.iter().map(|rule| &rule.luns);
        named.chain(&self.default_luns).map(Vec::as_slice)
    }

    /// Whether initiators get in without being named or proving anything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.default_luns.is_some() && self.authentication.none_allowed
    }
}

/// Relative target port identifiers of a target (SPC-4 §7.8.6.6), as far as they are given. The server numbers its other
/// ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RelativePorts {
    #[default]
    Automatic,
    /// Of its only port; of several, that in the portal group with the lowest tag.
    Single(NonZeroU16),
    /// By the tags of portal groups.
    ByGroup(BTreeMap<u16, NonZeroU16>),
}

impl RelativePorts {
    /// The identifiers that are given.
    pub fn identifiers(&self) -> impl Iterator<Item = u16> {
        let (single, by_group) = match self {
            Self::Automatic => (None, None),
            Self::Single(identifier) => (Some(identifier), None),
            Self::ByGroup(identifiers) => (None, Some(identifiers.values())),
        };
        let all = single.into_iter().chain(by_group.into_iter().flatten());
        all.map(|identifier| identifier.get())
    }

    /// The identifier given to the port in the portal group `tag`, of a target that is reached through all of `tags`.
    pub(crate) fn of(&self, tag: u16, tags: &[u16]) -> Option<u16> {
        let identifier = match self {
            Self::Automatic => None,
            Self::Single(identifier) => (tags.iter().min() == Some(&tag)).then_some(*identifier),
            Self::ByGroup(identifiers) => identifiers.get(&tag).copied(),
        };
        identifier.map(NonZeroU16::get)
    }
}

/// Where a target has gone (RFC 7143 §11.13.5, Redirection).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// `host:port`, an IPv6 address in brackets, as TargetAddress without the portal group tag.
    pub address: String,
    /// For good (0102), or for now (0101): whether initiators should remember the new address.
    pub permanent: bool,
}

/// What one group of initiators may do with a target.
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// Their names, or patterns of them.
    pub initiators: Vec<NamePattern<IscsiName>>,
    /// What they must prove; `None`: as the target says.
    pub authentication: Option<Authentication>,
    /// Their own map of logical units. A rule without any refuses the login.
    pub luns: Vec<LunConfig>,
}

/// A volume under a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunConfig {
    /// LUN, from 0 to 16383.
    pub lun: u16,
    /// Index of the volume in [`ServerConfig::volumes`].
    pub volume: usize,
    /// Writes through this number are refused.
    pub read_only: bool,
}

#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// NQN that hosts connect to.
    pub nqn: Nqn,
    /// Serial number that hosts see (SN): 1 to 20 printable ASCII characters. `None`: derived from
    /// the name.
    pub serial: Option<String>,
    /// Rules for hosts by name; the first that matches decides.
    pub hosts: Vec<HostRule>,
    /// The namespaces of hosts that no rule names. `None`: those hosts are refused.
    pub default_namespaces: Option<Vec<NamespaceMapEntry>>,
}

impl SubsystemConfig {
    /// Every map of the subsystem.
    pub fn maps(&self) -> impl Iterator<Item = &[NamespaceMapEntry]> {
        let named = self.hosts.iter().map(|rule| &rule.namespaces);
        named.chain(&self.default_namespaces).map(Vec::as_slice)
    }

    /// Whether hosts get in without being named.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.default_namespaces.is_some()
    }
}

/// What one group of hosts may do with a subsystem.
#[derive(Clone, Debug)]
pub struct HostRule {
    /// Names it is for, or patterns of them.
    pub hosts: Vec<NamePattern<Nqn>>,
    /// Their own map of namespaces.
    pub namespaces: Vec<NamespaceMapEntry>,
    /// By what they prove who they are (DH-HMAC-CHAP); `None`: they do not.
    pub credentials: Option<Arc<Credentials>>,
    /// With what they open TLS; `None`: they do not.
    pub tls: Option<Arc<TlsKeys>>,
}

/// A volume under a namespace identifier. In all maps of a subsystem one identifier is one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceMapEntry {
    /// Namespace identifier, from 1.
    pub nsid: u32,
    /// Index of the volume in [`ServerConfig::volumes`].
    pub volume: usize,
    /// Writes through this identifier are refused.
    pub read_only: bool,
}

/// A listening socket for NVMe/TCP, bound already.
#[derive(Debug)]
pub struct NvmeListenerConfig {
    pub listener: TcpListener,
    /// IP address and port, in the form of [`SocketAddr`], that discovery tells in place of the address
    /// of the socket (NAT, forwarding).
    pub advertise: Option<String>,
    /// Only discovery controllers can be reached here.
    pub discovery_only: bool,
    /// Whether TLS is spoken here. Permitted, it is for hosts with keys.
    pub tls: TlsUse,
}

/// How reactors wait for work, and share it and their cores with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactorConfig {
    /// Whether they poll before they fall asleep.
    pub spin: Spin,
    /// Percentage of each core's time that polling may take.
    pub cpu_budget_percent: u8,
    /// Whether connections move to other reactors when the load is uneven.
    pub rebalance: bool,
    /// Whether large reads and writes are made on other cores than the reactor's.
    pub spread: Spread,
    pub sockets: SocketOptions,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        Self {
            spin: Spin::Auto,
            cpu_budget_percent: 100,
            rebalance: true,
            spread: Spread::Auto,
            sockets: SocketOptions::default(),
        }
    }
}

/// Whether a reactor without anything to do polls before it falls asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// While it has been paying lately.
    #[default]
    Auto,
    Off,
    /// For so long each time.
    For {
        microseconds: u32,
    },
}

/// Whether large reads and writes of files are made on other cores than that of their connection's reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// While one connection keeps its reactor busy, others have little to do, and it pays.
    #[default]
    Auto,
    Off,
    /// Always, also where there is no other core.
    Always,
}

/// Options of the kernel for each connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Receives that find nothing poll the network card for so many microseconds (SO_BUSY_POLL).
    pub busy_poll_us: Option<u32>,
    /// Polling takes the place of the card's interrupts while it goes on (SO_PREFER_BUSY_POLL). Without
    /// `busy_poll_us` this has no effect.
    pub prefer_busy_poll: bool,
    /// Priority of what is sent, for queueing disciplines and network cards (SO_PRIORITY).
    pub priority: Option<u32>,
}

/// Bounds on everything a peer can make grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Sessions; a login beyond is refused with "out of resources" (0302).
    pub sessions: usize,
    /// Connections that have not finished their login; beyond, the oldest of them are closed.
    pub pending_logins: usize,
    /// Commands a session may have outstanding (its command window).
    pub queue_depth: u32,
    /// Time for a login.
    pub login_timeout: Duration,
    /// TLS handshakes that are begun in a second; beyond, connections wait for their turn.
    pub tls_handshakes: u32,
    /// The longest pause after wrong CHAP responses; zero: none.
    pub login_pause_max: Duration,
    /// Silence after which an initiator is pinged; zero: never.
    pub nop_interval: Duration,
    /// Time to answer a ping.
    pub nop_timeout: Duration,
    /// A peer that receives none of its read data, or sends none of the requested write data, is cut
    /// after this; after a sixth of it if others find no memory.
    pub stall_timeout: Duration,
    /// Bytes of payload memory, all reactors together.
    pub memory: u64,
    /// Connections; more are closed as they come.
    pub connections: usize,
    /// Time for sessions and controllers to end at shutdown.
    pub drain_timeout: Duration,
    /// NVMe controllers, discovery included; a Connect beyond is refused.
    pub controllers: usize,
    /// I/O queues of a controller.
    pub nvme_io_queues: u16,
    /// Entries of an NVMe submission queue (MQES + 1).
    pub nvme_queue_depth: u16,
    /// Bytes of write data that an NVMe command capsule may carry; a multiple of 16.
    pub in_capsule_data: u32,
    /// The longest Keep Alive Timeout a host may ask for.
    pub keep_alive_max: Duration,
    /// Bytes of write data that one R2T of NVMe/TCP asks for, and that one PDU of a host may carry; at
    /// least 4096.
    pub r2t_bytes: u32,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            pending_logins: 256,
            queue_depth: 512,
            login_timeout: Duration::from_secs(15),
            tls_handshakes: 500,
            login_pause_max: Duration::from_secs(60),
            nop_interval: Duration::from_secs(30),
            nop_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            memory: 1 << 30,
            connections: usize::MAX,
            drain_timeout: Duration::from_secs(10),
            controllers: 1024,
            nvme_io_queues: 64,
            nvme_queue_depth: 1024,
            in_capsule_data: 8192,
            keep_alive_max: Duration::from_secs(600),
            r2t_bytes: 1 << 20,
        }
    }
}
