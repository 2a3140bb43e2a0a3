//! The tests of SCST's own Perl module and of `scstadmin`, on the trees of a server.
//!
//! They come with SCST and are not part of this repository. They were written for the driver `scst_local`, whose
//! targets and initiators have names of any kind; [`adapt`] gives them those of iSCSI, and disks that are disks. What
//! fails nevertheless has a cause in [`EXPLAINED`], as the section of `docs/testing.md` has it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use crate::arguments::Arguments;
use crate::command::{find_program, run_captured, run_checked};
use crate::counts::{Counts, Skipped};
use crate::workspace;

/// The tests for one driver, by the first digits of their names.
const TESTS: &[&str] = &["02", "03", "05", "08", "09"];

/// Checks that fail, by test, and why.
const EXPLAINED: &[(&str, &[u32], &str)] = &[
    (
        "03",
        &[34, 35],
        "a session without a login: scst_local is its own initiator",
    ),
    (
        "03",
        &[38],
        "scst_local has no attributes to add, and iscsi has",
    ),
    (
        "03",
        &[109, 110, 124, 125, 150],
        "one device under two LUNs of one map: initiators would take them for two paths",
    ),
    (
        "03",
        &[111, 126, 136, 137, 151, 152, 153, 164, 165, 166],
        "need those LUNs",
    ),
    (
        "05",
        &[8, 31],
        "scst_local has no attributes to add, and iscsi has",
    ),
];

/// Names that are not those of iSCSI.
const NAMES: &[&str] = &["local1", "local2", "local3", "tgt1", "ini1", "ini2"];

/// What iSCSI has in their place begins with this.
const NAME_PREFIX: &str = "iqn.2026-11.com.example:";

/// The disk of test 08, which the test makes itself.
const VDISK: &str = "/dev/scstadmin-regression-test-vdisk";

/// The size of each disk, in bytes.
const DISK_BYTES: u64 = 1 << 20;

const LIMIT: Duration = Duration::from_secs(300);

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let source = arguments.value("--source")?;
    let only = arguments.value("--only")?;
    arguments.finish()?;
    let Some(source) = source else {
        bail!("--source names a copy of SCST's scstadmin/scstadmin.sysfs");
    };
    for (program, package) in [("perl", "perl"), ("gawk", "gawk")] {
        if find_program(program).is_none() {
            return Err(Skipped(format!("{package} is not installed")).into());
        }
    }
    let is_known = |only: &String| only == ROUND_TRIP || TESTS.contains(&only.as_str());
    if let Some(only) = only.as_ref().filter(|only| !is_known(only)) {
        bail!("no test is called {only:?}: there are {TESTS:?} and {ROUND_TRIP:?}");
    }
    let mut counts = Counts::default();
    for test in TESTS {
        if only.as_ref().is_none_or(|only| only == test) {
            counts += one(test, Path::new(&source)).with_context(|| format!("test {test}"))?;
        }
    }
    if only.is_none_or(|only| only == ROUND_TRIP) {
        counts += round_trip(Path::new(&source)).context("a configuration there and back")?;
    }
    Ok(counts)
}

/// What the configuration's own check is called.
const ROUND_TRIP: &str = "config";

/// A configuration is carried out, written, cleared, carried out as it was written, and written again.
fn round_trip(source: &Path) -> Result<Counts> {
    let stage = Stage::set(source)?;
    let text = configuration(stage.scratch.path())?;
    let file = |name: &str| stage.scratch.join(name).display().to_string();
    fs::write(file("given"), &text)?;
    let steps: [(&str, &[&str]); 7] = [
        ("it is carried out", &["-config", &file("given")]),
        ("it is written", &["-write_config", &file("first")]),
        (
            "it is cleared",
            &["-clear_config", "-force", "-noprompt", "-no_lip"],
        ),
        ("nothing is left", &["-write_config", &file("cleared")]),
        (
            "what was written is carried out",
            &["-config", &file("first")],
        ),
        ("it is written again", &["-write_config", &file("second")]),
        (
            "once more changes nothing",
            &["-config", &file("first"), "-noprompt"],
        ),
    ];
    let mut counts = Counts::default();
    for (what, arguments) in steps {
        let mut command = stage.shell(&["perl", "-w"]);
        command.arg(stage.copy.join("scstadmin")).args(arguments);
        let ended = run_captured(&mut command, LIMIT)?;
        let written = |name: &str| -> Result<String> { Ok(body(&fs::read_to_string(file(name))?)) };
        let is_right = ended.is_success()
            && match what {
                "nothing is left" => {
                    let left = written("cleared")?;
                    !left.contains("TARGET iqn") && !left.contains("DEVICE")
                }
                "it is written again" => {
                    let (first, second) = (written("first")?, written("second")?);
                    let has = |line: &&str| first.lines().any(|it| it.trim() == line.trim());
                    first == second && text.lines().all(|line| has(&line))
                }
                "once more changes nothing" => {
                    let lines = ended.output.lines();
                    let done: Vec<&str> = lines.filter(|it| it.contains("change(s)")).collect();
                    let is_none = |it: &&str| it.contains("Done, 0 change(s) made");
                    !done.is_empty() && done.iter().all(is_none)
                }
                _ => true,
            };
        if is_right {
            counts += Counts::PASSED;
        } else {
            println!("FAIL scst-perl {ROUND_TRIP}: {what}\n{}", ended.output);
            counts += Counts::FAILED;
        }
    }
    println!("scst-perl {ROUND_TRIP}: {counts}");
    stage.end()?;
    Ok(counts)
}

/// Without the line that has the time.
fn body(written: &str) -> String {
    let lines = written.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// Two devices, a target with accounts, a group with rules of both kinds.
fn configuration(folder: &Path) -> Result<String> {
    for name in ["zeta", "alpha"] {
        fs::File::create(folder.join(name))?.set_len(DISK_BYTES)?;
    }
    Ok(format!(
        "HANDLER vdisk_fileio {{\n\
         \tDEVICE zeta {{\n\t\tfilename {0}/zeta\n\t}}\n\
         \tDEVICE alpha {{\n\t\tfilename {0}/alpha\n\t}}\n\
         }}\n\
         TARGET_DRIVER iscsi {{\n\tenabled 1\n\
         \tTARGET {NAME_PREFIX}a {{\n\t\tenabled 1\n\
         \t\tIncomingUser \"joe 12charsecret\"\n\t\tOutgoingUser \"server 12CharSecret\"\n\
         \t\tLUN 0 zeta\n\
         \t\tGROUP hosts {{\n\t\t\tLUN 0 alpha {{\n\t\t\t\tread_only 1\n\t\t\t}}\n\
         \t\t\tLUN 1 zeta\n\
         \t\t\tINITIATOR {NAME_PREFIX}host\n\t\t\tINITIATOR iqn.1993-08.org.debian:*\n\t\t}}\n\
         \t}}\n}}\n",
        folder.display()
    ))
}

/// A copy of SCST's programs beside a server with the trees.
struct Stage {
    scratch: Scratch,
    copy: PathBuf,
    program: PathBuf,
    server: Server,
}

impl Stage {
    fn set(source: &Path) -> Result<Self> {
        let scratch = Scratch::new("scst-perl");
        let copy = scratch.join("copy");
        run_checked(Command::new("cp").arg("-r").args([source, &copy]), LIMIT)?;
        let program = workspace::server_program()?;
        let server = ServerBuilder::with_program(program.clone())
            .iscsi()
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string())
            .argument("--scst-tree")
            .argument(&scratch.join("tree").display().to_string())
            .start()?;
        Ok(Self {
            scratch,
            copy,
            program,
            server,
        })
    }

    /// A command where the trees lie as in the kernel.
    fn shell(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["scst", "shell", "--tree"]);
        command.arg(self.scratch.join("tree")).arg("--").args(words);
        let library = self.copy.join("scst-1.0.0");
        command.env("PERL5LIB", library.join("lib"));
        command.current_dir(library);
        command
    }

    fn end(self) -> Result<()> {
        let stopped = self.server.stop(LIMIT)?;
        if !stopped.success() {
            bail!("the server ended with {stopped}");
        }
        Ok(())
    }
}

/// Runs one test on a new server.
fn one(test: &str, source: &Path) -> Result<Counts> {
    let stage = Stage::set(source)?;
    let script = find(&stage.copy.join("scst-1.0.0/t"), test)?;
    let text = fs::read_to_string(&script)?;
    fs::write(&script, adapt(&text, stage.scratch.path())?)?;
    let mut command = stage.shell(&["perl", "-I", "lib"]);
    let ended = run_captured(command.arg(&script), LIMIT)?;
    let counts = match Checks::read(&ended.output) {
        Ok(checks) if ended.status.is_some() => checks.judge(test),
        Ok(_) => {
            println!("FAIL scst-perl {test}: it ended {}", ended.how());
            Counts::FAILED
        }
        Err(error) => {
            println!("FAIL scst-perl {test}: {error:#}");
            Counts::FAILED
        }
    };
    if counts.failed > 0 {
        println!("{}\n{}", ended.output, stage.server.log());
    }
    stage.end()?;
    Ok(counts)
}

/// The script whose name begins with these digits.
fn find(folder: &Path, test: &str) -> Result<PathBuf> {
    let list = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in list {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(test) && name.ends_with(".t") {
            return Ok(path);
        }
    }
    bail!("{} has no test {test}", folder.display());
}

/// The script for the driver `iscsi`, with names that it knows, and a disk of its own for each device.
fn adapt(text: &str, folder: &Path) -> Result<String> {
    let mut disks = 0..;
    let mut disk = || -> Result<String> {
        let path = folder.join(format!("disk{}", disks.next().unwrap_or(0)));
        fs::File::create(&path)?.set_len(DISK_BYTES)?;
        Ok(path.display().to_string())
    };
    let first = disk()?;
    let mut text = text
        .replace("'session_name' => 'local1'", "")
        .replace("'session_name' => 'local2'", "")
        .replace("scst_local", "iscsi")
        .replace("ib_srpt", "iscsi")
        .replace("target local ", &format!("target {NAME_PREFIX}local "))
        .replace("dummy=1", "size_mb=1")
        .replace(
            &format!("filename={VDISK},nv_cache=1"),
            &format!("filename={}", disk()?),
        )
        .replace(VDISK, &first);
    for name in NAMES {
        text = replace_word(&text, name, &format!("{NAME_PREFIX}{name}"));
    }
    while let Some(at) = text.find("/proc/cpuinfo") {
        text.replace_range(at..at + "/proc/cpuinfo".len(), &disk()?);
    }
    Ok(text)
}

/// The text with another word in place of this one, where it is no part of a longer one.
fn replace_word(text: &str, word: &str, other: &str) -> String {
    let is_inner = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(word) {
        replaced.push_str(before);
        let is_part = is_inner(before.chars().next_back()) || is_inner(behind.chars().next());
        replaced.push_str(if is_part { word } else { other });
        rest = behind;
    }
    replaced + rest
}

/// What a script said of its checks: passed or not, by their numbers.
#[derive(Debug, PartialEq, Eq)]
struct Checks {
    planned: u32,
    results: BTreeMap<u32, bool>,
}

impl Checks {
    /// Reads the lines of Perl's `Test`: `1..N`, `ok N`, `not ok N`.
    fn read(output: &str) -> Result<Self> {
        let mut planned = None;
        let mut results = BTreeMap::new();
        for line in output.lines() {
            // SCST's module prints errors without an end of line: `(ENOENT) ok 4`.
            let line = match line.split_once(") ") {
                Some((error, rest)) if error.starts_with("(E") => rest,
                _ => line,
            };
            let (line, is_passed) = match line.strip_prefix("not ") {
                Some(rest) => (rest, false),
                None => (line, true),
            };
            let number = |text: &str| text.split_whitespace().next()?.parse().ok();
            if line.contains("# skip") {
                continue; // counts as not run
            }
            if let Some(number) = line.strip_prefix("ok ").and_then(number) {
                results.insert(number, is_passed);
            } else if let Some(count) = line.strip_prefix("1..").and_then(number) {
                planned = Some(count);
            }
        }
        let planned = planned.with_context(|| format!("no checks were planned:\n{output}"))?;
        Ok(Self { planned, results })
    }

    /// Counts the checks, and prints those that failed. An explained check that passes is a failure: the explanation no
    /// longer holds.
    fn judge(&self, test: &str) -> Counts {
        let mut counts = Counts::default();
        for number in 1..=self.planned {
            let explained = EXPLAINED
                .iter()
                .find(|(of, numbers, _)| *of == test && numbers.contains(&number));
            counts += match (self.results.get(&number), explained) {
                (Some(true), None) => Counts::PASSED,
                (Some(true), Some((_, _, why))) => {
                    println!("FAIL scst-perl {test}: {number} passes, and should not: {why}");
                    Counts::FAILED
                }
                (_, Some((_, _, why))) => {
                    println!("SKIPPED scst-perl {test}: {number}: {why}");
                    Counts::SKIPPED
                }
                (Some(false), None) => {
                    println!("FAIL scst-perl {test}: {number}");
                    Counts::FAILED
                }
                (None, None) => {
                    println!("FAIL scst-perl {test}: {number} did not run");
                    Counts::FAILED
                }
            };
        }
        println!("scst-perl {test}: {counts}");
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_and_judged_by_their_explanations() {
        let output = "1..35\n# noise\nok 1\nnot ok 2\n# Test 2 got: '1'\n(ENOENT) ok 34 # later\n";
        let checks = Checks::read(output).unwrap();
        assert_eq!(checks.planned, 35);
        assert_eq!(
            checks.results,
            BTreeMap::from([(1, true), (2, false), (34, true)])
        );
        // One passed, one is explained; one failed, one passes against its explanation, all others did not run.
        let counts = checks.judge("03");
        assert_eq!((counts.passed, counts.failed, counts.skipped), (1, 33, 1));
        assert!(Checks::read("died at line 3\n").is_err());
    }

    #[test]
    fn names_drivers_and_disks_are_replaced() {
        let scratch = Scratch::new("scst-perl");
        let text = "add('scst_local', 'local1', {'session_name' => 'local1' }); local1x; my $all_local1;\n\
                    open('/proc/cpuinfo'); open('/proc/cpuinfo');";
        let adapted = adapt(text, scratch.path()).unwrap();
        assert!(adapted.starts_with("add('iscsi', 'iqn.2026-11.com.example:local1', { });"));
        assert!(adapted.contains(" local1x; my $all_local1;"));
        let disks: Vec<&str> = adapted
            .split('\'')
            .filter(|it| it.contains("disk"))
            .collect();
        assert!(disks.len() == 2 && disks[0] != disks[1]);
        assert_eq!(fs::metadata(disks[1]).unwrap().len(), DISK_BYTES);
    }
}
