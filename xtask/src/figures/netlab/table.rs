//! Progress of a run, and figures of many set-ups as cells of a table.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with the name of what is measured now; lines stand above it.
pub fn progress(what: &'static str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count.try_into().unwrap_or(u64::MAX));
    let style =
        ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}, {eta} left; {wide_msg}");
    bar.set_style(style.expect("the template is one"));
    bar.set_prefix(what);
    bar
}

/// Prints a line where a bar may be.
pub fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        println!("{line}");
    } else {
        bar.println(line);
    }
}

/// Median, the value that nine tenths do not exceed, and the largest, of magnitudes.
pub fn summary(values: impl IntoIterator<Item = f64>) -> Option<[f64; 3]> {
    let mut all: Vec<f64> = values.into_iter().map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().checked_sub(1)?;
    Some([all[last / 2], all[last * 9 / 10], all[last]])
}

/// The three figures of [`summary`] as cells.
pub fn cells(summary: Option<[f64; 3]>) -> String {
    summary.map_or(" – | – | – |".to_owned(), |all| {
        all.map(|value| format!(" {value:.1} |")).concat()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_magnitudes() {
        assert_eq!(summary([-5.0, 1.0, 2.0]), Some([2.0, 2.0, 5.0]));
        assert_eq!(summary([]), None);
        assert_eq!(cells(summary([-5.0, 1.0, 2.0])), " 2.0 | 2.0 | 5.0 |");
    }
}
