//! The tables of the configuration file as written, each value with its place in the text.
//!
//! Unknown keys are errors. What the values mean together is decided in [`super::Config::assemble`].

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;

use longshore_reactor::engine::EngineChoice;
use longshore_sandbox::Mode as Sandbox;
use longshore_server::config::RelativePorts;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use toml::Spanned;
use uuid::Uuid;

use super::api::{ApiAddress, ApiSocket, ApiTable};
use super::copies::{ByReference, RegisteredBuffers};
use super::engine::CoreList;
use super::limits::{LimitsTable, NegotiationTable};
use super::listener::{ISCSI_PORT, ListenerConfig, parse_address, parse_advertise};
use super::log::{LogFilter, LogFormat};
use super::nvme_listener::{DiscoveryListeners, NvmeEntry};
use super::pool::{Compression, PoolPlace, PoolSettings, PoolTable, Quota, Reserve};
use super::reactor::{self, BusyPoll, CpuBudget, Priority, ReactorSettings, Spin, Spread};
use super::remote::{
    Depth, HostNqn, InitiatorName, Queues, RemoteSettings, RemoteUrl, TlsDerivation, TlsIdentity,
};
use super::size::{Size, Span};
use super::slow::{Delay, SlowSettings};
use super::throttle::{LimitSettings, Rate};
use super::transmit::{self, NagleCycles, NagleThreshold, SendUnit, TransmitKeys, TransmitPolicy};
use super::volume::{
    Backend, BlockSize, GivenEui64, GivenNguid, InlineWriting, PhysicalBlockSize, Product, Serial,
    UnitSerial, Vendor, VolumeSettings, WorldwideName,
};
use super::words;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Document {
    /// Where to keep what must survive a restart.
    pub state_dir: Option<PathBuf>,
    /// What is taken from the process after its start.
    #[serde(default, deserialize_with = "words::word")]
    pub sandbox: Option<Sandbox>,
    /// Files and folders of volumes that may come later.
    #[serde(default)]
    pub sandbox_paths: Vec<PathBuf>,
    /// Ports of listeners and of other servers that may come later.
    #[serde(default)]
    pub sandbox_ports: Vec<u16>,
    #[serde(default)]
    pub pool: Vec<PoolTable>,
    #[serde(default)]
    pub volume: Vec<VolumeTable>,
    #[serde(default)]
    pub target: Vec<TargetTable>,
    #[serde(default)]
    pub subsystem: Vec<SubsystemTable>,
    pub discovery: Option<AuthenticationTable>,
    #[serde(default)]
    pub listen: ListenTable,
    pub api: Option<Spanned<ApiTable>>,
    #[serde(default)]
    pub engine: EngineTable,
    #[serde(default)]
    pub limits: LimitsTable,
    pub iscsi: Option<Spanned<NegotiationTable>>,
    #[serde(default)]
    pub log: LogTable,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeTable {
    /// What it is called.
    pub name: Spanned<String>,
    /// Whether it is served.
    pub enabled: Option<bool>,
    backend: Option<Backend>,
    path: Option<PathBuf>,
    size: Option<Size>,
    block_size: Option<BlockSize>,
    physical_block_size: Option<PhysicalBlockSize>,
    read_only: Option<bool>,
    direct: Option<bool>,
    write_through: Option<bool>,
    serial: Option<UnitSerial>,
    vendor: Option<Vendor>,
    product: Option<Product>,
    naa: Option<WorldwideName>,
    nguid: Option<GivenNguid>,
    eui64: Option<GivenEui64>,
    uuid: Option<Uuid>,
    inline_writes: Option<InlineWriting>,
    max_iops: Option<Rate>,
    max_read_iops: Option<Rate>,
    max_write_iops: Option<Rate>,
    max_bytes: Option<Size>,
    max_read_bytes: Option<Size>,
    max_write_bytes: Option<Size>,
    burst: Option<Span>,
    delay: Option<Delay>,
    rate: Option<Size>,
    slow_anywhere: Option<bool>,
    pool: Option<PoolPlace>,
    pool_volume: Option<String>,
    compression: Option<Compression>,
    quota: Option<Quota>,
    reserve: Option<Reserve>,
    url: Option<RemoteUrl>,
    secret_file: Option<PathBuf>,
    dhchap_secret_file: Option<PathBuf>,
    dhchap_ctrl_secret_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    tls_identity: Option<TlsIdentity>,
    tls_derivation: Option<TlsDerivation>,
    initiator_name: Option<InitiatorName>,
    host_nqn: Option<HostNqn>,
    queues: Option<Queues>,
    depth: Option<Depth>,
    give_up: Option<Span>,
}

impl VolumeTable {
    /// Everything but the name.
    #[must_use]
    pub fn settings(&self) -> VolumeSettings {
        VolumeSettings {
            backend: self.backend,
            path: self.path.clone(),
            size: self.size,
            block_size: self.block_size,
            physical_block_size: self.physical_block_size,
            read_only: self.read_only,
            direct: self.direct,
            write_through: self.write_through,
            serial: self.serial.clone(),
            vendor: self.vendor.clone(),
            product: self.product.clone(),
            naa: self.naa,
            nguid: self.nguid,
            eui64: self.eui64,
            uuid: self.uuid,
            inline_writes: self.inline_writes,
            limits: LimitSettings {
                iops: self.max_iops,
                read_iops: self.max_read_iops,
                write_iops: self.max_write_iops,
                bytes: self.max_bytes,
                read_bytes: self.max_read_bytes,
                write_bytes: self.max_write_bytes,
                burst: self.burst,
            },
            slow: SlowSettings {
                delay: self.delay,
                rate: self.rate,
                anywhere: self.slow_anywhere,
            },
            remote: RemoteSettings {
                url: self.url.clone(),
                secret_file: self.secret_file.clone(),
                dhchap_secret_file: self.dhchap_secret_file.clone(),
                dhchap_ctrl_secret_file: self.dhchap_ctrl_secret_file.clone(),
                tls_key_file: self.tls_key_file.clone(),
                tls_identity: self.tls_identity,
                tls_derivation: self.tls_derivation,
                initiator_name: self.initiator_name.clone(),
                host_nqn: self.host_nqn.clone(),
                queues: self.queues,
                depth: self.depth,
                give_up: self.give_up,
            },
            pool: PoolSettings {
                pool: self.pool.clone(),
                volume: self.pool_volume.clone(),
                compression: self.compression,
                quota: self.quota,
                reserve: self.reserve,
            },
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TargetTable {
    pub name: Spanned<String>,
    /// Whether it is served.
    pub enabled: Option<bool>,
    /// Told in discovery and login.
    pub alias: Option<Spanned<String>>,
    /// Tags of the portal groups it is reachable through.
    #[serde(default)]
    pub portal_groups: Vec<Spanned<u16>>,
    /// The relative identifiers of its ports.
    pub relative_port: Option<Spanned<RelativePortEntry>>,
    /// Logical units; all volumes in order when not given.
    pub luns: Option<Vec<Spanned<LunTable>>>,
    /// CHAP accounts of initiators.
    #[serde(default)]
    pub accounts: Vec<AccountTable>,
    /// What the target proves itself with.
    pub mutual: Option<AccountTable>,
    /// CHAP algorithms that the target accepts.
    pub chap_algorithms: Option<Spanned<Vec<String>>>,
    /// Rules for initiators by name.
    #[serde(default)]
    pub access: Vec<Spanned<AccessTable>>,
    /// Where it is served now.
    pub moved_to: Option<Spanned<String>>,
    /// Whether it has moved for good.
    pub moved_permanently: Option<Spanned<bool>>,
    pub iscsi: Option<Spanned<NegotiationTable>>,
}

/// One entry of `luns`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LunTable {
    /// LUN, from 0 to 16383.
    pub lun: u64,
    /// Name of a volume.
    pub volume: String,
    /// Writes through this number are refused.
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessTable {
    /// What it is called. A rule with a name may be for nobody yet.
    pub name: Option<Spanned<String>>,
    /// iSCSI names, patterns of them, or `*` for all that no other rule matches.
    pub initiators: Vec<Spanned<String>>,
    /// Their own map; the target's when not given.
    pub luns: Option<Vec<Spanned<LunTable>>>,
    /// Makes every logical unit of the map read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Accounts in place of the target's.
    pub accounts: Option<Vec<AccountTable>>,
    /// In place of the target's.
    pub mutual: Option<AccountTable>,
}

/// Relative identifiers of the ports of a target: `7`, or `{ 1 = 7, 2 = 8 }` by the tags of portal groups.
#[derive(Clone, Debug)]
pub struct RelativePortEntry(pub RelativePorts);

impl<'de> Deserialize<'de> for RelativePortEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Identifiers;

        impl<'de> Visitor<'de> for Identifiers {
            type Value = RelativePorts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 to 65535, or a table of such numbers by the tags of portal groups")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                identifier(number).map(RelativePorts::Single)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut identifiers = BTreeMap::new();
                while let Some((tag, number)) = map.next_entry::<String, i64>()? {
                    let tag = tag.parse().map_err(|_| {
                        de::Error::custom(format_args!(
                            "`{tag}` is no tag of a portal group; write `{{ 1 = 7 }}`"
                        ))
                    })?;
                    identifiers.insert(tag, identifier(number)?);
                }
                Ok(RelativePorts::ByGroup(identifiers))
            }
        }

        fn identifier<E: de::Error>(number: i64) -> Result<NonZeroU16, E> {
            let small = u16::try_from(number).ok().and_then(NonZeroU16::new);
            small.ok_or_else(|| {
                E::custom(format_args!(
                    "relative target ports are numbers from 1 to 65535, not {number}"
                ))
            })
        }

        deserializer.deserialize_any(Identifiers).map(Self)
    }
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccountTable {
    pub user: Spanned<String>,
    pub secret: Option<Spanned<SecretText>>,
    /// A file that holds it.
    pub secret_file: Option<Spanned<PathBuf>>,
}

/// A secret in the file. Never printed.
#[derive(Clone)]
pub struct SecretText(pub String);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The usual error would show the value.
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            _ => Err(de::Error::custom("a secret is a text in quotes")),
        }
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SubsystemTable {
    pub nqn: Spanned<String>,
    /// Whether it is served.
    pub enabled: Option<bool>,
    pub serial: Option<Serial>,
    /// Namespaces; all volumes in order when not given.
    pub namespaces: Option<Vec<Spanned<NamespaceTable>>>,
    /// Rules for hosts by name.
    #[serde(default)]
    pub access: Vec<Spanned<HostTable>>,
}

/// One entry of `namespaces`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamespaceTable {
    /// NSID, from 1 on.
    pub nsid: u64,
    /// Name of a volume.
    pub volume: String,
    /// Writes through this identifier are refused.
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostTable {
    /// NQNs of hosts, patterns of them, or `*` for all that no other rule matches.
    pub hosts: Vec<Spanned<String>>,
    /// Their own map; the subsystem's when not given.
    pub namespaces: Option<Vec<Spanned<NamespaceTable>>>,
    /// Makes every namespace of the map read-only.
    #[serde(default)]
    pub read_only: bool,
    /// A file with the secret that these hosts prove themselves with (DH-HMAC-CHAP).
    pub dhchap_secret_file: Option<Spanned<PathBuf>>,
    /// A file with the secret that the controller proves itself with.
    pub dhchap_ctrl_secret_file: Option<Spanned<PathBuf>>,
    /// Hash functions that are allowed, the preferred one first.
    pub dhchap_hashes: Option<Spanned<Vec<String>>>,
    /// Diffie-Hellman groups that are allowed, the preferred one first.
    pub dhchap_groups: Option<Spanned<Vec<String>>>,
    /// Whether hosts have to authenticate.
    pub dhchap_required: Option<Spanned<bool>>,
    /// Whether a key for TLS may be made of the authentication.
    pub dhchap_secure_channel: Option<Spanned<String>>,
    /// Files with the keys that these hosts open TLS with.
    pub tls_key_files: Option<Spanned<Vec<Spanned<PathBuf>>>>,
    /// Whether hosts have to come over TLS.
    pub tls_required: Option<Spanned<bool>>,
    /// How keys are derived where identities do not tell.
    pub tls_derivation: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuthenticationTable {
    /// CHAP accounts of initiators.
    #[serde(default)]
    pub accounts: Vec<AccountTable>,
    /// What we prove ourselves with.
    pub mutual: Option<AccountTable>,
    /// CHAP algorithms that discovery accepts.
    pub chap_algorithms: Option<Spanned<Vec<String>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ListenTable {
    #[serde(default)]
    pub iscsi: Vec<Spanned<PortalEntry>>,
    #[serde(default)]
    pub nvme: Vec<NvmeEntry>,
    /// Listeners for NVMe discovery alone.
    pub nvme_discovery: Option<DiscoveryListeners>,
    /// Allows targets and subsystems without access control on addresses that other machines can
    /// reach.
    #[serde(default)]
    pub allow_open: bool,
    /// Where the control API is reached over TCP.
    pub api: Option<ApiAddress>,
    /// Its Unix socket, or `none`.
    pub socket: Option<ApiSocket>,
    /// Where SCST's trees are mounted.
    pub scst_tree: Option<PathBuf>,
}

/// A portal: `"ADDR:PORT[,advertise=…][,tag=N]"` or a table with the same keys.
#[derive(Clone, Debug)]
pub struct PortalEntry(pub ListenerConfig);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EngineTable {
    /// `auto`, `io_uring` or `epoll`.
    #[serde(default, deserialize_with = "words::word")]
    pub kind: Option<EngineChoice>,
    /// List of cores, such as `"0,2-3"`.
    pub cores: Option<CoreList>,
    #[serde(default, deserialize_with = "words::word")]
    transmit: Option<TransmitPolicy>,
    #[serde(default, deserialize_with = "transmit::threshold")]
    nagle_threshold: Option<NagleThreshold>,
    nagle_margin: Option<u32>,
    #[serde(default, deserialize_with = "words::word")]
    nagle_cycles: Option<NagleCycles>,
    #[serde(default, deserialize_with = "words::word")]
    send: Option<SendUnit>,
    /// `auto`, `off` or `always`.
    #[serde(default, deserialize_with = "words::word")]
    pub splice: Option<ByReference>,
    #[serde(default, deserialize_with = "words::word")]
    pub registered: Option<RegisteredBuffers>,
    /// One operation in so many is followed through its stages, for statistics; 0: none.
    pub sample: Option<u32>,
    /// `auto`, `off` or microseconds.
    #[serde(default, deserialize_with = "reactor::spin")]
    pub spin: Option<Spin>,
    pub cpu_budget: Option<CpuBudget>,
    pub rebalance: Option<bool>,
    /// `auto`, `off` or `always`.
    #[serde(default, deserialize_with = "words::word")]
    pub spread: Option<Spread>,
    /// Busy polling of the network card, in microseconds.
    pub busy_poll: Option<BusyPoll>,
    /// Polling instead of interrupts.
    pub prefer_busy_poll: Option<bool>,
    pub priority: Option<Priority>,
}

impl EngineTable {
    /// What it says of event loops.
    pub fn reactor(&self) -> ReactorSettings {
        ReactorSettings {
            spin: self.spin,
            cpu_budget: self.cpu_budget,
            rebalance: self.rebalance,
            spread: self.spread,
            busy_poll: self.busy_poll,
            prefer_busy_poll: self.prefer_busy_poll,
            priority: self.priority,
        }
    }
}

impl EngineTable {
    /// What it says about when responses leave.
    #[must_use]
    pub fn transmit_keys(&self) -> TransmitKeys {
        TransmitKeys {
            policy: self.transmit,
            nagle_threshold: self.nagle_threshold,
            nagle_margin: self.nagle_margin,
            nagle_cycles: self.nagle_cycles,
            send: self.send,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogTable {
    pub format: Option<LogFormat>,
    /// Such as `"info"` or `"warn,longshore_iscsi=debug"`.
    pub level: Option<LogFilter>,
    /// Where reports of what the server has done go.
    pub statistics: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for PortalEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            address: String,
            advertise: Option<String>,
            tag: Option<u16>,
        }

        struct EntryVisitor;

        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = PortalEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address such as \"127.0.0.1:3260\" or a table with `address`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PortalEntry, E> {
                text.parse().map(PortalEntry).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PortalEntry, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let custom = <A::Error as de::Error>::custom;
                let advertise = table.advertise.as_deref().map(parse_advertise).transpose();
                Ok(PortalEntry(ListenerConfig {
                    address: parse_address(&table.address, ISCSI_PORT).map_err(custom)?,
                    advertise: advertise.map_err(<A::Error as de::Error>::custom)?,
                    tag: table.tag.unwrap_or(super::listener::DEFAULT_TAG),
                }))
            }
        }

        deserializer.deserialize_any(EntryVisitor)
    }
}
