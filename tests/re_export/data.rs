//! What is written through A lies on B.

use std::thread;
use std::time::{Duration, Instant};

use longshore_initiator::volume::block_on;
use longshore_tests::scratch::Scratch;

use crate::rig::{BOTH, Client, ENGINES, over, pattern, serving};

const SIZE: u64 = 8 << 20;

#[test]
fn what_is_written_through_a_is_on_b_and_the_other_way_round() {
    for (engine, (behind, in_front)) in ENGINES.into_iter().flat_map(|engine| {
        BOTH.map(|behind| BOTH.map(|front| (behind, front)))
            .concat()
            .into_iter()
            .map(move |pair| (engine, pair))
    }) {
        let b = serving(&format!("m,backend=mem,size={SIZE}"))
            .start()
            .unwrap();
        let a = over(&b, behind, "")
            .argument("--engine")
            .argument(engine)
            .start()
            .unwrap();
        let (client, direct) = (Client::new(&a, in_front), Client::new(&b, in_front));
        assert_eq!(client.size(), SIZE);
        for (offset, length, fua) in [
            (0, 512, false),
            (4096, 8192, true),
            (1 << 20, 3 << 20, false),
            (SIZE - 1024, 1024, true),
        ] {
            let bytes = pattern(offset, length, 1);
            client.write(offset, &bytes, fua).unwrap();
            assert!(
                client.read(offset, length).unwrap() == bytes,
                "{engine} {behind:?} {in_front:?}"
            );
            assert!(
                direct.read(offset, length).unwrap() == bytes,
                "{engine} {behind:?} {in_front:?}"
            );
            let bytes = pattern(offset, length, 2);
            direct.write(offset, &bytes, fua).unwrap();
            assert!(
                client.read(offset, length).unwrap() == bytes,
                "{engine} {behind:?} {in_front:?}"
            );
        }
        client.flush().unwrap();
    }
}

#[test]
fn zeroing_unmapping_and_extents_reach_the_remote_volume() {
    for behind in BOTH {
        for in_front in BOTH {
            let scratch = Scratch::new("re-export");
            let path = scratch.join("disk");
            let file = format!("f,backend=file,path={},size={SIZE}", path.display());
            let b = serving(&file).start().unwrap();
            let a = over(&b, behind, "").start().unwrap();
            let client = Client::new(&a, in_front);
            let all = usize::try_from(SIZE).unwrap();
            client.write(0, &pattern(0, all, 1), false).unwrap();
            let info = client.0.info();
            assert!(info.unmap && info.write_cache, "{info:?}");
            block_on(client.0.write_zeroes(1 << 20, 1 << 20, false, true)).unwrap();
            block_on(client.0.unmap(4 << 20, 2 << 20)).unwrap();
            client.flush().unwrap();
            let mut expected = pattern(0, all, 1);
            expected[1 << 20..2 << 20].fill(0);
            expected[4 << 20..6 << 20].fill(0);
            assert!(client.read(0, all).unwrap() == expected);
            assert!(
                std::fs::read(&path).unwrap() == expected,
                "it is in the file of B"
            );
            if info.extent_status && b_tells_extents(&b, behind) {
                let run = block_on(client.0.extent_status(4 << 20, 4 << 20)).unwrap();
                assert_eq!(run.bytes, 2 << 20);
            }
        }
    }
}

fn b_tells_extents(b: &longshore_tests::server::Server, protocol: crate::rig::Protocol) -> bool {
    Client::new(b, protocol).0.info().extent_status
}

#[test]
fn blocks_are_those_of_the_remote_volume() {
    for behind in BOTH {
        let b = serving(&format!("m,backend=mem,size={SIZE},block-size=4096"))
            .start()
            .unwrap();
        let a = over(&b, behind, "").start().unwrap();
        for in_front in BOTH {
            assert_eq!(Client::new(&a, in_front).0.info().block_size, 4096);
        }
        let (status, log) = over(&b, behind, ",block-size=512")
            .start_and_fail()
            .unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(log.contains("has blocks of 4096 bytes, not 512"), "{log}");
    }
}

#[test]
fn the_volume_keeps_its_identity_over_a_restart_of_a() {
    let b = serving(&format!("m,backend=mem,size={SIZE}"))
        .start()
        .unwrap();
    for behind in BOTH {
        let names = |a: &longshore_tests::server::Server| {
            Client::new(a, behind).0.info().identifiers.clone()
        };
        let a = over(&b, behind, "").start().unwrap();
        let before = names(&a);
        drop(a);
        let a = over(&b, behind, "").start().unwrap();
        assert_eq!(names(&a), before);
        assert_ne!(before, names(&b), "A's volume is not mistaken for B's");
    }
}

#[test]
fn a_remote_volume_that_grew_is_taken_up_at_sighup() {
    for behind in BOTH {
        let scratch = Scratch::new("re-export");
        let path = scratch.join("disk");
        let file = format!("f,backend=file,path={},size={SIZE}", path.display());
        let b = serving(&file).start().unwrap();
        let a = over(&b, behind, "").start().unwrap();
        let client = Client::new(&a, behind);
        client.write(0, &pattern(0, 4096, 1), false).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(2 * SIZE).unwrap();
        b.reload().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Client::new(&a, behind).size() != 2 * SIZE {
            assert!(Instant::now() < deadline, "{behind:?}: {}", a.log());
            // What brings the news over iSCSI is a command.
            client.read(0, 4096).unwrap();
            thread::sleep(Duration::from_millis(200));
            a.reload().unwrap();
        }
        let client = Client::new(&a, behind);
        let bytes = pattern(2 * SIZE - 4096, 4096, 2);
        client.write(2 * SIZE - 4096, &bytes, true).unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(&bytes));
    }
}
