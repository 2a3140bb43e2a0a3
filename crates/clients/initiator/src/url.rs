//! Names of remote volumes.
//!
//! ```text
//! iscsi://[USER[%PASSWORD]@]HOST[:PORT]/IQN/LUN[?QUERY]       the form libiscsi made common
//! nvme+tcp://HOST[:PORT]/NQN/NSID[?QUERY]                     the form libnvme parses
//!
//! QUERY: portal=HOST[:PORT]              one more path to the volume; may be repeated
//!        header_digest=none|crc32c       a digest over headers, and over data: off, or required
//!        data_digest=none|crc32c
//!        target_user=…&target_password=… iSCSI: the target has to prove that it knows these
//! ```
//!
//! IPv6 addresses stand in brackets. In the names and the query, `%` and two hexadecimal digits stand for
//! a byte. In front of the `@` the first `%` separates user and password instead, so a user has none; in the
//! password, again, `%` and two hexadecimal digits stand for a byte, and any other `%` for itself.
//!
//! Nothing here prints a password: [`Display`](fmt::Display) leaves passwords out, and `Debug` shows `***`.

use std::fmt;
use std::str::FromStr;

use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_iscsi::name::{IscsiName, NameError};
use longshore_nvme::nqn::{Nqn, NqnError};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::digest::DigestWish;

mod escape;
mod host_port;
#[cfg(test)]
mod tests;

pub use host_port::{HostPort, HostPortError};

use escape::{Escaped, decode};

/// The port of iSCSI targets.
pub const ISCSI_PORT: u16 = 3260;
/// The port of NVMe/TCP controllers.
pub const NVME_PORT: u16 = 4420;
/// The port of NVMe/TCP discovery controllers.
pub const NVME_DISCOVERY_PORT: u16 = 8009;

/// Highest LUN with an address of one level (SAM-5 §4.7.7.5).
pub const LUN_MAX: u16 = 0x3fff;

/// Portals that one URL may name.
pub const PORTALS_MAX: usize = 16;

const LENGTH_MAX: usize = 4096;

/// The name of a remote volume. See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// A logical unit of an iSCSI target.
    Iscsi(IscsiUrl),
    /// A namespace of an NVMe/TCP subsystem.
    NvmeTcp(NvmeUrl),
}

/// A logical unit of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiUrl {
    /// CHAP: the name of the initiator's side.
    pub user: Option<String>,
    /// CHAP: the initiator's secret. Not printed.
    pub password: Option<Secret>,
    /// CHAP: the name that the target is to give.
    pub target_user: Option<String>,
    /// CHAP: what the target has to know. Not printed.
    pub target_password: Option<Secret>,
    /// Where it can be reached; at least one.
    pub portals: Vec<HostPort>,
    /// TargetName: an IQN, EUI or NAA name.
    pub target: IscsiName,
    /// The logical unit's number.
    pub lun: u16,
    /// What the URL says of digests, and nothing else.
    pub digests: DigestWishes,
}

/// A namespace of an NVMe/TCP subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeUrl {
    /// Where it can be reached; at least one.
    pub portals: Vec<HostPort>,
    /// SUBNQN of the subsystem with the namespace.
    pub subsystem: Nqn,
    /// NSID, from 1 to FFFFFFFEh.
    pub namespace: u32,
    /// What the URL says of digests, and nothing else.
    pub digests: DigestWishes,
}

/// What a URL says of digests; where it says nothing, options decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestWishes {
    /// CRC32C over headers; `None`: the URL says nothing.
    pub header: Option<DigestWish>,
    /// CRC32C over data; `None`: the URL says nothing.
    pub data: Option<DigestWish>,
}

/// Why a text is no URL of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is neither `iscsi` nor `nvme+tcp`.
    #[error(
        "a volume's URL is iscsi://HOST[:PORT]/IQN/LUN or nvme+tcp://HOST[:PORT]/NQN/NSID; this one starts with neither iscsi:// nor nvme+tcp://"
    )]
    Scheme,
    /// Longer than any sensible one.
    #[error("the URL has {0} bytes; use {LENGTH_MAX} at most")]
    TooLong(usize),
    /// Parts are missing or too many.
    #[error("{form}: {problem}")]
    Form {
        /// What it should look like.
        form: &'static str,
        /// The part that is missing or too much.
        problem: &'static str,
    },
    /// The host or port.
    #[error("host {text:?}: {source}")]
    Host {
        /// Host and port as written.
        text: String,
        /// The rule for hosts that it breaks.
        source: HostPortError,
    },
    /// The target is no iSCSI name.
    #[error("target {text:?}: {source}")]
    Target {
        /// The name as written, after decoding.
        text: String,
        /// The rule for names that it breaks (RFC 7143 §4.2.7).
        source: NameError,
    },
    /// The subsystem is no NQN.
    #[error("subsystem {text:?}: {source}")]
    Subsystem {
        /// The name as written, after decoding.
        text: String,
        /// The rule for NQNs that it breaks (NVMe base §4.5).
        source: NqnError,
    },
    /// The LUN is no number, or out of range.
    #[error("LUN {0:?}: use a number from 0 to {LUN_MAX}")]
    Lun(String),
    /// The NSID is no number, or a reserved one (0, FFFFFFFFh).
    #[error("namespace {0:?}: use a number from 1 to 4294967294")]
    Namespace(String),
    /// Not UTF-8 after decoding.
    #[error("{0}: the bytes that the % signs stand for are not text")]
    Escape(&'static str),
    /// A query parameter that nobody knows. Its value is not repeated: it may be a secret.
    #[error("unknown parameter {name:?}; use {known}")]
    Parameter {
        /// The unknown name, as written.
        name: String,
        /// All parameters of the protocol, for the message.
        known: &'static str,
    },
    /// A query parameter with a wrong value.
    #[error("{name}={value:?}: use {choices}")]
    Value {
        /// Name of the parameter at fault.
        name: &'static str,
        /// Its value, as written.
        value: String,
        /// What it may be.
        choices: &'static str,
    },
    /// A parameter that stands twice, or a password without a user.
    #[error("{0}")]
    Combination(&'static str),
    /// More portals than a volume can have paths.
    #[error("the URL has more than {PORTALS_MAX} portals; remove some")]
    Portals,
}

const ISCSI_FORM: &str = "an iSCSI URL is iscsi://[USER[%PASSWORD]@]HOST[:PORT]/IQN/LUN";
const NVME_FORM: &str = "an NVMe/TCP URL is nvme+tcp://HOST[:PORT]/NQN/NSID";
const ISCSI_PARAMETERS: &str =
    "portal, header_digest, data_digest, target_user and target_password";
const NVME_PARAMETERS: &str = "portal, header_digest and data_digest";

impl Url {
    /// Where the volume can be reached; at least one.
    #[must_use]
    pub fn portals(&self) -> &[HostPort] {
        match self {
            Self::Iscsi(url) => &url.portals,
            Self::NvmeTcp(url) => &url.portals,
        }
    }

    /// What it says of digests.
    #[must_use]
    pub const fn digests(&self) -> DigestWishes {
        match self {
            Self::Iscsi(url) => url.digests,
            Self::NvmeTcp(url) => url.digests,
        }
    }

    /// Whether a text looks like a URL of a volume, as opposed to the name of a file.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        text.starts_with(ISCSI_SCHEME) || text.starts_with(NVME_SCHEME)
    }
}

const ISCSI_SCHEME: &str = "iscsi://";
const NVME_SCHEME: &str = "nvme+tcp://";

impl IscsiUrl {
    /// The initiator's CHAP account, when the URL names user and password.
    #[must_use]
    pub fn chap(&self) -> Option<ChapAccount> {
        account(self.user.as_ref(), self.password.as_ref())
    }

    /// The target's CHAP account, when the URL names one.
    #[must_use]
    pub fn mutual_chap(&self) -> Option<ChapAccount> {
        account(self.target_user.as_ref(), self.target_password.as_ref())
    }
}

fn account(user: Option<&String>, password: Option<&Secret>) -> Option<ChapAccount> {
    Some(ChapAccount {
        name: user?.clone(),
        secret: password?.clone(),
    })
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > LENGTH_MAX {
            return Err(UrlError::TooLong(text.len()));
        }
        if let Some(rest) = text.strip_prefix(ISCSI_SCHEME) {
            parse_iscsi(rest).map(Self::Iscsi)
        } else if let Some(rest) = text.strip_prefix(NVME_SCHEME) {
            parse_nvme(rest).map(Self::NvmeTcp)
        } else {
            Err(UrlError::Scheme)
        }
    }
}

impl TryFrom<&str> for Url {
    type Error = UrlError;

    fn try_from(text: &str) -> Result<Self, UrlError> {
        text.parse()
    }
}

/// The parts of a URL behind its scheme.
struct Parts<'a> {
    /// In front of the last `@` of the authority.
    user_info: Option<&'a str>,
    host: &'a str,
    name: &'a str,
    number: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str, form: &'static str) -> Result<Self, UrlError> {
        let wrong = |problem| UrlError::Form { form, problem };
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (authority, path) = path
            .split_once('/')
            .ok_or_else(|| wrong("the part after the host is missing"))?;
        let (name, number) = path
            .split_once('/')
            .ok_or_else(|| wrong("the number of the volume is missing"))?;
        if number.contains('/') {
            return Err(wrong("there is one / too many"));
        }
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, authority),
        };
        Ok(Self {
            user_info,
            host,
            name,
            number,
            query,
        })
    }
}

fn parse_iscsi(text: &str) -> Result<IscsiUrl, UrlError> {
    let parts = Parts::split(text, ISCSI_FORM)?;
    let (user, password) = match parts.user_info {
        Some(user_info) => parse_user_info(user_info)?,
        None => (None, None),
    };
    let name = decode(parts.name).ok_or(UrlError::Escape("target"))?;
    let target = IscsiName::parse(&name).map_err(|source| UrlError::Target {
        text: name.to_string(),
        source,
    })?;
    let lun = number(parts.number)
        .and_then(|lun| u16::try_from(lun).ok())
        .filter(|lun| *lun <= LUN_MAX)
        .ok_or_else(|| UrlError::Lun(parts.number.to_owned()))?;
    let mut url = IscsiUrl {
        user,
        password,
        target_user: None,
        target_password: None,
        portals: vec![portal(parts.host, ISCSI_PORT)?],
        target,
        lun,
        digests: DigestWishes::default(),
    };
    for parameter in parameters(parts.query) {
        let (name, value) = parameter?;
        match name {
            "target_user" => once(&mut url.target_user, value.to_string())?,
            "target_password" => once(&mut url.target_password, Secret::from(value.as_str()))?,
            _ => {
                let parameter = Common {
                    name,
                    value: &value,
                    known: ISCSI_PARAMETERS,
                };
                parameter.apply(&mut url.portals, ISCSI_PORT, &mut url.digests)?;
            }
        }
    }
    if url.target_user.is_some() != url.target_password.is_some() {
        let text = "target_user and target_password need each other; give both";
        return Err(UrlError::Combination(text));
    }
    Ok(url)
}

fn parse_nvme(text: &str) -> Result<NvmeUrl, UrlError> {
    let parts = Parts::split(text, NVME_FORM)?;
    if parts.user_info.is_some() {
        return Err(UrlError::Form {
            form: NVME_FORM,
            problem: "NVMe/TCP has no users; remove the user",
        });
    }
    let name = decode(parts.name).ok_or(UrlError::Escape("subsystem"))?;
    let subsystem = Nqn::new(&name).map_err(|source| UrlError::Subsystem {
        text: name.to_string(),
        source,
    })?;
    let namespace = number(parts.number)
        .filter(|number| (1..u32::MAX).contains(number))
        .ok_or_else(|| UrlError::Namespace(parts.number.to_owned()))?;
    let mut url = NvmeUrl {
        portals: vec![portal(parts.host, NVME_PORT)?],
        subsystem,
        namespace,
        digests: DigestWishes::default(),
    };
    for parameter in parameters(parts.query) {
        let (name, value) = parameter?;
        let parameter = Common {
            name,
            value: &value,
            known: NVME_PARAMETERS,
        };
        parameter.apply(&mut url.portals, NVME_PORT, &mut url.digests)?;
    }
    Ok(url)
}

type Credentials = (Option<String>, Option<Secret>);

fn parse_user_info(text: &str) -> Result<Credentials, UrlError> {
    let (user, password) = match text.split_once('%') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    if user.is_empty() {
        return Err(UrlError::Combination("the user before the @ is missing"));
    }
    let password = password
        .map(|password| decode(password).ok_or(UrlError::Escape("password")))
        .transpose()?;
    let secret = password.map(|password| Secret::from(password.as_str()));
    Ok((Some(user.to_owned()), secret))
}

/// Decimal digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn portal(text: &str, port: u16) -> Result<HostPort, UrlError> {
    HostPort::parse(text, port).map_err(|source| UrlError::Host {
        text: text.to_owned(),
        source,
    })
}

/// The query's parameters, with decoded values. A value may be a secret.
fn parameters(
    query: &str,
) -> impl Iterator<Item = Result<(&str, Zeroizing<String>), UrlError>> + '_ {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value).ok_or(UrlError::Escape("query"))?;
        Ok((name, value))
    })
}

/// A parameter that both protocols have.
struct Common<'a> {
    name: &'a str,
    value: &'a str,
    known: &'static str,
}

impl Common<'_> {
    fn apply(
        &self,
        portals: &mut Vec<HostPort>,
        port: u16,
        digests: &mut DigestWishes,
    ) -> Result<(), UrlError> {
        match self.name {
            "portal" => {
                let portal = portal(self.value, port)?;
                if !portals.contains(&portal) {
                    portals.push(portal);
                }
                if portals.len() > PORTALS_MAX {
                    return Err(UrlError::Portals);
                }
                Ok(())
            }
            "header_digest" => once(&mut digests.header, self.digest("header_digest")?),
            "data_digest" => once(&mut digests.data, self.digest("data_digest")?),
            name => Err(UrlError::Parameter {
                name: name.to_owned(),
                known: self.known,
            }),
        }
    }

    fn digest(&self, name: &'static str) -> Result<DigestWish, UrlError> {
        if self.value.eq_ignore_ascii_case("none") {
            Ok(DigestWish::Off)
        } else if self.value.eq_ignore_ascii_case("crc32c") {
            Ok(DigestWish::Require)
        } else {
            Err(UrlError::Value {
                name,
                value: self.value.to_owned(),
                choices: "none or crc32c",
            })
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), UrlError> {
    if place.replace(value).is_some() {
        let text = "a parameter is given twice; only portal may be repeated";
        return Err(UrlError::Combination(text));
    }
    Ok(())
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi(url) => url.fmt(f),
            Self::NvmeTcp(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for IscsiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ISCSI_SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let target = Escaped(self.target.as_str());
        write_portal(f, self.portals.first(), ISCSI_PORT)?;
        write!(f, "/{target}/{}", self.lun)?;
        let mut query = Query::new(f);
        query.common(&self.portals, ISCSI_PORT, self.digests)
    }
}

impl fmt::Display for NvmeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NVME_SCHEME)?;
        let subsystem = Escaped(self.subsystem.as_str());
        write_portal(f, self.portals.first(), NVME_PORT)?;
        write!(f, "/{subsystem}/{}", self.namespace)?;
        let mut query = Query::new(f);
        query.common(&self.portals, NVME_PORT, self.digests)
    }
}

/// The port only where it is another than usual.
fn write_portal(
    f: &mut fmt::Formatter<'_>,
    portal: Option<&HostPort>,
    usual_port: u16,
) -> fmt::Result {
    match portal {
        Some(portal) if portal.port == usual_port => f.write_str(&portal.host_text()),
        Some(portal) => write!(f, "{portal}"),
        None => Ok(()),
    }
}

/// Writes parameters behind the right separators.
struct Query<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    separator: &'static str,
}

impl<'a, 'b> Query<'a, 'b> {
    const fn new(out: &'a mut fmt::Formatter<'b>) -> Self {
        Self {
            out,
            separator: "?",
        }
    }

    fn common(
        &mut self,
        portals: &[HostPort],
        usual_port: u16,
        digests: DigestWishes,
    ) -> fmt::Result {
        for portal in portals.iter().skip(1) {
            self.name("portal")?;
            write_portal(self.out, Some(portal), usual_port)?;
        }
        self.digest("header_digest", digests.header)?;
        self.digest("data_digest", digests.data)
    }

    fn name(&mut self, name: &str) -> fmt::Result {
        write!(self.out, "{}{name}=", self.separator)?;
        self.separator = "&";
        Ok(())
    }

    fn digest(&mut self, name: &str, wish: Option<DigestWish>) -> fmt::Result {
        let Some(wish) = wish else { return Ok(()) };
        self.name(name)?;
        self.out.write_str(match wish {
            DigestWish::Off => "none",
            DigestWish::Ask | DigestWish::Require => "crc32c",
        })
    }
}
