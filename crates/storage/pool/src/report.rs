//! What checks and scrubs find.

use std::fmt;

/// Findings that are told one by one; of further ones, only how many.
const FINDINGS_MAX: usize = 1000;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where: a volume, a drive, a structure.
    pub subject: String,
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// Findings beyond those that are listed.
    pub more: u64,
    pub volumes: usize,
    pub snapshots: usize,
    /// Pages that have data.
    pub pages: u64,
    /// Bytes of data that were read and compared with their checksums.
    pub data_bytes: u64,
}

impl Report {
    pub(crate) fn note(&mut self, subject: impl Into<String>, text: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding {
                subject: subject.into(),
                text: text.into(),
            });
        } else {
            self.more += 1;
        }
    }

    /// Adds what another look found.
    pub(crate) fn add(&mut self, other: Self) {
        for finding in other.findings {
            self.note(finding.subject, finding.text);
        }
        self.more += other.more;
        self.volumes = other.volumes;
        self.snapshots = other.snapshots;
        self.pages = other.pages;
        self.data_bytes = other.data_bytes;
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}
