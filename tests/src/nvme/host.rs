//! A host: an admin queue and I/O queues to one controller.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::LIMIT;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{
    self, ANY_CONTROLLER, Blocks, Connect, Property, get_log_page, identify,
};
use longshore_nvme::host::{Command, ConnectionConfig};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::pdu::Digests;
use longshore_nvme::status::Status;
use longshore_wire::field::{le16, le32, le64};

use super::{Answer, DISCOVERY, Queue, SUBSYSTEM};

/// How a host connects.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// HOSTNQN to connect with.
    pub host: String,
    /// HOSTID to connect with.
    pub host_identifier: [u8; 16],
    /// SUBNQN to connect to.
    pub subsystem: String,
    /// KATO; 0 for none.
    pub keep_alive_ms: u32,
    /// Entries of each queue.
    pub entries: u16,
    /// How many I/O queues.
    pub io_queues: u16,
    /// Whether submission queues have flow control.
    pub flow_control: bool,
    /// What ICReq asks for.
    pub connection: ConnectionConfig,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self::numbered(1)
    }
}

impl HostOptions {
    /// One of several hosts.
    pub fn numbered(number: u8) -> Self {
        let mut host_identifier = [0x5a; 16];
        host_identifier[15] = number;
        Self {
            host: format!("nqn.2026-11.local.longshore:tests-{number}"),
            host_identifier,
            subsystem: SUBSYSTEM.to_owned(),
            keep_alive_ms: 0,
            entries: 32,
            io_queues: 1,
            flow_control: false,
            connection: ConnectionConfig::default(),
        }
    }

    /// A host that looks for subsystems.
    #[must_use]
    pub fn discovery(mut self) -> Self {
        self.subsystem = DISCOVERY.to_owned();
        self.io_queues = 0;
        self
    }

    #[must_use]
    pub fn digests(mut self, header: bool, data: bool) -> Self {
        self.connection.digests = Digests { header, data };
        self
    }

    /// With so many I/O queues.
    #[must_use]
    pub fn queues(mut self, io_queues: u16) -> Self {
        self.io_queues = io_queues;
        self
    }

    /// The Connect command of a queue.
    ///
    /// # Panics
    /// When a name is none.
    pub fn connect(&self, queue_id: u16, controller_id: u16) -> Connect {
        Connect {
            host_identifier: self.host_identifier,
            host: Nqn::new(&self.host).expect("the host's name is an NQN"),
            subsystem: Nqn::new(&self.subsystem).expect("the subsystem's name is an NQN"),
            controller_id,
            queue_id,
            entries: self.entries,
            disable_flow_control: !self.flow_control,
            keep_alive_ms: if queue_id == 0 { self.keep_alive_ms } else { 0 },
        }
    }

    /// A connection that is initialized and no more.
    ///
    /// # Errors
    /// The socket's, or what the controller did wrong.
    pub fn open(&self, portal: SocketAddr) -> io::Result<Queue> {
        let mut config = self.connection;
        config.commands = self.entries - 1;
        Queue::open(portal, config)
    }

    /// A connection and its Connect command; the answer says whether it was taken.
    ///
    /// # Errors
    /// The socket's, or what the controller did wrong.
    pub fn try_connect(
        &self,
        portal: SocketAddr,
        queue_id: u16,
        controller_id: u16,
    ) -> io::Result<(Queue, Answer)> {
        let mut queue = self.open(portal)?;
        let connect = self.connect(queue_id, controller_id);
        let answer = queue.run(&connect.command(), &connect.data())?;
        Ok((queue, answer))
    }
}

/// A Connect command that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    /// Where, for Connect Invalid Parameters.
    pub result: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connect refused: {} ({:#x})", self.status, self.result)
    }
}

impl std::error::Error for Refusal {}

/// A host's association with a controller.
#[derive(Debug)]
pub struct Host {
    pub admin: Queue,
    /// Queues 1 and up.
    pub queues: Vec<Queue>,
    /// CNTLID from the answer to Connect.
    pub controller_id: u16,
    /// How it was connected.
    pub options: HostOptions,
    portal: SocketAddr,
}

impl Host {
    /// Connects all queues as a kernel does: admin queue, enable, Identify, I/O queues.
    ///
    /// # Errors
    /// The socket's, a refused Connect ([`Refusal`]), a controller that does not become ready.
    pub fn connect(portal: SocketAddr, options: &HostOptions) -> io::Result<Self> {
        let mut host = Self::connect_admin(portal, options)?;
        host.enable()?;
        if options.io_queues > 0 {
            host.ask_for_queues(options.io_queues)?;
            for queue_id in 1..=options.io_queues {
                let queue = host.connect_queue(queue_id)?;
                host.queues.push(queue);
            }
        }
        Ok(host)
    }

    /// Connects the admin queue and does not enable the controller.
    ///
    /// # Errors
    /// The socket's, a refused Connect ([`Refusal`]).
    pub fn connect_admin(portal: SocketAddr, options: &HostOptions) -> io::Result<Self> {
        let (admin, answer) = options.try_connect(portal, 0, ANY_CONTROLLER)?;
        accepted(&answer)?;
        Ok(Self {
            admin,
            queues: Vec::new(),
            controller_id: low_16(answer.result),
            options: options.clone(),
            portal,
        })
    }

    /// Number of Queues, as a host asks before it connects I/O queues.
    ///
    /// # Errors
    /// The connection's, or fewer are granted.
    pub fn ask_for_queues(&mut self, wanted: u16) -> io::Result<u16> {
        let zero_based = u32::from(wanted) - 1;
        let set = commands::set_features(0x07, zero_based << 16 | zero_based);
        let answer = done(self.admin.run(&set, &[])?)?;
        let granted = low_16(answer.result).saturating_add(1);
        if granted < wanted {
            let text = format!("{granted} I/O queues granted of {wanted}");
            return Err(io::Error::other(text));
        }
        Ok(granted)
    }

    /// Connects an I/O queue.
    ///
    /// # Errors
    /// The socket's, a refused Connect ([`Refusal`]).
    pub fn connect_queue(&mut self, queue_id: u16) -> io::Result<Queue> {
        let in_capsule = u32::from(self.io_capsule_sixteenths()?) * 16 - 64;
        let (mut queue, answer) =
            self.options
                .try_connect(self.portal, queue_id, self.controller_id)?;
        accepted(&answer)?;
        queue.connection_mut().set_in_capsule_data_bytes(in_capsule);
        Ok(queue)
    }

    /// IOCCSZ of Identify Controller, in units of 16 bytes.
    fn io_capsule_sixteenths(&mut self) -> io::Result<u16> {
        let identify = self.identify(0x01, 0)?;
        let ioccsz = u32::from_le_bytes(cut(&identify, 1792));
        u16::try_from(ioccsz)
            .ok()
            .filter(|size| *size >= 4)
            .ok_or_else(|| io::Error::other(format!("IOCCSZ is {ioccsz}")))
    }

    /// Reads a property.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn property(&mut self, property: Property) -> io::Result<u64> {
        let answer = self.admin.run(&commands::property_get(property), &[])?;
        done(answer).map(|answer| answer.result)
    }

    /// Sets a property.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn set_property(&mut self, property: Property, value: u64) -> io::Result<()> {
        let answer = self
            .admin
            .run(&commands::property_set(property, value), &[])?;
        done(answer).map(drop)
    }

    /// Sets CC.EN and waits for CSTS.RDY.
    ///
    /// # Errors
    /// The connection's, or the controller does not become ready.
    pub fn enable(&mut self) -> io::Result<()> {
        // Entries of 64 and 16 bytes, pages of 4 KiB, NVM command set, round robin.
        self.set_property(Property::CC, 0x0046_0001)?;
        self.wait_for_status(1, 1)
    }

    /// Waits until the bits of CSTS under `mask` are `value`.
    ///
    /// # Errors
    /// The connection's, or they do not become so.
    pub fn wait_for_status(&mut self, mask: u64, value: u64) -> io::Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.property(Property::CSTS)?;
            if status & mask == value {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("CSTS stays {status:#x}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// An admin command.
    ///
    /// # Errors
    /// The connection's.
    pub fn admin(&mut self, command: &Command, data: &[u8]) -> io::Result<Answer> {
        self.admin.run(command, data)
    }

    /// A command on the first I/O queue.
    ///
    /// # Errors
    /// The connection's.
    pub fn io(&mut self, command: &Command, data: &[u8]) -> io::Result<Answer> {
        self.queues[0].run(command, data)
    }

    /// The 4096 bytes of an Identify that succeeds.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn identify(&mut self, cns: u8, namespace: u32) -> io::Result<Vec<u8>> {
        let answer = self
            .admin
            .run(&identify(cns, NamespaceId(namespace)), &[])?;
        let data = done(answer)?.data;
        if data.len() == 4096 {
            Ok(data)
        } else {
            Err(io::Error::other(format!(
                "Identify of {} bytes",
                data.len()
            )))
        }
    }

    /// NSIDs of the active namespaces.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn active_namespaces(&mut self) -> io::Result<Vec<u32>> {
        let list = self.identify(0x02, 0)?;
        let ids = list
            .chunks_exact(4)
            .map(|id| u32::from_le_bytes(cut(id, 0)));
        Ok(ids.take_while(|id| *id != 0).collect())
    }

    /// NSZE: blocks of a namespace.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn namespace_size(&mut self, namespace: u32) -> io::Result<u64> {
        let identify = self.identify(0x00, namespace)?;
        Ok(u64::from_le_bytes(cut(&identify, 0)))
    }

    /// Bytes of a log page that can be read.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn log_page(&mut self, page: u8, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        let all = NamespaceId::BROADCAST;
        let answer = self
            .admin
            .run(&get_log_page(page, all, offset, length), &[])?;
        done(answer).map(|answer| answer.data)
    }

    /// Reads blocks on the first I/O queue.
    ///
    /// # Errors
    /// The connection's.
    pub fn read(&mut self, blocks: Blocks) -> io::Result<Answer> {
        self.io(&commands::read(blocks), &[])
    }

    /// Writes blocks on the first I/O queue.
    ///
    /// # Errors
    /// The connection's.
    pub fn write(&mut self, blocks: Blocks, data: &[u8]) -> io::Result<Answer> {
        self.io(&commands::write(blocks, 0), data)
    }
}

/// An entry of the discovery log page (NVMe base 2.0 §5.16.1.23).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TRTYPE: 3 is TCP.
    pub transport: u8,
    /// ADRFAM: 1 is IPv4, 2 IPv6.
    pub address_family: u8,
    /// SUBTYPE: 2 is an NVM subsystem, 3 the discovery subsystem itself, 1 another one.
    pub subsystem_type: u8,
    /// PORTID, which tells the ports of a subsystem apart.
    pub port_id: u16,
    /// CNTLID, or FFFFh for dynamic controllers.
    pub controller_id: u16,
    /// TRSVCID: the TCP port as text.
    pub service: String,
    /// SUBNQN that the entry leads to.
    pub subsystem: String,
    /// TRADDR: the IP address as text.
    pub address: String,
}

impl DiscoveryEntry {
    fn decode(bytes: &[u8; 1024]) -> Self {
        Self {
            transport: bytes[0],
            address_family: bytes[1],
            subsystem_type: bytes[2],
            port_id: le16(bytes, 4),
            controller_id: le16(bytes, 6),
            service: text(&bytes[32..64]),
            subsystem: text(&bytes[256..512]),
            address: text(&bytes[512..768]),
        }
    }
}

/// Generation and entries of the discovery log page at `portal`.
///
/// # Errors
/// The socket's, a refused Connect, a log page that changes all the time.
pub fn discover(
    portal: SocketAddr,
    options: &HostOptions,
) -> io::Result<(u64, Vec<DiscoveryEntry>)> {
    let mut host = Host::connect(portal, &options.clone().discovery())?;
    host.discovery_log()
}

impl Host {
    /// Generation and entries of the discovery log page, of a discovery controller.
    ///
    /// # Errors
    /// The connection's, or it is refused.
    pub fn discovery_log(&mut self) -> io::Result<(u64, Vec<DiscoveryEntry>)> {
        let header = self.log_page(0x70, 0, 1024)?;
        let header: [u8; 1024] = cut(&header, 0);
        let generation = le64(&header, 0);
        let count = le32(&header, 8);
        if le16(&header, 16) != 0 {
            return Err(io::Error::other("an unknown format of records"));
        }
        if count == 0 {
            return Ok((generation, Vec::new()));
        }
        let entries = self.log_page(0x70, 1024, count * 1024)?;
        let entries = entries
            .chunks_exact(1024)
            .map(|entry| DiscoveryEntry::decode(&cut(entry, 0)))
            .collect();
        Ok((generation, entries))
    }
}

/// Text padded with zeros or spaces.
fn text(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    text.trim_end_matches(['\0', ' ']).to_owned()
}

/// `N` bytes at `at`, which are there.
fn cut<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes were cut")
}

fn low_16(value: u64) -> u16 {
    u16::try_from(value & 0xffff).expect("16 bits were kept")
}

fn accepted(answer: &Answer) -> io::Result<()> {
    if answer.is_success() {
        return Ok(());
    }
    Err(io::Error::other(Refusal {
        status: answer.code(),
        result: answer.result,
    }))
}

fn done(answer: Answer) -> io::Result<Answer> {
    if answer.is_success() {
        Ok(answer)
    } else {
        Err(io::Error::other(format!("{}", answer.status)))
    }
}
