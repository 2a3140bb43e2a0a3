//! The two forms of the text.
//!
//! They differ in the names of counters, whose family OpenMetrics names without `_total`, and in the end mark.

use std::fmt;
use std::sync::Mutex;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::family::Family;

/// What the reader understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// OpenMetrics 1.0, where the client accepts it.
    OpenMetrics,
    /// The text form 0.0.4 of Prometheus.
    Text,
}

impl Form {
    /// By the request's `Accept`.
    pub(crate) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Debug)]
struct Families(Mutex<Vec<Family>>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let families = self.0.lock().map_err(|_| fmt::Error)?;
        families
            .iter()
            .try_for_each(|family| family.encode(&mut encoder))
    }
}

/// The text of all families.
pub(super) fn encode(families: Vec<Family>, form: Form) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(Mutex::new(families))));
    let mut text = String::new();
    if let Err(error) = text::encode(&mut text, &registry) {
        tracing::error!("metrics have no text form: {error}");
    }
    match form {
        Form::OpenMetrics => text,
        Form::Text => older(&text),
    }
}

/// The text form 0.0.4 of an OpenMetrics text.
fn older(text: &str) -> String {
    let mut older = String::with_capacity(text.len());
    // The help comes before the type, whose name it takes.
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let total = if kind == "counter" { "_total" } else { "" };
            let (_, help) = help.split_once(' ').unwrap_or_default();
            older += &format!("# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}\n");
        } else if !line.starts_with('#') {
            older += line;
            older.push('\n');
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use super::super::family::Value;
    use super::*;

    fn families() -> Vec<Family> {
        let label = vec![("volume", "a\"b\\c".to_owned())];
        vec![
            Family::new("longshore_reads", "Reads").with(label, Value::Counter(3)),
            Family::new("longshore_size_bytes", "Size").with(Vec::new(), Value::Gauge(1.5)),
        ]
    }

    #[test]
    fn openmetrics_names_counters_without_total_and_has_an_end() {
        let text = encode(families(), Form::OpenMetrics);
        assert_eq!(
            text,
            "# HELP longshore_reads Reads\n# TYPE longshore_reads counter\n\
             longshore_reads_total{volume=\"a\\\"b\\\\c\"} 3\n\
             # HELP longshore_size_bytes Size\n# TYPE longshore_size_bytes gauge\n\
             longshore_size_bytes 1.5\n# EOF\n"
        );
    }

    #[test]
    fn the_older_form_names_counters_as_their_samples() {
        let text = encode(families(), Form::Text);
        assert_eq!(
            text,
            "# HELP longshore_reads_total Reads\n# TYPE longshore_reads_total counter\n\
             longshore_reads_total{volume=\"a\\\"b\\\\c\"} 3\n\
             # HELP longshore_size_bytes Size\n# TYPE longshore_size_bytes gauge\n\
             longshore_size_bytes 1.5\n"
        );
    }

    #[test]
    fn accept_chooses_the_form() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
        assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
        assert_eq!(Form::accepted("*/*"), Form::Text);
        assert_eq!(Form::accepted(""), Form::Text);
    }
}
