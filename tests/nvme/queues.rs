//! Several queues, deep queues, digests, alignment.

use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Property};
use longshore_nvme::status::Status;
use longshore_tests::nvme::{Host, HostOptions};

use crate::{blocks, connect_by, pattern, serve};

#[test]
fn what_one_queue_writes_the_other_reads() {
    let server = serve();
    let mut host = connect_by(&server, &HostOptions::default().queues(4));
    for from in 0..4_usize {
        let data = pattern(4096, from);
        let at = blocks(from as u64 * 8, 8);
        host.queues[from]
            .run(&commands::write(at, 0), &data)
            .unwrap()
            .expect_success();
        for queue in &mut host.queues {
            let read = queue.run(&commands::read(at), &[]).unwrap();
            assert_eq!(read.expect_success().data, data);
        }
    }
}

#[test]
fn a_full_queue_of_reads_and_writes_is_served() {
    let server = serve();
    for flow_control in [false, true] {
        let options = HostOptions {
            entries: 64,
            flow_control,
            ..HostOptions::default().queues(2)
        };
        let mut host = connect_by(&server, &options);
        for queue in &mut host.queues {
            for round in 0..10_u64 {
                let writes: Vec<_> = (0..63)
                    .map(|n| {
                        let count = if n % 7 == 0 { 32 } else { 4 };
                        let data = pattern(count as usize * 512, n);
                        let at = blocks(n as u64 * 32, count);
                        queue.prepare(&commands::write(at, 0), &data).unwrap()
                    })
                    .collect();
                for slot in writes {
                    queue.wait(slot).unwrap().expect_success();
                }
                let reads: Vec<_> = (0..63)
                    .map(|n| {
                        let at = blocks(n * 32, 4);
                        queue.prepare(&commands::read(at), &[]).unwrap()
                    })
                    .collect();
                for (n, slot) in reads.into_iter().enumerate() {
                    let read = queue.wait(slot).unwrap().expect_success();
                    assert_eq!(read.data, pattern(2048, n), "round {round}, read {n}");
                    assert_eq!(read.sq_head.is_some(), flow_control);
                }
            }
        }
    }
}

#[test]
fn sq_head_follows_the_commands_where_there_is_flow_control() {
    let server = serve();
    let options = HostOptions {
        flow_control: true,
        ..HostOptions::default()
    };
    let mut host = connect_by(&server, &options);
    // Connect was the first.
    for n in 2..100 {
        let answer = host.read(blocks(0, 1)).unwrap().expect_success();
        assert_eq!(answer.sq_head, Some(n % 32));
    }
}

#[test]
fn every_combination_of_digests_and_alignments_works() {
    let server = serve();
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        for hpda in [0, 1, 15, 31] {
            let mut options = HostOptions::default().digests(header, data);
            options.connection.hpda = hpda;
            let mut host = connect_by(&server, &options);
            let digests = host.queues[0].connection().digests();
            assert_eq!((digests.header, digests.data), (header, data));
            for (n, count) in [1, 17, 256].into_iter().enumerate() {
                let bytes = pattern(count as usize * 512, n + usize::from(hpda));
                let at = blocks(n as u64 * 1000, count);
                host.write(at, &bytes).unwrap().expect_success();
                let read = host.read(at).unwrap().expect_success();
                assert_eq!(read.data, bytes);
                assert!(!read.data_digest_error);
            }
        }
    }
}

#[test]
fn a_host_that_takes_one_r2t_at_a_time_is_asked_one_at_a_time() {
    let server = serve();
    // The host's machine ends the connection when it is asked for more.
    for max_r2t in [1, 2, 100] {
        let mut options = HostOptions::default();
        options.connection.max_r2t = max_r2t;
        let mut host = connect_by(&server, &options);
        let data = pattern(1 << 20, 9);
        host.write(blocks(0, 2048), &data).unwrap().expect_success();
        let read = host.read(blocks(0, 2048)).unwrap().expect_success();
        assert_eq!(read.data, data);
    }
}

#[test]
fn connects_of_queues_that_cannot_be_are_refused() {
    let server = serve();
    let options = HostOptions::default();
    let mut host = Host::connect_admin(server.nvme(0), &options).unwrap();
    host.enable().unwrap();
    host.ask_for_queues(2).unwrap();
    let first = host.connect_queue(1).unwrap();
    host.queues.push(first);
    let id = host.controller_id;
    let refused = |queue_id, controller_id, options: &HostOptions| {
        let (_, answer) = options
            .try_connect(server.nvme(0), queue_id, controller_id)
            .unwrap();
        assert!(
            !answer.is_success(),
            "queue {queue_id} of {controller_id:#x}"
        );
        answer.code()
    };
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    // In use, more than were asked for, of another controller, of none.
    refused(1, id, &options);
    assert_eq!(refused(3, id, &options), invalid);
    assert_eq!(refused(u16::MAX, id, &options), invalid);
    assert_eq!(refused(2, id.wrapping_add(77), &options), invalid);
    assert_eq!(refused(2, ANY_CONTROLLER, &options), invalid);
    // Of another host.
    refused(2, id, &HostOptions::numbered(2));
    // Without entries, and with more than there may be.
    let tiny = HostOptions {
        entries: 1,
        ..options.clone()
    };
    let connect = tiny.connect(2, id);
    let mut queue = options.open(server.nvme(0)).unwrap();
    let answer = queue.run(&connect.command(), &connect.data()).unwrap();
    assert!(!answer.is_success(), "a queue of one entry");
    let cap = host.property(Property::CAP).unwrap();
    let entries_max = u32::try_from(cap & 0xffff).unwrap() + 1;
    if let Ok(entries) = u16::try_from(entries_max + 1) {
        let long = HostOptions {
            entries,
            ..options.clone()
        };
        refused(2, id, &long);
    }
    // The host goes on.
    host.read(blocks(0, 1)).unwrap().expect_success();
    let second = host.connect_queue(2).unwrap();
    host.queues.push(second);
}

#[test]
fn io_queues_wait_for_the_controller_to_be_enabled() {
    let server = serve();
    let mut host = Host::connect_admin(server.nvme(0), &HostOptions::default()).unwrap();
    let (_, answer) = host
        .options
        .try_connect(server.nvme(0), 1, host.controller_id)
        .unwrap();
    assert!(!answer.is_success());
    host.enable().unwrap();
    host.connect_queue(1).unwrap();
}

#[test]
fn a_second_connect_on_a_queue_is_a_sequence_error_and_the_queue_lives() {
    let server = serve();
    let options = HostOptions::default();
    let mut host = Host::connect(server.nvme(0), &options).unwrap();
    let connect = options.connect(0, ANY_CONTROLLER);
    let answer = host.admin(&connect.command(), &connect.data()).unwrap();
    assert_eq!(answer.code(), Status::COMMAND_SEQUENCE_ERROR);
    let connect = options.connect(1, host.controller_id);
    let answer = host.io(&connect.command(), &connect.data()).unwrap();
    assert_eq!(answer.code(), Status::COMMAND_SEQUENCE_ERROR);
    host.read(blocks(0, 1)).unwrap().expect_success();
    host.property(Property::CSTS).unwrap();
}

#[test]
fn commands_and_data_that_come_in_small_pieces_are_served() {
    let server = serve();
    for digests in [false, true] {
        let options = HostOptions::default().digests(digests, digests);
        let mut host = connect_by(&server, &options);
        // TCP_NODELAY is set: a piece is a segment, more or less.
        for (piece, count) in [(1, 1), (1, 17), (7, 20), (71, 40), (73, 40), (1459, 300)] {
            host.queues[0].send_in_pieces(piece);
            let data = pattern(count as usize * 512, piece);
            let at = blocks(piece as u64 * 64, count);
            host.write(at, &data).unwrap().expect_success();
            let read = host.read(at).unwrap().expect_success();
            assert_eq!(read.data, data, "pieces of {piece}");
        }
    }
}
