//! Both ends of a copy.

use super::error::CopyError;
use super::job::{Changes, Job};
use crate::endpoint::{EndpointError, Opened};

/// Both ends, open and found to fit.
pub(super) struct Ends {
    pub(super) source: Opened,
    pub(super) destination: Opened,
    pub(super) size: u64,
}

impl Ends {
    pub(super) fn open(job: &Job) -> Result<Self, CopyError> {
        let direct = job.settings.direct;
        if job.source.is_same_file(&job.destination) {
            return Err(CopyError::SameFile {
                source_name: job.source.to_string(),
                destination: job.destination.to_string(),
            });
        }
        let source = Opened::source(&job.source, &job.source_options, direct)?;
        let size = source.size_bytes();
        if let Some(changes) = &job.changes {
            check_changes(job, changes, &source)?;
        }
        let options = &job.destination_options;
        let destination = Opened::destination(&job.destination, options, size, direct)
            .map_err(|error| refused(error, job.settings.resume))?;
        if !job.settings.force && source.is_same_volume(&destination) {
            return Err(CopyError::SameVolume {
                source_name: job.source.to_string(),
                destination: job.destination.to_string(),
            });
        }
        Ok(Self {
            source,
            destination,
            size,
        })
    }
}

/// The changes are those of this source, and there is something that they are changes of.
fn check_changes(job: &Job, changes: &Changes, source: &Opened) -> Result<(), CopyError> {
    if !source.has_uuid(changes.source) || source.size_bytes() != changes.size {
        return Err(CopyError::OtherSnapshot {
            source_name: job.source.to_string(),
        });
    }
    if job.destination.is_missing() {
        return Err(CopyError::NoOlderCopy {
            destination: job.destination.to_string(),
        });
    }
    Ok(())
}

/// Why a destination was refused. A file that is too short need only be extended, but not before
/// `--resume`: the end of the earlier copy is lost.
fn refused(error: EndpointError, resume: bool) -> CopyError {
    match error {
        EndpointError::TooSmall {
            path: Some(path),
            available,
            needed,
            ..
        } if resume => CopyError::CutShort {
            path,
            available,
            needed,
        },
        other => other.into(),
    }
}
