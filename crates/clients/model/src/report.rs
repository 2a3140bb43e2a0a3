//! A prediction as text, and as a document for programs.

use serde::Serialize;

use crate::parameter::{CHOICES, KEYS, Parts, STORAGE_TIMES};
use crate::prediction::{Difference, Estimate, Next, Point, SizeSummary, Sweep};
use crate::units::{Microseconds, digits, grouped, show_size};

/// How a prediction was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Bounds and mean value analysis.
    ClosedForm,
    /// Computed event by event.
    Simulation,
}

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub name: String,
    pub value: String,
}

/// A parameter of the set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    pub table: &'static str,
    pub name: &'static str,
    /// A number in `unit`, or a word.
    pub value: Value,
    pub unit: Option<&'static str>,
    pub uncertainty: Option<f64>,
    /// `measured`, `given` or `assumed`.
    pub source: Option<&'static str>,
    /// How and when, by whom, or why.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Word(&'static str),
    /// Sizes in bytes, each with a time in microseconds.
    Times(Vec<(u64, f64)>),
}

/// A prediction with all that went into it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The preset or file.
    pub setup: String,
    pub title: String,
    pub method: Method,
    pub seed: Option<u64>,
    /// What the intervals hold of what the uncertainties allow, in percent.
    pub interval_percent: u32,
    pub parts: Vec<Part>,
    pub prediction: Sweep,
    pub what_if: Vec<Change>,
    /// The same with the changes, if there are any.
    pub changed: Option<Sweep>,
    /// What the changes make of each point.
    pub differences: Vec<Difference>,
}

/// All parameters of a set-up.
#[must_use]
pub fn parts(parts: &Parts) -> Vec<Part> {
    let numbers = KEYS.iter().map(|(key, definition)| {
        let quantity = parts.quantity(*key);
        Part {
            table: definition.table,
            name: definition.name,
            value: Value::Number(quantity.value),
            unit: Some(definition.unit.name()),
            uncertainty: Some(quantity.uncertainty),
            source: Some(quantity.source.kind()),
            note: Some(quantity.source.note().to_owned()),
        }
    });
    let words = CHOICES.iter().map(|(choice, definition)| Part {
        table: definition.table,
        name: definition.name,
        value: Value::Word(parts.word(*choice)),
        unit: None,
        uncertainty: None,
        source: Some(parts.word_source(*choice).kind()),
        note: Some(parts.word_source(*choice).note().to_owned()),
    });
    let times = parts.storage_times_source().map(|source| Part {
        table: "storage",
        name: STORAGE_TIMES,
        value: Value::Times(
            parts
                .storage_times()
                .iter()
                .map(|(s, t)| (*s, *t))
                .collect(),
        ),
        unit: Some("us"),
        uncertainty: None,
        source: Some(source.kind()),
        note: Some(source.note().to_owned()),
    });
    numbers.chain(words).chain(times).collect()
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations.
fn size_of(bytes: u64) -> String {
    show_size(bytes as f64)
}

impl Report {
    /// The report as a text for terminals.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.setup, self.title);
        for change in &self.what_if {
            text += &format!("what if {} = {}\n", change.name, change.value);
        }
        let method = match (self.method, self.seed) {
            (Method::Simulation, Some(seed)) => format!("simulation, seed {seed}"),
            _ => "closed form".to_owned(),
        };
        text += &format!(
            "{method}; in brackets what {} % of the variations within the uncertainties of the parts give\n\n",
            self.interval_percent
        );
        text += &match &self.changed {
            None => self.plain_table(),
            Some(changed) => self.table_of_changes(changed),
        };
        text.push('\n');
        text += &second_load(&self.prediction);
        text += &operations(&self.prediction, "");
        if let Some(changed) = &self.changed {
            text += &operations(changed, ", with the changes");
        }
        text
    }

    fn plain_table(&self) -> String {
        let mut table = Table::new(&[
            "size",
            "depth",
            "IOPS",
            "",
            "MB/s",
            "latency",
            "",
            "limited by",
            "next limit",
        ]);
        for point in &self.prediction.points {
            let latency = point.latency_us;
            table.row(vec![
                size_of(point.size_bytes),
                point.depth.to_string(),
                grouped(point.iops.value),
                brackets(point.iops, grouped),
                digits(point.bytes_per_second.value / 1e6),
                Microseconds(latency.value).to_string(),
                brackets(latency, |us| Microseconds(us).to_string()),
                limit(point),
                next(point.next),
            ]);
        }
        table.text()
    }

    fn table_of_changes(&self, changed: &Sweep) -> String {
        let mut table = Table::new(&[
            "size",
            "depth",
            "IOPS",
            "what if",
            "difference",
            "",
            "MB/s",
            "what if",
            "latency",
            "what if",
            "limited by",
            "what if",
            "next limit",
        ]);
        let pairs = self.prediction.points.iter().zip(&changed.points);
        for ((before, after), difference) in pairs.zip(&self.differences) {
            table.row(vec![
                size_of(before.size_bytes),
                before.depth.to_string(),
                grouped(before.iops.value),
                grouped(after.iops.value),
                percent(difference.iops_percent.value),
                if percent(difference.iops_percent.low) == percent(difference.iops_percent.high) {
                    String::new()
                } else if difference.is_certain {
                    brackets(difference.iops_percent, percent)
                } else {
                    "cannot be told from the uncertainties".to_owned()
                },
                digits(before.bytes_per_second.value / 1e6),
                digits(after.bytes_per_second.value / 1e6),
                Microseconds(before.latency_us.value).to_string(),
                Microseconds(after.latency_us.value).to_string(),
                limit(before),
                limit(after),
                next(after.next),
            ]);
        }
        table.text()
    }
}

fn percent(value: f64) -> String {
    // No sign for what is nothing.
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 {
        "0.0 %".to_owned()
    } else {
        format!("{rounded:+.1} %")
    }
}

fn brackets(estimate: Estimate, show: impl Fn(f64) -> String) -> String {
    format!("({} to {})", show(estimate.low), show(estimate.high))
}

/// What limits, and in how many of the variations, where another limit is as likely as one in twenty.
fn limit(point: &Point) -> String {
    let name = point.limiting.name();
    match point.limiting_share {
        Some(share) if share < 0.95 => format!("{name} (in {:.0} %)", share * 100.0),
        _ => name,
    }
}

fn next(next: Option<Next>) -> String {
    match next {
        Some(next) if next.is_level => format!("{}, level", next.limit.name()),
        Some(next) if next.distance_percent < 10_000.0 => {
            format!(
                "{}, {:.0} % further",
                next.limit.name(),
                next.distance_percent
            )
        }
        Some(next) => format!("{}, far", next.limit.name()),
        None => "none".to_owned(),
    }
}

/// The load beside the one that the table shows.
fn second_load(sweep: &Sweep) -> String {
    let mut text = String::new();
    for point in &sweep.points {
        let outcome = point.simulated.as_ref();
        let load = outcome.and_then(|it| it.mix_iops.zip(it.mix_latency_us));
        if let Some((iops, latency)) = load {
            text += &format!(
                "  {} at depth {}: {} operations a second, {}\n",
                size_of(point.size_bytes),
                point.depth,
                grouped(iops),
                Microseconds(latency)
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("The second load, beside:\n{text}\n")
}

/// One operation of each size: where its time goes.
fn operations(sweep: &Sweep, note: &str) -> String {
    let mut text = format!("One operation alone{note}:\n");
    for size in &sweep.sizes {
        text += &operation(size);
    }
    text.push('\n');
    text
}

fn operation(size: &SizeSummary) -> String {
    let mut parts = size.contributions.clone();
    parts.sort_by(|a, b| b.us.total_cmp(&a.us));
    let parts: Vec<String> = parts
        .iter()
        .map(|part| format!("{} {}", part.element.name(), Microseconds(part.us)))
        .collect();
    let (bytes, alone) = (size_of(size.size_bytes), Microseconds(size.alone_us));
    let mut text = format!("  {bytes}: {alone} = {}\n", parts.join(" + "));
    let mut facts = Vec::new();
    if let (Some(knee), Some(peak)) = (size.knee, size.peak_iops) {
        let operations = knee.max(1.0);
        facts.push(format!(
            "at most {} operations a second, from {} under way",
            grouped(peak),
            digits((operations * 10.0).round() / 10.0)
        ));
    }
    if let Some(enough) = size.enough_r2ts {
        let plural = if size.r2ts == 1 { "" } else { "s" };
        facts.push(format!(
            "{} R2T{plural}; more than {enough} at a time bring nothing",
            size.r2ts
        ));
    }
    if let Some(depth) = size.full_send_buffer_depth.filter(|depth| *depth < 1024.0) {
        facts.push(format!(
            "from {} under way, responses do not fit into the send buffer",
            digits(depth)
        ));
    }
    if !facts.is_empty() {
        text += &format!("    {}\n", facts.join("; "));
    }
    text
}

/// Columns with their widths.
struct Table {
    rows: Vec<Vec<String>>,
}

/// Columns whose text begins at the left.
const LEFT: [&str; 3] = ["", "limited by", "next limit"];

impl Table {
    fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let name = self.rows[0][column].as_str();
                // The limit with the changes stands beside the one without.
                let is_left =
                    LEFT.contains(&name) || column > 0 && self.rows[0][column - 1] == "limited by";
                line += &if is_left {
                    format!("  {cell:width$}")
                } else {
                    format!("  {cell:>width$}")
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The points of one size.
pub fn of_size(sweep: &Sweep, size: u64) -> impl Iterator<Item = &Point> {
    sweep
        .points
        .iter()
        .filter(move |point| point.size_bytes == size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Source;
    use crate::prediction::{differences, sweep};
    use crate::presets::preset;

    fn report(changes: &[(&str, &str)]) -> Report {
        let file = preset("guerri-wireless").unwrap();
        let mut after = file.parts.clone();
        for (name, value) in changes {
            let source = Source::Given("what if".to_owned());
            after.change(name, value, source).unwrap();
        }
        let has_changes = !changes.is_empty();
        let (sizes, depths) = (&file.sizes, &file.depths);
        let differences = differences(&file.parts, &after, sizes, depths);
        let change = |(name, value): &(&str, &str)| Change {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        Report {
            setup: "guerri-wireless".to_owned(),
            title: file.title.clone(),
            method: Method::ClosedForm,
            seed: None,
            interval_percent: 90,
            parts: parts(&file.parts),
            prediction: sweep(&file.parts, sizes, depths),
            what_if: changes.iter().map(change).collect(),
            changed: has_changes.then(|| sweep(&after, sizes, depths)),
            differences: if has_changes { differences } else { Vec::new() },
        }
    }

    #[test]
    fn a_limit_that_is_in_doubt_has_its_share() {
        let mut point = report(&[]).prediction.points[0].clone();
        let name = point.limiting.name();
        point.limiting_share = Some(0.62);
        assert_eq!(limit(&point), format!("{name} (in 62 %)"));
        for certain in [Some(0.95), None] {
            point.limiting_share = certain;
            assert_eq!(limit(&point), name);
        }
    }

    #[test]
    fn a_table_names_limits_and_the_parts_of_an_operation() {
        let text = report(&[]).text();
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with("2 MiB "))
            .unwrap();
        assert!(row.contains("14.26") && row.contains("70.14 ms"), "{text}");
        assert!(row.contains("latency (request wire)"), "{text}");
        assert!(
            text.contains("2 MiB: 70.14 ms = request wire 27.84 ms + waiting for R2Ts 24 ms"),
            "{text}"
        );
        assert!(
            text.contains("8 R2Ts; more than 2 at a time bring nothing"),
            "{text}"
        );
    }

    #[test]
    fn changes_stand_beside_with_their_difference() {
        let text = report(&[("max-outstanding-r2t", "16")]).text();
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with("2 MiB "))
            .unwrap();
        assert!(
            row.contains("+42.7 %") && row.contains("49.14 ms"),
            "{text}"
        );
        let text = report(&[("one-way-latency", "1.4ms±0.3ms")]).text();
        assert!(
            text.contains("cannot be told from the uncertainties"),
            "{text}"
        );
    }

    #[test]
    fn a_document_has_every_parameter_with_its_source() {
        let json = serde_json::to_value(report(&[("mtu", "9000")])).unwrap();
        let parts = json["parts"].as_array().unwrap();
        assert_eq!(parts.len(), KEYS.len() + CHOICES.len());
        let latency = parts
            .iter()
            .find(|part| part["name"] == "one-way-latency")
            .unwrap();
        assert_eq!(latency["unit"], "us");
        assert_eq!(latency["source"], "measured");
        assert!(latency["note"].as_str().unwrap().contains("ping"));
        assert_eq!(json["method"], "closed-form");
        assert_eq!(json["what_if"][0]["name"], "mtu");
        assert_eq!(
            json["prediction"]["points"][0]["limiting"]["kind"],
            "latency"
        );
        assert_eq!(json["changed"]["points"].as_array().unwrap().len(), 6);
    }
}
