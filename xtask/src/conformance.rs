//! The libiscsi suite against the server: one process per test, every skip accounted for.
//!
//! One process per test keeps one crash of the tool from hiding the rest, and keeps hooks that a
//! test leaves in the client (`CompareAndWrite.InvalidDataOutSize` does) out of the next one.
//! The tool counts a test that it skipped as passed; here it is skipped, or passed in part when
//! some of its checks ran, and both need an entry with a reason in
//! `tests/conformance/skips.toml`. A missing entry fails the run, and so does one that no test
//! matched any more.

mod kind;
mod outcome;
mod table;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::{run_captured, run_checked};
use crate::counts::Counts;
use crate::kernel::last_lines;
use crate::rotation::Part;
use crate::servers::{self, Backend, Kind, Running, Setup};
use crate::workspace;
use outcome::TestOutcome;
use table::Table;

/// A test that takes longer has hung; the slowest takes 3 s against a slow server.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// It looks again and again, over a minute, whether an overwrite goes on that it has begun.
const LONG_TEST: &str = "Sanitize.Reset";
const LONG_TEST_LIMIT: Duration = Duration::from_secs(240);
/// An overwrite of so much takes that long, even where nothing is stored.
const LONG_TEST_SIZE: u64 = 2 << 40;

/// Configurations that run at the same time. Tests of one configuration share a logical unit and
/// its reservations, so they run one after the other.
const PARALLEL: usize = 2;

/// The configuration of each landing.
const ALWAYS: &str = "file-512-io_uring";

/// Large enough for every test, small enough to be held in memory.
const VOLUME_SIZE: u64 = 1 << 30;

/// One volume on one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Configuration {
    backend: Backend,
    block_size: u32,
    engine: &'static str,
    /// As an ordinary user who may lock so much memory; none means as whoever runs the suite.
    lockable_bytes: Option<u64>,
}

impl Configuration {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for engine in ["io_uring", "epoll"] {
            for backend in [Backend::File, Backend::Memory, Backend::Pool] {
                for block_size in [512, 4096] {
                    all.push(Self {
                        backend,
                        block_size,
                        engine,
                        lockable_bytes: None,
                    });
                }
            }
        }
        // What a mirror does differently does not depend on blocks and engines.
        all.push(Self {
            backend: Backend::Mirror,
            block_size: 512,
            engine: "io_uring",
            lockable_bytes: None,
        });
        // What tests that run as root hide: io_uring's rings count as locked memory. The default
        // limit has room for them, and 64 KiB leave epoll.
        for lockable_bytes in [8 << 20, 64 << 10] {
            all.push(Self {
                backend: Backend::Memory,
                block_size: 512,
                engine: "auto",
                lockable_bytes: Some(lockable_bytes),
            });
        }
        all
    }

    fn name(self) -> String {
        let user = self
            .lockable_bytes
            .map_or_else(String::new, |b| format!("-locks-{}k", b >> 10));
        let mirror = match self.backend {
            Backend::Mirror => "-mirror",
            _ => "",
        };
        format!(
            "{}{mirror}-{}-{}{user}",
            self.backend.name(),
            self.block_size,
            self.engine
        )
    }
}

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let kind = Kind::parse(arguments.value("--server")?.as_deref())?;
    // The suite's own names begin with ALL.
    let only = arguments
        .value("--only")?
        .map(|name| name.trim_start_matches("ALL.").to_owned());
    let configuration = arguments.value("--configuration")?;
    let write_table = arguments.flag("--list-skips");
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;

    let tests = list_tests(only.as_deref())?;
    let mut configurations = match kind {
        Kind::Longshore => Configuration::all(),
        // tgt has files and one engine only.
        Kind::Tgt => Configuration::all()
            .into_iter()
            .filter(|c| c.backend == Backend::File && c.engine == "epoll")
            .collect(),
    };
    configurations.retain(|c| {
        configuration
            .as_ref()
            .is_none_or(|name| c.name().contains(name))
    });
    if configurations.is_empty() {
        bail!("no configuration matches {configuration:?}");
    }
    let is_always = |it: &Configuration| it.name() == ALWAYS;
    let configurations = part.choose("conformance", configurations, |it| it.name(), is_always);
    if kind == Kind::Longshore {
        workspace::server_program()?; // built here once, rather than by each thread
    }
    let table = Table::load(&workspace::root().join("tests/conformance/skips.toml"))?;
    let check_stale = only.is_none();
    let queue = Mutex::new(VecDeque::from(configurations));
    let total = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(next) = queue.lock().expect("no panics").pop_front() {
                        let run = Run {
                            kind,
                            configuration: next,
                            tests: &tests,
                        };
                        let (results, data) = run.all_tests()?;
                        let counts = judge(&run, &results, &table, check_stale, write_table);
                        // What failed may be found out from the data.
                        if counts.failed == 0 {
                            servers::remove(&data)?;
                        }
                        *total.lock().expect("no panics") += counts;
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().expect("workers do not panic"))
    })
    .and_then(|()| Ok(total.into_inner()?))
}

/// Names of all tests of the suite, `SUITE.TEST`.
fn list_tests(only: Option<&str>) -> Result<Vec<String>> {
    let list = run_checked(Command::new("iscsi-test-cu").arg("--list"), TEST_LIMIT)
        .context("iscsi-test-cu is in Debian's package libiscsi-bin; try cargo xtask setup")?;
    let tests: Vec<String> = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ALL."))
        .filter(|name| name.contains('.'))
        .filter(|name| only.is_none_or(|only| name.contains(only)))
        .map(str::to_owned)
        .collect();
    if tests.is_empty() {
        bail!("no test matches {only:?}");
    }
    Ok(tests)
}

/// What came of each test, by its name.
type Outcomes<'a> = Vec<(&'a str, TestOutcome)>;

struct Run<'a> {
    kind: Kind,
    configuration: Configuration,
    tests: &'a [String],
}

impl Run<'_> {
    /// The storage is no matter for that test, and its time is.
    fn has_long_test(&self) -> bool {
        let Configuration {
            backend,
            block_size,
            lockable_bytes,
            ..
        } = self.configuration;
        let is_it = (backend, block_size, lockable_bytes) == (Backend::Memory, 512, None);
        self.kind == Kind::Longshore && is_it
    }

    /// Runs it with a volume of its own, which takes long to overwrite.
    fn long_test(&self) -> Result<TestOutcome> {
        let name = self.configuration.name();
        let folder = workspace::work_folder(&format!("conformance/{name}-long"))?;
        let setup = Setup {
            kind: self.kind,
            backend: Backend::Null,
            size: LONG_TEST_SIZE,
            block_size: self.configuration.block_size,
            engine: self.configuration.engine,
            portals: 2,
            below: &[],
            folder: &folder,
            keep_file: false,
            lockable_bytes: None,
        };
        let running = setup.start()?;
        one_test(LONG_TEST, &running, LONG_TEST_LIMIT)
    }

    /// Outcomes by test, and the files that hold the volume's data.
    fn all_tests(&self) -> Result<(Outcomes<'_>, Vec<PathBuf>)> {
        let name = self.configuration.name();
        let folder = workspace::work_folder(&format!("conformance/{name}"))?;
        let setup = Setup {
            kind: self.kind,
            backend: self.configuration.backend,
            size: VOLUME_SIZE,
            block_size: self.configuration.block_size,
            engine: self.configuration.engine,
            portals: 2,
            below: &[],
            folder: &folder,
            keep_file: false,
            lockable_bytes: self.configuration.lockable_bytes,
        };
        // The last run's data must not make this one pass.
        servers::remove(&setup.data())?;
        let mut running = setup.start()?;
        let started = Instant::now();
        let mut results = Vec::new();
        for test in self.tests {
            let outcome = if test == LONG_TEST && self.has_long_test() {
                self.long_test()?
            } else {
                one_test(test, &running, TEST_LIMIT)?
            };
            if !running.process().is_running() {
                println!(
                    "{name}: the server died in {test}\n{}",
                    last_lines(&running.log(), 40)
                );
                results.push((
                    test.as_str(),
                    TestOutcome::Failed("the server died".to_owned()),
                ));
                running = setup.start()?;
                continue;
            }
            results.push((test.as_str(), outcome));
        }
        drop(running);
        println!(
            "conformance {name}: {} tests in {:.1?}",
            results.len(),
            started.elapsed()
        );
        Ok((results, setup.data()))
    }
}

fn one_test(test: &str, server: &Running, limit: Duration) -> Result<TestOutcome> {
    let mut command = Command::new("iscsi-test-cu");
    command.args(["--dataloss", "--allow-sanitize"]);
    command.args(["--test", &format!("ALL.{test}")]);
    command.args([server.url(0), server.url(1)]);
    Ok(TestOutcome::of(&run_captured(&mut command, limit)?))
}

/// Prints what is not as it should be and counts everything.
fn judge(
    run: &Run<'_>,
    results: &[(&str, TestOutcome)],
    table: &Table,
    check_stale: bool,
    list_skips: bool,
) -> Counts {
    let name = run.configuration.name();
    let mut counts = Counts::default();
    let (mut whole, mut part) = (0, 0);
    for (test, outcome) in results {
        match outcome {
            TestOutcome::Passed => {
                whole += 1;
                counts += Counts::PASSED;
            }
            TestOutcome::Failed(why) if table.excuses(test, why, &name).is_some() => {
                counts += Counts::SKIPPED;
                println!("tool {name} {test}: {why}");
            }
            TestOutcome::Failed(why) => {
                counts += Counts::FAILED;
                println!("FAIL {name} {test}: {why}");
            }
            TestOutcome::PassedInPart(why) | TestOutcome::Skipped(why) => {
                let kind = outcome.kind().expect("both have a kind");
                if list_skips {
                    println!("{kind:8} {test}: {}", why.join("; "));
                }
                if table.explains(test, kind, &name).is_none() {
                    counts += Counts::FAILED;
                    println!("FAIL {name} {test}: unexplained {kind}: {}", why.join("; "));
                } else if kind == kind::Kind::Partial {
                    part += 1;
                    counts += Counts::PASSED;
                } else {
                    counts += Counts::SKIPPED;
                }
            }
        }
    }
    if check_stale {
        for stale in table.stale(results, &name) {
            counts += Counts::FAILED;
            println!("FAIL {name}: skips.toml lists {stale}, which is not so any more");
        }
    }
    println!(
        "conformance {name}: {whole} passed, {part} passed in part, {} skipped, {} failed",
        counts.skipped, counts.failed
    );
    counts
}
