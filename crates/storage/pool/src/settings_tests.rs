//! Settings of volumes: compression that changes while they are served, and reserved space.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_volume::testing::client::write_request;
use longshore_volume::testing::{TestStorage, VolumeClient};
use longshore_volume::{Extent, Volume, VolumeError, VolumeSpec};

use crate::format::superblock::{HAND_OUTS, LEAVES, SETTINGS, Superblock, ZSTD, copies};
use crate::place::Codec;
use crate::tests::Scene;
use crate::{NewVolume, POOL, Pool, PoolError, RESERVE_FULL, VolumeSettings};

const MIB: u64 = 1 << 20;

/// Features that all superblocks name.
fn features(scene: &Scene) -> u64 {
    let bytes = std::fs::read(&scene.drives(1)[0]).expect("the drive");
    let of = |at: u64| {
        let at = usize::try_from(at).expect("small");
        let found = Superblock::decode(&bytes[at..at + crate::format::superblock::LENGTH]);
        found.expect("a superblock").incompatible
    };
    let length = u64::try_from(bytes.len()).expect("small");
    let all = copies(length).concat().into_iter().map(of);
    all.reduce(|one, other| one & other).expect("four")
}

fn make(pool: &Arc<Pool>, name: &str, size: u64, reserve: u64) -> Result<(), PoolError> {
    make_with(pool, name, size, reserve, Codec::Raw)
}

fn make_with(
    pool: &Arc<Pool>,
    name: &str,
    size: u64,
    reserve: u64,
    codec: Codec,
) -> Result<(), PoolError> {
    let new = NewVolume {
        name: name.into(),
        size,
        block_size: 512,
        codec,
        quota: None,
        reserve,
        id: None,
    };
    pool.run(|pool, io| async move { pool.create_volume(&io, new).await })
}

fn set(pool: &Arc<Pool>, name: &str, settings: VolumeSettings) -> Result<(), PoolError> {
    let name = name.to_owned();
    pool.run(move |pool, io| async move { pool.set(&io, &name, settings).await })
}

fn set_codec(pool: &Arc<Pool>, name: &str, codec: Codec) {
    let settings = VolumeSettings {
        codec: Some(codec),
        ..VolumeSettings::default()
    };
    set(pool, name, settings).expect("set");
}

fn take(pool: &Arc<Pool>, name: &str) -> Arc<dyn Volume> {
    pool.open_volume(&VolumeSpec::new(name, POOL))
        .expect("a volume")
}

/// Lines that differ in numbers.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let lines = (0_u64..).map(|line| {
        format!(
            "{seed:08}: line {line} of {}\n",
            (line + 13 * seed) * 2_654_435_761 % 99_991
        )
    });
    let mut bytes: Vec<u8> = Vec::new();
    for line in lines {
        bytes.extend_from_slice(line.as_bytes());
        if bytes.len() >= length {
            bytes.truncate(length);
            return bytes;
        }
    }
    bytes
}

#[test]
fn superblocks_name_zstd_before_there_is_any() {
    let scene = Scene::new();
    let usual = LEAVES | HAND_OUTS;
    {
        let pool = scene.create(1);
        make_with(&pool, "a", MIB, 0, Codec::Lz4).expect("a volume");
        pool.close().expect("closed");
        assert_eq!(features(&scene), usual);
        make_with(&pool, "b", MIB, 0, Codec::Zstd).expect("a volume");
        assert_eq!(features(&scene), usual | ZSTD);
    }
    let pool = scene.open(1);
    assert_eq!(features(&scene), usual | ZSTD);
    set_codec(&pool, "a", Codec::Raw);
    assert_eq!(features(&scene), usual | ZSTD | SETTINGS);
    drop(pool);
    let pool = scene.open(1);
    assert_eq!(pool.volumes()[0].codec, Codec::Raw);
    assert_eq!(pool.volumes()[1].codec, Codec::Zstd);
}

#[test]
fn compression_changes_while_a_volume_is_served_and_old_data_stays() {
    let scene = Scene::new();
    let codecs = [Codec::Raw, Codec::Lz4, Codec::Zstd, Codec::Raw];
    let mut owned = Vec::new();
    {
        let pool = scene.create(1);
        make(&pool, "disk0", 8 * MIB, 0).expect("a volume");
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(take(&pool, "disk0"), &mut storage);
        for (number, codec) in (0..).zip(codecs) {
            set_codec(&pool, "disk0", codec);
            let before = pool.volumes()[0].owned;
            client
                .write(number * MIB, &text(number, 1 << 20))
                .expect("a write");
            owned.push(pool.volumes()[0].owned - before);
            assert_eq!(pool.volumes()[0].codec, codec);
        }
        // Neither of both is read as the other.
        client.write(MIB + 4096, &text(9, 4096)).expect("a write");
        for number in 0..4 {
            let mut expected = text(number, 1 << 20);
            if number == 1 {
                expected[4096..8192].copy_from_slice(&text(9, 4096));
            }
            assert_eq!(client.read(number * MIB, 1 << 20).expect("read"), expected);
        }
    }
    // Not closed: records are replayed.
    assert_eq!(owned[0], MIB);
    assert_eq!(owned[3], MIB);
    assert!(
        owned[1] < MIB / 2 && owned[2] < owned[1] * 3 / 4,
        "{owned:?}"
    );
    for _ in 0..2 {
        let pool = scene.open(1);
        assert_eq!(pool.volumes()[0].codec, Codec::Raw);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(take(&pool, "disk0"), &mut storage);
        for number in [0, 2, 3] {
            let found = client.read(number * MIB, 1 << 20).expect("read");
            assert!(found == text(number, 1 << 20), "{number}");
        }
        drop(client);
        drop(storage);
        pool.close().expect("closed");
    }
    let report = Pool::check(&scene.drives(1), true, |_, _| {}).expect("a report");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_quota_changes_while_a_volume_is_served() {
    let scene = Scene::new();
    let pool = scene.create(1);
    make(&pool, "disk0", 8 * MIB, 0).expect("a volume");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(take(&pool, "disk0"), &mut storage);
    let quota = |quota| VolumeSettings {
        quota: Some(quota),
        ..VolumeSettings::default()
    };
    client.write(0, &[1; 1 << 20]).expect("a write");
    set(&pool, "disk0", quota(MIB)).expect("set");
    let refused = client.write(MIB, &[1; 4096]);
    assert!(matches!(refused, Err(VolumeError::NoSpace)), "{refused:?}");
    set(&pool, "disk0", quota(0)).expect("set");
    client.write(MIB, &[1; 4096]).expect("no quota");
    assert_eq!(pool.volumes()[0].quota, None);
    let missing = set(&pool, "disk1", quota(1));
    assert!(
        matches!(missing, Err(PoolError::NoVolume { .. })),
        "{missing:?}"
    );
}

#[test]
fn what_is_configured_of_a_volume_that_is_there_is_applied_when_it_is_opened() {
    let scene = Scene::new();
    let pool = scene.create(1);
    make(&pool, "disk0", MIB, 0).expect("a volume");
    let open = |compression, quota| {
        let spec = VolumeSpec {
            options: Some(Arc::new(crate::PoolOptions {
                compression,
                quota,
                ..crate::PoolOptions::default()
            })),
            ..VolumeSpec::new("disk0", POOL)
        };
        drop(pool.open_volume(&spec).expect("a volume"));
        let listed = pool.volumes().remove(0);
        (listed.codec, listed.quota)
    };
    assert_eq!(open(None, None), (Codec::Raw, None));
    assert_eq!(open(Some(Codec::Zstd), Some(MIB)), (Codec::Zstd, Some(MIB)));
    assert_eq!(open(None, None), (Codec::Zstd, Some(MIB)));
    assert_eq!(open(Some(Codec::Lz4), Some(0)), (Codec::Lz4, None));
}

/// Writes to a volume until there is no space; returns how much it has then.
fn fill(client: &mut VolumeClient<'_>, bytes: u64) -> u64 {
    let chunk: Vec<u8> = (0..65536_u32).map(|at| at.to_le_bytes()[1]).collect();
    let mut written = 0;
    while written < bytes {
        match client.write(written, &chunk) {
            Ok(()) => written += 65536,
            Err(VolumeError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    written
}

/// Lets whoever keeps house on the event loops of two clients come to an end: nobody else runs them. Both have data at
/// their starts, so that they read it from the drive.
fn rest(pool: &Pool, full: &mut VolumeClient<'_>, kept: &mut VolumeClient<'_>) {
    while pool.keeps_house.load(Ordering::Acquire) {
        full.read(0, 4096).expect("a read");
        kept.read(0, 4096).expect("a read");
    }
}

/// All volumes but the reserved one are full: it can be written whole, over and over, in any order and many at once.
fn write_all_of_it(client: &mut VolumeClient<'_>, bytes: u64) {
    let noise: Vec<u8> = (0..65536_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    for round in 0..2 {
        let places: Vec<u64> = (0..bytes / 65536).collect();
        for group in places.chunks(32) {
            let requests = group.iter().map(|place| {
                let place = (place * 5 + round) % (bytes / 65536);
                write_request(Extent::new(place * 128, 128), &noise, 0, false)
            });
            for result in client.run_together(requests.collect()) {
                result.expect("its space is kept");
            }
        }
        for place in (0..bytes / 4096).step_by(7) {
            client
                .write(place * 4096, &noise[..4096])
                .expect("its space is kept");
        }
    }
}

#[test]
fn a_volume_with_reserved_space_never_lacks_it_because_of_others() {
    for (reserve, codec) in [
        (RESERVE_FULL, Codec::Raw),
        (16 * MIB, Codec::Raw),
        (RESERVE_FULL, Codec::Zstd),
    ] {
        let scene = Scene::new();
        let mut pool = scene.create(1);
        make_with(&pool, "kept", 16 * MIB, reserve, codec).expect("a volume");
        make(&pool, "thin", 256 * MIB, 0).expect("a volume");
        let usage = pool.usage();
        assert!(usage.kept >= 16 * MIB && usage.kept < 17 * MIB, "{usage:?}");
        // It is known when the pool is opened again, with and without a checkpoint.
        for is_closed in [false, true] {
            if is_closed {
                pool.close().expect("closed");
            }
            drop(pool);
            pool = scene.open(1);
            assert_eq!(pool.usage().kept, usage.kept);
        }
        let (mut one, mut other) = (TestStorage::new(), TestStorage::new());
        let mut thin = VolumeClient::new(take(&pool, "thin"), &mut one);
        let mut kept = VolumeClient::new(take(&pool, "kept"), &mut other);
        let written = fill(&mut thin, 256 * MIB);
        assert!(written > usage.capacity / 2, "{written} of {usage:?}");
        rest(&pool, &mut thin, &mut kept);
        write_all_of_it(&mut kept, 16 * MIB);
        rest(&pool, &mut thin, &mut kept);
        let full = thin.write(0, &[1; 65536]);
        assert!(
            matches!(full, Ok(()) | Err(VolumeError::NoSpace)),
            "{full:?}"
        );
        fill(&mut thin, 256 * MIB);
        rest(&pool, &mut thin, &mut kept);
        write_all_of_it(&mut kept, 16 * MIB);
        rest(&pool, &mut thin, &mut kept);
        assert!(kept.unmap(4096, 16 * MIB - 4096).is_ok());
        fill(&mut thin, 256 * MIB);
        rest(&pool, &mut thin, &mut kept);
        write_all_of_it(&mut kept, 16 * MIB);
        rest(&pool, &mut thin, &mut kept);
    }
}

#[test]
fn what_would_break_a_reservation_is_refused() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let refused = make(&pool, "huge", 256 * MIB, RESERVE_FULL);
    let Err(PoolError::CannotReserve { missing, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(missing > 190 * MIB, "{missing}");
    assert!(pool.volumes().is_empty());
    make(&pool, "kept", 20 * MIB, RESERVE_FULL).expect("a volume");
    let again = make(&pool, "more", 32 * MIB, RESERVE_FULL);
    assert!(
        matches!(again, Err(PoolError::CannotReserve { .. })),
        "{again:?}"
    );
    let kept_before = pool.usage().kept;
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(take(&pool, "kept"), &mut storage);
    client.write(0, &vec![1; 14 << 20]).expect("a write");
    let snapshot = |name: &'static str| {
        pool.run(move |pool, io| async move { pool.snapshot(&io, name, &["kept".into()]).await })
    };
    snapshot("one").expect("14 MiB of it, and 20 MiB to come");
    assert_eq!(pool.usage().kept, kept_before);
    client.write(0, &vec![2; 14 << 20]).expect("a write");
    let second = snapshot("two");
    assert!(
        matches!(second, Err(PoolError::CannotReserve { .. })),
        "{second:?}"
    );
    let resize =
        |size| pool.run(move |pool, io| async move { pool.resize(&io, "kept", size, false).await });
    let grown = resize(48 * MIB);
    assert!(
        matches!(grown, Err(PoolError::CannotReserve { .. })),
        "{grown:?}"
    );
    let checked = pool.check_growth("kept", 48 * MIB);
    assert!(
        matches!(checked, Err(PoolError::CannotReserve { .. })),
        "{checked:?}"
    );
    pool.check_growth("kept", 22 * MIB).expect("a little more");
    resize(22 * MIB).expect("a little more");
    let bytes = pool.volumes()[0].reserve.expect("reserved").bytes;
    assert_eq!(bytes, 22 * MIB);
    let reserve = |bytes| VolumeSettings {
        reserve: Some(bytes),
        ..VolumeSettings::default()
    };
    set(&pool, "kept", reserve(0)).expect("set");
    assert_eq!(pool.usage().kept, 0);
    snapshot("two").expect("a thin volume");
    let refused = set(&pool, "kept", reserve(RESERVE_FULL));
    assert!(
        matches!(refused, Err(PoolError::CannotReserve { .. })),
        "{refused:?}"
    );
    for name in ["one", "two"] {
        let gone =
            pool.run(move |pool, io| async move { pool.delete_snapshot(&io, "kept", name).await });
        gone.expect("deleted");
    }
    set(&pool, "kept", reserve(RESERVE_FULL)).expect("space was given back");
    let present = pool.volumes()[0].reserve;
    assert!(present.is_some_and(|it| it.is_full), "{present:?}");
    drop(client);
    drop(storage);
    let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "kept").await });
    gone.expect("deleted");
    assert_eq!(pool.usage().kept, 0);
}

#[test]
fn a_rolled_back_volume_has_its_space_again() {
    let scene = Scene::new();
    let pool = scene.create(1);
    make(&pool, "kept", 8 * MIB, RESERVE_FULL).expect("a volume");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(take(&pool, "kept"), &mut storage);
    client.write(0, &vec![1; 8 << 20]).expect("a write");
    let made =
        pool.run(|pool, io| async move { pool.snapshot(&io, "one", &["kept".into()]).await });
    made.expect("a snapshot");
    client.write(0, &vec![2; 8 << 20]).expect("a write");
    make(&pool, "thin", 256 * MIB, 0).expect("a volume");
    let mut other = TestStorage::new();
    let mut thin = VolumeClient::new(take(&pool, "thin"), &mut other);
    fill(&mut thin, 256 * MIB);
    drop(client);
    drop(storage);
    let rolled = pool.run(|pool, io| async move { pool.roll_back(&io, "kept", "one").await });
    rolled.expect("rolled back");
    fill(&mut thin, 256 * MIB);
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(take(&pool, "kept"), &mut storage);
    assert_eq!(client.read(0, 4096).expect("read"), [1; 4096]);
    write_all_of_it(&mut client, 8 * MIB);
}

/// Others write what leaves much behind on the drives: chunks of which each overwrites a page of the one before, and pages
/// that become next to nothing.
#[test]
fn a_volume_with_reserved_space_does_not_lack_it_because_of_what_others_compress() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        for is_small in [false, true] {
            let scene = Scene::new();
            let pool = scene.create(1);
            make(&pool, "kept", 16 * MIB, RESERVE_FULL).expect("a volume");
            let size = if is_small { 2048 * MIB } else { 256 * MIB };
            make_with(&pool, "thin", size, 0, codec).expect("a volume");
            let (mut one, mut other) = (TestStorage::new(), TestStorage::new());
            let mut thin = VolumeClient::new(take(&pool, "thin"), &mut one);
            let mut kept = VolumeClient::new(take(&pool, "kept"), &mut other);
            let mut dice = crate::testing::Dice::new(7);
            // Four pages that become a little smaller together, or very small.
            let mut data: Vec<u8> = (0..4 * 4096)
                .map(|_| dice.roll().to_le_bytes()[4])
                .collect();
            for page in data.chunks_mut(4096) {
                let noise = if is_small { 8 } else { 3400 };
                page[noise..].fill(3);
            }
            if is_small {
                let data = data.repeat(16);
                for place in 0..size / (64 * 4096) {
                    if thin.write(place * 64 * 4096, &data).is_err() {
                        break;
                    }
                }
            } else {
                for page in 0..size / 4096 - 4 {
                    if thin.write(page * 4096, &data).is_err() {
                        break;
                    }
                }
            }
            rest(&pool, &mut thin, &mut kept);
            write_all_of_it(&mut kept, 16 * MIB);
            rest(&pool, &mut thin, &mut kept);
        }
    }
}
