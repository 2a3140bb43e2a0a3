//! `cargo xtask instructions --files`: the files of the workspace that each read of 4 KiB passes through.
//!
//! A file belongs to the path of a read if one of its instructions is executed for each read. Inlined functions count
//! for the file that they are written in. Depth is 32: code that runs once a turn, such as the event loop, is executed
//! far more seldom than once a read, and is listed apart. A file with less than 1 % of the instructions of a read only
//! supplies a value: a field of a header, the conversion of a unit, a counter.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};

use super::Plan;
use super::instructions::profile;
use super::point::Point;
use super::server::Ours;
use crate::counts::Counts;
use crate::workspace;

/// Operations of the short run, and how many more the long one has.
const FEW: u64 = 1_000;
const MORE: u64 = 4_000;

/// An instruction is executed for each read from this many times a read on. Turns have some 25 reads.
const EACH: f64 = 0.9;

/// Share of the instructions of a read from which on a file does a step of it.
const STEP: f64 = 0.01;

/// The instructions of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Use {
    /// All of them, a read.
    total: f64,
    /// The most frequent of them, a read.
    most: f64,
}

/// Lists the files of each point.
pub fn run(plan: &Plan, points: &[(Point, Ours<'_>)]) -> Result<Counts> {
    let folder = workspace::work_folder("bench")?;
    for (point, ours) in points {
        let mut profiles = Vec::new();
        for operations in [FEW, FEW + MORE] {
            let path = folder.join("callgrind.out");
            profile(plan, *point, ours, operations, &path)?;
            profiles.push(executed(&std::fs::read_to_string(&path)?));
        }
        let uses = uses(&profiles[0], &profiles[1]);
        println!("{}", report(&point.name(), &uses));
    }
    Ok(Counts {
        passed: points.len(),
        failed: 0,
        skipped: 0,
    })
}

/// How often each instruction is executed, by file and address.
type Executed = HashMap<String, HashMap<u64, u64>>;

/// Reads what Callgrind has written: <https://valgrind.org/docs/manual/cl-format.html>.
fn executed(text: &str) -> Executed {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut found = Executed::new();
    let (mut file, mut address, mut source_line) = ("", 0, 0);
    let mut is_call = false;
    for line in text.lines() {
        let position = line.starts_with(|first: char| "+-*0123456789".contains(first));
        if position {
            let mut words = line.split(' ');
            address = moved(address, words.next().unwrap_or_default());
            source_line = moved(source_line, words.next().unwrap_or_default());
            let count = words.next().and_then(|count| count.parse::<u64>().ok());
            // The cost of a call is that of the function called; what the compiler has added has no line.
            if !std::mem::take(&mut is_call)
                && source_line > 0
                && let Some(count) = count
                && let Some(file) = names.get(file)
            {
                let of_file = found.entry((*file).to_owned()).or_default();
                *of_file.entry(address).or_default() += count;
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((key, value)) = line.split_once('=') {
            let (id, name) = value.split_once(' ').unwrap_or((value, ""));
            let names_file = matches!(key, "fl" | "fi" | "fe" | "cfi" | "cfl");
            if names_file && !name.is_empty() {
                names.insert(id, name);
            }
            if matches!(key, "fl" | "fi" | "fe") {
                file = id;
            }
        }
    }
    found
}

/// An address or a line that is given as such or by its distance from the one before.
fn moved(address: u64, word: &str) -> u64 {
    let number = |digits: &str| match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => digits.parse().unwrap_or(0),
    };
    match word.split_at_checked(1) {
        Some(("+", more)) => address.wrapping_add(number(more)),
        Some(("-", less)) => address.wrapping_sub(number(less)),
        Some(("*", _)) => address,
        _ => number(word),
    }
}

/// Files of the workspace, by what the longer run executes beyond the shorter one.
fn uses(short: &Executed, long: &Executed) -> BTreeMap<String, Use> {
    let top = workspace::root().display().to_string();
    #[allow(clippy::cast_precision_loss)] // Counts of a few seconds are far below 2^52.
    let a_read = |count: u64| count as f64 / MORE as f64;
    let mut uses = BTreeMap::new();
    for (file, counts) in long {
        let Some(name) = file.strip_prefix(&top) else {
            continue;
        };
        let before = short.get(file);
        let more = |(address, count): (&u64, &u64)| {
            let before = before.and_then(|before| before.get(address));
            count.saturating_sub(before.copied().unwrap_or(0))
        };
        let total = a_read(counts.iter().map(more).sum());
        let most = a_read(counts.iter().map(more).max().unwrap_or(0));
        uses.insert(name.trim_start_matches('/').to_owned(), Use { total, most });
    }
    uses
}

/// The files, for people.
fn report(point: &str, uses: &BTreeMap<String, Use>) -> String {
    let mut of_each: Vec<_> = uses
        .iter()
        .filter(|(_, found)| found.most >= EACH)
        .collect();
    of_each.sort_by(|(_, a), (_, b)| b.total.total_cmp(&a.total));
    let all: f64 = of_each.iter().map(|(_, found)| found.total).sum();
    let is_step = |found: &Use| found.total >= all * STEP;
    let steps = of_each.iter().filter(|(_, found)| is_step(found)).count();
    let of_turns = uses
        .values()
        .filter(|found| found.most < EACH && found.most > 0.01);
    let mut lines = vec![format!(
        "{point}: {} files are executed for each read, {steps} of them with 1 % or more of its instructions; \
         {} more once a turn",
        of_each.len(),
        of_turns.count()
    )];
    for (name, found) in of_each {
        let mark = if is_step(found) { "step " } else { "value" };
        lines.push(format!("  {mark} {:>6.1}  {name}", found.total));
    }
    lines.join("\n")
}

/// The point of each protocol, from those whose instructions have a limit.
pub fn points(guarded: Vec<Point>, names: &[&str]) -> Result<Vec<Point>> {
    let found: Vec<Point> = guarded
        .into_iter()
        .filter(|point| names.contains(&point.name().as_str()))
        .collect();
    (!found.is_empty())
        .then_some(found)
        .context("no point is measured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_count_for_the_file_they_are_written_in() {
        let text = "positions: instr line\nevents: Ir\n\
                    fl=(1) /top/a.rs\nfn=(1) f\n0x10 3 5\n+4 4 5\nfi=(2) /top/b.rs\n+4 9 7\n\
                    fe=(1)\n* 5 1\ncfi=(3) /top/c.rs\ncfn=(2) g\ncalls=5 0x40 0\n+2 5 900\n+2 6 2\n\
                    fl=(3)\nfn=(2)\n0x40 1 8\n-8 * 1\n+4 0 9\ntotals: 938\n";
        let found = executed(text);
        let of = |file: &str| found[file].clone();
        assert_eq!(
            of("/top/a.rs"),
            HashMap::from([(0x10, 5), (0x14, 5), (0x18, 1), (0x1c, 2)])
        );
        assert_eq!(of("/top/b.rs"), HashMap::from([(0x18, 7)]));
        assert_eq!(of("/top/c.rs"), HashMap::from([(0x40, 8), (0x38, 1)]));
    }

    #[test]
    fn a_file_is_on_the_path_if_an_instruction_is_executed_for_each_read() {
        let top = workspace::root();
        let file = |name: &str| top.join(name).display().to_string();
        let short = Executed::from([(file("each.rs"), HashMap::from([(1, 1_000)]))]);
        let long = Executed::from([
            (file("each.rs"), HashMap::from([(1, 5_000), (2, 396_000)])),
            (file("value.rs"), HashMap::from([(1, 4_000)])),
            (file("turn.rs"), HashMap::from([(1, 160), (2, 160)])),
            ("/elsewhere/std.rs".to_owned(), HashMap::from([(1, 9_000)])),
        ]);
        let uses = uses(&short, &long);
        assert_eq!(
            uses["each.rs"],
            Use {
                total: 100.0,
                most: 99.0
            }
        );
        let report = report("a point", &uses);
        let first = report.lines().next().unwrap();
        assert!(
            first.contains("2 files are executed for each read, 1 of them"),
            "{first}"
        );
        assert!(first.contains("1 more once a turn"), "{first}");
        assert!(!report.contains("std.rs"));
    }
}
