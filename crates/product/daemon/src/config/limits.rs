//! Bounds on what peers can make grow, and the values offered in iSCSI negotiations.

use std::time::Duration;

use longshore_iscsi::negotiation::DigestPolicy;
use longshore_iscsi::server::directory::LoginConfig;
use longshore_pool::MAP_MEMORY_MIN;
use longshore_server::config::PeerLimits;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Spanned;

use super::size::{Size, Span};
use super::suggest;

/// Which digests are accepted (RFC 7143 §13.1), as written. The initiator's order of preference decides among
/// those that both sides accept.
#[derive(Clone, Copy, Debug)]
struct AcceptedDigests(DigestPolicy);

/// A whole number, perhaps written with a unit of size, within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<T, const MIN: u64, const MAX: u64>(pub T);

impl<'de, T: TryFrom<u64>, const MIN: u64, const MAX: u64> Deserialize<'de>
    for Bounded<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Size::deserialize(deserializer)?.0;
        let in_range = (MIN..=MAX).contains(&number).then_some(number);
        in_range
            .and_then(|number| T::try_from(number).ok())
            .map(Self)
            .ok_or_else(|| {
                D::Error::custom(format!("{number} is out of range; use {MIN} to {MAX}"))
            })
    }
}

/// A duration within a range of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedSpan<const MIN_MS: u128, const MAX_MS: u128>(pub Duration);

impl<'de, const MIN_MS: u128, const MAX_MS: u128> Deserialize<'de> for BoundedSpan<MIN_MS, MAX_MS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let span = Span::deserialize(deserializer)?.0;
        if (MIN_MS..=MAX_MS).contains(&span.as_millis()) {
            return Ok(Self(span));
        }
        Err(D::Error::custom(format!(
            "out of range; use {MIN_MS} ms to {MAX_MS} ms"
        )))
    }
}

/// Lengths in bytes that RFC 7143 bounds by 512 and 2^24 - 1 (§13.12 to §13.14).
pub type DataLength = Bounded<u32, 512, 0xff_ffff>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LimitsTable {
    sessions: Option<Bounded<usize, 1, 65_535>>,
    pending_logins: Option<Bounded<usize, 1, 65_535>>,
    queue_depth: Option<Bounded<u32, 1, 4096>>,
    login_timeout: Option<BoundedSpan<100, 600_000>>,
    tls_handshakes: Option<Bounded<u32, 1, 100_000>>,
    login_pause_max: Option<BoundedSpan<0, 86_400_000>>,
    nop_interval: Option<BoundedSpan<0, 3_600_000>>,
    nop_timeout: Option<BoundedSpan<100, 3_600_000>>,
    stall_timeout: Option<BoundedSpan<100, 86_400_000>>,
    memory: Option<Bounded<u64, 8_388_608, { 1 << 50 }>>,
    pool_maps: Option<Bounded<u64, MAP_MEMORY_MIN, { 1 << 50 }>>,
    drain_timeout: Option<BoundedSpan<0, 600_000>>,
    controllers: Option<Bounded<usize, 1, CONTROLLERS_MAX>>,
    io_queues: Option<Bounded<u16, 1, 1024>>,
    nvme_queue_depth: Option<Bounded<u16, QUEUE_DEPTH_MIN, 4096>>,
    /// With its place: that it is a multiple of its unit is checked where the file is known.
    pub in_capsule_data: Option<Spanned<Bounded<u32, 0, 262_144>>>,
    keep_alive_max: Option<BoundedSpan<1000, 86_400_000>>,
}

/// Controller identifiers end below FFF0h (NVMe base 2.0 §4.6.1, Connect).
const CONTROLLERS_MAX: u64 = 0xffef;

/// An admin queue has at least 32 entries, and no queue of a controller may have more than this limit.
const QUEUE_DEPTH_MIN: u64 = 32;

/// The unit in which hosts are told of in-capsule data (IOCCSZ).
pub const IN_CAPSULE_UNIT: u32 = 16;

impl LimitsTable {
    /// Bytes of payload memory, when written.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.map(|v| v.0)
    }

    /// Bytes of memory for the maps of a pool, when written.
    pub fn map_bytes(&self) -> Option<u64> {
        self.pool_maps.map(|v| v.0)
    }

    /// Replaces what was written. [`memory`](crate::memory) decides on the sizes of payload memory and of maps.
    pub fn apply(&self, limits: &mut PeerLimits) {
        set(&mut limits.sessions, self.sessions.map(|v| v.0));
        set(&mut limits.pending_logins, self.pending_logins.map(|v| v.0));
        set(&mut limits.queue_depth, self.queue_depth.map(|v| v.0));
        set(&mut limits.login_timeout, self.login_timeout.map(|v| v.0));
        set(&mut limits.tls_handshakes, self.tls_handshakes.map(|v| v.0));
        set(
            &mut limits.login_pause_max,
            self.login_pause_max.map(|v| v.0),
        );
        set(&mut limits.nop_interval, self.nop_interval.map(|v| v.0));
        set(&mut limits.nop_timeout, self.nop_timeout.map(|v| v.0));
        set(&mut limits.stall_timeout, self.stall_timeout.map(|v| v.0));
        set(&mut limits.drain_timeout, self.drain_timeout.map(|v| v.0));
        set(&mut limits.controllers, self.controllers.map(|v| v.0));
        set(&mut limits.nvme_io_queues, self.io_queues.map(|v| v.0));
        set(
            &mut limits.nvme_queue_depth,
            self.nvme_queue_depth.map(|v| v.0),
        );
        let in_capsule_data = self.in_capsule_data.as_ref();
        set(
            &mut limits.in_capsule_data,
            in_capsule_data.map(|v| v.get_ref().0),
        );
        set(&mut limits.keep_alive_max, self.keep_alive_max.map(|v| v.0));
    }
}

/// `[iscsi]` and `[target.iscsi]` as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NegotiationTable {
    max_recv_data_segment_length: Option<DataLength>,
    max_burst_length: Option<DataLength>,
    first_burst_length: Option<DataLength>,
    #[serde(rename = "max-outstanding-r2t")]
    max_outstanding_r2t: Option<Bounded<u16, 1, 65_535>>,
    #[serde(rename = "initial-r2t")]
    initial_r2t: Option<bool>,
    immediate_data: Option<bool>,
    header_digest: Option<AcceptedDigests>,
    data_digest: Option<AcceptedDigests>,
    #[serde(rename = "default-time2wait")]
    default_time2wait: Option<Bounded<u16, 0, 3600>>,
    #[serde(rename = "default-time2retain")]
    default_time2retain: Option<Bounded<u16, 0, 3600>>,
}

impl NegotiationTable {
    /// Replaces what was written.
    ///
    /// FirstBurstLength follows a MaxBurstLength below it unless it was written too.
    pub fn apply(&self, values: &mut LoginConfig) {
        set(
            &mut values.max_recv_data_segment_length,
            self.max_recv_data_segment_length.map(|v| v.0),
        );
        set(
            &mut values.max_burst_length,
            self.max_burst_length.map(|v| v.0),
        );
        match self.first_burst_length {
            Some(length) => values.first_burst_length = length.0,
            None if self.max_burst_length.is_some() => {
                values.first_burst_length = values.first_burst_length.min(values.max_burst_length);
            }
            None => {}
        }
        set(
            &mut values.max_outstanding_r2t,
            self.max_outstanding_r2t.map(|v| v.0),
        );
        set(&mut values.initial_r2t, self.initial_r2t);
        set(&mut values.immediate_data, self.immediate_data);
        set(&mut values.header_digest, self.header_digest.map(|v| v.0));
        set(&mut values.data_digest, self.data_digest.map(|v| v.0));
        set(
            &mut values.default_time2wait,
            self.default_time2wait.map(|v| v.0),
        );
        set(
            &mut values.default_time2retain,
            self.default_time2retain.map(|v| v.0),
        );
    }
}

/// Replaces a value that was given.
fn set<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}

impl<'de> Deserialize<'de> for AcceptedDigests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let accepted = Vec::<String>::deserialize(deserializer)?;
        let (mut none, mut crc32c) = (false, false);
        for name in &accepted {
            match name.to_ascii_lowercase().as_str() {
                "none" => none = true,
                "crc32c" => crc32c = true,
                _ => {
                    let meant = suggest::did_you_mean(name, &["none", "crc32c"]);
                    return Err(D::Error::custom(format!(
                        "`{name}` is not a digest; use \"none\" or \"crc32c\"{meant}"
                    )));
                }
            }
        }
        match (none, crc32c) {
            (true, true) => Ok(Self(DigestPolicy::PreferNone)),
            (false, true) => Ok(Self(DigestPolicy::Crc32c)),
            (true, false) => Ok(Self(DigestPolicy::None)),
            (false, false) => Err(D::Error::custom(
                "accept at least one of \"none\" and \"crc32c\"",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiation(text: &str) -> Result<LoginConfig, String> {
        let table: NegotiationTable = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        let mut values = LoginConfig::default();
        table.apply(&mut values);
        Ok(values)
    }

    #[test]
    fn every_negotiated_value_can_be_set() {
        let values = negotiation(
            "max-recv-data-segment-length = \"64K\"\nmax-burst-length = 131072\n\
             first-burst-length = 65536\nmax-outstanding-r2t = 1\ninitial-r2t = true\n\
             immediate-data = false\nheader-digest = [\"CRC32C\"]\ndata-digest = [\"none\"]\n\
             default-time2wait = 0\ndefault-time2retain = 20\n",
        );
        assert_eq!(
            values,
            Ok(LoginConfig {
                max_recv_data_segment_length: 65_536,
                max_burst_length: 131_072,
                first_burst_length: 65_536,
                max_outstanding_r2t: 1,
                initial_r2t: true,
                immediate_data: false,
                header_digest: DigestPolicy::Crc32c,
                data_digest: DigestPolicy::None,
                default_time2wait: 0,
                default_time2retain: 20,
                target_alias: None,
            })
        );
    }

    #[test]
    fn values_outside_the_ranges_of_the_rfc_are_refused() {
        for (text, expected) in [
            (
                "max-burst-length = 511",
                "511 is out of range; use 512 to 16777215",
            ),
            (
                "max-burst-length = \"16M\"",
                "16777216 is out of range; use 512 to 16777215",
            ),
            (
                "max-outstanding-r2t = 0",
                "0 is out of range; use 1 to 65535",
            ),
            (
                "default-time2wait = 3601",
                "3601 is out of range; use 0 to 3600",
            ),
            ("data-digest = []", "accept at least one"),
            ("data-digest = [\"md5\"]", "`md5` is not a digest"),
        ] {
            let message = negotiation(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn first_burst_length_follows_a_smaller_max_burst_length() {
        let values = negotiation("max-burst-length = 65536").unwrap();
        assert_eq!(values.first_burst_length, 65_536);
    }

    #[test]
    fn every_limit_can_be_set() {
        let table: LimitsTable = toml::from_str(
            "sessions = 10\npending-logins = 5\nqueue-depth = 32\nlogin-timeout = \"5s\"\ntls-handshakes = 50\n\
             nop-interval = 0\nnop-timeout = \"500ms\"\nstall-timeout = \"20s\"\nmemory = \"64M\"\npool-maps = \"32M\"\ndrain-timeout = \"3s\"\n\
             controllers = 20\nio-queues = 4\nnvme-queue-depth = 64\nin-capsule-data = \"16K\"\n\
             keep-alive-max = \"2m\"\n",
        )
        .unwrap();
        let mut limits = PeerLimits::default();
        table.apply(&mut limits);
        assert_eq!(
            limits,
            PeerLimits {
                sessions: 10,
                pending_logins: 5,
                queue_depth: 32,
                login_timeout: Duration::from_secs(5),
                tls_handshakes: 50,
                nop_interval: Duration::ZERO,
                nop_timeout: Duration::from_millis(500),
                stall_timeout: Duration::from_secs(20),
                drain_timeout: Duration::from_secs(3),
                controllers: 20,
                nvme_io_queues: 4,
                nvme_queue_depth: 64,
                in_capsule_data: 16_384,
                keep_alive_max: Duration::from_secs(120),
                ..PeerLimits::default()
            }
        );
        assert_eq!(table.memory_bytes(), Some(64 << 20));
        assert_eq!(table.map_bytes(), Some(32 << 20));
    }
}
