//! Whether what a running server tells of an operation adds up to the round trip that its client measures.
//!
//! A server sees its stages and the round trips of TCP. The client adds its own processor time.

use std::fmt::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use longshore_model::probe::Direction;
use longshore_model::random::Random;
use serde_json::Value;

use super::super::Plan;
use super::draw::{Device, Link, Load, SetUp, between, one_of};
use super::rig::{Net, Served};
use super::table::{progress, say, summary};
use crate::bench::point::Protocol;
use crate::command::run_checked;

const SECTION: &str = "netlab, stages";

const COUNT: usize = 16;
const COUNT_QUICK: usize = 1;

/// How long the load runs before the server is asked, and how long it is watched.
const BEFORE: Duration = Duration::from_millis(700);
const WATCHED: Duration = Duration::from_secs(2);

/// Measures all set-ups; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let mut random = Random::named(plan.netlab.seed(), SECTION);
    let count = if plan.quick { COUNT_QUICK } else { COUNT };
    let bar = progress("netlab, stages", count);
    let mut text = plan.machine()?;
    text +=
        "\n| set-up | protocol | client, µs | parts, µs | difference, % |\n|---|---|---|---|---|\n";
    let mut differences = Vec::new();
    for number in 0..count {
        let set_up = draw(&mut random, number);
        bar.set_message(set_up.to_string());
        let [client, parts] = measure(plan, &set_up)?;
        let difference = 100.0 * (parts / client - 1.0);
        let name = match set_up.protocol {
            Protocol::Iscsi => "iSCSI",
            Protocol::Nvme => "NVMe/TCP",
        };
        let line = format!("| {set_up} | {name} | {client:.0} | {parts:.0} | {difference:+.1} |");
        say(&bar, &line);
        let _ = writeln!(text, "{line}");
        differences.push(difference);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some([median, _, worst]) = summary(differences) {
        let _ = writeln!(
            text,
            "\nMedian difference {median:.1} %, worst {worst:.1} %."
        );
    }
    if plan.quick {
        println!("\n{text}");
    } else {
        plan.publish(SECTION, &text)?;
    }
    Ok(count)
}

fn draw(random: &mut Random, number: usize) -> SetUp {
    let protocol = [Protocol::Iscsi, Protocol::Nvme][number % 2];
    let direction = [Direction::Read, Direction::Write][number / 2 % 2];
    let base = SetUp::plain(protocol);
    SetUp {
        link: Link {
            delay_us: one_of(random, &[0, 500, 2000]),
            mtu: 9000,
            ..base.link
        },
        device: Device {
            delay_us: between(random, 200.0, 5000.0),
            rate: 0,
        },
        load: Load {
            direction,
            size: one_of(random, &[4 << 10, 16 << 10]),
            depth: one_of(random, &[1, 4]),
        },
        ..base
    }
}

/// Mean latency of the client, and the sum of the parts, in microseconds.
fn measure(plan: &Plan, set_up: &SetUp) -> Result<[f64; 2]> {
    let net = Net::new(&set_up.link)?;
    let served = Served::start(plan, &net, set_up, 0, 1)?;
    let time = BEFORE + WATCHED + Duration::from_millis(800);
    let options = format!(
        "{} --time {}ms --warmup 300ms",
        set_up.load.options(),
        time.as_millis()
    );
    let (report, explained) = thread::scope(|scope| {
        let load = scope.spawn(|| served.bench(plan, &options));
        thread::sleep(BEFORE);
        let mut explain = Command::new(&plan.program);
        explain.args(["explain", "--output", "json", "--interval"]);
        explain.arg(format!("{}ms", WATCHED.as_millis()));
        explain.arg("--server").arg(served.socket());
        let explained = run_checked(&mut explain, Duration::from_secs(60));
        let report = load
            .join()
            .map_err(|_| anyhow!("the thread of the load panicked"));
        (report, explained)
    });
    let (report, explained) = (report??, explained?);
    let explained: Value = serde_json::from_str(&explained).context("what explain prints")?;
    let seen = explained.pointer("/pipelines/0/round_trip_us/value");
    let seen = seen
        .and_then(Value::as_f64)
        .context("explain shows no operation")?;
    let client = report.number("/latency_ns/mean")? / 1e3;
    Ok([client, seen + report.number("/client_cpu_us_per_op")?])
}
