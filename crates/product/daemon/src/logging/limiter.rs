//! Keeps one peer or disk from filling the log with one kind of line.
//!
//! A *kind* is a place in the program that logs, an *object* whom it tells of: the values of those
//! fields that name volumes, peers and reasons ([`OBJECT`]). Of each object the first lines of a
//! period go into the log, and what comes after them is counted. At the end of the period, or of the
//! server, one line tells how many there were:
//!
//! ```text
//! WARN … operation failed volume=disk0 error="no space left for the volume"     ten times
//! WARN … operation failed (and 9990 more in the last 10 s) volume=disk0 error=… repeated=9990 seconds=10
//! ```
//!
//! While it goes on, periods are longer and each begins with one line. No line is lost without being
//! counted. Peers can make up names, so the lines of a kind are limited, too, and so is the number of
//! objects that are remembered; what belongs to further ones is counted together.
//!
//! Only what peers and disks can cause is limited: not the daemon's own lines about actions of the operator, and not
//! `debug` and `trace`, which the operator has chosen.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::Level;
use tracing::callsite::Identifier;

use super::line::OWN;
use super::record::Record;

/// The first period of a kind.
const FIRST_PERIOD: Duration = Duration::from_secs(10);
/// Periods that follow one in which lines were held back.
const NEXT_PERIOD: Duration = Duration::from_secs(60);
/// Lines of an object in a period.
const LINES_OF_OBJECT: u64 = 10;
/// Lines of a kind in a period.
const LINES_OF_KIND: u64 = 100;
/// Objects of a kind that are remembered.
const OBJECTS: usize = 100;

/// Fields that say whom a line is about, and what went wrong. Of a peer, the port does not count: it
/// is another one for each connection.
const OBJECT: [&str; 16] = [
    "volume",
    "peer",
    "initiator",
    "user",
    "target",
    "host",
    "host_id",
    "subsystem",
    "path",
    "portal",
    "operation",
    "option",
    "error",
    "reason",
    "status",
    "place",
];

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    kinds: HashMap<Identifier, Kind>,
    hasher: RandomState,
}

/// Lines of one place in the program.
#[derive(Debug)]
struct Kind {
    /// Begin and end of the period.
    since: Instant,
    until: Instant,
    /// Lines of it in the log.
    written: u64,
    /// By the hash of what names them.
    objects: HashMap<u64, Object>,
    /// Lines of objects that are not remembered.
    others: u64,
    /// What a line about those looks like.
    message: String,
    level: Level,
    target: &'static str,
}

/// Lines about one object.
#[derive(Debug)]
struct Object {
    written: u64,
    held_back: u64,
    /// What the lines say.
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Limiter {
    /// Whether the line goes into the log. Otherwise it is counted.
    pub(super) fn admit(&mut self, place: Identifier, record: &Record, now: Instant) -> bool {
        if record.level > Level::INFO || record.target.starts_with(OWN) {
            return true;
        }
        let fields = naming(record);
        let values = fields
            .iter()
            .map(|(name, value)| (*name, value.to_string()));
        let values: Vec<_> = values.collect();
        let hash = self.hasher.hash_one((&record.message, values));
        let kind = self
            .kinds
            .entry(place)
            .or_insert_with(|| Kind::new(record, now));
        kind.admit(hash, record, fields)
    }

    /// Whether lines are held back, or a period has to be ended; then until when.
    pub(super) fn due(&self) -> Option<Instant> {
        self.kinds.values().map(|kind| kind.until).min()
    }

    /// Ends periods that are over by now, and tells of what was held back in them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Record> {
        let mut summaries = Vec::new();
        self.kinds.retain(|_, kind| {
            if now < kind.until {
                return true;
            }
            kind.end(now, &mut summaries)
        });
        summaries
    }

    /// Ends all periods: the server is about to end.
    pub(super) fn drain(&mut self, now: Instant) -> Vec<Record> {
        let mut summaries = Vec::new();
        for (_, mut kind) in self.kinds.drain() {
            kind.end(now, &mut summaries);
        }
        summaries
    }
}

impl Kind {
    fn new(record: &Record, now: Instant) -> Kind {
        Kind {
            since: now,
            until: now + FIRST_PERIOD,
            written: 0,
            objects: HashMap::new(),
            others: 0,
            level: record.level,
            target: record.target,
            message: record.message.clone(),
        }
    }

    fn admit(&mut self, hash: u64, record: &Record, fields: Vec<(&'static str, Value)>) -> bool {
        let is_full = self.objects.len() >= OBJECTS;
        let object = match self.objects.get_mut(&hash) {
            Some(object) => object,
            None if is_full => {
                self.others += 1;
                return false;
            }
            None => self.objects.entry(hash).or_insert(Object {
                written: 0,
                held_back: 0,
                message: record.message.clone(),
                fields,
            }),
        };
        if object.written < LINES_OF_OBJECT && self.written < LINES_OF_KIND {
            object.written += 1;
            self.written += 1;
            true
        } else {
            object.held_back += 1;
            false
        }
    }

    /// Tells of what was held back. Objects of which lines were stay, with one line to begin with.
    /// Whether anything was.
    fn end(&mut self, now: Instant, summaries: &mut Vec<Record>) -> bool {
        let elapsed = now.saturating_duration_since(self.since);
        let seconds = elapsed.as_millis().div_ceil(1000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        let before = summaries.len();
        for object in self.objects.values() {
            if object.held_back > 0 {
                let message = format!(
                    "{} (and {} more in the last {seconds} s)",
                    object.message, object.held_back
                );
                let fields = object.fields.clone();
                summaries.push(self.summary(message, object.held_back, seconds, fields));
            }
        }
        if self.others > 0 {
            let message = format!(
                "{} (and {} more from other sources in the last {seconds} s)",
                self.message, self.others
            );
            summaries.push(self.summary(message, self.others, seconds, Vec::new()));
        }
        self.objects.retain(|_, object| object.held_back > 0);
        for object in self.objects.values_mut() {
            object.held_back = 0;
            object.written = LINES_OF_OBJECT - 1;
        }
        (self.written, self.others) = (0, 0);
        (self.since, self.until) = (now, now + NEXT_PERIOD);
        summaries.len() > before
    }

    fn summary(
        &self,
        message: String,
        count: u64,
        seconds: u64,
        mut fields: Vec<(&'static str, Value)>,
    ) -> Record {
        fields.push(("repeated", count.into()));
        fields.push(("seconds", seconds.into()));
        Record {
            level: self.level,
            target: self.target,
            message,
            fields,
        }
    }
}

/// The fields that name the object of a line.
fn naming(record: &Record) -> Vec<(&'static str, Value)> {
    let names = record
        .fields
        .iter()
        .filter(|(name, _)| OBJECT.contains(name));
    names
        .map(|(name, value)| match value.as_str().map(str::parse) {
            Some(Ok::<SocketAddr, _>(address)) if *name == "peer" => {
                (*name, Value::String(address.ip().to_string()))
            }
            _ => (*name, value.clone()),
        })
        .collect()
}

#[cfg(test)]
mod tests;
