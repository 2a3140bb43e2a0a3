//! The server as an ordinary user, with the memory such a user may lock.
//!
//! io_uring charges its rings to RLIMIT_MEMLOCK, of which root is exempt: tests that run as root
//! hide what users meet. Where this test does not run as root it is an ordinary user already.

use std::os::unix::fs::PermissionsExt;

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::Blocks;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::ServerBuilder;

/// Does some I/O with a server of an ordinary user, and gives its log.
fn serve_with(lockable_bytes: u64, engine: &str) -> String {
    let scratch = Scratch::new("ordinary-user");
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let image = scratch.join("disk0.img");
    let server = ServerBuilder::new()
        .as_ordinary_user(lockable_bytes)
        .volume(&format!(
            "disk0,backend=file,path={},size=16M",
            image.display()
        ))
        .volume("disk1,backend=mem,size=16M")
        .iscsi()
        .nvme()
        .argument("--engine")
        .argument(engine)
        .start()
        .unwrap();
    let mut peers: Vec<Initiator> = (1..=20)
        .map(|isid| Initiator::ready(server.portal(0), &Login::numbered(isid)).unwrap())
        .collect();
    for (peer, lba) in peers.iter_mut().zip((0..).step_by(512)) {
        for lun in [0, 1] {
            let data = vec![0x5a; 262_144];
            let write = peer.command(lun, &cdb::write_16(lba, 512, lba == 0), Data::Out(&data));
            let write = write.unwrap();
            assert!(
                write.is_good() || write.sense_code().map(|c| c.0) == Some(6),
                "{write:?}"
            );
            let write = peer.command(lun, &cdb::write_16(lba, 512, false), Data::Out(&data));
            assert!(write.unwrap().is_good());
            let read = peer
                .command(lun, &cdb::read_16(lba, 512), Data::In(262_144))
                .unwrap();
            assert!(read.is_good());
            assert_eq!(read.data, data);
        }
    }
    let mut hosts: Vec<Host> = (1..=10)
        .map(|number| Host::connect(server.nvme(0), &HostOptions::numbered(number)).unwrap())
        .collect();
    for (host, lba) in hosts.iter_mut().zip((0..).step_by(512)) {
        for namespace in [1, 2] {
            let blocks = Blocks {
                namespace: NamespaceId(namespace),
                lba: Lba(lba),
                count: 512,
                block_bytes: 512,
            };
            let data = vec![0xa5; 262_144];
            host.write(blocks, &data).unwrap().expect_success();
            let read = host.read(blocks).unwrap().expect_success();
            assert_eq!(read.data, data);
        }
    }
    let log = server.log();
    server.stop(std::time::Duration::from_secs(15)).unwrap();
    log
}

#[test]
fn the_default_limit_of_8_mib_is_enough() {
    serve_with(8 << 20, "auto");
}

#[test]
fn a_limit_of_64_kib_is_survived_with_one_clear_line() {
    let log = serve_with(64 << 10, "auto");
    let about_the_engine: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("io_uring"))
        .collect();
    assert_eq!(about_the_engine.len(), 1, "{log}");
    assert!(about_the_engine[0].contains("RLIMIT_MEMLOCK"), "{log}");
}

#[test]
fn epoll_needs_no_locked_memory() {
    serve_with(0, "epoll");
}
