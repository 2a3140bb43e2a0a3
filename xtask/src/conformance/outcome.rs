//! What one run of `iscsi-test-cu` says of its one test.

use super::kind::Kind;
use crate::command::Ended;

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestOutcome {
    /// All its checks ran and passed.
    Passed,
    /// Some checks passed, others were skipped for these reasons.
    PassedInPart(Vec<String>),
    /// Nothing was checked, for these reasons.
    Skipped(Vec<String>),
    /// A check failed, or the tool crashed or hung.
    Failed(String),
}

impl TestOutcome {
    /// Reads the tool's output.
    ///
    /// The tool counts every `[SKIPPED]` message as one passed assertion. A test whose
    /// assertions are no more than its messages has checked nothing.
    pub fn of(ended: &Ended) -> Self {
        let output = &ended.output;
        // `[FAILED]` beside `passed` comes from the tool's clearing up after the test: it does not
        // expect the unit attention that the test has caused.
        let failed_line = output.lines().find(|line| {
            line.trim_end().ends_with("FAILED") || line.starts_with("Failed to connect")
        });
        if !ended.is_success() || failed_line.is_some() {
            return Self::Failed(why_failed(ended, failed_line));
        }
        let Some(assertions) = assertions(output) else {
            return Self::Failed("the tool printed no summary".to_owned());
        };
        let skipped: Vec<String> = output
            .lines()
            .filter_map(|line| line.split_once("[SKIPPED]"))
            .map(|(_, why)| why.trim().to_owned())
            .collect();
        if skipped.is_empty() {
            Self::Passed
        } else if assertions <= skipped.len() {
            Self::Skipped(skipped)
        } else {
            Self::PassedInPart(skipped)
        }
    }

    /// Which kind of entry in the table explains it.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Skipped(_) => Some(Kind::Skip),
            Self::PassedInPart(_) => Some(Kind::Partial),
            Self::Failed(_) => Some(Kind::FaultOfTheTool),
            Self::Passed => None,
        }
    }
}

/// Assertions that ran, from the line `asserts  TOTAL RAN PASSED FAILED n/a`.
fn assertions(output: &str) -> Option<usize> {
    let line = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("asserts"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn why_failed(ended: &Ended, line: Option<&str>) -> String {
    // The numbered lines `1. file.c:98 - assertion` tell most.
    let assertion = ended
        .output
        .lines()
        .find(|line| line.trim_start().starts_with("1. "));
    let detail = assertion.or(line).unwrap_or_default().trim();
    let messages: Vec<&str> = ended
        .output
        .lines()
        .filter_map(|line| {
            line.split_once("[FAILED]")
                .map(|(_, message)| message.trim())
        })
        .take(2)
        .collect();
    format!(
        "the tool ended {}: {detail} {}",
        ended.how(),
        messages.join("; ")
    )
    .trim()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn ended(code: i32, output: &str) -> Ended {
        Ended {
            status: Some(ExitStatus::from_raw(code << 8)),
            output: output.to_owned(),
        }
    }

    const SUMMARY_3: &str = "             asserts      3      3      3      0      n/a\n";
    const SUMMARY_1: &str = "             asserts      1      1      1      0      n/a\n";

    #[test]
    fn a_test_without_messages_passed() {
        assert_eq!(TestOutcome::of(&ended(0, SUMMARY_3)), TestOutcome::Passed);
    }

    #[test]
    fn a_message_among_assertions_is_a_pass_in_part() {
        let output = format!("  Test: X ...    [SKIPPED] No media\npassed\n{SUMMARY_3}");
        let expected = TestOutcome::PassedInPart(vec!["No media".to_owned()]);
        assert_eq!(TestOutcome::of(&ended(0, &output)), expected);
    }

    #[test]
    fn only_a_message_is_a_skip() {
        let output = format!("  Test: X ...    [SKIPPED] No media\npassed\n{SUMMARY_1}");
        assert_eq!(
            TestOutcome::of(&ended(0, &output)),
            TestOutcome::Skipped(vec!["No media".to_owned()])
        );
    }

    #[test]
    fn trouble_of_the_tool_in_clearing_up_is_not_the_test() {
        let output = format!("  Test: X ...passed    [FAILED] PRIN command: failed\n{SUMMARY_3}");
        assert_eq!(TestOutcome::of(&ended(0, &output)), TestOutcome::Passed);
    }

    #[test]
    fn failures_crashes_hangs_and_silence_fail() {
        let failed = "Test: X ...FAILED\n    1. test.c:98  - CU_ASSERT_NOT_EQUAL(ret,0)\n";
        assert!(
            matches!(TestOutcome::of(&ended(1, failed)), TestOutcome::Failed(why)
            if why.contains("test.c:98"))
        );
        let crashed = Ended {
            status: Some(ExitStatus::from_raw(11)),
            output: SUMMARY_1.into(),
        };
        assert!(
            matches!(TestOutcome::of(&crashed), TestOutcome::Failed(why) if why.contains("signal 11"))
        );
        let hung = Ended {
            status: None,
            output: SUMMARY_1.into(),
        };
        assert!(
            matches!(TestOutcome::of(&hung), TestOutcome::Failed(why) if why.contains("limit"))
        );
        assert!(matches!(
            TestOutcome::of(&ended(0, "")),
            TestOutcome::Failed(_)
        ));
    }
}
