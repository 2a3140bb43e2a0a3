//! The parameters of a set-up: names, units, sources and uncertainties.
//!
//! A *set-up* ([`Parts`]) is a value for each [`Key`] and a word for each [`Choice`]. Names are unique, so that
//! `--what-if` needs no table in front of them.

use std::collections::BTreeMap;

use crate::algebra::cholesky;
use crate::random::{Random, normal_quantile};
use crate::spread::Spread;
use crate::units::{Unit, UnitError};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Measured(String),
    /// By a data sheet, a document or the user.
    Given(String),
    /// Nobody knows; why this value.
    Assumed(String),
}

impl Source {
    /// `measured`, `given` or `assumed`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Given(_) => "given",
            Self::Assumed(_) => "assumed",
        }
    }

    #[must_use]
    pub fn note(&self) -> &str {
        let (Self::Measured(note) | Self::Given(note) | Self::Assumed(note)) = self;
        note
    }
}

/// A value with its uncertainty.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// In the unit of its key.
    pub value: f64,
    /// One standard deviation, in the same unit.
    pub uncertainty: f64,
    pub source: Source,
}

/// A name of the table, and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// As in files and `--what-if`.
    pub name: &'static str,
    /// The table of a file in which it stands.
    pub table: &'static str,
    pub unit: Unit,
    /// Where a file does not say.
    pub default: f64,
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($(#[$meta:meta])* $key:ident = $table:literal $name:literal $unit:ident $default:literal $meaning:literal;)+) => {
        /// A parameter with a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Key { $(#[doc = $meaning] $key,)+ }

        /// All numbers, in the order of their tables.
        pub const KEYS: &[(Key, Definition)] = &[$((Key::$key, Definition {
            name: $name, table: $table, unit: Unit::$unit, default: $default, meaning: $meaning,
        }),)+];
    };
}

keys! {
    OneWayLatency = "network" "one-way-latency" Time 0.0 "Time from one machine to the other, without the time on the wire";
    Rate = "network" "rate" LineRate 0.0 "Rate of each direction";
    Mtu = "network" "mtu" Size 1500.0 "Largest IP packet";
    WireFactor = "network" "wire-factor" Ratio 0.0 "Bytes on the wire for each byte of a full packet; 0: (MTU+38)/(MTU-52)";
    LinkBurst = "network" "link-burst" Size 0.0 "Bytes that pass at once after a pause: the bucket of a shaped link";
    ClientTransmitLatency = "network" "client-transmit-latency" Time 0.0 "Until the client's card begins to send (CT)";
    ServerInterruptLatency = "network" "server-interrupt-latency" Time 0.0 "Until the server's processor takes a packet from an idle card (SR)";
    ServerTransmitLatency = "network" "server-transmit-latency" Time 0.0 "Until the server's card begins to send (ST)";
    ClientInterruptLatency = "network" "client-interrupt-latency" Time 0.0 "Until the client's processor takes a packet from an idle card (CR)";
    Window = "network" "window" Size 0.0 "Bytes under way at most, on each connection and in each direction; 0: as many as there are";
    DelayedAck = "network" "delayed-ack" Time 40_000.0 "How long an acknowledgement waits for data to travel with (CA)";

    ServerWakeUp = "server" "server-wake-up" Time 0.0 "Until a sleeping server thread runs (SL)";
    ServerCpuPerOp = "server" "server-cpu-per-op" Time 0.0 "Processor time of the server for an operation, whatever its size (SP)";
    ServerCpuPerByte = "server" "server-cpu-per-byte" Cost 0.0 "Processor time of the server for a byte of data";
    ServerCpuPerSend = "server" "server-cpu-per-send" Time 0.0 "Processor time of the server for a transmitted packet or train (SK)";
    ServerShare = "server" "server-share" Ratio 1.0 "Part of the time with work in which the server has a processor";
    ServerSoftIrq = "server" "server-softirq-per-packet" Time 0.0 "Time of the kernel of the server for a received packet (SI)";
    ServerCores = "server" "server-cores" Count 1.0 "Processors that serve; a connection belongs to one";
    ServerSendBuffer = "server" "server-send-buffer" Size 4_194_304.0 "Bytes that the server's socket takes before it is full (tcp_wmem)";
    NagleThreshold = "server" "nagle-threshold" Count 96.0 "adaptive-nagle: commands without a pause that make a connection busy";
    NagleMargin = "server" "nagle-margin" Count 40.0 "adaptive-nagle: commands beyond the threshold that keep Nagle's algorithm on";

    ClientWakeUp = "client" "client-wake-up" Time 0.0 "Until a sleeping client thread runs (CL)";
    ClientCpuPerOp = "client" "client-cpu-per-op" Time 0.0 "Processor time of the client for an operation (CP)";
    ClientCpuPerByte = "client" "client-cpu-per-byte" Cost 0.0 "Processor time of the client for a byte of data";
    ClientCpuPerSend = "client" "client-cpu-per-send" Time 0.0 "Processor time of the client for a transmitted packet or train (CK)";
    ClientSoftIrq = "client" "client-softirq-per-packet" Time 0.0 "Time of the kernel of the client for a received packet (CI)";
    ClientCores = "client" "client-cores" Count 1.0 "Processors that make the load; a connection belongs to one";

    Clock = "server" "clock" Clock 1.0 "Clock rate of the server";
    ClockReference = "server" "clock-reference" Clock 1.0 "Clock rate at which its processor times were found";

    StorageAccess = "storage" "storage-access-time" Time 0.0 "Time of the medium for an operation, whatever its size";
    StorageRate = "storage" "storage-rate" Rate 0.0 "Rate of the medium; 0: unlimited";
    StorageThroughput = "storage" "storage-throughput" Rate 0.0 "Rate of the medium over all operations, whose bytes it moves one after the other; 0: unlimited";
    StorageOverlap = "storage" "storage-overlap" Ratio 0.0 "Part of the medium's time that passes while data is still under way";
    StorageParallel = "storage" "storage-parallel" Ratio 1.0 "Operations that the medium works on at a time";

    FirstBurst = "negotiated" "first-burst" Size 65_536.0 "FirstBurstLength: unsolicited bytes of a write";
    MaxBurst = "negotiated" "max-burst" Size 262_144.0 "MaxBurstLength: bytes that an R2T asks for at most";
    MaxOutstandingR2t = "negotiated" "max-outstanding-r2t" Count 1.0 "MaxOutstandingR2T: R2Ts of a write at a time (MAXR2T of NVMe/TCP)";
    SegmentLength = "negotiated" "max-recv-data-segment" Size 262_144.0 "MaxRecvDataSegmentLength of the receiver (MAXH2CDATA of NVMe/TCP)";
    InCapsule = "negotiated" "in-capsule-data" Size 8192.0 "NVMe/TCP: bytes that a command capsule takes along";
    DigestCost = "negotiated" "digest-cpu-per-byte" Cost 0.0 "Processor time of both ends for a byte under a data digest";

    Connections = "workload" "connections" Count 1.0 "Sessions, or I/O queues; the depth is that of each";
    Variation = "workload" "variation" Ratio 0.3 "Standard deviation of times and latencies, by their mean";
    MixSize = "workload" "mix-size" Size 0.0 "Size of the operations of a second load on the same volume; 0: none";
    MixDepth = "workload" "mix-depth" Count 1.0 "Depth of the second load";
}

macro_rules! choices {
    ($($choice:ident = $table:literal $name:literal [$($word:literal),+] $meaning:literal;)+) => {
        /// A parameter with a word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Choice { $(#[doc = $meaning] $choice,)+ }

        /// All choices: name, table, words with the default first, meaning.
        pub const CHOICES: &[(Choice, ChoiceDefinition)] = &[$((Choice::$choice, ChoiceDefinition {
            name: $name, table: $table, words: &[$($word),+], meaning: $meaning,
        }),)+];
    };
}

/// A name of the table whose values are words.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceDefinition {
    pub name: &'static str,
    pub table: &'static str,
    /// The default is the first.
    pub words: &'static [&'static str],
    pub meaning: &'static str,
}

choices! {
    RateCounts = "network" "rate-counts" ["wire", "payload"] "What the rate counts: everything on the wire, or data alone";
    Transmit = "server" "transmit" ["nodelay", "nagle", "adaptive-nagle", "auto"] "Transmit policy of the server";
    Send = "server" "send" ["response", "turn"] "What one send holds, under all transmit policies but auto";
    NagleCycles = "server" "nagle-cycles" ["paper", "corrected"] "adaptive-nagle: how cycles that began with Nagle's algorithm on are measured";
    ClientNagle = "client" "client-nagle" ["off", "on"] "Nagle's algorithm on the client (CN)";
    ClientSend = "client" "client-send" ["operation", "batch"] "What one send of the client holds: a command, or those of all that has arrived";
    InitialR2t = "negotiated" "initial-r2t" ["no", "yes"] "InitialR2T";
    ImmediateData = "negotiated" "immediate-data" ["yes", "no"] "ImmediateData";
    EarlyR2t = "negotiated" "early-r2t" ["never", "several", "always"]
        "Whether the first R2T leaves before unsolicited data is complete; several: where more than one may be outstanding";
    HeaderDigest = "negotiated" "header-digest" ["none", "crc32c"] "HeaderDigest";
    DataDigest = "negotiated" "data-digest" ["none", "crc32c"] "DataDigest";
    Protocol = "workload" "protocol" ["iscsi", "nvme-tcp"] "Protocol";
    Direction = "workload" "rw" ["read", "write"] "Direction";
    MixDirection = "workload" "mix-rw" ["write", "read"] "Direction of the second load";
    QueueMaps = "workload" "queue-maps" ["no", "yes"] "Whether the second load has connections of its own";
}

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    #[error("unknown parameter `{name}`{}", suggestion(.nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    #[error("{name}: {source}")]
    Unit {
        name: &'static str,
        source: UnitError,
    },
    #[error("{name}: `{found}` is not one of {}", .words.join(", "))]
    Word {
        name: &'static str,
        found: String,
        words: &'static [&'static str],
    },
    #[error("{name}: {found} is out of range; give {wanted}")]
    Range {
        name: &'static str,
        found: String,
        wanted: &'static str,
    },
    #[error("storage-times: {0}")]
    StorageTimes(String),
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// A name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Key(Key),
    Choice(Choice),
    /// A table of sizes and times, in place of access time and rate.
    StorageTimes,
}

/// The name of the table of measured storage times.
pub const STORAGE_TIMES: &str = "storage-times";

impl Key {
    #[must_use]
    pub fn definition(self) -> &'static Definition {
        &KEYS[self as usize].1
    }

    /// The nearest value that the model can use, of one that was drawn or fitted.
    pub(crate) fn bounded(self, value: f64) -> f64 {
        match self {
            Self::Variation => value.min(0.57),
            Self::StorageOverlap => value.min(1.0),
            Self::ServerShare => value.clamp(0.001, 1.0),
            Self::StorageParallel => value.clamp(1.0, 65536.0),
            _ if self.definition().unit == Unit::Count => value.clamp(1.0, 65536.0),
            _ => value,
        }
    }
}

impl Choice {
    #[must_use]
    pub fn definition(self) -> &'static ChoiceDefinition {
        &CHOICES[self as usize].1
    }
}

impl Name {
    /// Looks a name up.
    ///
    /// # Errors
    /// It is not in the table; the error has the nearest one.
    pub fn find(name: &str) -> Result<Self, ParameterError> {
        let keys = KEYS.iter().map(|(key, it)| (it.name, Self::Key(*key)));
        let choices = CHOICES
            .iter()
            .map(|(choice, it)| (it.name, Self::Choice(*choice)));
        let mut all = keys
            .chain(choices)
            .chain([(STORAGE_TIMES, Self::StorageTimes)]);
        if let Some((_, found)) = all.clone().find(|(known, _)| *known == name) {
            return Ok(found);
        }
        let nearest = all
            .by_ref()
            .map(|(known, _)| (strsim::damerau_levenshtein(known, name), known))
            .min()
            .filter(|(distance, known)| *distance <= known.len().div_ceil(3));
        Err(ParameterError::Unknown {
            name: name.to_owned(),
            nearest: nearest.map(|(_, known)| known),
        })
    }

    /// The table of a file that it belongs to.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Self::Key(key) => key.definition().table,
            Self::Choice(choice) => choice.definition().table,
            Self::StorageTimes => "storage",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    quantities: Vec<Quantity>,
    words: Vec<&'static str>,
    word_sources: Vec<Source>,
    /// Times of the medium by size, where they were measured size by size: bytes, and microseconds.
    storage_times: BTreeMap<u64, f64>,
    /// Their standard deviations, where they are known.
    storage_spreads: BTreeMap<u64, f64>,
    storage_times_source: Option<Source>,
    joint: Option<Joint>,
    /// Factors of another set-up that explains the same measurements.
    alternative: Vec<(Key, f64)>,
}

/// Parameters whose errors move together, as those of a fit do.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    keys: Vec<Key>,
    /// The lower triangle whose product with its transpose has the covariances of the logarithms, row by row.
    factor: Vec<f64>,
}

impl Joint {
    /// From the covariances of the logarithms of some parameters, row by row. None if they are not those of anything.
    #[must_use]
    pub fn new(keys: Vec<Key>, covariances: &[f64]) -> Option<Self> {
        let factor = cholesky(keys.len(), covariances)?;
        Some(Self { keys, factor })
    }

    /// Deviations of the logarithms, from independent ones of 1.
    fn moved(&self, independent: &[f64]) -> Vec<f64> {
        let count = self.keys.len();
        let row = |row: usize| {
            let factors = &self.factor[row * count..=row * count + row];
            factors.iter().zip(independent).map(|(a, b)| a * b).sum()
        };
        (0..count).map(row).collect()
    }
}

impl Default for Parts {
    fn default() -> Self {
        let quantity = |definition: &Definition| Quantity {
            value: definition.default,
            uncertainty: 0.0,
            source: Source::Assumed("default".to_owned()),
        };
        Self {
            quantities: KEYS.iter().map(|(_, it)| quantity(it)).collect(),
            words: CHOICES.iter().map(|(_, it)| it.words[0]).collect(),
            word_sources: vec![Source::Assumed("default".to_owned()); CHOICES.len()],
            storage_times: BTreeMap::new(),
            storage_spreads: BTreeMap::new(),
            storage_times_source: None,
            joint: None,
            alternative: Vec::new(),
        }
    }
}

impl Parts {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, key: Key) -> f64 {
        self.quantities[key as usize].value
    }

    /// A parameter that is a count.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Checked when it was set.
    pub fn count(&self, key: Key) -> u64 {
        self.get(key).round() as u64
    }

    #[must_use]
    pub fn quantity(&self, key: Key) -> &Quantity {
        &self.quantities[key as usize]
    }

    #[must_use]
    pub fn word(&self, choice: Choice) -> &'static str {
        self.words[choice as usize]
    }

    /// Where the word comes from.
    #[must_use]
    pub fn word_source(&self, choice: Choice) -> &Source {
        &self.word_sources[choice as usize]
    }

    /// Standard deviations of the measured times of the medium, as far as they are known: bytes, and microseconds.
    #[must_use]
    pub fn storage_spreads(&self) -> &BTreeMap<u64, f64> {
        &self.storage_spreads
    }

    /// Sets measured times of the medium.
    pub fn set_storage(&mut self, times: &BTreeMap<u64, Spread>, source: Source) {
        self.storage_times = times.iter().map(|(size, it)| (*size, it.value)).collect();
        let spreads = times.iter().filter(|(_, it)| it.uncertainty > 0.0);
        self.storage_spreads = spreads.map(|(size, it)| (*size, it.uncertainty)).collect();
        self.storage_times_source = Some(source);
    }

    /// Says that parameters move together. Their uncertainties are then those of `joint`.
    pub fn set_joint(&mut self, joint: Joint) {
        self.joint = Some(joint);
    }

    /// Says that the parts may as well be so many times as large. Every second set-up that is drawn then is.
    pub fn set_alternative(&mut self, factors: Vec<(Key, f64)>) {
        self.alternative = factors;
    }

    /// Another value of the same source, without a look at its range.
    pub(crate) fn put(&mut self, key: Key, value: f64) {
        self.quantities[key as usize].value = value;
    }

    #[must_use]
    pub fn is(&self, choice: Choice, word: &str) -> bool {
        self.word(choice) == word
    }

    /// Measured times of the medium: bytes, and microseconds.
    #[must_use]
    pub fn storage_times(&self) -> &BTreeMap<u64, f64> {
        &self.storage_times
    }

    #[must_use]
    pub fn storage_times_source(&self) -> Option<&Source> {
        self.storage_times_source.as_ref()
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set(&mut self, key: Key, quantity: Quantity) -> Result<(), ParameterError> {
        let definition = key.definition();
        let range = |wanted| ParameterError::Range {
            name: definition.name,
            found: definition.unit.show(quantity.value).to_string(),
            wanted,
        };
        let value = quantity.value;
        match key {
            Key::Mtu if !(576.0..=65536.0).contains(&value) => {
                return Err(range("576 to 65536 bytes"));
            }
            Key::Rate | Key::Clock | Key::ClockReference if value <= 0.0 => {
                return Err(range("more than 0"));
            }
            Key::Variation if value > 0.57 => return Err(range("0 to 0.57")),
            Key::StorageOverlap if value > 1.0 => return Err(range("0 to 1")),
            Key::ServerShare if !(0.001..=1.0).contains(&value) => {
                return Err(range("0.001 to 1"));
            }
            Key::WireFactor if value != 0.0 && !(1.0..=10.0).contains(&value) => {
                return Err(range("0 or a factor from 1 to 10"));
            }
            Key::MaxBurst | Key::SegmentLength if value < 512.0 => {
                return Err(range("at least 512 bytes"));
            }
            Key::ServerSendBuffer if value < 4096.0 => return Err(range("at least 4 KiB")),
            Key::NagleThreshold | Key::NagleMargin if value > f64::from(u32::MAX) => {
                return Err(range("less than 2^32"));
            }
            Key::NagleThreshold | Key::NagleMargin => {}
            Key::Window if value != 0.0 && value < 512.0 => {
                return Err(range("0 or at least 512 bytes"));
            }
            Key::StorageParallel if !(1.0..=65536.0).contains(&value) => {
                return Err(range("1 to 65536"));
            }
            _ if definition.unit == Unit::Count && !(1.0..=65536.0).contains(&value) => {
                return Err(range("1 to 65536"));
            }
            _ => {}
        }
        self.quantities[key as usize] = quantity;
        Ok(())
    }

    /// Sets a choice, by the one who calls.
    ///
    /// # Errors
    /// The word is not one of those.
    pub fn choose(&mut self, choice: Choice, word: &str) -> Result<(), ParameterError> {
        self.choose_from(choice, word, Source::Given("the command".to_owned()))
    }

    /// Sets a choice.
    ///
    /// # Errors
    /// The word is not one of those.
    pub fn choose_from(
        &mut self,
        choice: Choice,
        word: &str,
        source: Source,
    ) -> Result<(), ParameterError> {
        let definition = choice.definition();
        let known = definition.words.iter().find(|known| **known == word);
        self.words[choice as usize] = known.ok_or_else(|| ParameterError::Word {
            name: definition.name,
            found: word.to_owned(),
            words: definition.words,
        })?;
        self.word_sources[choice as usize] = source;
        Ok(())
    }

    /// Sets times of the medium, from a text such as `4k=120us,64k=480us±10us`. An empty text removes them.
    ///
    /// # Errors
    /// The text is not such a list.
    pub fn set_storage_times(&mut self, text: &str, source: Source) -> Result<(), ParameterError> {
        let mut times = BTreeMap::new();
        let mut spreads = BTreeMap::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let bad = |why: &str| ParameterError::StorageTimes(format!("`{pair}`: {why}"));
            let (size, time) = pair
                .split_once('=')
                .ok_or_else(|| bad("write SIZE=TIME, such as 64k=480us"))?;
            let size = Unit::Size
                .parse(size)
                .map_err(|error| bad(&error.to_string()))?;
            let (time, spread) = match time.split_once('±').or_else(|| time.split_once("+-")) {
                Some((time, spread)) => (time, Some(spread.trim())),
                None => (time, None),
            };
            let read =
                |unit: Unit, text: &str| unit.parse(text).map_err(|error| bad(&error.to_string()));
            let time = read(Unit::Time, time.trim())?;
            times.insert(as_bytes(size), time);
            if let Some(spread) = spread {
                let spread = if spread.ends_with('%') {
                    time * read(Unit::Ratio, spread)?
                } else {
                    read(Unit::Time, spread)?
                };
                spreads.insert(as_bytes(size), spread);
            }
        }
        self.storage_times = times;
        self.storage_spreads = spreads;
        self.storage_times_source = Some(source);
        Ok(())
    }

    /// Changes a parameter by its name and text, as `--what-if` does. `1.5ms±0.2ms` has an uncertainty.
    ///
    /// # Errors
    /// There is no such name, or the value is not one of it.
    pub fn change(&mut self, name: &str, text: &str, source: Source) -> Result<(), ParameterError> {
        match Name::find(name)? {
            Name::Key(key) => {
                let (value, spread) = match text.split_once('±').or_else(|| text.split_once("+-"))
                {
                    Some((value, spread)) => (value, Some(spread)),
                    None => (text, None),
                };
                let quantity = quantity(key, value, spread, source)?;
                self.set(key, quantity)
            }
            Name::Choice(choice) => self.choose_from(choice, text.trim(), source),
            Name::StorageTimes => self.set_storage_times(text, source),
        }
    }

    /// `count` set-ups with other values, as far as uncertainties allow. Each value takes every part of its
    /// distribution equally often (a Latin hypercube). A parameter moves in the same way in every set-up, so that two of
    /// them can be compared sample by sample.
    #[must_use]
    pub fn samples(&self, count: usize) -> Vec<Self> {
        let mut samples = vec![self.clone(); count];
        let together = self.joint.as_ref().map_or(&[][..], |joint| &joint.keys);
        for (key, definition) in KEYS {
            let Quantity {
                value, uncertainty, ..
            } = self.quantities[*key as usize];
            if uncertainty <= 0.0 || together.contains(key) {
                continue;
            }
            for (sample, deviation) in samples.iter_mut().zip(deviations(definition.name, count)) {
                // A tenth is as far as a value goes that is hardly known.
                let moved = (value + deviation * uncertainty).max(value / 10.0);
                sample.quantities[*key as usize].value = moved;
            }
        }
        for (size, uncertainty) in &self.storage_spreads {
            let value = self.storage_times.get(size).copied().unwrap_or(0.0);
            let all = deviations(&format!("{STORAGE_TIMES} {size}"), count);
            for (sample, deviation) in samples.iter_mut().zip(all) {
                let moved = (value + deviation * uncertainty).max(value / 10.0);
                sample.storage_times.insert(*size, moved);
            }
        }
        if let Some(joint) = &self.joint {
            let named = together
                .iter()
                .map(|key| deviations(key.definition().name, count));
            let independent: Vec<Vec<f64>> = named.collect();
            for (number, sample) in samples.iter_mut().enumerate() {
                let own: Vec<f64> = independent.iter().map(|all| all[number]).collect();
                for (key, moved) in together.iter().zip(joint.moved(&own)) {
                    let value = self.get(*key) * moved.exp();
                    sample.put(*key, key.bounded(value));
                }
            }
        }
        for sample in samples.iter_mut().skip(1).step_by(2) {
            for (key, factor) in &self.alternative {
                let value = sample.get(*key) * factor;
                sample.put(*key, key.bounded(value));
            }
        }
        samples
    }

    /// Whether there is an uncertainty anywhere.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let known = self
            .quantities
            .iter()
            .all(|quantity| quantity.uncertainty <= 0.0);
        known && self.storage_spreads.is_empty() && self.alternative.is_empty()
    }
}

/// Deviations of a normal distribution in an order that belongs to a name; each part of the distribution once.
fn deviations(name: &str, count: usize) -> Vec<f64> {
    #[allow(clippy::cast_precision_loss)] // Some hundred.
    let share = |place: usize| (place as f64 + 0.5) / count as f64;
    let order = Random::named(0, name).shuffled(count);
    order
        .into_iter()
        .map(|place| normal_quantile(share(place)))
        .collect()
}

/// Reads a value and its uncertainty, which may be a percentage of it.
///
/// # Errors
/// One of them is not a quantity of the unit.
pub fn quantity(
    key: Key,
    value: &str,
    spread: Option<&str>,
    source: Source,
) -> Result<Quantity, ParameterError> {
    let definition = key.definition();
    let unit_error = |source| ParameterError::Unit {
        name: definition.name,
        source,
    };
    let value = definition.unit.parse(value).map_err(unit_error)?;
    let uncertainty = match spread.map(str::trim) {
        None => 0.0,
        Some(text) if text.ends_with('%') => value * Unit::Ratio.parse(text).map_err(unit_error)?,
        // The spread of a count need not be one.
        Some(text) if definition.unit == Unit::Count => {
            Unit::Ratio.parse(text).map_err(unit_error)?
        }
        Some(text) => definition.unit.parse(text).map_err(unit_error)?,
    };
    Ok(Quantity {
        value,
        uncertainty,
        source,
    })
}

/// Rounds to whole bytes.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
pub fn as_bytes(size: f64) -> u64 {
    size.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> Source {
        Source::Given("a test".to_owned())
    }

    #[test]
    fn tables_are_indexed_by_their_keys() {
        for (place, (key, _)) in KEYS.iter().enumerate() {
            assert_eq!(*key as usize, place);
        }
        for (place, (choice, _)) in CHOICES.iter().enumerate() {
            assert_eq!(*choice as usize, place);
        }
        let mut names: Vec<&str> = KEYS.iter().map(|(_, it)| it.name).collect();
        names.extend(CHOICES.iter().map(|(_, it)| it.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn parameters_are_changed_by_name() {
        let mut parts = Parts::default();
        parts
            .change("one-way-latency", "1.5ms±10%", given())
            .unwrap();
        let latency = parts.quantity(Key::OneWayLatency);
        assert!((latency.value - 1500.0).abs() < 1e-9);
        assert!((latency.uncertainty - 150.0).abs() < 1e-9);
        parts.change("early-r2t", "several", given()).unwrap();
        assert!(parts.is(Choice::EarlyR2t, "several"));
        parts
            .change("storage-times", "4k=100us, 64k=480us", given())
            .unwrap();
        assert_eq!(parts.storage_times().len(), 2);
    }

    #[test]
    fn a_wrong_name_or_value_says_what_to_write() {
        let mut parts = Parts::default();
        let mut message = |name, text| parts.change(name, text, given()).unwrap_err().to_string();
        assert!(message("one-way-latncy", "1ms").contains("did you mean `one-way-latency`?"));
        assert!(message("mtu", "9001 s").starts_with("mtu: `9001 s` is not a size"));
        assert!(message("transmit", "fast").contains("nodelay, nagle, adaptive-nagle, auto"));
        assert!(message("max-outstanding-r2t", "0").contains("give 1 to 65536"));
        assert!(message("storage-times", "4k").contains("SIZE=TIME"));
    }

    #[test]
    fn times_of_the_medium_have_uncertainties_and_vary_with_them() {
        let mut parts = Parts::default();
        parts
            .change("storage-times", "4k=100us±10us,64k=480us+-10%", given())
            .unwrap();
        assert!((parts.storage_spreads()[&65536] - 48.0).abs() < 1e-9);
        assert!(!parts.is_certain());
        let times: Vec<f64> = parts
            .samples(50)
            .iter()
            .map(|it| it.storage_times()[&4096])
            .collect();
        assert_eq!(times.iter().filter(|time| **time < 90.0).count(), 8);
    }

    #[test]
    fn what_was_fitted_together_moves_together() {
        let mut parts = Parts::default();
        parts.change("client-wake-up", "10us±5us", given()).unwrap();
        parts.change("server-wake-up", "10us±5us", given()).unwrap();
        let keys = vec![Key::ClientWakeUp, Key::ServerWakeUp];
        assert!(Joint::new(keys.clone(), &[0.01, 0.02, 0.02, 0.01]).is_none());
        parts.set_joint(Joint::new(keys, &[0.01, -0.0099, -0.0099, 0.01]).unwrap());
        let sums = parts.samples(100);
        let spread = |of: &dyn Fn(&Parts) -> f64| {
            let all: Vec<f64> = sums.iter().map(of).collect();
            Spread::of(&all).uncertainty * 10.0
        };
        let each = spread(&|it| it.get(Key::ClientWakeUp));
        let both = spread(&|it| it.get(Key::ClientWakeUp) + it.get(Key::ServerWakeUp));
        assert!((0.9..1.1).contains(&each), "{each}");
        assert!(both < 0.2 * each, "{both}");
    }

    #[test]
    fn samples_move_the_same_parameter_alike_in_two_setups() {
        let mut one = Parts::default();
        one.change("one-way-latency", "100us±10us", given())
            .unwrap();
        let mut other = one.clone();
        other.change("max-burst", "1M", given()).unwrap();
        let values = |parts: &Parts| -> Vec<f64> {
            let samples = parts.samples(50);
            samples
                .iter()
                .map(|it| it.get(Key::OneWayLatency))
                .collect()
        };
        let moved = values(&one);
        assert_eq!(moved, values(&other));
        let mean = moved.iter().sum::<f64>() / 50.0;
        assert!((mean - 100.0).abs() < 0.01, "{mean}");
        let below = moved.iter().filter(|value| **value < 90.0).count();
        assert_eq!(below, 8);
    }
}
