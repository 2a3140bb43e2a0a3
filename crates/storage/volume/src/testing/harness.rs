//! Shared parts of backend tests: directories, engines, and a model to compare with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_reactor::{Engine, EngineChoice, EngineConfig, Waker};
use proptest::prelude::*;

use super::suite::{Keeps, check_volume};
use super::{CompletionSource, EngineStorage, TestStorage, VolumeClient};
use crate::{BackendName, ExtentState, Volume, VolumeSpec};

/// A directory that goes with the test.
pub struct Scratch(PathBuf);

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    /// On tmpfs, where there is one at the usual place.
    pub fn in_memory() -> Option<Scratch> {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The specification of a new file in the directory.
pub fn file_spec(scratch: &Scratch, size: u64, block_size: u32) -> VolumeSpec {
    VolumeSpec {
        path: Some(scratch.path("volume")),
        size: Some(size),
        block_size,
        ..VolumeSpec::new("disk0", BackendName::FILE)
    }
}

pub fn engine(choice: EngineChoice) -> Option<EngineStorage> {
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
pub fn check_on_all_storage(keeps: Keeps, mut make: impl FnMut() -> Arc<dyn Volume>) {
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

/// Blocks of the volumes that are compared with the model; operations crowd on few of them.
pub const MODEL_BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
pub enum Step {
    Write {
        place: u64,
        fill: Vec<u8>,
        fua: bool,
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
        fua: bool,
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

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..MODEL_BLOCKS).prop_flat_map(|place| (Just(place), 1..=MODEL_BLOCKS - place));
    let fills = || {
        (0..MODEL_BLOCKS).prop_flat_map(|place| {
            let most = usize::try_from(MODEL_BLOCKS - place)
                .expect("small")
                .min(12);
            (Just(place), prop::collection::vec(any::<u8>(), 1..=most))
        })
    };
    let step = prop_oneof![
        4 => (fills(), any::<bool>())
            .prop_map(|((place, fill), fua)| Step::Write { place, fill, fua }),
        2 => fills().prop_map(|(place, fill)| Step::Attempt { place, fill }),
        4 => range().prop_map(|(place, count)| Step::Read { place, count }),
        2 => range().prop_map(|(place, count)| Step::Unmap { place, count }),
        2 => (range(), any::<bool>(), any::<bool>()).prop_map(
            |((place, count), may_unmap, fua)| Step::Zero {
                place,
                count,
                may_unmap,
                fua
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
            Step::Write { place, fill, fua } => {
                let bytes = self.bytes(fill);
                client
                    .write_at_start(place * block, &bytes, 0, *fua)
                    .expect("write");
                self.set(*place, fill.iter().copied());
            }
            Step::Attempt { place, fill } => {
                let bytes = self.bytes(fill);
                match client.volume().try_write(crate::Lba(*place), &bytes, false) {
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
                fua,
            } => {
                client
                    .write_zeroes(place * block, count * block, *may_unmap, *fua)
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
        if let crate::Attempt::Done(result) =
            client.volume().try_read(crate::Lba(place), &mut tried)
        {
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

/// The volume reads as zeros at the beginning.
pub fn check_volume_against_model(
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
