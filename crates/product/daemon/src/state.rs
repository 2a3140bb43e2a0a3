//! The state directory: what must survive a restart, such as persistent reservations.
//!
//! | first that is there | for |
//! |---|---|
//! | `--state-dir`, `state-dir` in the file | the operator |
//! | `$STATE_DIRECTORY` | `systemd` with `StateDirectory=` |
//! | `/var/lib/longshore` | root |
//! | `$XDG_STATE_HOME/longshore` | users |
//! | `$HOME/.local/state/longshore` | users |

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// A state directory that was asked for and cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use state directory {}: {source}\n\
     Create it for the user the server runs as, or name another with --state-dir", path.display()
)]
pub struct StateError {
    path: PathBuf,
    source: io::Error,
}

/// Finds the state directory and creates it if it is missing.
///
/// `None` when there is none; the reason is in the log. What nobody asked for by name may fail.
pub fn directory(asked_for: Option<&Path>) -> Result<Option<PathBuf>, StateError> {
    if let Some(path) = asked_for {
        create(path).map_err(|source| StateError {
            path: path.to_owned(),
            source,
        })?;
        return Ok(Some(path.to_owned()));
    }
    let is_root = rustix::process::geteuid().is_root();
    let Some(path) = choose(is_root, |name| std::env::var_os(name)) else {
        tracing::warn!(
            "no state directory: neither --state-dir nor HOME is set; persistent reservations \
             cannot be kept across restarts"
        );
        return Ok(None);
    };
    match create(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            tracing::warn!(
                "cannot use state directory {}: {error}; persistent reservations cannot be kept \
                 across restarts; name another with --state-dir",
                path.display()
            );
            Ok(None)
        }
    }
}

/// Whether [`directory`] could use this one. Creates nothing.
pub fn examine(path: &Path) -> Result<(), StateError> {
    let examined = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => may_write(path),
        Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.ancestors().skip(1);
            let above = above.map(|above| match above.as_os_str().is_empty() {
                true => Path::new("."),
                false => above,
            });
            match above.into_iter().find(|above| above.exists()) {
                Some(above) if above.is_dir() => may_write(above),
                _ => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            }
        }
        Err(error) => Err(error),
    };
    examined.map_err(|source| StateError {
        path: path.to_owned(),
        source,
    })
}

/// Whether this process may create files in a directory.
fn may_write(directory: &Path) -> io::Result<()> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, directory, wanted, AtFlags::EACCESS)?)
}

/// The state directory that the environment implies.
fn choose(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    if let Some(given) = variable("STATE_DIRECTORY") {
        // A list when the unit has several; ours is the first.
        let first = given
            .as_bytes()
            .split(|byte| *byte == b':')
            .next()
            .unwrap_or_default();
        if let Some(path) = absolute(OsString::from_vec(first.to_vec()).into()) {
            return Some(path);
        }
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/longshore"));
    }
    let state_home = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .and_then(absolute);
    let state_home = state_home.or_else(|| {
        variable("HOME")
            .map(PathBuf::from)
            .and_then(absolute)
            .map(|home| home.join(".local/state"))
    });
    state_home.map(|directory| directory.join("longshore"))
}

/// Creates the directory, for its owner alone, unless it is there.
fn create(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(is_root: bool, variables: &[(&str, &str)]) -> Option<PathBuf> {
        choose(is_root, |name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_service_manager_comes_first_then_root_then_the_home_of_the_user() {
        let state = ("STATE_DIRECTORY", "/var/lib/private/longshore:/other");
        let xdg = ("XDG_STATE_HOME", "/x");
        let home = ("HOME", "/home/a");
        for (is_root, variables, expected) in [
            (
                true,
                &[state, xdg, home][..],
                Some("/var/lib/private/longshore"),
            ),
            (
                false,
                &[state, xdg, home],
                Some("/var/lib/private/longshore"),
            ),
            (true, &[xdg, home], Some("/var/lib/longshore")),
            (false, &[xdg, home], Some("/x/longshore")),
            (false, &[home], Some("/home/a/.local/state/longshore")),
            (
                false,
                &[("XDG_STATE_HOME", "relative"), home],
                Some("/home/a/.local/state/longshore"),
            ),
            (
                false,
                &[("STATE_DIRECTORY", ""), home],
                Some("/home/a/.local/state/longshore"),
            ),
            (false, &[], None),
        ] {
            assert_eq!(
                chosen(is_root, variables),
                expected.map(PathBuf::from),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_directory_asked_for_by_name_must_be_usable() {
        let error = directory(Some(Path::new("/proc/longshore")))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/proc/longshore") && error.contains("--state-dir"),
            "{error}"
        );
        let error = directory(Some(Path::new("/dev/null")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("not a directory"), "{error}");
    }
}
