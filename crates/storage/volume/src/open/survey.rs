//! What can be told of a volume before it is opened, without touching anything: for a check of a
//! configuration.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::{BackendKind, OpenError, VolumeSpec};
use crate::backend::file::open_error;
use crate::backend::{block, file};
use crate::medium::backing::Kind;

/// Finds what would keep the volume from being opened: a missing file, device or directory, missing
/// permissions, a size that does not fit. Opens nothing and creates nothing.
///
/// # Errors
/// The first obstacle, in the words of [`super::open`].
pub fn survey(spec: &VolumeSpec) -> Result<(), OpenError> {
    spec.check()?;
    match spec.backend {
        BackendKind::Null | BackendKind::Mem => spec.required_size().map(drop),
        BackendKind::File => survey_file(spec, spec.required_path()?),
        BackendKind::Block => survey_device(spec, spec.required_path()?),
        BackendKind::Iscsi | BackendKind::NvmeTcp => survey_remote(spec),
    }
}

fn survey_file(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
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

fn survey_device(spec: &VolumeSpec, path: &Path) -> Result<(), OpenError> {
    block::find(spec, path)?;
    may_open(spec, path)
}

/// The server is left alone; what has to be on this machine is its secret.
fn survey_remote(spec: &VolumeSpec) -> Result<(), OpenError> {
    if spec.remote.url.is_none() {
        return Err(OpenError::UrlMissing {
            name: spec.name.clone(),
            backend: spec.backend,
        });
    }
    let Some(path) = &spec.remote.secret_file else {
        return Ok(());
    };
    access(path, Access::READ_OK).map_err(|source| OpenError::SecretFile {
        name: spec.name.clone(),
        path: path.clone(),
        source,
    })
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

    fn spec(backend: BackendKind, path: &Path) -> VolumeSpec {
        let mut spec = VolumeSpec::new("v", backend);
        spec.path = Some(path.to_owned());
        spec
    }

    #[test]
    fn what_is_missing_is_found_and_nothing_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        let missing = survey(&spec(BackendKind::File, &file)).unwrap_err();
        assert!(matches!(missing, OpenError::NotFound { .. }), "{missing}");
        let mut sized = spec(BackendKind::File, &file);
        sized.size = Some(1 << 20);
        survey(&sized).unwrap();
        assert!(!file.exists());
        sized.path = Some(folder.path().join("none/disk.img"));
        let missing = survey(&sized).unwrap_err();
        assert!(
            matches!(missing, OpenError::DirectoryMissing { .. }),
            "{missing}"
        );
        let device = survey(&spec(BackendKind::Block, &folder.path().join("sda"))).unwrap_err();
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
        let odd = survey(&spec(BackendKind::File, &file)).unwrap_err();
        assert!(matches!(odd, OpenError::SizeNotMultiple { .. }), "{odd}");
        let mut smaller = spec(BackendKind::File, &file);
        smaller.size = Some(4096);
        let shrinks = survey(&smaller).unwrap_err();
        assert!(
            matches!(shrinks, OpenError::WouldShrink { .. }),
            "{shrinks}"
        );
        let block = survey(&spec(BackendKind::Block, &file)).unwrap_err();
        assert!(matches!(block, OpenError::NotBlockDevice { .. }), "{block}");
        let directory = survey(&spec(BackendKind::File, folder.path())).unwrap_err();
        assert!(
            matches!(directory, OpenError::IsDirectory { .. }),
            "{directory}"
        );
    }

    #[test]
    fn a_remote_volume_needs_its_secret_and_no_server() {
        let mut remote = VolumeSpec::new("r", BackendKind::Iscsi);
        let url = "iscsi://ann@192.0.2.7/iqn.2026-11.com.example:disks/0";
        remote.remote.url = Some(url.parse().unwrap());
        survey(&remote).unwrap();
        remote.remote.secret_file = Some("/nonexistent/secret".into());
        let missing = survey(&remote).unwrap_err();
        assert!(matches!(missing, OpenError::SecretFile { .. }), "{missing}");
    }
}
