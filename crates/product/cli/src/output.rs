//! What the client verbs print: sizes, columns, JSON.

use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum OutputFormat {
    #[default]
    Text,
    /// For programs; the keys stay.
    Json,
}

/// Rises when a key of any verb goes away or changes its meaning; `bench` counts its own.
pub const JSON_VERSION: u32 = 1;

/// A file for a result, found to be writable. If it did not exist before and nothing is written, it is
/// removed.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    made: bool,
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; nothing was done; correct the path or its permissions", path.display())]
pub struct OutputFileError {
    path: PathBuf,
    source: io::Error,
}

impl OutputFile {
    /// Checks that the file can be written, and leaves its contents alone.
    pub fn open(path: &Path) -> Result<Self, OutputFileError> {
        let made = !path.exists();
        let mut options = OpenOptions::new();
        match options.append(true).create(true).open(path) {
            Ok(_) => Ok(Self {
                path: path.to_owned(),
                made,
            }),
            Err(source) => Err(OutputFileError {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let is_empty = || fs::metadata(&self.path).is_ok_and(|found| found.len() == 0);
        if self.made && is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A result as a JSON document, with the version of its keys in front.
pub fn json(result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Document<'a, T> {
        version: u32,
        #[serde(flatten)]
        result: &'a T,
    }

    let document = Document {
        version: JSON_VERSION,
        result,
    };
    let mut text = serde_json::to_vec_pretty(&document).expect("a result has text keys");
    text.push(b'\n');
    text
}

/// Bytes as people read them: `1.5 GiB`, with three digits where it is not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// The units in ascending order; each is 1024 times the one before.
const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 0;
        // In thousandths of the unit.
        let mut value = u128::from(self.0) * 1000;
        while value >= 1024 * 1000 {
            value /= 1024;
            unit += 1;
        }
        let (whole, part) = (value / 1000, value % 1000);
        let digits = match whole {
            _ if part == 0 => 0,
            0..=9 => 2,
            10..=99 => 1,
            _ => 0,
        };
        let mut text = whole.to_string();
        match digits {
            2 => write!(text, ".{:02}", part / 10)?,
            1 => write!(text, ".{}", part / 100)?,
            _ => {}
        }
        write!(text, " {}", UNITS[unit])?;
        f.pad(&text)
    }
}

/// Lines of a name and a value, the values below each other.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(String, String)>,
}

impl Table {
    pub fn row(&mut self, name: &str, value: impl fmt::Display) {
        self.rows.push((name.to_owned(), value.to_string()));
    }

    /// Adds a line when there is a value.
    pub fn optional(&mut self, name: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.row(name, value);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(name, _)| name.chars().count());
        let width = width.max().unwrap_or(0);
        for (name, value) in &self.rows {
            writeln!(f, "  {name:width$}  {value}")?;
        }
        Ok(())
    }
}

/// Rows of cells below headings, the columns as wide as they must be.
pub fn columns(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let headings: Vec<String> = headings.iter().map(|it| (*it).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .chain([&headings])
            .filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in [&headings].into_iter().chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing into a String does not fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Milliseconds since 1970 as date and time (UTC): `2026-11-23 21:30:00`.
pub fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days in cycles of 400 years that begin with March of year 0.
    let shifted = days + 719_468;
    let (cycle, of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// What comes from a server, without characters that could command a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|it| if it.is_control() { '\u{fffd}' } else { it })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_unless_they_are_exact() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (1 << 30, "1 GiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) + (300 << 20), "10.2 GiB"),
            ((100 << 30) + (300 << 20), "100 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text, "{bytes}");
        }
        assert_eq!(format!("{:>10}|", Bytes(1024)), "     1 KiB|");
    }

    #[test]
    fn every_document_has_a_version() {
        #[derive(Serialize)]
        struct Result {
            size: u64,
        }
        let text = String::from_utf8(json(&Result { size: 3 })).unwrap();
        assert_eq!(text, "{\n  \"version\": 1,\n  \"size\": 3\n}\n");
    }

    #[test]
    fn an_output_file_is_looked_at_before_and_gone_if_nothing_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        drop(OutputFile::open(&path).unwrap());
        assert!(!path.exists());
        let file = OutputFile::open(&path).unwrap();
        fs::write(&path, "a picture").unwrap();
        drop(file);
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a picture");
        let missing = directory.path().join("missing/plot.svg");
        let text = OutputFile::open(&missing).unwrap_err().to_string();
        assert!(text.contains("missing/plot.svg"), "{text}");
        assert!(OutputFile::open(directory.path()).is_err());
    }

    #[test]
    fn times_are_dates() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_795_471_090_222, "2026-11-23 21:58:10"),
            (4_107_542_399_999, "2100-02-28 23:59:59"),
        ] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = vec![
            vec!["a".to_owned(), String::new()],
            vec!["long".to_owned(), "x".to_owned()],
        ];
        assert_eq!(columns(&["N", "M"], rows), "N     M\na\nlong  x\n");
    }

    #[test]
    fn values_stand_below_each_other() {
        let mut table = Table::default();
        table.row("a", 1);
        table.optional("longer", Some("x"));
        table.optional("none", None::<u8>);
        assert_eq!(table.to_string(), "  a       1\n  longer  x\n");
    }

    #[test]
    fn a_server_cannot_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
