//! Removal of what is in use.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::blocks;
use longshore_tests::pdu::opcode;
use longshore_tests::process::assert_takes_less;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{ServerBuilder, signal};
use longshore_tests::stop::StopsAtEnd;
use serde_json::json;

use crate::rig::{
    Change, DRAIN_TIMEOUT, Hand, NOT_SUPPORTED, Rig, SUBSYSTEM, TARGET, ask_scsi, login,
    scsi_write, wait_for,
};

/// Puts volume `v1` behind a target and a subsystem of its own, and `f0` stays in the default ones.
fn with_volume() -> Rig {
    let rig = Rig::start("");
    rig.make(Hand::Http, &Change::CreateTarget(TARGET));
    rig.make(Hand::Http, &Change::CreateTarget(SUBSYSTEM));
    // Sessions have something that stays: those that lose all they have end.
    let stays = json!({"backend": "mem", "size": "1M"});
    rig.make(Hand::Http, &Change::CreateVolume("v2", stays));
    rig.make(Hand::Http, &Change::Map(TARGET, "v2", 1));
    rig.make(Hand::Http, &Change::Map(SUBSYSTEM, "v2", 1));
    map(&rig);
    rig
}

fn map(rig: &Rig) {
    let keys = json!({"backend": "file", "path": rig.path("v1.img"), "size": "4M"});
    for change in [
        Change::CreateVolume("v1", keys),
        Change::Map(TARGET, "v1", 0),
        Change::Map(SUBSYSTEM, "v1", 0),
    ] {
        rig.make(Hand::Http, &change);
    }
}

#[test]
fn a_volume_under_load_goes_with_drain_alone_and_its_file_is_closed_in_time() {
    let rig = with_volume();
    let image = rig.path("v1.img");
    let stop = AtomicBool::new(false);
    let (scsi, nvme, other) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = StopsAtEnd(&stop);
        let iscsi_ended = scope.spawn(|| {
            let mut initiator = rig.initiator(TARGET, 1);
            loop {
                let cdb = cdb::write_16(scsi.load(Ordering::Relaxed) % 1024, 1, false);
                let (answer, _) = ask_scsi(&mut initiator, &cdb, Data::Out(&[1; 512]));
                if !answer.is_good() || stop.load(Ordering::Relaxed) {
                    return answer.sense_code();
                }
                scsi.fetch_add(1, Ordering::Relaxed);
            }
        });
        let nvme_ended = scope.spawn(|| {
            let mut host = rig.host(SUBSYSTEM, 1);
            loop {
                let lba = 2048 + nvme.load(Ordering::Relaxed) % 1024;
                let answer = host.write(blocks(lba, 1), &[2; 512]).unwrap();
                if !answer.is_success() || stop.load(Ordering::Relaxed) {
                    return answer.code();
                }
                nvme.fetch_add(1, Ordering::Relaxed);
            }
        });
        let neighbour = scope.spawn(|| {
            let mut initiator = rig.initiator(longshore_tests::server::TARGET, 2);
            while !stop.load(Ordering::Relaxed) {
                let (answer, _) = ask_scsi(&mut initiator, &cdb::read_16(0, 8), Data::In(4096));
                assert!(answer.is_good(), "{answer:?}");
                other.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_for("load", || {
            [&scsi, &nvme, &other]
                .iter()
                .all(|it| it.load(Ordering::Relaxed) > 50)
        });

        let refused = rig.ask("DELETE", "/api/v1/volumes/v1", None);
        assert_eq!(refused.status, 409, "{refused:?}");
        let problem = refused.json();
        assert_eq!(problem["code"], "in-use");
        let title = problem["title"].as_str().unwrap();
        assert!(title.contains("tests-1"), "{title}");
        assert!(problem["advice"].as_str().unwrap().contains("--drain"));
        assert!(rig.has_open(&image));

        rig.verb(&["volume", "remove", "v1", "--drain"]).expect(0);
        // The verb has waited: what follows holds now, not after some time.
        assert!(!rig.has_open(&image), "the file is open");
        assert_eq!(iscsi_ended.join().unwrap(), Some(NOT_SUPPORTED));
        assert_eq!(nvme_ended.join().unwrap(), Status::INVALID_FIELD);
        // Others go on.
        let now = other.load(Ordering::Relaxed);
        wait_for("the neighbour", || other.load(Ordering::Relaxed) > now + 20);
        stop.store(true, Ordering::Relaxed);
        neighbour.join().unwrap();
    });
    // Its file is free for another one.
    let keys = json!({"backend": "file", "path": image, "size": "4M"});
    rig.make(Hand::Http, &Change::CreateVolume("v3", keys));
}

#[test]
fn a_write_whose_host_is_silent_holds_a_removal_up_for_no_longer_than_the_drain_timeout() {
    let rig = with_volume();
    let image = rig.path("v1.img");
    let mut number = 0;
    assert_takes_less(DRAIN_TIMEOUT + Duration::from_secs(1), || {
        number += 1;
        if number > 1 {
            map(&rig);
        }
        let login = Login {
            initial_r2t: true,
            immediate_data: false,
            ..login(TARGET, number)
        };
        let mut silent = Initiator::log_in(rig.iscsi, &login).unwrap();
        ask_scsi(&mut silent, &cdb::TEST_UNIT_READY, Data::None);
        let write = silent.command_pdu(0, &cdb::write_16(0, 1, false), Data::Out(&[1; 512]));
        silent.send(&write).unwrap();
        assert_eq!(silent.receive().unwrap().opcode(), opcode::R2T);

        let began = Instant::now();
        let reply = rig.ask("DELETE", "/api/v1/volumes/v1?drain", None);
        assert_eq!(reply.status, 202, "{reply:?}");
        let volume = rig.get("/api/v1/volumes/v1");
        assert_eq!(volume["state"], "draining", "{volume}");
        // It is visible, and holds nothing else up.
        let other = format!("other-{number}");
        let keys = json!({"backend": "mem", "size": "1M"});
        rig.make(Hand::Http, &Change::CreateVolume(&other, keys));
        rig.wait_for_operation(&reply);
        assert!(!rig.has_open(&image), "the file is open");
        began.elapsed()
    });
}

#[test]
fn a_last_flush_that_hangs_shows_as_stuck_and_holds_neither_the_verb_nor_other_changes_up() {
    let scratch = Scratch::new("remote");
    let image = scratch.join("disk0.img").display().to_string();
    let remote = ServerBuilder::new()
        .volume(&format!("disk0,backend=file,path={image},size=4M"))
        .iscsi()
        .start()
        .unwrap();
    let url = format!(
        "iscsi://{}/{}/0",
        remote.portal(0),
        longshore_tests::server::TARGET
    );
    let port = remote.portal(0).port().to_string();
    let builder = ServerBuilder::new()
        .argument("--sandbox-port")
        .argument(&port);
    let mut rig = Rig::new(builder, "");
    rig.start_again();
    rig.make(Hand::Http, &Change::CreateTarget(TARGET));
    let keys = json!({"backend": "iscsi", "url": url});
    rig.make(Hand::Http, &Change::CreateVolume("r1", keys));
    rig.make(Hand::Http, &Change::Map(TARGET, "r1", 0));
    let mut initiator = rig.initiator(TARGET, 1);
    // In a cache of the other server, if anywhere.
    assert!(scsi_write(&mut initiator, 0, 7).is_good());
    initiator.log_out().unwrap();

    signal(remote.pid(), "STOP").unwrap();
    let ended = rig.verb(&["volume", "remove", "r1", "--drain"]).expect(1);
    let told = "the server waits for the last flush (volume r1)";
    assert!(ended.stderr.contains(told), "{ended:?}");
    let volume = rig.get("/api/v1/volumes/r1");
    assert_eq!(volume["state"], "stuck", "{volume}");
    let keys = json!({"backend": "mem", "size": "1M"});
    rig.make(Hand::Http, &Change::CreateVolume("other", keys));
    // The name is taken until then.
    let keys = json!({"backend": "mem", "size": "1M"});
    let refused = rig.change(Hand::Http, &Change::CreateVolume("r1", keys), &[]);
    assert_eq!(refused.unwrap_err().status, Some(409));

    signal(remote.pid(), "CONT").unwrap();
    wait_for("the end of the volume", || {
        rig.ask("GET", "/api/v1/volumes/r1", None).status == 404
    });
}
