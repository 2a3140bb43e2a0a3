//! Kinds of tests that do not run in full.

use std::fmt;

/// How much of a test does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing of it runs.
    Skip,
    /// Some of its checks run and pass.
    Partial,
    /// It fails against every target, because the tool is wrong.
    FaultOfTheTool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Skip => "skip",
            Self::Partial => "partial",
            Self::FaultOfTheTool => "fault of the tool",
        })
    }
}
