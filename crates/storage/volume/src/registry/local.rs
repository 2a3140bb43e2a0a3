//! The backends for storage of this machine.

use std::sync::Arc;

use super::survey;
use crate::backend::{block, file, mem, null};
use crate::open::{Backend, BackendName, OpenError, Opened, VolumeSpec};

pub(super) fn all() -> Vec<Box<dyn Backend>> {
    vec![
        Box::new(Null),
        Box::new(Mem),
        Box::new(File),
        Box::new(Block),
    ]
}

struct Null;
struct Mem;
struct File;
struct Block;

impl Backend for Null {
    fn name(&self) -> BackendName {
        BackendName::NULL
    }

    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        has_no_medium(spec)
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        spec.required_size().map(drop)
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        Ok(Opened::existing(Arc::new(null::NullVolume::open(spec)?)))
    }
}

impl Backend for Mem {
    fn name(&self) -> BackendName {
        BackendName::MEM
    }

    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        has_no_medium(spec)
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        spec.required_size().map(drop)
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        Ok(Opened::existing(Arc::new(mem::MemVolume::open(spec)?)))
    }
}

/// Where nothing outlives the process, no write can be made to.
fn has_no_medium(spec: &VolumeSpec) -> Result<(), OpenError> {
    if spec.write_through {
        return Err(spec.misplaced("write-through"));
    }
    spec.refuse_options()
}

impl Backend for File {
    fn name(&self) -> BackendName {
        BackendName::FILE
    }

    fn has_path(&self) -> bool {
        true
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        survey::file(spec, spec.required_path()?)
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        file::open(spec)
    }
}

impl Backend for Block {
    fn name(&self) -> BackendName {
        BackendName::BLOCK
    }

    fn has_path(&self) -> bool {
        true
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        survey::device(spec, spec.required_path()?)
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        block::open(spec)
    }
}
