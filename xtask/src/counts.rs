//! How many checks passed, failed and were skipped.

use std::fmt;
use std::ops::{Add, AddAssign};

/// The result of a suite, in checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Did what they should.
    pub passed: usize,
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

impl Add for Counts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
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

/// Adds up the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …` of test programs.
pub fn count_tests(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output
        .lines()
        .filter(|line| line.starts_with("test result:"))
    {
        let number = |what: &str| {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            let at = words.iter().position(|word| *word == what)?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        counts += Counts {
            passed: number("passed").unwrap_or(0),
            failed: number("failed").unwrap_or(0),
            skipped: number("ignored").unwrap_or(0),
        };
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      noise\n\
                      test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(
            count_tests(output),
            Counts {
                passed: 7,
                failed: 2,
                skipped: 1
            }
        );
    }
}
