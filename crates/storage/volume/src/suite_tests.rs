//! Every backend against the shared suite and against a model, on every kind of storage.

use std::fs;

use longshore_reactor::EngineChoice;
use proptest::prelude::*;
use rustix::io::Errno;

use crate::testing::client::write_request;
use crate::testing::harness::{
    MODEL_BLOCKS, Scratch, Step, check_on_all_storage, check_volume_against_model, engine,
    file_spec, steps,
};
use crate::testing::suite::{Keeps, SIZE_MIN, check_volume, pattern};
use crate::testing::{CompletionSource, Effect, OperationName, TestStorage, VolumeClient};
use crate::{BackendName, InlineWrites, Operation, Request, VolumeSpec, open};

fn check_spec(keeps: Keeps, make_spec: impl Fn(u32) -> VolumeSpec) {
    for block_size in [512, 4096] {
        check_on_all_storage(keeps, || {
            let spec = make_spec(block_size);
            if let Some(path) = spec.path.as_ref().filter(|path| path.is_file()) {
                fs::remove_file(path).expect("the file of the last round");
            }
            open(&spec).expect("the volume opens")
        });
    }
}

#[test]
fn null_passes_the_suite() {
    check_spec(Keeps::Nothing, |block_size| VolumeSpec {
        size: Some(1 << 40),
        block_size,
        ..VolumeSpec::new("n", BackendName::NULL)
    });
}

#[test]
fn mem_passes_the_suite() {
    check_spec(Keeps::Data, |block_size| VolumeSpec {
        size: Some(SIZE_MIN),
        block_size,
        ..VolumeSpec::new("m", BackendName::MEM)
    });
}

#[test]
fn buffered_file_passes_the_suite() {
    let scratch = Scratch::new();
    check_spec(Keeps::Data, |block_size| {
        file_spec(&scratch, SIZE_MIN, block_size)
    });
}

#[test]
fn file_with_inline_writes_passes_the_suite() {
    let scratch = Scratch::new();
    for inline_writes in [InlineWrites::Always, InlineWrites::Never] {
        check_spec(Keeps::Data, |block_size| VolumeSpec {
            inline_writes,
            ..file_spec(&scratch, SIZE_MIN, block_size)
        });
    }
}

#[test]
fn direct_file_passes_the_suite() {
    let scratch = Scratch::new();
    let spec = VolumeSpec {
        direct: true,
        ..file_spec(&scratch, SIZE_MIN, 4096)
    };
    if let Err(error) = open(&spec) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    check_spec(Keeps::Data, |block_size| VolumeSpec {
        direct: true,
        ..file_spec(&scratch, SIZE_MIN, block_size)
    });
}

#[test]
fn file_on_tmpfs_passes_the_suite() {
    let Some(scratch) = Scratch::in_memory() else {
        eprintln!("SKIPPED: no tmpfs at /dev/shm");
        return;
    };
    check_spec(Keeps::Data, |block_size| {
        file_spec(&scratch, SIZE_MIN, block_size)
    });
}

#[test]
fn dev_zero_passes_the_suite() {
    check_spec(Keeps::Nothing, |block_size| VolumeSpec {
        path: Some("/dev/zero".into()),
        size: Some(SIZE_MIN),
        block_size,
        ..VolumeSpec::new("z", BackendName::FILE)
    });
}

#[test]
fn file_passes_the_suite_where_nothing_but_writing_zeroes_a_range() {
    let scratch = Scratch::new();
    for missing in [Errno::OPNOTSUPP, Errno::NOSYS] {
        let volume = open(&file_spec(&scratch, SIZE_MIN, 512)).expect("open");
        let mut storage = TestStorage::new();
        storage.always(OperationName::PunchHole, Effect::Fail(missing));
        storage.always(OperationName::ZeroRange, Effect::Fail(missing));
        storage.always(OperationName::Allocate, Effect::Fail(missing));
        check_volume(
            &mut VolumeClient::new(volume.clone(), &mut storage),
            Keeps::Data,
        );
    }
}

#[test]
fn file_passes_the_suite_when_every_transfer_is_short() {
    let scratch = Scratch::new();
    for most in [1000, 4096] {
        let volume = open(&file_spec(&scratch, SIZE_MIN, 512)).expect("open");
        let mut storage = TestStorage::new();
        for name in [
            OperationName::Read,
            OperationName::Write,
            OperationName::DurableWrite,
        ] {
            storage.always(name, Effect::Short(most));
        }
        check_volume(
            &mut VolumeClient::new(volume.clone(), &mut storage),
            Keeps::Data,
        );
    }
}

fn check_against_model(spec: &VolumeSpec, storage: &mut dyn CompletionSource, steps: &[Step]) {
    let volume = open(spec).expect("open");
    check_volume_against_model(&volume, storage, steps);
}

/// Reactors share volumes, and each has an engine of its own.
#[test]
fn many_engines_work_on_one_volume() {
    const THREADS: u64 = 4;
    let scratch = Scratch::new();
    let volume = open(&file_spec(&scratch, SIZE_MIN, 512)).expect("open");
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let volume = volume.clone();
            scope.spawn(move || {
                let choice = if number % 2 == 0 {
                    EngineChoice::Auto
                } else {
                    EngineChoice::Epoll
                };
                let Some(mut storage) = engine(choice) else {
                    return;
                };
                let mut client = VolumeClient::new(volume, &mut storage);
                write_and_flush_share(
                    &mut client,
                    number * (SIZE_MIN / THREADS),
                    SIZE_MIN / THREADS,
                );
            });
        }
    });
}

/// Fills `length` bytes from `start` on round after round, with durable writes and flushes between.
fn write_and_flush_share(client: &mut VolumeClient<'_>, start: u64, length: u64) {
    for round in 0..4_u8 {
        let requests = (0..length / 8192).map(|piece| {
            let offset = start + piece * 8192;
            let fua = piece % 8 == u64::from(round);
            let extent = client.blocks(offset, 8192);
            write_request(extent, &pattern(offset, 8192, round), 0, fua)
        });
        let mut requests: Vec<_> = requests.collect();
        requests.push(Request::new(Operation::Flush));
        for result in client.run_together(requests) {
            result.expect("write or flush");
        }
        let size = usize::try_from(length).expect("small");
        let expected = pattern(start, size, round);
        assert!(
            client.read(start, size).expect("read") == expected,
            "round {round}"
        );
    }
}

fn mem_spec(block_size: u32) -> VolumeSpec {
    VolumeSpec {
        size: Some(MODEL_BLOCKS * u64::from(block_size)),
        block_size,
        ..VolumeSpec::new("m", BackendName::MEM)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn mem_agrees_with_a_map_of_blocks(steps in steps(), large in any::<bool>()) {
        let spec = mem_spec(if large { 4096 } else { 512 });
        check_against_model(&spec, &mut TestStorage::new(), &steps);
    }

    #[test]
    fn file_agrees_with_a_map_of_blocks(
        steps in steps(),
        large in any::<bool>(),
        direct in any::<bool>(),
        short in prop::option::of(512_usize..9000),
        punches in any::<bool>(),
    ) {
        let place = Scratch::in_memory().filter(|_| !direct).unwrap_or_default();
        let block_size = if large || direct { 4096 } else { 512 };
        let size = MODEL_BLOCKS * u64::from(block_size);
        let spec = VolumeSpec { direct, ..file_spec(&place, size, block_size) };
        let mut storage = TestStorage::new();
        if let Some(most) = short {
            // Direct transfers stop at whole blocks, as the kernel's do.
            let most = if direct { most.next_multiple_of(4096) } else { most };
            storage.always(OperationName::Read, Effect::Short(most));
            storage.always(OperationName::Write, Effect::Short(most));
        }
        if !punches {
            storage.always(OperationName::PunchHole, Effect::Fail(Errno::OPNOTSUPP));
        }
        check_against_model(&spec, &mut storage, &steps);
    }

    #[test]
    fn file_on_engines_agrees_with_a_map_of_blocks(
        steps in steps(),
        direct in any::<bool>(),
        io_uring in any::<bool>(),
    ) {
        let choice = if io_uring { EngineChoice::IoUring } else { EngineChoice::Epoll };
        if let Some(mut storage) = engine(choice) {
            let scratch = Scratch::new();
            let size = MODEL_BLOCKS * 4096;
            let spec = VolumeSpec { direct, ..file_spec(&scratch, size, 4096) };
            check_against_model(&spec, &mut storage, &steps);
        }
    }
}
