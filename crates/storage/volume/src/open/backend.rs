//! What opens volumes of one kind.

use std::sync::Arc;

use super::error::OpenError;
use super::name::BackendName;
use super::spec::VolumeSpec;
use crate::volume::Volume;

/// What makes volumes: the factory of one kind of them.
pub trait Backend: Send + Sync {
    fn name(&self) -> BackendName;

    /// Whether its volumes have a path, and O_DIRECT there.
    fn has_path(&self) -> bool {
        false
    }

    /// Checks what the specification alone can show. Name, block size, size and serial number have been
    /// checked.
    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        spec.refuse_options()
    }

    /// Finds what would keep the volume from being opened. Opens nothing, creates nothing, and asks no
    /// other machine.
    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError>;

    /// Opens the volume, or creates it. May block.
    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError>;
}

/// A volume that was opened.
pub struct Opened {
    pub volume: Arc<dyn Volume>,
    /// Whether its file was not there before. As long as the volume is open, nobody else writes to it.
    pub created: bool,
}

impl Opened {
    /// One that was there before.
    #[must_use]
    pub fn existing(volume: Arc<dyn Volume>) -> Self {
        Self {
            volume,
            created: false,
        }
    }
}
