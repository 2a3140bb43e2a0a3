//! `longshore key`

mod list;
mod secret_file;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use longshore_nvme::auth::{Hash, Secret};
use longshore_nvme::nqn::{Nqn, NqnError};
use longshore_nvme::psk::{ConfiguredKey, Derivation, Origin, PskHash, Version};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::exit::{fail, print};
use crate::output::{self, OutputFormat, Table};
use secret_file::{Found, KeyError, Kind, Parsed, Shown, read};

#[derive(Debug, Args)]
pub struct KeyArguments {
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Make a secret, and write it to a file or standard output
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
        /// The server's configuration file
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

pub fn version(text: &str) -> Result<Version, String> {
    let number = text.parse().ok().and_then(Version::from_number);
    number.ok_or_else(|| "versions are 0 and 1".to_owned())
}

pub fn derivation(text: &str) -> Result<Derivation, String> {
    Derivation::from_name(text).ok_or_else(|| "derivations are standard and compat".to_owned())
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
