//! Where the API is reached: bound early, so that a start that cannot have it fails before anything else is touched.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why the API cannot be had there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address} for the API: {source}; choose another address with --api")]
    Tcp {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("another server listens on {}; stop it, or choose another socket with --socket", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is there and is no socket; remove it, or choose another path with --socket", path.display()
    )]
    NoSocket { path: PathBuf },
    #[error(
        "cannot listen on the socket {}: {source}; correct the path, or choose another with --socket",
        path.display()
    )]
    Unix { path: PathBuf, source: io::Error },
}

/// A Unix socket that was bound. Its file goes with it.
#[derive(Debug)]
pub struct Socket {
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

/// The file of a socket, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub path: PathBuf,
    /// Device and inode: another server may have replaced it.
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Binds an address.
///
/// # Errors
/// It cannot be had.
pub fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let failed = |source| ListenError::Tcp { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Binds a Unix socket. The file of a server that has ended is replaced.
///
/// # Errors
/// A living server has it, or it cannot be made.
pub fn bind_unix(path: &Path) -> Result<Socket, ListenError> {
    let path = path.to_owned();
    let failed = |source| ListenError::Unix {
        path: path.clone(),
        source,
    };
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NoSocket { path });
        }
        Ok(_) => match UnixStream::connect(&path) {
            Ok(_) => return Err(ListenError::InUse { path }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        },
    }
    let listener = UnixListener::bind(&path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { path: path.clone() },
        _ => failed(error),
    })?;
    let file = SocketFile {
        identity: identity(&path),
        path: path.clone(),
    };
    // Everybody may connect; the kernel tells who it is, and that decides.
    let permissions = fs::Permissions::from_mode(0o666);
    fs::set_permissions(&path, permissions).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Socket { listener, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_living_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let socket = bind_unix(&path).unwrap();
        let refused = bind_unix(&path).unwrap_err();
        assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
        // As SIGKILL leaves it.
        let Socket { listener, file } = socket;
        drop(listener);
        std::mem::forget(file);
        assert!(path.exists());
        let again = bind_unix(&path).unwrap();
        drop(again);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        fs::write(&path, "mine").unwrap();
        let refused = bind_unix(&path).unwrap_err();
        assert!(matches!(refused, ListenError::NoSocket { .. }), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn an_end_leaves_the_socket_of_a_successor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = bind_unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = bind_unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
