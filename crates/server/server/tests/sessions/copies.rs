//! Data that is sent by reference: that it is, and that it is right.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use longshore_reactor::{EngineChoice, PagePipe};
use longshore_server::config::{ByReference, Copies};
use longshore_tests::initiator::{Data, Initiator, cdb};
use longshore_tests::pdu::opcode;
use longshore_tests::scratch::Scratch;
use longshore_volume::{BackendName, Volume, VolumeSpec};

use crate::scene::{CHECK_CONDITION, ENGINES, Scene, config};

const LENGTH: usize = 4 << 20;

/// No two blocks alike.
fn pattern() -> Vec<u8> {
    (0..LENGTH)
        .map(|i| u8::try_from((i * 7 + (i >> 9) * 13) % 251).unwrap())
        .collect()
}

fn file_volume(scratch: &Scratch, read_only: bool) -> (Arc<dyn Volume>, std::path::PathBuf) {
    let path = scratch.path().join("data");
    std::fs::write(&path, pattern()).unwrap();
    let mut spec = VolumeSpec::new("d", BackendName::FILE);
    spec.path = Some(path.clone());
    spec.read_only = read_only;
    (longshore_volume::open(&spec).unwrap(), path)
}

fn scene(volume: Arc<dyn Volume>, engine: EngineChoice, copies: Copies) -> Scene {
    let mut config = config(vec![volume], engine);
    config.copies = copies;
    Scene::new(config)
}

fn splicing(splice: ByReference) -> Copies {
    Copies {
        splice,
        ..Copies::default()
    }
}

fn blocks(bytes: usize) -> u32 {
    u32::try_from(bytes / 512).unwrap()
}

fn read(host: &mut Initiator, offset: usize, length: usize) -> Vec<u8> {
    let cdb = cdb::read_16(u64::from(blocks(offset)), blocks(length));
    let data = Data::In(u32::try_from(length).unwrap());
    let answer = host.command(0, &cdb, data).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    answer.data
}

/// Pages were sent by reference, unless the kernel cannot: cachestat(2) came with Linux 6.5, and sandboxes may
/// refuse it.
fn assert_spliced(scene: &Scene, path: &Path) {
    let file = File::open(path).unwrap();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    let taken = PagePipe::new(16).and_then(|mut pipe| pipe.take(&file, 0, 4096));
    if !matches!(taken, Ok(true)) {
        eprintln!("SKIPPED: no pages can be taken out of the page cache here: {taken:?}");
        return;
    }
    let total = scene.control().statistics().total;
    assert!(total.spliced_bytes > 0, "{total:?}");
}

#[test]
fn large_reads_of_every_offset_are_right_by_reference() {
    let scratch = Scratch::new("splice");
    for engine in ENGINES {
        let (volume, path) = file_volume(&scratch, false);
        let scene = scene(volume, engine, splicing(ByReference::Always));
        let mut host = scene.host(1);
        let expected = pattern();
        for (offset, length) in [
            (0, 1 << 20),
            (512, 1 << 20),
            (512, 64 << 10),
            (3584, 128 << 10),
            (1 << 20, 32 << 10),
            (LENGTH - (33 << 10), 33 << 10),
            (0, 2 << 20),
        ] {
            let data = read(&mut host, offset, length);
            assert!(
                data == expected[offset..offset + length],
                "{offset} {length}"
            );
        }
        assert_spliced(&scene, &path);
    }
}

#[test]
fn auto_takes_pages_of_volumes_that_nobody_writes_to() {
    let scratch = Scratch::new("splice");
    for read_only in [true, false] {
        let (volume, path) = file_volume(&scratch, read_only);
        let scene = scene(volume, EngineChoice::Auto, splicing(ByReference::Auto));
        let mut host = scene.host(1);
        assert!(read(&mut host, 0, 256 << 10) == pattern()[..256 << 10]);
        if read_only {
            assert_spliced(&scene, &path);
        } else {
            let spliced = scene.control().statistics().total.spliced_bytes;
            assert_eq!(spliced, 0);
        }
    }
}

#[test]
fn a_file_cut_short_under_queued_reads_ends_no_stream() {
    let scratch = Scratch::new("splice");
    for engine in ENGINES {
        let (volume, path) = file_volume(&scratch, false);
        let scene = scene(volume, engine, splicing(ByReference::Always));
        let mut host = scene.host(1);
        // More than the sockets hold, so that some of it waits as pages.
        let mut reads = HashMap::new();
        for n in 0..16 {
            let cdb = cdb::read_16(n % 4 * 2048, 2048);
            let pdu = host.command_pdu(0, &cdb, Data::In(1 << 20));
            host.send(&pdu).unwrap();
            let start = usize::try_from(n % 4).unwrap() << 20;
            reads.insert(pdu.initiator_task_tag(), (start, 0));
        }
        thread::sleep(Duration::from_millis(50));
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let expected = pattern();
        while !reads.is_empty() {
            let pdu = host.receive().unwrap();
            host.adopt_numbers(&pdu);
            let tag = pdu.initiator_task_tag();
            if pdu.opcode() == opcode::SCSI_RESPONSE {
                assert_eq!(pdu.bhs[3], CHECK_CONDITION);
                reads.remove(&tag).expect("a read of ours");
                continue;
            }
            assert_eq!(pdu.opcode(), opcode::DATA_IN);
            let (start, received) = reads.get_mut(&tag).expect("a read of ours");
            let was = &expected[*start + *received..];
            let right = |(byte, was): (&u8, &u8)| byte == was || *byte == 0;
            assert!(pdu.data.iter().zip(was).all(right), "{start} + {received}");
            *received += pdu.data.len();
            let has_status = pdu.bhs[1] & 1 != 0;
            if has_status {
                assert_eq!(*received, 1 << 20);
                reads.remove(&tag);
            }
        }
        host.ping().unwrap();
    }
}

#[test]
fn reads_beside_a_writer_give_old_bytes_or_new_ones() {
    const ROUNDS: u8 = 60;
    let scratch = Scratch::new("splice");
    let (volume, path) = file_volume(&scratch, false);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&[0; 256 << 10], 0)
        .unwrap();
    let scene = scene(volume, EngineChoice::Auto, splicing(ByReference::Always));
    let (mut reader, mut writer) = (scene.host(1), scene.host(2));
    let writing = thread::spawn(move || {
        for value in 1..=ROUNDS {
            let data = vec![value; 256 << 10];
            let write = cdb::write_16(0, 512, false);
            assert!(
                writer
                    .command(0, &write, Data::Out(&data))
                    .unwrap()
                    .is_good()
            );
            // What was acknowledged is what a later read gets.
            assert!(read(&mut writer, 0, 256 << 10) == data, "{value}");
        }
    });
    let mut newest = 0;
    while newest < ROUNDS {
        let data = read(&mut reader, 0, 256 << 10);
        let oldest_here = *data.iter().min().unwrap();
        // No byte is older than what an earlier read has shown whole.
        assert!(oldest_here >= newest, "{oldest_here} after {newest}");
        newest = oldest_here;
    }
    writing.join().unwrap();
}
