//! The parts of a set-up, from what a probe measured of it.
//!
//! Gauss and Newton's method on the logarithms of at most a dozen parameters. Residuals are those of the logarithms of
//! operations a second, of processor times and of round trips, each by its own spread. Every parameter has a wide prior;
//! what was measured directly is a residual like the others. The covariance of the result is widened where the residuals
//! are larger than the spreads: a structure that does not fit gives wide intervals.
//!
//! A parameter is *identified* if the measurements at least halve the deviation of its prior. Directions of which the
//! measurements say less than the prior name the *confounded* parameters: only a combination of them is known.
//!
//! Points that were kept back are never read by [`fit`]; [`complete`] predicts them afterwards.

use std::collections::BTreeMap;

use crate::accounting::latency_us;
use crate::algebra::{cholesky, eigen, inverse, solve};
use crate::bounds::amva;
use crate::link::{Link, TRAIN};
use crate::operation::{Element, Operation};
use crate::parameter::{Choice, Joint, Key, Name, ParameterError, Parts, Quantity, Source};
use crate::parts_file::PartsFile;
use crate::probe::{
    ArrivalFacts, Direction, ErrorSummary, Fitted, NetworkFacts, Parameter, Pattern, PointError,
    PointFacts, Probe, ProbeError, Role, ServerFacts, SourceKind, Way,
};
use crate::spread::Spread;

/// Why nothing can be fitted.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("the probe has {0} points to fit to; at least {POINTS_MIN} are needed")]
    TooFew(usize),
    #[error("the points of the probe do not determine anything")]
    Singular,
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// Points from which a fit begins to say something.
const POINTS_MIN: usize = 3;

/// What the model itself is not better than, by the value.
const MODEL: f64 = 0.01;
const MODEL_CPU: f64 = 0.03;
const MODEL_PING: f64 = 0.07;

/// What an echo says of the rate: the processors of both ends take part in it.
const ECHO: f64 = 0.25;

/// What the pace of the bytes of one read says of link and processors.
const PACE: f64 = 0.08;

/// Longer pauses, as a part of the time in which the pace was measured, are those of a window of TCP that is full, or of a
/// medium that delivers in pieces.
const PAUSE_MAX: f64 = 1.0 / 6.0;

/// Another explanation is as good if it costs so little more; by logarithms of likelihoods.
const AS_GOOD: f64 = 6.0;

/// A server that has a processor for so much of the time with work has it to itself.
const SHARE_OF_OWN: f64 = 0.95;

/// What the mean of a stage says of a single operation.
const STAGE: f64 = 0.4;

const ROUNDS: usize = 60;

/// Beyond this logarithm of mean by median, few operations make the mean: exponentially distributed times have 0.37.
const SKEW: f64 = 0.4;

/// Where a search for another explanation begins: what limited before is so much faster, as a logarithm.
const FASTER_WAY: f64 = 2.5;

/// Explanations whose parts differ less, as a logarithm, are the same one.
const LITTLE: f64 = 0.4;

/// A cache answers so much faster than a medium, in parts and in microseconds.
const FASTER: (f64, f64) = (1.08, 4.0);

/// A parameter that is looked for.
#[derive(Clone, Debug)]
struct Unknown {
    key: Key,
    /// The logarithm of the prior and its deviation.
    prior: f64,
    deviation: f64,
    note: &'static str,
}

/// A measurement of something other than a point.
#[derive(Clone, Copy, Debug)]
enum Direct {
    /// Value in the unit of the key.
    Value(Key, Spread),
    /// Bytes per second of one read, once they come.
    Pace(Spread),
    /// A round trip of the protocol, which wakes both sides and costs half of an operation's processor time.
    Ping(Spread),
}

impl Direct {
    const fn spread(&self) -> &Spread {
        match self {
            Self::Value(_, spread) | Self::Pace(spread) | Self::Ping(spread) => spread,
        }
    }
}

struct Problem<'a> {
    base: Parts,
    unknown: Vec<Unknown>,
    points: Vec<&'a PointFacts>,
    direct: Vec<Direct>,
    /// Operations on one place do not reach the medium.
    cached: bool,
    /// How much rounds differ at the middle of all points: three rounds may agree by chance.
    usual_spread: f64,
}

/// Fits the model to the points of a direction that are not kept back.
///
/// # Errors
/// There are too few of them.
pub fn fit(probe: &Probe, direction: Direction) -> Result<Fitted, FitError> {
    let points = probe.points_of(Role::Fit).map(|(_, point)| point);
    let points: Vec<&PointFacts> = points.filter(|it| it.direction == direction).collect();
    if points.len() < POINTS_MIN {
        return Err(FitError::TooFew(points.len()));
    }
    // Network and wake-ups are those of reads, which move data in one direction only.
    let reads = (direction == Direction::Write).then_some(probe.fitted.as_ref());
    let problem = Problem::new(probe, points, direction, reads.flatten())?;
    problem.solve()
}

/// Fits each direction that was measured, and predicts the points that were kept back.
///
/// # Errors
/// See [`fit`]: nothing can be fitted in any direction.
pub fn complete(probe: &mut Probe) -> Result<(), FitError> {
    let reads = completed(probe, Direction::Read);
    probe.fitted = reads.as_ref().ok().cloned();
    let writes = completed(probe, Direction::Write);
    probe.fitted_writes = writes.ok();
    match reads {
        Err(error) if probe.fitted_writes.is_none() => Err(error),
        _ => Ok(()),
    }
}

fn completed(probe: &Probe, direction: Direction) -> Result<Fitted, FitError> {
    let mut fitted = fit(probe, direction)?;
    let parts = set_up(probe, direction, &fitted)?;
    let held = probe.points_of(Role::Held);
    let held: Vec<(usize, &PointFacts)> = held
        .filter(|(_, point)| point.direction == direction)
        .collect();
    let mut errors = errors(&parts, held.iter().map(|(_, point)| *point));
    for (error, (place, _)) in errors.iter_mut().zip(&held) {
        error.point = *place;
    }
    fitted.error = summary(&errors);
    fitted.held = errors;
    Ok(fitted)
}

/// The direction of a probe's set-up: reads, if there is a choice.
#[must_use]
pub fn direction(probe: &Probe) -> Direction {
    let mut points = probe.points_of(Role::Fit);
    if !probe.points.is_empty() && points.all(|(_, it)| it.direction == Direction::Write) {
        Direction::Write
    } else {
        Direction::Read
    }
}

/// The set-up that a probe describes, in one direction. A probe without a fit is fitted.
///
/// # Errors
/// See [`fit`]; or the document names parameters that there are not.
pub fn parts(probe: &Probe, direction: Direction) -> Result<PartsFile, FitError> {
    let fitted = match direction {
        Direction::Read => probe.fitted.as_ref(),
        Direction::Write => probe.fitted_writes.as_ref(),
    };
    let own;
    let fitted = if let Some(fitted) = fitted {
        fitted
    } else {
        own = fit(probe, direction)?;
        &own
    };
    let parts = set_up(probe, direction, fitted)?;
    let mut sizes: Vec<u64> = probe.points.iter().map(|point| point.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // A document can claim that nothing takes time; then there is nothing to say.
    let takes_time = |size: f64| Operation::new(&parts, size, 1.0).alone_us() > 0.0;
    if !takes_time(1.0) {
        return Err(FitError::Singular);
    }
    Ok(PartsFile {
        title: title(probe, fitted),
        parts,
        sizes,
        depths: vec![1, 2, 4, 8, 16, 32, 64, 128],
    })
}

/// Names the probed volume, and the error of the fit at loads that were kept back.
fn title(probe: &Probe, fitted: &Fitted) -> String {
    let name = &probe.subject.name;
    fitted.error.as_ref().map_or_else(
        || format!("probe of {name}"),
        |error| {
            let (median, worst) = (error.median_percent, error.worst_percent);
            format!("probe of {name}; at loads kept back, off by {median:.1} % at the median, {worst:.1} % at worst")
        },
    )
}

fn set_up(probe: &Probe, direction: Direction, fitted: &Fitted) -> Result<Parts, FitError> {
    let mut parts = negotiated(probe, direction)?;
    for (name, word) in &fitted.words {
        if let Name::Choice(choice) = Name::find(name)? {
            parts.choose_from(choice, word, Source::Measured("a probe".to_owned()))?;
        }
    }
    let mut keys = Vec::new();
    let mut deviations = Vec::new();
    for parameter in &fitted.parameters {
        let Name::Key(key) = Name::find(&parameter.name)? else {
            continue;
        };
        let note = parameter.note.clone();
        let quantity = Quantity {
            value: parameter.value,
            uncertainty: parameter.uncertainty,
            source: match parameter.source {
                SourceKind::Measured => Source::Measured(note),
                SourceKind::Given => Source::Given(note),
                SourceKind::Assumed => Source::Assumed(note),
            },
        };
        parts.set(key, quantity)?;
        if parameter.value > 0.0 && parameter.uncertainty > 0.0 && !keys.contains(&key) {
            keys.push(key);
            deviations.push((&parameter.name, parameter.uncertainty / parameter.value));
        }
    }
    let coefficient = |one: &str, other: &str| {
        let mut all = fitted.correlation.iter();
        let found = all.find(|(a, b, _)| a == one && b == other || a == other && b == one);
        found.map_or(f64::from(u8::from(one == other)), |(_, _, coefficient)| {
            *coefficient
        })
    };
    let rows = deviations.iter().flat_map(|(one, first)| {
        deviations
            .iter()
            .map(move |(other, second)| coefficient(one, other) * first * second)
    });
    let covariances: Vec<f64> = rows.collect();
    if let Some(joint) = Joint::new(keys, &covariances) {
        parts.set_joint(joint);
    }
    let mut alternative = Vec::new();
    for (name, factor) in &fitted.alternative {
        if let Name::Key(key) = Name::find(name)? {
            alternative.push((key, *factor));
        }
    }
    parts.set_alternative(alternative);
    Ok(parts)
}

/// Predicted against measured, in the order of the points, all of which reach the medium.
#[must_use]
pub fn errors<'a>(
    parts: &Parts,
    points: impl IntoIterator<Item = &'a PointFacts>,
) -> Vec<PointError> {
    let error = |(place, point): (usize, &PointFacts)| {
        let iops = predicted(parts, point);
        let under_way = f64::from(point.depth) * f64::from(point.connections);
        let latency = latency_us(under_way, iops);
        PointError {
            point: place,
            iops_percent: 100.0 * (iops / point.iops.value - 1.0),
            latency_percent: 100.0 * (latency / point.latency_us.value - 1.0),
            spread_percent: 100.0 * point.iops.relative(),
        }
    };
    points.into_iter().enumerate().map(error).collect()
}

/// Median and worst error. None without points.
#[must_use]
pub fn summary(errors: &[PointError]) -> Option<ErrorSummary> {
    let both = errors
        .iter()
        .flat_map(|it| [it.iops_percent.abs(), it.latency_percent.abs()]);
    let mut all: Vec<f64> = both.collect();
    all.sort_by(f64::total_cmp);
    let worst = *all.last()?;
    Some(ErrorSummary {
        median_percent: f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]),
        worst_percent: worst,
        points: errors.len(),
    })
}

fn word_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// The set-up of a point.
fn at_point(parts: &Parts, point: &PointFacts) -> (Parts, Operation) {
    let mut parts = parts.clone();
    parts.put(Key::Connections, f64::from(point.connections));
    let chosen = parts.choose(Choice::Direction, word_of(point.direction));
    chosen.expect("the word is in the table");
    #[allow(clippy::cast_precision_loss)] // Sizes of operations.
    let operation = Operation::new(&parts, point.size_bytes as f64, f64::from(point.depth));
    (parts, operation)
}

/// Operations a second of a point.
fn predicted(parts: &Parts, point: &PointFacts) -> f64 {
    let (parts, operation) = at_point(parts, point);
    let under_way = f64::from(point.depth) * f64::from(point.connections);
    amva(&operation, under_way, parts.get(Key::Variation).powi(2))
}

/// What was negotiated and seen, without anything that is fitted.
fn negotiated(probe: &Probe, direction: Direction) -> Result<Parts, ParameterError> {
    let mut parts = Parts::default();
    let source = || Source::Measured("negotiated with the server".to_owned());
    let seen = || Source::Measured("a probe".to_owned());
    let is_nvme = probe.subject.way == Way::NvmeTcp;
    let protocol = if is_nvme { "nvme-tcp" } else { "iscsi" };
    parts.choose_from(Choice::Protocol, protocol, seen())?;
    parts.choose_from(Choice::Direction, word_of(direction), seen())?;
    // The load generator sends what has come together. Servers answer what has come together, if they can; a server
    // that does not shows a small cost of a send.
    parts.choose_from(Choice::ClientSend, "batch", seen())?;
    let assumed = || Source::Assumed("costs of a send are shared by what is under way".to_owned());
    parts.choose_from(Choice::Transmit, "auto", assumed())?;
    for (name, value) in &probe.negotiated {
        let name = name.to_ascii_lowercase();
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        let key = match name.as_str() {
            "firstburstlength" => Some(Key::FirstBurst),
            "maxburstlength" => Some(Key::MaxBurst),
            "maxoutstandingr2t" | "maxr2t" => Some(Key::MaxOutstandingR2t),
            "in-capsule data" => Some(Key::InCapsule),
            "maxrecvdatasegmentlength" | "maxh2cdata" => Some(Key::SegmentLength),
            _ => None,
        };
        if let (Some(key), Ok(value)) = (key, digits.parse::<u32>()) {
            let value = f64::from(value);
            let known = Quantity {
                value,
                uncertainty: 0.0,
                source: source(),
            };
            // 0 is the number of R2Ts beyond the first of some peers, and no length at all.
            if value > 0.0 || key == Key::InCapsule {
                parts.set(key, known)?;
            }
            continue;
        }
        let yes = value.eq_ignore_ascii_case("yes");
        let crc = value.to_ascii_lowercase().contains("crc32c");
        let word = |is| if is { "yes" } else { "no" };
        let digest = |is| if is { "crc32c" } else { "none" };
        let chosen = match name.as_str() {
            "initialr2t" => Some((Choice::InitialR2t, word(yes))),
            "immediatedata" => Some((Choice::ImmediateData, word(yes))),
            "headerdigest" | "hdgst" => Some((Choice::HeaderDigest, digest(crc))),
            "datadigest" | "ddgst" => Some((Choice::DataDigest, digest(crc))),
            _ => None,
        };
        if let Some((choice, word)) = chosen {
            parts.choose_from(choice, word, source())?;
        }
    }
    if let Some(transfer) = &probe.transfer {
        let mut found = |key, value: Option<u64>| -> Result<(), ParameterError> {
            let Some(value) = value.and_then(|value| u32::try_from(value).ok()) else {
                return Ok(());
            };
            let known = Quantity {
                value: f64::from(value),
                uncertainty: 0.0,
                source: Source::Measured("R2Ts of a write".to_owned()),
            };
            parts.set(key, known)
        };
        found(
            Key::MaxBurst,
            transfer.r2t_bytes.filter(|bytes| *bytes >= 512),
        )?;
        let outstanding = transfer.outstanding.filter(|count| *count > 0);
        found(Key::MaxOutstandingR2t, outstanding.map(u64::from))?;
        if let Some(early) = transfer.early {
            let word = if early { "always" } else { "never" };
            parts.choose_from(Choice::EarlyR2t, word, seen())?;
        }
    }
    let network = probe.network.as_ref();
    let mss = network
        .and_then(|it| it.tcp.snd_mss)
        .map(|mss| mss.saturating_add(52));
    let mtu = network.and_then(|it| it.mtu.map(u64::from)).or(mss);
    if let Some(mtu) = mtu.filter(|mtu| (576..=65536).contains(mtu)) {
        #[allow(clippy::cast_precision_loss)] // At most 65536.
        let mtu = mtu as f64;
        let quantity = Quantity {
            value: mtu,
            uncertainty: 0.0,
            source: seen(),
        };
        parts.set(Key::Mtu, quantity)?;
    }
    let connections = probe
        .points_of(Role::Fit)
        .map(|(_, it)| it.connections)
        .max()
        .unwrap_or(1);
    let count = |value: u32| Quantity {
        value: f64::from(value.clamp(1, 65536)),
        uncertainty: 0.0,
        source: seen(),
    };
    let cpus = if probe.client.cpus > 0 {
        probe.client.cpus
    } else {
        1
    };
    parts.set(Key::ClientCores, count(cpus))?;
    let cores = probe
        .server
        .as_ref()
        .map(|it| it.cores)
        .filter(|cores| *cores > 0);
    parts.set(
        Key::ServerCores,
        count(cores.unwrap_or_else(|| u32::from(connections))),
    )?;
    Ok(parts)
}

impl<'a> Problem<'a> {
    fn new(
        probe: &Probe,
        points: Vec<&'a PointFacts>,
        direction: Direction,
        reads: Option<&Fitted>,
    ) -> Result<Self, FitError> {
        let mut problem = Self {
            base: negotiated(probe, direction)?,
            unknown: Vec::new(),
            cached: cached(&points),
            usual_spread: usual_spread(&points),
            points,
            direct: Vec::new(),
        };
        if let Some(network) = &probe.network {
            problem.add_network(network);
            let arrival = probe.transfer.as_ref().and_then(|it| it.arrival.as_ref());
            problem.add_arrival(arrival);
            let wake_up = probe.server.as_ref().and_then(|server| server.wake_up_us);
            if let Some(value) = wake_up.filter(|it| *it > 0.0) {
                let spread = Spread {
                    value,
                    uncertainty: value * 0.2,
                    rounds: 1,
                };
                problem
                    .direct
                    .push(Direct::Value(Key::ServerWakeUp, spread));
            }
            problem.add(Key::ServerCpuPerOp, 5.0, 1.5, "small operations");
            problem.add(Key::ServerCpuPerSend, 5.0, 1.0, "operations by depth");
            problem.add(Key::ServerCpuPerByte, 1e-4, 1.5, "large operations");
        }
        let clock = "processor time of the client";
        problem.add(Key::ClientCpuPerOp, 5.0, 1.5, clock);
        problem.add(Key::ClientCpuPerSend, 5.0, 1.5, clock);
        problem.add(Key::ClientCpuPerByte, 1e-4, 1.5, clock);
        let medium = "operations at depth 1, less all else";
        problem.add(Key::StorageAccess, 20.0, 2.0, medium);
        problem.add(
            Key::StorageRate,
            2e9,
            1.5,
            "sizes at depth 1, less all else",
        );
        problem.add(
            Key::StorageThroughput,
            5e9,
            1.5,
            "large operations at large depth",
        );
        problem.add(Key::StorageParallel, 4.0, 1.2, "operations at large depth");
        problem.add(Key::Variation, 0.3, 0.4, "points around the knee");
        if let Some(server) = &probe.server {
            problem.add_stages(server, direction);
            problem.add_share(server, probe.took_ms);
        }
        if let Some(reads) = reads {
            problem.take_over(reads);
        }
        Ok(problem)
    }

    fn add(&mut self, key: Key, value: f64, deviation: f64, note: &'static str) {
        self.unknown.push(Unknown {
            key,
            prior: value.ln(),
            deviation,
            note,
        });
    }

    fn add_network(&mut self, network: &NetworkFacts) {
        #[allow(clippy::cast_precision_loss)] // Sizes of operations.
        let bytes = |point: &&PointFacts| point.iops.value * point.size_bytes as f64;
        let fastest = self.points.iter().map(bytes).fold(1e6, f64::max);
        let shake = &network.handshake_rtt_us;
        let least = match (shake.count, network.tcp.min_rtt_us) {
            (0, Some(least)) => f64::from(u32::try_from(least).unwrap_or(u32::MAX)),
            (0, None) => network.ping_us.min,
            _ => shake.min,
        };
        let least = least.max(1.0);
        // Two small packets on the wire, as soon as the rate is known; it is a guess of the prior until then.
        let wire = 2.0 * 90.0 / fastest * 1e6;
        let one_way = ((least - wire) / 2.0).max(least / 8.0);
        let handshakes = "half of the handshakes of new connections";
        self.add(Key::OneWayLatency, one_way, 1.0, handshakes);
        let spread = ((shake.p50 - shake.min) / (4.0 * least)).clamp(0.0, 0.5);
        let value = Spread {
            value: one_way,
            uncertainty: one_way * spread.hypot(0.05),
            rounds: 1,
        };
        self.direct.push(Direct::Value(Key::OneWayLatency, value));
        self.add(Key::Rate, fastest * 2.0, 1.5, "large transfers");
        let small = "small operations that pass faster than the rate";
        self.add(Key::LinkBurst, 2048.0, 2.5, small);
        if let Some(echo) = network.echo_bytes_per_second.filter(|it| it.value > 0.0) {
            let uncertainty = echo.uncertainty.max(echo.value * ECHO);
            let echo = Spread {
                uncertainty,
                ..echo
            };
            self.direct.push(Direct::Value(Key::Rate, echo));
        }
        let beyond = (network.ping_us.p50 - least).max(2.0);
        let pings = "round trips of the protocol beyond those of handshakes";
        self.add(Key::ServerWakeUp, beyond / 3.0, 1.0, pings);
        self.add(Key::ClientWakeUp, beyond / 3.0, 1.0, pings);
        if network.ping_us.count > 0 && network.ping_us.p50 > 0.0 {
            let value = network.ping_us.p50;
            self.direct.push(Direct::Ping(Spread {
                value,
                uncertainty: value * MODEL_PING,
                rounds: 1,
            }));
        }
    }

    /// The medium has done its part when the bytes of a read come: they tell the link apart from it.
    fn add_arrival(&mut self, arrival: Option<&ArrivalFacts>) {
        let even = arrival.filter(|it| it.pause <= PAUSE_MAX);
        let pace = even.and_then(|it| it.bytes_per_second);
        if let Some(pace) = pace.filter(|it| it.value > 0.0) {
            let uncertainty = pace.uncertainty.hypot(pace.value * PACE);
            self.direct.push(Direct::Pace(Spread {
                uncertainty,
                ..pace
            }));
        }
    }

    /// What a Longshore server says of its medium. Some of these operations waited for others there.
    fn add_stages(&mut self, server: &ServerFacts, direction: Direction) {
        const STORAGE: usize = 3;
        let stages = server.stages.iter();
        let stages = stages.filter(|it| it.direction == direction && it.mean_us[STORAGE] > 0.0);
        let smallest = stages.min_by_key(|it| it.bytes_up_to);
        if let Some(stage) = smallest.filter(|it| it.bytes_up_to <= 4096) {
            let value = stage.mean_us[STORAGE];
            let spread = Spread {
                value,
                uncertainty: value * STAGE,
                rounds: 1,
            };
            let direct = Direct::Value(Key::StorageAccess, spread);
            self.direct.push(direct);
        }
    }

    /// Whether other programs take processors away from a Longshore server.
    fn add_share(&mut self, server: &ServerFacts, took_ms: u64) {
        #[allow(clippy::cast_precision_loss)] // Some minutes, and operations in them.
        let (time, operations) = (took_ms as f64 * 1e3, server.operations as f64);
        let working = server.working_us_per_op * operations / (time * f64::from(server.cores));
        let share = working / (working + server.waiting_for_core);
        if working.is_finite() && share.is_finite() && (0.001..SHARE_OF_OWN).contains(&share) {
            let note = "time for which event loops had work and no processor";
            self.add(Key::ServerShare, share, 0.3, note);
        }
    }

    /// Takes network and wake-ups from a fit of the other direction.
    fn take_over(&mut self, fitted: &Fitted) {
        const SHARED: [Key; 5] = [
            Key::OneWayLatency,
            Key::Rate,
            Key::LinkBurst,
            Key::ServerWakeUp,
            Key::ClientWakeUp,
        ];
        for unknown in &mut self.unknown {
            let name = unknown.key.definition().name;
            let known = fitted.parameters.iter().find(|it| it.name == name);
            let Some(known) = known.filter(|it| it.value > 0.0) else {
                continue;
            };
            if SHARED.contains(&unknown.key) {
                unknown.prior = known.value.ln();
                unknown.deviation = if known.identified {
                    (known.uncertainty / known.value).clamp(0.02, 1.5)
                } else {
                    // The other direction left it open.
                    1.5
                };
            }
        }
        self.direct.retain(|direct| match direct {
            Direct::Value(key, _) => !SHARED.contains(key),
            Direct::Pace(_) | Direct::Ping(_) => false,
        });
    }

    /// Where the search begins: the prior, and times of the medium as the smallest random operations have them.
    fn starts(&self) -> Vec<Vec<f64>> {
        let prior: Vec<f64> = self.unknown.iter().map(|it| it.prior).collect();
        let reaching = self.points.iter();
        let reaching = reaching.filter(|it| it.pattern == Pattern::Random);
        let alone = reaching
            .clone()
            .filter(|it| it.depth == 1)
            .map(|it| it.latency_us.value);
        let alone = alone.fold(f64::INFINITY, f64::min);
        let most = reaching.map(|it| it.iops.value).fold(0.0, f64::max);
        let pings = self.direct.iter().filter_map(|direct| match direct {
            Direct::Ping(spread) => Some(spread.value),
            Direct::Value(..) | Direct::Pace(_) => None,
        });
        let access = (alone - pings.sum::<f64>()).max(alone / 50.0);
        let mut starts = vec![prior.clone()];
        if access.is_finite() {
            for (access, parallel) in [
                (access, (most * access / 1e6).clamp(1.1, 60.0)),
                (access, 16.0),
                (access / 10.0, 2.0),
            ] {
                let mut start = prior.clone();
                for (at, unknown) in start.iter_mut().zip(&self.unknown) {
                    match unknown.key {
                        Key::StorageAccess => *at = access.ln(),
                        Key::StorageParallel => *at = f64::ln(parallel),
                        _ => {}
                    }
                }
                starts.push(start);
            }
        }
        starts
    }

    fn with(&self, logarithms: &[f64]) -> Parts {
        let mut parts = self.base.clone();
        for (unknown, logarithm) in self.unknown.iter().zip(logarithms) {
            parts.put(unknown.key, unknown.key.bounded(logarithm.exp()));
        }
        parts
    }

    /// Deviations of what was measured from what the parameters give, by their spreads. The rows of a point that nothing
    /// was measured for are left out in every call alike.
    fn residuals(&self, logarithms: &[f64]) -> Vec<f64> {
        let parts = self.with(logarithms);
        let mut rows = Vec::new();
        let usual = self.usual_spread;
        let mut row = |predicted: f64, measured: Spread, model: f64| {
            let spread = measured.relative().max(usual).hypot(model);
            rows.extend(off(predicted, measured, spread));
        };
        for point in &self.points {
            let (varied, operation) = self.at(&parts, point);
            let under_way = f64::from(point.depth) * f64::from(point.connections);
            let cv2 = varied.get(Key::Variation).powi(2);
            let model = MODEL.hypot(skew(point));
            row(amva(&operation, under_way, cv2), point.iops, model);
            let busy = |element| {
                let mut all = operation.demands.iter();
                all.find(|it| it.element == element).map_or(0.0, |it| it.us)
            };
            if let Some(measured) = point.client_cpu_us {
                row(busy(Element::ClientProcessor), measured, MODEL_CPU);
            }
            if let Some(measured) = point.server_cpu_us {
                // Its clock stands still while others have the processor.
                let own = busy(Element::ServerProcessor) * varied.get(Key::ServerShare);
                row(own, measured, MODEL_CPU);
            }
        }
        for direct in &self.direct {
            match direct {
                Direct::Value(key, measured) => rows.extend(off(
                    parts.get(*key),
                    *measured,
                    measured.relative().max(usual),
                )),
                // Its spread is its own: how much loads differ from round to round says nothing of the bytes of a read.
                Direct::Pace(measured) => {
                    rows.extend(off(pace(&parts), *measured, measured.relative()));
                }
                Direct::Ping(measured) => {
                    let processors =
                        parts.get(Key::ServerCpuPerOp) + parts.get(Key::ClientCpuPerOp);
                    let wakes = parts.get(Key::ServerWakeUp) + parts.get(Key::ClientWakeUp);
                    let way =
                        2.0 * (parts.get(Key::OneWayLatency) + 140.0 / parts.get(Key::Rate) * 1e6);
                    let predicted = way + wakes + processors / 2.0;
                    rows.extend(off(predicted, *measured, measured.relative().max(usual)));
                }
            }
        }
        rows
    }

    /// Half of the sum of squares, of residuals and priors.
    fn cost(&self, at: &[f64], rows: &[f64]) -> f64 {
        let priors = self.unknown.iter().zip(at);
        let priors = priors.map(|(it, at)| ((at - it.prior) / it.deviation).powi(2));
        0.5 * (rows.iter().map(|row| row * row).sum::<f64>() + priors.sum::<f64>())
    }

    /// The derivatives of the residuals, row by row.
    fn jacobian(&self, at: &[f64], rows: usize) -> Vec<f64> {
        const STEP: f64 = 1e-4;
        let count = self.unknown.len();
        let mut jacobian = vec![0.0; rows * count];
        for column in 0..count {
            let (mut more, mut less) = (at.to_vec(), at.to_vec());
            more[column] += STEP;
            less[column] -= STEP;
            let (more, less) = (self.residuals(&more), self.residuals(&less));
            for (row, (more, less)) in more.iter().zip(&less).enumerate() {
                jacobian[row * count + column] = (more - less) / (2.0 * STEP);
            }
        }
        jacobian
    }

    /// The set-up of a point. Operations on one place are answered from a cache, if there is one.
    fn at(&self, parts: &Parts, point: &PointFacts) -> (Parts, Operation) {
        if !self.cached || point.pattern != Pattern::OnePlace {
            return at_point(parts, point);
        }
        let mut parts = parts.clone();
        parts.put(Key::StorageAccess, 0.0);
        parts.put(Key::StorageRate, 0.0);
        parts.put(Key::StorageThroughput, 0.0);
        at_point(&parts, point)
    }

    fn solve(&self) -> Result<Fitted, FitError> {
        let mut best: Option<Found> = None;
        for start in self.starts() {
            let found = self.descend(start)?;
            if best.as_ref().is_none_or(|best| found.cost < best.cost) {
                best = Some(found);
            }
        }
        let mut best = best.expect("there is a start");
        let Some(start) = self.other_way(&best.at) else {
            return self.result(&best.at, &best.rows);
        };
        let mut other = self.descend(start)?;
        if other.cost < best.cost {
            std::mem::swap(&mut best, &mut other);
        }
        let mut fitted = self.result(&best.at, &best.rows)?;
        // What the measurements say, without the priors.
        let squares = |rows: &[f64]| rows.iter().map(|row| row * row).sum::<f64>();
        let direct = self.direct.iter().filter(|it| it.spread().value > 0.0);
        let loads = best.rows.len() - direct.count();
        #[allow(clippy::cast_precision_loss)] // Some dozens.
        let wider = (squares(&best.rows) / best.rows.len() as f64).max(1.0);
        let worse = |of: fn(&[f64], usize) -> &[f64]| {
            squares(of(&other.rows, loads)) - squares(of(&best.rows, loads))
        };
        // Loads that other programs disturb take nothing away from what was measured directly.
        let worse =
            worse(|rows, loads| &rows[..loads]) / wider + worse(|rows, loads| &rows[loads..]);
        if 0.5 * worse < AS_GOOD {
            self.open(&mut fitted, &best.at, &other.at);
        }
        Ok(fitted)
    }

    fn place(&self, key: Key) -> Option<usize> {
        self.unknown.iter().position(|it| it.key == key)
    }

    /// The same measurements, explained by the medium in place of the wire, or the other way round: both move one
    /// operation after the other, in a time that grows with its size.
    fn other_way(&self, at: &[f64]) -> Option<Vec<f64>> {
        let (rate, storage) = (self.place(Key::Rate)?, self.place(Key::StorageRate)?);
        let parallel = self.place(Key::StorageParallel)?;
        let throughput = self.place(Key::StorageThroughput)?;
        let medium = at[throughput].min(at[storage] + at[parallel]);
        let mut start = at.to_vec();
        if at[rate] < medium {
            start[throughput] = at[rate];
            start[rate] += FASTER_WAY;
        } else {
            start[rate] = medium;
            start[throughput] += FASTER_WAY;
            start[storage] += FASTER_WAY;
        }
        Some(start)
    }

    /// Says that wire and medium cannot be told apart, if the two explanations differ in them.
    fn open(&self, fitted: &mut Fitted, at: &[f64], other: &[f64]) {
        let differs = |place: &usize| (at[*place] - other[*place]).abs();
        let media = [Key::StorageRate, Key::StorageThroughput];
        let media = media.into_iter().filter_map(|key| self.place(key));
        let medium = media.max_by(|a, b| differs(a).total_cmp(&differs(b)));
        let (Some(rate), Some(storage)) = (self.place(Key::Rate), medium) else {
            return;
        };
        if [rate, storage].iter().any(|place| differs(place) < LITTLE) {
            return;
        }
        let name = |place: usize| self.unknown[place].key.definition().name.to_owned();
        for place in [rate, storage] {
            let mut all = fitted.parameters.iter_mut();
            if let Some(parameter) = all.find(|it| it.name == name(place)) {
                parameter.identified = false;
                parameter.source = SourceKind::Assumed;
                "network or medium: the measurements do not tell".clone_into(&mut parameter.note);
            }
        }
        let factors = at.iter().zip(other).enumerate();
        fitted.alternative = factors
            .map(|(place, (at, other))| (name(place), (other - at).clamp(-20.0, 20.0).exp()))
            .collect();
        let group = vec![name(rate), name(storage)];
        fitted
            .confounded
            .retain(|it| !it.iter().any(|part| group.contains(part)));
        fitted.confounded.push(group);
    }

    /// Goes down from a start as far as that goes.
    fn descend(&self, mut at: Vec<f64>) -> Result<Found, FitError> {
        let count = self.unknown.len();
        let mut rows = self.residuals(&at);
        let mut cost = self.cost(&at, &rows);
        let mut damping = 1e-2;
        for _ in 0..ROUNDS {
            let jacobian = self.jacobian(&at, rows.len());
            let (information, mut gradient) = normal(count, &jacobian, &rows);
            for (place, unknown) in self.unknown.iter().enumerate() {
                gradient[place] += (at[place] - unknown.prior) / unknown.deviation.powi(2);
            }
            let mut better = None;
            for _ in 0..12 {
                let mut damped = self.with_priors(&information);
                for place in 0..count {
                    damped[place * count + place] *= 1.0 + damping;
                }
                let lower = cholesky(count, &damped).ok_or(FitError::Singular)?;
                let step = solve(count, &lower, &gradient);
                let moved = at.iter().zip(&step).zip(&self.unknown);
                let moved = moved.map(|((at, step), unknown)| {
                    let moved = at - step.clamp(-1.0, 1.0);
                    match unknown.key {
                        // Below 1 nothing changes any more, and the search would not find back.
                        Key::StorageParallel => moved.max(0.0),
                        Key::ServerShare => moved.min(0.0),
                        _ => moved,
                    }
                });
                let moved: Vec<f64> = moved.collect();
                let found = self.residuals(&moved);
                let found_cost = self.cost(&moved, &found);
                if found_cost < cost {
                    better = Some((moved, found, found_cost));
                    damping = (damping / 5.0).max(1e-9);
                    break;
                }
                damping *= 4.0;
            }
            let Some((moved, found, found_cost)) = better else {
                break;
            };
            let gained = cost - found_cost;
            (at, rows, cost) = (moved, found, found_cost);
            if gained < 1e-7 * (1.0 + cost) {
                break;
            }
        }
        Ok(Found { at, rows, cost })
    }

    fn with_priors(&self, information: &[f64]) -> Vec<f64> {
        let count = self.unknown.len();
        let mut sum = information.to_vec();
        for (place, unknown) in self.unknown.iter().enumerate() {
            sum[place * count + place] += unknown.deviation.powi(-2);
        }
        sum
    }

    #[allow(clippy::cast_precision_loss)] // Some dozens of rows.
    fn result(&self, at: &[f64], rows: &[f64]) -> Result<Fitted, FitError> {
        let count = self.unknown.len();
        let jacobian = self.jacobian(at, rows.len());
        let (information, _) = normal(count, &jacobian, rows);
        let lower = cholesky(count, &self.with_priors(&information)).ok_or(FitError::Singular)?;
        let covariance = inverse(count, &lower);
        let known = |place: usize| {
            1.0 - covariance[place * count + place] / self.unknown[place].deviation.powi(2)
        };
        let used: f64 = (0..count).map(known).sum();
        let freedom = (rows.len() as f64 - used).max(1.0);
        let wider = (rows.iter().map(|row| row * row).sum::<f64>() / freedom).max(1.0);
        let deviation = |place: usize| {
            let own = (covariance[place * count + place] * wider).sqrt();
            own.min(self.unknown[place].deviation)
        };
        let mut fitted = Fitted::default();
        for (place, unknown) in self.unknown.iter().enumerate() {
            let definition = unknown.key.definition();
            let value = unknown.key.bounded(at[place].exp());
            let identified = deviation(place) < unknown.deviation / 2.0;
            fitted.parameters.push(Parameter {
                name: definition.name.to_owned(),
                value,
                unit: definition.unit.name().to_owned(),
                uncertainty: value * deviation(place),
                source: if identified {
                    SourceKind::Measured
                } else {
                    SourceKind::Assumed
                },
                note: if identified {
                    format!("fitted: {}", unknown.note)
                } else {
                    "not determined by the measurements".to_owned()
                },
                identified,
            });
            for other in 0..place {
                let both = covariance[place * count + place] * covariance[other * count + other];
                let coefficient = covariance[place * count + other] / both.sqrt();
                if coefficient.abs() > 0.05 {
                    fitted.correlation.push((
                        self.unknown[other].key.definition().name.to_owned(),
                        definition.name.to_owned(),
                        coefficient.clamp(-1.0, 1.0),
                    ));
                }
            }
        }
        fitted.confounded = self.confounded(&information, wider);
        fitted.storage_times = self.storage_times(at);
        Ok(fitted)
    }

    /// Parameters in directions of which the measurements say less than the priors do.
    fn confounded(&self, information: &[f64], wider: f64) -> Vec<Vec<String>> {
        let count = self.unknown.len();
        let mut scaled = information.to_vec();
        for row in 0..count {
            for column in 0..count {
                let deviations = self.unknown[row].deviation * self.unknown[column].deviation;
                scaled[row * count + column] *= deviations / wider;
            }
        }
        let mut groups: Vec<Vec<String>> = Vec::new();
        for (value, vector) in eigen(count, &scaled) {
            // What nothing was measured of stands alone in its direction.
            if value > 3.0 {
                continue;
            }
            let named = vector
                .iter()
                .zip(&self.unknown)
                .filter(|(share, _)| share.abs() > 0.35);
            let group: Vec<String> = named
                .map(|(_, it)| it.key.definition().name.to_owned())
                .collect();
            if group.len() > 1 && !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// What remains for the medium at depth 1, by size: of random operations, and in order where these are all there is.
    fn storage_times(&self, at: &[f64]) -> Vec<(u64, Spread)> {
        let parts = self.with(at);
        let mut times = BTreeMap::new();
        let of_points = self.points.iter().copied();
        let (random, others): (Vec<&PointFacts>, Vec<&PointFacts>) =
            of_points.partition(|it| it.pattern == Pattern::Random);
        for point in others.into_iter().chain(random) {
            let alone = point.depth == 1 && point.connections == 1;
            if !alone || point.pattern == Pattern::OnePlace {
                continue;
            }
            let (_, operation) = self.at(&parts, point);
            let other = operation.alone_us() - operation.contribution(Element::Storage);
            let uncertainty = point.latency_us.uncertainty.hypot(other * MODEL);
            times.insert(
                point.size_bytes,
                Spread {
                    value: (point.latency_us.value - other).max(0.0),
                    uncertainty,
                    rounds: point.latency_us.rounds,
                },
            );
        }
        times.into_iter().collect()
    }
}

/// Where a search ended.
struct Found {
    /// Logarithms of the parameters.
    at: Vec<f64>,
    rows: Vec<f64>,
    cost: f64,
}

/// The deviation of a prediction, as a logarithm, in spreads. `None`: nothing was measured.
fn off(predicted: f64, measured: Spread, spread: f64) -> Option<f64> {
    let is_measured = measured.value > 0.0;
    is_measured.then(|| (predicted.max(1e-12) / measured.value).ln() / spread)
}

/// Bytes per second of one read that comes in: those of the slowest of link and processors.
fn pace(parts: &Parts) -> f64 {
    let link = Link::new(parts).packed_us(1.0);
    let server = parts.get(Key::ServerCpuPerByte) + parts.get(Key::ServerCpuPerSend) / TRAIN;
    1e6 / link.max(server).max(parts.get(Key::ClientCpuPerByte))
}

fn usual_spread(points: &[&PointFacts]) -> f64 {
    let mut all: Vec<f64> = points.iter().map(|it| it.iops.relative()).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// What the mean of a load is uncertain by, as a logarithm, because few operations make it: other programs had the
/// processor meanwhile, or the medium was busy with something else.
fn skew(point: &PointFacts) -> f64 {
    let skew = (point.latency_us.value / point.p50_us.value).ln() - SKEW;
    if skew.is_finite() { skew.max(0.0) } else { 0.0 }
}

/// Whether one place is answered faster than random ones, and not by some operations alone.
fn cached(points: &[&PointFacts]) -> bool {
    let alone = |pattern| {
        let points = points.iter().copied();
        points.filter(move |it| it.depth == 1 && it.pattern == pattern)
    };
    alone(Pattern::OnePlace).any(|one| {
        let mut random = alone(Pattern::Random).filter(|it| it.size_bytes == one.size_bytes);
        let is_slower = |it: &Spread, than: &Spread| it.value > than.value * FASTER.0 + FASTER.1;
        random.any(|it| {
            is_slower(&it.latency_us, &one.latency_us) && is_slower(&it.p50_us, &one.p50_us)
        })
    })
}

/// The product of the derivatives with themselves, and with the residuals.
fn normal(count: usize, jacobian: &[f64], rows: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut information = vec![0.0; count * count];
    let mut gradient = vec![0.0; count];
    for (row, residual) in jacobian.chunks_exact(count).zip(rows) {
        for (one, first) in row.iter().enumerate() {
            gradient[one] += first * residual;
            for (other, second) in row.iter().enumerate() {
                information[one * count + other] += first * second;
            }
        }
    }
    (information, gradient)
}

#[cfg(test)]
mod drawn;
#[cfg(test)]
mod tests;
