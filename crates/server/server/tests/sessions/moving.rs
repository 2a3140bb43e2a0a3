//! Connections that go from reactor to reactor, with whatever they have in progress.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longshore_reactor::EngineChoice;
use longshore_server::Control;
use longshore_server::observe::ConnectionStatistics;
use longshore_tests::initiator::{Data, Initiator, cdb};
use longshore_tests::pdu::opcode;
use longshore_tests::scratch::Scratch;
use longshore_volume::{BackendName, VolumeSpec};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const REACTORS: usize = 3;

/// Tells connections to go to one reactor after the other, until it is dropped.
struct Mover {
    done: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    fn of(scene: &Scene, peers: Vec<SocketAddr>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicUsize::new(0));
        let control = scene.control().clone();
        let thread = thread::spawn({
            let (done, rounds) = (Arc::clone(&done), Arc::clone(&rounds));
            move || {
                while !done.load(Ordering::Relaxed) {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    for peer in &peers {
                        control.move_connection(*peer, round % REACTORS);
                    }
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        Self {
            done,
            rounds,
            thread: Some(thread),
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn address(initiator: &Initiator) -> SocketAddr {
    initiator.stream().local_addr().unwrap()
}

fn find(control: &Control, peer: SocketAddr) -> Option<ConnectionStatistics> {
    let statistics = control.statistics();
    let mut connections = statistics.connections.into_iter();
    connections.find(|connection| connection.peer == peer)
}

/// Whether a load goes on that moves are to come in between of: for so many rounds, and until its connection has
/// moved often enough. How often depends on when it is at rest, and on what else the machine does.
fn goes_on(control: &Control, peer: SocketAddr, round: usize, rounds: usize) -> bool {
    if round < rounds {
        return true;
    }
    let mut moves = None;
    eventually("a look at the connection", || {
        moves = find(control, peer).map(|it| it.moves);
        moves.is_some()
    });
    let moves = moves.unwrap();
    assert!(
        moves > 10 || round < 100 * rounds,
        "{moves} moves in {round} rounds"
    );
    moves <= 10
}

/// Has a connection go to a reactor, and waits until it is there.
fn move_to(control: &Control, peer: SocketAddr, reactor: u32) {
    eventually("the move", || {
        control.move_connection(peer, usize::try_from(reactor).unwrap());
        find(control, peer).is_some_and(|connection| connection.shard == reactor)
    });
}

fn moves_given_up(control: &Control) -> u64 {
    let shards = control.statistics().shards;
    shards.iter().map(|s| s.counters.moves_given_up).sum()
}

/// Waits until some connection has moved since the last look.
fn await_move(control: &Control, seen: &mut u64) {
    let moved = || {
        let shards = control.statistics().shards;
        shards.iter().map(|shard| shard.counters.moved_in).sum()
    };
    eventually("a move", || moved() > *seen);
    *seen = moved();
}

/// Contents that tell rounds and places apart.
fn pattern(round: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| (round * 31 + at * 7 + (at >> 9) * 13) % 251;
    (0..length)
        .map(|at| u8::try_from(byte(at)).unwrap())
        .collect()
}

#[test]
fn a_session_moves_under_load_without_a_lost_or_reordered_byte() {
    const LENGTH: usize = 96 << 10;
    const DEPTH: usize = 16;
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut host = scene.host(1);
        let (control, peer) = (scene.control(), address(&host));
        let mover = Mover::of(&scene, vec![peer]);
        let blocks = u32::try_from(LENGTH / 512).unwrap();
        for round in (0..).take_while(|round| goes_on(control, peer, *round, 300)) {
            let data = pattern(round, LENGTH);
            let lba = u64::try_from(round % 7).unwrap() * u64::from(blocks);
            let write = cdb::write_16(lba, blocks, false);
            // In several bursts, each asked for by itself.
            let answer = host.command(0, &write, Data::Out(&data)).unwrap();
            assert!(answer.is_good(), "round {round}: {answer:?}");
            // Many reads at once, answered in their order.
            let commands: Vec<_> = (0..DEPTH)
                .map(|part| {
                    let first = lba + u64::try_from(part * 12).unwrap();
                    host.command_pdu(0, &cdb::read_16(first, 12), Data::In(12 * 512))
                })
                .collect();
            let bytes: Vec<u8> = commands
                .iter()
                .flat_map(|pdu| pdu.to_bytes(false, false))
                .collect();
            host.send_bytes(&bytes).unwrap();
            for (part, command) in commands.iter().enumerate() {
                let answer = host.finish(command.initiator_task_tag(), &[]).unwrap();
                assert!(answer.is_good(), "round {round}: {answer:?}");
                let from = part * 12 * 512;
                assert!(
                    answer.data == data[from..from + 12 * 512],
                    "round {round}, part {part}"
                );
            }
        }
        assert!(mover.rounds.load(Ordering::Relaxed) > 0);
        drop(mover);
        host.log_out().unwrap();
    }
}

/// Each reactor has a ring of its own, which knows nothing of memory that was registered with another one.
#[test]
fn memory_that_is_registered_with_one_ring_serves_on_others() {
    const LENGTH: usize = 96 << 10;
    let scratch = Scratch::new("moving-direct");
    let mut spec = VolumeSpec::new("disk", BackendName::FILE);
    spec.path = Some(scratch.join("data"));
    spec.size = Some(16 << 20);
    spec.direct = true;
    for engine in ENGINES {
        let volume = match longshore_volume::open(&spec) {
            Ok(volume) => volume,
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                return;
            }
        };
        let mut config = config(vec![volume], engine);
        config.copies.registered = true;
        let scene = Scene::new(config);
        let mut host = scene.host(1);
        let (control, peer) = (scene.control(), address(&host));
        let mover = Mover::of(&scene, vec![peer]);
        let blocks = u32::try_from(LENGTH / 512).unwrap();
        for round in (0..).take_while(|round| goes_on(control, peer, *round, 300)) {
            let data = pattern(round, LENGTH);
            let lba = u64::try_from(round % 7).unwrap() * u64::from(blocks);
            let write = cdb::write_16(lba, blocks, false);
            let answer = host.command(0, &write, Data::Out(&data)).unwrap();
            assert!(answer.is_good(), "round {round}: {answer:?}");
            let read = cdb::read_16(lba, blocks);
            let length = u32::try_from(LENGTH).unwrap();
            let answer = host.command(0, &read, Data::In(length)).unwrap();
            assert!(answer.data == data, "round {round}");
        }
        drop(mover);
        let statistics = scene.control().statistics();
        let memory = statistics.memory;
        assert!(memory.registered_bytes <= memory.registered_budget_bytes);
        for shard in statistics.shards {
            let registered = shard.engine.registered_operations;
            assert_eq!(registered > 0, engine == EngineChoice::IoUring);
        }
        host.log_out().unwrap();
    }
}

/// Its peer takes nothing, so some are in the transmit queue, and others wait for room.
#[test]
fn reads_that_are_answered_in_part_and_reads_that_wait_for_room_go_along() {
    const LENGTH: u32 = 512 << 10;
    const DEPTH: usize = 32;
    let blocks = LENGTH / 512;
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let control = scene.control();
        let mut host = scene.host(1);
        let peer = address(&host);
        let data = pattern(3, usize::try_from(LENGTH).unwrap());
        let write = cdb::write_16(0, blocks, false);
        assert!(host.command(0, &write, Data::Out(&data)).unwrap().is_good());
        let commands: Vec<_> = (0..DEPTH)
            .map(|_| host.command_pdu(0, &cdb::read_16(0, blocks), Data::In(LENGTH)))
            .collect();
        for command in &commands {
            host.send(command).unwrap();
        }
        eventually("a full queue", || {
            find(control, peer).is_some_and(|connection| connection.pending_bytes > 1 << 20)
        });
        for reactor in [1, 2, 0, 1] {
            move_to(control, peer, reactor);
        }
        for command in &commands {
            let answer = host.finish(command.initiator_task_tag(), &[]).unwrap();
            assert!(answer.is_good() && answer.data == data, "{answer:?}");
        }
        host.log_out().unwrap();
        eventually("the end of the connection", || {
            find(control, peer).is_none()
        });
        assert_eq!(control.statistics().memory.task_bytes, 0);
    }
}

#[test]
fn a_connection_with_a_write_in_flight_stays_and_goes_on() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let control = scene.control();
        let mut host = scene.host(1);
        move_to(control, address(&host), 1);
        gate.close_writes();
        let tag = begin_write(&mut host, 3, 9);
        eventually("the write", || gate.waiting() == 1);
        let before = moves_given_up(control);
        control.move_connection(address(&host), 2);
        eventually("giving up", || moves_given_up(control) == before + 1);
        // It takes commands again meanwhile.
        assert_eq!(read(&mut host, 7), [0; 512]);
        assert_eq!(find(control, address(&host)).unwrap().shard, 1);
        gate.open();
        assert!(host.finish(tag, &[9; 512]).unwrap().is_good());
        move_to(control, address(&host), 2);
        assert_eq!(read(&mut host, 3), [9; 512]);
    }
}

/// The write was aborted, and its storage request lives on where the connection was.
#[test]
fn abort_task_waits_for_a_write_that_was_aborted_before_although_the_connection_was_to_move() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        gate.close_writes();
        let write = begin_write(&mut one, 3, 7);
        eventually("the write", || gate.waiting() == 1);
        let reset = begin_management(&mut two, LOGICAL_UNIT_RESET, 0, u32::MAX);
        eventually("the abort", || {
            find(scene.control(), address(&one)).is_some_and(|c| c.writing_bytes == 0)
        });
        for reactor in 0..REACTORS {
            scene.control().move_connection(address(&one), reactor);
            thread::sleep(Duration::from_millis(30));
        }
        let abort = begin_management(&mut one, ABORT_TASK, 0, write);
        assert_silent(&mut one);
        gate.open();
        assert_eq!(management_response(&mut one, abort), 1, "no such task");
        assert_eq!(management_response(&mut two, reset), 0);
        assert_eq!(gate.waiting(), 0);
    }
}

/// Begins a write whose data does not come, and waits until the server asks for it. Returns its tag.
fn begin_endless_write(host: &mut Initiator) -> u32 {
    let data = vec![1; 512 << 10];
    let command = host.command_pdu(0, &cdb::write_16(0, 1024, false), Data::Out(&data));
    host.send(&command).unwrap();
    let r2t = host.receive().unwrap();
    assert_eq!(r2t.opcode(), opcode::R2T);
    command.initiator_task_tag()
}

#[test]
fn a_reset_finds_the_tasks_of_a_connection_that_moves() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        let (control, peer) = (scene.control(), address(&two));
        let mover = Mover::of(&scene, vec![peer, address(&one)]);
        for round in (0..).take_while(|round| goes_on(control, peer, *round, 200)) {
            let write = begin_endless_write(&mut two);
            assert_eq!(manage(&mut one, LOGICAL_UNIT_RESET, 0), 0, "round {round}");
            let tag = begin_management(&mut two, ABORT_TASK, 0, write);
            let result = management_response(&mut two, tag);
            assert_eq!(result, 1, "round {round}: the reset has not aborted it");
            for host in [&mut one, &mut two] {
                let told = settle(host);
                assert!(
                    matches!(told[..], [(6, 0x29, _)]),
                    "round {round}: {told:?}"
                );
            }
        }
        drop(mover);
    }
}

#[test]
fn abort_task_ends_a_task_that_has_moved() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut host = scene.host(1);
        for reactor in [0, 1, 2, 0] {
            let write = begin_endless_write(&mut host);
            move_to(scene.control(), address(&host), reactor);
            let tag = begin_management(&mut host, ABORT_TASK, 0, write);
            assert_eq!(management_response(&mut host, tag), 0);
            assert_eq!(settle(&mut host), []);
        }
    }
}

#[test]
fn a_session_is_reinstated_wherever_its_connection_has_gone() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let (mut old, mut seen) = (scene.host(1), 0);
        for round in 0..50 {
            let mover = Mover::of(&scene, vec![address(&old)]);
            await_move(scene.control(), &mut seen);
            assert!(write(&mut old, 1, round).is_good());
            let mut new = Initiator::log_in(scene.portals[0], &login(1)).unwrap();
            assert!(old.is_closed_within(LIMIT).unwrap(), "round {round}");
            drop(mover);
            settle(&mut new);
            assert_eq!(read(&mut new, 1), [round; 512]);
            old = new;
        }
        // Nothing of them is left.
        old.log_out().unwrap();
        eventually("the end of all connections", || {
            scene.control().statistics().connections.is_empty()
        });
        assert_eq!(scene.control().statistics().memory.task_bytes, 0);
    }
}

#[test]
fn a_session_logs_out_while_it_moves() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut seen = 0;
        for round in 0..30 {
            let mut host = scene.host(1);
            let mover = Mover::of(&scene, vec![address(&host)]);
            await_move(scene.control(), &mut seen);
            assert!(write(&mut host, 1, round).is_good());
            host.log_out().unwrap();
            drop(mover);
        }
    }
}

#[test]
fn a_cold_reset_closes_connections_that_move() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut seen = 0;
        for _ in 0..20 {
            let (mut one, mut two) = (scene.host(1), scene.host(2));
            let mover = Mover::of(&scene, vec![address(&one), address(&two)]);
            await_move(scene.control(), &mut seen);
            assert_eq!(manage(&mut one, TARGET_COLD_RESET, 0), 0);
            assert!(one.is_closed_within(LIMIT).unwrap());
            assert!(two.is_closed_within(LIMIT).unwrap());
            drop(mover);
        }
    }
}

#[test]
fn the_server_ends_in_order_while_connections_move() {
    for engine in ENGINES {
        for _ in 0..10 {
            let scene = Scene::with(vec![mem("disk", 512)], engine);
            let mut hosts = [scene.host(1), scene.host(2), scene.host(3)];
            let peers = hosts.iter().map(address).collect();
            let mover = Mover::of(&scene, peers);
            await_move(scene.control(), &mut 0);
            for host in &mut hosts {
                assert!(write(host, 4, 4).is_good());
            }
            scene.control().shut_down();
            for host in &mut hosts {
                let message = host.receive().unwrap();
                assert_eq!(message.opcode(), opcode::ASYNCHRONOUS_MESSAGE);
                assert_eq!(message.bhs[36], 1, "target requests logout");
            }
            for host in hosts {
                host.log_out().unwrap();
            }
            drop(mover);
            scene.wait();
        }
    }
}

#[test]
fn connections_crowded_on_one_reactor_spread_when_they_are_busy() {
    const HOSTS: u16 = 4;
    let mut config = config(vec![mem("disk", 512)], EngineChoice::Auto);
    config.cores = vec![0, 0];
    config.reactor.rebalance = true;
    let scene = Scene::new(config);
    let control = scene.control().clone();
    let hosts: Vec<Initiator> = (1..=HOSTS).map(|number| scene.host(number)).collect();
    let peers: Vec<SocketAddr> = hosts.iter().map(address).collect();
    for peer in &peers {
        move_to(&control, *peer, 0);
    }
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = hosts
        .into_iter()
        .enumerate()
        .map(|(number, mut host)| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let data = pattern(number, 64 << 10);
                let lba = u64::try_from(number).unwrap() * 128;
                let write = cdb::write_16(lba, 128, false);
                assert!(host.command(0, &write, Data::Out(&data)).unwrap().is_good());
                while !done.load(Ordering::Relaxed) {
                    let read = cdb::read_16(lba, 128);
                    let answer = host.command(0, &read, Data::In(64 << 10)).unwrap();
                    assert!(answer.is_good() && answer.data == data);
                }
            })
        })
        .collect();
    within(Duration::from_secs(120), "the spread", || {
        let statistics = control.statistics();
        let on = |shard| {
            let connections = statistics.connections.iter();
            connections.filter(|c| c.shard == shard).count()
        };
        on(0) == 2 && on(1) == 2
    });
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}
