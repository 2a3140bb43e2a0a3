//! Foreign texts.

use std::fmt::Write as _;

/// As content or attribute of XML and HTML. Control characters become a replacement character.
pub(crate) fn markup(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            it if it.is_control() => escaped.push('\u{fffd}'),
            it => escaped.push(it),
        }
    }
    escaped
}

/// Microseconds with three digits or so.
pub(crate) fn time(us: f64) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = match us.abs() {
        it if it >= 99_950.0 => write!(text, "{:.0} ms", us / 1e3),
        it if it >= 9_995.0 => write!(text, "{:.1} ms", us / 1e3),
        it if it >= 999.5 => write!(text, "{:.2} ms", us / 1e3),
        it if it >= 99.95 => write!(text, "{us:.0} µs"),
        _ => write!(text, "{us:.1} µs"),
    };
    text
}

/// Bytes of an operation.
pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_harmless() {
        let escaped = markup("<script>'\"&\u{1b}[31m</script>");
        assert_eq!(
            escaped,
            "&lt;script&gt;&#39;&quot;&amp;\u{fffd}[31m&lt;/script&gt;"
        );
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!(time(3.25), "3.2 µs");
        assert_eq!(time(318.4), "318 µs");
        assert_eq!(time(1_500.0), "1.50 ms");
        assert_eq!(time(250_000.0), "250 ms");
        assert_eq!((size(4096), size(513)), ("4 KiB".into(), "513 B".into()));
    }
}
