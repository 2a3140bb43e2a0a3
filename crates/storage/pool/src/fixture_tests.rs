//! Drives as earlier versions left them: they open for ever.

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Extent, Operation, Request, VolumeSpec};

use crate::open::{create_on, open_on};
use crate::place::Codec;
use crate::testing::{Disks, Rig};
use crate::{NewVolume, POOL, Pool};

const DRIVE: usize = 20 << 20;

/// Pages of a drive, compressed: see [`Disks::to_pages`]. The pool was killed; records lie behind its checkpoint.
const VERSION_1: &[u8] = include_bytes!("../fixtures/version-1.lz4");

fn page(number: u8) -> Vec<u8> {
    let byte = |at: u32| {
        if at % 8 < 6 {
            number
        } else {
            at.to_le_bytes()[0] ^ number
        }
    };
    (0..4096).map(byte).collect()
}

fn request(first: u64, pages: u64, is_write: bool) -> Request {
    let extent = Extent::new(first * 8, pages * 8);
    let mut request = Request::new(if is_write {
        Operation::Write { extent, fua: false }
    } else {
        Operation::Read { extent }
    });
    request.end = usize::try_from(pages * 4096).expect("small");
    request.buffer = Some(Buffer::allocate(request.end));
    request
}

fn write(rig: &mut Rig, pool: &Arc<Pool>, name: &str, first: u64, numbers: std::ops::Range<u8>) {
    let volume = pool
        .open_volume(&VolumeSpec::new(name, POOL))
        .expect("a volume");
    let bytes: Vec<u8> = numbers.flat_map(page).collect();
    let mut request = request(first, bytes.len() as u64 / 4096, true);
    request.payload_mut().copy_from_slice(&bytes);
    let ended = rig.run(|io| volume.execute(request, io)).expect("power");
    ended.result.expect("a write");
}

/// What a fixture is made by.
fn history() -> Disks {
    let mut rig = Rig::new(Disks::new(&[DRIVE], 1));
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { create_on(&io, "fixture", drives).await });
    let pool = pool.expect("power").expect("a pool");
    for (name, codec) in [("raw", Codec::Raw), ("packed", Codec::Lz4)] {
        let new = NewVolume {
            name: name.into(),
            size: 1 << 20,
            block_size: 512,
            codec,
            quota: None,
            id: None,
        };
        let pool = pool.clone();
        let made = rig.run(|io| async move { pool.create_volume(&io, new).await });
        made.expect("power").expect("a volume");
    }
    write(&mut rig, &pool, "raw", 0, 1..9);
    write(&mut rig, &pool, "packed", 3, 10..20);
    let of = pool.clone();
    let made = rig.run(|io| async move {
        let both = ["raw".to_owned(), "packed".to_owned()];
        of.snapshot(&io, "monday", &both).await?;
        crate::clean::checkpoint_now(&of, &io).await
    });
    made.expect("power").expect("a snapshot and a checkpoint");
    write(&mut rig, &pool, "raw", 4, 30..34);
    write(&mut rig, &pool, "packed", 0, 40..44);
    rig.into_disks()
}

fn check(disks: Disks) {
    let mut rig = Rig::new(disks);
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { open_on(&io, drives, false).await });
    let pool = pool.expect("power").expect("the pool opens");
    assert_eq!(pool.name(), "fixture");
    let mut expect = |name: &str, first: u64, numbers: &[u8]| {
        let volume = pool
            .open_volume(&VolumeSpec::new(name, POOL))
            .expect("a volume");
        let request = request(first, numbers.len() as u64, false);
        let ended = rig.run(|io| volume.execute(request, io)).expect("power");
        ended.result.expect("a read");
        let buffer = ended.buffer.expect("given back");
        for (number, found) in numbers.iter().zip(buffer.chunks(4096)) {
            let expected = if *number == 0 {
                vec![0; 4096]
            } else {
                page(*number)
            };
            assert!(found == expected, "{name}, page {number}");
        }
    };
    expect("raw", 0, &[1, 2, 3, 4, 30, 31, 32, 33, 0]);
    expect("raw@monday", 0, &[1, 2, 3, 4, 5, 6, 7, 8, 0]);
    expect(
        "packed",
        0,
        &[40, 41, 42, 43, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0],
    );
    expect(
        "packed@monday",
        0,
        &[0, 0, 0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0],
    );
}

#[test]
fn drives_of_version_1_open() {
    let pages = lz4_flex::decompress_size_prepended(VERSION_1).expect("a fixture");
    check(Disks::of_pages(DRIVE, &pages, 1));
}

/// The same for what this version writes. With `LONGSHORE_FIXTURE` set, that is kept in the file of this name.
#[test]
fn drives_of_this_version_open() {
    let disks = history();
    if let Ok(path) = std::env::var("LONGSHORE_FIXTURE") {
        let packed = lz4_flex::compress_prepend_size(&disks.to_pages());
        std::fs::write(path, packed).expect("written");
    }
    check(disks.kill(1));
}
