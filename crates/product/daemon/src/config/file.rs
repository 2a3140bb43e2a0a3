//! The configuration file: its text, its tables and its place, for messages.

use std::fmt;
use std::path::{Path, PathBuf};

use super::document::Document;
use super::problem::{Lines, Location, Problem, ProblemKind};
use super::syntax;

/// A file that was read.
#[derive(Clone)]
pub struct ConfigFile {
    /// Where it came from, for messages.
    pub path: PathBuf,
    /// Its text, for messages.
    pub text: String,
    /// Where the lines of the text begin.
    lines: Lines,
    pub document: Document,
}

impl fmt::Debug for ConfigFile {
    /// Without the text, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads and parses the file.
    pub fn load(path: &Path) -> Result<Self, Problem> {
        let text = std::fs::read_to_string(path).map_err(|source| {
            Problem::general(ProblemKind::FileUnreadable {
                path: path.to_owned(),
                source,
            })
        })?;
        Self::parse(path, text)
    }

    /// Parses the text of a file.
    pub fn parse(path: &Path, text: String) -> Result<Self, Problem> {
        let document: Document = toml::from_str(&text).map_err(|error| {
            let (place, message) = syntax::explain(&error, &text);
            Problem {
                location: Some(Box::new(Location::new(path, &text, place))),
                kind: ProblemKind::Syntax(message),
            }
        })?;
        Ok(Self {
            path: path.to_owned(),
            lines: Lines::of(&text),
            text,
            document,
        })
    }

    /// A path of the file: relative ones start at the file's directory.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self.path.parent() {
            Some(directory) => directory.join(path),
            None => path.to_owned(),
        }
    }

    /// A problem at a place in this file.
    #[must_use]
    pub fn problem(&self, span: std::ops::Range<usize>, kind: ProblemKind) -> Problem {
        Problem {
            location: Some(Box::new(self.location(span))),
            kind,
        }
    }

    /// A place in this file.
    #[must_use]
    pub fn location(&self, span: std::ops::Range<usize>) -> Location {
        Location::within(&self.path, &self.text, &self.lines, span)
    }
}
