//! Runs steps side by side, as far as there are cores for them. Each step is a process of this program; its lines are
//! shown as they come, behind the step's name.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::room;
use super::skips::ALLOWED;
use crate::counts::Counts;
use crate::family::Family;
use crate::outcome::{self, StepResult};
use crate::workspace;

/// How often the run says what it is waiting for, when nothing else is shown.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// Percent of a core that steps may want beyond the cores that there are: they wait now and then.
const OVERLAP: u32 = 60;

#[derive(Debug, Clone)]
pub struct Step {
    /// Shown before its lines.
    pub name: &'static str,
    /// Arguments of this program, separated by spaces.
    command: String,
    /// Processor time by time passed, in percent of a core.
    load: u32,
    /// The steps that end before it begins, however they end.
    pub after: &'static [&'static str],
    /// The steps without which it does not run; they end before it begins, too.
    pub needs: &'static [&'static str],
    /// Whether steps beside it get the processor first.
    gives_way: bool,
    /// Added to the environment of later steps when it has passed.
    provides: Vec<(&'static str, PathBuf)>,
}

impl Step {
    /// A step that waits for no other.
    pub fn new(name: &'static str, command: &str, load: u32) -> Self {
        Self {
            name,
            command: command.to_owned(),
            load,
            after: &[],
            needs: &[],
            gives_way: false,
            provides: Vec::new(),
        }
    }

    /// What it runs, without the name of this program.
    #[cfg(test)]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The same, where later steps find what it has built by these variables, without asking Cargo: that waits while
    /// another step builds.
    pub fn provides(mut self, variables: Vec<(&'static str, PathBuf)>) -> Self {
        self.provides = variables;
        self
    }

    /// The same behind these.
    pub fn after(mut self, steps: &'static [&'static str]) -> Self {
        self.after = steps;
        self
    }

    /// The same, which cannot run where one of these has failed.
    pub fn needs(mut self, steps: &'static [&'static str]) -> Self {
        self.needs = steps;
        self
    }

    /// The same with less of a claim to the processor, for what no time limit hangs on.
    pub fn gives_way(mut self) -> Self {
        self.gives_way = true;
        self
    }
}

/// A step that runs.
struct Running {
    step: Step,
    child: Child,
    family: Family,
    started: Instant,
    result: PathBuf,
}

/// What happens to a step that runs, by its name.
enum StepEvent {
    Line(&'static str, String),
    /// Its output is closed.
    End(&'static str),
}

/// Why a step is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Output,
    Limit,
}

/// A step that has ended, for the table at the end.
struct Ended {
    name: &'static str,
    outcome: StepResult,
    counts: Counts,
    passed: Duration,
}

/// Runs all steps, and gives the sum of their counts. A step that takes longer than `limit` is killed with
/// everything it has started, and has failed.
pub fn run(steps: Vec<Step>, limit: Duration) -> Result<Counts> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let capacity = u32::try_from(cores)? * 100 + OVERLAP;
    let begin = Instant::now();
    let mut waiting = VecDeque::from(steps);
    let mut running: Vec<Running> = Vec::new();
    let mut ended: Vec<Ended> = Vec::new();
    let mut environment = Vec::new();
    let (sender, events) = channel();
    let mut least_free = u64::MAX;
    loop {
        while let Some(step) = next(&mut waiting, &running, capacity) {
            match missing(&step, &ended) {
                None => running.push(start(step, &environment, &sender)?),
                Some(failed) => ended.push(not_run(&step, failed)),
            }
        }
        if running.is_empty() {
            break;
        }
        let (place, end) = show_until_end(&events, &running, limit, &mut least_free);
        let done = running.remove(place);
        let provides = done.step.provides.clone();
        let done = match end {
            End::Output => finish(done)?,
            End::Limit => break_off(done, limit)?,
        };
        if done.counts.failed == 0 {
            environment.extend(provides);
        }
        ended.push(done);
    }
    let counts = summary(&ended, begin.elapsed());
    room::report(counts.failed > 0, least_free);
    Ok(counts)
}

/// Takes the first step that waits for nothing, and that there is room for.
fn next(waiting: &mut VecDeque<Step>, running: &[Running], capacity: u32) -> Option<Step> {
    let load: u32 = running.iter().map(|running| running.step.load).sum();
    let is_pending = |name: &str| {
        waiting.iter().any(|step| step.name == name)
            || running.iter().any(|running| running.step.name == name)
    };
    let place = waiting.iter().position(|step| {
        let fits = load == 0 || load + step.load <= capacity;
        let mut before = step.after.iter().chain(step.needs);
        fits && !before.any(|name| is_pending(name))
    });
    waiting.remove(place?)
}

/// A step that this one needs and that has failed.
fn missing(step: &Step, ended: &[Ended]) -> Option<&'static str> {
    let needed = ended
        .iter()
        .filter(|ended| step.needs.contains(&ended.name));
    let mut failed = needed.filter(|ended| ended.counts.failed > 0);
    failed.next().map(|ended| ended.name)
}

fn not_run(step: &Step, failed: &str) -> Ended {
    let outcome = StepResult::Failed(format!("not run, as {failed} has failed"));
    Ended {
        name: step.name,
        counts: judge(step.name, &outcome),
        outcome,
        passed: Duration::ZERO,
    }
}

/// Starts a step: a process of this program.
fn start(
    step: Step,
    environment: &[(&'static str, PathBuf)],
    events: &Sender<StepEvent>,
) -> Result<Running> {
    println!("=== {} begins: cargo xtask {}", step.name, step.command);
    let result = workspace::work_folder("ci")?.join(format!("{}.json", step.name));
    // That of an earlier run.
    let _ = std::fs::remove_file(&result);
    let program = std::env::current_exe().context("find this program")?;
    let mut command = match step.gives_way {
        true => {
            let mut command = Command::new("nice");
            command.args(["-n", "5"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command
        .args(step.command.split(' '))
        .envs(environment.iter().cloned())
        .env(outcome::VARIABLE, &result);
    spawn(step, command, result, events)
}

fn spawn(
    step: Step,
    mut command: Command,
    result: PathBuf,
    events: &Sender<StepEvent>,
) -> Result<Running> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let family = Family::of(&mut command);
    let child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("share the pipe")?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("start {}", step.name))?;
    let (name, events) = (step.name, events.clone());
    std::thread::spawn(move || pass_lines_on(name, reader, &events));
    Ok(Running {
        step,
        child,
        family,
        started: Instant::now(),
        result,
    })
}

fn pass_lines_on(name: &'static str, reader: PipeReader, events: &Sender<StepEvent>) {
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        // The receiver lives as long as there are steps.
        let _ = events.send(StepEvent::Line(name, line));
    }
    let _ = events.send(StepEvent::End(name));
}

/// Shows lines of all steps until one is over: its place among those that run. Watches how much of the disk is free.
fn show_until_end(
    events: &Receiver<StepEvent>,
    running: &[Running],
    limit: Duration,
    least_free: &mut u64,
) -> (usize, End) {
    loop {
        *least_free = room::free_bytes().map_or(*least_free, |free| free.min(*least_free));
        let left = |step: &Running| limit.saturating_sub(step.started.elapsed());
        let times = running.iter().map(left);
        let (time, place) = times.zip(0..).min().expect("some step runs");
        if time.is_zero() {
            return (place, End::Limit);
        }
        match events.recv_timeout(time.min(SIGN_OF_LIFE)) {
            Ok(StepEvent::Line(name, line)) => println!("{name:13} | {line}"),
            Ok(StepEvent::End(name)) => {
                // A step that was broken off is no longer among those that run.
                if let Some(place) = running.iter().position(|it| it.step.name == name) {
                    return (place, End::Output);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let all: Vec<String> = running
                    .iter()
                    .map(|it| format!("{} for {} s", it.step.name, it.started.elapsed().as_secs()))
                    .collect();
                println!("=== still running: {}", all.join(", "));
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is kept for later steps"),
        }
    }
}

/// Kills a step that has taken too long. It has failed, even if it has left a result.
fn break_off(mut step: Running, limit: Duration) -> Result<Ended> {
    let name = step.step.name;
    step.child.kill().with_context(|| format!("kill {name}"))?;
    step.family.kill();
    step.child
        .wait()
        .with_context(|| format!("wait for {name}"))?;
    let minutes = limit.as_secs().div_ceil(60);
    let outcome = StepResult::Failed(format!("took longer than {minutes} min"));
    Ok(ended(&step, outcome))
}

fn finish(mut done: Running) -> Result<Ended> {
    let name = done.step.name;
    let status = done
        .child
        .wait()
        .with_context(|| format!("wait for {name}"))?;
    let outcome = StepResult::read(&done.result)
        .unwrap_or_else(|| StepResult::failed(&longshore_tests::server::describe(status)));
    Ok(ended(&done, outcome))
}

fn ended(step: &Running, outcome: StepResult) -> Ended {
    let name = step.step.name;
    let counts = judge(name, &outcome);
    let passed = step.started.elapsed();
    println!("=== {name} ended after {} s: {counts}", passed.as_secs());
    Ended {
        name,
        outcome,
        counts,
        passed,
    }
}

/// What a step counts as.
fn judge(name: &str, outcome: &StepResult) -> Counts {
    match outcome {
        StepResult::Ran { counts, .. } => *counts,
        StepResult::Skipped(reason) if ALLOWED.contains(&(name, reason.as_str())) => {
            println!("SKIPPED {name}: {reason}");
            Counts::SKIPPED
        }
        StepResult::Skipped(reason) => {
            println!("FAIL {name}: skipped for a reason that is not allowed: {reason}");
            Counts::FAILED
        }
        StepResult::Failed(why) => {
            println!("FAIL {name}: {why}");
            Counts::FAILED
        }
    }
}

fn summary(ended: &[Ended], passed: Duration) -> Counts {
    let mut total = Counts::default();
    println!("\n=== all, in {} s", passed.as_secs());
    for step in ended {
        let processor = match &step.outcome {
            StepResult::Ran { processor, .. } => format!("{:>5} s", processor.as_secs()),
            _ => format!("{:>7}", "–"),
        };
        println!(
            "{:>5} s, {processor} of processor time  {}: {}",
            step.passed.as_secs(),
            step.name,
            step.counts
        );
        total += step.counts;
    }
    for step in ended {
        if let StepResult::Failed(why) = &step.outcome {
            println!("FAIL {}: {why}", step.name);
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_reasons_let_a_step_be_skipped() {
        let skipped = |reason: &str| StepResult::Skipped(reason.to_owned());
        assert_eq!(judge(ALLOWED[0].0, &skipped(ALLOWED[0].1)), Counts::SKIPPED);
        assert_eq!(judge("kernel", &skipped("no time")), Counts::FAILED);
    }

    #[test]
    fn a_step_that_hangs_fails_and_is_killed_with_what_it_has_started() {
        let limit = Duration::from_secs(2);
        let (sender, events) = channel();
        let begin = |name, script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            spawn(Step::new(name, "x", 100), command, PathBuf::new(), &sender).unwrap()
        };
        let mut running = vec![
            begin("hung", "setsid sleep 600 & sleep 600; :"),
            begin("left", "sleep 600 &"),
        ];
        while !running.is_empty() {
            let (place, end) = show_until_end(&events, &running, limit, &mut { u64::MAX });
            assert_eq!(end, End::Limit);
            let ended = break_off(running.remove(place), limit).unwrap();
            assert_eq!(ended.counts, Counts::FAILED);
            assert_eq!(ended.outcome, StepResult::failed("took longer than 1 min"));
        }
        // Their output is closed: nothing is left that holds it, else this would not end.
        drop(sender);
        assert!(
            events
                .iter()
                .all(|event| matches!(event, StepEvent::End(_)))
        );
    }

    #[test]
    fn a_step_does_not_run_where_one_that_it_needs_has_failed() {
        let failed = not_run(&Step::new("build", "x", 100), "set-up");
        assert_eq!(failed.counts, Counts::FAILED);
        let tests = Step::new("tests", "x", 100).needs(&["set-up", "build"]);
        assert_eq!(missing(&tests, &[failed]), Some("build"));
        let passed = Ended {
            counts: Counts::PASSED,
            ..not_run(&Step::new("build", "x", 100), "")
        };
        assert_eq!(missing(&tests, &[passed]), None);
        let only_after = Step::new("lints", "x", 100).after(&["build"]);
        let failed = not_run(&Step::new("build", "x", 100), "");
        assert_eq!(missing(&only_after, &[failed]), None);
    }

    #[test]
    fn steps_begin_in_order_when_they_fit_and_what_they_wait_for_has_ended() {
        let steps = [
            Step::new("first", "x", 100),
            Step::new("second", "x", 100).after(&["first"]),
            Step::new("third", "x", 80),
            Step::new("large", "x", 900),
        ];
        let mut waiting = VecDeque::from(steps);
        let mut begun = || next(&mut waiting, &[], 200).map(|step| step.name);
        // Nothing runs here, so that each step that was taken counts as ended.
        assert_eq!(begun(), Some("first"));
        assert_eq!(begun(), Some("second"));
        assert_eq!(begun(), Some("third"));
        assert_eq!(begun(), Some("large"));
        assert_eq!(begun(), None);
        let mut waiting = VecDeque::from([
            Step::new("third", "x", 100).needs(&["second"]),
            Step::new("second", "x", 100).after(&["first"]),
            Step::new("first", "x", 100),
        ]);
        assert_eq!(
            next(&mut waiting, &[], 200).map(|step| step.name),
            Some("first")
        );
    }
}
