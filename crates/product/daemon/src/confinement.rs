//! The way into the sandbox: what the configuration lets this process use.
//!
//! | place | use |
//! |---|---|
//! | volumes of files, with their folders; block devices; drives of pools; `sandbox-paths` | read and write |
//! | the state directory, the folder of `log.statistics` | read and write |
//! | folders of the configuration file, of secret files, and of the certificate; credentials of systemd | read |
//! | `strict`: ports of listeners, 3260, 4420 and 8009, `sandbox-ports`; `auto`: all | listen |
//! | ports of remote volumes, `sandbox-ports` | connect |

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_api::place;
use longshore_pool::PoolOptions;
use longshore_remote::RemoteSpec;
use longshore_sandbox::{Mode, Policy};
use longshore_volume::{BackendName, VolumeSpec};

use crate::change::start::Start;
use crate::config::api::ApiSocket;
use crate::config::file::ConfigFile;
use crate::config::listener::ISCSI_PORT;
use crate::config::nvme_listener::{DISCOVERY_PORT, NVME_PORT};
use crate::config::{Config, SandboxConfig, secret_file};
use crate::held::{self, remote_ports};
use crate::portals::Wanted;

/// The socket of the service manager, by the name of the variable.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The end of the names of keys that hold the path of a secret.
const SECRET_FILE: &str = "secret-file";
const TLS_KEY_FILE: &str = "tls-key-file";
const TLS_KEY_FILES: &str = "tls-key-files";

/// The sandbox was to be complete and is not.
#[derive(Debug, thiserror::Error)]
#[error(
    "sandbox = \"strict\", and this cannot be had: {}\n\
     Use sandbox = \"auto\" for what the kernel offers, or a kernel that offers all of it (docs/security.md)",
    missing.join("; ")
)]
pub struct Incomplete {
    missing: Vec<String>,
}

/// Takes from this process what the configuration does not need. Threads that run already stay as they are.
///
/// # Errors
/// The configuration wants all of it, and something is missing.
pub fn enter(start: &Start, state_directory: Option<&Path>) -> Result<(), Incomplete> {
    let config = &start.config;
    let SandboxConfig { mode, .. } = config.sandbox;
    if mode == Mode::Off {
        tracing::info!("sandbox: off");
        return Ok(());
    }
    let held = longshore_sandbox::enter(policy(start, state_directory));
    tracing::info!("sandbox: {held}");
    let missing = held.missing();
    held::set(held);
    match mode {
        Mode::Strict if !missing.is_empty() => Err(Incomplete { missing }),
        Mode::Strict | Mode::Auto | Mode::Off => Ok(()),
    }
}

fn policy(start: &Start, state_directory: Option<&Path>) -> Policy {
    let config = &start.config;
    let mut policy = Policy::base();
    let sources = start.objects.sources();
    for file in start.file.iter().chain(&sources) {
        // Objects of the API have no file.
        if file.path.is_file() {
            policy.read(&file.path);
        }
        for path in secrets_of(file) {
            policy.read(&path);
        }
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let Some(folder) = variable(secret_file::CREDENTIALS_DIRECTORY) {
        policy.read_folder(&folder);
    }
    for source in &config.volumes {
        add_volume(&mut policy, &source.spec);
    }
    for drive in config.pools.iter().flat_map(|pool| &pool.drives) {
        policy.device(drive);
    }
    for path in &config.sandbox.paths {
        policy.keep(path);
    }
    // Changes while the server runs are not to fail unless somebody has said what is enough.
    if config.sandbox.mode == Mode::Auto && config.sandbox.paths.is_empty() {
        policy.anywhere();
    }
    if let Some(path) = state_directory {
        policy.keep(path);
    }
    if let Some(folder) = config.log.statistics.as_deref().and_then(folder_of) {
        policy.keep(&folder);
    }
    add_api(&mut policy, config);
    add_ports(&mut policy, config);
    if variable(NOTIFY_SOCKET).is_some_and(|path| path.as_os_str().as_bytes().starts_with(b"@")) {
        policy.abstract_sockets();
    }
    policy
}

fn add_volume(policy: &mut Policy, spec: &VolumeSpec) {
    if let Some(path) = &spec.path {
        match spec.backend == BackendName::FILE {
            true => policy.file(path),
            false => policy.device(path),
        }
    }
    if let Some(remote) = spec.options::<RemoteSpec>() {
        for path in [
            &remote.secret_file,
            &remote.dhchap_secret_file,
            &remote.dhchap_ctrl_secret_file,
            &remote.tls_key_file,
        ] {
            path.iter().for_each(|path| policy.read(path));
        }
    }
    if let Some(pool) = spec.options::<PoolOptions>() {
        for drive in &pool.drives {
            policy.device(drive);
        }
    }
    for port in remote_ports(spec) {
        policy.connect(port);
    }
}

fn add_api(policy: &mut Policy, config: &Config) {
    let table = &config.api.table;
    for path in [&table.tls_certificate, &table.tls_key]
        .into_iter()
        .flatten()
    {
        policy.read(path);
    }
    let socket = match &config.api.socket {
        ApiSocket::Nowhere => None,
        ApiSocket::At(path) => Some(path.clone()),
        ApiSocket::Default => {
            let is_root = rustix::process::geteuid().is_root();
            place::of_server(is_root, |name| {
                std::env::var_os::<&str>(name) as Option<OsString>
            })
        }
    };
    if let Some(path) = socket {
        policy.socket(&path);
    }
    if config.api.scst_tree.is_some() {
        policy.mount();
    }
}

fn add_ports(policy: &mut Policy, config: &Config) {
    for port in &config.sandbox.ports {
        policy.connect(*port);
    }
    if config.sandbox.mode != Mode::Strict {
        return;
    }
    for port in [ISCSI_PORT, NVME_PORT, DISCOVERY_PORT] {
        policy.listen(port);
    }
    for wanted in Wanted::by_name(config) {
        policy.listen(wanted.address().port());
    }
    for port in &config.sandbox.ports {
        policy.listen(*port);
    }
}

/// The secret files that a file names, whatever for.
fn secrets_of(file: &ConfigFile) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // It has been read before.
    if let Ok(table) = toml::from_str::<toml::Table>(&file.text) {
        find_secrets(&toml::Value::Table(table), &mut found);
    }
    found
        .iter()
        .map(|path| secret_file::place(file, Path::new(path)))
        .collect()
}

fn find_secrets(value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                match value {
                    toml::Value::String(path) if is_secret_file(key) => found.push(path.clone()),
                    toml::Value::Array(paths) if key == TLS_KEY_FILES => {
                        let paths = paths.iter().filter_map(toml::Value::as_str);
                        found.extend(paths.map(str::to_owned));
                    }
                    other => find_secrets(other, found),
                }
            }
        }
        toml::Value::Array(list) => list.iter().for_each(|value| find_secrets(value, found)),
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => {}
    }
}

fn is_secret_file(key: &str) -> bool {
    key.ends_with(SECRET_FILE) || key == TLS_KEY_FILE
}

fn folder_of(path: &Path) -> Option<PathBuf> {
    Some(std::path::absolute(path).ok()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_found_wherever_they_are_named() {
        let text = "[[volume]]\nname = \"d\"\nbackend = \"mem\"\nsize = \"1M\"\n\
            [[target]]\nname = \"iqn.2026-11.com.example:a\"\n\
            accounts = [{ user = \"a\", secret-file = \"one\" }, { user = \"b\", secret = \"not a path\" }]\n\
            mutual = { user = \"t\", secret-file = \"/s/two\" }\n\
            [[subsystem]]\nnqn = \"nqn.2026-11.com.example:b\"\n\
            [[subsystem.access]]\nhosts = [\"*\"]\ndhchap-secret-file = \"three\"\ndhchap-ctrl-secret-file = \"four\"\n\
            tls-key-files = [\"five\", \"/s/six\"]\n";
        let file = ConfigFile::parse(Path::new("/etc/longshore/c.toml"), text.to_owned()).unwrap();
        let expected = [
            "/etc/longshore/three",
            "/etc/longshore/four",
            "/etc/longshore/one",
            "/s/two",
            "/etc/longshore/five",
            "/s/six",
        ];
        let mut found = secrets_of(&file);
        found.sort();
        let mut expected = expected.map(PathBuf::from);
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn remote_volumes_name_the_ports_of_all_their_portals() {
        let text = "[[volume]]\nname = \"d\"\nbackend = \"iscsi\"\n\
            url = \"iscsi://192.0.2.7:3999/iqn.2001-05.com.example:a/0?portal=192.0.2.8\"\n";
        let file = ConfigFile::parse(Path::new("c.toml"), text.to_owned()).unwrap();
        let config = Config::assemble(Some(&file), crate::config::Arguments::default()).unwrap();
        assert_eq!(remote_ports(&config.volumes[0].spec), [3999, 3260]);
    }
}
