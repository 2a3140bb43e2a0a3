//! Limits of volumes, as their clients see them.

use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

/// Operations of each client.
const EACH: u32 = 20;

fn report(server: &Server, scratch: &Scratch) -> serde_json::Value {
    let path = scratch.join("report.json");
    let _ = std::fs::remove_file(&path);
    longshore_tests::server::signal(server.pid(), "USR1").unwrap();
    loop {
        // The server writes it beside, and renames it.
        if let Ok(text) = std::fs::read_to_string(&path) {
            return serde_json::from_str(&text).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn clients_of_both_protocols_share_the_limits_of_a_volume() {
    let scratch = Scratch::new("limits");
    let server = ServerBuilder::new()
        .iscsi()
        .nvme()
        .config(
            "[[volume]]\nname = \"limited\"\nbackend = \"mem\"\nsize = \"1M\"\n\
             max-iops = 100\nburst = 0\n\
             [[volume]]\nname = \"free\"\nbackend = \"mem\"\nsize = \"1M\"\n",
        )
        .argument("--statistics")
        .argument(&scratch.join("report.json").display().to_string())
        .start()
        .unwrap();
    let mut scsi = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    scsi.become_ready(1).unwrap();
    let mut nvme = Host::connect(server.nvme(0), &HostOptions::default()).unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..EACH {
                let read = scsi.command(0, &cdb::read_16(0, 1), Data::In(512)).unwrap();
                assert!(read.is_good());
            }
        });
        scope.spawn(|| {
            for _ in 0..EACH {
                nvme.write(blocks(8, 1), &[1; 512])
                    .unwrap()
                    .expect_success();
            }
        });
    });
    // The first begins at once, and each of the others 10 ms after the one before: never sooner.
    let least = Duration::from_millis(10) * (2 * EACH - 1);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    for _ in 0..1000 {
        let read = scsi.command(1, &cdb::read_16(0, 1), Data::In(512)).unwrap();
        assert!(read.is_good());
    }
    let report = report(&server, &scratch);
    let limited = &report["volumes"][0];
    assert_eq!(limited["limits"]["iops"], 100);
    assert!(limited["delayed"].as_u64().unwrap() > 0);
    assert!(limited["delayed_ns"].as_u64().unwrap() > 0);
    let free = &report["volumes"][1];
    assert_eq!(free["limits"]["iops"], serde_json::Value::Null);
    assert_eq!(free["delayed"], 0);
    assert_eq!(free["reads"], 1000);
}

#[test]
fn bytes_of_one_way_are_limited() {
    let server = ServerBuilder::new()
        .volume("slow,backend=mem,size=16M,max-write-bytes=64K,burst=0")
        .iscsi()
        .start()
        .unwrap();
    let mut scsi = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let began = Instant::now();
    let data = vec![7; 64 << 10];
    let write = cdb::write_16(0, 128, false);
    assert!(scsi.command(0, &write, Data::Out(&data)).unwrap().is_good());
    // Reads are not limited.
    for _ in 0..100 {
        let read = scsi.command(0, &cdb::read_16(0, 128), Data::In(64 << 10));
        assert_eq!(read.unwrap().data, data);
    }
    // This one waits until a second after the first began.
    assert!(scsi.command(0, &write, Data::Out(&data)).unwrap().is_good());
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}
