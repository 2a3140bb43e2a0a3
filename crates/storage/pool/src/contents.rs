//! What a pool holds, and how much of it is used.

use uuid::Uuid;

use crate::format::op::VolumeRecord;
use crate::format::record::LayerId;
use crate::log::Inner;
use crate::place::Codec;
use crate::pool::Pool;
use crate::room::FULL;
use crate::segments::Use;

/// A volume of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub id: Uuid,
    /// How long hosts see it, in bytes.
    pub size: u64,
    pub block_size: u32,
    pub codec: Codec,
    /// Bytes that it and its snapshots may take.
    pub quota: Option<u64>,
    /// Bytes that are kept for it.
    pub reserve: Option<Reserve>,
    /// Bytes of the pool that deleting it would free.
    pub owned: u64,
    /// Bytes of the pool that it shares with snapshots.
    pub shared: u64,
    /// Whether somebody has it open.
    pub is_open: bool,
    pub snapshots: Vec<ListedSnapshot>,
}

/// Space that is kept for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    pub bytes: u64,
    /// It follows the size of the volume.
    pub is_full: bool,
}

impl Reserve {
    fn of(volume: &VolumeRecord) -> Option<Self> {
        (volume.reserve > 0).then(|| Self {
            bytes: volume.reserve.min(volume.size),
            is_full: volume.reserve == FULL,
        })
    }
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSnapshot {
    pub name: String,
    pub id: Uuid,
    /// How long it was, in bytes.
    pub size: u64,
    /// Bytes of its own layer; those that a newer snapshot or the volume has written anew are freed with it.
    pub owned: u64,
    pub is_open: bool,
    /// Volume that it was made of, when that is gone.
    pub origin: String,
}

/// The space of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of all segments together.
    pub size: u64,
    /// Data that there is room for.
    pub capacity: u64,
    /// Data that is there, compressed.
    pub used: u64,
    /// What is kept for volumes with reserved space, beside the data that they have.
    pub kept: u64,
    /// Segments that can be written, now or after the next checkpoint.
    pub free_segments: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    /// What hosts have written since the pool was opened, and what that took on the drives.
    pub host_bytes: u64,
    pub record_bytes: u64,
    /// Memory that the maps take.
    pub map_bytes: u64,
}

impl Pool {
    /// All volumes, by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<Listed> {
        let inner = self.lock();
        let is_open = |name: &str| inner.open.iter().any(|(_, open)| open.name == name);
        let catalog = &inner.state.catalog;
        let list = catalog.volumes.values().map(|volume| {
            let chain = catalog.chain(volume.head);
            let owned = owned(&inner, volume.head);
            let all: u64 = chain.iter().map(|layer| self::owned(&inner, *layer)).sum();
            Listed {
                name: volume.name.clone(),
                id: volume.id,
                size: volume.size,
                block_size: volume.block_size,
                codec: volume.codec,
                quota: (volume.quota > 0).then_some(volume.quota),
                reserve: Reserve::of(volume),
                owned,
                shared: all - owned,
                is_open: is_open(&volume.name),
                snapshots: snapshots_of(&inner, &volume.name),
            }
        });
        list.collect()
    }

    /// Snapshots whose volumes were deleted.
    #[must_use]
    pub fn orphans(&self) -> Vec<ListedSnapshot> {
        let inner = self.lock();
        let catalog = &inner.state.catalog;
        let origins = catalog.snapshots.keys().map(|(origin, _)| origin);
        let mut gone: Vec<&String> = origins
            .filter(|origin| !catalog.volumes.contains_key(*origin))
            .collect();
        gone.dedup();
        gone.into_iter()
            .flat_map(|origin| snapshots_of(&inner, origin))
            .collect()
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        let inner = self.lock();
        let segments = &inner.state.segments;
        let spare = segments
            .iter()
            .filter(|(_, found)| matches!(found.used, Use::Free | Use::Ready))
            .count()
            + segments.reusable().count();
        Usage {
            size: u64::from(segments.usable()) * segments.bytes(),
            capacity: inner.room.capacity,
            used: inner.state.used(),
            kept: inner.room.kept(&inner.state),
            free_segments: crate::format::long(spare),
            segments: u64::from(segments.usable()),
            segment_bytes: segments.bytes(),
            host_bytes: inner.host_bytes,
            record_bytes: inner.record_bytes,
            map_bytes: crate::format::long(
                inner.state.catalog.cache.resident * size_of::<crate::leaf::Leaf>(),
            ),
        }
    }

    /// Bytes that a volume and its snapshots take.
    pub(crate) fn owned_by(&self, volume: &str) -> u64 {
        let inner = self.lock();
        let catalog = &inner.state.catalog;
        let head = catalog.volumes.get(volume).map(|volume| volume.head);
        let snapshots = catalog
            .snapshots
            .range((volume.to_owned(), String::new())..)
            .take_while(|((of, _), _)| of == volume)
            .map(|(_, snapshot)| snapshot.shape.head);
        head.into_iter()
            .chain(snapshots)
            .map(|layer| owned(&inner, layer))
            .sum()
    }

    /// Bytes that a volume is long.
    pub(crate) fn size_of(&self, volume: &str) -> Option<u64> {
        let inner = self.lock();
        let found = inner.state.catalog.volumes.get(volume);
        found.map(|found| found.size)
    }
}

fn owned(inner: &Inner, layer: LayerId) -> u64 {
    let found = inner.state.catalog.layers.get(&layer);
    found.map_or(0, |layer| layer.map.owned())
}

fn snapshots_of(inner: &Inner, volume: &str) -> Vec<ListedSnapshot> {
    let catalog = &inner.state.catalog;
    let range = catalog
        .snapshots
        .range((volume.to_owned(), String::new())..)
        .take_while(|((of, _), _)| of == volume);
    let list = range.map(|((_, name), snapshot)| {
        let full = crate::pool::snapshot_name(volume, name);
        ListedSnapshot {
            name: name.clone(),
            id: snapshot.shape.id,
            size: snapshot.shape.size,
            owned: owned(inner, snapshot.shape.head),
            is_open: inner.open.iter().any(|(_, open)| open.name == full),
            origin: volume.to_owned(),
        }
    });
    list.collect()
}
