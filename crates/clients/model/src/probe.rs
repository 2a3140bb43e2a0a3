//! The document of a probe: what was measured of a server, and what was fitted to it.
//!
//! It is JSON. A reader ignores fields that it does not know, refuses a newer version, bounds every list and refuses
//! numbers that are not finite, so that a document from anywhere can be read. Parameters have the names of
//! [`crate::parameter::KEYS`] and [`crate::parameter::CHOICES`], negotiated values those of the initiator's attachment.
//! Texts may be those of a server: a writer of pages and terminals escapes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spread::{Distribution, Spread};

/// Rises when a field goes away or changes its meaning.
pub const PROBE_VERSION: u32 = 1;

/// Entries of a list or map at most.
pub const ENTRIES_MAX: usize = 4096;

/// Bytes of a text at most.
pub const TEXT_MAX: usize = 4096;

/// Bytes of a document at most.
pub const DOCUMENT_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub version: u32,
    /// When it began, in milliseconds since 1970.
    pub made_ms: u64,
    pub took_ms: u64,
    pub seed: u64,
    pub subject: Subject,
    /// None for a local file or device.
    #[serde(default)]
    pub network: Option<NetworkFacts>,
    /// Names and values of the initiator's attachment; numbers are plain.
    #[serde(default)]
    pub negotiated: BTreeMap<String, String>,
    #[serde(default)]
    pub transfer: Option<TransferFacts>,
    #[serde(default)]
    pub points: Vec<PointFacts>,
    #[serde(default)]
    pub client: ClientFacts,
    #[serde(default)]
    pub server: Option<ServerFacts>,
    #[serde(default)]
    pub remarks: Vec<Remark>,
    /// What was fitted to the reads.
    #[serde(default)]
    pub fitted: Option<Fitted>,
    /// What was fitted to the writes.
    #[serde(default)]
    pub fitted_writes: Option<Fitted>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// A URL without its password, or a path.
    pub name: String,
    pub way: Way,
    /// The address and port that were connected to.
    #[serde(default)]
    pub portal: Option<String>,
    pub volume_bytes: u64,
    pub block_size: u64,
    /// As the server tells it.
    #[serde(default)]
    pub product: Option<String>,
    #[serde(default)]
    pub make: Make,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    #[default]
    Iscsi,
    NvmeTcp,
    File,
    Block,
}

/// Whose server it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Make {
    Longshore,
    Lio,
    Tgt,
    Scst,
    Spdk,
    Nvmet,
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// Round trips of the protocol at a short interval: 2 ms.
    pub ping_us: Distribution,
    /// The same at a long interval: 200 ms.
    #[serde(default)]
    pub ping_rare_us: Option<Distribution>,
    /// Round trips of fresh handshakes of TCP, which the kernel of the server answers.
    pub handshake_rtt_us: Distribution,
    /// Bytes a second, each way, of pings with data.
    #[serde(default)]
    pub echo_bytes_per_second: Option<Spread>,
    #[serde(default)]
    pub tcp: TcpFacts,
    #[serde(default)]
    pub mtu: Option<u32>,
}

/// What the kernel says of a connection, or of the time between two looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpFacts {
    pub rtt_us: Option<u64>,
    pub min_rtt_us: Option<u64>,
    /// Bytes of a segment.
    pub snd_mss: Option<u64>,
    /// The kernel's estimate of delivery, in bytes a second.
    pub delivery_rate: Option<u64>,
    /// The delivery rate was limited by the sender's application.
    pub app_limited: Option<bool>,
    /// Time with data to send.
    pub busy_us: Option<u64>,
    /// Time that the receiver's window held data back.
    pub rwnd_limited_us: Option<u64>,
    /// Time that the send buffer was too small.
    pub sndbuf_limited_us: Option<u64>,
    pub retransmits: Option<u64>,
    /// Segments of the congestion window.
    pub cwnd: Option<u64>,
}

/// How a write's data travels, as seen from the initiator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferFacts {
    /// R2Ts of a write, by its size.
    pub r2ts_per_write: BTreeMap<u64, u32>,
    /// Bytes that one R2T asks for.
    pub r2t_bytes: Option<u64>,
    /// R2Ts of a write that the server has outstanding.
    pub outstanding: Option<u32>,
    /// The first R2T comes before the unsolicited data is complete.
    pub early: Option<bool>,
    pub first_r2t_us: Option<Spread>,
    /// Bytes of the server's data PDUs.
    pub read_segment_bytes: Option<u64>,
    pub arrival: Option<ArrivalFacts>,
}

/// When the bytes of one large read come, with nothing else under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrivalFacts {
    /// Bytes of the read.
    pub bytes: u64,
    /// From the request to the first of them.
    pub first_us: Spread,
    /// Pace of the second half, or of the whole read where that is slower; none if it came at once.
    pub bytes_per_second: Option<Spread>,
    /// The longest time without an arrival, as a part of the time of the second half.
    pub pause: f64,
}

/// What a point is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    #[default]
    Fit,
    /// Kept back: it decides the error that is published.
    Held,
    /// Somebody asked for it. It decides nothing.
    Asked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    #[default]
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// The same block again and again: what a cache gives.
    OnePlace,
    #[default]
    Random,
    Sequential,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointFacts {
    pub role: Role,
    pub direction: Direction,
    pub size_bytes: u64,
    pub depth: u16,
    pub connections: u16,
    pub pattern: Pattern,
    pub iops: Spread,
    pub latency_us: Spread,
    pub p50_us: Spread,
    pub p99_us: Spread,
    /// Processor time of the client for an operation.
    #[serde(default)]
    pub client_cpu_us: Option<Spread>,
    /// Share of the time that the client's busiest processor was busy.
    #[serde(default)]
    pub client_busy: f64,
    /// Processor time of the server for an operation.
    #[serde(default)]
    pub server_cpu_us: Option<Spread>,
    /// Differences over the measurement.
    #[serde(default)]
    pub tcp: Option<TcpFacts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientFacts {
    pub cpus: u32,
    pub kernel: String,
    /// Settings of the host, by the names of sysctl and ethtool.
    pub settings: BTreeMap<String, String>,
}

/// What a Longshore server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFacts {
    pub operations: u64,
    /// Time of its event loops for an operation.
    pub working_us_per_op: f64,
    /// Processor time for an operation.
    pub user_us_per_op: f64,
    /// Share of the time that a loop was ready and had no processor.
    pub waiting_for_core: f64,
    /// That time, of all event loops together, in microseconds.
    pub observed_us: u64,
    pub wake_up_us: Option<f64>,
    /// Times that its event loops went to sleep.
    pub sleeps: u64,
    pub cores: u32,
    pub stages: Vec<StageFacts>,
    pub tcp: Vec<TcpFacts>,
    pub settings: BTreeMap<String, String>,
}

/// Names of the stages of a request, in their order.
pub const STAGES: [&str; 6] = ["parse", "data", "gate", "storage", "answer", "send"];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageFacts {
    pub direction: Direction,
    /// The largest operation of this row.
    pub bytes_up_to: u64,
    pub operations: u64,
    /// Mean time in each of [`STAGES`].
    pub mean_us: [f64; 6],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    /// Round trips lie in two heaps.
    Bimodal,
    /// Round trips at a long interval are not those of a load.
    LongIntervalMisleads,
    /// The client's processor was busy all the time.
    ClientIsLimit,
    Noisy,
    /// Others load the server.
    OtherLoad,
    NotMeasured,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    pub kind: RemarkKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    Measured,
    Given,
    #[default]
    Assumed,
}

/// A parameter that came out of a fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub value: f64,
    /// `us`, `byte`, `byte/s`, `us/byte`, `GHz`, `1`.
    pub unit: String,
    pub uncertainty: f64,
    pub source: SourceKind,
    /// How it was found.
    pub note: String,
    /// The measurements determine it. If not, the value is hardly more than what was assumed before.
    pub identified: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fitted {
    pub parameters: Vec<Parameter>,
    /// Choices, by the names of [`crate::parameter::CHOICES`].
    pub words: BTreeMap<String, String>,
    /// Times of the medium by bytes, in microseconds.
    pub storage_times: Vec<(u64, Spread)>,
    /// Pairs of parameters whose errors move together, with the coefficient. Pairs that are not listed do not.
    pub correlation: Vec<(String, String, f64)>,
    /// Groups of parameters of which the measurements know a combination alone.
    pub confounded: Vec<Vec<String>>,
    /// Factors by which parameters are those of another explanation that is as good.
    pub alternative: Vec<(String, f64)>,
    /// Errors at points that were kept back.
    pub held: Vec<PointError>,
    pub error: Option<ErrorSummary>,
}

/// How far the prediction of a point lies from its measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointError {
    /// The place in [`Probe::points`].
    pub point: usize,
    /// Predicted by measured, less 100.
    pub iops_percent: f64,
    pub latency_percent: f64,
    /// One standard deviation of the measured mean.
    pub spread_percent: f64,
}

/// Errors of operations a second and of mean latency at all points that were kept back, without their signs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorSummary {
    pub median_percent: f64,
    pub worst_percent: f64,
    pub points: usize,
}

/// Why a document is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{0} bytes are too many for a probe; at most {DOCUMENT_MAX} are read")]
    TooLong(usize),
    #[error("not the document of a probe: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the probe has version {found}; this program reads up to {PROBE_VERSION}")]
    Version { found: u32 },
    #[error("{field}: more than {ENTRIES_MAX} entries")]
    Entries { field: &'static str },
    #[error("{field}: a text of more than {TEXT_MAX} bytes")]
    Text { field: &'static str },
    #[error("{field}: {problem}")]
    Value {
        field: &'static str,
        problem: String,
    },
}

/// The version alone, since a newer document may differ in all else.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Probe {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not one, is newer, or has values that nothing measures.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProbeError> {
        if bytes.len() > DOCUMENT_MAX {
            return Err(ProbeError::TooLong(bytes.len()));
        }
        let Versioned { version: found } = serde_json::from_slice(bytes)?;
        if found > PROBE_VERSION || found == 0 {
            return Err(ProbeError::Version { found });
        }
        let probe: Self = serde_json::from_slice(bytes)?;
        probe.check()?;
        Ok(probe)
    }

    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("keys are texts and numbers");
        bytes.push(b'\n');
        bytes
    }

    /// Points of a role.
    pub fn points_of(&self, role: Role) -> impl Iterator<Item = (usize, &PointFacts)> {
        let all = self.points.iter().enumerate();
        all.filter(move |(_, point)| point.role == role)
    }

    fn check(&self) -> Result<(), ProbeError> {
        self.check_texts()?;
        if let Some(network) = &self.network {
            let rare = network.ping_rare_us.iter();
            for distribution in [&network.ping_us, &network.handshake_rtt_us]
                .into_iter()
                .chain(rare)
            {
                entries("network", distribution.modes.len())?;
                sound("network", distribution.is_sound())?;
            }
            let echo = network.echo_bytes_per_second;
            sound("echo_bytes_per_second", echo.is_none_or(|it| it.is_sound()))?;
        }
        if let Some(transfer) = &self.transfer {
            entries("r2ts_per_write", transfer.r2ts_per_write.len())?;
            let arrival = transfer.arrival.as_ref();
            let is_arrival_sound = arrival.is_none_or(|it| {
                let pace = it.bytes_per_second.is_none_or(|pace| pace.is_sound());
                pace && it.first_us.is_sound() && it.pause.is_finite()
            });
            sound("arrival", is_arrival_sound)?;
            sound(
                "first_r2t_us",
                transfer.first_r2t_us.is_none_or(|it| it.is_sound()),
            )?;
        }
        entries("points", self.points.len())?;
        self.points.iter().try_for_each(PointFacts::check)?;
        if let Some(server) = &self.server {
            server.check()?;
        }
        let mut fitted = self.fitted.iter().chain(&self.fitted_writes);
        fitted.try_for_each(Fitted::check)
    }

    fn check_texts(&self) -> Result<(), ProbeError> {
        let subject = &self.subject;
        let own = [
            Some(&subject.name),
            subject.portal.as_ref(),
            subject.product.as_ref(),
        ];
        own.into_iter()
            .flatten()
            .try_for_each(|it| text("subject", it))?;
        texts("negotiated", &self.negotiated)?;
        texts("client.settings", &self.client.settings)?;
        text("client.kernel", &self.client.kernel)?;
        entries("remarks", self.remarks.len())?;
        self.remarks
            .iter()
            .try_for_each(|it| text("remarks", &it.text))
    }
}

impl PointFacts {
    fn check(&self) -> Result<(), ProbeError> {
        let optional = [self.client_cpu_us, self.server_cpu_us];
        let all = [self.iops, self.latency_us, self.p50_us, self.p99_us];
        let mut spreads = all.into_iter().chain(optional.into_iter().flatten());
        sound("points", spreads.all(|it| it.is_sound() && it.value >= 0.0))?;
        sound("client_busy", self.client_busy.is_finite())?;
        let problem = if self.depth == 0 || self.connections == 0 {
            "a depth or a number of connections is 0"
        } else if self.size_bytes == 0 || self.size_bytes > crate::parts_file::SIZE_MAX {
            "a size is 0 or above 1 GiB"
        } else if self.iops.value <= 0.0 || self.latency_us.value <= 0.0 {
            "nothing ended at a point"
        } else {
            return Ok(());
        };
        Err(ProbeError::Value {
            field: "points",
            problem: problem.to_owned(),
        })
    }
}

impl ServerFacts {
    fn check(&self) -> Result<(), ProbeError> {
        texts("server.settings", &self.settings)?;
        entries("server.stages", self.stages.len())?;
        entries("server.tcp", self.tcp.len())?;
        let stages = self.stages.iter().flat_map(|stage| stage.mean_us);
        let own = [
            self.working_us_per_op,
            self.user_us_per_op,
            self.waiting_for_core,
        ];
        let mut all = own.into_iter().chain(self.wake_up_us).chain(stages);
        sound("server", all.all(|it| it.is_finite() && it >= 0.0))
    }
}

impl Fitted {
    fn check(&self) -> Result<(), ProbeError> {
        texts("words", &self.words)?;
        for (field, count) in [
            ("parameters", self.parameters.len()),
            ("storage_times", self.storage_times.len()),
            ("correlation", self.correlation.len()),
            ("confounded", self.confounded.len()),
            ("held", self.held.len()),
            ("alternative", self.alternative.len()),
        ] {
            entries(field, count)?;
        }
        for parameter in &self.parameters {
            [&parameter.name, &parameter.unit, &parameter.note]
                .into_iter()
                .try_for_each(|it| text("parameters", it))?;
            let is_sound = |value: f64| value.is_finite() && value >= 0.0;
            let both = is_sound(parameter.value) && is_sound(parameter.uncertainty);
            sound("parameters", both)?;
        }
        for group in &self.confounded {
            entries("confounded", group.len())?;
            group.iter().try_for_each(|it| text("confounded", it))?;
        }
        for (one, other, coefficient) in &self.correlation {
            text("correlation", one)?;
            text("correlation", other)?;
            sound("correlation", (-1.0..=1.0).contains(coefficient))?;
        }
        for (name, factor) in &self.alternative {
            text("alternative", name)?;
            sound("alternative", (1e-9..=1e9).contains(factor))?;
        }
        let times = self.storage_times.iter();
        sound(
            "storage_times",
            times
                .clone()
                .all(|(_, it)| it.is_sound() && it.value >= 0.0),
        )?;
        let errors = self
            .held
            .iter()
            .flat_map(|it| [it.iops_percent, it.latency_percent, it.spread_percent]);
        let summary = self
            .error
            .iter()
            .flat_map(|it| [it.median_percent, it.worst_percent]);
        sound("held", errors.chain(summary).all(f64::is_finite))
    }
}

fn entries(field: &'static str, count: usize) -> Result<(), ProbeError> {
    if count > ENTRIES_MAX {
        return Err(ProbeError::Entries { field });
    }
    Ok(())
}

fn text(field: &'static str, text: &str) -> Result<(), ProbeError> {
    if text.len() > TEXT_MAX {
        return Err(ProbeError::Text { field });
    }
    Ok(())
}

fn texts(field: &'static str, all: &BTreeMap<String, String>) -> Result<(), ProbeError> {
    entries(field, all.len())?;
    let mut texts = all.iter().flat_map(|(name, value)| [name, value]);
    texts.try_for_each(|it| text(field, it))
}

fn sound(field: &'static str, is_sound: bool) -> Result<(), ProbeError> {
    if is_sound {
        return Ok(());
    }
    Err(ProbeError::Value {
        field,
        problem: "a number is not finite or out of range".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const LONGSHORE: &[u8] = include_bytes!("../tests/probes/longshore-iscsi.json");
    const NVMET: &[u8] = include_bytes!("../tests/probes/nvmet.json");

    #[test]
    fn a_document_reads_back_as_it_was_written() {
        for bytes in [LONGSHORE, NVMET] {
            let probe = Probe::parse(bytes).unwrap();
            assert_eq!(Probe::parse(&probe.to_json()).unwrap(), probe);
        }
        let probe = Probe::parse(LONGSHORE).unwrap();
        assert_eq!(probe.subject.make, Make::Longshore);
        assert_eq!(probe.points_of(Role::Held).count(), 1);
        assert_eq!(probe.transfer.unwrap().r2ts_per_write[&1_048_576], 4);
    }

    #[test]
    fn what_a_later_program_adds_is_ignored_and_what_it_changes_is_refused() {
        let mut json: serde_json::Value = serde_json::from_slice(NVMET).unwrap();
        json["weather"] = "rain".into();
        json["subject"]["make"] = "somebody".into();
        let probe = Probe::parse(&serde_json::to_vec(&json).unwrap()).unwrap();
        assert_eq!(probe.subject.make, Make::Unknown);
        json["version"] = 2.into();
        let refused = Probe::parse(&serde_json::to_vec(&json).unwrap()).unwrap_err();
        assert!(
            matches!(refused, ProbeError::Version { found: 2 }),
            "{refused}"
        );
    }

    #[test]
    fn hostile_documents_are_refused_and_never_panic() {
        let mut json: serde_json::Value = serde_json::from_slice(LONGSHORE).unwrap();
        let refuse = |change: &dyn Fn(&mut serde_json::Value), why: &str| {
            let mut changed = json.clone();
            change(&mut changed);
            let error = Probe::parse(&serde_json::to_vec(&changed).unwrap()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        };
        refuse(&|it| it["points"][0]["depth"] = 0.into(), "a depth");
        refuse(
            &|it| it["points"][0]["iops"]["value"] = 0.into(),
            "nothing ended",
        );
        refuse(
            &|it| it["points"][0]["size_bytes"] = (1u64 << 40).into(),
            "1 GiB",
        );
        refuse(
            &|it| it["server"]["stages"][0]["mean_us"][0] = (-1).into(),
            "out of range",
        );
        refuse(
            &|it| it["subject"]["name"] = "x".repeat(5000).into(),
            "subject",
        );
        let point = json["points"][0].clone();
        refuse(
            &|it| it["points"] = vec![point.clone(); 5000].into(),
            "more than 4096",
        );
        json["took_ms"] = serde_json::Value::Null;
        assert!(Probe::parse(&serde_json::to_vec(&json).unwrap()).is_err());
        assert!(Probe::parse(b"{\"version\":1,\"took_ms\":1e999}").is_err());
        let mut random = Random::new(11);
        for _ in 0..2000 {
            let mut bytes = LONGSHORE.to_vec();
            for _ in 0..=random.bits() % 4 {
                let place = usize::try_from(random.bits()).unwrap() % bytes.len();
                bytes[place] = b"0-9e\"{}[],\xff"[usize::try_from(random.bits() % 11).unwrap()];
            }
            let _ = Probe::parse(&bytes);
        }
    }
}
