//! Tests that cannot run on this machine. The harness counts them as passed.
//!
//! So they write to a file. Tests that do not use `longshore_tests` print `SKIPPED: REASON`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};

use crate::command::{Ended, run_captured};
use crate::counts::Counts;
use crate::workspace;

/// Names the file to a test program. `longshore_tests::skip` appends lines `SKIPPED PROGRAM::TEST: REASON`.
const VARIABLE: &str = "LONGSHORE_SKIPS";

/// Reasons for which a test may be skipped, by a part of their text: features that a kernel lacks or a
/// container forbids. A missing program is not among them, because `cargo xtask setup` installs its package.
const ALLOWED: &[&str] = &[
    "O_DIRECT",
    "RWF_NOWAIT",
    "an ordinary user cannot run this program",
    "cachestat(2) is not to be had here",
    "cannot mount a tmpfs here",
    "does not let us use io_uring",
    "io_uring cannot be used",
    "no control group can be made",
    "no IPv6",
    "no NAPI busy poll",
    "no holes on this file system",
    "no loop device",
    "no mount namespaces here",
    "no pages can be taken out of the page cache here",
    "no server on io_uring here",
    "no tmpfs at /dev/shm",
    "nothing can be traced here",
    "only root can become another user",
    "the file system cannot tell what is in the page cache",
    "the file system of the temporary directory cannot do this",
    "the page cache keeps what is not needed",
    "there is one core only",
    "this kernel does not count rings against RLIMIT_MEMLOCK",
    "this user may lock as much memory as it likes",
    "this user may not have so many pages in pipes",
];

/// A test that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    test: String,
    /// Several where parts of the test were skipped for different reasons.
    reasons: Vec<String>,
}

/// Which reasons let a test be skipped. A test skipped for any other reason has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skips {
    Any,
    /// The reason is in [`ALLOWED`].
    Listed,
}

/// Runs a test program, and reads which of its tests were skipped. The output is that of failed tests.
pub fn run(name: &str, command: &mut Command, limit: Duration) -> Result<(Ended, Vec<Skip>)> {
    let file = workspace::work_folder("ci/skips")?.join(name.replace('/', "-"));
    // That of an earlier run.
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("remove {}", file.display()));
    }
    let command = command.env(VARIABLE, &file).arg("--show-output");
    let mut ended = run_captured(command, limit)?;
    let shown = take_shown(&mut ended.output);
    let lines = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        lines => lines.with_context(|| format!("read {}", file.display()))?,
    };
    let mut skipped = parse(&lines);
    skipped.extend(printed(name, &shown));
    Ok((ended, skipped))
}

/// Takes out of the output of a program what its passing tests have printed. A program without the usual
/// harness shows no results; all of its output is copied.
fn take_shown(output: &mut String) -> String {
    const BEGIN: &str = "\nsuccesses:\n";
    if !output.contains("\ntest result:") {
        return output.clone();
    }
    // The first one is before what they have printed, the last one before the list of their names.
    let (Some(begin), Some(names)) = (output.find(BEGIN), output.rfind(BEGIN)) else {
        return String::new();
    };
    let rest = &output[names + BEGIN.len()..];
    let end = ["\n\n", "\ntest result:"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
        .map_or(output.len(), |length| names + BEGIN.len() + length + 1);
    output.drain(begin..end).collect()
}

/// The tests that were skipped, each once, by lines of the file.
fn parse(lines: &str) -> Vec<Skip> {
    let skips = lines.lines().map(|line| {
        let line = line.strip_prefix("SKIPPED ").unwrap_or(line);
        let (test, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
        (test.to_owned(), reason)
    });
    by_test(skips)
}

/// The same, by what the tests of a program have printed.
fn printed(program: &str, shown: &str) -> Vec<Skip> {
    let mut test = program.to_owned();
    let mut skips = Vec::new();
    for line in shown.lines() {
        let heading = line
            .strip_prefix("---- ")
            .and_then(|it| it.strip_suffix(" stdout ----"));
        if let Some(name) = heading {
            test = format!("{program}::{name}");
        }
        let reason = ["SKIPPED: ", "skipped: "]
            .iter()
            .find_map(|word| line.strip_prefix(word));
        skips.extend(reason.map(|reason| (test.clone(), reason)));
    }
    by_test(skips.into_iter())
}

fn by_test<'a>(skips: impl Iterator<Item = (String, &'a str)>) -> Vec<Skip> {
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (test, reason) in skips {
        let reasons = tests.entry(test).or_default();
        if !reasons.iter().any(|it| it == reason) {
            reasons.push(reason.to_owned());
        }
    }
    let skip = |(test, reasons)| Skip { test, reasons };
    tests.into_iter().map(skip).collect()
}

impl Skips {
    /// Counts these tests as skipped or failed in place of passed.
    pub fn move_to(self, counts: &mut Counts, skipped: &[Skip]) {
        let allowed = skipped.iter().filter(|skip| self.allows(skip)).count();
        counts.passed = counts.passed.saturating_sub(skipped.len());
        counts.skipped += allowed;
        counts.failed += skipped.len() - allowed;
    }

    /// A line about a test.
    pub fn describe(self, skip: &Skip) -> String {
        let reasons = skip.reasons.join("; ");
        match self.allows(skip) {
            true => format!("SKIPPED {}: {reasons}", skip.test),
            false => format!(
                "FAIL {}: skipped for a reason that is not allowed: {reasons}",
                skip.test
            ),
        }
    }

    fn allows(self, skip: &Skip) -> bool {
        let is_listed = |reason: &String| ALLOWED.iter().any(|part| reason.contains(part));
        self == Self::Any || skip.reasons.iter().all(is_listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "SKIPPED copies::pages: no tmpfs at /dev/shm: EPERM\n\
                         SKIPPED end::flushes: there is no strace\n\
                         SKIPPED copies::pages: no loop device here\n\
                         SKIPPED copies::pages: no loop device here\n";

    #[test]
    fn a_test_counts_once_whatever_it_skips() {
        let skipped = parse(LINES);
        assert_eq!(skipped.len(), 2);
        assert_eq!(skipped[0].test, "copies::pages");
        assert_eq!(
            skipped[0].reasons,
            ["no tmpfs at /dev/shm: EPERM", "no loop device here"]
        );
    }

    #[test]
    fn only_listed_reasons_let_a_test_be_skipped() {
        let passed = Counts {
            passed: 5,
            ..Counts::default()
        };
        let skipped = parse(LINES);
        let mut counts = passed;
        Skips::Listed.move_to(&mut counts, &skipped);
        let expected = Counts {
            passed: 3,
            failed: 1,
            skipped: 1,
        };
        assert_eq!(counts, expected);
        assert!(Skips::Listed.describe(&skipped[1]).starts_with("FAIL "));
        let mut counts = passed;
        Skips::Any.move_to(&mut counts, &skipped);
        assert_eq!((counts.skipped, counts.failed), (2, 0));
    }

    #[test]
    fn what_tests_have_printed_is_read_and_taken_out_of_the_output() {
        let results = "running 3 tests\ntest a::b ... ok\n";
        let shown = "\nsuccesses:\n\n---- a::b stdout ----\nnoise\nSKIPPED: no IPv6 here\nSKIPPED: no IPv6 here\n\
                     test result: a test of ours says so\n\n\nsuccesses:\n    a::b\n    c\n";
        for end in [
            "\ntest result: ok. 2 passed; 0 failed\n",
            "\nfailures:\n\n---- d stdout ----\nSKIPPED: why\n\ntest result: FAILED. 2 passed\n",
        ] {
            let mut output = format!("{results}{shown}{end}");
            let skipped = printed("reactor/unit", &take_shown(&mut output));
            assert_eq!(output, format!("{results}{end}"));
            assert_eq!(skipped.len(), 1);
            assert_eq!(skipped[0].test, "reactor/unit::a::b");
            assert_eq!(skipped[0].reasons, ["no IPv6 here"]);
            assert!(Skips::Listed.allows(&skipped[0]));
        }
        let mut output = "SKIPPED: no ring\ntest a ... ok\n".to_owned();
        let skipped = printed("reactor/allocation", &take_shown(&mut output));
        assert_eq!(skipped[0].test, "reactor/allocation");
        assert!(output.contains("... ok"));
    }

    #[test]
    fn what_a_program_says_of_its_tests_is_read_anew_each_time() {
        let run = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run("xtask/skips", &mut command, Duration::from_secs(60)).unwrap()
        };
        let (ended, skipped) = run("echo SKIPPED a::b: why >> $LONGSHORE_SKIPS");
        assert!(ended.is_success());
        assert_eq!(skipped, parse("SKIPPED a::b: why"));
        assert_eq!(run(":").1, []);
    }
}
