//! Peers that do not receive their reads or do not send their write data, or do so a few bytes at a time: they cannot
//! keep all memory from others, nor a part of it for long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use longshore_nvme::host::commands;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::pdu::{Pdu as NvmePdu, kind};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::pdu::{Pdu, opcode};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// `limits.memory` of the server, in bytes.
const MEMORY: u64 = 64 * MIB;
/// Blocks of the largest read, 16 MiB: a quarter of the memory.
const LARGE: u32 = 32 << 10;
/// Blocks of 256 KiB and of 1 MiB.
const SMALL: u32 = 512;
const MEDIUM: u32 = 2048;
/// A `limits.stall-timeout` that tests wait for. A connection that moves is not cut although the
/// machine stands still for a second or two.
const SHORT: &str = "5s";
/// Where peers trickle. A sixth of it is tolerated: on a busy machine all of them are to have begun by then.
const TRICKLED: &str = "36s";
/// Time for anything that no timer delays.
const SOON: Duration = Duration::from_secs(60);

struct Scene {
    server: Server,
    scratch: Scratch,
}

impl Scene {
    /// A server with 16 MiB of data, for both protocols.
    fn new(stall_timeout: &str) -> Self {
        let scratch = Scratch::new("starving");
        let server = ServerBuilder::new()
            .volume("disk0,backend=mem,size=16M")
            .iscsi()
            .nvme()
            .config(&format!(
                "[limits]\nmemory = {MEMORY}\nstall-timeout = \"{stall_timeout}\"\n"
            ))
            .reports_to(&scratch)
            .argument("--log-level")
            .argument("warn")
            .start()
            .unwrap();
        let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(200)).unwrap();
        for part in 0..16 {
            let write = host.write(blocks(part * u64::from(MEDIUM), MEDIUM), &vec![7; 1 << 20]);
            write.unwrap().expect_success();
        }
        Self { server, scratch }
    }

    fn memory(&self) -> Value {
        report::of(&self.server, &self.scratch)["memory"].take()
    }

    /// Waits until the memory is as wanted.
    #[track_caller]
    fn wait_for(&self, what: &str, is_so: impl Fn(&dyn Fn(&str) -> u64) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let memory = self.memory();
            if is_so(&|name| memory[name].as_u64().unwrap()) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {memory}");
            std::thread::yield_now();
        }
    }

    /// A host without a Keep Alive Timeout that asks for `reads` of 16 MiB on each of its queues and takes nothing.
    fn greedy_host(&self, number: u8, queues: u16, reads: u32) -> Host {
        let options = HostOptions::numbered(number).queues(queues);
        assert_eq!(options.keep_alive_ms, 0);
        let mut host = Host::connect(self.server.nvme(0), &options).unwrap();
        for queue in &mut host.queues {
            for _ in 0..reads {
                queue.start(&commands::read(blocks(0, LARGE)), &[]).unwrap();
            }
        }
        host
    }

    /// Hosts that use up all memory but the share of newcomers: none is left for a large read.
    fn all_memory(&self) -> Vec<Host> {
        let hosts = (1..=12).map(|number| self.greedy_host(number, 1, 8));
        let hosts = hosts.collect();
        self.wait_for("memory is used up", |field| {
            field("used_bytes") > MEMORY - 16 * MIB && field("kept_bytes") == 0
        });
        hosts
    }

    fn initiator(&self, name: &str) -> Initiator {
        let login = Login {
            initiator: format!("iqn.2026-11.local.longshore:{name}"),
            ..Login::default()
        };
        Initiator::ready(self.server.portal(0), &login).unwrap()
    }

    /// Waits until a connection was cut, and all memory is free.
    #[track_caller]
    fn assert_is_cut(&self, name: &str) {
        // Memory is also free before the server has read what the peer asks for.
        self.server.wait_for_log("peer stalled");
        self.wait_for("memory is free", |field| {
            field("used_bytes") == field("kept_bytes")
        });
        let log = self.server.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("peer stalled"))
            .collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.contains(name)),
            "{log}"
        );
    }
}

#[track_caller]
fn read(initiator: &mut Initiator, count: u32) {
    let bytes = count * 512;
    let answer = initiator.command(0, &cdb::read_16(0, count), Data::In(bytes));
    let answer = answer.unwrap();
    assert!(answer.is_good(), "{answer:?}");
    assert_eq!(answer.data, vec![7; bytes as usize]);
}

#[test]
fn a_newcomer_finds_memory_for_a_small_read_while_others_take_nothing() {
    let scene = Scene::new("24h");
    let _greedy = scene.all_memory();
    let mut newcomer = scene.initiator("newcomer");
    for _ in 0..3 {
        read(&mut newcomer, SMALL);
    }
    let options = HostOptions::numbered(100);
    let mut newcomer = Host::connect(scene.server.nvme(0), &options).unwrap();
    for _ in 0..3 {
        let answer = newcomer.read(blocks(0, SMALL)).unwrap();
        answer.expect_success();
        let write = newcomer.write(blocks(0, SMALL), &vec![7; 256 << 10]);
        write.unwrap().expect_success();
    }
}

#[test]
fn one_host_does_not_get_all_memory_however_many_connections_it_has() {
    let scene = Scene::new("24h");
    let mut other = scene.initiator("other");
    let _greedy = scene.greedy_host(1, 16, 8);
    scene.wait_for("it gets much", |field| field("used_bytes") >= MEMORY / 2);
    // Others read more than the share of newcomers, again and again.
    for _ in 0..8 {
        read(&mut other, MEDIUM);
    }
    let memory = scene.memory();
    let used = memory["used_bytes"].as_u64().unwrap() - memory["kept_bytes"].as_u64().unwrap();
    assert!(used <= MEMORY / 4 * 3, "{memory}");
}

#[test]
fn peers_that_do_not_move_make_room_when_others_find_no_memory() {
    // Newcomers wait for a twelfth of that at most, and longer than this test they would not.
    let scene = Scene::new("30s");
    let _greedy = scene.all_memory();
    let mut newcomer = scene.initiator("newcomer");
    read(&mut newcomer, MEDIUM);
    assert!(scene.server.log().contains("peer stalled"));
}

/// A peer that moves a little at a time.
enum Trickle {
    /// It takes its read data so.
    Taking(TcpStream),
    /// It sends these write data so. Their header has been sent.
    Giving(TcpStream, Vec<u8>),
}

impl Trickle {
    const PAUSE: Duration = Duration::from_millis(100);
    /// More than a window update of TCP in each period that is tolerated, and less than the part due.
    const TAKEN: usize = 8 << 10;

    /// Goes on until it is cut, or told to stop.
    fn go_on(mut self, stop: &AtomicBool) {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            let moved = match &mut self {
                Self::Taking(stream) => stream.read(&mut [0; Self::TAKEN]),
                Self::Giving(stream, bytes) => stream.write(&bytes[sent..=sent]),
            };
            match moved {
                Ok(0) | Err(_) => return,
                Ok(_) => sent += 1,
            }
            // Slowness is the subject.
            std::thread::sleep(Self::PAUSE);
        }
    }
}

/// Keeps trickling peers at work while `test` runs.
fn beside_trickles(peers: Vec<Trickle>, test: impl FnOnce()) {
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope: &Scope<'_, '_>| {
        // Also if the test fails.
        let _stop = StopAtEnd(&stop);
        for peer in peers {
            scope.spawn(|| peer.go_on(&stop));
        }
        test();
    });
}

impl Scene {
    /// A newcomer of each protocol gets memory for more than the share of newcomers, since trickling peers were cut.
    fn assert_newcomers_get_memory(&self) {
        let options = HostOptions::numbered(100);
        let mut host = Host::connect(self.server.nvme(0), &options).unwrap();
        let mut initiator = self.initiator("newcomer");
        let slot = host.queues[0].start(&commands::read(blocks(0, MEDIUM)), &[]);
        let answer = host.queues[0].wait_for(slot.unwrap(), SOON).unwrap();
        let answer = answer.expect("a newcomer's read gets memory");
        assert_eq!(answer.expect_success().data, vec![7; 1 << 20]);
        read(&mut initiator, MEDIUM);
        self.server
            .wait_for_log("memory is short, and it moves less");
        let log = self.server.log();
        assert!(!log.contains("newcomer"), "{log}");
    }
}

#[test]
fn peers_that_take_a_little_at_a_time_make_room_when_others_find_no_memory() {
    let scene = Scene::new(TRICKLED);
    let mut hosts = Vec::new();
    let mut initiators = Vec::new();
    for number in 1..=6 {
        hosts.push(scene.greedy_host(number, 1, 8));
        let mut initiator = scene.initiator(&format!("slow-{number}"));
        for _ in 0..8 {
            let cdb = cdb::read_16(0, LARGE);
            let pdu = initiator.command_pdu(0, &cdb, Data::In(LARGE * 512));
            initiator.send(&pdu).unwrap();
        }
        initiators.push(initiator);
    }
    scene.wait_for("memory is used up", |field| {
        field("used_bytes") > MEMORY - 16 * MIB && field("kept_bytes") == 0
    });
    let of_hosts = hosts.iter().map(|host| host.queues[0].stream());
    let streams = of_hosts.chain(initiators.iter().map(Initiator::stream));
    let peers = streams.map(|stream| Trickle::Taking(stream.try_clone().unwrap()));
    beside_trickles(peers.collect(), || scene.assert_newcomers_get_memory());
}

/// The R2T of a host's first write.
fn first_r2t(host: &Host) -> NvmePdu {
    let mut r2t = NvmePdu::new(kind::R2T, 24);
    host.queues[0].stream().read_exact(&mut r2t.header).unwrap();
    assert_eq!(r2t.kind(), kind::R2T);
    r2t
}

#[test]
fn peers_that_give_a_little_at_a_time_make_room_when_others_find_no_memory() {
    /// Of each peer. Together they hold all memory.
    const WRITES: u32 = 16;
    let scene = Scene::new(TRICKLED);
    let mut peers = Vec::new();
    let (mut hosts, mut initiators) = (Vec::new(), Vec::new());
    let data = vec![7; 1 << 20];
    // iSCSI first: its writes cannot wait.
    for number in 1..=2 {
        let login = Login {
            initiator: format!("iqn.2026-11.local.longshore:slow-{number}"),
            immediate_data: false,
            ..Login::default()
        };
        let mut initiator = Initiator::ready(scene.server.portal(0), &login).unwrap();
        for _ in 0..WRITES {
            let cdb = cdb::write_16(0, MEDIUM, false);
            let pdu = initiator.command_pdu(0, &cdb, Data::Out(&data));
            initiator.send(&pdu).unwrap();
        }
        let r2t = initiator.receive().unwrap();
        assert_eq!(r2t.opcode(), opcode::R2T);
        let bytes = Pdu::new(opcode::DATA_OUT)
            .set_byte(1, 0)
            .set_word(16, r2t.initiator_task_tag())
            .set_word(20, r2t.target_transfer_tag())
            .set_word(28, initiator.exp_stat_sn)
            .with_data(&data[..64 << 10])
            .to_bytes(false, false);
        let (header, data) = bytes.split_at(48);
        initiator.send_bytes(header).unwrap();
        let stream = initiator.stream().try_clone().unwrap();
        peers.push(Trickle::Giving(stream, data.to_vec()));
        initiators.push(initiator);
    }
    let is_used_up = |field: &dyn Fn(&str) -> u64| {
        field("used_bytes") > MEMORY - MIB && field("kept_bytes") == 0
    };
    for number in 1..=3 {
        let options = HostOptions::numbered(number);
        let mut host = Host::connect(scene.server.nvme(0), &options).unwrap();
        // The third host waits for memory, and holds none: it gives nothing at all.
        if number == 3 {
            scene.wait_for("memory is used up", is_used_up);
        }
        for _ in 0..WRITES {
            let write = commands::write(blocks(0, MEDIUM), 0);
            host.queues[0].start(&write, &data).unwrap();
        }
        if number < 3 {
            let r2t = first_r2t(&host);
            // Not the last of the R2T.
            let bytes = NvmePdu::h2c_data(r2t.half(8), r2t.half(10), 0, &data[..64 << 10]);
            let bytes = bytes.set_byte(1, 0).to_bytes();
            let (header, data) = bytes.split_at(24);
            host.queues[0].send_bytes(header).unwrap();
            let stream = host.queues[0].stream().try_clone().unwrap();
            peers.push(Trickle::Giving(stream, data.to_vec()));
        }
        hosts.push(host);
    }
    scene.wait_for("memory is used up", is_used_up);
    beside_trickles(peers, || scene.assert_newcomers_get_memory());
}

#[test]
fn a_host_without_keep_alive_that_takes_nothing_is_cut() {
    let scene = Scene::new(SHORT);
    let _greedy = scene.greedy_host(1, 1, 8);
    scene.assert_is_cut("nqn.2026-11.local.longshore:tests-1");
}

#[test]
fn an_initiator_that_goes_on_sending_and_takes_nothing_is_cut() {
    let scene = Scene::new(SHORT);
    let mut greedy = scene.initiator("greedy");
    let mut bytes = Vec::new();
    for _ in 0..8 {
        let cdb = cdb::read_16(0, LARGE);
        let pdu = greedy.command_pdu(0, &cdb, Data::In(LARGE * 512));
        bytes.extend(pdu.to_bytes(false, false));
    }
    greedy.send_bytes(&bytes).unwrap();
    // NOP-Outs that want no answer.
    let ping = Pdu::new(opcode::NOP_OUT)
        .set_byte(0, 0x40)
        .set_byte(1, 0x80)
        .set_word(16, 0xffff_ffff)
        .set_word(20, 0xffff_ffff);
    let deadline = Instant::now() + SOON;
    while greedy.send(&ping).is_ok() {
        assert!(Instant::now() < deadline, "it is not cut");
        std::thread::sleep(Duration::from_millis(20));
    }
    scene.assert_is_cut("iqn.2026-11.local.longshore:greedy");
}

#[test]
fn peers_that_do_not_send_what_they_were_asked_for_are_cut() {
    let scene = Scene::new(SHORT);
    let options = HostOptions::numbered(1);
    let mut host = Host::connect(scene.server.nvme(0), &options).unwrap();
    // The entry goes, the data stay.
    let write = commands::write(blocks(0, MEDIUM), 0);
    let mut entry = write.entry;
    entry.set_sgl(longshore_nvme::sgl::SglDescriptor::Transport { length: 1 << 20 });
    let capsule = NvmePdu::command(&entry.0);
    host.queues[0].send_bytes(&capsule.to_bytes()).unwrap();
    scene.wait_for("memory is promised", |field| {
        field("used_bytes") - field("kept_bytes") >= MIB
    });
    scene.assert_is_cut("nqn.2026-11.local.longshore:tests-1");
}

#[test]
fn a_peer_that_has_all_it_asked_for_may_be_silent() {
    let scene = Scene::new("2s");
    let mut initiator = scene.initiator("silent");
    let options = HostOptions::numbered(1);
    let mut host = Host::connect(scene.server.nvme(0), &options).unwrap();
    for _ in 0..2 {
        read(&mut initiator, MEDIUM);
        host.read(blocks(0, MEDIUM)).unwrap().expect_success();
        // Time is the subject: the silence is longer than the time-out.
        std::thread::sleep(Duration::from_millis(2500));
    }
    assert!(!scene.server.log().contains("peer stalled"));
}
