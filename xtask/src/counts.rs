//! How many checks passed, failed and were skipped.

use std::fmt;
use std::ops::AddAssign;

/// The result of a suite, in checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Did what they should.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Could not run here; the reason was printed.
    pub skipped: usize,
}

impl Counts {
    /// One check that passed.
    pub const PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    /// One check that failed.
    pub const FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    /// One check that could not run.
    pub const SKIPPED: Self = Self {
        passed: 0,
        failed: 0,
        skipped: 1,
    };
}

/// Why a whole suite cannot run on this machine. It is an error to whoever asked for the suite;
/// `ci` knows which reasons are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}
