//! What passes between host and server.

use std::sync::{Arc, Mutex};

use longshore_initiator::options::DigestWish;
use longshore_tests::relay::{Passed, Relay};

use super::*;

const LARGE: usize = 1 << 20;

#[test]
fn a_relay_sees_no_data_and_no_names_of_commands() {
    let scene = Scene::usual();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let relay = Relay::start(scene.server.nvme(0), move |_| {
        let record = Arc::clone(&record);
        Box::new(move |bytes: &[u8]| {
            record.lock().unwrap().extend_from_slice(bytes);
            Passed::On(bytes.to_vec())
        })
    })
    .unwrap();
    let mut attachment = attach(&url_at(relay.address()), &scene.options()).unwrap();
    let secret = b"the only copy of somebody's data";
    let data = secret.repeat(512 / secret.len() * 8);
    write(&mut attachment.queues[0], 0, &data).unwrap();
    assert!(read(&mut attachment.queues[0], 0, data.len()).unwrap() == data);
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 2 * data.len());
    // An ICReq, and the serial number in Identify, would be in the clear without TLS.
    for plain in [&secret[..], b"Longshore", &[0, 0, 0x80, 0, 0x80, 0, 0, 0]] {
        assert!(!seen.windows(plain.len()).any(|window| window == plain));
    }
}

#[test]
fn a_changed_bit_ends_the_connection_and_changes_no_data() {
    let scene = Scene::usual();
    use_it(&mut scene.attach(), 1).unwrap();
    let before = read(&mut scene.attach().queues[0], 8, 128 << 10).unwrap();
    for at in [3_000, 20_000, 70_000] {
        let relay = Relay::start(scene.server.nvme(0), move |_| {
            let mut passed = 0;
            Box::new(move |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                if let Some(byte) = bytes.get_mut(at - passed.min(at)).filter(|_| passed <= at) {
                    *byte ^= 0x10;
                }
                passed += bytes.len();
                Passed::On(bytes)
            })
        })
        .unwrap();
        // It may hit the handshake of a queue, or its traffic.
        if let Ok(mut attachment) = attach(&url_at(relay.address()), &scene.options()) {
            let queue = &mut attachment.queues[0];
            let data = vec![0xee; 128 << 10];
            let writes = (0..4).try_for_each(|_| write(queue, 1 << 15, &data));
            let reads = (0..4)
                .try_for_each(|_| read(queue, 8, 128 << 10).map(|read| assert!(read == before)));
            assert!(writes.is_err() || reads.is_err());
        }
    }
    assert!(read(&mut scene.attach().queues[0], 8, 128 << 10).unwrap() == before);
}

/// A host that does not read has the server's socket take only part of a record; what follows goes on from there.
#[test]
fn large_reads_that_are_taken_late_are_whole() {
    let scene = Scene::usual();
    let mut attachment = scene.attach();
    let queue = &mut attachment.queues[0];
    let data = pattern(LARGE, 9);
    for place in 0..16 {
        write(queue, place * 2048, &data).unwrap();
    }
    for round in 0..3 {
        for place in 0..32 {
            submit_read(queue, place % 16 * 2048, LARGE, place).unwrap();
        }
        while queue.has_unsent() {
            queue.send().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50 * round));
        for completion in serve(queue, 32).unwrap() {
            completion.result.unwrap();
            assert!(completion.data.bytes()[..LARGE] == data);
        }
    }
}

#[test]
fn writes_and_reads_of_all_sizes_at_depth_are_whole() {
    let scene = Scene::usual();
    let mut options = scene.options();
    for digest in [DigestWish::default(), DigestWish::Require] {
        (options.header_digest, options.data_digest) = (digest, digest);
        let mut attachment = attach(&scene.url(), &options).unwrap();
        let queue = &mut attachment.queues[0];
        let sizes = [512, 4096, 8192, 16 << 10, 16_896, 128 << 10, LARGE];
        let places = || {
            sizes
                .iter()
                .enumerate()
                .map(|(i, size)| (i as u64 * 2048, *size))
        };
        for (lba, size) in places() {
            submit_write(queue, lba, &pattern(size, size / 512), lba).unwrap();
        }
        for completion in serve(queue, sizes.len()).unwrap() {
            completion.result.unwrap();
        }
        for (lba, size) in places() {
            submit_read(queue, lba, size, size as u64).unwrap();
        }
        for completion in serve(queue, sizes.len()).unwrap() {
            completion.result.unwrap();
            let size = usize::try_from(completion.tag).unwrap();
            assert!(completion.data.bytes()[..size] == pattern(size, size / 512));
        }
    }
}

#[test]
fn a_volume_of_another_server_comes_over_tls() {
    let scene = Scene::usual();
    let volume = format!(
        "far,backend=nvme-tcp,url={},host-nqn={HOST},tls-key-file={}",
        scene.url(),
        scene.key_file.display()
    );
    let near = ServerBuilder::new().volume(&volume).nvme().start().unwrap();
    let url: Url = format!(
        "nvme+tcp://{}/{}/1",
        near.nvme(0),
        longshore_tests::nvme::SUBSYSTEM
    )
    .parse()
    .unwrap();
    let mut attachment = attach(&url, &Options::default()).unwrap();
    use_it(&mut attachment, 4).unwrap();
    let data = read(&mut scene.attach().queues[0], 8, 128 << 10).unwrap();
    assert!(data == pattern(128 << 10, 4));
}
