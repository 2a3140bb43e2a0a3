//! What can be wrong with a configuration, where, and what to do about it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use longshore_iscsi::name::NameError;
use longshore_nvme::auth::SecretError;
use longshore_nvme::nqn::{DISCOVERY_NQN, NqnError};
use longshore_nvme::psk::ConfiguredKeyError;
use longshore_volume::open::OpenError;

use super::engine::CoreList;
use super::masked::Masked;
use super::numbers::NSID_MAX;
use super::suggest;
use super::volume::SettingError;
use crate::held;
use crate::state::StateError;

/// A place in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    /// Line of the file, from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The text of that line; `None` when it may hold a secret.
    pub excerpt: Option<String>,
    /// Characters to underline, at least one.
    pub width: usize,
}

impl Location {
    /// The place of a range of bytes of the file's text.
    #[must_use]
    pub fn new(path: &Path, text: &str, span: Range<usize>) -> Self {
        Self::within(path, text, &Lines::of(text), span)
    }

    /// The same in a text whose lines are known.
    #[must_use]
    pub fn within(path: &Path, text: &str, lines: &Lines, span: Range<usize>) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end.max(start));
        let (line, line_start) = lines.at(start);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let excerpt = text[line_start..line_end].trim_end();
        Self {
            path: path.to_owned(),
            line,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end.clamp(start, line_end)]
                .trim_end()
                .chars()
                .count()
                .max(1),
            excerpt: (!holds_secret(excerpt)).then(|| excerpt.to_owned()),
        }
    }
}

/// Where the lines of a text begin.
#[derive(Clone, Debug)]
pub struct Lines(Vec<usize>);

impl Lines {
    #[must_use]
    pub fn of(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// The number of the line around a byte, from 1, and where the line begins.
    fn at(&self, byte: usize) -> (usize, usize) {
        let number = self.0.partition_point(|start| *start <= byte);
        (number, self.0[number - 1])
    }
}

/// Whether a line may hold a secret: one by name, or the password of a URL.
pub(super) fn holds_secret(line: &str) -> bool {
    line.contains("secret") || line.contains("password") || Masked::new(line).has_secrets()
}

/// The nearest character boundary at or before `at`, within the text.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Something wrong with the configuration, and where when it stands in a file.
#[derive(Debug)]
pub struct Problem {
    /// Where, when it stands in a file.
    pub location: Option<Box<Location>>,
    pub kind: ProblemKind,
}

impl Problem {
    /// A problem that stands nowhere in a file.
    #[must_use]
    pub fn general(kind: ProblemKind) -> Self {
        Self {
            location: None,
            kind,
        }
    }
}

impl Problem {
    /// Whether options of the command line exclude each other.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self.kind, ProblemKind::DiscoveryContradiction)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = &self.location else {
            return write!(f, "{}", self.kind);
        };
        write!(
            f,
            "{}:{}:{}: {}",
            at.path.display(),
            at.line,
            at.column,
            self.kind
        )?;
        let Some(excerpt) = &at.excerpt else {
            return Ok(());
        };
        let number = at.line.to_string();
        let (gutter, indent, width) = (number.len(), at.column - 1, at.width);
        writeln!(f, "\n  {number} | {excerpt}")?;
        write!(f, "  {:gutter$} | {:indent$}{:^<width$}", "", "", "")
    }
}

impl std::error::Error for Problem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

/// What is wrong. The text says what to do next where that is not plain.
#[derive(Debug, thiserror::Error)]
pub enum ProblemKind {
    /// The file cannot be read.
    #[error("cannot read configuration file {}: {source}; correct the path or its permissions", path.display())]
    FileUnreadable {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A variable of the environment.
    #[error(
        "environment variable {name}: `{text}` is not a number of requests; correct or unset it"
    )]
    Environment { name: &'static str, text: String },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// One of two files.
    #[error("TLS needs both `tls-certificate` and `tls-key`; add the other one")]
    HalfOfTls,
    /// The control API in the clear.
    #[error(
        "other machines can reach the control API at {address}, and tokens would cross the network in the clear.\n\
         Do one of these:\n  \
         - listen on loopback only: --api 127.0.0.1:9260\n  \
         - give it a certificate: tls-certificate and tls-key of [api] in the file given with --config\n  \
         - if a proxy in front of it encrypts: [api] allow-plain = true in that file"
    )]
    PlainApi { address: String },
    /// A setting of a volume.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// There is nothing to serve.
    #[error(
        "there is no volume to serve; add for example --volume disk0,backend=mem,size=1G, or \
         [[volume]] tables to the file given with --config"
    )]
    NoVolume,
    /// A volume without a backend.
    #[error("volume `{0}` has no backend; add backend=null, mem, file or block")]
    NoBackend(String),
    /// Two volumes of one name.
    #[error("two volumes have the name `{0}`; rename one of them")]
    DuplicateVolume(String),
    /// Two pools of one name.
    #[error("two pools have the name `{0}`; rename one of them")]
    DuplicatePool(String),
    #[error(
        "`{0}` is not a name of a pool; use 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit"
    )]
    BadPoolName(String),
    #[error("pool `{0}` has no drives; list all its files and devices")]
    NoDrives(String),
    /// Two volumes that hosts would take for one.
    #[error(
        "volumes `{volume}` and `{other}` have the worldwide name {name}: hosts would take them for one disk; \
         change `naa`, `nguid`, `eui64` or `uuid` of one of them"
    )]
    WorldwideNameTwice {
        volume: String,
        /// The volume that has it already.
        other: String,
        /// With its kind: `naa.…`, or `eui.…` of an NGUID or EUI-64.
        name: String,
    },
    /// A volume that could not be opened.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// Not an iSCSI name.
    #[error(
        "`{name}` is not an iSCSI name: {reason}; write for example iqn.2026-11.com.example:disks"
    )]
    BadName {
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// Two targets of one name.
    #[error("two targets have the name `{0}`; rename one of them")]
    DuplicateTarget(String),
    /// An alias that login cannot carry.
    #[error("write an alias of 1 to 255 bytes without control characters")]
    BadAlias,
    /// An address that no initiator can be sent to.
    #[error(
        "initiators cannot be redirected to `{0}`; write the address or host name of a portal, for \
         example 192.0.2.7:3260"
    )]
    BadMovedTo(String),
    /// Moved for good, but not to anywhere.
    #[error("a target that has moved needs `moved-to`; add the address that serves it now")]
    MovedNowhere,
    /// Two ports of one number.
    #[error(
        "relative target port {identifier} is a port of target {other} already; use another number"
    )]
    DuplicateRelativePort { identifier: u16, other: String },
    /// One number for several ports.
    #[error(
        "target {target} has a port in each of the portal groups {tags}, so one number is not enough: write \
         `relative-port = {example}`"
    )]
    OneRelativePort {
        target: String,
        tags: String,
        /// With the number that was given for the first one.
        example: String,
    },
    /// A logical unit of an unknown volume.
    #[error("there is no volume `{volume}`{suggestion}")]
    UnknownVolume {
        volume: String,
        /// `; did you mean …?`
        suggestion: String,
    },
    /// Two logical units of one number.
    #[error("LUN {0} is given twice in one map; use another number")]
    DuplicateLun(u16),
    /// One volume under two numbers of a map.
    #[error(
        "volume `{volume}` is LUN {first} of this map already; remove LUN {second}, which \
         initiators would take for a second path to it"
    )]
    VolumeMappedTwice {
        volume: String,
        first: u16,
        second: u16,
    },
    /// A number that no initiator can address.
    #[error("LUN {0} is out of range; use 0 to 16383")]
    LunOutOfRange(u64),
    /// More volumes than LUNs or namespace identifiers.
    #[error(
        "{0} volumes are more than one target or subsystem can have; write [[target]] tables with \
         `luns`, or [[subsystem]] tables with `namespaces`"
    )]
    TooManyVolumes(usize),
    /// A portal group without portals.
    #[error(
        "target {target} is in portal group {tag}, but no listener has that tag; use a tag that a \
         listener has: {used}"
    )]
    UnknownPortalGroup {
        target: String,
        tag: u16,
        /// The tags of the listeners.
        used: String,
    },
    #[error("a rule needs at least one initiator; write its name, or \"*\" for all others")]
    RuleForNobody,
    #[error("the name of a rule has 1 to 128 characters, without `/`")]
    BadRuleName,
    #[error("an earlier rule of this target is called `{0}` already; choose another name")]
    DuplicateRuleName(String),
    /// An initiator in two rules.
    #[error(
        "an earlier rule of this target names initiator `{0}` already; remove it from one of them"
    )]
    InitiatorInTwoRules(String),
    /// A name behind a pattern that means it too.
    #[error(
        "`{name}` has no effect, because the earlier `{pattern}` matches it; put the narrower one first, or remove it"
    )]
    NeverReached {
        name: String,
        /// The pattern in front of it.
        pattern: String,
    },
    /// A pattern of nothing but wildcards.
    #[error("`{0}` matches every name; write \"*\" for all that no other rule matches")]
    PatternForAll(String),
    /// Not a name of a subsystem or host.
    #[error("`{name}` is not an NVMe qualified name: {reason}")]
    BadNqn {
        name: String,
        /// What is wrong with it.
        reason: NqnError,
    },
    /// The name that stands for discovery everywhere.
    #[error(
        "{DISCOVERY_NQN} is the name of the discovery subsystem, which is always served; give the \
         subsystem another name, for example nqn.2026-11.com.example:disks"
    )]
    DiscoveryNqn,
    /// Two subsystems of one name.
    #[error("two subsystems have the name `{0}`; rename one of them")]
    DuplicateSubsystem(String),
    /// Two namespaces of one identifier.
    #[error("NSID {0} is given twice in one map; use another number")]
    DuplicateNsid(u32),
    /// A number that is not one of ours.
    #[error("NSID {0} is out of range; use 1 to {NSID_MAX}")]
    NsidOutOfRange(u64),
    /// One identifier for two volumes, in maps of one subsystem.
    #[error(
        "volume `{volume}` cannot be NSID {nsid}, which is volume `{other}` in this subsystem \
         already; use another number: a namespace has the same number for all hosts"
    )]
    NsidOfTwoVolumes {
        nsid: u32,
        volume: String,
        /// The volume that has it.
        other: String,
    },
    /// Two identifiers for one volume, in maps of one subsystem.
    #[error(
        "volume `{volume}` is NSID {first} of this subsystem already and cannot be NSID {second} \
         as well; use one number: a namespace has the same number for all hosts"
    )]
    VolumeOfTwoNsids {
        volume: String,
        first: u32,
        second: u32,
    },
    /// A rule for nobody.
    #[error("a rule needs at least one host; write its NQN, or \"*\" for all others")]
    RuleForNoHost,
    /// A host in two rules.
    #[error(
        "an earlier rule of this subsystem names host `{0}` already; remove it from one of \
         them"
    )]
    HostInTwoRules(String),
    /// FirstBurstLength is larger than MaxBurstLength.
    #[error(
        "first-burst-length {first} is larger than max-burst-length {max}, which RFC 7143 §13.14 \
         forbids; lower the one or raise the other"
    )]
    FirstBurstTooLong {
        /// FirstBurstLength of the target, in bytes.
        first: u32,
        /// MaxBurstLength of the target, in bytes.
        max: u32,
    },
    /// A CHAP name that login cannot carry.
    #[error("write a user name of 1 to 255 bytes without control characters")]
    BadUser,
    /// Two accounts of one name.
    #[error("two accounts have the name `{0}`; rename one of them")]
    DuplicateAccount(String),
    /// Other users could read or replace a secret.
    #[error("secret file {} has mode {mode:03o}: other users can read or change it; run chmod 600 on it", path.display())]
    SecretFileMode { path: PathBuf, mode: u32 },
    /// Not a secret of DH-HMAC-CHAP.
    #[error("secret file {}: {source}; make one with: nvme gen-dhchap-key -m 1", path.display())]
    DhchapSecret {
        path: PathBuf,
        /// What is wrong with it.
        source: SecretError,
    },
    /// Not a key for TLS.
    #[error("key file {}: {source}; make one with: longshore key generate --kind tls FILE", path.display())]
    TlsKey {
        path: PathBuf,
        /// What is wrong with it.
        source: ConfiguredKeyError,
    },
    /// Keys of the file that need `tls-key-files`.
    #[error("`{0}` has no effect without `tls-key-files`; add it, or leave `{0}` out")]
    TlsWithoutKey(&'static str),
    /// An empty list of key files.
    #[error("name at least one file; leave the key out for hosts without TLS")]
    NoTlsKey,
    #[error("`{0}` is not a derivation; use standard or compat")]
    UnknownDerivation(String),
    #[error("`{0}` is not one of none, permitted and required")]
    UnknownSecureChannel(String),
    /// A build that lacks it.
    #[error(
        "this longshore was built without TLS (feature `tls`); install one with it, or leave the key out"
    )]
    NoTls,
    /// Keys that need another one, which is missing.
    #[error(
        "`{0}` has no effect without `dhchap-secret-file`; add it: the host always authenticates first"
    )]
    DhchapWithoutSecret(&'static str),
    /// One secret for both directions.
    #[error(
        "`dhchap-secret-file` and `dhchap-ctrl-secret-file` hold the same secret: the host could answer in place of \
         the controller; use another secret for one of them"
    )]
    DhchapSecretReused,
    /// Not a hash function.
    #[error("`{0}` is not a hash function of DH-HMAC-CHAP; use sha256, sha384 or sha512")]
    UnknownHash(String),
    /// A group of a name that DH-HMAC-CHAP does not have.
    #[error(
        "`{0}` is not a group of DH-HMAC-CHAP; use null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192"
    )]
    UnknownGroup(String),
    /// An empty list of hash functions or groups.
    #[error("name at least one; leave the key out to allow all")]
    EmptyList,
    /// Neither or both of `secret` and `secret-file`.
    #[error("account `{0}` needs `secret` or `secret-file`, and not both")]
    SecretMissing(String),
    /// The secret's file cannot be read.
    #[error("cannot read secret file {}: {source}; {}", path.display(), held::advice_for(path, source))]
    SecretUnreadable {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing in it, or more than CHAP takes.
    #[error("the secret of account `{user}` has {length} bytes; use 1 to 255")]
    SecretLength {
        user: String,
        /// Bytes that the secret has.
        length: usize,
    },
    /// One secret for both directions.
    #[error(
        "account `{0}` and `mutual` have the same secret, which RFC 7143 §9.2.1 forbids: a peer \
         could return this server's own response; use another secret for one of them"
    )]
    SecretReused(String),
    /// A mutual secret without accounts.
    #[error(
        "`mutual` has no effect without `accounts`; add them: CHAP always authenticates the \
         initiator first"
    )]
    MutualWithoutAccounts,
    /// Not a CHAP algorithm.
    #[error(
        "`{0}` is not a CHAP algorithm; use sha3-256, sha256, sha1 or md5{meant}",
        meant = suggest::did_you_mean(.0, &["sha3-256", "sha256", "sha1", "md5"])
    )]
    UnknownAlgorithm(String),
    /// An empty list of algorithms.
    #[error("name at least one of sha3-256, sha256, sha1 and md5")]
    NoAlgorithm,
    /// Everybody could write to the volumes.
    #[error(
        "other machines can reach {listener}, and target {target} has no access control: anyone \
         could read and write its volumes.\n\
         Do one of these:\n  \
         - listen on loopback only: --iscsi 127.0.0.1:3260\n  \
         - give the target `accounts` (CHAP) or [[target.access]] rules in the file given with --config\n  \
         - if anyone may do so: --allow-open, or [listen] allow-open = true in that file"
    )]
    Open { listener: String, target: String },
    /// A volume for tests, where others use it.
    #[error(
        "other machines can reach {listener}, and volume {volume} is made slow (delay, rate), for tests.\n\
         Do one of these:\n  \
         - listen on loopback only\n  \
         - remove delay and rate of the volume\n  \
         - if others are to use it as it is: slow-anywhere = true of the volume"
    )]
    Slow { listener: String, volume: String },
    /// The same over NVMe.
    #[error(
        "other machines can reach {listener}, and subsystem {subsystem} has no access control: \
         anyone could read and write its volumes.\n\
         Do one of these:\n  \
         - listen on loopback only: --nvme 127.0.0.1:4420\n  \
         - name the hosts that may use it in [[subsystem.access]] rules in the file given with --config\n  \
         - if anyone may do so: --allow-open, or [listen] allow-open = true in that file"
    )]
    OpenSubsystem { listener: String, subsystem: String },
    /// Discovery nowhere and somewhere.
    #[error("--nvme-discovery none contradicts an address; remove one of them")]
    DiscoveryContradiction,
    /// In-capsule data that does not fit its unit.
    #[error(
        "in-capsule-data {0} is not a multiple of 16 bytes, the unit in which NVMe reports it; \
         use a multiple of 16"
    )]
    InCapsuleData(u32),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A core that is not there, or not for this process.
    #[error("this process may not use core {core}; choose from {allowed}")]
    Core { core: usize, allowed: CoreList },
    /// A file to be written that cannot be.
    #[error("cannot write {}: {source}; correct the path or its permissions", path.display())]
    Unwritable {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two listeners on one address.
    #[error("two listeners have the address {0}; remove one of them")]
    DuplicateListener(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_line_column_and_excerpt() {
        let text = "a = 1\n  é = \"two\"\nc = 3";
        let start = text.find("\"two\"").unwrap();
        let problem = Problem {
            location: Some(Location::new(Path::new("x.toml"), text, start..start + 5).into()),
            kind: ProblemKind::BadUser,
        };
        assert_eq!(
            problem.to_string(),
            "x.toml:2:7: write a user name of 1 to 255 bytes without control characters\n  \
             2 |   é = \"two\"\n    \
             |       ^^^^^"
        );
    }

    #[test]
    fn a_range_beyond_the_text_is_its_end() {
        let at = Location::new(Path::new("x"), "é", 1..9);
        assert_eq!((at.line, at.column, at.width), (1, 1, 1));
        let at = Location::new(Path::new("x"), "a\n", 7..9);
        assert_eq!((at.line, at.column, at.width), (2, 1, 1));
    }
}
