//! Power cuts and deaths of the process, at any operation of histories that are made up.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Ended, Extent, Io, Operation, Request, Volume, VolumeSpec};

use crate::cache::Missing;
use crate::desk::Step;
use crate::drive::Drive;
use crate::format::long;
use crate::leaves::Purpose;
use crate::open::{Opening, create_on, open_on};
use crate::opening_tests::{cut_while_opening, openings_cut_short};
use crate::place::Codec;
use crate::testing::{Blocks, Dice, Disks, Planted, Rig, Trouble, plant, set_cache_room};
use crate::{NewVolume, POOL, Pool, PoolError, SnapshotName, VolumeSettings};

const BLOCK: usize = 512;
/// Blocks that a history works on; the volume is longer.
pub(crate) const BLOCKS: u64 = 1024;
const SIZE: u64 = 8 << 20;
/// The first of them: they belong to two leaves of a map.
const BASE: u64 = 3584;
pub(crate) const DRIVE: usize = 26 << 20;
/// Drives of a scene; the pool lies on some of them.
const DRIVES: usize = 3;

/// What a pool should hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) volumes: BTreeMap<String, Blocks>,
    /// Of snapshots, which nothing changes.
    pub(crate) snapshots: BTreeMap<(String, String), Blocks>,
}

/// A pool under test, and what was done to it.
pub(crate) struct Scene {
    pub(crate) rig: Rig,
    pub(crate) pool: Arc<Pool>,
    pub(crate) open: BTreeMap<String, Arc<dyn Volume>>,
    pub(crate) model: Model,
    pub(crate) dice: Dice,
    /// The last value that was written.
    pub(crate) value: u32,
    /// Writes that were under way when it was interrupted: they may have happened.
    pub(crate) pending: Vec<Write>,
    /// It will be interrupted by a power cut, not by a death of the process.
    pub(crate) is_cut: bool,
    /// Segments are filled and cleaned more than is usual.
    pub(crate) is_busy: bool,
    /// Each write is on the medium when it ends.
    pub(crate) is_write_through: bool,
    /// Its drives are mirrors; none come and go, and sides of them are replaced.
    pub(crate) is_mirror: bool,
    /// The block that each value was written to.
    pub(crate) written: BTreeMap<u32, u64>,
    /// Numbers of the drives that the pool lies on, and of those that it is about to lie on.
    pub(crate) members: Vec<usize>,
    pub(crate) after: Option<Vec<usize>>,
}

/// A write, or zeros.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    volume: String,
    first: u64,
    values: Vec<u32>,
    fua: bool,
}

impl Write {
    fn request(&self, zeros: bool) -> Request {
        let extent = Extent::new(BASE + self.first, self.values.len() as u64);
        if zeros {
            return Request::new(Operation::WriteZeroes {
                extent,
                may_unmap: true,
                fua: self.fua,
            });
        }
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| fill(*value)).collect();
        let mut request = Request::new(Operation::Write {
            extent,
            fua: self.fua,
        });
        let mut buffer = Buffer::allocate(bytes.len());
        buffer.copy_from_slice(&bytes);
        request.buffer = Some(buffer);
        request.end = bytes.len();
        request
    }
}

pub(crate) fn chosen(disks: &Disks, numbers: &[usize]) -> Vec<crate::side::Side> {
    let drives = disks.drives();
    numbers
        .iter()
        .map(|number| drives[*number].clone())
        .collect()
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
    pub(crate) fn create(seed: u64, drives: usize, is_cut: bool) -> Self {
        Self::create_as(seed, drives, is_cut, false)
    }

    /// `is_mirror`: each two drives are a mirror.
    pub(crate) fn create_as(seed: u64, drives: usize, is_cut: bool, is_mirror: bool) -> Self {
        // Of a quarter of the pools, few leaves fit in memory.
        set_cache_room((seed % 4 == 1).then_some(8));
        let disks = Disks::new(&[DRIVE; DRIVES], seed);
        let mut rig = Rig::new(disks);
        let members: Vec<usize> = (0..drives).collect();
        let drives = chosen(&rig.disks, &members);
        let pool = rig
            .run(|io| async move { create_on(&io, "tank", drives, is_mirror).await })
            .expect("power")
            .expect("a pool");
        let mut scene = Self {
            rig,
            pool,
            open: BTreeMap::new(),
            model: Model::default(),
            dice: Dice::new(seed),
            value: 0,
            pending: Vec::new(),
            is_cut,
            is_busy: seed.is_multiple_of(3),
            is_write_through: is_cut && seed.is_multiple_of(5),
            is_mirror,
            written: BTreeMap::new(),
            members,
            after: None,
        };
        let packed = if (seed / 2).is_multiple_of(2) {
            Codec::Zstd
        } else {
            Codec::Lz4
        };
        for (name, codec) in [("plain", Codec::Raw), ("packed", packed)] {
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
            reserve: 0,
            id: None,
        };
        self.change(|pool, io| async move { pool.create_volume(&io, new).await })?
            .expect("a volume");
        self.model.volumes.insert(name.into(), Blocks::default());
        self.take(name);
        Some(())
    }

    pub(crate) fn take(&mut self, name: &str) {
        let spec = VolumeSpec {
            write_through: self.is_write_through,
            ..VolumeSpec::new(name, POOL)
        };
        let volume = self.pool.open_volume(&spec).expect("a volume");
        self.open.insert(name.into(), volume);
    }

    fn change<F: Future<Output = Result<(), PoolError>> + 'static>(
        &mut self,
        work: impl FnOnce(Arc<Pool>, Io) -> F,
    ) -> Option<Result<(), PoolError>> {
        let pool = self.pool.clone();
        let result = self.rig.run(|io| work(pool, io))?;
        if result.is_err() && self.rig.disks.trouble.is_some() {
            return None;
        }
        Some(result)
    }

    pub(crate) fn execute(&mut self, volume: &str, request: Request) -> Option<Ended> {
        let volume = self.open[volume].clone();
        self.rig.run(|io| volume.execute(request, io))
    }

    pub(crate) fn read(
        &mut self,
        volume: &str,
        first: u64,
        count: u64,
    ) -> Result<Vec<u32>, String> {
        let mut request = Request::new(Operation::Read {
            extent: Extent::new(BASE + first, count),
        });
        request.end = usize::try_from(count).expect("few") * BLOCK;
        request.buffer = Some(Buffer::allocate(request.end));
        let ended = self.execute(volume, request).expect("power");
        ended.result.map_err(|error| error.to_string())?;
        let buffer = ended.buffer.expect("given back");
        Ok(buffer.chunks(BLOCK).map(value_of).collect())
    }

    fn new_write(&mut self, volume: &str, first: u64, count: u64, fua: bool) -> Write {
        let values = (0..count).map(|place| {
            self.value += 1;
            self.written.insert(self.value, first + place);
            self.value
        });
        Write {
            values: values.collect(),
            volume: volume.into(),
            first,
            fua,
        }
    }

    pub(crate) fn write(&mut self, volume: &str, first: u64, count: u64, fua: bool) -> Option<()> {
        let write = self.new_write(volume, first, count, fua);
        self.make_writes(vec![write], false, None)
    }

    pub(crate) fn zero(&mut self, volume: &str, first: u64, count: u64, fua: bool) -> Option<()> {
        let write = Write {
            volume: volume.into(),
            first,
            values: vec![0; usize::try_from(count).expect("few")],
            fua,
        };
        self.make_writes(vec![write], true, None)
    }

    /// Makes writes to different places at once, and perhaps a snapshot of a volume among them.
    fn make_writes(
        &mut self,
        writes: Vec<Write>,
        zeros: bool,
        snapshot: Option<&str>,
    ) -> Option<()> {
        self.pending.clone_from(&writes);
        let executions: Vec<_> = writes
            .iter()
            .map(|write| (self.open[&write.volume].clone(), write.request(zeros)))
            .collect();
        let name = format!("s{}", self.value);
        let taken = snapshot.map(|volume| (volume.to_owned(), name));
        let (pool, wanted) = (self.pool.clone(), taken.clone());
        let (ended, made) = self.rig.run(|io| async move {
            let writes = executions
                .into_iter()
                .map(|(volume, request)| volume.execute(request, io.clone()));
            let writes = futures_util::future::join_all(writes);
            let snapshot = async {
                match wanted {
                    Some((volume, name)) => pool.snapshot(&io, &name, &[volume]).await,
                    None => Ok(()),
                }
            };
            futures_util::future::join(writes, snapshot).await
        })?;
        for (write, ended) in writes.iter().zip(ended) {
            if ended.result.is_err() && self.rig.disks.trouble.is_some() {
                return None;
            }
            ended.result.expect("a write");
            if taken
                .as_ref()
                .is_some_and(|(volume, _)| *volume == write.volume)
            {
                // The snapshot has it or not.
                let blocks = self.model.volumes.get_mut(&write.volume).expect("known");
                for (block, value) in (write.first..).zip(&write.values) {
                    blocks.write(block, *value);
                }
            }
        }
        if let Some(key) = taken {
            if made.is_err() && self.rig.disks.trouble.is_some() {
                return None;
            }
            made.expect("a snapshot");
            let blocks = self.model.volumes[&key.0].clone();
            self.model.snapshots.insert(key.clone(), blocks);
            self.compare_snapshot(&key);
            // A snapshot flushes what was acknowledged before it.
            for (name, blocks) in &mut self.model.volumes {
                if !writes.iter().any(|write| write.volume == *name) {
                    blocks.flush();
                }
            }
        }
        for write in writes {
            self.note(&write);
        }
        self.pending.clear();
        Some(())
    }

    fn note(&mut self, write: &Write) {
        let blocks = self.model.volumes.get_mut(&write.volume).expect("known");
        for (block, value) in (write.first..).zip(&write.values) {
            if write.fua || self.is_write_through || !self.is_cut {
                blocks.write_durable(block, *value);
            } else {
                blocks.write(block, *value);
            }
        }
    }

    /// Several writes at once, to places of their own.
    pub(crate) fn burst(&mut self, volume: &str) -> Option<()> {
        let each = BLOCKS / 8;
        let mut writes = Vec::new();
        for place in 0..8 {
            let count = 1 + self.dice.below(40);
            let first = place * each + self.dice.below(each - count);
            let fua = self.dice.once_in(8);
            writes.push(self.new_write(volume, first, count, fua));
        }
        let with_snapshot = self.dice.once_in(3) && self.model.snapshots.len() < 5;
        self.make_writes(writes, false, with_snapshot.then_some(volume))
    }

    /// One step of a history. `None`: the power went.
    pub(crate) fn step(&mut self) -> Option<()> {
        let names: Vec<String> = self.model.volumes.keys().cloned().collect();
        let volume =
            names[usize::try_from(self.dice.below(names.len() as u64)).expect("few")].clone();
        let kind = if self.is_busy && self.dice.once_in(2) {
            [22, 23, 23, 14][usize::try_from(self.dice.below(4)).expect("few")]
        } else {
            self.dice.below(31)
        };
        match kind {
            30 => self.resize(&volume),
            28 => self.set(&volume),
            29 if self.is_mirror => self.replace_side(&volume),
            29 => self.change_drives(&volume),
            24..=27 => self.burst(&volume),
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
                if ended.result.is_err() && self.rig.disks.trouble.is_some() {
                    return None;
                }
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

    /// Adds a drive, or takes one out while writes go on.
    fn change_drives(&mut self, volume: &str) -> Option<()> {
        let spare = (0..DRIVES).find(|number| !self.members.contains(number));
        let adds = self.members.len() == 1 || self.dice.once_in(2);
        let mut after = self.members.clone();
        match spare.filter(|_| adds) {
            Some(spare) => {
                after.push(spare);
                self.after = Some(after);
                let drive = chosen(&self.rig.disks, &[spare]).remove(0);
                self.change(|pool, io| async move { pool.admit(&io, Drive::single(drive)).await })?
                    .expect("added");
            }
            None => {
                let place = usize::try_from(self.dice.below(after.len() as u64)).expect("few");
                let number = after.remove(place);
                self.after = Some(after);
                let path = chosen(&self.rig.disks, &[number])[0].path.clone();
                let number = self.pool.drive_number(&path).expect("one of several");
                if self.pool.begin_leaving(number, &path).is_err() {
                    self.after = None;
                    return Some(());
                }
                let mut waits = 0;
                loop {
                    let pool = self.pool.clone();
                    let step = self
                        .rig
                        .run(|io| async move { pool.leave_step(&io, number).await })?;
                    match step {
                        Ok(Step::Done) => break,
                        Ok(Step::Did(_)) => waits = 0,
                        Ok(Step::Wait) => waits += 1,
                        Err(_) if self.rig.disks.trouble.is_some() => return None,
                        Err(error) => panic!("not removed: {error}"),
                    }
                    assert!(waits < 20, "a drive leaves at last");
                    if self.dice.once_in(3) {
                        self.burst(volume)?;
                    }
                }
            }
        }
        self.members = self.after.take().expect("set before");
        Some(())
    }

    /// Enough for segments to be cleaned.
    pub(crate) fn churn(&mut self, volume: &str) -> Option<()> {
        for _ in 0..6 {
            let count = 200 + self.dice.below(200);
            let first = self.dice.below(BLOCKS - count);
            self.write(volume, first, count, false)?;
        }
        Some(())
    }

    /// A volume gets smaller, and has its size again: what was cut off is zero.
    fn resize(&mut self, volume: &str) -> Option<()> {
        let pages = 1 + self.dice.below(BLOCKS / 8);
        let blocks = self.model.volumes.get_mut(volume).expect("known");
        // Whether it happens or not, when the power goes.
        (pages * 8..BLOCKS).for_each(|block| blocks.write(block, 0));
        self.open.remove(volume);
        let name = volume.to_owned();
        let bytes = BASE * long(BLOCK) + pages * 4096;
        self.change(|pool, io| async move { pool.resize(&io, &name, bytes, true).await })?
            .expect("smaller");
        let blocks = self.model.volumes.get_mut(volume).expect("known");
        (pages * 8..BLOCKS).for_each(|block| blocks.write_durable(block, 0));
        self.grow(volume)?;
        self.take(volume);
        Some(())
    }

    /// A volume has its usual size.
    fn grow(&mut self, volume: &str) -> Option<()> {
        let name = volume.to_owned();
        let grown =
            self.change(|pool, io| async move { pool.resize(&io, &name, SIZE, false).await })?;
        grown.expect("larger");
        Some(())
    }

    /// The same volume compresses otherwise from now on.
    fn set(&mut self, volume: &str) -> Option<()> {
        let codec = [Codec::Raw, Codec::Lz4, Codec::Zstd];
        let settings = VolumeSettings {
            codec: Some(codec[usize::try_from(self.dice.below(3)).expect("few")]),
            ..VolumeSettings::default()
        };
        let name = volume.to_owned();
        let set = self.change(|pool, io| async move { pool.set(&io, &name, settings).await })?;
        // It may need a checkpoint, for which there is no space.
        let is_expected = matches!(set, Ok(()) | Err(PoolError::NoSpace { .. }));
        assert!(is_expected, "{set:?}");
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

    /// Does to the drives what a power cut or a kill does, opens the pool again, and compares. Openings are interrupted, too.
    pub(crate) fn interrupt(self, seed: u64) -> Self {
        self.interrupt_with(seed, &openings_cut_short(seed)).0
    }

    /// The same, with an opening that is cut short after each of these numbers of operations, before the last one. Gives
    /// whether one of them had ended before.
    pub(crate) fn interrupt_with(self, seed: u64, openings: &[u64]) -> (Self, bool) {
        let Self {
            rig,
            pool,
            open,
            mut model,
            dice,
            value,
            pending,
            is_cut,
            is_busy,
            is_write_through,
            is_mirror,
            written,
            mut members,
            after,
        } = self;
        let disks = rig.into_disks();
        drop(open);
        drop(pool);
        let mut disks = if is_cut {
            disks.cut_power(seed)
        } else {
            disks.kill(seed)
        };
        let mut has_ended = false;
        for left in openings {
            let (next, ended) = cut_while_opening(disks, *left, &members, is_cut, seed);
            (disks, has_ended) = (next, has_ended || ended);
        }
        disks.left = u64::MAX;
        let mut rig = Rig::new(disks);
        // Whoever changes the drives of a pool knows both lists, and one of them opens it.
        let mut lists = vec![members.clone()];
        lists.extend(after);
        if seed.is_multiple_of(2) {
            lists.reverse();
        }
        let fewest = lists.iter().map(Vec::len).min();
        let mut pool = None;
        let mut refusals = String::new();
        for list in lists {
            let drives = chosen(&rig.disks, &list);
            let opened = rig
                .run(|io| async move { open_on(&io, drives, Opening::default()).await })
                .expect("power");
            if let Err(error) = &opened {
                refusals += &format!("{list:?}: {error}; ");
            }
            match opened {
                Ok(opened) => {
                    pool = Some(opened);
                    members = list;
                    break;
                }
                Err(
                    PoolError::DrivesMissing { .. }
                    | PoolError::NotMember { .. }
                    | PoolError::NoPool { .. }
                    | PoolError::Stale { .. },
                ) => {}
                // A drive that was being added has torn superblocks, or one whose superblocks were being overwritten,
                // because it was removed.
                Err(PoolError::Damaged { what, .. })
                    if what == "the superblock" && Some(list.len()) > fewest => {}
                Err(error) => panic!("seed {seed}: {list:?} of {members:?}: {error}"),
            }
        }
        let pool =
            pool.unwrap_or_else(|| panic!("seed {seed}: no list of drives opens: {refusals}"));
        for write in pending {
            if let Some(blocks) = model.volumes.get_mut(&write.volume) {
                for (block, value) in (write.first..).zip(&write.values) {
                    blocks.write(block, *value);
                }
            }
        }
        let mut scene = Self {
            rig,
            pool,
            open: BTreeMap::new(),
            model,
            dice,
            value,
            pending: Vec::new(),
            is_cut,
            is_busy,
            is_write_through,
            is_mirror,
            written,
            members,
            after: None,
        };
        // The power may have gone before one that was made smaller had its size again.
        for name in scene.model.volumes.keys().cloned().collect::<Vec<_>>() {
            scene.grow(&name).expect("power");
        }
        scene.compare();
        (scene, has_ended)
    }

    pub(crate) fn compare(&mut self) {
        let report = {
            let pool = self.pool.clone();
            self.rig
                .run(|io| async move {
                    // Superblocks are not written meanwhile.
                    let _held = pool.checkpoints.lock().await;
                    crate::check::check_pool(&pool, &io, true, |_, _| {}).await
                })
                .expect("power")
        };
        let mut findings = report.findings;
        // A mirror may lack a side.
        findings.retain(|it| !self.is_mirror || !it.text.contains("its mirror"));
        assert!(findings.is_empty(), "{findings:?}");
        self.compare_degraded();
    }

    /// Compares what volumes hold, whatever a check finds.
    pub(crate) fn compare_degraded(&mut self) {
        for name in self.model.volumes.keys().cloned().collect::<Vec<_>>() {
            if !self.open.contains_key(&name) {
                self.take(&name);
            }
            let found = self.read(&name, 0, BLOCKS).expect("a read");
            let blocks = self.model.volumes.get_mut(&name).expect("known");
            for (block, value) in (0..).zip(found) {
                let is_right = blocks.allows(block, value);
                assert!(
                    is_right,
                    "{name}, block {block}: {value}, allowed {blocks:?}"
                );
                blocks.settle(block, value);
            }
        }
        let keys = self.model.snapshots.keys().cloned();
        let mut contents = Vec::new();
        for key in keys.collect::<Vec<_>>() {
            contents.extend(self.compare_snapshot(&key).map(|found| (key, found)));
        }
        for (older, before) in &contents {
            for (newer, after) in &contents {
                self.compare_changes(older, before, newer, after);
            }
        }
    }

    /// Where two snapshots hold something else, the pool says so.
    fn compare_changes(
        &mut self,
        older: &(String, String),
        before: &[u32],
        newer: &(String, String),
        after: &[u32],
    ) {
        fn name((volume, name): &(String, String)) -> SnapshotName<'_> {
            SnapshotName { volume, name }
        }
        let mut from = 0;
        let mut ranges = Vec::new();
        loop {
            let (pool, rig) = (self.pool.clone(), &mut self.rig);
            let load = |missing: Vec<Missing>| {
                let pool = pool.clone();
                let loaded = rig
                    .run(|io| async move { pool.load_leaves(&io, &missing, Purpose::Look).await });
                loaded.expect("power")
            };
            let changes = self
                .pool
                .changes_with(name(newer), name(older), from, 2, load);
            let changes = changes.expect("both are there");
            ranges.extend(changes.ranges);
            match changes.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert!(
            ranges.is_sorted_by(|one, next| one.end <= next.start),
            "{ranges:?}"
        );
        for (block, (before, after)) in before.iter().zip(after).enumerate() {
            let at = BASE * long(BLOCK) + long(block * BLOCK);
            assert!(
                before == after || ranges.iter().any(|range| range.contains(&at)),
                "{older:?} to {newer:?}: block {block} is not in {ranges:?}"
            );
        }
        if older == newer {
            assert_eq!(ranges, []);
        }
    }

    /// A snapshot holds what it may hold, and the same from then on. Returns that.
    fn compare_snapshot(&mut self, key: &(String, String)) -> Option<Vec<u32>> {
        let full = format!("{}@{}", key.0, key.1);
        self.take(&full);
        let left = std::mem::replace(&mut self.rig.disks.left, u64::MAX);
        let found = self.read(&full, 0, BLOCKS);
        self.rig.disks.left = left;
        self.open.remove(&full);
        if found.is_err() && self.rig.disks.trouble.is_some() {
            return None;
        }
        let found = found.expect("a read");
        let blocks = self.model.snapshots.get_mut(key).expect("known");
        for (block, value) in (0..).zip(&found) {
            assert!(
                blocks.allows(block, *value),
                "{full}, block {block}: {value}"
            );
            blocks.settle(block, *value);
        }
        Some(found)
    }
}

/// Histories with interruptions, at operations that the seed chooses.
fn run_histories(seeds: std::ops::Range<u64>, is_cut: bool, skips_syncs: bool) {
    for seed in seeds {
        let mut dice = Dice::new(seed ^ 0x5eed);
        let drives = 1 + usize::try_from(seed % 2).expect("0 or 1");
        let mut scene = Scene::create(seed, drives, is_cut);
        for round in 0..3 {
            scene.rig.disks.skips_syncs = skips_syncs;
            let longest = if scene.is_busy { 1200 } else { 400 };
            scene.rig.disks.left = 20 + dice.below(longest);
            while scene.step().is_some() {
                assert!(scene.rig.disks.done < 1 << 20, "a history ends");
            }
            scene = scene.interrupt(seed << 8 | round);
        }
    }
}

#[test]
fn what_was_flushed_survives_a_power_cut_at_any_operation() {
    run_histories(1..50, true, false);
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_process() {
    run_histories(1000..1025, false, false);
}

/// Whether histories show that something is wrong.
fn is_found(fault: Option<Planted>, skips_syncs: bool) -> bool {
    plant(fault);
    let result = std::panic::catch_unwind(|| run_histories(1..800, true, skips_syncs));
    plant(None);
    result.is_err()
}

#[test]
fn planted_faults_are_found() {
    assert!(is_found(None, true), "skipped syncs");
    for fault in [
        Planted::EarlyReuse,
        Planted::StopsAtGap,
        Planted::NoDurableWrites,
        Planted::ForgetsZeros,
    ] {
        assert!(is_found(Some(fault), false), "{fault:?}");
    }
    plant(Some(Planted::ListsBeforeTheDrive));
    let result = std::panic::catch_unwind(cut_while_drives_change);
    plant(None);
    assert!(result.is_err(), "a drive that is listed too early");
}

/// The power goes at each operation of the addition of a drive, and of a removal.
fn cut_while_drives_change() {
    for drives in [1, 2] {
        for left in 0..60 {
            for seed in [3 * left, 3 * left + 1, 3 * left + 2] {
                let mut scene = Scene::create(seed, drives, true);
                scene.write("plain", 0, 300, true).expect("power");
                scene.rig.disks.left = left;
                // With one drive another is added; with two, either comes or goes.
                while scene.change_drives("plain").is_some() {}
                scene.interrupt(seed);
            }
        }
    }
}

#[test]
fn a_power_cut_while_drives_come_and_go_leaves_a_pool_that_opens() {
    cut_while_drives_change();
}

#[test]
fn a_drive_whose_addition_failed_is_added_again() {
    for at in 0..60 {
        let seed = 5000 + at;
        let mut scene = Scene::create(seed, 1, true);
        scene.write("plain", 0, 300, true).expect("power");
        scene.rig.disks.trouble = Some((scene.rig.disks.done + at, Trouble::Fails));
        let admit = |scene: &mut Scene| {
            let drive = chosen(&scene.rig.disks, &[1]).remove(0);
            let pool = scene.pool.clone();
            let admitted = scene
                .rig
                .run(|io| async move { pool.admit(&io, Drive::single(drive)).await });
            admitted.expect("power").is_ok()
        };
        let mut is_added = admit(&mut scene);
        scene.rig.disks.trouble = None;
        if !is_added && !scene.pool.is_poisoned() {
            is_added = admit(&mut scene);
            assert!(is_added, "seed {seed}");
        }
        // What the newest checkpoint lies in is nobody else's.
        for segment in scene.pool.newest().segments {
            let used = scene.pool.lock().state.segments.get(segment).used;
            assert_eq!(used, crate::segments::Use::Map, "seed {seed}");
        }
        scene.after = Some(vec![0, 1]);
        if is_added {
            scene.members = vec![0, 1];
            scene.burst("plain").expect("power");
        }
        scene.interrupt(seed);
    }
}

#[test]
fn an_operation_that_fails_loses_nothing_that_was_acknowledged() {
    for seed in 2000..2050 {
        let mut dice = Dice::new(seed);
        let mut scene = Scene::create(seed, 1, false);
        let trouble = if seed % 2 == 0 {
            Trouble::Fails
        } else {
            Trouble::IsFull
        };
        let at = scene.rig.disks.done + dice.below(300);
        scene.rig.disks.trouble = Some((at, trouble));
        while scene.rig.disks.done < at + 100 && scene.step().is_some() {}
        scene.rig.disks.trouble = None;
        scene = scene.interrupt(seed);
        for _ in 0..10 {
            scene.step().expect("power");
        }
        scene.interrupt(seed + 1);
    }
}

/// What becomes of damage.
#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    unreadable: u32,
    nothing: u32,
}

/// Damages a place of the drives after a history, and reads everything: what is found is right, or an error.
fn damage(seed: u64, seen: &mut Seen, change: impl Fn(&mut Dice, &mut Scene)) {
    let mut dice = Dice::new(seed ^ 0xda_3a6e);
    let mut scene = Scene::create(seed, 1, false);
    for _ in 0..30 {
        scene.step().expect("power");
    }
    // Flushed, and known to be so by a record that comes after.
    let flushed = scene
        .execute("plain", Request::new(Operation::Flush))
        .expect("power");
    flushed.result.expect("a flush");
    scene.write("plain", BLOCKS - 8, 8, false).expect("power");
    change(&mut dice, &mut scene);
    let Scene {
        rig,
        pool,
        open,
        model,
        members,
        ..
    } = scene;
    let disks = rig.into_disks();
    drop((open, pool));
    let mut rig = Rig::new(disks.kill(seed));
    let drives = chosen(&rig.disks, &members);
    let opened = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
    let pool = match opened.expect("power") {
        Ok(pool) => pool,
        Err(
            PoolError::Damaged { .. } | PoolError::RecordLost { .. } | PoolError::NoPool { .. },
        ) => {
            seen.refused += 1;
            return;
        }
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let mut scene = Scene {
        rig,
        pool,
        open: BTreeMap::new(),
        model: Model::default(),
        dice,
        value: 0,
        pending: Vec::new(),
        is_cut: false,
        is_busy: false,
        is_write_through: false,
        is_mirror: false,
        written: BTreeMap::new(),
        members,
        after: None,
    };
    let volumes = model.volumes.into_iter();
    let snapshots = model
        .snapshots
        .into_iter()
        .map(|((volume, name), blocks)| (format!("{volume}@{name}"), blocks));
    let mut unreadable = 0;
    for (name, blocks) in volumes.chain(snapshots) {
        scene.take(&name);
        for first in (0..BLOCKS).step_by(8) {
            match scene.read(&name, first, 8) {
                Ok(values) => {
                    for (block, value) in (first..).zip(values) {
                        // The last write was not flushed.
                        let is_right =
                            blocks.allows(block, value) || (block >= BLOCKS - 8 && value == 0);
                        assert!(
                            is_right,
                            "seed {seed}: {name}, block {block}: {value}, not {blocks:?}"
                        );
                    }
                }
                Err(_) => unreadable += 1,
            }
        }
        scene.open.remove(&name);
    }
    seen.unreadable += u32::from(unreadable > 0);
    seen.nothing += u32::from(unreadable == 0);
}

/// A place of a drive that holds something.
fn used_place(dice: &mut Dice, scene: &Scene) -> usize {
    let contents = scene.rig.disks.contents(0);
    loop {
        let sector = usize::try_from(dice.below((DRIVE / BLOCK) as u64)).expect("it fits");
        let bytes = &contents[sector * BLOCK..(sector + 1) * BLOCK];
        if bytes.iter().any(|byte| *byte != 0) {
            return sector * BLOCK;
        }
    }
}

fn damage_places(seeds: std::ops::Range<u64>) -> Seen {
    let mut seen = Seen::default();
    for seed in seeds {
        damage(seed, &mut seen, |dice, scene| {
            let at = used_place(dice, scene);
            match seed % 4 {
                0 => {
                    let byte = at + usize::try_from(dice.below(512)).expect("small");
                    let bit = 1 << dice.below(8);
                    let disks = &mut scene.rig.disks;
                    disks.damage(0, byte..byte + 1, |bytes| bytes[0] ^= bit);
                }
                1 => scene
                    .rig
                    .disks
                    .damage(0, at..at + 512, |bytes| bytes.fill(0)),
                // A misdirected write, or what was there before.
                2 => {
                    let from = used_place(dice, scene);
                    let copy = scene.rig.disks.contents(0)[from..from + 512].to_vec();
                    let disks = &mut scene.rig.disks;
                    disks.damage(0, at..at + 512, |bytes| bytes.copy_from_slice(&copy));
                }
                _ => {
                    let at = at / 4096 * 4096;
                    let disks = &mut scene.rig.disks;
                    disks.damage(0, at..at + 4096, |bytes| bytes.fill(0xa5));
                }
            }
        });
    }
    seen
}

#[test]
fn damage_is_an_error_and_never_another_block_or_an_older_version() {
    let seen = damage_places(3000..3100);
    assert!(seen.unreadable > 0 && seen.nothing > 0, "{seen:?}");
    plant(Some(Planted::NoChecksum));
    let result = std::panic::catch_unwind(|| damage_places(3000..3100));
    plant(None);
    assert!(result.is_err(), "without checksums it is not noticed");
}

#[test]
fn a_write_that_the_drive_lost_is_an_error_and_never_an_older_version() {
    let mut seen = Seen::default();
    for seed in 4000..4100 {
        let mut dice = Dice::new(seed);
        let at = dice.below(100);
        damage(seed, &mut seen, |_, scene| {
            scene.rig.disks.trouble = Some((scene.rig.disks.done + at % 12, Trouble::IsLost));
            for _ in 0..3 {
                scene.write("packed", 64, 16, false).expect("power");
                scene.write("plain", 0, 64, true).expect("power");
            }
            let flushed = scene.execute("plain", Request::new(Operation::Flush));
            flushed.expect("power").result.expect("a flush");
            scene.rig.disks.trouble = None;
            scene.write("plain", BLOCKS - 8, 8, false).expect("power");
        });
    }
    assert!(seen.unreadable + seen.refused > 0, "{seen:?}");
}

/// A full pool, hosts that go on writing, and deletions that would make room: all of it ends.
#[test]
fn deletions_of_a_full_pool_and_writes_do_not_wait_for_each_other() {
    for seed in 5000..5010 {
        let mut scene = Scene::create(seed, 1, false);
        let pages = 1 << 20 >> 12;
        let extents = (0..64).map(|number| Extent::new(number * pages % (SIZE / 512 - pages), 256));
        let extents: Vec<Extent> = extents.collect();
        scene.snapshot("plain").expect("power");
        for round in 0..6 {
            let volume = scene.open["plain"].clone();
            let requests = extents.iter().map(|extent| {
                let mut request = Request::new(Operation::Write {
                    extent: *extent,
                    fua: round % 2 == 0,
                });
                request.end = 256 * BLOCK;
                request.buffer = Some(Buffer::allocate(request.end));
                request
            });
            let requests: Vec<Request> = requests.collect();
            let (pool, name) = (scene.pool.clone(), format!("r{round}"));
            let ended = scene.rig.run(|io| async move {
                let writes = requests
                    .into_iter()
                    .map(|request| volume.clone().execute(request, io.clone()));
                let changes = async {
                    let both = ["plain".to_owned(), "packed".to_owned()];
                    let made = pool.snapshot(&io, &name, &both).await;
                    let gone = pool.delete_snapshot(&io, "plain", &name).await;
                    (made, gone)
                };
                let writes = futures_util::future::join_all(writes);
                futures_util::future::join(writes, changes).await
            });
            let (ended, (made, gone)) = ended.expect("all of it ends");
            assert!(made.is_err() || gone.is_ok(), "{made:?}, {gone:?}");
            for ended in ended {
                let result = ended.result;
                let is_expected =
                    matches!(result, Ok(_) | Err(longshore_volume::VolumeError::NoSpace));
                assert!(is_expected, "{result:?}");
            }
        }
    }
}

#[test]
fn an_event_loop_ends_only_after_what_it_writes_for_others() {
    let mut rig = Rig::new(Disks::new(&[DRIVE], 1));
    let drives = rig.disks.drives();
    let made = rig.run(|io| async move { create_on(&io, "tank", drives, false).await });
    let pool = made.expect("power").expect("a pool");
    let spec = VolumeSpec {
        size: Some(SIZE),
        ..VolumeSpec::new("disk0", POOL)
    };
    let new = NewVolume {
        name: "disk0".into(),
        size: SIZE,
        block_size: 512,
        codec: Codec::Raw,
        quota: None,
        reserve: 0,
        id: None,
    };
    let owner = pool.clone();
    let made = rig.run(|io| async move { owner.create_volume(&io, new).await });
    made.expect("power").expect("a volume");
    let volume = pool.open_volume(&spec).expect("a volume");
    rig.run(|io| {
        let volume = volume.clone();
        async move { volume.attach(&io) }
    });
    assert_eq!(rig.under_way(), 0);
    let mut request = Request::new(Operation::Write {
        extent: Extent::new(0, 8),
        fua: false,
    });
    request.end = 8 * BLOCK;
    request.buffer = Some(Buffer::allocate(request.end));
    // As if somebody on another event loop waited for it.
    let writer = volume.clone();
    rig.begin(|io| async move { drop(writer.execute(request, io).await) });
    assert!(rig.under_way() > 0);
    let ended = rig.run(|io| volume.quiesce(io)).expect("power");
    assert!(ended.result.is_ok());
    assert_eq!(rig.under_way(), 0, "the loop may end now");
    let _executor = rig.into_disks();
    assert!(!pool.is_poisoned());
}
