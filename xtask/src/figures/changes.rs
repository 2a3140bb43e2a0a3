//! Loads of both protocols that check what they read, while another volume is created, mapped, resized, unmapped and
//! removed: beside the same loads while nothing changes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use longshore_tests::api::ApiAddress;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::{Value, json};

use super::Plan;
use super::load::{Report, by_turns, words};
use crate::bench::load;
use crate::bench::point::Protocol;
use crate::bench::rounds::Figure;
use crate::bench::server::{CLIENT_CORE, SERVER_CORE, pinned};

const TARGET: &str = "iqn.2026-11.local.longshore:changes";
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:changes";

/// How often the third volume comes and goes in all.
const CHANGES: u64 = 500;
/// Requests of one of these times.
const REQUESTS: u64 = 7;
/// Time for each of them: more than the requests take.
const PERIOD: Duration = Duration::from_millis(150);
/// Operations per second of each load: less than the server can do, so that latency is that of the server.
const RATE: u64 = 4000;

const SECTION: &str = "changes";

const PROTOCOLS: [Protocol; 2] = [Protocol::Iscsi, Protocol::Nvme];

/// One run of both loads.
struct Sample {
    reports: [Report; 2],
    /// Processor time of the event loop for an operation, in microseconds.
    event_loop_us: f64,
}

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let changes = if plan.quick {
        4
    } else {
        CHANGES.div_ceil(plan.rounds)
    };
    let seconds = (PERIOD * u32::try_from(changes)?).as_secs_f64();
    let plan = &plan.lasting(seconds + 0.3);
    let rig = Rig::start(plan)?;
    let mut all = by_turns(plan, 2, |way| {
        rig.measure(plan, if way == 0 { 0 } else { changes })
    })?;
    let (changing, quiet) = (all.pop(), all.pop());
    let sides = [quiet, changing].map(Option::unwrap_or_default);
    let mut text = plan.conditions()?;
    writeln!(
        text,
        "{} times a volume was created, mapped by both protocols, resized, unmapped and removed: {} changes. No operation \
         failed, and no block was wrong.\n",
        changes * plan.rounds,
        changes * plan.rounds * REQUESTS
    )?;
    text += "| | p50 µs: quiet | beside changes | p99 µs: quiet | beside changes | times | worst spread | p99.9 µs: quiet | beside changes | errors |\n";
    writeln!(text, "|{}", "---|".repeat(10))?;
    for (number, protocol) in PROTOCOLS.into_iter().enumerate() {
        let of = |side: usize, what: &str| -> Result<Figure> {
            let reports = sides[side].iter().map(|sample| &sample.reports[number]);
            let values = reports.map(|report| report.number(&format!("/latency_ns/{what}")));
            Ok(Figure::of(values.collect::<Result<_>>()?))
        };
        let pair = |what: &str| -> Result<[Figure; 2]> { Ok([of(0, what)?, of(1, what)?]) };
        let (p50, p99, slowest) = (pair("p50")?, pair("p99")?, pair("p99_9")?);
        let spread = p99[0].spread().max(p99[1].spread());
        let name = match protocol {
            Protocol::Iscsi => "iSCSI",
            Protocol::Nvme => "NVMe/TCP",
        };
        writeln!(
            text,
            "| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {:.0} % | {:.0} | {:.0} | 0 |",
            p50[0].median / 1e3,
            p50[1].median / 1e3,
            p99[0].median / 1e3,
            p99[1].median / 1e3,
            p99[1].median / p99[0].median,
            spread * 100.0,
            slowest[0].median / 1e3,
            slowest[1].median / 1e3,
        )?;
    }
    let cpu = sides.map(|side| Figure::of(side.iter().map(|it| it.event_loop_us).collect()));
    writeln!(
        text,
        "\n| event loop, CPU µs per operation: quiet | beside changes | times | worst spread |\n|---|---|---|---|\n\
         | {:.2} | {:.2} | {:.3} | {:.0} % |",
        cpu[0].median,
        cpu[1].median,
        cpu[1].median / cpu[0].median,
        cpu[0].spread().max(cpu[1].spread()) * 100.0
    )?;
    plan.publish(SECTION, &text)?;
    Ok(PROTOCOLS.len() + 1)
}

/// A server with two volumes for loads, and room for a third.
struct Rig {
    server: Server,
    place: ApiAddress,
    third: PathBuf,
    /// Its files, which go with it.
    _scratch: Scratch,
}

impl Rig {
    fn start(plan: &Plan) -> Result<Self> {
        let scratch = Scratch::new("figure-changes");
        let (socket, state) = (scratch.join("socket"), scratch.join("state"));
        let mut builder = ServerBuilder::with_program(plan.program.clone());
        if !pinned(SERVER_CORE).is_empty() {
            // The event loop alone: changes are the work of other threads.
            builder = builder.argument("--cores").argument(SERVER_CORE);
        }
        let server = builder
            .volume("disk0,backend=null,size=1M")
            .argument("--socket")
            .argument(&socket.display().to_string())
            .argument("--state-dir")
            .argument(&state.display().to_string())
            .iscsi()
            .nvme()
            .start()?;
        let rig = Self {
            server,
            place: ApiAddress::Socket(socket),
            third: scratch.join("third.img"),
            _scratch: scratch,
        };
        for name in ["one", "two"] {
            let keys = json!({ "backend": "mem", "size": "64M" });
            rig.ask("PUT", &format!("/volumes/{name}"), Some(&keys))?;
        }
        let luns = json!({ "luns": [{ "lun": 0, "volume": "one" }] });
        rig.ask("PUT", &format!("/targets/{TARGET}"), Some(&luns))?;
        let namespaces = json!({ "namespaces": [{ "nsid": 1, "volume": "two" }] });
        rig.ask(
            "PUT",
            &format!("/subsystems/{SUBSYSTEM}"),
            Some(&namespaces),
        )?;
        Ok(rig)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
        let path = format!("/api/v1{path}");
        let reply = self.place.ask(method, &path, body)?;
        ensure!(
            (200..300).contains(&reply.status),
            "{method} {path}: {} {}",
            reply.status,
            reply.body
        );
        Ok(())
    }

    fn url(&self, protocol: Protocol) -> String {
        match protocol {
            Protocol::Iscsi => format!("iscsi://{}/{TARGET}/0", self.server.portal(0)),
            Protocol::Nvme => format!("nvme+tcp://{}/{SUBSYSTEM}/1", self.server.nvme(0)),
        }
    }

    /// Runs both loads, and so many changes of the third volume meanwhile.
    fn measure(&self, plan: &Plan, changes: u64) -> Result<Sample> {
        let options = format!(
            "--rw randrw --bs 4k --iodepth 16 --rate {RATE} --verify --warmup 0s --time {}s",
            plan.seconds
        );
        let options = words(&options);
        let before = event_loop_ns(self.server.pid())?;
        let reports = thread::scope(|scope| {
            let loads = PROTOCOLS.map(|protocol| {
                let (url, options) = (self.url(protocol), &options);
                let client = pinned(CLIENT_CORE);
                scope.spawn(move || load::bench_below(&client, &plan.program, &url, options))
            });
            let changed = self.change(changes);
            let reports = loads.map(|load| load.join().expect("a load does not panic"));
            changed.map(|()| reports)
        })?;
        let [one, two] = reports;
        let reports = [one?, two?];
        let used = event_loop_ns(self.server.pid())? - before;
        let mut operations = 0.0;
        for report in &reports {
            operations += report.number("/operations")?;
            ensure!(report.number("/verify/faults")? == 0.0, "a block was wrong");
            ensure!(
                report.number("/errors/0/count").is_err(),
                "operations failed"
            );
        }
        Ok(Sample {
            reports,
            event_loop_us: used / 1e3 / operations,
        })
    }

    /// One after the other, at the pace that the loads leave room for.
    fn change(&self, count: u64) -> Result<()> {
        let began = Instant::now();
        for number in 0..count {
            let due = PERIOD * u32::try_from(number)?;
            thread::sleep(due.saturating_sub(began.elapsed()));
            self.come_and_go()?;
        }
        let took = began.elapsed();
        // Those that come after the loads would count for nothing.
        if took > PERIOD * u32::try_from(count)? * 11 / 10 + Duration::from_millis(200) {
            bail!("{count} times took {took:.1?}: too long for the loads beside them");
        }
        Ok(())
    }

    fn come_and_go(&self) -> Result<()> {
        let lun = format!("/targets/{TARGET}/luns/1");
        let namespace = format!("/subsystems/{SUBSYSTEM}/namespaces/2");
        let keys = json!({ "backend": "file", "path": self.third, "size": "1M" });
        let volume = json!({ "volume": "third" });
        self.ask("PUT", "/volumes/third", Some(&keys))?;
        self.ask("PUT", &lun, Some(&volume))?;
        self.ask("PUT", &namespace, Some(&volume))?;
        self.ask("PATCH", "/volumes/third", Some(&json!({ "size": "2M" })))?;
        self.ask("DELETE", &format!("{lun}?drain"), None)?;
        self.ask("DELETE", &format!("{namespace}?drain"), None)?;
        self.ask("DELETE", "/volumes/third", None)?;
        let began = Instant::now();
        while has_open(self.server.pid(), &self.third)? {
            ensure!(
                began.elapsed() < Duration::from_secs(30),
                "the volume stays open"
            );
            thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(&self.third)?;
        Ok(())
    }
}

/// Whether a process has this file open.
fn has_open(pid: u32, path: &Path) -> Result<bool> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let mut targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(targets.any(|target| target == path))
}

/// Processor time of the event loops of a server, in nanoseconds.
fn event_loop_ns(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path();
        // Threads of changes end meanwhile.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else {
            continue;
        };
        if name.starts_with("reactor-") {
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            let used = text.split(' ').next().context("schedstat")?;
            sum += used.parse::<f64>().context("schedstat")?;
        }
    }
    ensure!(sum > 0.0, "no event loop was found in process {pid}");
    Ok(sum)
}
