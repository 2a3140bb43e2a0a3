//! Quantities as people write them: `1.5 ms`, `64 KiB`, `1 Gbit/s`, `64 KiB/0.87 ms`, `4 ms/MiB`.
//!
//! | unit | held as |
//! |---|---|
//! | time | microseconds |
//! | size | bytes; `k`, `M`, `G` and `KiB`, `MiB`, `GiB` are powers of 1024 |
//! | rate | bytes per second; `kbit`, `Mbit`, `Gbit` are powers of 1000 |
//! | cost | microseconds per byte |
//! | clock | GHz |

use std::fmt;

/// What a parameter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, in microseconds.
    Time,
    /// A size, in bytes.
    Size,
    /// Of a line, in bytes per second.
    LineRate,
    /// Of storage, in bytes per second.
    Rate,
    /// Time per byte, in microseconds.
    Cost,
    /// The clock of a processor, in GHz.
    Clock,
    Count,
    /// A number, or a percentage.
    Ratio,
}

/// A text that is not a quantity of its unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {}", .unit.wanted())]
pub struct UnitError {
    text: String,
    unit: Unit,
}

impl Unit {
    /// The name of the unit in which values are held, for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "us",
            Self::Size => "byte",
            Self::LineRate | Self::Rate => "byte/s",
            Self::Cost => "us/byte",
            Self::Clock => "GHz",
            Self::Count | Self::Ratio => "1",
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Time => "a time; write for example 1.5ms, 110us or 0.2s",
            Self::Size => "a size; write for example 512, 64KiB or 1M (powers of 1024)",
            Self::LineRate | Self::Rate => {
                "a rate; write for example 1Gbit/s, 136MiB/s or 64KiB/0.87ms"
            }
            Self::Cost => "a time for each byte; write for example 1.03ns/B or 4ms/MiB",
            Self::Clock => "a clock rate; write for example 2.4GHz",
            Self::Count => "a whole number, such as 16",
            Self::Ratio => "a number; write for example 0.5 or 50%",
        }
    }

    /// Reads a quantity.
    ///
    /// # Errors
    /// It is not one of this unit.
    pub fn parse(self, text: &str) -> Result<f64, UnitError> {
        let plain: String = text
            .chars()
            .filter(|letter| !letter.is_whitespace())
            .collect();
        let value = match self {
            Self::Time => time(&plain),
            Self::Size => size(&plain),
            Self::LineRate | Self::Rate => rate(&plain),
            Self::Cost => cost(&plain),
            Self::Clock => number(plain.strip_suffix("GHz").unwrap_or(&plain)),
            Self::Count => number(&plain).filter(|count| count.fract() == 0.0),
            Self::Ratio => match plain.strip_suffix('%') {
                Some(percent) => number(percent).map(|percent| percent / 100.0),
                None => number(&plain),
            },
        };
        value.ok_or_else(|| UnitError {
            text: text.to_owned(),
            unit: self,
        })
    }

    /// A quantity for people.
    #[must_use]
    pub fn show(self, value: f64) -> Shown {
        Shown { unit: self, value }
    }
}

/// A quantity with its unit.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    unit: Unit,
    value: f64,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.unit {
            Unit::Time => Microseconds(value).fmt(f),
            Unit::Size => f.pad(&show_size(value)),
            Unit::LineRate => f.pad(&scaled(value * 8.0, "bit/s")),
            Unit::Rate => f.pad(&scaled(value, "B/s")),
            Unit::Cost => f.pad(&format!("{} ns/B", digits(value * 1e3))),
            Unit::Clock => f.pad(&format!("{} GHz", digits(value))),
            Unit::Count | Unit::Ratio => f.pad(&digits(value)),
        }
    }
}

/// A time: `4.52 µs`, `70.1 ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Microseconds(pub f64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            t if t >= 1e6 => format!("{} s", digits(self.0 / 1e6)),
            t if t >= 1e3 => format!("{} ms", digits(self.0 / 1e3)),
            _ => format!("{} µs", digits(self.0)),
        };
        f.pad(&text)
    }
}

/// A size in its largest whole unit: `4 KiB`, `1536`, `1 MiB`.
#[must_use]
pub fn show_size(bytes: f64) -> String {
    for (unit, name) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if bytes >= unit && (bytes / unit).fract() == 0.0 {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{} B", digits(bytes))
}

/// `58505` as `58,505`, and small numbers with a fraction.
#[must_use]
pub fn grouped(value: f64) -> String {
    if value < 1000.0 {
        return digits(value);
    }
    let whole = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three or four digits that say something.
#[must_use]
pub fn digits(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e7 {
        return format!("{value:.0}");
    }
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn scaled(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{} {prefix}{unit}", digits(value))
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;

fn number(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// The number in front, 1 where there is none, and what follows.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (head, unit) = text.split_at(end.unwrap_or(text.len()));
    if head.is_empty() {
        return (!unit.is_empty()).then_some((1.0, unit));
    }
    Some((number(head)?, unit))
}

fn time(text: &str) -> Option<f64> {
    let (value, unit) = split(text)?;
    let factor = match unit {
        "ns" => 1e-3,
        "us" | "µs" | "μs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "" if value == 0.0 => 1.0,
        _ => return None,
    };
    Some(value * factor)
}

/// Reads a size that is a whole number of bytes.
fn size(text: &str) -> Option<f64> {
    bytes(text).filter(|bytes| bytes.fract() == 0.0)
}

fn bytes(text: &str) -> Option<f64> {
    let (value, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let stem = unit.strip_suffix("ib").or(unit.strip_suffix('b'));
    let factor = match stem.unwrap_or(&unit) {
        "" => 1.0,
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        "t" => 1024.0 * GIB,
        _ => return None,
    };
    Some(value * factor)
}

fn bits(text: &str) -> Option<f64> {
    let (value, unit) = split(text)?;
    let factor = match unit.strip_suffix("bit")? {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    Some(value * factor)
}

fn rate(text: &str) -> Option<f64> {
    if text == "0" || text == "unlimited" {
        return Some(0.0);
    }
    let (amount, per) = text.split_once('/')?;
    let bytes = bits(amount)
        .map(|bits| bits / 8.0)
        .or_else(|| bytes(amount))?;
    let time = time(per).filter(|time| *time > 0.0)?;
    Some(bytes / time * 1e6)
}

fn cost(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let (amount, per) = text.split_once('/')?;
    let bytes = size(per).filter(|bytes| *bytes > 0.0)?;
    Some(time(amount)? / bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(unit: Unit, text: &str, value: f64) {
        let read = unit.parse(text).unwrap();
        assert!(
            (read - value).abs() <= value.abs() * 1e-12,
            "{text}: {read}"
        );
    }

    #[test]
    fn quantities_are_read_in_the_units_that_people_use() {
        reads(Unit::Time, "1.5 ms", 1500.0);
        reads(Unit::Time, "110us", 110.0);
        reads(Unit::Time, "0", 0.0);
        reads(Unit::Size, "64 KiB", 65536.0);
        reads(Unit::Size, "1.5k", 1536.0);
        reads(Unit::LineRate, "1 Gbit/s", 125e6);
        reads(Unit::LineRate, "64KiB/0.5ms", 131_072_000.0);
        reads(Unit::Rate, "1MiB/7.3ms", 1_048_576.0 / 7.3e-3);
        reads(Unit::Cost, "1.03 ns/B", 1.03e-3);
        reads(Unit::Cost, "4ms/MiB", 4000.0 / 1_048_576.0);
        reads(Unit::Clock, "2.4GHz", 2.4);
        reads(Unit::Ratio, "50%", 0.5);
        reads(Unit::Count, "16", 16.0);
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_an_example() {
        for (unit, text) in [
            (Unit::Time, "1.5"),
            (Unit::Time, "-1ms"),
            (Unit::Time, "soon"),
            (Unit::Size, "4 parsec"),
            (Unit::LineRate, "1G"),
            (Unit::LineRate, "1Gbit/0s"),
            (Unit::Cost, "4ms"),
            (Unit::Count, "1.5"),
            (Unit::Count, "inf"),
            (Unit::Ratio, "NaN"),
        ] {
            let message = unit.parse(text).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("`{text}` is not a")),
                "{message}"
            );
        }
    }

    #[test]
    fn quantities_are_shown_with_few_digits() {
        assert_eq!(Unit::Time.show(70_140.0).to_string(), "70.14 ms");
        assert_eq!(Unit::Size.show(65536.0).to_string(), "64 KiB");
        assert_eq!(Unit::LineRate.show(125e6).to_string(), "1 Gbit/s");
        assert_eq!(Unit::Cost.show(1.03e-3).to_string(), "1.03 ns/B");
        assert_eq!(grouped(100_565.0), "100,565");
        assert_eq!(grouped(14.257), "14.26");
    }
}
