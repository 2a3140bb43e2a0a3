//! Numbers as people read them: three digits and a unit. A value that is not known is a dash.

use longshore_api::object::ObjectState;
use serde_json::Value;

/// What stands for a value that is not known.
pub(crate) const MISSING: &str = "–";

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 5] = ["", " k", " M", " G", " T"];

fn scaled(value: f64, step: f64, units: &[&str], gap: &str) -> String {
    let mut value = value.max(0.0);
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        it if unit == 0 && (it >= 9.95 || it.fract().abs() < 0.05) => 0,
        it if unit == 0 || it >= 99.95 => usize::from(unit == 0),
        it if it >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{gap}{}", units[unit])
}

/// A number with a decimal prefix: `12.3 k`
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1000.0, &DECIMAL, "")
}

/// `1.50 GiB`; whole numbers of a unit without a fraction.
pub(crate) fn bytes(value: u64) -> String {
    for (unit, name) in BINARY.iter().enumerate().rev() {
        let one = 1_u64 << (10 * unit);
        if unit > 0 && value >= one && value.is_multiple_of(one) {
            return format!("{} {name}", value / one);
        }
    }
    #[allow(clippy::cast_precision_loss)] // Three digits are shown.
    scaled(value as f64, 1024.0, &BINARY, " ")
}

/// A throughput with a binary prefix: `12.3 MiB/s`
pub(crate) fn bytes_per_second(value: f64) -> String {
    format!("{}/s", scaled(value, 1024.0, &BINARY, " "))
}

/// A duration in the unit that fits: `87.0 µs`
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
pub(crate) fn time(nanoseconds: Option<u64>) -> String {
    let Some(nanoseconds) = nanoseconds else {
        return MISSING.to_owned();
    };
    let microseconds = nanoseconds as f64 / 1e3;
    match microseconds {
        it if it >= 999_500.0 => format!("{:.2} s", it / 1e6),
        it if it >= 99_950.0 => format!("{:.0} ms", it / 1e3),
        it if it >= 999.5 => format!("{:.2} ms", it / 1e3),
        it if it >= 99.95 => format!("{it:.0} µs"),
        it => format!("{it:.1} µs"),
    }
}

/// A part of a whole: `12.3 %`
pub(crate) fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

/// `3 d 4 h`
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A moment in UTC: `2026-11-24 21:30:05`
pub(crate) fn moment(milliseconds: u64) -> String {
    let (days, seconds) = (milliseconds / 86_400_000, milliseconds / 1000 % 86_400);
    // Civil date of a day number, by H. Hinnant; the era begins on the first of March of the year 0.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{of_month:02} {:02}:{:02}:{:02}",
        year + 400 * era + carry,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The word for a state.
pub(crate) const fn state(state: ObjectState) -> &'static str {
    match state {
        ObjectState::Up => "up",
        ObjectState::Disabled => "disabled",
        ObjectState::Draining => "draining",
        ObjectState::Stuck => "stuck",
        ObjectState::Failed => "failed",
    }
}

/// A key or a fact as text.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::Null => MISSING.to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) if items.iter().all(|it| !it.is_object() && !it.is_array()) => {
            let items: Vec<String> = items.iter().map(self::value).collect();
            items.join(", ")
        }
        other => other.to_string(),
    }
}

/// One of a path's parts.
pub(crate) fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let counts = [0.0, 0.4, 7.0, 12.3, 999.0, 1234.0, 45_600.0, 2_345_678.0];
        let shown = counts.map(count);
        let expected = ["0", "0.4", "7", "12", "999", "1.23 k", "45.6 k", "2.35 M"];
        assert_eq!(shown, expected.map(str::to_owned));
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(3 << 29), "1536 MiB");
        assert_eq!(bytes((1 << 30) + 1), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(bytes_per_second(12.5 * 1_048_576.0), "12.5 MiB/s");
    }

    #[test]
    fn times_have_a_unit_that_fits_and_a_dash_where_there_is_none() {
        let shown = [
            None,
            Some(0),
            Some(87_000),
            Some(1_500_000),
            Some(2_000_000_000),
        ]
        .map(time);
        assert_eq!(
            shown,
            ["–", "0.0 µs", "87.0 µs", "1.50 ms", "2.00 s"].map(str::to_owned)
        );
        assert_eq!(span(59_000), "59 s");
        assert_eq!(span(3_660_000), "1 h 1 min");
        assert_eq!(span(90_000_000), "1 d 1 h");
    }

    #[test]
    fn a_moment_is_a_date_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(moment(1_795_555_805_000), "2026-11-24 21:30:05");
    }

    #[test]
    fn a_name_in_a_path_is_one_part_of_it() {
        assert_eq!(encoded("iqn.x:a/b?c#d"), "iqn%2Ex%3Aa%2Fb%3Fc%23d");
    }
}
