//! The drives that a pool lies on now. They change while it is open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use uuid::Uuid;

use crate::drive::{Drive, SideState};
use crate::format::superblock::{DriveEntry, MIRRORS, Mirror, REMOVED_DRIVES, Superblock};
use crate::place::Place;

/// What all superblocks of a pool say, and never changes.
#[derive(Clone, Debug)]
pub struct Label {
    pub pool: Uuid,
    pub name: String,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes that records are aligned to: 512 or 4096.
    pub unit: u32,
    pub incompatible: u64,
    pub read_only_compatible: u64,
}

impl Label {
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            pool: superblock.pool,
            name: superblock.name.clone(),
            segment_bytes: superblock.segment_bytes,
            unit: superblock.unit,
            incompatible: superblock.incompatible,
            read_only_compatible: superblock.read_only_compatible,
        }
    }

    /// A superblock of a drive; it names no checkpoint yet.
    pub fn superblock(&self, present: &Present, drive: u8) -> Superblock {
        let has_removed = present.entries.iter().any(DriveEntry::is_removed);
        let removed = if has_removed { REMOVED_DRIVES } else { 0 };
        let has_mirrors = present.entries.iter().any(|entry| entry.mirror.is_some());
        let mirrors = if has_mirrors { MIRRORS } else { 0 };
        Superblock {
            incompatible: self.incompatible & !LISTED | removed | mirrors,
            read_only_compatible: self.read_only_compatible,
            pool: self.pool,
            name: self.name.clone(),
            drive,
            side: 0,
            drives: present.entries.clone(),
            segment_bytes: self.segment_bytes,
            unit: self.unit,
            number: 0,
            checkpoint: Place::default(),
            checkpoint_number: 0,
            checkpoint_record: 0,
        }
    }
}

/// Features that the list of drives has or has not.
pub const LISTED: u64 = REMOVED_DRIVES | MIRRORS;

/// Drives by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Present {
    pub entries: Vec<DriveEntry>,
    /// `None`: it was removed.
    pub drives: Vec<Option<Arc<Drive>>>,
}

impl Present {
    /// The drives that are there, with their numbers.
    pub fn each(&self) -> impl Iterator<Item = (u8, &Arc<Drive>)> {
        let numbered = (0_u8..).zip(&self.drives);
        numbered.filter_map(|(number, drive)| Some((number, drive.as_ref()?)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.drives.iter().flatten().count()
    }

    /// The same, with the sides of mirrors that are stale now.
    pub fn as_they_are(&self) -> Self {
        let mut now = self.clone();
        for (entry, drive) in now.entries.iter_mut().zip(&self.drives) {
            if let (Some(mirror), Some(drive)) = (&mut entry.mirror, drive) {
                mirror.stale = drive.stale();
            }
        }
        now
    }

    /// Where a side lies that superblocks call current, and is not.
    pub fn newly_stale(&self) -> Option<PathBuf> {
        self.entries
            .iter()
            .zip(&self.drives)
            .find_map(|(entry, drive)| {
                let drive = drive.as_ref()?;
                let stale = drive.stale()?;
                let is_known = entry.mirror?.stale == Some(stale);
                (!is_known).then(|| drive.side(stale).map(|side| side.path.clone()))?
            })
    }

    /// Has a side be listed as current that is being filled still, and has everything.
    pub fn list_current(&mut self, number: u8, side: u8) {
        let place = usize::from(number);
        if let (Some(entry), Some(Some(drive))) =
            (self.entries.get_mut(place), self.drives.get(place))
            && drive.state(side) == SideState::Filling
            && let Some(mirror) = &mut entry.mirror
        {
            mirror.stale = None;
        }
    }

    /// Whether superblocks take a side for current that is not, or the other way round.
    fn is_unmarked(&self) -> bool {
        let mut listed = self.entries.iter().zip(&self.drives);
        listed.any(|(entry, drive)| match (entry.mirror, drive) {
            (Some(mirror), Some(drive)) => mirror.stale != drive.stale(),
            (None, _) | (_, None) => false,
        })
    }

    /// The number of the drive, and of its side, that lies there.
    pub fn find(&self, is_it: impl Fn(&Path) -> bool) -> Option<(u8, u8)> {
        self.each().find_map(|(number, drive)| {
            let mut sides = drive.sides();
            let (side, _) = sides.find(|(_, side)| is_it(&side.path))?;
            Some((number, side))
        })
    }

    /// The drives as they are with another in place of one.
    pub fn instead(&self, number: u8, entry: DriveEntry, drive: Drive) -> Self {
        let mut instead = self.clone();
        let place = usize::from(number);
        instead.entries[place] = entry;
        instead.drives[place] = Some(Arc::new(drive));
        instead
    }

    /// The drives as they are with another one behind them.
    pub fn with(&self, entry: DriveEntry, drive: Drive) -> Self {
        let mut with = self.clone();
        with.entries.push(entry);
        with.drives.push(Some(Arc::new(drive)));
        with
    }

    /// The drives as they are without one.
    pub fn without(&self, number: u8) -> Self {
        let mut without = self.clone();
        let place = usize::from(number);
        if let Some(entry) = without.entries.get_mut(place) {
            entry.id = Uuid::nil();
            entry.mirror = None;
            without.drives[place] = None;
        }
        // Numbers behind the last drive can be used again.
        while without.drives.last().is_some_and(Option::is_none) {
            without.drives.pop();
            without.entries.pop();
        }
        without
    }
}

/// The present drives of a pool, for all who use it.
#[derive(Debug, Default)]
pub struct Members {
    present: RwLock<Present>,
    /// Whole paths of those that were removed.
    removed: Mutex<Vec<PathBuf>>,
    /// Whole paths that were named when the pool was opened, and are those of sides that are missing.
    absent: Mutex<Vec<PathBuf>>,
}

impl Members {
    pub fn new(present: Present) -> Self {
        Self {
            present: RwLock::new(present),
            removed: Mutex::default(),
            absent: Mutex::default(),
        }
    }

    pub fn present(&self) -> Present {
        self.read().clone()
    }

    pub fn set(&self, present: Present) {
        let mut known = self.present.write().unwrap_or_else(PoisonError::into_inner);
        *known = present;
    }

    fn read(&self) -> RwLockReadGuard<'_, Present> {
        self.present.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn removed(&self) -> Vec<PathBuf> {
        let removed = self.removed.lock();
        removed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn note_removed(&self, path: PathBuf) {
        let removed = self.removed.lock();
        removed.unwrap_or_else(PoisonError::into_inner).push(path);
    }

    pub fn absent(&self) -> Vec<PathBuf> {
        let absent = self.absent.lock();
        absent.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn note_absent(&self, path: PathBuf) {
        let absent = self.absent.lock();
        absent.unwrap_or_else(PoisonError::into_inner).push(path);
    }

    /// The drive that a place lies on.
    pub fn drive(&self, place: Place) -> Option<Arc<Drive>> {
        let present = self.read();
        present.drives.get(usize::from(place.drive()))?.clone()
    }

    /// Paths of all sides of all drives that are there.
    pub fn paths(&self) -> Vec<PathBuf> {
        let present = self.read();
        let sides = present.each().flat_map(|(_, drive)| drive.sides());
        sides.map(|(_, side)| side.path.clone()).collect()
    }

    /// Whether superblocks have to be written anew for what became of a side.
    pub fn is_unmarked(&self) -> bool {
        self.read().is_unmarked()
    }

    /// Superblocks say so now.
    pub fn mark(&self, written: &[DriveEntry]) {
        let mut known = self.present.write().unwrap_or_else(PoisonError::into_inner);
        for (entry, written) in known.entries.iter_mut().zip(written) {
            if let (Some(mirror), Some(Mirror { stale, .. })) = (&mut entry.mirror, written.mirror)
            {
                mirror.stale = stale;
            }
        }
    }
}
