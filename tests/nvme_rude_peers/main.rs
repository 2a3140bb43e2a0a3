//! NVMe hosts that break the rules, on purpose or by accident. Each is answered or closed as the
//! transport's standard says, memory stays bounded, and a well-behaved host beside it does not notice.

mod detach;
mod initialization;
mod load;
mod noise;
mod pdus;
mod transfers;

use std::time::{Duration, Instant};

use longshore_block::extent::Lba;
use longshore_nvme::command::CommandId;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::Command;
use longshore_nvme::host::Transfer;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_nvme::sgl::SglDescriptor;
use longshore_tests::nvme::pdu::{Pdu, RawConnection, kind};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::server::{Server, ServerBuilder};

const MEBI: u64 = 1 << 20;

/// How soon the server does what no timer delays.
const SOON: Duration = Duration::from_secs(20);

/// A server with short limits, and a well-behaved host.
struct Scene {
    server: Server,
    healthy: Host,
    own_at_start: u64,
}

/// Limits that tests can reach.
const LIMITS: &str = "\
[limits]
login-timeout = \"10s\"
pending-logins = 64
memory = \"64M\"
";

/// Those of a server that soon loses patience with who is not yet connected.
const IMPATIENT: &str = "\
[limits]
login-timeout = \"1s\"
pending-logins = 64
memory = \"64M\"
";

impl Scene {
    /// Namespace 1 is 64 MiB of memory, namespace 2 a terabyte of nothing.
    fn new() -> Self {
        Self::with(LIMITS)
    }

    fn with(config: &str) -> Self {
        Self::on("memory,backend=mem,size=64M", config)
    }

    /// With another volume as namespace 1.
    fn on(volume: &str, config: &str) -> Self {
        let server = ServerBuilder::new()
            .volume(volume)
            .volume("nothing,backend=null,size=1T")
            .nvme()
            .argument("--log-level")
            .argument("warn")
            .config(config)
            .start()
            .unwrap();
        let options = HostOptions::numbered(99);
        let mut healthy = Host::connect(server.nvme(0), &options).unwrap();
        healthy
            .write(blocks(1, 0, 8), &[7; 4096])
            .unwrap()
            .expect_success();
        let own_at_start = server.process().own_bytes().unwrap();
        Self {
            server,
            healthy,
            own_at_start,
        }
    }

    /// A host with one I/O queue.
    fn host(&self, options: &HostOptions) -> Host {
        Host::connect(self.server.nvme(0), options).unwrap()
    }

    /// A connection and nothing else.
    fn raw(&self) -> RawConnection {
        RawConnection::open(self.server.nvme(0)).unwrap()
    }

    /// A connection that is initialized, without digests.
    fn initialized(&self) -> RawConnection {
        self.initialized_by(&Pdu::ic_req())
    }

    fn initialized_by(&self, request: &Pdu) -> RawConnection {
        let mut peer = self.raw();
        peer.send(request).unwrap();
        assert_eq!(peer.receive().unwrap().kind(), kind::IC_RESP);
        peer
    }

    /// A well-behaved host's admin queue, and an I/O queue of it on which the test sends what it likes.
    fn queue(&self) -> RawQueue {
        self.queue_of(self.initialized())
    }

    fn queue_of(&self, mut peer: RawConnection) -> RawQueue {
        let options = HostOptions::default();
        let host = Host::connect(self.server.nvme(0), &options.clone().queues(0));
        let mut host = host.unwrap();
        host.ask_for_queues(1).unwrap();
        let connect = options.connect(1, host.controller_id);
        let data = connect.data();
        let entry = entry(&connect.command(), 1, true);
        peer.send(&Pdu::command(&entry).with_data(&data)).unwrap();
        let response = peer.receive().unwrap();
        assert_eq!(response.kind(), kind::CAPSULE_RESP);
        assert_eq!(response.half(22) >> 1, 0, "Connect succeeds");
        RawQueue { peer, host }
    }

    /// The well-behaved host works, its data is there, and it is answered soon.
    #[track_caller]
    fn assert_others_do_not_notice(&mut self) {
        let mut took = Duration::ZERO;
        // A machine that stands still for a moment slows one read, not three.
        let is_soon = (0..3).any(|_| {
            let started = Instant::now();
            let read = self.healthy.read(blocks(1, 0, 8)).unwrap();
            assert_eq!(read.expect_success().data, [7; 4096]);
            took = started.elapsed();
            took < Duration::from_secs(1)
        });
        assert!(
            is_soon,
            "reads beside the rude peer are slow, the last took {took:?}"
        );
    }

    /// Waits until the server has done all there is to do for now.
    fn wait_until_server_rests(&self) {
        self.server.process().wait_until_at_rest();
    }

    /// Memory of the server has not grown by more than `limit` bytes since the scene was set.
    #[track_caller]
    fn assert_memory_grew_at_most(&self, limit: u64) {
        let now = self.server.process().own_bytes().unwrap();
        let grown = now.saturating_sub(self.own_at_start);
        assert!(grown <= limit, "memory grew by {} KiB", grown >> 10);
    }

    /// What namespace 1 holds.
    fn stored(&mut self, lba: u64, count: u32) -> Vec<u8> {
        let read = self.healthy.read(blocks(1, lba, count)).unwrap();
        read.expect_success().data
    }
}

/// An I/O queue whose PDUs a test writes itself.
struct RawQueue {
    peer: RawConnection,
    /// Held so that the controller lives.
    host: Host,
}

impl RawQueue {
    /// Sends a command without data in its capsule.
    fn start(&mut self, command: &Command, id: u16) {
        let entry = entry(command, id, false);
        self.peer.send(&Pdu::command(&entry)).unwrap();
    }

    /// Sends a write of `count` blocks and gives the first R2T for it.
    fn start_write(&mut self, lba: u64, count: u32, id: u16) -> Pdu {
        let write = commands::write(blocks(1, lba, count), 0);
        self.start(&write, id);
        let r2t = self.peer.receive().unwrap();
        assert_eq!((r2t.kind(), r2t.half(8)), (kind::R2T, id));
        r2t
    }

    /// Status code type and code of the response that comes next.
    fn status(&mut self, id: u16) -> u16 {
        let response = self.peer.receive().unwrap();
        assert_eq!(response.kind(), kind::CAPSULE_RESP, "{response:?}");
        assert_eq!(response.half(20), id);
        response.half(22) >> 1 & 0x7ff
    }

    /// The connection ends by a C2HTermReq with this status; its FEI.
    #[track_caller]
    fn assert_terminated(&mut self, status: u16) -> u32 {
        assert_terminated(&mut self.peer, status)
    }

    /// A read of a block works.
    fn assert_lives(&mut self) {
        self.start(&commands::read(blocks(1, 0, 1)), 0x7777);
        let data = self.peer.receive().unwrap();
        assert_eq!((data.kind(), data.half(8)), (kind::C2H_DATA, 0x7777));
        if data.header[1] & 0x08 == 0 {
            assert_eq!(self.status(0x7777), 0);
        }
    }
}

/// The connection ends by a C2HTermReq with this status; its FEI.
#[track_caller]
fn assert_terminated(peer: &mut RawConnection, status: u16) -> u32 {
    let request = loop {
        let pdu = peer.receive().unwrap();
        if pdu.kind() == kind::C2H_TERM_REQ {
            break pdu;
        }
    };
    assert_eq!(request.half(8), status, "FES; FEI {}", request.word(10));
    assert!(request.header.len() + request.data.len() <= 152);
    let (rest, closed) = peer.drain(SOON).unwrap();
    assert!(rest.is_empty(), "nothing follows");
    assert!(closed, "the connection is closed");
    request.word(10)
}

/// A submission queue entry as it is sent; `in_capsule`: the data goes along.
fn entry(command: &Command, id: u16, in_capsule: bool) -> [u8; 64] {
    let mut entry = command.entry;
    entry.set_id(CommandId(id));
    let length = command.transfer.length();
    entry.set_sgl(match command.transfer {
        Transfer::ToController(_) if in_capsule => SglDescriptor::Offset { offset: 0, length },
        _ => SglDescriptor::Transport { length },
    });
    entry.0
}

/// Blocks of a namespace.
fn blocks(namespace: u32, lba: u64, count: u32) -> Blocks {
    Blocks {
        namespace: NamespaceId(namespace),
        lba: Lba(lba),
        count,
        block_bytes: 512,
    }
}
