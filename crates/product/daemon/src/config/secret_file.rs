//! Files that hold secrets: where they are, and who else can read them.
//!
//! A relative path starts at the directory of the configuration file. If the service manager has given the service a
//! credential of that name (`LoadCredential=`), the path means it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use zeroize::Zeroizing;

use super::file::ConfigFile;
use super::problem::{Problem, ProblemKind};

/// More bytes than any secret file has.
const LENGTH_MAX: u64 = 4096;

/// Where the service manager leaves credentials.
pub(crate) const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// A secret as it was read.
pub(super) struct SecretFile {
    /// Without the line end that editors leave behind.
    pub text: Zeroizing<String>,
    /// The permission bits of the file, without its type.
    pub mode: u32,
}

impl SecretFile {
    /// Every user of the machine can read it.
    pub(super) const fn is_for_all(&self) -> bool {
        self.mode & 0o004 != 0
    }

    /// Users beside its owner and its group can read it, or others than its owner can replace what is in it.
    pub(super) const fn is_exposed(&self) -> bool {
        self.mode & 0o027 != 0
    }
}

/// Where the secret file is that a path of the configuration file means.
pub(crate) fn place(file: &ConfigFile, path: &Path) -> PathBuf {
    let directory = std::env::var_os(CREDENTIALS_DIRECTORY).map(PathBuf::from);
    place_in(file, path, directory.as_deref())
}

fn place_in(file: &ConfigFile, path: &Path, credentials: Option<&Path>) -> PathBuf {
    let credential = credentials
        .filter(|_| path.is_relative())
        .map(|directory| directory.join(path));
    match credential.filter(|path| path.is_file()) {
        Some(credential) => credential,
        None => file.resolve(path),
    }
}

/// Reads a secret file.
pub(super) fn read(path: &Path) -> io::Result<SecretFile> {
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.mode() & 0o777;
    let mut text = Zeroizing::new(String::new());
    // A device that never ends is no secret.
    file.take(LENGTH_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LENGTH_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(length);
    Ok(SecretFile { text, mode })
}

/// Reads the secret file that a value of the configuration names: where it is, and its text.
///
/// # Errors
/// It cannot be read, or others than its owner and its group can read or replace it.
pub(super) fn read_private(
    file: &ConfigFile,
    path: &Spanned<PathBuf>,
) -> Result<(PathBuf, Zeroizing<String>), Problem> {
    let place = place(file, path.get_ref());
    let at = |kind| file.problem(path.span(), kind);
    let found = read(&place).map_err(|source| {
        let path = place.clone();
        at(ProblemKind::SecretUnreadable { path, source })
    })?;
    if found.is_exposed() {
        let mode = found.mode;
        return Err(at(ProblemKind::SecretFileMode { path: place, mode }));
    }
    Ok((place, found.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_means_a_credential_if_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("host.key"), "x").unwrap();
        let file =
            ConfigFile::parse(Path::new("/etc/longshore/config.toml"), String::new()).unwrap();
        let credentials = Some(directory.path());
        let found = |name: &str| place_in(&file, Path::new(name), credentials);
        assert_eq!(found("host.key"), directory.path().join("host.key"));
        assert_eq!(found("other.key"), Path::new("/etc/longshore/other.key"));
        assert_eq!(found("/srv/host.key"), Path::new("/srv/host.key"));
        let without = place_in(&file, Path::new("host.key"), None);
        assert_eq!(without, Path::new("/etc/longshore/host.key"));
    }
}
