//! What figures have to be, and whether they are.

use super::bound::{Bound, Quantity, Test};
use super::sample::{SATURATED, Sample};
use super::set::Set;
use crate::bench::point::bytes;
use crate::bench::rounds::Figure;

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Judged {
    pub group: &'static str,
    pub what: String,
    pub wanted: String,
    pub measured: String,
    pub figures: String,
    pub reached: Option<bool>,
}

impl Bound {
    fn holds(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(value <= limit),
            Self::AtLeast(limit) => Some(value >= limit),
            Self::Reported => None,
        }
    }
}

impl Set {
    /// What came of all rounds.
    pub fn judge(&self, rounds: &[Vec<Sample>]) -> Vec<Judged> {
        let tests = self.tests.iter();
        tests.map(|test| test.judge(self, rounds)).collect()
    }
}

impl Test {
    pub fn judge(&self, set: &Set, rounds: &[Vec<Sample>]) -> Judged {
        let values = rounds.iter().map(|samples| self.value(samples));
        let figure = Figure::of(values.collect());
        let of = |way: usize, value: fn(&Sample) -> f64| {
            Figure::of(rounds.iter().map(|samples| value(&samples[way])).collect()).median
        };
        let mut ways = vec![self.first];
        if self.second != self.first {
            ways.push(self.second);
        }
        let figures = ways.iter().map(|&way| {
            format!(
                "{} {} IOPS @ {:.2} µs, p99 {:.0} µs, busy {:.0} %, client {:.0} %",
                set.ways[way].name,
                thousands(of(way, |s| s.iops)),
                of(way, |s| s.cpu_us),
                of(way, |s| s.p99_us),
                of(way, Sample::busy) * 100.0,
                of(way, Sample::client_busy) * 100.0,
            )
        });
        let figures: Vec<String> = figures.collect();
        Judged {
            group: self.group,
            what: set.name.clone(),
            wanted: self.wanted(set),
            measured: self.measured(
                figure,
                of(self.first, Sample::busy),
                of(self.first, Sample::capacity),
            ),
            figures: figures.join("; "),
            reached: self.bound.holds(figure.median),
        }
    }

    fn value(&self, samples: &[Sample]) -> f64 {
        let (first, second) = (&samples[self.first], &samples[self.second]);
        match self.quantity {
            Quantity::Cpu => first.cpu_us / second.cpu_us,
            Quantity::Iops => first.iops / second.iops,
            Quantity::P99 => first.p99_us / second.p99_us,
            Quantity::Measured => first.iops,
            // The same operation on both sides, so bytes fall out.
            Quantity::BytesPerCpu => second.cpu_us / first.cpu_us,
        }
    }

    fn wanted(&self, set: &Set) -> String {
        let (first, second) = (set.ways[self.first].name, set.ways[self.second].name);
        let what = match self.quantity {
            Quantity::Cpu => format!("CPU per operation, {first} / {second}"),
            Quantity::Iops => format!("IOPS, {first} / {second}"),
            Quantity::P99 => format!("p99, {first} / {second}"),
            Quantity::Measured => "IOPS".to_owned(),
            Quantity::BytesPerCpu => {
                let size = bytes(set.size);
                format!("{size} operations per second of CPU, {first} / {second}")
            }
        };
        let number = |value: f64| match self.quantity {
            Quantity::Measured => thousands(value),
            _ => format!("{value:.2}"),
        };
        match self.bound {
            Bound::AtMost(limit) => format!("{what} ≤ {}", number(limit)),
            Bound::AtLeast(limit) => format!("{what} ≥ {}", number(limit)),
            Bound::Reported => what,
        }
    }

    /// With what a server that was not saturated might do, in words: it is computed, and nothing has shown it.
    fn measured(&self, figure: Figure, busy: f64, capacity: f64) -> String {
        let Figure {
            median,
            smallest,
            largest,
        } = figure;
        if self.quantity == Quantity::Measured {
            let (median, smallest, largest) =
                (thousands(median), thousands(smallest), thousands(largest));
            let computed = if busy < SATURATED {
                let capacity = thousands(capacity);
                format!("; not saturated: {capacity} by its processor time")
            } else {
                String::new()
            };
            return format!("{median} ({smallest} – {largest}){computed}");
        }
        format!("{median:.2} ({smallest:.2} – {largest:.2})")
    }
}

/// Thousands, with as many digits as say something.
pub fn thousands(value: f64) -> String {
    if value < 100_000.0 {
        format!("{:.1} k", value / 1e3)
    } else {
        format!("{:.0} k", value / 1e3)
    }
}

/// All rows, by group, and how many are reached.
pub fn table(judged: &[Judged]) -> String {
    let mut groups: Vec<&'static str> = Vec::new();
    for row in judged {
        if !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    let mut text = String::from("| number | rows | reached |\n|---|---|---|\n");
    for group in &groups {
        let rows = judged.iter().filter(|row| row.group == *group);
        let decided: Vec<bool> = rows.clone().filter_map(|row| row.reached).collect();
        let reached = decided.iter().filter(|reached| **reached).count();
        text += &format!(
            "| {group} | {} | {reached} of {} |\n",
            rows.count(),
            decided.len()
        );
    }
    for group in groups {
        text += &format!(
            "\n**{group}**\n\n| load | wanted | measured | reached | figures |\n|---|---|---|---|---|\n"
        );
        for row in judged.iter().filter(|row| row.group == group) {
            let reached = match row.reached {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "–",
            };
            text += &format!(
                "| {} | {} | {} | {reached} | {} |\n",
                row.what, row.wanted, row.measured, row.figures
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::targets::set::Way;

    fn set(tests: Vec<Test>) -> Set {
        let way = |name| Way {
            name,
            words: Vec::new(),
            pid: 0,
            disturbed: false,
        };
        Set {
            name: "iscsi-null-read-4096-32".to_owned(),
            ways: vec![way("longshore"), way("floor")],
            tests,
            size: 4096,
            longer: 1.0,
        }
    }

    fn sample(iops: f64, cpu_us: f64) -> Sample {
        Sample {
            iops,
            cpu_us,
            client_us: 1.0,
            p99_us: 50.0,
        }
    }

    fn test(quantity: Quantity, bound: Bound) -> Test {
        Test {
            group: "CPU",
            quantity,
            first: 0,
            second: 1,
            bound,
        }
    }

    #[test]
    fn the_median_of_the_rounds_decides() {
        let set = set(vec![test(Quantity::Cpu, Bound::AtMost(1.3))]);
        let round = |ours| vec![sample(1e5, ours), sample(1e5, 1.0)];
        let judged = set.judge(&[round(1.2), round(9.0), round(1.3)]);
        assert_eq!(judged[0].reached, Some(true));
        assert_eq!(judged[0].measured, "1.30 (1.20 – 9.00)");
        let judged = set.judge(&[round(1.2), round(1.4), round(1.5)]);
        assert_eq!(judged[0].reached, Some(false));
    }

    #[test]
    fn what_was_measured_decides_though_processor_time_is_left() {
        let set = set(vec![test(Quantity::Measured, Bound::AtLeast(1e6))]);
        let judged = |iops| {
            let judged = set.judge(&[vec![sample(iops, 0.5), sample(1.0, 1.0)]]);
            (judged[0].reached, judged[0].measured.clone())
        };
        let (reached, measured) = judged(600_000.0);
        assert_eq!(reached, Some(false));
        assert_eq!(
            measured,
            "600 k (600 k – 600 k); not saturated: 2000 k by its processor time"
        );
        assert_eq!(judged(1_200_000.0).0, Some(true));
    }

    #[test]
    fn nothing_is_computed_of_a_saturated_server() {
        let set = set(vec![test(Quantity::Measured, Bound::AtLeast(1e6))]);
        let judged = set.judge(&[vec![sample(990_000.0, 1.0), sample(1.0, 1.0)]]);
        assert_eq!(judged[0].reached, Some(false));
        assert_eq!(judged[0].measured, "990 k (990 k – 990 k)");
    }

    #[test]
    fn the_table_counts_what_is_reached_by_number() {
        let set = set(vec![
            test(Quantity::Cpu, Bound::AtMost(1.3)),
            test(Quantity::Cpu, Bound::AtMost(0.5)),
            test(Quantity::Cpu, Bound::Reported),
        ]);
        let judged = set.judge(&[vec![sample(1e5, 1.0), sample(1e5, 1.0)]]);
        let table = table(&judged);
        assert!(table.contains("| CPU | 3 | 1 of 2 |"), "{table}");
        assert!(table.contains("**no**"));
    }
}
