//! Sizes, rates and durations as people, and `fio`, write them.

use std::time::Duration;

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is not a size; write for example 512, 4k, 64KiB or 1m (powers of 1024)")]
    Size(String),
    #[error("`{0}` is not a duration; write for example 500ms, 10s, 2m or 1h")]
    Duration(String),
    #[error("`{0}` is not a rate; write for example 5000 or 20k (operations per second)")]
    Rate(String),
}

/// Bytes: a number, and a unit of powers of 1024 (`k`, `m`, `g`, `t`, each also with `b` or `ib`).
pub fn size(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Size(text.to_owned());
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let stem = unit.strip_suffix("ib").or(unit.strip_suffix('b'));
    let shift = match stem.unwrap_or(&unit) {
        "" if !unit.starts_with('i') => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

/// Time: a number, perhaps with a fraction, and `us`, `ms`, `s`, `m` or `h`; seconds without.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration(text.to_owned());
    let (number, unit) = split(text);
    let seconds_each = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * seconds_each).map_err(|_| bad())
}

/// Events per second: a number, and `k` or `m` for thousands or millions; not 0.
pub fn rate(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Rate(text.to_owned());
    let (number, unit) = split(text);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    let rate = number.checked_mul(factor).filter(|rate| *rate > 0);
    rate.ok_or_else(bad)
}

/// The number in front and what follows it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    text.split_at(end.unwrap_or(text.len()))
}

/// A size in its largest whole unit: `4k`, `512`, `1m`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_powers_of_1024() {
        for (text, bytes) in [
            ("512", 512),
            ("512b", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("64KiB", 65_536),
            ("64kb", 65_536),
            ("1m", 1 << 20),
            ("2G", 2 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "4x", "-1", "1.5k", "99999999t", "4ib", "ib"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_unless_a_unit_says_otherwise() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "1d", "-1s", "1e99999s", "1.1.1"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_count_in_thousands() {
        assert_eq!(rate("20k"), Ok(20_000));
        assert_eq!(rate("7"), Ok(7));
        assert!(rate("0").is_err());
        assert!(rate("1g").is_err());
    }

    #[test]
    fn a_size_is_shown_in_its_largest_whole_unit() {
        assert_eq!(show_size(512), "512");
        assert_eq!(show_size(4096), "4k");
        assert_eq!(show_size(1536), "1536");
        assert_eq!(show_size(1 << 20), "1m");
        assert_eq!(show_size(0), "0");
    }
}
