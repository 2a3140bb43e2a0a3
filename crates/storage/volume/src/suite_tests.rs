//! Every backend against the shared suite and against a model, on every kind of storage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_reactor::{Engine, EngineChoice, EngineConfig, Waker};
use proptest::prelude::*;
use rustix::io::Errno;

use crate::testing::client::write_request;
use crate::testing::suite::{Keeps, SIZE_MIN, check_volume, pattern};
use crate::testing::{
    CompletionSource, Effect, EngineStorage, OperationName, TestStorage, VolumeClient,
};
use crate::{
    BackendKind, Durability, ExtentState, InlineWrites, Operation, Request, Volume, VolumeSpec,
    open,
};

/// A directory that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    /// On tmpfs, where there is one at the usual place.
    fn in_memory() -> Option<Scratch> {
        let place = Path::new("/dev/shm");
        place.is_dir().then(|| Scratch::below(place))
    }

    fn below(place: &Path) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("longshore-volume-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory for the test");
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The specification of a new file in the directory.
pub(crate) fn file_spec(scratch: &Scratch, size: u64, block_size: u32) -> VolumeSpec {
    VolumeSpec {
        path: Some(scratch.path("volume")),
        size: Some(size),
        block_size,
        ..VolumeSpec::new("disk0", BackendKind::File)
    }
}

pub(crate) fn engine(choice: EngineChoice) -> Option<EngineStorage> {
    let waker = Waker::new().expect("a waker");
    match Engine::new(choice, EngineConfig::default(), waker) {
        Ok(engine) => Some(EngineStorage::new(engine)),
        Err(error) => {
            assert_eq!(choice, EngineChoice::IoUring, "{error}");
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// The suite on the test storage and on both engines; `make` gives a new volume for each.
pub(crate) fn check_on_all_storage(keeps: Keeps, mut make: impl FnMut() -> Arc<dyn Volume>) {
    // A temporary, because it remembers file descriptions and with them their locks.
    check_volume(
        &mut VolumeClient::new(make(), &mut TestStorage::new()),
        keeps,
    );
    for choice in [EngineChoice::IoUring, EngineChoice::Epoll] {
        if let Some(mut storage) = engine(choice) {
            check_volume(&mut VolumeClient::new(make(), &mut storage), keeps);
        }
    }
}

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
        ..VolumeSpec::new("n", BackendKind::Null)
    });
}

#[test]
fn mem_passes_the_suite() {
    check_spec(Keeps::Data, |block_size| VolumeSpec {
        size: Some(SIZE_MIN),
        block_size,
        ..VolumeSpec::new("m", BackendKind::Mem)
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
        ..VolumeSpec::new("z", BackendKind::File)
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
            let durability = if piece % 8 == u64::from(round) {
                Durability::Durable
            } else {
                Durability::Cached
            };
            write_request(offset, &pattern(offset, 8192, round), 0, durability)
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

// ---- the model: a map of blocks

/// Blocks of the volumes that are compared with the model; operations crowd on few of them.
const MODEL_BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write {
        place: u64,
        fill: Vec<u8>,
        durability: Durability,
    },
    Attempt {
        place: u64,
        fill: Vec<u8>,
    },
    Read {
        place: u64,
        count: u64,
    },
    Unmap {
        place: u64,
        count: u64,
    },
    Zero {
        place: u64,
        count: u64,
        may_unmap: bool,
        durability: Durability,
    },
    Anchor {
        place: u64,
        count: u64,
    },
    Extent {
        place: u64,
        count: u64,
    },
    Flush,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..MODEL_BLOCKS).prop_flat_map(|place| (Just(place), 1..=MODEL_BLOCKS - place));
    let fills = || {
        (0..MODEL_BLOCKS).prop_flat_map(|place| {
            let most = usize::try_from(MODEL_BLOCKS - place)
                .expect("small")
                .min(12);
            (Just(place), prop::collection::vec(any::<u8>(), 1..=most))
        })
    };
    let durability = || {
        any::<bool>().prop_map(|durable| match durable {
            true => Durability::Durable,
            false => Durability::Cached,
        })
    };
    let step = prop_oneof![
        4 => (fills(), durability())
            .prop_map(|((place, fill), durability)| Step::Write { place, fill, durability }),
        2 => fills().prop_map(|(place, fill)| Step::Attempt { place, fill }),
        4 => range().prop_map(|(place, count)| Step::Read { place, count }),
        2 => range().prop_map(|(place, count)| Step::Unmap { place, count }),
        2 => (range(), any::<bool>(), durability()).prop_map(
            |((place, count), may_unmap, durability)| Step::Zero {
                place,
                count,
                may_unmap,
                durability
            }
        ),
        1 => range().prop_map(|(place, count)| Step::Anchor { place, count }),
        2 => range().prop_map(|(place, count)| Step::Extent { place, count }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..40)
}

/// What the volume should hold: the byte that fills each block.
struct Model {
    fills: Vec<u8>,
    block: u64,
}

impl Model {
    fn new(block_size: u32) -> Model {
        let count = usize::try_from(MODEL_BLOCKS).expect("small");
        Model {
            fills: vec![0; count],
            block: u64::from(block_size),
        }
    }

    fn set(&mut self, place: u64, fills: impl IntoIterator<Item = u8>) {
        let first = usize::try_from(place).expect("small");
        for (cell, fill) in self.fills[first..].iter_mut().zip(fills) {
            *cell = fill;
        }
    }

    fn get(&self, place: u64, count: u64) -> &[u8] {
        let index = |at: u64| usize::try_from(at).expect("small");
        &self.fills[index(place)..index(place + count)]
    }

    fn bytes(&self, fills: &[u8]) -> Vec<u8> {
        let block = usize::try_from(self.block).expect("small");
        fills
            .iter()
            .flat_map(|fill| std::iter::repeat_n(*fill, block))
            .collect()
    }

    fn apply(&mut self, step: &Step, client: &mut VolumeClient<'_>) {
        let block = self.block;
        match step {
            Step::Write {
                place,
                fill,
                durability,
            } => {
                let bytes = self.bytes(fill);
                client
                    .write_at_start(place * block, &bytes, 0, *durability)
                    .expect("write");
                self.set(*place, fill.iter().copied());
            }
            Step::Attempt { place, fill } => {
                let bytes = self.bytes(fill);
                let place_bytes = crate::ByteOffset(place * block);
                match client
                    .volume()
                    .try_write(place_bytes, &bytes, Durability::Cached)
                {
                    crate::Attempt::Done(result) => result.expect("write"),
                    crate::Attempt::WouldSleep => {
                        client.write(place * block, &bytes).expect("write");
                    }
                }
                self.set(*place, fill.iter().copied());
            }
            Step::Read { place, count } => self.compare(*place, *count, client),
            Step::Unmap { place, count } => {
                if client.unmap(place * block, count * block).is_ok() {
                    self.set(*place, (0..*count).map(|_| 0));
                }
            }
            Step::Zero {
                place,
                count,
                may_unmap,
                durability,
            } => {
                client
                    .write_zeroes(place * block, count * block, *may_unmap, *durability)
                    .expect("write zeroes");
                self.set(*place, (0..*count).map(|_| 0));
            }
            Step::Anchor { place, count } => {
                let _ = client.anchor(place * block, count * block);
            }
            Step::Extent { place, count } => self.compare_extent(*place, *count, client),
            Step::Flush => client.flush().expect("flush"),
        }
    }

    fn compare(&self, place: u64, count: u64, client: &mut VolumeClient<'_>) {
        let expected = self.bytes(self.get(place, count));
        let found = client
            .read(place * self.block, expected.len())
            .expect("read");
        assert!(
            found == expected,
            "blocks from {place} differ from the model"
        );
        let mut tried = vec![0xee; expected.len()];
        let offset = crate::ByteOffset(place * self.block);
        if let crate::Attempt::Done(result) = client.volume().try_read(offset, &mut tried) {
            result.expect("read");
            assert!(
                tried == expected,
                "blocks tried from {place} differ from the model"
            );
        }
    }

    /// Nothing but zeros is ever reported as free.
    fn compare_extent(&self, place: u64, count: u64, client: &mut VolumeClient<'_>) {
        let asked = count * self.block;
        let (length, state) = client.extent(place * self.block, asked).expect("extent");
        assert!(length > 0 && length <= asked && length % self.block == 0);
        if state == ExtentState::Deallocated {
            let free = self.get(place, length / self.block);
            assert!(
                free.iter().all(|fill| *fill == 0),
                "data is reported as free"
            );
        }
    }
}

fn check_against_model(spec: &VolumeSpec, storage: &mut dyn CompletionSource, steps: &[Step]) {
    let volume = open(spec).expect("open");
    check_volume_against_model(&volume, storage, steps);
}

/// The volume reads as zeros at the beginning.
pub(crate) fn check_volume_against_model(
    volume: &Arc<dyn Volume>,
    storage: &mut dyn CompletionSource,
    steps: &[Step],
) {
    let mut client = VolumeClient::new(volume.clone(), storage);
    let mut model = Model::new(volume.geometry().block_size);
    for step in steps {
        model.apply(step, &mut client);
    }
    model.compare(0, MODEL_BLOCKS, &mut client);
}

fn mem_spec(block_size: u32) -> VolumeSpec {
    VolumeSpec {
        size: Some(MODEL_BLOCKS * u64::from(block_size)),
        block_size,
        ..VolumeSpec::new("m", BackendKind::Mem)
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
        let place = Scratch::in_memory().filter(|_| !direct).unwrap_or_else(Scratch::new);
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
