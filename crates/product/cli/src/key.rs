//! `longshore key`

mod list;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use longshore_nvme::auth::{Hash, Secret, SecretError};
use longshore_nvme::nqn::{Nqn, NqnError};
use longshore_nvme::psk::{
    ConfiguredKey, ConfiguredKeyError, Derivation, IdentityError, Origin, PskHash, Version,
};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::exit::{fail, print};
use crate::output::{self, OutputFormat, Table};

/// More bytes than any secret has.
const LENGTH_MAX: u64 = 4096;

/// Permission bits that let others read a secret, or replace it.
const EXPOSED: u32 = 0o027;

#[derive(Debug, Args)]
pub struct KeyArguments {
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Make a secret
    Generate {
        /// File to write, of mode 0600; it must not exist [default: standard output]
        file: Option<PathBuf>,
        /// What it is for
        #[arg(
            long,
            value_enum,
            default_value = "dhchap",
            hide_possible_values = true,
            value_name = "dhchap|tls"
        )]
        kind: Kind,
        /// Hash that derives keys from it; tls has no sha512
        #[arg(
            long,
            value_enum,
            default_value = "sha256",
            hide_possible_values = true,
            value_name = "none|sha256|sha384|sha512"
        )]
        hash: HashName,
    },
    /// Tell whether a file holds a whole secret, and which
    Check {
        /// The file, or `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Print the identity of a key for TLS, by which a host offers it to a subsystem
    Derive {
        /// The file with the key, or `-` for standard input
        file: PathBuf,
        /// NQN of the host
        #[arg(long, value_name = "NQN", value_parser = nqn)]
        host: Nqn,
        /// NQN of the subsystem
        #[arg(long, value_name = "NQN", value_parser = nqn)]
        subsystem: Nqn,
        /// Version of the identity
        #[arg(long, value_name = "0|1", default_value = "1", value_parser = version)]
        identity: Version,
        /// How it is derived
        #[arg(long, value_name = "standard|compat", default_value = "standard", value_parser = derivation)]
        derivation: Derivation,
        /// Print the key that TLS takes, too
        #[arg(long)]
        reveal: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Show the secrets of hosts that a configuration file names
    List {
        /// The configuration file
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
struct Form {
    /// Form of the result
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    output: OutputFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// DH-HMAC-CHAP.
    Dhchap,
    /// A pre-shared key.
    Tls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum HashName {
    None,
    Sha256,
    Sha384,
    Sha512,
}

impl From<HashName> for Option<Hash> {
    fn from(name: HashName) -> Self {
        match name {
            HashName::None => None,
            HashName::Sha256 => Some(Hash::Sha256),
            HashName::Sha384 => Some(Hash::Sha384),
            HashName::Sha512 => Some(Hash::Sha512),
        }
    }
}

fn nqn(text: &str) -> Result<Nqn, NqnError> {
    Nqn::new(text)
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "0" => Ok(Version::V0),
        "1" => Ok(Version::V1),
        _ => Err("versions are 0 and 1".to_owned()),
    }
}

fn derivation(text: &str) -> Result<Derivation, String> {
    let found = Derivation::ALL.into_iter().find(|it| it.name() == text);
    found.ok_or_else(|| "derivations are standard and compat".to_owned())
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum KeyError {
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

pub fn run(arguments: &KeyArguments) -> ExitCode {
    let result = match &arguments.verb {
        KeyVerb::Generate { file, kind, hash } => generate(file.as_deref(), *kind, *hash),
        KeyVerb::Check { file, form } => Found::in_file(file).map(|found| form.print(&found)),
        KeyVerb::Derive {
            file,
            host,
            subsystem,
            identity,
            derivation,
            reveal,
            form,
        } => derive(file, (host, subsystem), (*identity, *derivation), *reveal)
            .map(|derived| form.print(&derived)),
        KeyVerb::List { file, form } => list::list(file).map(|list| {
            let printed = form.print(&list);
            match list.is_whole() {
                true => printed,
                false => ExitCode::FAILURE,
            }
        }),
    };
    result.unwrap_or_else(|error| fail(&error))
}

/// What can be shown as a table.
trait Shown: Serialize {
    fn text(&self) -> String;
}

impl Form {
    fn print(&self, result: &impl Shown) -> ExitCode {
        match self.output {
            OutputFormat::Text => print(result.text().as_bytes()),
            OutputFormat::Json => print(&output::json(result)),
        }
    }
}

fn generate(file: Option<&Path>, kind: Kind, hash: HashName) -> Result<ExitCode, KeyError> {
    let entropy = &mut |bytes: &mut [u8]| {
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    };
    let hash = Option::<Hash>::from(hash);
    let text = match kind {
        Kind::Dhchap => Secret::generate(hash, entropy).to_text(),
        Kind::Tls => {
            let hash = match hash {
                None => None,
                Some(hash) => Some(PskHash::from_id(hash.id()).ok_or(KeyError::NoSha512)?),
            };
            ConfiguredKey::generate(hash, entropy).to_text()
        }
    };
    let line = Zeroizing::new(format!("{}\n", *text));
    let Some(path) = file else {
        return Ok(print(line.as_bytes()));
    };
    let mut options = OpenOptions::new();
    let created = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_all()
        });
    match created {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(KeyError::Exists { path: path.into() })
        }
        Err(source) => Err(KeyError::Write {
            path: path.into(),
            source,
        }),
    }
}

/// A secret that was read.
enum Parsed {
    Dhchap(Secret),
    Tls(ConfiguredKey),
}

/// What a file holds.
#[derive(Debug, Serialize)]
struct Found {
    kind: Kind,
    hash: Option<&'static str>,
    /// Bytes of the key.
    bytes: usize,
    fingerprint: String,
    /// Permission bits; none of standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
    /// Others can read or replace it, so that the server refuses it.
    exposed: bool,
}

impl Found {
    fn in_file(path: &Path) -> Result<Self, KeyError> {
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
fn read(path: &Path) -> Result<(Parsed, Option<u32>), KeyError> {
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

/// What a key becomes for a host and a subsystem.
#[derive(Serialize)]
struct Derived {
    identity: String,
    cipher_suite: &'static str,
    derivation: &'static str,
    fingerprint: String,
    /// Hexadecimal, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    psk: Option<String>,
}

impl Shown for Derived {
    fn text(&self) -> String {
        let mut table = Table::default();
        table.row("identity", &self.identity);
        table.row("cipher suite", self.cipher_suite);
        table.row("derivation", self.derivation);
        table.row("fingerprint", &self.fingerprint);
        table.optional("key for TLS", self.psk.as_deref());
        table.to_string()
    }
}

fn derive(
    file: &Path,
    (host, subsystem): (&Nqn, &Nqn),
    (version, derivation): (Version, Derivation),
    reveal: bool,
) -> Result<Derived, KeyError> {
    let Parsed::Tls(key) = read(file)?.0 else {
        return Err(KeyError::NotForTls { path: file.into() });
    };
    let retained = key.retained(host, derivation);
    let psk = retained.tls_psk(host, subsystem, version, Origin::Configured)?;
    let hex = || psk.key().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Derived {
        identity: psk.identity.to_string(),
        cipher_suite: match key.suite() {
            PskHash::Sha256 => "TLS_AES_128_GCM_SHA256",
            PskHash::Sha384 => "TLS_AES_256_GCM_SHA384",
        },
        derivation: derivation.name(),
        fingerprint: key.fingerprint(),
        psk: reveal.then(hex),
    })
}
