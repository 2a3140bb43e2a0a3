//! Several sessions, their reinstatement, and what is not a data path.

use std::time::{Duration, Instant};

use longshore_initiator::error::Lost;
use longshore_initiator::info::Notice;
use longshore_initiator::iscsi::{Session, Transfer, fresh_isid};
use longshore_initiator::operation::Operation;
use longshore_initiator::options::{Options, QueueMaps};
use longshore_iscsi::pdu::{Function, Lun, TaskManagementResponseCode};
use longshore_tests::server::ServerBuilder;

use crate::rig::{Rig, data, extent, iscsi_url, pattern, server, turn, url, with_config};

const DONE: TaskManagementResponseCode = TaskManagementResponseCode::FUNCTION_COMPLETE;

fn queues(default: u16, read: u16, poll: u16) -> Options {
    Options {
        queues: QueueMaps {
            default,
            read,
            poll,
        },
        ..Options::default()
    }
}

#[test]
fn each_queue_is_a_session_and_all_see_one_volume() {
    let server = server();
    let mut rig = Rig::attach(&url(server.portal(0), 0), &queues(2, 2, 1)).unwrap();
    assert_eq!(rig.attachment.queues.len(), 5);
    let bytes = pattern(8192, 1);
    for queue in 0..5 {
        let extent = extent(u64::try_from(queue).unwrap() * 16, 16);
        let write = (Operation::Write { extent, fua: false }, data(&bytes));
        rig.run_all(queue, vec![write]).unwrap()[0]
            .result
            .clone()
            .unwrap();
    }
    for queue in 0..5 {
        let extent = extent(u64::try_from(4 - queue).unwrap() * 16, 16);
        let read = (Operation::Read { extent }, data(&[0; 8192]));
        let completion = rig.run_all(queue, vec![read]).unwrap().remove(0);
        completion.result.unwrap();
        assert_eq!(completion.data.bytes(), bytes);
    }
    rig.close();
}

#[test]
fn the_same_isids_reinstate_sessions_and_fresh_ones_leave_them_alone() {
    let server = server();
    let url = url(server.portal(0), 0);
    let mut options = queues(2, 0, 0);
    options.iscsi.isid = Some(fresh_isid());
    let mut first = Rig::attach(&url, &options).unwrap();
    let mut bystander = Rig::attach(&url, &queues(2, 0, 0)).unwrap();
    let mut second = Rig::attach(&url, &options).unwrap();
    second.verify(&[4096]);
    bystander.verify(&[4096]);
    for queue in 0..2 {
        let queue = &mut first.attachment.queues[queue];
        let deadline = Instant::now() + Duration::from_secs(20);
        let lost = loop {
            if let Err(error) = turn(queue, &mut Vec::new(), deadline) {
                break error;
            }
        };
        let lost = lost.get_ref().and_then(|it| it.downcast_ref::<Lost>());
        assert!(
            matches!(lost, Some(Lost::HungUp | Lost::Socket(_))),
            "{lost:?}"
        );
    }
}

#[test]
fn a_queue_asks_whether_the_target_is_there_and_logs_out() {
    let server = server();
    let mut rig = Rig::of(&server);
    let queue = &mut rig.attachment.queues[0];
    assert!(queue.ping());
    assert!(!queue.ping(), "one at a time");
    let deadline = Instant::now() + Duration::from_secs(20);
    turn(queue, &mut Vec::new(), deadline).unwrap();
    assert!(queue.ping(), "the first has its answer");
    queue.close();
    let lost = loop {
        if let Err(error) = turn(queue, &mut Vec::new(), deadline) {
            break error.to_string();
        }
    };
    assert_eq!(lost, "logged out");
}

#[test]
fn a_ping_with_data_brings_it_back_and_reads_are_counted_in_pdus() {
    let server = server();
    let mut rig = Rig::of(&server);
    let queue = &mut rig.attachment.queues[0];
    let deadline = Instant::now() + Duration::from_secs(20);
    // What identified the volume is counted when the next answer comes.
    assert!(queue.ping_with(&[]));
    while queue.pongs() == 0 {
        turn(queue, &mut Vec::new(), deadline).unwrap();
    }
    let before = *queue.counters();
    assert!(!queue.ping_with(&vec![7; 1 << 24]), "more than a segment");
    assert!(queue.ping_with(&[7; 8192]));
    while queue.pongs() == 1 {
        turn(queue, &mut Vec::new(), deadline).unwrap();
    }
    let after = queue.counters();
    assert_eq!(after.bytes_received - before.bytes_received, 48 + 8192);
    assert_eq!(after.data_pdus, before.data_pdus);
    rig.read(0, 8192).unwrap();
    let pdus = rig.attachment.queues[0].counters().data_pdus;
    assert_eq!(pdus - before.data_pdus, 1);
}

#[test]
fn a_server_that_stops_asks_for_a_logout_and_gets_it() {
    let server = server();
    let mut rig = Rig::of(&server);
    rig.verify(&[4096]);
    let stopping = std::thread::spawn(move || server.stop(Duration::from_secs(30)));
    let deadline = Instant::now() + Duration::from_secs(20);
    let queue = &mut rig.attachment.queues[0];
    while !rig.notices.contains(&Notice::LogoutAsked) {
        turn(queue, &mut Vec::new(), deadline).unwrap();
        queue.take_notices(&mut rig.notices);
    }
    queue.close();
    while turn(queue, &mut Vec::new(), deadline).is_ok() {}
    assert!(stopping.join().unwrap().unwrap().success());
}

#[test]
fn a_target_that_takes_few_sessions_is_used_with_as_many() {
    let server = with_config("[limits]\nsessions = 2\n");
    let mut rig = Rig::attach(&url(server.portal(0), 0), &queues(2, 2, 1)).unwrap();
    assert_eq!(rig.attachment.queues.len(), 2);
    assert_eq!(rig.attachment.maps, QueueMaps::plain(2));
    rig.verify(&[4096]);
}

#[test]
fn pings_text_and_task_management_have_answers() {
    let server = server();
    let url = iscsi_url(server.portal(0), 0);
    let mut session = Session::open(&url, 0, &Options::default()).unwrap();
    session.ping().unwrap();
    for function in [
        Function::ABORT_TASK_SET,
        Function::CLEAR_TASK_SET,
        Function::LOGICAL_UNIT_RESET,
    ] {
        let response = session.task_management(function, Lun::ZERO).unwrap();
        assert_eq!(response, DONE, "{function:?}");
    }
    let nowhere = Lun([0, 9, 0, 0, 0, 0, 0, 0]);
    let response = session.task_management(Function::LOGICAL_UNIT_RESET, nowhere);
    assert_eq!(
        response.unwrap(),
        TaskManagementResponseCode::LUN_DOES_NOT_EXIST
    );
    let answer = session.text(b"SendTargets=\0").unwrap();
    assert!(answer.starts_with(b"TargetName="), "{answer:?}");
    session.ping().unwrap();
    session.close();
}

#[test]
fn a_command_under_way_is_aborted_or_has_ended_before() {
    let server = ServerBuilder::new()
        .volume("disk0,backend=mem,size=64M")
        .iscsi()
        .start()
        .unwrap();
    let url = iscsi_url(server.portal(0), 0);
    let mut session = Session::open(&url, 0, &Options::default()).unwrap();
    let (lun, cdb) = (Lun::ZERO, [0x28, 0, 0, 0, 0, 0, 0, 0x20, 0, 0]);
    let _ = session.command(lun, &[0; 6], Transfer::None).unwrap();
    for _ in 0..50 {
        let tags: Vec<_> = (0..4)
            .map(|_| {
                session
                    .start(lun, &cdb, Transfer::Read(0x20_0000 << 1))
                    .unwrap()
            })
            .collect();
        let response = session.abort_task(lun, tags[3]).unwrap();
        let does_not_exist = TaskManagementResponseCode::TASK_DOES_NOT_EXIST;
        assert!(
            response == DONE || response == does_not_exist,
            "{response:?}"
        );
        for tag in &tags[..3] {
            session.wait(*tag).unwrap().data().unwrap();
        }
        if response == does_not_exist {
            session.wait(tags[3]).unwrap().data().unwrap();
        }
    }
    session.close();
}
