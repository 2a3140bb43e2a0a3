//! Settings of volumes on other machines, for the command line and the file.

use std::path::PathBuf;
use std::str::FromStr;

use longshore_initiator::url::{Url, UrlError};
use longshore_iscsi::name::{IscsiName, NameError};
use longshore_nvme::nqn::{Nqn, NqnError};
use longshore_nvme::psk::{Derivation, Version};
use longshore_remote::RemoteSpec;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::size::{Span, SpanError};

/// Most connections to one remote volume.
const QUEUES_MAX: u16 = 64;
/// Most commands that one connection carries.
const DEPTH_MAX: u16 = 4096;

/// What is said of a remote volume; `None` is "not given". What it means together is checked when the
/// volume is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSettings {
    pub url: Option<RemoteUrl>,
    /// A file with the secret of the URL's user.
    pub secret_file: Option<PathBuf>,
    /// A file with the secret of this host (DH-HMAC-CHAP).
    pub dhchap_secret_file: Option<PathBuf>,
    /// A file with the secret of the controller.
    pub dhchap_ctrl_secret_file: Option<PathBuf>,
    /// A file with the key for TLS.
    pub tls_key_file: Option<PathBuf>,
    pub tls_identity: Option<TlsIdentity>,
    pub tls_derivation: Option<TlsDerivation>,
    /// The name to log in with over iSCSI.
    pub initiator_name: Option<InitiatorName>,
    /// The name to connect with over NVMe/TCP.
    pub host_nqn: Option<HostNqn>,
    /// Number of connections to the other server.
    pub queues: Option<Queues>,
    /// Commands that a connection carries.
    pub depth: Option<Depth>,
    /// How long operations wait for a server that cannot be reached.
    pub give_up: Option<Span>,
}

impl RemoteSettings {
    /// The specification with these settings; `block_size` is that of the volume, when given.
    #[must_use]
    pub fn specification(self, block_size: Option<u32>) -> RemoteSpec {
        RemoteSpec {
            url: self.url.map(|url| url.0),
            secret_file: self.secret_file,
            dhchap_secret_file: self.dhchap_secret_file,
            dhchap_ctrl_secret_file: self.dhchap_ctrl_secret_file,
            tls_key_file: self.tls_key_file,
            tls_identity: self.tls_identity.map(|it| it.0),
            tls_derivation: self.tls_derivation.map(|it| it.0),
            initiator_name: self.initiator_name.map(|name| name.0),
            host_nqn: self.host_nqn.map(|name| name.0),
            block_size,
            queues: self.queues.map(|queues| queues.0),
            depth: self.depth.map(|depth| depth.0),
            give_up: self.give_up.map(|span| span.0),
        }
    }
}

/// Why a setting of a remote volume is refused. No message repeats a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteSettingError {
    /// Not the URL of a volume.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Not an iSCSI name.
    #[error("`{name}` is not an iSCSI name: {reason}")]
    InitiatorName {
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// Not an NVMe qualified name.
    #[error("`{name}` is not an NVMe qualified name: {reason}")]
    HostNqn {
        name: String,
        /// What is wrong with it.
        reason: NqnError,
    },
    /// Not a number, or too small or large.
    #[error("`{text}` is not a number of {what}; use 1 to {most}")]
    Count {
        text: String,
        what: &'static str,
        /// The most there can be.
        most: u16,
    },
    #[error("`{0}` is not a version of identities; use 0 or 1")]
    TlsIdentity(String),
    #[error("`{0}` is not a derivation; use standard or compat")]
    TlsDerivation(String),
    #[error(transparent)]
    Span(#[from] SpanError),
}

/// Of the identity by which the other server finds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsIdentity(pub Version);

impl FromStr for TlsIdentity {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        let version = text.parse().ok().and_then(Version::from_number);
        let wrong = || RemoteSettingError::TlsIdentity(text.to_owned());
        version.map(Self).ok_or_else(wrong)
    }
}

/// How keys of TLS come from the configured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsDerivation(pub Derivation);

impl FromStr for TlsDerivation {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        let wrong = || RemoteSettingError::TlsDerivation(text.to_owned());
        Derivation::from_name(text).map(Self).ok_or_else(wrong)
    }
}

/// The URL of a remote volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl(pub Url);

impl FromStr for RemoteUrl {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        Ok(Self(text.parse()?))
    }
}

/// A name to log in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorName(pub IscsiName);

impl FromStr for InitiatorName {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        let name = IscsiName::parse(text).map_err(|reason| RemoteSettingError::InitiatorName {
            name: text.to_owned(),
            reason,
        })?;
        Ok(Self(name))
    }
}

/// A name to connect with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNqn(pub Nqn);

impl FromStr for HostNqn {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        let name = Nqn::new(text).map_err(|reason| RemoteSettingError::HostNqn {
            name: text.to_owned(),
            reason,
        })?;
        Ok(Self(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues(pub u16);

impl FromStr for Queues {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        count(text, "connections", QUEUES_MAX).map(Self)
    }
}

/// How many commands at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(pub u16);

impl FromStr for Depth {
    type Err = RemoteSettingError;

    fn from_str(text: &str) -> Result<Self, RemoteSettingError> {
        count(text, "commands", DEPTH_MAX).map(Self)
    }
}

fn count(text: &str, what: &'static str, most: u16) -> Result<u16, RemoteSettingError> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| RemoteSettingError::Count {
            text: text.to_owned(),
            what,
            most,
        })
}

deserialize_from_str!(RemoteUrl, InitiatorName, HostNqn, TlsDerivation);

macro_rules! read_from_number {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = u64::deserialize(deserializer)?;
                number.to_string().parse().map_err(D::Error::custom)
            }
        }
    )+};
}
read_from_number!(Queues, Depth, TlsIdentity);
