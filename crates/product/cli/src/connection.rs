//! How the client verbs reach a server: names, secrets, digests and time-outs.
//!
//! Secrets come from files or from the environment (the names that libiscsi made common), so that
//! they stand in no list of processes. What a URL says itself wins over both.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use longshore_daemon::config::size::Span;
use longshore_initiator::options::{DigestWish, Options, TlsOptions};
use longshore_initiator::url::Url;
use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_iscsi::name::{IscsiName, NameError};
use longshore_nvme::auth::Secret as DhchapSecret;
use longshore_nvme::nqn::{Nqn, NqnError};
use longshore_nvme::psk::{ConfiguredKey, ConfiguredKeyError, Derivation, Version};
use uuid::Uuid;

use crate::key;

/// Options of every verb that connects to a server.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// iSCSI name of this initiator [default: derived from this machine and user]
    #[arg(long, value_name = "IQN")]
    pub initiator_name: Option<String>,

    /// NQN of this host for NVMe/TCP [default: /etc/nvme/hostnqn, else derived from this machine and user]
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,

    /// Host identifier for NVMe/TCP
    #[arg(long, value_name = "UUID")]
    pub host_id: Option<String>,

    /// User for CHAP, unless the URL names one
    /// [default: $LIBISCSI_CHAP_USERNAME]
    #[arg(long, value_name = "USER")]
    pub chap_user: Option<String>,

    /// File with the secret of --chap-user, or of the URL's user
    /// [default: $LIBISCSI_CHAP_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub chap_secret_file: Option<PathBuf>,

    /// User that the target must authenticate as (mutual CHAP)
    /// [default: $LIBISCSI_CHAP_TARGET_USERNAME]
    #[arg(long, value_name = "USER")]
    pub target_user: Option<String>,

    /// File with the target's secret (mutual CHAP)
    /// [default: $LIBISCSI_CHAP_TARGET_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub target_secret_file: Option<PathBuf>,

    /// File with the secret of this host for NVMe/TCP (DH-HMAC-CHAP), as nvme gen-dhchap-key writes it
    #[arg(long, value_name = "FILE")]
    pub dhchap_secret_file: Option<PathBuf>,

    /// File with the secret that the NVMe controller must prove that it knows
    #[arg(long, value_name = "FILE", requires = "dhchap_secret_file")]
    pub dhchap_ctrl_secret_file: Option<PathBuf>,

    /// File with the key by which NVMe/TCP goes over TLS, as longshore key generate --kind tls writes it
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,

    /// Version of the identity by which the server finds that key [default: 1]
    #[arg(long, value_name = "0|1", requires = "tls_key_file", value_parser = key::version)]
    pub tls_identity: Option<Version>,

    /// How TLS derives its keys from that key; libnvme up to 1.15 knows compat alone [default: standard]
    #[arg(long, value_name = "standard|compat", requires = "tls_key_file", value_parser = key::derivation)]
    pub tls_derivation: Option<Derivation>,

    /// Header digest [default: none]
    #[arg(long, value_name = "none|crc32c")]
    pub header_digest: Option<DigestArgument>,

    /// Data digest [default: none]
    #[arg(long, value_name = "none|crc32c")]
    pub data_digest: Option<DigestArgument>,

    /// Time limit for a connection, and then for the login [default: 5s and 10s]
    #[arg(long, value_name = "DURATION", value_parser = Span::parse)]
    pub connect_timeout: Option<Span>,

    /// Time limit for one command; then the client reconnects [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = Span::parse)]
    pub request_timeout: Option<Span>,

    /// Time limit for reconnecting to a lost server [default: 2m]
    #[arg(long, value_name = "DURATION", value_parser = Span::parse)]
    pub give_up: Option<Span>,
}

/// A digest as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum DigestArgument {
    None,
    /// CRC32C; a server that refuses it is not used.
    Crc32c,
}

impl From<DigestArgument> for DigestWish {
    fn from(digest: DigestArgument) -> Self {
        match digest {
            DigestArgument::None => Self::Off,
            DigestArgument::Crc32c => Self::Require,
        }
    }
}

/// What cannot be made of the connection options.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Not an iSCSI name.
    #[error("--initiator-name {name}: {source}")]
    InitiatorName { name: String, source: NameError },
    #[error("--host-nqn {name}: {source}")]
    HostNqn { name: String, source: NqnError },
    #[error("--host-id {text}: {source}; give a UUID, such as the text of /etc/nvme/hostid")]
    HostId { text: String, source: uuid::Error },
    /// A file with a secret cannot be read.
    #[error("cannot read the secret in {}: {source}; correct the path or its permissions", path.display())]
    SecretFile { path: PathBuf, source: io::Error },
    /// A secret has to have a user, and a user a secret.
    #[error("{given} needs {missing}; give both")]
    Half {
        given: &'static str,
        missing: &'static str,
    },
    /// Empty or too long.
    #[error("the secret in {origin} has {length} bytes; give a CHAP secret of 1 to 255 bytes")]
    SecretLength { origin: String, length: usize },
    /// Not a secret of DH-HMAC-CHAP.
    #[error("the secret in {}: {source}; make one with: nvme gen-dhchap-key -m 1", path.display())]
    DhchapSecret {
        path: PathBuf,
        source: longshore_nvme::auth::SecretError,
    },
    /// Not a key for TLS.
    #[error("the key in {}: {source}; make one with: longshore key generate --kind tls", path.display())]
    TlsKey {
        path: PathBuf,
        source: ConfiguredKeyError,
    },
    /// The target has to prove itself to somebody.
    #[error("mutual CHAP (--target-user) needs a user for this side too; add --chap-user")]
    MutualAlone,
}

impl ConnectionError {
    /// Whether the command line is at fault, rather than a file that it names.
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::SecretFile { .. } | Self::SecretLength { .. } | Self::DhchapSecret { .. }
        )
    }
}

/// Names of the environment variables of libiscsi, and of the options that they stand in for.
struct Account {
    user: &'static str,
    secret: &'static str,
    user_variable: &'static str,
    secret_variable: &'static str,
}

const OWN: Account = Account {
    user: "--chap-user",
    secret: "--chap-secret-file",
    user_variable: "LIBISCSI_CHAP_USERNAME",
    secret_variable: "LIBISCSI_CHAP_PASSWORD",
};

const TARGET: Account = Account {
    user: "--target-user",
    secret: "--target-secret-file",
    user_variable: "LIBISCSI_CHAP_TARGET_USERNAME",
    secret_variable: "LIBISCSI_CHAP_TARGET_PASSWORD",
};

impl ConnectionArguments {
    /// The options of connections to `url`, or to whatever a discovery finds.
    pub fn options(&self, url: Option<&Url>) -> Result<Options, ConnectionError> {
        self.options_with(url, |name| std::env::var(name).ok())
    }

    fn options_with(
        &self,
        url: Option<&Url>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Options, ConnectionError> {
        let mut options = Options {
            initiator_name: self.initiator_name()?,
            host_nqn: self.host_nqn()?,
            host_id: self.host_id()?,
            ..Options::default()
        };
        let (url_user, url_has_password) = match url {
            Some(Url::Iscsi(url)) => (url.user.clone(), url.password.is_some()),
            _ => (None, false),
        };
        // What the URL says in full needs nothing from here.
        if !url_has_password {
            let half = url_user.is_none() && self.chap_user.is_some();
            let user = url_user.or_else(|| self.chap_user.clone());
            let file = self.chap_secret_file.as_deref();
            options.chap = account(&OWN, user, half, file, &variable)?;
        }
        options.mutual_chap = account(
            &TARGET,
            self.target_user.clone(),
            self.target_user.is_some(),
            self.target_secret_file.as_deref(),
            &variable,
        )?;
        if options.mutual_chap.is_some() && options.chap.is_none() && !url_has_password {
            return Err(ConnectionError::MutualAlone);
        }
        options.nvme.secret = dhchap_secret(self.dhchap_secret_file.as_deref())?;
        options.nvme.controller_secret = dhchap_secret(self.dhchap_ctrl_secret_file.as_deref())?;
        if let Some(path) = &self.tls_key_file {
            let mut tls = TlsOptions::new(tls_key(path)?);
            tls.version = self.tls_identity.unwrap_or(tls.version);
            tls.derivation = self.tls_derivation.unwrap_or(tls.derivation);
            options.nvme.tls = Some(tls);
        }
        if let Some(digest) = self.header_digest {
            options.header_digest = digest.into();
        }
        if let Some(digest) = self.data_digest {
            options.data_digest = digest.into();
        }
        let timeouts = &mut options.timeouts;
        if let Some(Span(connect)) = self.connect_timeout {
            (timeouts.connect, timeouts.login) = (connect, connect);
        }
        if let Some(Span(request)) = self.request_timeout {
            timeouts.request = request;
        }
        if let Some(Span(give_up)) = self.give_up {
            timeouts.give_up = give_up;
        }
        Ok(options)
    }

    fn initiator_name(&self) -> Result<Option<IscsiName>, ConnectionError> {
        let parse = |name: &String| {
            IscsiName::parse(name).map_err(|source| ConnectionError::InitiatorName {
                name: name.clone(),
                source,
            })
        };
        self.initiator_name.as_ref().map(parse).transpose()
    }

    fn host_nqn(&self) -> Result<Option<Nqn>, ConnectionError> {
        let parse = |name: &String| {
            Nqn::new(name).map_err(|source| ConnectionError::HostNqn {
                name: name.clone(),
                source,
            })
        };
        self.host_nqn.as_ref().map(parse).transpose()
    }

    fn host_id(&self) -> Result<Option<[u8; 16]>, ConnectionError> {
        let parse = |text: &String| {
            Uuid::try_parse(text.trim())
                .map(Uuid::into_bytes)
                .map_err(|source| ConnectionError::HostId {
                    text: text.clone(),
                    source,
                })
        };
        self.host_id.as_ref().map(parse).transpose()
    }
}

/// One side's name and secret, if there are any. `named`: a user was named by an option, and so there
/// has to be a secret.
fn account(
    names: &Account,
    user: Option<String>,
    named: bool,
    file: Option<&Path>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<ChapAccount>, ConnectionError> {
    let half = |given, missing| Err(ConnectionError::Half { given, missing });
    let (secret, origin) = match file {
        Some(path) => (Some(read_secret(path)?), path.display().to_string()),
        None => (
            variable(names.secret_variable),
            format!("${}", names.secret_variable),
        ),
    };
    match (user.or_else(|| variable(names.user_variable)), secret) {
        (Some(name), Some(secret)) => match secret.len() {
            1..=255 => Ok(Some(ChapAccount {
                name,
                secret: Secret::new(secret.into_bytes()),
            })),
            length => Err(ConnectionError::SecretLength { origin, length }),
        },
        (None, Some(_)) if file.is_some() => half(names.secret, names.user),
        (Some(_), None) if named => half(names.user, names.secret),
        // Half an account in the environment is none.
        _ => Ok(None),
    }
}

/// A secret of DH-HMAC-CHAP, if there is a file for it.
fn dhchap_secret(path: Option<&Path>) -> Result<Option<DhchapSecret>, ConnectionError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let text = read_secret(path)?;
    let secret =
        DhchapSecret::parse(text.trim()).map_err(|source| ConnectionError::DhchapSecret {
            path: path.to_owned(),
            source,
        })?;
    Ok(Some(secret))
}

fn tls_key(path: &Path) -> Result<ConfiguredKey, ConnectionError> {
    let text = read_secret(path)?;
    ConfiguredKey::parse(text.trim()).map_err(|source| ConnectionError::TlsKey {
        path: path.to_owned(),
        source,
    })
}

/// Reads a secret file; the line end that editors leave behind is not part of the secret.
fn read_secret(path: &Path) -> Result<String, ConnectionError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConnectionError::SecretFile {
        path: path.to_owned(),
        source,
    })?;
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o004 != 0) {
        eprintln!(
            "warning: {}: every user of this machine can read this secret; run chmod 600 on it",
            path.display()
        );
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(
        arguments: &ConnectionArguments,
        url: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Options, ConnectionError> {
        let url = url.map(|url| url.parse::<Url>().unwrap());
        arguments.options_with(url.as_ref(), |name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn secret_file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    const ENVIRONMENT: [(&str, &str); 2] = [
        ("LIBISCSI_CHAP_USERNAME", "ann"),
        ("LIBISCSI_CHAP_PASSWORD", "secret of ann"),
    ];

    #[test]
    fn secrets_come_from_files_and_lose_their_line_end() {
        let file = secret_file("sixteen letters!\n");
        let arguments = ConnectionArguments {
            chap_user: Some("bob".into()),
            chap_secret_file: Some(file.path().to_owned()),
            ..ConnectionArguments::default()
        };
        let chap = options(&arguments, None, &ENVIRONMENT)
            .unwrap()
            .chap
            .unwrap();
        assert_eq!(chap.name, "bob");
        assert_eq!(chap.secret, Secret::from("sixteen letters!"));
    }

    #[test]
    fn the_environment_of_libiscsi_is_used_when_nothing_else_is_said() {
        let arguments = ConnectionArguments::default();
        let chap = options(&arguments, None, &ENVIRONMENT)
            .unwrap()
            .chap
            .unwrap();
        assert_eq!(chap.name, "ann");
        assert!(
            options(&arguments, None, &ENVIRONMENT[1..])
                .unwrap()
                .chap
                .is_none()
        );
    }

    #[test]
    fn the_url_wins() {
        let arguments = ConnectionArguments::default();
        let url = "iscsi://carl%25password@127.0.0.1/iqn.2026-11.local.longshore:default/0";
        let url = url.replace("%25", "%");
        let given = options(&arguments, Some(&url), &ENVIRONMENT).unwrap();
        assert!(given.chap.is_none(), "the URL has it all");
        let url = "iscsi://carl@127.0.0.1/iqn.2026-11.local.longshore:default/0";
        let given = options(&arguments, Some(url), &ENVIRONMENT).unwrap();
        assert_eq!(given.chap.unwrap().name, "carl");
    }

    #[test]
    fn half_an_account_is_refused() {
        let file = secret_file("s");
        for arguments in [
            ConnectionArguments {
                chap_user: Some("bob".into()),
                ..ConnectionArguments::default()
            },
            ConnectionArguments {
                chap_secret_file: Some(file.path().to_owned()),
                ..ConnectionArguments::default()
            },
            ConnectionArguments {
                target_user: Some("t".into()),
                target_secret_file: Some(file.path().to_owned()),
                ..ConnectionArguments::default()
            },
        ] {
            let error = options(&arguments, None, &[]).unwrap_err().to_string();
            assert!(error.contains("--"), "{error}");
        }
    }

    #[test]
    fn digests_and_times_are_passed_on() {
        let arguments = ConnectionArguments {
            data_digest: Some(DigestArgument::Crc32c),
            give_up: Some(Span::parse("7s").unwrap()),
            host_id: Some("0b5c1f5e-2f5b-4b43-9d4c-6c1f3f0d7a11".into()),
            ..ConnectionArguments::default()
        };
        let options = options(&arguments, None, &[]).unwrap();
        assert_eq!(options.data_digest, DigestWish::Require);
        assert_eq!(options.header_digest, DigestWish::Off);
        assert_eq!(options.timeouts.give_up.as_secs(), 7);
        assert_eq!(options.host_id.unwrap()[0], 0x0b);
        let wrong = ConnectionArguments {
            host_nqn: Some("nqn".into()),
            ..ConnectionArguments::default()
        };
        assert!(self::options(&wrong, None, &[]).is_err());
    }
}
