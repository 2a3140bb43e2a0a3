//! Power cuts and deaths of the process, at any operation of histories that are made up.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Ended, Extent, Io, Operation, Request, Volume, VolumeSpec};

use crate::open::{create_on, open_on};
use crate::place::Codec;
use crate::testing::{Blocks, Dice, Disks, Rig};
use crate::{NewVolume, POOL, Pool, PoolError};

const BLOCK: usize = 512;
/// Blocks that a history works on; the volume is longer.
const BLOCKS: u64 = 1024;
const SIZE: u64 = 8 << 20;
const DRIVE: usize = 26 << 20;

/// What a pool should hold.
#[derive(Clone, Debug, Default)]
struct Model {
    volumes: BTreeMap<String, Blocks>,
    /// Of snapshots, which nothing changes.
    snapshots: BTreeMap<(String, String), Blocks>,
}

/// A pool under test, and what was done to it.
struct Scene {
    rig: Rig,
    pool: Arc<Pool>,
    open: BTreeMap<String, Arc<dyn Volume>>,
    model: Model,
    dice: Dice,
    /// The last value that was written.
    value: u32,
    /// What was under way when the power went: it may have happened.
    pending: Option<Pending>,
}

#[derive(Clone, Debug)]
enum Pending {
    Blocks {
        volume: String,
        first: u64,
        values: Vec<u32>,
    },
    Catalog,
}

fn fill(value: u32) -> impl Iterator<Item = u8> {
    // Half of it can be compressed.
    value.to_le_bytes().into_iter().cycle().take(BLOCK)
}

fn value_of(block: &[u8]) -> u32 {
    let value = u32::from_le_bytes(block[..4].try_into().expect("four bytes"));
    assert!(
        block.chunks(4).all(|word| word == &block[..4]),
        "a block of two writes"
    );
    value
}

impl Scene {
    fn create(seed: u64, drives: usize) -> Self {
        let disks = Disks::new(&vec![DRIVE; drives], seed);
        let mut rig = Rig::new(disks);
        let drives = rig.disks.drives();
        let pool = rig
            .run(|io| async move { create_on(&io, "tank", drives).await })
            .expect("power")
            .expect("a pool");
        let mut scene = Self {
            rig,
            pool,
            open: BTreeMap::new(),
            model: Model::default(),
            dice: Dice::new(seed),
            value: 0,
            pending: None,
        };
        for (name, codec) in [("plain", Codec::Raw), ("packed", Codec::Lz4)] {
            scene.make(name, codec).expect("power");
        }
        scene
    }

    fn make(&mut self, name: &str, codec: Codec) -> Option<()> {
        let new = NewVolume {
            name: name.into(),
            size: SIZE,
            block_size: 512,
            codec,
            quota: None,
            id: None,
        };
        self.change(|pool, io| async move { pool.create_volume(&io, new).await })?
            .expect("a volume");
        self.model.volumes.insert(name.into(), Blocks::default());
        self.take(name);
        Some(())
    }

    fn take(&mut self, name: &str) {
        let spec = VolumeSpec::new(name, POOL);
        let volume = self.pool.open_volume(&spec).expect("a volume");
        self.open.insert(name.into(), volume);
    }

    fn change<F: Future<Output = Result<(), PoolError>> + 'static>(
        &mut self,
        work: impl FnOnce(Arc<Pool>, Io) -> F,
    ) -> Option<Result<(), PoolError>> {
        self.pending = Some(Pending::Catalog);
        let pool = self.pool.clone();
        let result = self.rig.run(|io| work(pool, io))?;
        self.pending = None;
        Some(result)
    }

    fn execute(&mut self, volume: &str, request: Request) -> Option<Ended> {
        let volume = self.open[volume].clone();
        self.rig.run(|io| volume.execute(request, io))
    }

    fn read(&mut self, volume: &str, first: u64, count: u64) -> Result<Vec<u32>, String> {
        let mut request = Request::new(Operation::Read {
            extent: Extent::new(first, count),
        });
        request.end = usize::try_from(count).expect("few") * BLOCK;
        request.buffer = Some(Buffer::allocate(request.end));
        let ended = self.execute(volume, request).expect("power");
        ended.result.map_err(|error| error.to_string())?;
        let buffer = ended.buffer.expect("given back");
        Ok(buffer.chunks(BLOCK).map(value_of).collect())
    }

    fn write(&mut self, volume: &str, first: u64, count: u64, fua: bool) -> Option<()> {
        let values: Vec<u32> = (0..count)
            .map(|_| {
                self.value += 1;
                self.value
            })
            .collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| fill(*value)).collect();
        let mut request = Request::new(Operation::Write {
            extent: Extent::new(first, count),
            fua,
        });
        let mut buffer = Buffer::allocate(bytes.len());
        buffer.copy_from_slice(&bytes);
        request.buffer = Some(buffer);
        request.end = bytes.len();
        self.pending = Some(Pending::Blocks {
            volume: volume.into(),
            first,
            values: values.clone(),
        });
        let ended = self.execute(volume, request)?;
        self.pending = None;
        ended.result.expect("a write");
        self.note(volume, first, &values, fua);
        Some(())
    }

    fn zero(&mut self, volume: &str, first: u64, count: u64, fua: bool) -> Option<()> {
        let request = Request::new(Operation::WriteZeroes {
            extent: Extent::new(first, count),
            may_unmap: true,
            fua,
        });
        let values = vec![0; usize::try_from(count).expect("few")];
        self.pending = Some(Pending::Blocks {
            volume: volume.into(),
            first,
            values: values.clone(),
        });
        let ended = self.execute(volume, request)?;
        self.pending = None;
        ended.result.expect("zeros");
        self.note(volume, first, &values, fua);
        Some(())
    }

    fn note(&mut self, volume: &str, first: u64, values: &[u32], fua: bool) {
        let blocks = self.model.volumes.get_mut(volume).expect("known");
        for (block, value) in (first..).zip(values) {
            if fua {
                blocks.write_durable(block, *value);
            } else {
                blocks.write(block, *value);
            }
        }
    }

    /// One step of a history. `None`: the power went.
    fn step(&mut self) -> Option<()> {
        let names: Vec<String> = self.model.volumes.keys().cloned().collect();
        let volume =
            names[usize::try_from(self.dice.below(names.len() as u64)).expect("few")].clone();
        match self.dice.below(24) {
            0..=11 => {
                let count = 1 + self.dice.below(40);
                let mut first = self.dice.below(BLOCKS - count);
                if self.dice.once_in(2) {
                    first = first / 8 * 8;
                }
                let fua = self.dice.once_in(5);
                self.write(&volume, first, count, fua)
            }
            12 | 13 => {
                let count = 1 + self.dice.below(100);
                let first = self.dice.below(BLOCKS - count);
                let fua = self.dice.once_in(3);
                self.zero(&volume, first, count, fua)
            }
            14..=16 => {
                let ended = self.execute(&volume, Request::new(Operation::Flush))?;
                ended.result.expect("a flush");
                self.model.volumes.values_mut().for_each(Blocks::flush);
                Some(())
            }
            17 | 18 => self.snapshot(&volume),
            19 => self.delete_snapshot(),
            20 => self.clone_snapshot(),
            21 => self.delete_clone(),
            22 => {
                let made = self.change(|pool, io| async move {
                    crate::clean::checkpoint_now(&pool, &io).await
                })?;
                // Without space there is none, and nothing is lost.
                assert!(
                    matches!(made, Ok(()) | Err(PoolError::NoSpace { .. })),
                    "{made:?}"
                );
                Some(())
            }
            _ => self.churn(&volume),
        }
    }

    /// Enough for segments to be cleaned.
    fn churn(&mut self, volume: &str) -> Option<()> {
        for _ in 0..6 {
            let count = 200 + self.dice.below(200);
            let first = self.dice.below(BLOCKS - count);
            self.write(volume, first, count, false)?;
        }
        Some(())
    }

    fn snapshot(&mut self, volume: &str) -> Option<()> {
        if self.model.snapshots.len() >= 5 {
            return Some(());
        }
        let name = format!("s{}", self.dice.below(1 << 30));
        let group: Vec<String> = if self.dice.once_in(3) {
            self.model.volumes.keys().cloned().collect()
        } else {
            vec![volume.to_owned()]
        };
        let (of, called) = (group.clone(), name.clone());
        self.change(|pool, io| async move { pool.snapshot(&io, &called, &of).await })?
            .expect("a snapshot");
        for volume in group {
            let mut blocks = self.model.volumes[&volume].clone();
            blocks.flush();
            self.model.snapshots.insert((volume, name.clone()), blocks);
        }
        self.model.volumes.values_mut().for_each(Blocks::flush);
        Some(())
    }

    fn chosen_snapshot(&mut self) -> Option<(String, String)> {
        let keys: Vec<_> = self.model.snapshots.keys().cloned().collect();
        if keys.is_empty() {
            return None;
        }
        let chosen = self.dice.below(keys.len() as u64);
        Some(keys[usize::try_from(chosen).expect("few")].clone())
    }

    fn delete_snapshot(&mut self) -> Option<()> {
        let Some((volume, name)) = self.chosen_snapshot() else {
            return Some(());
        };
        let (of, called) = (volume.clone(), name.clone());
        // Whether it happens or not: afterwards it may be gone.
        let kept = self.model.snapshots.remove(&(volume.clone(), name.clone()));
        self.change(|pool, io| async move { pool.delete_snapshot(&io, &of, &called).await })
            .inspect(|_| drop(kept))?
            .expect("deleted");
        Some(())
    }

    fn clone_snapshot(&mut self) -> Option<()> {
        if self.model.volumes.len() >= 4 {
            return Some(());
        }
        let Some((volume, name)) = self.chosen_snapshot() else {
            return Some(());
        };
        let copy = format!("c{}", self.dice.below(1 << 30));
        let blocks = self.model.snapshots[&(volume.clone(), name.clone())].clone();
        let called = copy.clone();
        self.change(
            |pool, io| async move { pool.clone_snapshot(&io, &volume, &name, &called).await },
        )?
        .expect("a clone");
        self.model.volumes.insert(copy.clone(), blocks);
        self.take(&copy);
        Some(())
    }

    fn delete_clone(&mut self) -> Option<()> {
        let clone = self
            .model
            .volumes
            .keys()
            .find(|name| name.starts_with('c'))
            .cloned();
        let Some(name) = clone else {
            return Some(());
        };
        self.open.remove(&name);
        self.model.volumes.remove(&name);
        // Its snapshots stay, whatever becomes of it.
        let called = name.clone();
        self.change(|pool, io| async move { pool.delete_volume(&io, &called).await })?
            .expect("deleted");
        Some(())
    }

    /// Lets `end` do to the drives what a power cut or a kill does, opens the pool again, and compares.
    fn interrupt(self, is_cut: bool, seed: u64) -> Self {
        let Self {
            rig,
            pool,
            open,
            mut model,
            dice,
            value,
            pending,
        } = self;
        let disks = rig.into_disks();
        drop(open);
        drop(pool);
        let mut disks = if is_cut {
            disks.cut_power(seed)
        } else {
            disks.kill(seed)
        };
        disks.left = u64::MAX;
        let mut rig = Rig::new(disks);
        let drives = rig.disks.drives();
        let pool = rig
            .run(|io| async move { open_on(&io, drives, false).await })
            .expect("power")
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if let Some(Pending::Blocks {
            volume,
            first,
            values,
        }) = &pending
            && let Some(blocks) = model.volumes.get_mut(volume)
        {
            for (block, value) in (*first..).zip(values) {
                blocks.write(block, *value);
            }
        }
        let mut scene = Self {
            rig,
            pool,
            open: BTreeMap::new(),
            model,
            dice,
            value,
            pending: None,
        };
        scene.compare(is_cut, matches!(pending, Some(Pending::Blocks { .. })));
        scene
    }

    fn compare(&mut self, is_cut: bool, has_pending: bool) {
        let report = {
            let pool = self.pool.clone();
            self.rig
                .run(
                    |io| async move { crate::check::check_pool(&pool, &io, true, |_, _| {}).await },
                )
                .expect("power")
        };
        assert!(report.is_sound(), "{:?}", report.findings);
        for name in self.model.volumes.keys().cloned().collect::<Vec<_>>() {
            self.take(&name);
            let found = self.read(&name, 0, BLOCKS).expect("a read");
            let blocks = self.model.volumes.get_mut(&name).expect("known");
            for (block, value) in (0..).zip(found) {
                let is_right = if is_cut || has_pending {
                    blocks.allows(block, value)
                } else {
                    blocks.newest(block) == value
                };
                assert!(
                    is_right,
                    "{name}, block {block}: {value}, allowed {blocks:?}"
                );
                blocks.settle(block, value);
            }
        }
        for ((volume, name), blocks) in self.model.snapshots.clone() {
            let full = format!("{volume}@{name}");
            self.take(&full);
            let found = self.read(&full, 0, BLOCKS).expect("a read");
            for (block, value) in (0..).zip(found) {
                assert_eq!(value, blocks.newest(block), "{full}, block {block}");
            }
            self.open.remove(&full);
        }
    }
}

/// Histories with an interruption each, at an operation that the seed chooses.
fn run_histories(seeds: std::ops::Range<u64>, is_cut: bool) {
    for seed in seeds {
        let mut dice = Dice::new(seed ^ 0x5eed);
        let mut scene = Scene::create(seed, 1 + usize::try_from(seed % 2).expect("0 or 1"));
        for round in 0..3 {
            scene.rig.disks.left = 20 + dice.below(400);
            while scene.step().is_some() {
                assert!(scene.rig.disks.done < 1 << 20, "a history ends");
            }
            scene = scene.interrupt(is_cut, seed << 8 | round);
        }
    }
}

#[test]
fn what_was_flushed_survives_a_power_cut_at_any_operation() {
    run_histories(1..120, true);
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_process() {
    run_histories(1000..1060, false);
}
