//! Volumes as asked for: the `--volume` grammar and the rules both sources share.
//!
//! ```text
//! NAME[,key=value]…
//!
//!   backend     null | mem | file | block | pool | iscsi | nvme-tcp   what stores the data (required)
//!   path        PATH                             file, block
//!   pool        NAME | DRIVE[+DRIVE]…            pool: its name, or all its drives
//!   pool-volume NAME[@SNAPSHOT]                  pool: what the volume is called there
//!   compression none | lz4 | zstd                pool: how new data is kept
//!   quota       none | 20G                       pool: what the volume and its snapshots may take
//!   reserve     none | full | 20G                pool: space that is kept for the volume
//!   url         iscsi://… | nvme+tcp://…         iscsi, nvme-tcp: the remote volume
//!   size        10G                              null, mem: required; file, pool: creates it
//!   block-size  512 | 4096                       512 when not given
//!   physical-block-size  512 to 64K              what hosts are told the medium writes in one piece
//!   read-only   [yes|no]                         alone it means yes
//!   direct      [yes|no]                         O_DIRECT; file, block
//!   write-through  [yes|no]                      every write is on the medium when it completes
//!   serial      up to 64 printable characters    unit serial number
//!   vendor      up to 8 printable characters     T10 vendor identification
//!   product     up to 16 printable characters    product identification
//!   naa         16 or 32 hexadecimal digits      worldwide name
//!   nguid       none | 32 hexadecimal digits     NGUID of the namespace
//!   eui64       none | 16 hexadecimal digits     EUI-64
//!   uuid        xxxxxxxx-xxxx-…                  source of the identifiers that peers see
//!   inline-writes  auto | always | never         may buffered writes run on the event loop
//!   max-iops    1000                             operations per second; max-read-iops, max-write-iops
//!   max-bytes   100M                             bytes per second; max-read-bytes, max-write-bytes
//!   burst       100ms                            how much of these limits an idle volume saves
//!   delay       200us                            null, mem, file: what each operation takes at least
//!   rate        100M                             null, mem, file: bytes per second of the medium
//!   slow-anywhere | slow-anywhere=yes            a slow volume may be served beyond loopback
//!   secret-file PATH                             iscsi: secret of the URL's user (CHAP)
//!   dhchap-secret-file PATH                      nvme-tcp: secret of this host (DH-HMAC-CHAP)
//!   dhchap-ctrl-secret-file PATH                 nvme-tcp: secret that the controller proves itself with
//!   tls-key-file PATH                            nvme-tcp: key by which connections go over TLS
//!   tls-identity   0 | 1                         nvme-tcp: version of that key's identity
//!   tls-derivation standard | compat             nvme-tcp: how TLS derives keys from it
//!   initiator-name IQN                           iscsi: the name to log in with
//!   host-nqn    NQN                              nvme-tcp: the name to connect with
//!   queues      1 to 64                          iscsi, nvme-tcp: connections
//!   depth       1 to 4096                        iscsi, nvme-tcp: commands a connection carries
//!   give-up     2m                               iscsi, nvme-tcp: how long to wait for a lost server
//! ```
//!
//! A comma inside a value is written twice.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use longshore_pool::POOL;
use longshore_volume::InlineWrites;
use longshore_volume::open::{BackendOptions, PHYSICAL_BLOCK_MAX};
use longshore_volume::{
    BackendName, Eui64, Naa, NaaError, NamespaceNameError, Nguid, VolumeSpec, WorldwideNames,
};
use serde::Deserialize;
use uuid::Uuid;

use super::masked::Masked;
use super::pool::{PoolSettingError, PoolSettings};
use super::remote::{RemoteSettingError, RemoteSettings};
use super::size::{Size, SizeError, Span, SpanError};
use super::slow::{SlowError, SlowSettings};
use super::suggest;
use super::throttle::{LimitError, LimitSettings};
use crate::backends::backends;

/// Backends that are agreed for later versions and refused by this one.
const LATER_BACKENDS: [&str; 1] = ["rbd"];

/// A backend by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(pub BackendName);

impl FromStr for Backend {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match backends().find(text) {
            Some(name) => Ok(Self(name)),
            None if LATER_BACKENDS.contains(&text) => {
                Err(SettingError::BackendNotBuilt(text.to_owned()))
            }
            None => Err(SettingError::UnknownBackend(text.to_owned())),
        }
    }
}

fn backend_names() -> Vec<&'static str> {
    backends().names().map(BackendName::as_str).collect()
}

/// A volume's settings as written; `None` is "not given". What they mean together is checked when
/// the volume is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    pub backend: Option<Backend>,
    /// File or device node.
    pub path: Option<PathBuf>,
    /// How large it is, or is to be made.
    pub size: Option<Size>,
    /// Bytes of a block: 512 or 4096.
    pub block_size: Option<BlockSize>,
    /// What hosts are told the medium writes in one piece.
    pub physical_block_size: Option<PhysicalBlockSize>,
    pub read_only: Option<bool>,
    /// Bypass the page cache (O_DIRECT).
    pub direct: Option<bool>,
    /// Every write is on the medium when it completes.
    pub write_through: Option<bool>,
    /// Unit serial number (VPD page 80h, SN).
    pub serial: Option<UnitSerial>,
    /// T10 vendor identification, at most 8 characters.
    pub vendor: Option<Vendor>,
    /// Product identification, at most 16 characters.
    pub product: Option<Product>,
    /// NAA identifier, in place of one derived from the UUID.
    pub naa: Option<WorldwideName>,
    /// NGUID, in place of a derived one.
    pub nguid: Option<GivenNguid>,
    /// EUI-64, in place of a derived one.
    pub eui64: Option<GivenEui64>,
    /// Source of the identifiers that peers see.
    pub uuid: Option<Uuid>,
    /// When buffered writes are made on the event loop itself.
    pub inline_writes: Option<InlineWriting>,
    /// What its clients together may do in a second.
    pub limits: LimitSettings,
    /// How slow it is to be.
    pub slow: SlowSettings,
    /// What is said of a remote volume.
    pub remote: RemoteSettings,
    /// What is said of a volume of a pool.
    pub pool: PoolSettings,
}

impl VolumeSettings {
    /// The volume with these settings, what was not given filled in; `None` without a backend.
    #[must_use]
    pub fn specification(self, name: &str) -> Option<VolumeSpec> {
        let mut spec = VolumeSpec::new(name, self.backend?.0);
        spec.path = self.path;
        spec.size = self.size.map(|size| size.0);
        spec.block_size = self.block_size.unwrap_or_default().0;
        spec.read_only = self.read_only.unwrap_or(false);
        spec.direct = self.direct.unwrap_or(false);
        spec.physical_block_size = self.physical_block_size.map(|size| size.0);
        spec.write_through = self.write_through.unwrap_or(false);
        spec.serial = self.serial.map(|serial| serial.0);
        spec.vendor = self.vendor.map(|vendor| vendor.0);
        spec.product = self.product.map(|product| product.0);
        spec.names = WorldwideNames {
            naa: self.naa.map(|naa| naa.0),
            nguid: self.nguid.map(|nguid| nguid.0),
            eui64: self.eui64.map(|eui64| eui64.0),
        };
        spec.uuid = self.uuid;
        spec.inline_writes = self.inline_writes.unwrap_or_default().0;
        spec.limits = self.limits.limits();
        spec.slow = self.slow.specification();
        let block_size = self.block_size.map(|size| size.0);
        let (remote, pool) = (
            self.remote.specification(block_size),
            self.pool.specification(),
        );
        // Those of other backends are given to it to be refused.
        let is_pool = match spec.backend == POOL {
            true => remote.first_given().is_none(),
            false => pool.first_given().is_some(),
        };
        spec.options = Some(match is_pool {
            true => Arc::new(pool),
            false => Arc::new(remote),
        });
        Some(spec)
    }
}

/// Why one setting of a volume is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("`{}` is not a backend{}", .0, suggest::sentence(.0, &backend_names()))]
    UnknownBackend(String),
    /// A backend of a later version.
    #[error(
        "backend `{0}` is not available in this version; use null, mem, file, block, pool, \
         iscsi or nvme-tcp"
    )]
    BackendNotBuilt(String),
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Not a supported block size.
    #[error("`{0}` is not a block size; use 512 or 4096")]
    BlockSize(String),
    /// Not a physical block size.
    #[error("`{0}` is not a physical block size; use a power of two from 512 to 64K")]
    PhysicalBlockSize(String),
    /// Neither yes nor no.
    #[error("`{0}` is neither yes nor no")]
    Switch(String),
    /// A text that peers could not see as it was written.
    #[error(
        "`{text}` is not a {what}; use 1 to {most} printable ASCII characters, no space at either end"
    )]
    Text {
        /// What it is to be.
        what: &'static str,
        text: String,
        most: usize,
    },
    /// Not an NAA identifier.
    #[error(
        "`{text}` is not an NAA identifier: {reason}; write it as another server shows it, for example \
         naa.6001405f1e2d3c4b5a69788796a5b4c3"
    )]
    Naa {
        text: String,
        /// What is wrong with it.
        reason: NaaError,
    },
    /// Not an identifier of a namespace.
    #[error("`{text}` is not {what}: {reason}; write the digits that `nvme id-ns` shows, or none")]
    NamespaceName {
        /// What it is to be.
        what: &'static str,
        text: String,
        /// What is wrong with it.
        reason: NamespaceNameError,
    },
    /// Not a way to write.
    #[error(
        "`{0}` is not a value of inline-writes; use auto, always or never{meant}",
        meant = suggest::did_you_mean(.0, &["auto", "always", "never"])
    )]
    InlineWrites(String),
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// How slow it is to be.
    #[error(transparent)]
    Slow(#[from] SlowError),
    #[error(transparent)]
    Span(#[from] SpanError),
    /// A setting of a remote volume.
    #[error(transparent)]
    Remote(#[from] RemoteSettingError),
    /// A setting of a volume of a pool.
    #[error(transparent)]
    Pool(#[from] PoolSettingError),
    #[error("`{0}` is not a UUID")]
    Uuid(String),
    /// Not a volume name.
    #[error(
        "`{0}` is not a volume name; use 1 to 64 letters, digits, `.`, `_` or `-`, \
         the first a letter or digit"
    )]
    Name(String),
}

/// Checks a volume's name.
pub fn check_name(name: &str) -> Result<(), SettingError> {
    let fits = (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        Ok(())
    } else {
        Err(SettingError::Name(name.to_owned()))
    }
}

/// A block size that peers can be given: 512 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(pub u32);

impl Default for BlockSize {
    fn default() -> Self {
        Self(512)
    }
}

impl FromStr for BlockSize {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match Size::parse(text) {
            Ok(Size(512)) => Ok(Self(512)),
            Ok(Size(4096)) => Ok(Self(4096)),
            _ => Err(SettingError::BlockSize(text.to_owned())),
        }
    }
}

/// What hosts are told the medium writes in one piece: a power of two from 512 to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalBlockSize(pub u32);

impl FromStr for PhysicalBlockSize {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let size = Size::parse(text).ok();
        size.and_then(|size| u32::try_from(size.0).ok())
            .filter(|size| size.is_power_of_two() && (512..=PHYSICAL_BLOCK_MAX).contains(size))
            .map(Self)
            .ok_or_else(|| SettingError::PhysicalBlockSize(text.to_owned()))
    }
}

/// A text that peers see: printable ASCII, no space at either end.
fn shown(what: &'static str, text: &str, most: usize) -> Result<String, SettingError> {
    let printable = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if printable && (1..=most).contains(&text.len()) && text.trim() == text {
        Ok(text.to_owned())
    } else {
        Err(SettingError::Text {
            what,
            text: text.to_owned(),
            most,
        })
    }
}

/// Types of such texts: name, what it is called in messages, most characters.
macro_rules! shown_texts {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $most:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name(pub String);

            impl FromStr for $name {
                type Err = SettingError;

                fn from_str(text: &str) -> Result<Self, SettingError> {
                    shown($what, text, $most).map(Self)
                }
            }
        )*
    };
}

shown_texts! {
    /// The serial number of a subsystem.
    Serial, "serial number", 20;
    /// T10 vendor identification of standard INQUIRY data.
    Vendor, "vendor", 8;
    /// Product identification of standard INQUIRY data.
    Product, "product", 16;
}

/// The serial number of a volume. The page has it right-aligned (SPC-4 7.8.16), so spaces may stand before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSerial(pub String);

/// Characters of the longest one.
const UNIT_SERIAL_MAX: usize = 64;

impl FromStr for UnitSerial {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        shown(
            "serial number",
            text.trim_start_matches(' '),
            UNIT_SERIAL_MAX,
        )?;
        if text.len() > UNIT_SERIAL_MAX {
            return Err(SettingError::Text {
                what: "serial number",
                text: text.to_owned(),
                most: UNIT_SERIAL_MAX,
            });
        }
        Ok(Self(text.to_owned()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldwideName(pub Naa);

impl FromStr for WorldwideName {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        text.parse().map(Self).map_err(|reason| SettingError::Naa {
            text: text.to_owned(),
            reason,
        })
    }
}

/// Types of identifiers of namespaces: name, what it is, what it is called in messages.
macro_rules! namespace_names {
    ($($(#[$doc:meta])* $name:ident, $kind:ty, $what:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name(pub $kind);

            impl FromStr for $name {
                type Err = SettingError;

                fn from_str(text: &str) -> Result<Self, SettingError> {
                    text.parse().map(Self).map_err(|reason| SettingError::NamespaceName {
                        what: $what,
                        text: text.to_owned(),
                        reason,
                    })
                }
            }
        )*
    };
}

namespace_names! {
    /// NGUID of a volume that moved here.
    GivenNguid, Nguid, "an NGUID";
    /// EUI-64 of a volume that moved here.
    GivenEui64, Eui64, "an EUI-64";
}

/// When buffered writes are made on the event loop itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineWriting(pub InlineWrites);

impl FromStr for InlineWriting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match text {
            "auto" => Ok(Self(InlineWrites::Auto)),
            "always" => Ok(Self(InlineWrites::Always)),
            "never" => Ok(Self(InlineWrites::Never)),
            _ => Err(SettingError::InlineWrites(text.to_owned())),
        }
    }
}

/// Reads yes or no.
fn parse_switch(text: &str) -> Result<bool, SettingError> {
    match text {
        "yes" | "true" | "on" | "1" => Ok(true),
        "no" | "false" | "off" | "0" => Ok(false),
        _ => Err(SettingError::Switch(text.to_owned())),
    }
}

impl<'de> Deserialize<'de> for PhysicalBlockSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Size::deserialize(deserializer)?
            .0
            .to_string()
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for BlockSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Size::deserialize(deserializer)?
            .0
            .to_string()
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

deserialize_from_str!(
    InlineWriting,
    Backend,
    Serial,
    UnitSerial,
    Vendor,
    Product,
    WorldwideName,
    GivenNguid,
    GivenEui64
);

/// A `--volume` argument that could be read. The settings are not yet checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeArgument {
    /// In front of the first comma.
    pub name: String,
    /// The keys behind it.
    pub settings: VolumeSettings,
}

/// Keys of the grammar, for suggestions.
const KEYS: [&str; 43] = [
    "backend",
    "path",
    "size",
    "block-size",
    "physical-block-size",
    "read-only",
    "direct",
    "write-through",
    "serial",
    "vendor",
    "product",
    "naa",
    "nguid",
    "eui64",
    "uuid",
    "inline-writes",
    "max-iops",
    "max-read-iops",
    "max-write-iops",
    "max-bytes",
    "max-read-bytes",
    "max-write-bytes",
    "burst",
    "delay",
    "rate",
    "slow-anywhere",
    "pool",
    "pool-volume",
    "compression",
    "quota",
    "reserve",
    "url",
    "secret-file",
    "dhchap-secret-file",
    "dhchap-ctrl-secret-file",
    "tls-key-file",
    "tls-identity",
    "tls-derivation",
    "initiator-name",
    "host-nqn",
    "queues",
    "depth",
    "give-up",
];

/// A `--volume` or `--iscsi` argument that could not be read, and the part at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError<P> {
    /// The whole argument, without passwords.
    pub argument: String,
    /// First byte of the part at fault.
    pub start: usize,
    /// End of that part; the same as `start` when something is missing there.
    pub end: usize,
    /// What is wrong with it.
    pub problem: P,
}

impl<P: fmt::Display> fmt::Display for ArgumentError<P> {
    /// The problem, then the argument with the part at fault underlined.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = self.argument[..self.start].chars().count();
        let width = self.argument[self.start..self.end].chars().count().max(1);
        writeln!(f, "{}", self.problem)?;
        writeln!(f, "  {}", self.argument)?;
        write!(f, "  {:indent$}{:^<width$}", "", "")
    }
}

impl<P: fmt::Display + fmt::Debug> std::error::Error for ArgumentError<P> {}

/// What is wrong with a part of a `--volume` argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeArgumentError {
    /// A key nobody knows.
    #[error("unknown key `{key}`{}", suggest::sentence(.key, &KEYS))]
    UnknownKey { key: String },
    /// A key without a value.
    #[error("`{0}` needs a value: {0}=…")]
    NoValue(&'static str),
    /// The same key twice.
    #[error("`{0}` is given twice")]
    Repeated(&'static str),
    /// Two commas with nothing between them, or one at the end.
    #[error("a key is missing after the comma; add it, or remove the comma")]
    NoKey,
    /// A value that its key does not take.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl FromStr for VolumeArgument {
    type Err = ArgumentError<VolumeArgumentError>;

    fn from_str(argument: &str) -> Result<Self, Self::Err> {
        let fault = |part: &Part<'_>, problem: VolumeArgumentError| {
            let masked = Masked::new(argument);
            ArgumentError {
                start: masked.position(part.start),
                end: masked.position(part.start + part.raw.len()),
                argument: masked.text,
                problem,
            }
        };
        let mut parts = split_parts(argument);
        let name = parts.remove(0);
        check_name(name.raw).map_err(|e| fault(&name, e.into()))?;

        let mut settings = VolumeSettings::default();
        for part in &parts {
            let (key, value) = part.key_and_value();
            let known = KEYS
                .into_iter()
                .find(|known| *known == key.raw)
                .ok_or_else(|| {
                    let problem = if key.raw.is_empty() {
                        VolumeArgumentError::NoKey
                    } else {
                        VolumeArgumentError::UnknownKey {
                            key: key.raw.to_owned(),
                        }
                    };
                    fault(&key, problem)
                })?;
            let at = value.as_ref().unwrap_or(&key);
            let text = value.as_ref().map(Part::text);
            settings
                .take(known, text)
                .map_err(|problem| match problem {
                    VolumeArgumentError::Repeated(_) => fault(part, problem),
                    other => fault(at, other),
                })?;
        }
        Ok(Self {
            name: name.raw.to_owned(),
            settings,
        })
    }
}

impl VolumeSettings {
    /// Takes one `key=value` in; `None` stands for a key alone.
    fn take(
        &mut self,
        key: &'static str,
        value: Option<String>,
    ) -> Result<(), VolumeArgumentError> {
        let switch = |value: &Option<String>| value.as_deref().map_or(Ok(true), parse_switch);
        let needed = |value: Option<String>| match value {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(VolumeArgumentError::NoValue(key)),
        };
        match key {
            "backend" => once(key, &mut self.backend, needed(value)?.parse()?),
            "path" => once(key, &mut self.path, PathBuf::from(needed(value)?)),
            "size" => {
                let size = Size::parse(&needed(value)?).map_err(SettingError::from)?;
                once(key, &mut self.size, size)
            }
            "block-size" => once(key, &mut self.block_size, needed(value)?.parse()?),
            "physical-block-size" => {
                once(key, &mut self.physical_block_size, needed(value)?.parse()?)
            }
            "read-only" => once(key, &mut self.read_only, switch(&value)?),
            "direct" => once(key, &mut self.direct, switch(&value)?),
            "write-through" => once(key, &mut self.write_through, switch(&value)?),
            "serial" => once(key, &mut self.serial, needed(value)?.parse()?),
            "vendor" => once(key, &mut self.vendor, needed(value)?.parse()?),
            "product" => once(key, &mut self.product, needed(value)?.parse()?),
            "naa" => once(key, &mut self.naa, needed(value)?.parse()?),
            "nguid" => once(key, &mut self.nguid, needed(value)?.parse()?),
            "eui64" => once(key, &mut self.eui64, needed(value)?.parse()?),
            "uuid" => {
                let text = needed(value)?;
                let uuid = Uuid::parse_str(&text).map_err(|_| SettingError::Uuid(text))?;
                once(key, &mut self.uuid, uuid)
            }
            "inline-writes" => once(key, &mut self.inline_writes, needed(value)?.parse()?),
            "slow-anywhere" => once(key, &mut self.slow.anywhere, switch(&value)?),
            "delay" => {
                let delay = needed(value)?.parse().map_err(SettingError::from)?;
                once(key, &mut self.slow.delay, delay)
            }
            "rate" => {
                let rate = Size::parse(&needed(value)?).map_err(SettingError::from)?;
                once(key, &mut self.slow.rate, rate)?;
                Ok(self.slow.check().map_err(SettingError::from)?)
            }
            "pool" => {
                let place = needed(value)?.parse().map_err(SettingError::from)?;
                once(key, &mut self.pool.pool, place)
            }
            "pool-volume" => once(key, &mut self.pool.volume, needed(value)?),
            "compression" => {
                let compression = needed(value)?.parse().map_err(SettingError::from)?;
                once(key, &mut self.pool.compression, compression)
            }
            "quota" => {
                let quota = needed(value)?.parse().map_err(SettingError::from)?;
                once(key, &mut self.pool.quota, quota)
            }
            "reserve" => {
                let reserve = needed(value)?.parse().map_err(SettingError::from)?;
                once(key, &mut self.pool.reserve, reserve)
            }
            _ if key.starts_with("max-") || key == "burst" => {
                self.limits.take(key, &needed(value)?)
            }
            _ => self.remote.take(key, needed(value)?),
        }
    }
}

impl LimitSettings {
    /// Takes one `key=value` in.
    fn take(&mut self, key: &'static str, value: &str) -> Result<(), VolumeArgumentError> {
        let rate = || value.parse().map_err(SettingError::from);
        let size = || Size::parse(value).map_err(SettingError::from);
        match key {
            "max-iops" => once(key, &mut self.iops, rate()?),
            "max-read-iops" => once(key, &mut self.read_iops, rate()?),
            "max-write-iops" => once(key, &mut self.write_iops, rate()?),
            "max-bytes" => once(key, &mut self.bytes, size()?),
            "max-read-bytes" => once(key, &mut self.read_bytes, size()?),
            "max-write-bytes" => once(key, &mut self.write_bytes, size()?),
            _ => {
                let burst = Span::parse(value).map_err(SettingError::from)?;
                once(key, &mut self.burst, burst)
            }
        }?;
        Ok(self.check().map_err(SettingError::from)?)
    }
}

impl RemoteSettings {
    /// Takes one `key=value` in.
    fn take(&mut self, key: &'static str, value: String) -> Result<(), VolumeArgumentError> {
        let refused =
            |error: RemoteSettingError| VolumeArgumentError::from(SettingError::from(error));
        match key {
            "url" => once(key, &mut self.url, value.parse().map_err(refused)?),
            "secret-file" => once(key, &mut self.secret_file, PathBuf::from(value)),
            "dhchap-secret-file" => once(key, &mut self.dhchap_secret_file, PathBuf::from(value)),
            "dhchap-ctrl-secret-file" => {
                once(key, &mut self.dhchap_ctrl_secret_file, PathBuf::from(value))
            }
            "tls-key-file" => once(key, &mut self.tls_key_file, PathBuf::from(value)),
            "tls-identity" => {
                let version = value.parse().map_err(refused)?;
                once(key, &mut self.tls_identity, version)
            }
            "tls-derivation" => {
                let derivation = value.parse().map_err(refused)?;
                once(key, &mut self.tls_derivation, derivation)
            }
            "initiator-name" => {
                let name = value.parse().map_err(refused)?;
                once(key, &mut self.initiator_name, name)
            }
            "host-nqn" => once(key, &mut self.host_nqn, value.parse().map_err(refused)?),
            "queues" => once(key, &mut self.queues, value.parse().map_err(refused)?),
            "depth" => once(key, &mut self.depth, value.parse().map_err(refused)?),
            "give-up" => {
                let span = Span::parse(&value).map_err(|error| refused(error.into()))?;
                once(key, &mut self.give_up, span)
            }
            _ => Err(VolumeArgumentError::UnknownKey {
                key: key.to_owned(),
            }),
        }
    }
}

/// Sets a value that may be given once.
fn once<T>(key: &'static str, slot: &mut Option<T>, value: T) -> Result<(), VolumeArgumentError> {
    if slot.replace(value).is_some() {
        return Err(VolumeArgumentError::Repeated(key));
    }
    Ok(())
}

/// A piece of an argument and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Byte offset in the argument.
    pub(super) start: usize,
    /// As written, doubled commas included.
    pub(super) raw: &'a str,
}

impl<'a> Part<'a> {
    /// Splits at the first `=`.
    pub(super) fn key_and_value(&self) -> (Part<'a>, Option<Part<'a>>) {
        match self.raw.split_once('=') {
            Some((key, value)) => {
                let value = Part {
                    start: self.start + key.len() + 1,
                    raw: value,
                };
                (
                    Part {
                        start: self.start,
                        raw: key,
                    },
                    Some(value),
                )
            }
            None => (
                Part {
                    start: self.start,
                    raw: self.raw,
                },
                None,
            ),
        }
    }

    /// The text with doubled commas made single.
    pub(super) fn text(&self) -> String {
        self.raw.replace(",,", ",")
    }
}

/// Splits an argument at single commas. There is always a first part, maybe an empty one.
pub(super) fn split_parts(argument: &str) -> Vec<Part<'_>> {
    let bytes = argument.as_bytes();
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b',' {
            at += 1;
        } else if bytes.get(at + 1) == Some(&b',') {
            at += 2;
        } else {
            parts.push(Part {
                start,
                raw: &argument[start..at],
            });
            at += 1;
            start = at;
        }
    }
    parts.push(Part {
        start,
        raw: &argument[start..],
    });
    parts
}

#[cfg(test)]
mod tests;
