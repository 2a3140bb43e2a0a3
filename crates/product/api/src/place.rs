//! The default path of the server's socket.

use std::ffi::OsString;
use std::path::PathBuf;

const NAME: &str = "longshore.sock";
const SYSTEM: &str = "/run/longshore";

/// Where a server makes its socket: below `$RUNTIME_DIRECTORY` (of the service manager), in `/run/longshore` as root,
/// below `$XDG_RUNTIME_DIR`, or nowhere.
pub fn of_server(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let directory = |name| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let system = is_root.then(|| PathBuf::from(SYSTEM));
    let directory = directory("RUNTIME_DIRECTORY")
        .or(system)
        .or_else(|| directory("XDG_RUNTIME_DIR"));
    directory.map(|directory| directory.join(NAME))
}

/// Where a client looks for one, the likeliest first: that of its own user, then that of the system.
pub fn of_client(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let own = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute() && !is_root);
    let directories = own.into_iter().chain([PathBuf::from(SYSTEM)]);
    directories.map(|directory| directory.join(NAME)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(known: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| {
            let found = known.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        }
    }

    #[test]
    fn a_client_of_the_same_user_finds_the_socket_of_a_server() {
        let user = variables(&[("XDG_RUNTIME_DIR", "/run/user/1000")]);
        let socket = of_server(false, &user).unwrap();
        assert_eq!(socket, PathBuf::from("/run/user/1000/longshore.sock"));
        assert_eq!(of_client(false, &user)[0], socket);
        let root = of_server(true, &user).unwrap();
        assert_eq!(root, PathBuf::from("/run/longshore/longshore.sock"));
        assert_eq!(of_client(true, &user), std::slice::from_ref(&root));
        assert_eq!(of_client(false, &user)[1], root);
        let service = variables(&[("RUNTIME_DIRECTORY", "/run/longshore")]);
        assert_eq!(of_server(false, service), Some(root));
        assert_eq!(of_server(false, variables(&[])), None);
    }
}
