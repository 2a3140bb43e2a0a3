//! Compares the default of `spin` with fixed values: for sleeping and polling clients, on cores that idle and
//! cores that do not.
//!
//! One server for each setting runs all the time, and the load visits them in turn. `iscsi-perf` (libiscsi)
//! and `qemu-img bench` are measured where they are installed, and SPDK's `spdk_nvme_perf` where `--spdk`
//! names it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::Server;

use super::Plan;
use super::load::{bench, by_turns, words};
use crate::bench::point::{Protocol, bytes};
use crate::bench::rounds::Figure;
use crate::bench::server::{CLIENT_CORE, Ours, SERVER_CORE, SPAN, pinned, url};
use crate::command::{find_program, run_checked};
use crate::servers::Backend;

/// What is compared; the first is the default.
const SETTINGS: [&str; 4] = ["auto", "off", "50", "300"];

/// Operations of a run of `qemu-img bench`, which has no time limit, by depth.
const QEMU_OPERATIONS: [u32; 2] = [10_000, 100_000];

/// The source of the load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// `longshore bench`, asleep until an answer comes.
    Sleeping(Protocol),
    Polling(Protocol),
    IscsiPerf,
    QemuImg,
    SpdkPerf,
}

#[derive(Clone, Copy)]
struct Point {
    client: Client,
    backend: Backend,
    operation: &'static str,
    size: u32,
    depth: u32,
}

/// The result of a run.
struct Sample {
    iops: f64,
    /// Share of its core that the server took.
    busy_percent: f64,
}

/// Keeps a core from idling deeply: whatever else wants the core takes it at once.
struct Spinner(Child);

impl Spinner {
    fn start(core: &str) -> Result<Self> {
        let all = format!("taskset -c {core} chrt --idle 0 sh -c");
        let mut words = words(&all);
        words.push("while :; do :; done".to_owned());
        let mut command = Command::new(&words[0]);
        let child = command.args(&words[1..]).stdin(Stdio::null()).spawn();
        Ok(Self(child.context("start taskset, chrt, sh")?))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let mut text = plan.conditions()?;
    let mut count = 0;
    let machines: &[bool] = if plan.quick { &[false] } else { &[false, true] };
    for &kept_awake in machines {
        let cores = [SERVER_CORE, CLIENT_CORE];
        // They keep the cores busy until the table is complete.
        let _spinners = cores
            .iter()
            .filter(|_| kept_awake)
            .map(|core| Spinner::start(core))
            .collect::<Result<Vec<_>>>()?;
        text += if kept_awake {
            "\nBoth cores kept from idling (a loop of class SCHED_IDLE), so that wake-ups are cheap:\n"
        } else {
            "Cores that idle as the machine has them:\n"
        };
        text += "\n| client | volume | operation | QD |";
        for setting in SETTINGS {
            text += &format!(" {setting}: k IOPS | busy |");
        }
        text += " default / best | worst spread |\n|---|---|---|---|";
        text += &"---|---|".repeat(SETTINGS.len());
        text += "---|---|\n";
        for backend in [Backend::Null, Backend::File] {
            let points: Vec<Point> = points(plan, kept_awake)
                .into_iter()
                .filter(|point| point.backend == backend)
                .collect();
            if points.is_empty() {
                continue;
            }
            let servers = start(plan, backend)?;
            for point in points {
                let line = point.measure(plan, &servers)?;
                print!("{line}");
                text += &line;
                count += 1;
            }
        }
    }
    plan.publish("polling", &text)?;
    Ok(count)
}

fn start(plan: &Plan, backend: Backend) -> Result<Vec<Server>> {
    let servers = SETTINGS.iter().map(|setting| {
        let ours = Ours {
            program: &plan.program,
            backend,
            engine: "auto",
            nvme: true,
            wrapper: &[],
            options: &["--cores", SERVER_CORE, "--spin", setting],
            folder: &format!("polling-{setting}"),
        };
        Ok(ours.builder()?.iscsi().start()?)
    });
    servers.collect()
}

fn points(plan: &Plan, kept_awake: bool) -> Vec<Point> {
    let sleeping = Client::Sleeping(Protocol::Iscsi);
    let of = |client, backend, operation, size, depths: &[u32]| -> Vec<Point> {
        let point = |&depth: &u32| Point {
            client,
            backend,
            operation,
            size,
            depth,
        };
        depths.iter().map(point).collect()
    };
    if plan.quick {
        return of(sleeping, Backend::Null, "read", 4096, &[1, 16]);
    }
    let all = [1, 4, 8, 16, 32, 128];
    let some = [1, 16, 128];
    let mut points = Vec::new();
    for protocol in [Protocol::Iscsi, Protocol::Nvme] {
        let clients = [Client::Sleeping(protocol), Client::Polling(protocol)];
        if kept_awake {
            points.extend(of(clients[0], Backend::Null, "read", 4096, &some));
            continue;
        }
        for client in clients {
            points.extend(of(client, Backend::Null, "read", 4096, &all));
            points.extend(of(client, Backend::Null, "read", 512, &some));
            points.extend(of(client, Backend::Null, "write", 4096, &some));
            points.extend(of(client, Backend::File, "read", 4096, &some));
            points.extend(of(client, Backend::File, "write", 4096, &some));
        }
    }
    let depths: &[u32] = if kept_awake { &some } else { &all };
    for client in [Client::IscsiPerf, Client::QemuImg, Client::SpdkPerf] {
        if client.is_here(plan) {
            points.extend(of(client, Backend::Null, "read", 4096, depths));
        } else {
            println!("SKIPPED {}: not installed", client.name());
        }
    }
    points
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Sleeping(Protocol::Iscsi) => "longshore, iSCSI, sleeps",
            Self::Sleeping(Protocol::Nvme) => "longshore, NVMe, sleeps",
            Self::Polling(Protocol::Iscsi) => "longshore, iSCSI, polls",
            Self::Polling(Protocol::Nvme) => "longshore, NVMe, polls",
            Self::IscsiPerf => "iscsi-perf, sleeps",
            Self::QemuImg => "qemu-img bench, iSCSI, sleeps",
            Self::SpdkPerf => "spdk_nvme_perf, polls",
        }
    }

    fn is_here(self, plan: &Plan) -> bool {
        match self {
            Self::Sleeping(_) | Self::Polling(_) => true,
            Self::IscsiPerf => find_program("iscsi-perf").is_some(),
            Self::QemuImg => find_program("qemu-img").is_some(),
            Self::SpdkPerf => plan.spdk.is_some(),
        }
    }

    fn protocol(self) -> Protocol {
        match self {
            Self::Sleeping(protocol) | Self::Polling(protocol) => protocol,
            Self::IscsiPerf | Self::QemuImg => Protocol::Iscsi,
            Self::SpdkPerf => Protocol::Nvme,
        }
    }
}

impl Point {
    /// Measures all settings by turns. Returns a row of the table.
    fn measure(self, plan: &Plan, servers: &[Server]) -> Result<String> {
        let all = by_turns(plan, SETTINGS.len(), |setting| {
            self.sample(plan, &servers[setting])
        })?;
        let iops: Vec<Figure> = all
            .iter()
            .map(|samples| Figure::of(samples.iter().map(|s| s.iops).collect()))
            .collect();
        let mut line = format!(
            "| {} | {} | {} {} | {} |",
            self.client.name(),
            self.backend.name(),
            self.operation,
            bytes(self.size),
            self.depth
        );
        for (samples, iops) in all.iter().zip(&iops) {
            let busy = Figure::of(samples.iter().map(|s| s.busy_percent).collect());
            line += &format!(" {:.1} | {:.0} % |", iops.median / 1e3, busy.median);
        }
        let fixed = iops[1..].iter().map(|figure| figure.median);
        let best = fixed.fold(f64::MIN_POSITIVE, f64::max);
        let spread = iops.iter().map(Figure::spread).fold(0.0, f64::max);
        line += &format!(
            " {:.2} | {:.0} % |\n",
            iops[0].median / best,
            spread * 100.0
        );
        Ok(line)
    }

    fn sample(self, plan: &Plan, server: &Server) -> Result<Sample> {
        let url = url(server, self.client.protocol());
        let Self { size, depth, .. } = self;
        let before = ran_ns(server.pid())?;
        let began = std::time::Instant::now();
        let iops = match self.client {
            Client::Sleeping(_) => self.bench(plan, &url, "")?,
            Client::Polling(_) => self.bench(plan, &url, "--spin")?,
            Client::IscsiPerf => {
                let seconds = plan.seconds.ceil().max(1.0);
                let blocks = size / 512;
                let output = run_pinned(&format!(
                    "iscsi-perf -r -m {depth} -b {blocks} -t {seconds} {url}"
                ))?;
                // It overwrites its line by carriage returns; the last one holds the average of the run.
                number_after(&output, "iops average ")?
            }
            Client::QemuImg => {
                let count = QEMU_OPERATIONS[usize::from(depth > 4)];
                let output = run_pinned(&format!(
                    "qemu-img bench -f raw -t none -c {count} -d {depth} -s {size} {url}"
                ))?;
                f64::from(count) / number_after(&output, "completed in ")?
            }
            Client::SpdkPerf => {
                let program = plan.spdk.as_deref().context("--spdk")?;
                let output = self.spdk(plan, server, program)?;
                let total = output.lines().rfind(|line| line.contains("Total"));
                number_after(total.context("spdk_nvme_perf: no total")?, ":")?
            }
        };
        let elapsed_ns = began.elapsed().as_secs_f64() * 1e9;
        let ran = ran_ns(server.pid())? - before;
        Ok(Sample {
            iops,
            busy_percent: ran / elapsed_ns * 100.0,
        })
    }

    fn bench(self, plan: &Plan, url: &str, option: &str) -> Result<f64> {
        let options = format!(
            "--rw rand{} --bs {} --iodepth {} --span {SPAN} --flow-control off {option}",
            self.operation, self.size, self.depth
        );
        bench(plan, url, &words(&options))?.number("/iops")
    }

    fn spdk(self, plan: &Plan, server: &Server, program: &Path) -> Result<String> {
        let address = server.nvme(0);
        let mut all = words(&format!(
            "{} -q {} -o {} -w rand{} -t {} -c 0x2 -r",
            program.display(),
            self.depth,
            self.size,
            self.operation,
            plan.seconds.ceil().max(1.0)
        ));
        all.push(format!(
            "trtype:TCP adrfam:IPv4 traddr:{} trsvcid:{} subnqn:{SUBSYSTEM} \
             hostnqn:nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555",
            address.ip(),
            address.port()
        ));
        let mut command = Command::new(&all[0]);
        run_checked(command.args(&all[1..]), Duration::from_secs(60))
    }
}

fn run_pinned(line: &str) -> Result<String> {
    let mut all = pinned(CLIENT_CORE);
    all.extend(words(line));
    let mut command = Command::new(&all[0]);
    run_checked(command.args(&all[1..]), Duration::from_secs(120))
}

/// The number behind the last place of `mark`.
fn number_after(output: &str, mark: &str) -> Result<f64> {
    let (_, rest) = output
        .rsplit_once(mark)
        .with_context(|| format!("the client printed no {mark:?}"))?;
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let rest = rest.trim_start();
    let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
    rest[..end].parse().context("the client's figure")
}

/// Nanoseconds that the threads of a process have been on a processor.
fn ran_ns(pid: u32) -> Result<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let first = text.split_whitespace().next().context("schedstat")?;
        total += first.parse::<f64>()?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figure_of_a_client_counts() {
        let output = "iops average 120 (0 MB/s)\riops average 3456, \n";
        assert_eq!(number_after(output, "iops average ").unwrap(), 3456.0);
        let output = "Run completed in 1.234 seconds.";
        assert_eq!(number_after(output, "completed in ").unwrap(), 1.234);
        assert!(number_after("nothing", "iops average ").is_err());
    }
}
