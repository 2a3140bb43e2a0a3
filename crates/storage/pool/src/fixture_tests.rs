//! Drives as earlier versions left them: they open for ever.

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Extent, Operation, Request, VolumeSpec};

use crate::format::short;
use crate::hand_out_tests::records_of_hand_outs;
use crate::open::{Opening, create_on, open_on};
use crate::place::Codec;
use crate::testing::{Disks, Planted, Rig, plant};
use crate::{NewVolume, POOL, Pool, VolumeSettings};

const DRIVE: usize = 20 << 20;

/// Of one that has enough segments to be nearly full.
const LARGE_DRIVE: usize = 26 << 20;

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

/// As before, with the incompatible features 1 and 2: zstd, settings that changed, reserved space. All of it is in
/// records behind the checkpoint, and some of it in the checkpoint.
const ZSTD_AND_SETTINGS: &[u8] = include_bytes!("../fixtures/zstd-and-settings.lz4");

/// Side 0 of a mirror with the same in it, which has the incompatible feature 3.
const MIRROR: &[u8] = include_bytes!("../fixtures/mirror.lz4");

/// The drive of a pool whose leaves lie in segments of their own.
const LEAVES: &[u8] = include_bytes!("../fixtures/leaves.lz4");

/// The drive of a pool that is nearly full, whose segments were handed out by records behind its checkpoint.
const HAND_OUTS: &[u8] = include_bytes!("../fixtures/hand-outs.zst");

/// What a fixture is made by.
fn history(is_mirrored: bool) -> Disks {
    let sides = 1 + usize::from(is_mirrored);
    let mut rig = Rig::new(Disks::new(&[DRIVE; 2][..sides], 1));
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { create_on(&io, "fixture", drives, is_mirrored).await });
    let pool = pool.expect("power").expect("a pool");
    for (name, codec) in [("raw", Codec::Raw), ("packed", Codec::Lz4)] {
        let new = NewVolume {
            name: name.into(),
            size: 1 << 20,
            block_size: 512,
            codec,
            quota: None,
            reserve: 0,
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

/// A volume begins with these pages; 0 is one of zeros.
fn expect_pages(rig: &mut Rig, pool: &Arc<Pool>, name: &str, numbers: &[u8]) {
    let volume = pool
        .open_volume(&VolumeSpec::new(name, POOL))
        .expect("a volume");
    let request = request(0, numbers.len() as u64, false);
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
}

fn check(disks: Disks, how: Opening) {
    let mut rig = Rig::new(disks);
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { open_on(&io, drives, how).await });
    let pool = pool.expect("power").expect("the pool opens");
    assert_eq!(pool.name(), "fixture");
    let mut expect = |name: &str, numbers: &[u8]| expect_pages(&mut rig, &pool, name, numbers);
    expect("raw", &[1, 2, 3, 4, 30, 31, 32, 33, 0]);
    expect("raw@monday", &[1, 2, 3, 4, 5, 6, 7, 8, 0]);
    expect(
        "packed",
        &[40, 41, 42, 43, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0],
    );
    expect(
        "packed@monday",
        &[0, 0, 0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0],
    );
}

/// The drives of a file.
fn stored(file: &[u8]) -> Disks {
    let pages = lz4_flex::decompress_size_prepended(file).expect("a fixture");
    Disks::of_pages(DRIVE, &pages, 1)
}

/// The same of a file that LZ4 would leave too large.
fn stored_small(file: &[u8]) -> Disks {
    let bytes = zstd_safe::get_frame_content_size(file).expect("a frame");
    let mut pages = vec![0; short(bytes.expect("with its size"))];
    zstd_safe::decompress(&mut pages[..], file).expect("a fixture");
    Disks::of_pages(LARGE_DRIVE, &pages, 1)
}

/// Keeps what `pack` makes of drives in the file that a variable names, if it is set.
fn keep(disks: &Disks, variable: &str, pack: impl FnOnce(&[u8]) -> Vec<u8>) {
    if let Ok(path) = std::env::var(variable) {
        std::fs::write(path, pack(&disks.to_pages())).expect("written");
    }
}

/// As [`stored_small`] takes it.
fn pack_small(pages: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(pages.len())];
    let length = zstd_safe::compress(&mut packed[..], pages, 19).expect("compressed");
    packed.truncate(length);
    packed
}

#[test]
fn drives_of_version_1_open() {
    check(stored(VERSION_1), Opening::default());
}

#[test]
fn drives_with_leaves_open() {
    check(stored(LEAVES), Opening::default());
}

/// The same for what this version writes. With `LONGSHORE_FIXTURE` set, that is kept in the file of this name.
#[test]
fn drives_of_this_version_open() {
    let disks = history(false);
    keep(&disks, "LONGSHORE_FIXTURE", lz4_flex::compress_prepend_size);
    check(disks.kill(1), Opening::default());
}

/// A pool opens without the other side, when that is asked for.
const WITHOUT: Opening = Opening {
    is_read_only: false,
    is_degraded: true,
    unopened: 0,
};

#[test]
fn a_side_of_a_mirror_opens() {
    check(stored(MIRROR), WITHOUT);
}

/// The same for what this version writes. With `LONGSHORE_MIRROR_FIXTURE` set, side 0 is kept in the file of this name.
#[test]
fn mirrors_of_this_version_open() {
    let disks = history(true);
    keep(
        &disks,
        "LONGSHORE_MIRROR_FIXTURE",
        lz4_flex::compress_prepend_size,
    );
    check(disks.kill(1), Opening::default());
}

/// What the fixture with zstd and settings is made by.
fn history_with_settings() -> Disks {
    let mut rig = Rig::new(Disks::new(&[DRIVE], 1));
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { create_on(&io, "fixture", drives, false).await });
    let pool = pool.expect("power").expect("a pool");
    let make = |rig: &mut Rig, name: &str, codec, reserve| {
        let new = NewVolume {
            name: name.into(),
            size: 1 << 20,
            block_size: 512,
            codec,
            quota: None,
            reserve,
            id: None,
        };
        let pool = pool.clone();
        let made = rig.run(|io| async move { pool.create_volume(&io, new).await });
        made.expect("power").expect("a volume");
    };
    let set = |rig: &mut Rig, name: &'static str, settings| {
        let pool = pool.clone();
        let set = rig.run(|io| async move { pool.set(&io, name, settings).await });
        set.expect("power").expect("set");
    };
    make(&mut rig, "packed", Codec::Zstd, 0);
    make(&mut rig, "kept", Codec::Raw, crate::RESERVE_FULL);
    write(&mut rig, &pool, "packed", 3, 10..20);
    write(&mut rig, &pool, "kept", 0, 1..9);
    let of = pool.clone();
    let made = rig.run(|io| async move { crate::clean::checkpoint_now(&of, &io).await });
    made.expect("power").expect("a checkpoint");
    make(&mut rig, "later", Codec::Lz4, 5 << 16);
    let settings = VolumeSettings {
        codec: Some(Codec::Zstd),
        quota: Some(1 << 24),
        reserve: Some(1 << 16),
    };
    set(&mut rig, "kept", settings);
    write(&mut rig, &pool, "kept", 4, 30..34);
    write(&mut rig, &pool, "packed", 0, 40..44);
    rig.into_disks()
}

fn check_settings(disks: Disks) {
    let mut rig = Rig::new(disks);
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
    let pool = pool.expect("power").expect("the pool opens");
    let volumes = pool.volumes().into_iter();
    let found: Vec<_> = volumes
        .map(|it| (it.name, it.codec, it.quota, it.reserve.map(|it| it.bytes)))
        .collect();
    let expected = [
        ("kept".into(), Codec::Zstd, Some(1 << 24), Some(1 << 16)),
        ("later".into(), Codec::Lz4, None, Some(5 << 16)),
        ("packed".into(), Codec::Zstd, None, None),
    ];
    assert_eq!(found, expected);
    expect_pages(&mut rig, &pool, "kept", &[1, 2, 3, 4, 30, 31, 32, 33, 0]);
    expect_pages(
        &mut rig,
        &pool,
        "packed",
        &[40, 41, 42, 43, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0],
    );
}

#[test]
fn drives_with_zstd_and_settings_open() {
    check_settings(stored(ZSTD_AND_SETTINGS));
}

/// The same for what this version writes. With `LONGSHORE_SETTINGS_FIXTURE` set, that is kept in the file of this name.
#[test]
fn drives_with_zstd_and_settings_of_this_version_open() {
    let disks = history_with_settings();
    keep(
        &disks,
        "LONGSHORE_SETTINGS_FIXTURE",
        lz4_flex::compress_prepend_size,
    );
    check_settings(disks.kill(1));
}

/// Pages of the volume that nearly fills a pool, and those that a step of its history writes.
const FULL_PAGES: u64 = 2304;
const STEP_PAGES: u64 = 16;

/// Steps of the history that the fixture is of.
const STEPS: u64 = 900;

/// The first page that a step writes, and the number of the first.
fn step(number: u64) -> (u64, u8) {
    let places = FULL_PAGES / STEP_PAGES;
    // At first all of the volume, then one place after another, in an order that leaves no segment dead as a whole.
    let place = if number < places {
        number
    } else {
        number * 61 % places
    };
    let first = u8::try_from(number % 7).expect("a byte");
    (place * STEP_PAGES, 1 + first)
}

/// Writes until records behind the checkpoint hand out segments, and tells in how many steps.
fn history_of_hand_outs() -> (Disks, u64) {
    let mut rig = Rig::new(Disks::new(&[LARGE_DRIVE], 1));
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { create_on(&io, "fixture", drives, false).await });
    let pool = pool.expect("power").expect("a pool");
    let new = NewVolume {
        name: "full".into(),
        size: FULL_PAGES * 4096,
        block_size: 512,
        codec: Codec::Raw,
        quota: None,
        reserve: 0,
        id: None,
    };
    let of = pool.clone();
    let made = rig.run(|io| async move { of.create_volume(&io, new).await });
    made.expect("power").expect("a volume");
    for number in 0..4 * STEPS {
        let (page, first) = step(number);
        write(&mut rig, &pool, "full", page, first..first + 16);
        let last = pool.newest_record();
        let hands_out = || {
            let found = records_of_hand_outs(rig.disks.contents(0));
            found.iter().any(|(number, _)| *number > last)
        };
        if number >= STEPS && number.is_multiple_of(8) && hands_out() {
            return (rig.into_disks(), number + 1);
        }
    }
    panic!("no record behind a checkpoint hands out segments");
}

fn check_hand_outs(disks: Disks, steps: u64) {
    let mut rig = Rig::new(disks);
    let drives = rig.disks.drives();
    let pool = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
    let pool = pool.expect("power").expect("the pool opens");
    let mut numbers = vec![0; usize::try_from(FULL_PAGES).expect("small")];
    for number in 0..steps {
        let (page, first) = step(number);
        for (at, number) in (page..page + STEP_PAGES).zip(first..) {
            numbers[usize::try_from(at).expect("small")] = number;
        }
    }
    expect_pages(&mut rig, &pool, "full", &numbers);
}

#[test]
fn drives_whose_records_hand_out_segments_open() {
    check_hand_outs(stored_small(HAND_OUTS), STEPS);
    // There are records in those segments.
    plant(Some(Planted::ForgetsHandOuts));
    let result = std::panic::catch_unwind(|| check_hand_outs(stored_small(HAND_OUTS), STEPS));
    plant(None);
    assert!(result.is_err(), "what the records handed out is needed");
}

/// The same for what this version writes. With `LONGSHORE_HAND_OUTS_FIXTURE` set, that is kept in the file of this name.
#[test]
fn drives_of_this_version_whose_records_hand_out_segments_open() {
    let (disks, steps) = history_of_hand_outs();
    keep(&disks, "LONGSHORE_HAND_OUTS_FIXTURE", pack_small);
    check_hand_outs(disks.kill(1), steps);
}
