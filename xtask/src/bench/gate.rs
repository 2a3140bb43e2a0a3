//! `cargo xtask instructions`: fails when an operation takes more instructions of the server than
//! `bench/instructions.toml` allows.
//!
//! What is limited is what Valgrind counts in user mode ([`super::instructions`]), which neither a
//! busy machine nor another clock rate changes. A compiler does, so the file names the one its
//! values are of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use super::Plan;
use super::files;
use super::instructions::{Length, per_operation};
use super::point::{self, Point};
use super::server::Ours;
use crate::arguments::Arguments;
use crate::command::{find_program, run_checked};
use crate::counts::{Counts, Skipped};
use crate::rotation::Part;
use crate::workspace;

/// Where the limits are.
const FILE: &str = "bench/instructions.toml";

/// Percent by which a count may differ from the value kept. Repeated runs mostly lie within five, for batches differ;
/// what is left is for libraries of the system, whose routines copy the bytes, and other processors, for
/// which these take other ways.
const TOLERANCE: f64 = 8.0;

/// Every point whose value is to be kept is counted so often. The least holds.
const TRIES: u32 = 5;

/// So is a point above its limit. What a neighbour on the machine does to the batches can go on for a minute.
const TRIES_ABOVE: u32 = 16;

/// Between two of these.
const PAUSE: Duration = Duration::from_secs(3);

/// Points of each landing: the shortest way through each protocol.
const ALWAYS: &[&str] = &["iscsi-null-read-4096-32", "nvme-null-read-4096-32"];

/// Operations until everything is warm, and those that are counted.
const LENGTH: Length = Length {
    few: 1_000,
    more: 8_000,
};

/// How `auto` sends between its trials. A trial sends in other ways for some hundred turns, which are few of those of a
/// second, and would be most of what is counted here. At depth 1, where a turn has one response, there is none.
const TOGETHER: [&str; 4] = ["--transmit", "nodelay", "--send", "turn"];

/// What the file holds.
#[derive(Debug, Clone, PartialEq)]
struct InstructionLimits {
    /// The compiler, as `rustc --version` says it.
    rustc: String,
    tolerance_percent: f64,
    /// By the name of the point.
    counts: BTreeMap<String, f64>,
}

/// How a count compares with what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Within,
    Above,
    Below,
}

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let update = arguments.flag("--update");
    let lists_files = arguments.flag("--files");
    let only = arguments.value("--only")?;
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;
    if find_program("valgrind").is_none() {
        return Err(Skipped("valgrind is not installed".to_owned()).into());
    }
    let plan = Plan {
        quick: false,
        update,
        engine: "auto".to_owned(),
        only,
        rounds: 1,
        seconds: String::new(),
        client: workspace::server_program()?,
    };
    if lists_files {
        let points = files::points(point::guarded(), ALWAYS)?;
        let points: Vec<_> = points
            .into_iter()
            .map(|point| (point, ours(&plan, point)))
            .collect();
        return files::run(&plan, &points);
    }
    let points = plan.chosen(point::guarded());
    if points.is_empty() {
        bail!("no point has that in its name; iscsi-null-read-4096-32 is one");
    }
    let is_always = |point: &Point| ALWAYS.contains(&point.name().as_str());
    let points = part.choose("instructions", points, |point| point.name(), is_always);
    let path = workspace::root().join(FILE);
    let kept = match std::fs::read_to_string(&path) {
        Ok(text) => InstructionLimits::parse(&text).with_context(|| format!("read {FILE}"))?,
        Err(_) if update => InstructionLimits::none(),
        Err(error) => return Err(error).context(format!("read {FILE}")),
    };
    let mut found = BTreeMap::new();
    for &point in &points {
        let name = point.name();
        let mut least = count(&plan, point)?;
        // On a busy machine batches are smaller now and then, and cost more. What the server costs more by itself, it
        // costs each time.
        for _ in 1..if update { TRIES } else { TRIES_ABOVE } {
            if !update {
                if kept.verdict(&name, least) != Verdict::Above {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
            least = least.min(count(&plan, point)?);
        }
        println!("{}", kept.line(&name, least));
        found.insert(name, least);
    }
    if update {
        return kept.updated(found)?.store(&path);
    }
    judge(&kept, &found)
}

fn count(plan: &Plan, point: Point) -> Result<f64> {
    per_operation(plan, point, &ours(plan, point), LENGTH)
}

/// The server whose instructions are counted.
fn ours(plan: &Plan, point: Point) -> Ours<'_> {
    Ours {
        program: &plan.client,
        backend: point.backend,
        engine: &plan.engine,
        nvme: true,
        wrapper: &[],
        options: if point.depth > 1 { &TOGETHER } else { &[] },
        folder: "instructions",
    }
}

/// Counts points, and says what to do about those that are not within their limits.
fn judge(kept: &InstructionLimits, found: &BTreeMap<String, f64>) -> Result<Counts> {
    let with = |verdict: Verdict| {
        let is = move |(name, count): &(&String, &f64)| kept.verdict(name, **count) == verdict;
        found.iter().filter(is).count()
    };
    let (above, below) = (with(Verdict::Above), with(Verdict::Below));
    if below > 0 {
        println!(
            "{below} of {} points take fewer instructions than {FILE} allows: keep that by \
             `cargo xtask instructions --update`",
            found.len()
        );
    }
    if above > 0 {
        println!("{}", advice(kept, &rustc()?));
    }
    Ok(Counts {
        passed: found.len() - above,
        failed: above,
        skipped: 0,
    })
}

/// What to do about points above their limits.
fn advice(kept: &InstructionLimits, rustc: &str) -> String {
    let mut advice = "Where the instructions go:\n  \
         valgrind --tool=callgrind --callgrind-out-file=callgrind.out target/release/longshore serve \
         --engine epoll --volume disk0,backend=null,size=1G --iscsi 127.0.0.1:3260 --nvme 127.0.0.1:4420\n  \
         longshore bench iscsi://127.0.0.1:3260/iqn.2026-11.local.longshore:default/0 --iodepth 32 \
         --operations 40000\n  \
         callgrind_annotate callgrind.out | head -60\n\
         If what they buy is worth it, raise the limits by `cargo xtask instructions --update` and say \
         in the commit what that is.\n"
        .to_owned();
    if rustc != kept.rustc {
        // The advice is text; writing to it does not fail.
        let _ = write!(
            advice,
            "The limits are of {}, this is {rustc}. If the commit before takes as many with this \
             compiler, it is the compiler: update the limits in a commit of their own.",
            kept.rustc
        );
    }
    advice
}

/// The compiler that Cargo uses.
fn rustc() -> Result<String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(program);
    let text = run_checked(command.arg("--version"), Duration::from_secs(20))?;
    Ok(text.trim().to_owned())
}

impl InstructionLimits {
    fn none() -> Self {
        Self {
            rustc: String::new(),
            tolerance_percent: TOLERANCE,
            counts: BTreeMap::new(),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let value = |name: &str| {
            table
                .get(name)
                .with_context(|| format!("{name} is missing"))
        };
        let counts = value("instructions")?.as_table();
        let counts = counts.context("instructions is not a table")?;
        let number = |(name, value): (&String, &Value)| {
            let number = number(value).with_context(|| format!("{name} is not a number"))?;
            Ok((name.clone(), number))
        };
        Ok(Self {
            rustc: value("rustc")?
                .as_str()
                .context("rustc is not a text")?
                .to_owned(),
            tolerance_percent: number_of(value("tolerance-percent")?)?,
            counts: counts.iter().map(number).collect::<Result<_>>()?,
        })
    }

    fn verdict(&self, name: &str, count: f64) -> Verdict {
        let Some(kept) = self.counts.get(name) else {
            // A new point is as wrong as one that has grown: it needs a limit.
            return Verdict::Above;
        };
        let margin = kept * self.tolerance_percent / 100.0;
        match count - kept {
            more if more > margin => Verdict::Above,
            more if more < -margin => Verdict::Below,
            _ => Verdict::Within,
        }
    }

    /// A point with its verdict, for people.
    fn line(&self, name: &str, count: f64) -> String {
        let Some(kept) = self.counts.get(name) else {
            return format!("{name:28} {count:>7.0}  no limit is kept");
        };
        let percent = (count / kept - 1.0) * 100.0;
        let verdict = match self.verdict(name, count) {
            Verdict::Within => "ok",
            Verdict::Above => "FAIL: above the limit",
            Verdict::Below => "the limit can be lowered",
        };
        format!("{name:28} {count:>7.0}  kept {kept:>7.0} {percent:>+6.1} %  {verdict}")
    }

    /// With what was found in place of what was kept; other points stay.
    fn updated(&self, found: BTreeMap<String, f64>) -> Result<Self> {
        let mut limits = self.clone();
        limits.counts.extend(found);
        limits.rustc = rustc()?;
        Ok(limits)
    }

    fn store(&self, path: &PathBuf) -> Result<Counts> {
        std::fs::write(path, self.to_text())?;
        println!("{} values are kept in {FILE}", self.counts.len());
        Ok(Counts {
            passed: self.counts.len(),
            failed: 0,
            skipped: 0,
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "# User-mode instructions of the server per operation, counted by Valgrind: loopback, queue depths\n\
             # 1 and 32. CI fails where a count is above its value by more than the tolerance.\n\
             # `cargo xtask instructions --update` writes this file.\n\
             rustc = \"{}\"\n\
             tolerance-percent = {:.1}\n\n\
             [instructions]\n",
            self.rustc, self.tolerance_percent
        );
        for (name, count) in &self.counts {
            // A text takes all that is written to it.
            let _ = writeln!(text, "{name} = {count:.0}");
        }
        text
    }
}

fn number(value: &Value) -> Option<f64> {
    let integer = || value.as_integer().and_then(|n| i32::try_from(n).ok());
    value.as_float().or_else(|| integer().map(f64::from))
}

fn number_of(value: &Value) -> Result<f64> {
    number(value).context("tolerance-percent is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> InstructionLimits {
        InstructionLimits {
            rustc: "rustc 1.90.0".to_owned(),
            tolerance_percent: 3.0,
            counts: BTreeMap::from([("iscsi-null-read-512-1".to_owned(), 1000.0)]),
        }
    }

    #[test]
    fn limits_are_read_as_they_were_written() {
        let limits = limits();
        assert_eq!(InstructionLimits::parse(&limits.to_text()).unwrap(), limits);
        assert!(InstructionLimits::parse("rustc = \"x\"").is_err());
    }

    #[test]
    fn the_limits_of_the_repository_cover_all_points() {
        let text = std::fs::read_to_string(workspace::root().join(FILE)).unwrap();
        let limits = InstructionLimits::parse(&text).unwrap();
        for point in point::guarded() {
            assert!(
                limits.counts.contains_key(&point.name()),
                "{}",
                point.name()
            );
        }
    }

    #[test]
    fn only_what_is_beyond_the_tolerance_is_above_or_below() {
        let limits = limits();
        let verdict = |count| limits.verdict("iscsi-null-read-512-1", count);
        assert_eq!(verdict(1029.0), Verdict::Within);
        assert_eq!(verdict(1031.0), Verdict::Above);
        assert_eq!(verdict(971.0), Verdict::Within);
        assert_eq!(verdict(969.0), Verdict::Below);
        assert_eq!(limits.verdict("a new point", 1.0), Verdict::Above);
    }

    #[test]
    fn points_above_their_limits_fail_and_those_below_pass() {
        let judged = |count| {
            let found = BTreeMap::from([("iscsi-null-read-512-1".to_owned(), count)]);
            let counts = judge(&limits(), &found).unwrap();
            (counts.passed, counts.failed)
        };
        assert_eq!(judged(2000.0), (0, 1));
        assert_eq!(judged(500.0), (1, 0));
    }

    #[test]
    fn advice_names_another_compiler() {
        assert!(advice(&limits(), "rustc 1.91.0").contains("rustc 1.91.0"));
        assert!(!advice(&limits(), "rustc 1.90.0").contains("it is the compiler"));
    }
}
