//! One event of the log, collected and of bounded length.

use std::fmt;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Bytes of text in the message and all values of an event. What is longer is cut: names that peers
/// choose are in it.
const TEXT_BYTES_MAX: usize = 4096;

/// Stands where text was cut.
const CUT: char = '…';

/// An event, its values by name in the order in which they were given.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub level: Level,
    pub target: &'static str,
    pub message: String,
    pub fields: Vec<(&'static str, Value)>,
}

impl Record {
    pub(super) fn of(event: &Event<'_>) -> Record {
        let metadata = event.metadata();
        let mut collector = Collector {
            record: Record {
                level: *metadata.level(),
                target: metadata.target(),
                message: String::new(),
                fields: Vec::new(),
            },
            room: TEXT_BYTES_MAX,
        };
        event.record(&mut collector);
        collector.record
    }
}

impl Record {
    /// What it is about, as an event of the API.
    pub(super) fn topic(&self) -> &'static str {
        let comes_from = |module: &str| self.target.starts_with(module);
        let names = |name: &str| self.fields.iter().any(|(field, _)| *field == name);
        if comes_from("longshore_server::iscsi") || comes_from("longshore_server::nvme") {
            "session"
        } else if names("volume") {
            "volume"
        } else {
            "log"
        }
    }

    /// Its values, as those of an event of the API.
    pub(super) fn data(&self) -> Value {
        let level = self.level.as_str().to_lowercase();
        let mut data = serde_json::Map::from_iter([("level".to_owned(), Value::String(level))]);
        for (name, value) in &self.fields {
            data.insert((*name).to_owned(), value.clone());
        }
        Value::Object(data)
    }
}

/// Takes in the values of an event.
struct Collector {
    record: Record,
    room: usize,
}

impl Collector {
    fn text(&mut self, field: &Field, mut text: String) {
        if text.len() > self.room {
            let mut end = self.room;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push(CUT);
        }
        self.room = self.room.saturating_sub(text.len());
        match field.name() {
            "message" => self.record.message = text,
            name => self.record.fields.push((name, Value::String(text))),
        }
    }

    fn value(&mut self, field: &Field, value: impl Into<Value>) {
        self.record.fields.push((field.name(), value.into()));
    }
}

impl Visit for Collector {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, value.to_string());
    }
}
