//! What is exported changes while sessions and controllers of both protocols go on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use longshore_iscsi::server::directory::Authentication;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::CommandSlot;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::status::Status;
use longshore_reactor::EngineChoice;
use longshore_server::config::{
    ExportsConfig, LunConfig, NamespaceMapEntry, NvmeListenerConfig, ServerConfig, SubsystemConfig,
};
use longshore_server::{ClosedVolume, DrainOptions, DrainState, StartError, SwitchError, Switched};
use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, SUBSYSTEM, discover};
use longshore_tests::pdu::opcode;
use longshore_tests::server::TARGET;
use longshore_volume::Volume;
use longshore_volume::layer::slow::{SlowSpec, SlowVolume};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0x00);
/// Namespace Attribute Changed, with its log page.
const NAMESPACES_CHANGED: u64 = 0x0004_0002;
const DISCOVERY_CHANGED: u64 = 0x0070_f002;

/// Each volume as a LUN, and as the namespace after it.
fn exports(volumes: &[Arc<dyn Volume>]) -> ExportsConfig {
    ExportsConfig {
        targets: vec![target(TARGET, volumes.len())],
        subsystems: vec![subsystem(SUBSYSTEM, volumes.len())],
        volumes: volumes.to_vec(),
        discovery: Authentication::none(),
    }
}

fn subsystem(nqn: &str, volumes: usize) -> SubsystemConfig {
    SubsystemConfig {
        nqn: Nqn::new(nqn).unwrap(),
        serial: None,
        hosts: Vec::new(),
        default_namespaces: Some((0..volumes).map(namespace).collect()),
    }
}

fn namespace(volume: usize) -> NamespaceMapEntry {
    NamespaceMapEntry {
        nsid: u32::try_from(volume).unwrap() + 1,
        volume,
        read_only: false,
    }
}

fn server(volumes: &[Arc<dyn Volume>], engine: EngineChoice) -> ServerConfig {
    let ExportsConfig {
        volumes,
        targets,
        subsystems,
        ..
    } = exports(volumes);
    let nvme = NvmeListenerConfig {
        listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        advertise: None,
        discovery_only: false,
        tls: longshore_server::config::TlsUse::None,
    };
    ServerConfig {
        targets,
        subsystems,
        nvme_listeners: vec![nvme],
        ..config(volumes, engine)
    }
}

fn switch(scene: &Scene, exports: ExportsConfig) -> Switched {
    let drain = DrainOptions::default();
    scene.control().switch(exports, drain).unwrap()
}

/// Switches, and gets word of volumes that are closed.
fn switch_and_watch(
    scene: &Scene,
    exports: ExportsConfig,
    timeout: Duration,
) -> mpsc::Receiver<ClosedVolume> {
    let (closed, inbox) = mpsc::channel();
    let drain = DrainOptions {
        timeout,
        on_closed: Some(Arc::new(move |volume| {
            let _ = closed.send(volume);
        })),
    };
    scene.control().switch(exports, drain).unwrap();
    inbox
}

fn nvme_host(scene: &Scene, number: u8) -> Host {
    Host::connect(scene.nvme_portals[0], &HostOptions::numbered(number)).unwrap()
}

fn report_luns(host: &mut Initiator) -> Vec<u8> {
    let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let answer = host.command(0, &report, Data::In(256)).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    let luns = answer.data[8..].chunks_exact(8);
    luns.map(|lun| lun[1]).collect()
}

/// The Asynchronous Message that says that logical units have come or gone.
fn await_luns_changed(host: &mut Initiator) {
    let message = host.receive().unwrap();
    assert_eq!(
        message.opcode(),
        opcode::ASYNCHRONOUS_MESSAGE,
        "{message:?}"
    );
    assert_eq!(message.bhs[36], 0, "a SCSI event");
    assert_eq!(message.data[..2], [0, 18], "length of the sense data");
    let sense = &message.data[2..];
    assert_eq!((sense[2] & 15, sense[12], sense[13]), LUNS_CHANGED);
}

fn write_at(host: &mut Initiator, lun: u8, byte: u8) -> Answer {
    let write = cdb::write_16(0, 1, false);
    host.command(lun, &write, Data::Out(&[byte; 512])).unwrap()
}

fn read_at(host: &mut Initiator, lun: u8) -> Answer {
    host.command(lun, &cdb::read_16(0, 1), Data::In(512))
        .unwrap()
}

fn block(namespace: u32) -> Blocks {
    Blocks {
        namespace: NamespaceId(namespace),
        lba: longshore_block::extent::Lba(0),
        count: 1,
        block_bytes: 512,
    }
}

/// Takes the unit attention that a change leaves on each unit.
fn learn_of_change(host: &mut Initiator, lun: u8) {
    let answer = host
        .command(lun, &cdb::TEST_UNIT_READY, Data::None)
        .unwrap();
    assert_eq!(answer.sense_code(), Some(LUNS_CHANGED));
}

#[test]
fn a_volume_that_is_added_can_be_used_at_once_by_sessions_and_controllers_that_are_there() {
    for engine in ENGINES {
        let first = mem("first", 512);
        let scene = Scene::new(server(&[Arc::clone(&first)], engine));
        let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
        let event = commands::async_event_request();
        let event = two.admin.start(&event, &[]).unwrap();
        assert_eq!(report_luns(&mut one), [0]);
        assert!(write_at(&mut one, 0, 1).is_good());

        let second = mem("second", 512);
        let switched = switch(&scene, exports(&[first, Arc::clone(&second)]));
        assert_eq!(switched.added, ["second"]);
        assert_eq!(switched.removed, [""; 0]);
        await_luns_changed(&mut one);
        learn_of_change(&mut one, 0);
        assert_eq!(report_luns(&mut one), [0, 1]);
        // Power on, which is how a nexus begins.
        let ready = one.command(1, &cdb::TEST_UNIT_READY, Data::None).unwrap();
        assert_eq!(ready.sense_code(), Some((6, 0x29, 0)));
        assert!(write_at(&mut one, 1, 7).is_good());

        let told = two.admin.wait(event).unwrap().expect_success();
        assert_eq!(told.result, NAMESPACES_CHANGED);
        assert_eq!(
            two.log_page(4, 0, 4096).unwrap()[..8],
            [2, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(two.active_namespaces().unwrap(), [1, 2]);
        let read = two.read(block(2)).unwrap().expect_success();
        assert_eq!(read.data, [7; 512]);
        assert_eq!(read_at(&mut one, 0).data, [1; 512]);
    }
}

#[test]
fn a_volume_that_is_removed_is_flushed_and_closed_and_its_numbers_name_nothing() {
    for engine in ENGINES {
        let first = mem("first", 512);
        let gate = GateVolume::new(mem("second", 512));
        let second: Arc<dyn Volume> = gate.clone();
        let scene = Scene::new(server(&[Arc::clone(&first), second], engine));
        let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
        one.become_ready(1).unwrap();
        assert!(write_at(&mut one, 1, 3).is_good());
        let event = commands::async_event_request();
        let event = two.admin.start(&event, &[]).unwrap();

        let timeout = Duration::from_secs(20);
        let closed = switch_and_watch(&scene, exports(&[Arc::clone(&first)]), timeout);
        await_luns_changed(&mut one);
        assert_eq!(write_at(&mut one, 1, 4).sense_code(), Some(NOT_SUPPORTED));
        learn_of_change(&mut one, 0);
        assert_eq!(report_luns(&mut one), [0]);
        let told = two.admin.wait(event).unwrap().expect_success();
        assert_eq!(told.result, NAMESPACES_CHANGED);
        assert_eq!(two.active_namespaces().unwrap(), [1]);
        let refused = two.write(block(2), &[5; 512]).unwrap();
        assert_eq!(refused.status, Status::INVALID_FIELD.do_not_retry());
        let closed = closed.recv_timeout(LIMIT).unwrap();
        let expected = ClosedVolume {
            name: "second".to_owned(),
            failure: None,
            timed_out: false,
        };
        assert_eq!(closed, expected);
        assert_eq!(gate.flushed(), 1);
        assert_eq!(gate.at_work(), 0, "no event loop serves it any more");
        assert_eq!(Arc::strong_count(&gate), 1);
        assert_eq!(scene.control().draining(), []);

        // Another volume gets its place.
        let third = mem("third", 512);
        switch(&scene, exports(&[first, third]));
        await_luns_changed(&mut one);
        one.become_ready(1).unwrap();
        assert_eq!(read_at(&mut one, 1).data, [0; 512]);
        assert_eq!(two.read(block(2)).unwrap().expect_success().data, [0; 512]);
    }
}

/// Two volumes; the second holds up a write of an initiator and one of a host.
struct HeldWrites {
    scene: Scene,
    first: Arc<dyn Volume>,
    gate: Arc<GateVolume>,
    one: Initiator,
    tag: u32,
    two: Host,
    slot: CommandSlot,
}

impl HeldWrites {
    fn begin(engine: EngineChoice) -> Self {
        let first = mem("first", 512);
        let gate = GateVolume::new(mem("second", 512));
        let second: Arc<dyn Volume> = gate.clone();
        let scene = Scene::new(server(&[Arc::clone(&first), second], engine));
        let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
        one.become_ready(1).unwrap();
        gate.close_writes();
        let command = cdb::write_16(0, 1, false);
        let command = one.command_pdu(1, &command, Data::Out(&[9; 512]));
        one.send(&command).unwrap();
        let write = commands::write(block(2), 0);
        let slot = two.queues[0].start(&write, &[9; 512]).unwrap();
        eventually("the writes", || gate.waiting() == 2);
        Self {
            scene,
            first,
            gate,
            one,
            tag: command.initiator_task_tag(),
            two,
            slot,
        }
    }
}

#[test]
fn commands_under_way_end_well_when_their_volume_is_removed() {
    for engine in ENGINES {
        let HeldWrites {
            scene,
            first,
            gate,
            mut one,
            tag,
            mut two,
            slot,
        } = HeldWrites::begin(engine);

        let timeout = Duration::from_secs(100);
        let closed = switch_and_watch(&scene, exports(&[Arc::clone(&first)]), timeout);
        await_luns_changed(&mut one);
        eventually("the drain", || {
            let draining = scene.control().draining();
            let [volume] = &draining[..] else {
                panic!("{draining:?}");
            };
            assert_eq!(volume.name, "second");
            volume.state == DrainState::Draining && volume.in_flight == 2
        });
        // Nothing else waits for it.
        let third = mem("third", 512);
        switch(&scene, exports(&[Arc::clone(&first), third]));
        await_luns_changed(&mut one);
        one.become_ready(1).unwrap();
        assert!(write_at(&mut one, 1, 1).is_good());
        gate.open();
        let answer = one.finish(tag, &[9; 512]).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        two.queues[0].wait(slot).unwrap().expect_success();
        let closed = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!((closed.failure, closed.timed_out), (None, false));
        assert_eq!(read_at(&mut one, 1).data, [1; 512]);
    }
}

#[test]
fn a_medium_that_does_not_answer_keeps_its_volume_and_nothing_else() {
    for engine in ENGINES {
        let HeldWrites {
            scene,
            first,
            gate,
            mut one,
            tag,
            mut two,
            slot,
        } = HeldWrites::begin(engine);

        let timeout = Duration::from_millis(1);
        let closed = switch_and_watch(&scene, exports(&[Arc::clone(&first)]), timeout);
        await_luns_changed(&mut one);
        let answer = one.finish(tag, &[9; 512]).unwrap();
        assert_eq!(answer.sense_code(), Some(NOT_SUPPORTED));
        let answer = two.queues[0].wait(slot).unwrap();
        assert_eq!(answer.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
        eventually("giving up", || {
            let draining = scene.control().draining();
            draining[0].is_stuck && draining[0].in_flight == 2
        });
        assert!(closed.try_recv().is_err());
        // The volume that it was is still there, and may come back later.
        switch(&scene, exports(&[Arc::clone(&first), mem("third", 512)]));
        await_luns_changed(&mut one);
        assert_eq!(scene.control().draining().len(), 1);
        gate.open();
        let closed = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!((closed.failure, closed.timed_out), (None, true));
        assert_eq!(gate.flushed(), 1);
        one.become_ready(1).unwrap();
        assert_eq!(read_at(&mut one, 1).data, [0; 512]);
    }
}

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Operations that sleep in the layer of a volume, and not in the kernel, hold its removal up for no longer than they may.
#[test]
fn operations_that_a_slow_volume_has_sleep_end_with_the_time_of_its_removal() {
    for engine in ENGINES {
        let first = mem("first", 512);
        let spec = SlowSpec {
            delay: FOR_EVER,
            ..SlowSpec::default()
        };
        let slow: Arc<dyn Volume> = Arc::new(SlowVolume::new(mem("second", 512), spec));
        let known = Arc::downgrade(&slow);
        let scene = Scene::new(server(&[Arc::clone(&first), slow], engine));
        let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
        one.become_ready(1).unwrap();
        let command = cdb::write_16(0, 1, false);
        let command = one.command_pdu(1, &command, Data::Out(&[9; 512]));
        one.send(&command).unwrap();
        let write = commands::write(block(2), 0);
        let slot = two.queues[0].start(&write, &[9; 512]).unwrap();
        // Whoever is answered has read the command before: the write is under way.
        let read = commands::read(block(1));
        let other = two.queues[0].start(&read, &[]).unwrap();
        two.queues[0].wait(other).unwrap().expect_success();
        let timeout = Duration::from_millis(200);
        let closed = switch_and_watch(&scene, exports(&[Arc::clone(&first)]), timeout);
        await_luns_changed(&mut one);
        let answer = one.finish(command.initiator_task_tag(), &[9; 512]).unwrap();
        assert_eq!(answer.sense_code(), Some(NOT_SUPPORTED));
        let answer = two.queues[0].wait(slot).unwrap();
        assert_eq!(answer.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
        let closed = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!((closed.failure, closed.timed_out), (None, true));
        assert_eq!(Weak::strong_count(&known), 0);
        one.become_ready(0).unwrap();
        assert_eq!(read_at(&mut one, 0).data, [0; 512]);
    }
}

#[test]
fn nobody_holds_a_volume_that_is_said_to_be_closed() {
    for engine in ENGINES {
        let scene = Scene::new(server(&[], engine));
        for _ in 0..20 {
            let volumes: Vec<Arc<dyn Volume>> = (0..8)
                .map(|number| mem(&format!("disk{number}"), 512))
                .collect();
            switch(&scene, exports(&volumes));
            let (closed, inbox) = mpsc::channel();
            let held: Vec<Weak<dyn Volume>> = volumes.iter().map(Arc::downgrade).collect();
            let drain = DrainOptions {
                timeout: Duration::from_secs(100),
                on_closed: Some(Arc::new(move |volume| {
                    let number: usize = volume.name["disk".len()..].parse().unwrap();
                    let _ = closed.send(held[number].strong_count());
                })),
            };
            drop(volumes);
            scene.control().switch(exports(&[]), drain).unwrap();
            // Other changes begin while the places of the volumes become vacant one after the other.
            for _ in 0..8 {
                switch(&scene, exports(&[mem("other", 512)]));
                assert_eq!(inbox.recv_timeout(LIMIT).unwrap(), 0);
                switch(&scene, exports(&[]));
            }
        }
    }
}

#[test]
fn a_server_ends_while_a_removed_volume_drains() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let volume: Arc<dyn Volume> = gate.clone();
        let scene = Scene::new(server(&[volume], engine));
        let mut one = scene.host(1);
        gate.close_writes();
        begin_write(&mut one, 0, 4);
        eventually("the write", || gate.waiting() == 1);
        let closed = switch_and_watch(&scene, exports(&[]), Duration::from_secs(100));
        scene.control().shut_down();
        drop(one);
        gate.open();
        scene.wait();
        closed.recv_timeout(LIMIT).unwrap();
        assert!(gate.flushed() > 0);
    }
}

#[test]
fn a_mapping_that_becomes_read_only_refuses_writes_from_then_on() {
    let disk = mem("disk", 512);
    let scene = Scene::new(server(&[Arc::clone(&disk)], EngineChoice::Auto));
    let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
    let event = commands::async_event_request();
    let event = two.admin.start(&event, &[]).unwrap();
    let mut changed = exports(&[Arc::clone(&disk)]);
    for lun in changed.targets[0].default_luns.iter_mut().flatten() {
        lun.read_only = true;
    }
    for entry in changed.subsystems[0]
        .default_namespaces
        .iter_mut()
        .flatten()
    {
        entry.read_only = true;
    }
    switch(&scene, changed);
    assert_eq!(settle(&mut one), [(6, 0x2a, 1), (6, 0x3f, 3)]);
    assert_eq!(write(&mut one, 0, 1).sense_code(), Some((7, 0x27, 0)));
    assert_eq!(read(&mut one, 0), [0; 512]);
    let told = two.admin.wait(event).unwrap().expect_success();
    assert_eq!(told.result, NAMESPACES_CHANGED);
    let refused = two.write(block(1), &[1; 512]).unwrap();
    assert_eq!(refused.code(), Status::NAMESPACE_WRITE_PROTECTED);
    switch(&scene, exports(&[disk]));
    assert_eq!(settle(&mut one), [(6, 0x2a, 1), (6, 0x3f, 3)]);
    assert!(write(&mut one, 0, 2).is_good());
    two.write(block(1), &[1; 512]).unwrap().expect_success();
}

#[test]
fn a_host_whose_access_is_taken_is_asked_to_leave_and_sees_nothing() {
    let disk = mem("disk", 512);
    let scene = Scene::new(server(&[Arc::clone(&disk)], EngineChoice::Auto));
    let (mut out, mut stays) = (scene.host(1), scene.host(2));
    let (mut nvme_out, mut nvme_stays) = (nvme_host(&scene, 3), nvme_host(&scene, 4));
    let mut changed = exports(&[Arc::clone(&disk)]);
    let all = changed.targets[0].default_luns.take().unwrap();
    changed.targets[0].access = vec![rule(&host_name(2), all)];
    let namespaces = changed.subsystems[0].default_namespaces.take().unwrap();
    changed.subsystems[0].hosts = vec![longshore_server::config::HostRule {
        hosts: vec![Nqn::new(&nvme_stays.options.host).unwrap().into()],
        namespaces,
        credentials: None,
        tls: None,
    }];
    switch(&scene, changed);
    let message = out.receive().unwrap();
    assert_eq!(message.opcode(), opcode::ASYNCHRONOUS_MESSAGE);
    assert_eq!(message.bhs[36], 1, "target requests logout");
    assert_eq!(write(&mut out, 0, 1).sense_code(), Some(NOT_SUPPORTED));
    out.log_out().unwrap();
    let mut again = Initiator::connect(scene.portals[0]).unwrap();
    assert_eq!(again.try_login(&login(1)).unwrap(), 0x0202);
    assert!(write(&mut stays, 0, 2).is_good());

    let refused = nvme_out.write(block(1), &[1; 512]).unwrap();
    assert_eq!(refused.status, Status::INVALID_FIELD.do_not_retry());
    nvme_stays
        .write(block(1), &[3; 512])
        .unwrap()
        .expect_success();
    assert!(nvme_out.admin.is_closed_within(LIMIT).unwrap());
    assert!(nvme_out.queues[0].is_closed_within(LIMIT).unwrap());
    let again = Host::connect(scene.nvme_portals[0], &nvme_out.options).unwrap_err();
    assert!(again.to_string().contains("Invalid Host"), "{again}");
    nvme_stays.read(block(1)).unwrap().expect_success();
}

#[test]
fn targets_and_subsystems_come_and_go() {
    let disk = mem("disk", 512);
    let scene = Scene::new(server(&[Arc::clone(&disk)], EngineChoice::Auto));
    let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
    let options = HostOptions::numbered(3);
    let mut looking = Host::connect(scene.nvme_portals[0], &options.clone().discovery()).unwrap();
    let event = commands::async_event_request();
    let event = looking.admin.start(&event, &[]).unwrap();
    let (generation, entries) = looking.discovery_log().unwrap();
    assert_eq!(entries.len(), 1);

    let other_target = "iqn.2026-11.local.longshore:other";
    let other_subsystem = "nqn.2026-11.local.longshore:other";
    let mut changed = exports(&[Arc::clone(&disk)]);
    changed.targets.insert(0, target(other_target, 1));
    changed.subsystems.insert(0, subsystem(other_subsystem, 1));
    switch(&scene, changed);
    let told = looking.admin.wait(event).unwrap().expect_success();
    assert_eq!(told.result, DISCOVERY_CHANGED);
    let (later, entries) = looking.discovery_log().unwrap();
    assert!(later > generation);
    assert_eq!(entries.len(), 2);
    let to_other = Login {
        target: Some(other_target.to_owned()),
        ..login(4)
    };
    let mut other = Initiator::log_in(scene.portals[0], &to_other).unwrap();
    settle(&mut other);
    assert!(write(&mut other, 0, 6).is_good());
    assert_eq!(read(&mut one, 0), [6; 512], "of the same volume");

    // The first ones go.
    let mut changed = exports(&[disk]);
    changed.targets = vec![target(other_target, 1)];
    changed.subsystems = vec![subsystem(other_subsystem, 1)];
    switch(&scene, changed);
    let message = one.receive().unwrap();
    assert_eq!(message.bhs[36], 1, "target requests logout");
    one.log_out().unwrap();
    let mut again = Initiator::connect(scene.portals[0]).unwrap();
    assert_eq!(again.try_login(&login(1)).unwrap(), 0x0203);
    assert!(write(&mut other, 0, 7).is_good());
    assert!(two.admin.is_closed_within(LIMIT).unwrap());
    let left = discover(scene.nvme_portals[0], &options).unwrap();
    assert_eq!(left.1.len(), 1);
    assert_eq!(left.1[0].subsystem, other_subsystem);
}

#[test]
fn what_cannot_be_exported_changes_nothing() {
    let disk = mem("disk", 512);
    let scene = Scene::new(server(&[Arc::clone(&disk)], EngineChoice::Auto));
    let mut one = scene.host(1);
    let mut wrong = exports(&[Arc::clone(&disk)]);
    wrong.targets[0].default_luns = Some(vec![
        lun(3, 0),
        LunConfig {
            volume: 1,
            ..lun(3, 0)
        },
    ]);
    let error = scene.control().switch(wrong, DrainOptions::default());
    let error = error.unwrap_err();
    assert!(
        matches!(
            &error,
            SwitchError::Config(StartError::NoVolume { volume: 1, .. })
        ),
        "{error}"
    );
    assert_eq!(report_luns(&mut one), [0]);
    assert_silent(&mut one);
}

/// Sessions are read and written, and moved between event loops, while a volume beside theirs comes and goes.
#[test]
fn nothing_is_lost_while_volumes_come_and_go_and_connections_move() {
    const ROUNDS: usize = 60;
    for engine in ENGINES {
        let disk = mem("disk", 512);
        let scene = Scene::new(server(&[Arc::clone(&disk)], engine));
        let is_over = AtomicBool::new(false);
        let written = AtomicUsize::new(0);
        let closed = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 1..=3_u8 {
                let (scene, is_over, written) = (&scene, &is_over, &written);
                scope.spawn(move || {
                    let mut host = nvme_host(scene, number);
                    let at = Blocks {
                        lba: longshore_block::extent::Lba(u64::from(number)),
                        ..block(1)
                    };
                    for round in 0_u64.. {
                        let byte = u8::try_from(round % 251).unwrap();
                        host.write(at, &[byte; 512]).unwrap().expect_success();
                        let back = host.read(at).unwrap().expect_success();
                        assert_eq!(back.data, [byte; 512]);
                        written.fetch_add(1, Ordering::Relaxed);
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            let (mut one, control) = (scene.host(1), scene.control());
            let peer = one.stream().local_addr().unwrap();
            for round in 0..ROUNDS {
                let more = mem("more", 512);
                let volumes = [Arc::clone(&disk), more];
                control.move_connection(peer, round % 3);
                switch(&scene, exports(&volumes));
                await_luns_changed(&mut one);
                one.become_ready(1).unwrap();
                assert!(write_at(&mut one, 1, 8).is_good());
                assert_eq!(read_at(&mut one, 1).data, [8; 512]);
                control.move_connection(peer, (round + 1) % 3);
                let counted = Arc::clone(&closed);
                let drain = DrainOptions {
                    on_closed: Some(Arc::new(move |volume: ClosedVolume| {
                        assert_eq!(volume.failure, None);
                        counted.fetch_add(1, Ordering::Relaxed);
                    })),
                    ..DrainOptions::default()
                };
                control.switch(exports(&volumes[..1]), drain).unwrap();
                await_luns_changed(&mut one);
                assert_eq!(read_at(&mut one, 1).sense_code(), Some(NOT_SUPPORTED));
            }
            eventually("some writes", || written.load(Ordering::Relaxed) > 100);
            is_over.store(true, Ordering::Relaxed);
        });
        eventually("the end of all removals", || {
            closed.load(Ordering::Relaxed) == ROUNDS && scene.control().draining().is_empty()
        });
    }
}

/// A copy between two logical units goes on when the numbers of others change.
#[test]
fn a_session_with_units_between_which_others_come_keeps_them_apart() {
    let volumes: Vec<_> = ["a", "b", "c"].map(|name| mem(name, 512)).into();
    let scene = Scene::new(server(&volumes, EngineChoice::Auto));
    let mut one = scene.host(1);
    for lun in 1..3 {
        one.become_ready(lun).unwrap();
    }
    for lun in 0..3 {
        assert!(write_at(&mut one, lun, lun + 1).is_good());
    }
    // `b` goes, and what was LUN 2 stays LUN 2.
    let mut changed = exports(&[Arc::clone(&volumes[0]), Arc::clone(&volumes[2])]);
    changed.targets[0].default_luns = Some(vec![lun(0, 0), lun(2, 1)]);
    switch(&scene, changed);
    await_luns_changed(&mut one);
    learn_of_change(&mut one, 2);
    assert_eq!(read_at(&mut one, 2).data, [3; 512]);
    assert_eq!(read_at(&mut one, 1).sense_code(), Some(NOT_SUPPORTED));
    assert_eq!(report_luns(&mut one), [0, 2]);
    // REPORT LUNS tells for all units of the initiator.
    assert_eq!(read_at(&mut one, 0).data, [1; 512]);
    eventually("the end of `b`", || scene.control().draining().is_empty());
    switch(&scene, exports(&volumes));
    await_luns_changed(&mut one);
    one.become_ready(1).unwrap();
    assert_eq!(read_at(&mut one, 1).data, [2; 512]);
    learn_of_change(&mut one, 0);
    learn_of_change(&mut one, 2);
    assert_eq!(read_at(&mut one, 2).data, [3; 512]);
}

/// Unit attentions of a unit, in their order.
fn attentions(host: &mut Initiator, lun: u8) -> Vec<(u8, u8, u8)> {
    let mut all = Vec::new();
    loop {
        let answer = host.command(lun, &cdb::TEST_UNIT_READY, Data::None);
        match answer.unwrap().sense_code() {
            Some(code) if code.0 == 6 => all.push(code),
            _ => return all,
        }
        assert!(all.len() < 16, "{all:x?}");
    }
}

#[test]
fn another_volume_at_a_number_that_a_session_knew_has_other_inquiry_data() {
    const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
    const INQUIRY_CHANGED: (u8, u8, u8) = (6, 0x3f, 3);
    let [a, b, c] = ["a", "b", "c"].map(|name| mem(name, 512));
    let with = |volumes: &[&Arc<dyn Volume>]| {
        let volumes: Vec<_> = volumes.iter().map(|&volume| Arc::clone(volume)).collect();
        exports(&volumes)
    };
    let scene = Scene::new(server(
        &[Arc::clone(&a), Arc::clone(&b)],
        EngineChoice::Auto,
    ));
    let mut one = scene.host(1);
    one.become_ready(1).unwrap();
    let mut change = |exports: ExportsConfig| {
        eventually("the end of removals", || {
            scene.control().draining().is_empty()
        });
        switch(&scene, exports);
        await_luns_changed(&mut one);
        [0, 1].map(|lun| attentions(&mut one, lun))
    };
    let told = change(with(&[&a, &c]));
    assert_eq!(told[0], [LUNS_CHANGED]);
    assert_eq!(told[1], [POWER_ON, INQUIRY_CHANGED, LUNS_CHANGED]);
    // The number is free for a while.
    let told = change(with(&[&a]));
    assert_eq!(told, [vec![LUNS_CHANGED], Vec::new()]);
    let told = change(with(&[&a, &b]));
    assert_eq!(told[1], [POWER_ON, INQUIRY_CHANGED, LUNS_CHANGED]);
    // The same volume comes back, and one comes that the session has not known.
    change(with(&[&a]));
    let told = change(with(&[&a, &b, &c]));
    assert_eq!(told[1], [POWER_ON, LUNS_CHANGED]);
    assert_eq!(attentions(&mut one, 2), [POWER_ON, LUNS_CHANGED]);
}

#[test]
fn sessions_and_controllers_are_listed_with_what_they_see_and_can_be_closed() {
    let volumes = [mem("a", 512), mem("b", 512)];
    let scene = Scene::new(server(&volumes, EngineChoice::Auto));
    let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
    let peer = one.stream().local_addr().unwrap();
    let sessions = scene.control().sessions();
    let [first, second] = &sessions[..] else {
        panic!("{sessions:?}");
    };
    assert_eq!((&first.name, &first.peers), (&host_name(1), &vec![peer]));
    assert_eq!(first.exporter.as_deref(), Some(TARGET));
    assert_eq!(second.name, two.options.host);
    assert_eq!(second.exporter.as_deref(), Some(SUBSYSTEM));
    assert_eq!(second.number, two.controller_id);
    let admin = two.admin.stream().local_addr().unwrap();
    let queue = two.queues[0].stream().local_addr().unwrap();
    assert_eq!(second.peers, [admin, queue]);
    for (session, base) in [(first, 0), (second, 1)] {
        let seen = session.volumes.iter();
        let seen: Vec<_> = seen
            .map(|seen| (seen.number, seen.volume.as_str()))
            .collect();
        assert_eq!(seen, [(base, "a"), (base + 1, "b")]);
    }
    let ids = [first.id, second.id];
    switch(&scene, exports(&volumes[..1]));
    await_luns_changed(&mut one);
    for (session, id) in scene.control().sessions().iter().zip(ids) {
        assert_eq!((session.id, session.volumes.len()), (id, 1));
    }
    for id in ids {
        scene.control().close_session(id).unwrap();
    }
    let message = one.receive().unwrap();
    assert_eq!(message.bhs[36], 1, "target requests logout");
    one.log_out().unwrap();
    assert!(two.queues[0].is_closed_within(LIMIT).unwrap());
    eventually("the end of both", || scene.control().sessions().is_empty());
    scene.control().close_session(ids[0]).unwrap_err();
}

/// As many volumes and targets as there are to be. Times are printed, not judged.
#[test]
fn one_of_ten_thousand_volumes_comes_and_goes() {
    const VOLUMES: usize = 10_000;
    const TARGETS: usize = 1000;
    let volumes: Vec<_> = (0..VOLUMES)
        .map(|number| null(&format!("v{number}"), 512))
        .collect();
    let targets = |last: usize| -> Vec<_> {
        let each = VOLUMES / TARGETS;
        (0..TARGETS)
            .map(|number| {
                let luns = (0..each).map(|lun_| {
                    let number_ = u16::try_from(lun_).unwrap();
                    lun(number_, (number * each + lun_).min(last))
                });
                let name = format!("iqn.2026-11.local.longshore:t{number}");
                longshore_server::config::TargetConfig {
                    default_luns: Some(
                        luns.take(if number + 1 == TARGETS { 1 } else { each })
                            .collect(),
                    ),
                    ..target(&name, 0)
                }
            })
            .collect()
    };
    let mut config = server(&volumes, EngineChoice::Auto);
    config.targets = targets(VOLUMES);
    let started = std::time::Instant::now();
    let scene = Scene::new(config);
    eprintln!("start: {:?}", started.elapsed());
    let login = Login {
        target: Some("iqn.2026-11.local.longshore:t7".to_owned()),
        ..login(1)
    };
    let mut one = Initiator::log_in(scene.portals[0], &login).unwrap();
    settle(&mut one);
    let mut two = nvme_host(&scene, 2);
    assert_eq!(two.namespace_size(10_000).unwrap(), 64 << 11);
    for round in 0..4_usize {
        let kept = VOLUMES - round % 2;
        let mut exports = exports(&volumes[..kept]);
        exports.targets = targets(kept - 1);
        let started = std::time::Instant::now();
        switch(&scene, exports);
        eprintln!("switch: {:?}", started.elapsed());
        eventually("its end", || scene.control().draining().is_empty());
        assert_eq!(two.namespace_size(10_000).unwrap() > 0, kept == VOLUMES);
    }
    assert!(test_unit_ready(&mut one).is_good());
}

#[test]
fn listeners_come_and_go_and_connections_stay() {
    for engine in ENGINES {
        let disk = mem("disk", 512);
        let scene = Scene::new(server(&[disk], engine));
        let control = scene.control();
        let (mut one, mut two) = (scene.host(1), nvme_host(&scene, 2));
        let options = HostOptions::numbered(3);
        let mut looking =
            Host::connect(scene.nvme_portals[0], &options.clone().discovery()).unwrap();
        let event = commands::async_event_request();
        let event = looking.admin.start(&event, &[]).unwrap();
        let first = control.listeners();
        assert_eq!(first.len(), 2);

        let other = listener("127.0.0.1:0", 2);
        let other_address = other.local_address().unwrap();
        let other = control.add_listener(other).unwrap();
        let nvme = NvmeListenerConfig {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            advertise: None,
            discovery_only: false,
            tls: longshore_server::config::TlsUse::None,
        };
        let nvme_address = nvme.listener.local_addr().unwrap();
        let nvme = control.add_nvme_listener(nvme).unwrap();
        let told = looking.admin.wait(event).unwrap().expect_success();
        assert_eq!(told.result, DISCOVERY_CHANGED);
        assert_eq!(looking.discovery_log().unwrap().1.len(), 2);
        let mut three = Initiator::log_in(other_address, &login(4)).unwrap();
        settle(&mut three);
        assert!(write(&mut three, 0, 3).is_good());
        let mut four = Host::connect(nvme_address, &options).unwrap();
        assert_eq!(four.read(block(1)).unwrap().expect_success().data, [3; 512]);

        // The first portal, the only one of its portal group, and the first port.
        for (id, address) in first {
            control.remove_listener(id).unwrap();
            std::net::TcpStream::connect(address).unwrap_err();
            control.remove_listener(id).unwrap_err();
        }
        let message = one.receive().unwrap();
        assert_eq!(message.bhs[36], 1, "target requests logout");
        two.write(block(1), &[4; 512]).unwrap().expect_success();
        assert_eq!(read(&mut three, 0), [4; 512]);
        let left: Vec<_> = control.listeners().into_iter().map(|(id, _)| id).collect();
        assert_eq!(left, [other, nvme]);
        assert_eq!(discover(nvme_address, &options).unwrap().1.len(), 1);
    }
}
