//! The checked-in table of tests that do not run in full, with the reason of each.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::kind::Kind;
use super::outcome::TestOutcome;

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// `SUITE.TEST`, or `SUITE.*` for all tests of a suite.
    test: String,
    kind: Kind,
    /// Configurations it holds for, by a part of their name (`4096`, `mem`); none means all.
    only: Option<String>,
    /// For a fault of the tool: what its output must hold.
    message: Option<String>,
    reason: String,
}

impl Entry {
    fn covers(&self, test: &str, kind: Kind, configuration: &str) -> bool {
        let name_fits = match self.test.strip_suffix('*') {
            Some(prefix) => test.starts_with(prefix),
            None => test == self.test,
        };
        name_fits && kind == self.kind && self.holds_for(configuration)
    }

    fn holds_for(&self, configuration: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|part| configuration.contains(part.as_str()))
    }
}

#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
}

impl Table {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let document: toml::Table = text.parse()?;
        let mut entries = Vec::new();
        for (section, kind) in [
            ("skip", Kind::Skip),
            ("partial", Kind::Partial),
            ("fault-of-the-tool", Kind::FaultOfTheTool),
        ] {
            let Some(rows) = document.get(section) else {
                continue;
            };
            let rows = rows
                .as_array()
                .with_context(|| format!("{section} is not [[{section}]]"))?;
            for row in rows {
                entries.push(entry(row, kind)?);
            }
        }
        Ok(Self { entries })
    }

    /// Why `test` fails with this message, when the table says so.
    pub fn excuses(&self, test: &str, why: &str, configuration: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| {
            entry.covers(test, Kind::FaultOfTheTool, configuration)
                && entry
                    .message
                    .as_ref()
                    .is_some_and(|message| why.contains(message.as_str()))
        })?;
        Some(&entry.reason)
    }

    /// Why `test` is skipped, when the table says so.
    pub fn explains(&self, test: &str, kind: Kind, configuration: &str) -> Option<&str> {
        let entry = self
            .entries
            .iter()
            .find(|e| e.covers(test, kind, configuration))?;
        Some(&entry.reason)
    }

    /// Entries for this configuration that no result needs.
    pub fn stale(&self, results: &[(&str, TestOutcome)], configuration: &str) -> Vec<String> {
        let needed = |entry: &Entry| {
            results.iter().any(|(test, outcome)| {
                outcome.kind() == Some(entry.kind) && entry.covers(test, entry.kind, configuration)
            })
        };
        self.entries
            .iter()
            .filter(|entry| entry.holds_for(configuration) && !needed(entry))
            .map(|entry| format!("{} as {}", entry.test, entry.kind))
            .collect()
    }
}

fn entry(row: &toml::Value, kind: Kind) -> Result<Entry> {
    let row = row.as_table().context("an entry is not a table")?;
    for key in row.keys() {
        if !matches!(key.as_str(), "test" | "only" | "message" | "reason") {
            bail!("unknown key {key:?}");
        }
    }
    let text = |key: &str| {
        row.get(key)
            .and_then(toml::Value::as_str)
            .map(str::to_owned)
    };
    let test = text("test").context("an entry has no test")?;
    let reason = text("reason").with_context(|| format!("{test} has no reason"))?;
    let message = text("message");
    if message.is_none() && kind == Kind::FaultOfTheTool {
        bail!("{test}: a fault of the tool needs the message that shows it");
    }
    Ok(Entry {
        test,
        kind,
        only: text("only"),
        message,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        [[skip]]
        test = "Sanitize.*"
        reason = "no medium to sanitize"
        [[partial]]
        test = "Inquiry.BlockLimits"
        only = "4096"
        reason = "…"
    "#;

    fn skipped() -> TestOutcome {
        TestOutcome::Skipped(Vec::new())
    }

    #[test]
    fn entries_hold_for_their_tests_kind_and_configuration() {
        let table = Table::parse(TABLE).unwrap();
        assert!(
            table
                .explains("Sanitize.Reset", Kind::Skip, "mem-512")
                .is_some()
        );
        assert!(
            table
                .explains("Sanitize.Reset", Kind::Partial, "mem-512")
                .is_none()
        );
        assert!(
            table
                .explains("Inquiry.BlockLimits", Kind::Partial, "mem-4096")
                .is_some()
        );
        assert!(
            table
                .explains("Inquiry.BlockLimits", Kind::Partial, "mem-512")
                .is_none()
        );
    }

    #[test]
    fn an_entry_that_nothing_needs_is_stale() {
        let table = Table::parse(TABLE).unwrap();
        let results = [
            ("Sanitize.Reset", skipped()),
            ("Inquiry.BlockLimits", TestOutcome::Passed),
        ];
        assert!(table.stale(&results, "mem-512").is_empty());
        assert_eq!(
            table.stale(&results, "mem-4096"),
            ["Inquiry.BlockLimits as partial"]
        );
    }

    #[test]
    fn a_fault_of_the_tool_excuses_one_message_only() {
        let text = "[[fault-of-the-tool]]\ntest = \"A.B\"\nmessage = \"x == 1\"\nreason = \"r\"";
        let table = Table::parse(text).unwrap();
        assert!(table.excuses("A.B", "test.c:9 x == 1", "mem-512").is_some());
        assert!(table.excuses("A.B", "test.c:7 y == 1", "mem-512").is_none());
        let results = [("A.B", TestOutcome::Passed)];
        assert_eq!(
            table.stale(&results, "mem-512"),
            ["A.B as fault of the tool"]
        );
        assert!(Table::parse("[[fault-of-the-tool]]\ntest = \"A.B\"\nreason = \"r\"").is_err());
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(Table::parse("[[skip]]\ntest = \"A.B\"").is_err());
        assert!(Table::parse("[[skip]]\ntset = \"A.B\"\nreason = \"x\"").is_err());
    }
}
