//! The backend `pool`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use longshore_volume::open::{Backend, BackendOptions, Opened};
use longshore_volume::{BackendName, InlineWrites, OpenError, Outline, VolumeSpec, identify};
use uuid::Uuid;

use crate::error::PoolError;
use crate::open::read_label;
use crate::place::Codec;
use crate::pool::{NewVolume, Pool};
use crate::settings::VolumeSettings;
use crate::volume::PoolVolume;

/// The name of the backend.
pub const POOL: BackendName = BackendName::new("pool");

/// Options of a volume of a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// A drive of the pool; the others are found by their names in `drives`.
    pub drives: Vec<PathBuf>,
    /// What the volume is called in the pool; `None`: what it is called outside.
    pub volume: Option<String>,
    /// `None`: none for a volume that is made, and what it has for one that is there. The same of those below.
    pub compression: Option<Codec>,
    /// Bytes that it and its snapshots may take; 0: no limit.
    pub quota: Option<u64>,
    /// 0: none; [`RESERVE_FULL`](crate::RESERVE_FULL): its size.
    pub reserve: Option<u64>,
}

impl PoolOptions {
    /// What is said of settings that can change.
    #[must_use]
    pub const fn settings(&self) -> VolumeSettings {
        VolumeSettings {
            codec: self.compression,
            quota: self.quota,
            reserve: self.reserve,
        }
    }
}

impl BackendOptions for PoolOptions {
    fn first_given(&self) -> Option<&'static str> {
        if !self.drives.is_empty() {
            Some("pool")
        } else if self.volume.is_some() {
            Some("pool-volume")
        } else if self.compression.is_some() {
            Some("compression")
        } else if self.quota.is_some() {
            Some("quota")
        } else if self.reserve.is_some() {
            Some("reserve")
        } else {
            None
        }
    }
}

/// The factory of volumes of pools. Volumes of one pool share it while any of them is open; clones know the same pools.
#[derive(Clone, Debug, Default)]
pub struct PoolBackend {
    open: Arc<Mutex<Vec<Weak<Pool>>>>,
}

impl PoolBackend {
    /// The pool on these drives: the one that is open, or else it is opened. Blocks.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn pool(&self, drives: &[PathBuf], is_direct: bool) -> Result<Arc<Pool>, PoolError> {
        let mut open = self.lock();
        open.retain(|pool| pool.strong_count() > 0);
        let known: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
        if let Some(pool) = Pool::of_drives(&known, drives) {
            return Ok(pool);
        }
        let pool = Pool::open(drives, is_direct, false)?;
        open.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Pool>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pools that are open, by name.
    pub fn open_pools(&self) -> Vec<Arc<Pool>> {
        let mut pools: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        pools.sort_by(|a, b| a.name().cmp(b.name()));
        pools
    }

    fn options<'a>(&self, spec: &'a VolumeSpec) -> Result<&'a PoolOptions, OpenError> {
        let options = spec.options::<PoolOptions>();
        let options = options.filter(|options| !options.drives.is_empty());
        options.ok_or_else(|| {
            backend_error(PoolError::PoolMissing {
                volume: spec.name.clone(),
            })
        })
    }
}

fn backend_error(error: PoolError) -> OpenError {
    match error {
        PoolError::Open(error) => error,
        error => OpenError::Backend(Box::new(error)),
    }
}

impl Backend for PoolBackend {
    fn name(&self) -> BackendName {
        POOL
    }

    /// For `direct`; a volume of a pool has no path of its own.
    fn has_path(&self) -> bool {
        true
    }

    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        if spec.options::<PoolOptions>().is_none() {
            spec.refuse_options()?;
        }
        if spec.path.is_some() {
            return Err(spec.misplaced("path"));
        }
        if spec.inline_writes != InlineWrites::default() {
            return Err(spec.misplaced("inline-writes"));
        }
        self.options(spec).map(drop)
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        let options = self.options(spec)?;
        let mut is_mirrored = false;
        let mut away = None;
        for path in &options.drives {
            match read_label(path) {
                Ok(label) => is_mirrored |= label.drives.iter().any(|it| it.mirror.is_some()),
                Err(
                    error @ (PoolError::Io { .. }
                    | PoolError::NoPool { .. }
                    | PoolError::Damaged { .. }),
                ) => away = away.or(Some(error)),
                Err(error) => return Err(backend_error(error)),
            }
        }
        match away {
            // Whether the pool can do without it is seen when it is opened.
            Some(error) if !is_mirrored => Err(backend_error(error)),
            _ => Ok(()),
        }
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        let options = self.options(spec)?;
        let pool = self
            .pool(&options.drives, spec.direct)
            .map_err(backend_error)?;
        let is_snapshot = |name: &String| name.contains('@');
        if options.volume.as_ref().is_some_and(is_snapshot) {
            pool.wait_until_settled();
        }
        open_volume(&pool, spec, options).map_err(backend_error)
    }
}

/// Opens a volume of a pool that is open, or makes it when a size is given. Blocks.
fn open_volume(
    pool: &Arc<Pool>,
    spec: &VolumeSpec,
    options: &PoolOptions,
) -> Result<Opened, PoolError> {
    let name = options.volume.clone().unwrap_or_else(|| spec.name.clone());
    let is_snapshot = name.contains('@');
    let mut created = false;
    let present = pool.size_of(&name);
    match (spec.size, present) {
        (Some(size), None) if !is_snapshot && !spec.read_only => {
            let new = NewVolume {
                name: name.clone(),
                size,
                block_size: spec.block_size,
                codec: options.compression.unwrap_or_default(),
                quota: options.quota.filter(|quota| *quota > 0),
                reserve: options.reserve.unwrap_or(0),
                id: spec.uuid,
            };
            pool.run(|pool, io| async move { pool.create_volume(&io, new).await })?;
            created = true;
        }
        (Some(size), Some(present)) if size > present && !spec.read_only => {
            let name = name.clone();
            pool.run(move |pool, io| async move { pool.resize(&io, &name, size, false).await })?;
        }
        (Some(asked), Some(present)) if asked != present => {
            return Err(PoolError::Larger {
                volume: name,
                present,
                asked,
            });
        }
        _ => {}
    }
    let settings = options.settings();
    if !created && !is_snapshot && !spec.read_only && settings != VolumeSettings::default() {
        let name = name.clone();
        pool.run(move |pool, io| async move { pool.set(&io, &name, settings).await })?;
    }
    let volume = take(pool, spec, &name)?;
    Ok(Opened {
        volume: Arc::new(volume),
        created,
    })
}

fn take(pool: &Arc<Pool>, spec: &VolumeSpec, name: &str) -> Result<PoolVolume, PoolError> {
    let (slot, record) = pool.take_volume(name)?;
    let outline = |id: Uuid| {
        let spec = VolumeSpec {
            uuid: Some(spec.uuid.unwrap_or(id)),
            ..spec.clone()
        };
        let identity = identify(&spec, None)?;
        Ok::<_, PoolError>(Outline::new(identity, record.block_size, record.size))
    };
    let outline = outline(record.id).inspect_err(|_| pool.give_back_volume(slot))?;
    if record.block_size != spec.block_size {
        pool.give_back_volume(slot);
        return Err(PoolError::BlockSize {
            volume: name.to_owned(),
            present: record.block_size,
            asked: spec.block_size,
        });
    }
    Ok(PoolVolume {
        pool: pool.clone(),
        slot,
        name: name.to_owned(),
        outline,
        settings: pool.shared_settings(slot),
        is_read_only: spec.read_only || name.contains('@'),
        write_through: spec.write_through,
    })
}

impl Pool {
    /// Opens a volume of the pool, or a snapshot (`volume@snapshot`), as a volume of that specification. Blocks.
    ///
    /// # Errors
    /// There is no such volume, or somebody has it open.
    pub fn open_volume(
        self: &Arc<Self>,
        spec: &VolumeSpec,
    ) -> Result<Arc<dyn longshore_volume::Volume>, PoolError> {
        let options = spec.options::<PoolOptions>().cloned().unwrap_or_default();
        open_volume(self, spec, &options).map(|opened| opened.volume)
    }
}
