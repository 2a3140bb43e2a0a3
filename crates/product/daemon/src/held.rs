//! What the sandbox of this process holds, and what a change cannot have because of it.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use longshore_initiator::url::Url;
use longshore_pool::PoolOptions;
use longshore_remote::RemoteSpec;
use longshore_sandbox::Held;
use longshore_volume::VolumeSpec;

/// What was taken from this process.
static HELD: OnceLock<Held> = OnceLock::new();

/// Keeps what holds for the rest of the process.
pub fn set(held: Held) {
    let _ = HELD.set(held);
}

/// Refuses further rings of io_uring, when the event loops have theirs.
pub fn refuse_rings() {
    if let Some(Err(error)) = HELD.get().map(Held::refuse_rings) {
        tracing::warn!("sandbox: further rings of io_uring can be made: {error}");
    }
}

/// What holds, in a line.
pub fn shown() -> String {
    HELD.get().map_or_else(|| "off".to_owned(), Held::to_string)
}

/// Why a file or device cannot be opened in the sandbox, with advice.
pub fn refuses_path(path: &Path) -> Option<(String, String)> {
    let is_refused = !HELD.get()?.permits_file(path);
    is_refused.then(|| {
        (
            format!("the sandbox of this process does not have {}", path.display()),
            format!(
                "add the path, or its folder, to sandbox-paths (--sandbox-path), and restart the server ({DOCUMENT})"
            ),
        )
    })
}

/// Why a volume cannot be opened in the sandbox, with advice.
pub fn refuses_volume(spec: &VolumeSpec) -> Option<(String, String)> {
    let held = HELD.get()?;
    let drives = spec.options::<PoolOptions>().map(|pool| &pool.drives);
    let mut paths = spec.path.iter().chain(drives.into_iter().flatten());
    if let Some(refused) = paths.find_map(|path| refuses_path(path)) {
        return Some(refused);
    }
    let port = remote_ports(spec)
        .into_iter()
        .find(|port| !held.permits_connect(*port))?;
    Some((
        format!("the sandbox of this process connects to no port {port}"),
        ports_advice(port),
    ))
}

/// Why a port cannot be listened on in the sandbox, with advice.
pub fn refuses_listener(port: u16) -> Option<(String, String)> {
    let is_refused = !HELD.get()?.permits_listen(port);
    is_refused.then(|| {
        (
            format!("the sandbox of this process listens on no port {port}"),
            ports_advice(port),
        )
    })
}

/// Where to read about it.
const DOCUMENT: &str = "docs/security.md";

fn ports_advice(port: u16) -> String {
    format!("add {port} to sandbox-ports (--sandbox-port), and restart the server ({DOCUMENT})")
}

/// What to do about a file that cannot be read.
pub fn advice_for(path: &Path, error: &io::Error) -> &'static str {
    let is_kept_out = HELD.get().is_some_and(|held| !held.permits_read(path));
    match error.kind() == io::ErrorKind::PermissionDenied && is_kept_out {
        true => {
            "the sandbox of this process does not have it: add its folder to sandbox-paths (--sandbox-path), and restart \
             the server"
        }
        false => "correct the path or its permissions",
    }
}

/// The ports of other servers that a volume connects to.
pub fn remote_ports(spec: &VolumeSpec) -> Vec<u16> {
    let portals = match spec
        .options::<RemoteSpec>()
        .and_then(|remote| remote.url.as_ref())
    {
        Some(Url::Iscsi(url)) => &url.portals,
        Some(Url::NvmeTcp(url)) => &url.portals,
        None => return Vec::new(),
    };
    portals.iter().map(|portal| portal.port).collect()
}
