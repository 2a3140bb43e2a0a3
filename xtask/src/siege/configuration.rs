//! What the server under siege serves: a volume that well-behaved hosts check, and one for rude peers.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use longshore_initiator::options::{DigestWish, Options, TlsOptions};
use longshore_initiator::url::Url;
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{ConfiguredKey, PskHash};
use longshore_tests::random::Random;

use super::keeping::Keeping;

pub const TARGET: &str = "iqn.2026-11.local.longshore:verified";
pub const PLAYGROUND_TARGET: &str = "iqn.2026-11.local.longshore:playground";
pub const NQN: &str = "nqn.2026-11.local.longshore:verified";
pub const PLAYGROUND_NQN: &str = "nqn.2026-11.local.longshore:playground";
const PLAIN_HOST: &str = "nqn.2026-11.local.longshore:plain";
const TLS_HOST: &str = "nqn.2026-11.local.longshore:tls";

/// How a host reaches the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Iscsi,
    Nvme,
    NvmeTls,
}

/// There is one host for each of them.
pub const WAYS: [Way; 3] = [Way::Iscsi, Way::Nvme, Way::NvmeTls];

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Iscsi => "iSCSI",
            Self::Nvme => "NVMe/TCP",
            Self::NvmeTls => "NVMe/TLS",
        }
    }

    /// The volume at these addresses.
    pub fn url(self, iscsi: SocketAddr, nvme: SocketAddr) -> Result<Url> {
        Ok(match self {
            Self::Iscsi => format!("iscsi://{iscsi}/{TARGET}/0").parse()?,
            Self::Nvme | Self::NvmeTls => format!("nvme+tcp://{nvme}/{NQN}/1").parse()?,
        })
    }
}

/// The key of the host that comes by TLS, and its file.
pub struct Key {
    key: ConfiguredKey,
    file: PathBuf,
}

impl Key {
    pub fn make(folder: &Path, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let key = ConfiguredKey::generate(Some(PskHash::Sha256), &mut |bytes| random.fill(bytes));
        let file = folder.join("host.psk");
        fs::write(&file, format!("{}\n", *key.to_text()))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        Ok(Self { key, file })
    }

    /// How a host connects. Where bits flip, digests find them.
    pub fn options(&self, way: Way, digests: bool) -> Result<Options> {
        let wish = if digests {
            DigestWish::Require
        } else {
            DigestWish::Off
        };
        let mut options = Options {
            depth: 32,
            header_digest: wish,
            data_digest: wish,
            ..Options::default()
        };
        options.timeouts.connect = Duration::from_secs(2);
        options.timeouts.login = Duration::from_secs(5);
        match way {
            Way::Iscsi => {}
            Way::Nvme => options.host_nqn = Some(Nqn::new(PLAIN_HOST)?),
            Way::NvmeTls => {
                options.host_nqn = Some(Nqn::new(TLS_HOST)?);
                options.nvme.tls = Some(TlsOptions::new(self.key.clone()));
            }
        }
        Ok(options)
    }
}

/// What differs from phase to phase.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    pub keeping: Keeping,
    pub path: &'a Path,
    pub bytes: u64,
    /// Further keys of the volume, a line each.
    pub volume: &'a str,
    pub memory: &'a str,
}

/// The file of the configuration.
pub fn text(served: Served<'_>, key: &Key) -> String {
    let mut text = format!(
        "[limits]\nlogin-timeout = \"3s\"\npending-logins = 64\nstall-timeout = \"6s\"\nmemory = \"{}\"\n\n\
         [[volume]]\nname = \"verified\"\n{}\nsize = {}\n{}\n\n\
         [[volume]]\nname = \"playground\"\nbackend = \"mem\"\nsize = \"64M\"\n\n",
        served.memory,
        served.keeping.keys(served.path),
        served.bytes,
        served.volume,
    );
    for (target, volume) in [(TARGET, "verified"), (PLAYGROUND_TARGET, "playground")] {
        let _ = write!(
            text,
            "[[target]]\nname = \"{target}\"\nluns = [{{ lun = 0, volume = \"{volume}\" }}]\n\n"
        );
    }
    let _ = write!(
        text,
        "[[subsystem]]\nnqn = \"{PLAYGROUND_NQN}\"\nnamespaces = [{{ nsid = 1, volume = \"playground\" }}]\n\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nnamespaces = [{{ nsid = 1, volume = \"verified\" }}]\n\n\
         [[subsystem.access]]\nhosts = [\"{PLAIN_HOST}\"]\n\n\
         [[subsystem.access]]\nhosts = [\"{TLS_HOST}\"]\ntls-key-files = [\"{}\"]\n",
        key.file.display()
    );
    text
}
