//! Peers that do not receive their reads or do not send their write data: they cannot keep all memory
//! from others, nor a part of it for long.

use std::time::{Duration, Instant};

use longshore_nvme::host::commands;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::pdu::{Pdu, opcode};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// `limits.memory`.
const MEMORY: u64 = 64 * MIB;
/// Blocks of the largest read, 16 MiB: a quarter of the memory.
const LARGE: u32 = 32 << 10;
/// Blocks of 256 KiB and of 1 MiB.
const SMALL: u32 = 512;
const MEDIUM: u32 = 2048;
/// A `limits.stall-timeout` that tests wait for. A connection that moves is not cut although the
/// machine stands still for a second or two.
const SHORT: &str = "5s";
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
    let capsule = longshore_tests::nvme::pdu::Pdu::command(&entry.0);
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
