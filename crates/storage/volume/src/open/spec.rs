//! What the operator wrote about a volume.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_block::names::WorldwideNames;
use uuid::Uuid;

use super::error::OpenError;
use super::name::BackendName;
use crate::layer::slow::SlowSpec;
use crate::machine_id::MachineId;
use crate::medium::InlineWrites;
use crate::throttle::RateLimits;

/// Options that one backend alone understands.
pub trait BackendOptions: Any + fmt::Debug + Send + Sync {
    /// The first option that was given, by its name in the configuration.
    fn first_given(&self) -> Option<&'static str>;
}

/// A volume as the operator describes it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// What it is called.
    pub name: String,
    pub backend: BackendName,
    /// The file or device; for `file` and `block` only.
    pub path: Option<PathBuf>,
    /// Bytes. `null` and `mem` need it; a file is created with it, or grown to it; a block device
    /// has its own size.
    pub size: Option<u64>,
    /// 512 or 4096. A volume of another server has its own.
    pub block_size: u32,
    /// Bytes that hosts are told the medium writes in one piece. `None`: what the backend finds.
    pub physical_block_size: Option<u32>,
    /// Writes are refused, and the backing object is opened for reading only.
    pub read_only: bool,
    /// Without the lock that keeps those who write apart from everybody else. For reading alone, by those to whom it does
    /// not matter what they read: measurements.
    pub unlocked: bool,
    /// Bypasses the page cache (O_DIRECT).
    pub direct: bool,
    /// Every write is on the medium when it completes.
    pub write_through: bool,
    /// Unit serial number, up to 64 printable ASCII characters; otherwise the start of the UUID.
    pub serial: Option<String>,
    /// T10 vendor identification, up to 8 printable ASCII characters.
    pub vendor: Option<String>,
    /// Product identification, up to 16 printable ASCII characters.
    pub product: Option<String>,
    /// Worldwide names; otherwise derived from the UUID.
    pub names: WorldwideNames,
    /// Otherwise derived from machine, backend, path and name.
    pub uuid: Option<Uuid>,
    /// The machine in a derived UUID. `None`: this host's own ([`MachineId::of_host`]), and where it
    /// has none the UUID is random, another one each time that the volume is opened.
    pub machine_id: Option<MachineId>,
    /// When buffered writes are made on the reactor itself.
    pub inline_writes: InlineWrites,
    /// What its clients together may do in a second.
    pub limits: RateLimits,
    /// How slow it is to be.
    pub slow: SlowSpec,
    /// Options of its backend alone.
    pub options: Option<Arc<dyn BackendOptions>>,
}

impl VolumeSpec {
    /// A specification with 512-byte blocks and nothing else said.
    pub fn new(name: impl Into<String>, backend: BackendName) -> VolumeSpec {
        VolumeSpec {
            name: name.into(),
            backend,
            path: None,
            size: None,
            block_size: 512,
            physical_block_size: None,
            read_only: false,
            unlocked: false,
            direct: false,
            write_through: false,
            serial: None,
            vendor: None,
            product: None,
            names: WorldwideNames::default(),
            uuid: None,
            machine_id: None,
            inline_writes: InlineWrites::default(),
            limits: RateLimits::default(),
            slow: SlowSpec::default(),
            options: None,
        }
    }

    /// Whether the backing object is locked.
    pub(crate) fn locks(&self) -> bool {
        !(self.unlocked && self.read_only)
    }

    pub(crate) fn required_path(&self) -> Result<&Path, OpenError> {
        self.path.as_deref().ok_or_else(|| OpenError::PathMissing {
            name: self.name.clone(),
            backend: self.backend,
        })
    }

    pub(crate) fn required_size(&self) -> Result<u64, OpenError> {
        self.size.ok_or_else(|| OpenError::SizeMissing {
            name: self.name.clone(),
            backend: self.backend,
        })
    }

    /// The options of its backend, if they are of that type.
    #[must_use]
    pub fn options<T: BackendOptions>(&self) -> Option<&T> {
        let options: &dyn Any = self.options.as_deref()?;
        options.downcast_ref()
    }

    /// The error for an option that means nothing to the backend.
    #[must_use]
    pub fn misplaced(&self, option: &'static str) -> OpenError {
        OpenError::OptionMisplaced {
            name: self.name.clone(),
            backend: self.backend,
            option,
        }
    }

    /// Refuses options of other backends: for those that have none, and those that were given another type of them.
    ///
    /// # Errors
    /// The first option that was given.
    pub fn refuse_options(&self) -> Result<(), OpenError> {
        let options = self.options.as_deref();
        match options.and_then(BackendOptions::first_given) {
            Some(option) => Err(self.misplaced(option)),
            None => Ok(()),
        }
    }
}

/// A size is a positive number of whole blocks.
pub(crate) fn check_size(subject: &str, size: u64, block_size: u32) -> Result<(), OpenError> {
    if size == 0 {
        return Err(OpenError::SizeZero {
            subject: subject.to_owned(),
        });
    }
    if !size.is_multiple_of(u64::from(block_size)) {
        return Err(OpenError::SizeNotMultiple {
            subject: subject.to_owned(),
            size,
            block_size,
            next: size
                .checked_next_multiple_of(u64::from(block_size))
                .unwrap_or(size),
        });
    }
    Ok(())
}
