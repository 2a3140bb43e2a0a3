//! The backends that a program has, and the way from what the operator wrote to an open volume.

use std::sync::Arc;

use crate::identity;
use crate::layer::slow::SlowVolume;
use crate::open::{Backend, BackendName, OpenError, Opened, VolumeSpec, check_size};
use crate::physical_block::physical_block_size;
use crate::volume::Volume;

mod local;
mod survey;

/// The backends that a program has.
pub struct Backends(Vec<Box<dyn Backend>>);

impl Backends {
    /// Those for storage of this machine: `null`, `mem`, `file` and `block`.
    #[must_use]
    pub fn local() -> Self {
        Self(local::all())
    }

    /// Adds one.
    ///
    /// # Panics
    /// When one of that name is there.
    pub fn register(&mut self, backend: Box<dyn Backend>) {
        let name = backend.name();
        assert!(self.find(name.as_str()).is_none(), "two backends {name}");
        self.0.push(backend);
    }

    /// The name of the backend that is called so.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<BackendName> {
        self.names().find(|known| known.as_str() == name)
    }

    /// All names, in the order in which they were registered.
    pub fn names(&self) -> impl Iterator<Item = BackendName> {
        self.0.iter().map(|backend| backend.name())
    }

    /// Opens a volume, creating a file that is missing when a size is given. May block.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        let mut opened = self.checked(spec)?.open(spec)?;
        if let Some(throttle) = opened.volume.throttle() {
            throttle.set(&spec.limits);
        }
        if spec.slow.any() {
            opened.volume = Arc::new(SlowVolume::new(opened.volume, spec.slow));
        }
        Ok(opened)
    }

    /// Finds what would keep the volume from being opened: a missing file, device or directory, missing
    /// permissions, a size that does not fit. Opens nothing and creates nothing.
    ///
    /// # Errors
    /// The first obstacle, in the words of [`Self::open`].
    pub fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        self.checked(spec)?.survey(spec)
    }

    fn checked(&self, spec: &VolumeSpec) -> Result<&dyn Backend, OpenError> {
        let backend = self.0.iter().find(|known| known.name() == spec.backend);
        let backend = backend.ok_or_else(|| OpenError::UnknownBackend {
            name: spec.name.clone(),
            backend: spec.backend,
        })?;
        check(spec, &**backend)?;
        Ok(&**backend)
    }
}

/// Backends whose volumes are a device of known times where they are made slow; others have times of their own.
fn can_be_slow(backend: BackendName) -> bool {
    [BackendName::NULL, BackendName::MEM, BackendName::FILE].contains(&backend)
}

/// What can be told without looking at the backing object.
fn check(spec: &VolumeSpec, backend: &dyn Backend) -> Result<(), OpenError> {
    if !matches!(spec.block_size, 512 | 4096) {
        return Err(OpenError::BlockSize {
            name: spec.name.clone(),
            found: spec.block_size,
        });
    }
    if spec.path.is_some() && !backend.has_path() {
        return Err(spec.misplaced("path"));
    }
    if spec.direct && !backend.has_path() {
        return Err(spec.misplaced("direct"));
    }
    if spec.slow.any() && !can_be_slow(spec.backend) {
        let option = match spec.slow.rate {
            Some(_) if spec.slow.delay.is_zero() => "rate",
            _ => "delay",
        };
        return Err(spec.misplaced(option));
    }
    backend.check(spec)?;
    physical_block_size(spec, spec.block_size, spec.block_size)?;
    identity::checked(spec)?;
    match spec.size {
        Some(size) => check_size(&spec.name, size, spec.block_size),
        None => Ok(()),
    }
}

/// Opens a volume of a [local](Backends::local) backend.
///
/// # Errors
/// What is wrong, and what to do about it.
pub fn open(spec: &VolumeSpec) -> Result<Arc<dyn Volume>, OpenError> {
    Backends::local().open(spec).map(|opened| opened.volume)
}

#[cfg(test)]
mod tests;
