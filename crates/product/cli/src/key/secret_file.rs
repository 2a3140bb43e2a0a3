//! A file that holds a secret, and what can be told of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use longshore_nvme::auth::{Hash, Secret, SecretError};
use longshore_nvme::psk::{ConfiguredKey, ConfiguredKeyError, IdentityError, PskHash};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::output::Table;

/// More bytes than any secret has.
const LENGTH_MAX: u64 = 4096;

/// Permission bits that let others read a secret, or replace it.
const EXPOSED: u32 = 0o027;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A secret of DH-HMAC-CHAP.
    Dhchap,
    /// A pre-shared key for TLS.
    Tls,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error("cannot read {}: {source}; correct the path or its permissions", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} exists; name a file that does not, so that no secret is lost", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}: {source}; correct the path or its permissions", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("keys for TLS have no hash sha512; choose none, sha256 or sha384")]
    NoSha512,
    #[error("{}: {source}", path.display())]
    Dhchap { path: PathBuf, source: SecretError },
    #[error("{}: {source}", path.display())]
    Tls {
        path: PathBuf,
        source: ConfiguredKeyError,
    },
    #[error("{} holds neither a secret (DHHC-1:…) nor a key for TLS (NVMeTLSkey-1:…); make one with longshore key generate", path.display())]
    Neither { path: PathBuf },
    #[error("{} holds a secret of DH-HMAC-CHAP, and TLS takes a key (NVMeTLSkey-1:…)", path.display())]
    NotForTls { path: PathBuf },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{}: {source}", path.display())]
    Configuration {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
}

/// What can be shown as a table.
pub(super) trait Shown: Serialize {
    fn text(&self) -> String;
}

/// A secret that was read.
pub(super) enum Parsed {
    Dhchap(Secret),
    Tls(ConfiguredKey),
}

/// What a file holds.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    kind: Kind,
    hash: Option<&'static str>,
    /// Bytes of the key.
    bytes: usize,
    pub(super) fingerprint: String,
    /// Permission bits; none of standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
    /// Others can read or replace it, so that the server refuses it.
    pub(super) exposed: bool,
}

impl Found {
    pub(super) fn in_file(path: &Path) -> Result<Self, KeyError> {
        let (parsed, mode) = read(path)?;
        let (kind, hash, bytes, fingerprint) = match &parsed {
            Parsed::Dhchap(secret) => (
                Kind::Dhchap,
                secret.hash().map(Hash::name),
                secret.key_length(),
                secret.fingerprint(),
            ),
            Parsed::Tls(key) => (
                Kind::Tls,
                key.hash().map(PskHash::name),
                key.suite().length(),
                key.fingerprint(),
            ),
        };
        Ok(Self {
            kind,
            hash,
            bytes,
            fingerprint,
            mode,
            exposed: mode.is_some_and(|mode| mode & EXPOSED != 0),
        })
    }
}

impl Shown for Found {
    fn text(&self) -> String {
        let mut table = Table::default();
        table.row("kind", self.kind.describe());
        table.row("hash", self.hash.unwrap_or("none: used as it is"));
        table.row("length", format_args!("{} bytes", self.bytes));
        table.row("fingerprint", &self.fingerprint);
        if let Some(mode) = self.mode {
            let advice = match self.exposed {
                true => ", which the server refuses: chmod 600",
                false => "",
            };
            table.row("mode", format_args!("{mode:04o}{advice}"));
        }
        table.to_string()
    }
}

impl Kind {
    const fn describe(self) -> &'static str {
        match self {
            Self::Dhchap => "secret of DH-HMAC-CHAP",
            Self::Tls => "key for TLS",
        }
    }
}

/// Reads a secret; the permission bits of its file.
pub(super) fn read(path: &Path) -> Result<(Parsed, Option<u32>), KeyError> {
    let unreadable = |source| KeyError::Read {
        path: path.into(),
        source,
    };
    let (mode, mut source): (_, Box<dyn Read>) = match path.to_str() {
        Some("-") => (None, Box::new(io::stdin().lock())),
        _ => {
            let file = File::open(path).map_err(unreadable)?;
            let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
            (Some(mode), Box::new(file))
        }
    };
    let mut text = Zeroizing::new(String::new());
    // A device that never ends holds no secret.
    let mut bounded = source.by_ref().take(LENGTH_MAX);
    bounded.read_to_string(&mut text).map_err(unreadable)?;
    let path = || path.to_owned();
    let text = text.trim();
    let parsed = if text.starts_with("DHHC-1:") {
        let secret = Secret::parse(text);
        Parsed::Dhchap(secret.map_err(|source| KeyError::Dhchap {
            path: path(),
            source,
        })?)
    } else if text.starts_with("NVMeTLSkey-1:") {
        let key = ConfiguredKey::parse(text);
        Parsed::Tls(key.map_err(|source| KeyError::Tls {
            path: path(),
            source,
        })?)
    } else {
        return Err(KeyError::Neither { path: path() });
    };
    Ok((parsed, mode))
}
