//! What can be told of a volume before it is opened, without touching anything: for a check of a
//! configuration.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::backend::block;
use crate::backend::file::{self, open_error};
use crate::medium::backing::Kind;
use crate::open::{OpenError, VolumeSpec};

pub(super) fn file(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return survey_new(spec, path),
        Err(error) => return Err(open_error(spec, path, error)),
    };
    if file::kind_of(path, &metadata)? == Kind::Endless {
        return spec.required_size().map(drop);
    }
    may_open(spec, path)?;
    file::agreed_size(spec, path, metadata.len()).map(drop)
}

/// A file that is not there has to be one that can be created.
fn survey_new(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
    let (_, directory) = file::plan_new(spec, path)?;
    if !directory.is_dir() {
        return Err(OpenError::DirectoryMissing {
            path: path.to_owned(),
            directory: directory.to_owned(),
        });
    }
    access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| open_error(spec, path, error))
}

pub(super) fn device(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
    block::find(spec, path)?;
    may_open(spec, path)
}

fn may_open(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
    let wanted = if spec.read_only {
        Access::READ_OK
    } else {
        Access::READ_OK | Access::WRITE_OK
    };
    access(path, wanted).map_err(|error| open_error(spec, path, error))
}

/// Whether this process may, by its effective user.
fn access(path: &Path, wanted: Access) -> io::Result<()> {
    accessat(CWD, path, wanted, AtFlags::EACCESS).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::BackendName;
    use crate::registry::Backends;

    fn survey(spec: &VolumeSpec) -> Result<(), OpenError> {
        Backends::local().survey(spec)
    }

    fn spec(backend: BackendName, path: &Path) -> VolumeSpec {
        let mut spec = VolumeSpec::new("v", backend);
        spec.path = Some(path.to_owned());
        spec
    }

    #[test]
    fn what_is_missing_is_found_and_nothing_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        let missing = survey(&spec(BackendName::FILE, &file)).unwrap_err();
        assert!(matches!(missing, OpenError::NotFound { .. }), "{missing}");
        let mut sized = spec(BackendName::FILE, &file);
        sized.size = Some(1 << 20);
        survey(&sized).unwrap();
        assert!(!file.exists());
        sized.path = Some(folder.path().join("none/disk.img"));
        let missing = survey(&sized).unwrap_err();
        assert!(
            matches!(missing, OpenError::DirectoryMissing { .. }),
            "{missing}"
        );
        let device = survey(&spec(BackendName::BLOCK, &folder.path().join("sda"))).unwrap_err();
        assert!(
            matches!(device, OpenError::DeviceNotFound { .. }),
            "{device}"
        );
    }

    #[test]
    fn what_is_there_has_to_fit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        std::fs::write(&file, vec![0; 4096 + 1]).unwrap();
        let odd = survey(&spec(BackendName::FILE, &file)).unwrap_err();
        assert!(matches!(odd, OpenError::SizeNotMultiple { .. }), "{odd}");
        let mut smaller = spec(BackendName::FILE, &file);
        smaller.size = Some(4096);
        let shrinks = survey(&smaller).unwrap_err();
        assert!(
            matches!(shrinks, OpenError::WouldShrink { .. }),
            "{shrinks}"
        );
        let block = survey(&spec(BackendName::BLOCK, &file)).unwrap_err();
        assert!(matches!(block, OpenError::NotBlockDevice { .. }), "{block}");
        let directory = survey(&spec(BackendName::FILE, folder.path())).unwrap_err();
        assert!(
            matches!(directory, OpenError::IsDirectory { .. }),
            "{directory}"
        );
    }
}
