//! What hosts see when the server stops, dies or comes back.

use std::time::{Duration, Instant};

use longshore_nvme::host::commands::{self, FORCE_UNIT_ACCESS};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use crate::{ONE, blocks, connect, pattern};

const SOON: Duration = Duration::from_secs(15);

fn serve(scratch: &Scratch) -> Server {
    builder(scratch).start().unwrap()
}

fn builder(scratch: &Scratch) -> ServerBuilder {
    let disk = scratch.join("disk0.img");
    ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},size=64M",
            disk.display()
        ))
        .nvme()
}

#[test]
fn a_server_that_stops_ends_in_order_with_hosts_connected() {
    let scratch = Scratch::new("nvme-stop");
    let server = builder(&scratch)
        .config("[limits]\ndrain-timeout = \"60s\"\n")
        .start()
        .unwrap();
    let mut idle = connect(&server);
    let mut busy = connect(&server);
    let data = pattern(1 << 20, 1);
    let queue = &mut busy.queues[0];
    let writes: Vec<_> = (0..16)
        .map(|n| {
            let write = commands::write(blocks(n * 2048, 2048), 0);
            queue.start(&write, &data).unwrap()
        })
        .collect();
    let stopping = std::thread::spawn(move || {
        let started = Instant::now();
        (server.stop(Duration::from_secs(90)), started.elapsed())
    });
    // What is answered is answered well; then the connections end.
    let done = writes
        .into_iter()
        .filter_map(|slot| queue.wait(slot).ok())
        .map(longshore_tests::nvme::Answer::expect_success)
        .count();
    assert!(queue.is_closed_within(SOON).unwrap());
    assert!(idle.admin.is_closed_within(SOON).unwrap());
    drop((busy, idle));
    let (status, took) = stopping.join().unwrap();
    assert!(status.unwrap().success());
    println!("{done} of 16 writes were answered, stopped after {took:.1?}");
    assert!(
        took < Duration::from_secs(15),
        "the server waited for something that cannot come"
    );

    let server = serve(&scratch);
    let mut host = connect(&server);
    for n in 0..u64::try_from(done).unwrap() {
        let read = host.read(blocks(n * 2048, 2048)).unwrap();
        assert_eq!(read.expect_success().data, data, "write {n} was answered");
    }
}

#[test]
fn what_was_flushed_or_forced_is_there_after_the_server_was_killed() {
    let scratch = Scratch::new("nvme-kill");
    let server = serve(&scratch);
    let mut host = connect(&server);
    let data = pattern(8192, 2);
    host.write(blocks(0, 16), &data).unwrap().expect_success();
    host.io(&commands::flush(ONE), &[])
        .unwrap()
        .expect_success();
    let forced = commands::write(blocks(100, 16), FORCE_UNIT_ACCESS);
    host.io(&forced, &data).unwrap().expect_success();
    server.kill().unwrap();
    assert!(host.queues[0].is_closed_within(SOON).unwrap());

    let server = serve(&scratch);
    let mut host = connect(&server);
    for lba in [0, 100] {
        let read = host.read(blocks(lba, 16)).unwrap().expect_success();
        assert_eq!(read.data, data);
    }
}

#[test]
fn a_namespace_has_the_same_names_after_a_restart() {
    let scratch = Scratch::new("nvme-names");
    let names = || {
        let server = serve(&scratch);
        let mut host = Host::connect(server.nvme(0), &HostOptions::default()).unwrap();
        let controller = host.identify(0x01, 0).unwrap();
        let serial = controller[4..24].to_vec();
        let subsystem = controller[768..1024].to_vec();
        let nguid = host.identify(0x00, 1).unwrap()[104..120].to_vec();
        let descriptors = host.identify(0x03, 1).unwrap();
        (serial, subsystem, nguid, descriptors)
    };
    assert_eq!(names(), names());
}
