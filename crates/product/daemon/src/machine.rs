//! The machine in the identities of volumes.
//!
//! Peers recognise a disk by identifiers that derive from the volume's UUID, and a derived UUID
//! contains the id of the machine, so that no two machines give one identity to two disks. Where
//! the host has no id (containers, images before their first boot) the server makes one and keeps it
//! in the state directory:
//!
//! | first that is there | said at start |
//! |---|---|
//! | `machine-id` in the state directory | yes |
//! | `/etc/machine-id`, `/var/lib/dbus/machine-id` | no |
//! | a new one, kept in the state directory | yes |
//! | none: only for volumes of `null` and `mem`, whose UUIDs are new at each start | yes |
//!
//! An id that is kept comes first: disks keep their identities when the host gets an id later.
//! Without an id and a state directory, volumes that outlive the server are refused: an identity
//! that changes at each restart is as bad for hosts as one that two disks share.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longshore_volume::machine_id::{MachineId, NoMachineId, NotMachineId};
use longshore_volume::{BackendName, VolumeSpec};

/// Its name in the state directory.
const FILE_NAME: &str = "machine-id";

/// Why volumes cannot have identities.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// There is no id and no place to keep one.
    #[error(
        "no identity for {}: {host}, and {place}\n\
         Two machines without an id would give one identity to different disks. Give --state-dir \
         with a directory that outlives the server, or uuid=… to each of these volumes (uuidgen \
         makes one), or give this system a machine id (systemd-machine-id-setup)",
        list(volumes)
    )]
    Homeless {
        /// The volumes that need one.
        volumes: Vec<String>,
        /// Why the host has none.
        host: NoMachineId,
        /// Why none can be kept.
        place: String,
    },
    /// What is kept is no id.
    #[error(
        "{} {reason}\n\
         The identities of volumes derive from it. Put the id back from a backup; remove the file \
         only if hosts may see the volumes as other disks from then on", path.display()
    )]
    Damaged {
        path: PathBuf,
        /// What is wrong with it.
        reason: NotMachineId,
    },
    /// The file cannot be read or made.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

fn list(volumes: &[String]) -> String {
    let noun = if volumes.len() == 1 {
        "volume"
    } else {
        "volumes"
    };
    format!("{noun} {}", volumes.join(", "))
}

/// The machine for the identities of these volumes. `None`: none of them needs one.
pub fn settle<'a>(
    volumes: impl Iterator<Item = &'a VolumeSpec>,
    state_directory: Option<&Path>,
) -> Result<Option<MachineId>, MachineError> {
    settle_with(volumes, state_directory, MachineId::of_host)
}

fn settle_with<'a>(
    volumes: impl Iterator<Item = &'a VolumeSpec>,
    state_directory: Option<&Path>,
    of_host: impl FnOnce() -> Result<MachineId, NoMachineId>,
) -> Result<Option<MachineId>, MachineError> {
    let derived: Vec<&VolumeSpec> = volumes.filter(|spec| spec.uuid.is_none()).collect();
    if derived.is_empty() {
        return Ok(None);
    }
    if let Some(directory) = state_directory
        && let Some(kept) = read(&directory.join(FILE_NAME))?
    {
        let path = directory.join(FILE_NAME);
        tracing::info!(path = %path.display(), "the identities of volumes derive from the machine \
                                                id in this file");
        return Ok(Some(kept));
    }
    let host = match of_host() {
        Ok(id) => return Ok(Some(id)),
        Err(host) => host,
    };
    let place = match state_directory {
        None => "there is no state directory to store one".to_owned(),
        Some(directory) => {
            let path = directory.join(FILE_NAME);
            match make(directory, &path) {
                Ok(id) => {
                    tracing::warn!(
                        path = %path.display(),
                        reason = %host,
                        "this system has no machine id: created one, from which the identities of \
                         volumes derive. Keep the state directory, or hosts see other disks"
                    );
                    return Ok(Some(id));
                }
                Err(error) => format!("none can be stored: {error}"),
            }
        }
    };
    let names = |lasting: bool| -> Vec<String> {
        let of_kind = derived.iter().filter(|spec| is_lasting(spec) == lasting);
        of_kind.map(|spec| spec.name.clone()).collect()
    };
    let lasting = names(true);
    if !lasting.is_empty() {
        return Err(MachineError::Homeless {
            volumes: lasting,
            host,
            place,
        });
    }
    tracing::warn!(
        reason = %host,
        "no machine id, and {place}: {} {} another identity at each start",
        list(&names(false)),
        if derived.len() == 1 { "has" } else { "have" },
    );
    Ok(None)
}

/// Whether hosts find their data again after a restart.
fn is_lasting(spec: &VolumeSpec) -> bool {
    ![BackendName::NULL, BackendName::MEM].contains(&spec.backend)
}

fn read(path: &Path) -> Result<Option<MachineId>, MachineError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
    };
    let id = text.parse().map_err(|reason| MachineError::Damaged {
        path: path.to_owned(),
        reason,
    })?;
    Ok(Some(id))
}

/// Makes a new id. It is whole and on the medium before its name is there, and of two servers that
/// start at once both get the id of the first.
fn make(directory: &Path, path: &Path) -> Result<MachineId, MachineError> {
    let id = MachineId::random();
    let fresh = directory.join(format!("{FILE_NAME}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| {
            writeln!(file, "{id}")?;
            file.sync_all()
        });
    let linked = written.and_then(|()| fs::hard_link(&fresh, path));
    let _ = fs::remove_file(&fresh);
    match linked {
        Ok(()) => {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|source| failed("fsync", directory, source))?;
            Ok(id)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let first = read(path)?;
            first.ok_or_else(|| failed("read", path, io::ErrorKind::NotFound.into()))
        }
        Err(source) => Err(failed("create", path, source)),
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> MachineError {
    MachineError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_tests::scratch::Scratch;

    const HOST: &str = "3d1219c7c4c5404aaa1f6d2a48adfda4";

    fn volume(name: &str, backend: BackendName) -> VolumeSpec {
        VolumeSpec::new(name, backend)
    }

    fn without_id() -> Result<MachineId, NoMachineId> {
        Err(NoMachineId::Missing)
    }

    fn settled(volumes: &[VolumeSpec], state: Option<&Path>) -> Option<MachineId> {
        settle_with(volumes.iter(), state, without_id).unwrap()
    }

    #[test]
    fn an_id_is_made_once_kept_and_preferred_from_then_on() {
        let (here, there) = (Scratch::new("machine"), Scratch::new("machine"));
        let volumes = [volume("a", BackendName::FILE)];
        let made = settled(&volumes, Some(here.path())).unwrap();
        assert_eq!(settled(&volumes, Some(here.path())), Some(made.clone()));
        assert_ne!(settled(&volumes, Some(there.path())), Some(made.clone()));
        let with_host = settle_with(volumes.iter(), Some(here.path()), || {
            Ok(HOST.parse().unwrap())
        });
        assert_eq!(with_host.unwrap(), Some(made));
        let names = fs::read_dir(here.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [FILE_NAME], "nothing else stays behind");
    }

    #[test]
    fn the_id_of_the_host_is_used_where_none_is_kept_and_nothing_is_written() {
        let here = Scratch::new("machine");
        let volumes = [volume("a", BackendName::FILE)];
        let id = settle_with(volumes.iter(), Some(here.path()), || {
            Ok(HOST.parse().unwrap())
        });
        assert_eq!(id.unwrap().unwrap().as_str(), HOST);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_an_id_and_a_place_for_one_volumes_that_last_are_refused_by_name() {
        let volumes = [
            volume("a", BackendName::FILE),
            volume("m", BackendName::MEM),
            volume("b", longshore_remote::ISCSI),
        ];
        let refused = settle_with(volumes.iter(), None, without_id).unwrap_err();
        let text = refused.to_string();
        for part in [
            "volumes a, b:",
            "/etc/machine-id does not exist",
            "--state-dir",
            "uuid=",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(settled(&volumes[1..2], None), None);
        // A place that cannot be written to is none.
        let nowhere = Some(Path::new("/proc/self"));
        let refused = settle_with(volumes.iter(), nowhere, without_id).unwrap_err();
        assert!(
            refused.to_string().contains("/proc/self/machine-id"),
            "{refused}"
        );
        assert_eq!(settled(&volumes[1..2], nowhere), None);
        let named = VolumeSpec {
            uuid: Some(uuid::Uuid::nil()),
            ..volume("a", BackendName::FILE)
        };
        assert_eq!(settled(&[named], None), None);
    }

    #[test]
    fn an_id_that_is_damaged_is_not_replaced() {
        let here = Scratch::new("machine");
        let path = here.join(FILE_NAME);
        fs::write(&path, "x\n").unwrap();
        let volumes = [volume("a", BackendName::FILE)];
        let damaged = settle_with(volumes.iter(), Some(here.path()), without_id).unwrap_err();
        assert!(
            damaged.to_string().contains(&path.display().to_string()),
            "{damaged}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    }
}
