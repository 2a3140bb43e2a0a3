//! What became of each setting of a source.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde::Serialize;

/// The fate of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The same thing stands in the new configuration.
    Mapped { to: String },
    /// The new server does this by itself.
    SameAsDefault,
    /// It changes nothing that hosts rely on.
    Ignored { why: String },
    /// Hosts or data would notice that it is missing.
    Refused { why: String },
}

/// One setting of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub file: String,
    /// Line of the source, from 1.
    pub line: u32,
    /// The setting without secrets.
    pub setting: String,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// All settings of a source in the order of their lines, and what to look at before the move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub entries: Vec<Entry>,
    pub notes: Vec<String>,
}

impl Report {
    pub fn refused(&self) -> impl Iterator<Item = &Entry> {
        let refused = |entry: &&Entry| matches!(entry.verdict, Verdict::Refused { .. });
        self.entries.iter().filter(refused)
    }

    /// The report for people: a setting a line, what is refused at the end once more.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let places = self.entries.iter().map(Entry::place).map(|it| it.len());
        let width = places.max().unwrap_or(0);
        for entry in &self.entries {
            let (word, rest) = match &entry.verdict {
                Verdict::Mapped { to } => ("mapped ", to.as_str()),
                Verdict::SameAsDefault => ("default", "the server does this by itself"),
                Verdict::Ignored { why } => ("ignored", why.as_str()),
                Verdict::Refused { why } => ("REFUSED", why.as_str()),
            };
            let _ = writeln!(
                text,
                "{:width$}  {word}  {}: {rest}",
                entry.place(),
                entry.setting
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

impl Entry {
    fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Where a setting stands, and how the report names it.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub file: String,
    pub line: u32,
    pub setting: String,
}

/// Collects entries while a source is read.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// Lines and settings with an entry.
    known: HashSet<(u32, String)>,
    notes: Vec<String>,
}

impl Ledger {
    pub fn mapped(&mut self, at: &At, to: impl Into<String>) {
        self.note_verdict(at, Verdict::Mapped { to: to.into() });
    }

    pub fn same_as_default(&mut self, at: &At) {
        self.note_verdict(at, Verdict::SameAsDefault);
    }

    pub fn ignored(&mut self, at: &At, why: impl Into<String>) {
        self.note_verdict(at, Verdict::Ignored { why: why.into() });
    }

    pub fn refused(&mut self, at: &At, why: impl Into<String>) {
        self.note_verdict(at, Verdict::Refused { why: why.into() });
    }

    /// Whether the setting has an entry.
    pub fn has(&self, at: &At) -> bool {
        self.known.contains(&(at.line, at.setting.clone()))
    }

    pub fn note_verdict(&mut self, at: &At, verdict: Verdict) {
        self.known.insert((at.line, at.setting.clone()));
        self.entries.push(Entry {
            file: at.file.clone(),
            line: at.line,
            setting: at.setting.clone(),
            verdict,
        });
    }

    /// Something to look at that belongs to no line. Repeated notes are kept once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    pub fn into_report(mut self) -> Report {
        let place = |entry: &Entry| (entry.file.clone(), entry.line);
        let first = self.entries.first().map(|entry| entry.file.clone());
        self.entries.sort_by_key(|entry| {
            let (file, line) = place(entry);
            (Some(&file) != first.as_ref(), file, line)
        });
        Report {
            entries: self.entries,
            notes: self.notes,
        }
    }
}
