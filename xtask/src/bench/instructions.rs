//! User-mode instructions per operation, counted by Valgrind: a figure without noise where the
//! machine's own counters cannot be read, as in most virtual machines.
//!
//! The server runs below Cachegrind and does a few operations in one run and many in another; the
//! difference of the totals, divided by the difference of the operations, leaves start, login and
//! end out. What the kernel does is not in it, nor what an instruction costs. The server is some
//! thirty times slower than by itself and the client is not, so at depth it always finds all
//! commands waiting.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_tests::server::{Server, free_port};

use super::Plan;
use super::point::Point;
use super::rounds::load;
use super::server::{Ours, fill, url};
use crate::command::find_program;
use crate::servers::Backend;
use crate::workspace;

/// How many operations are counted.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Operations of the short run: until everything is warm.
    pub few: u64,
    /// How many more the long one has.
    pub more: u64,
}

/// Length of a run that makes the table.
const LENGTH: Length = Length {
    few: 2_000,
    more: 40_000,
};

/// Keeps the C library from copying by a string instruction, of which Valgrind counts each byte.
const COPY_BY_VECTORS: &str = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000";

/// How long the server may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A table of both sides that `servers` gives for a point; nothing where Valgrind is missing.
pub fn table<'a>(
    plan: &Plan,
    points: &[Point],
    names: [&str; 2],
    servers: impl Fn(Point) -> [(Point, Ours<'a>); 2],
) -> Result<String> {
    if find_program("valgrind").is_none() {
        println!("SKIPPED instruction counts: valgrind is not installed");
        return Ok(String::new());
    }
    let [first, second] = names;
    let mut table = format!(
        "\nUser-mode instructions per operation, engine {}:\n\n\
         | volume | operation | QD | {first} | {second} | {second}/{first} |\n|---|---|---|---|---|---|\n",
        plan.engine
    );
    for &point in points {
        let [first, second] = servers(point);
        let length = match plan.quick {
            true => Length {
                more: LENGTH.more / 10,
                ..LENGTH
            },
            false => LENGTH,
        };
        let first = per_operation(plan, first.0, &first.1, length)?;
        let second = per_operation(plan, second.0, &second.1, length)?;
        let ratio = second / first;
        println!("{:30} {first:>8.0} {second:>8.0} {ratio:.3}", point.name());
        table += &format!(
            "{} {first:.0} | {second:.0} | {ratio:.3} |\n",
            point.cells()
        );
    }
    Ok(table)
}

/// What one operation takes.
pub fn per_operation(plan: &Plan, point: Point, ours: &Ours<'_>, length: Length) -> Result<f64> {
    let Length { few, more } = length;
    let short = total(plan, point, ours, few)?;
    let long = total(plan, point, ours, few + more)?;
    #[allow(clippy::cast_precision_loss)] // Totals of a few seconds are far below 2^52.
    Ok(long.saturating_sub(short) as f64 / more as f64)
}

/// Instructions of a server from start to end, with so many operations between.
fn total(plan: &Plan, point: Point, ours: &Ours<'_>, operations: u64) -> Result<u64> {
    let folder = workspace::work_folder("bench")?;
    let log = folder.join("cachegrind.log");
    let tool = [
        "--tool=cachegrind".to_owned(),
        "--cache-sim=no".to_owned(),
        "--cachegrind-out-file=/dev/null".to_owned(),
        format!("--log-file={}", log.display()),
    ];
    below_valgrind(plan, point, ours, operations, &tool)?;
    total_of(&std::fs::read_to_string(&log)?)
}

/// Writes how often each instruction of a server is executed, from start to end, with so many operations between.
pub fn profile(
    plan: &Plan,
    point: Point,
    ours: &Ours<'_>,
    operations: u64,
    to: &Path,
) -> Result<()> {
    let tool = [
        "--tool=callgrind".to_owned(),
        "--dump-instr=yes".to_owned(),
        format!("--callgrind-out-file={}", to.display()),
        format!("--log-file={}", to.with_extension("log").display()),
    ];
    below_valgrind(plan, point, ours, operations, &tool)
}

/// A server below a tool of Valgrind, from start to end, with so many operations between.
fn below_valgrind(
    plan: &Plan,
    point: Point,
    ours: &Ours<'_>,
    operations: u64,
    tool: &[String],
) -> Result<()> {
    let mut wrapper = vec![
        "env".to_owned(),
        COPY_BY_VECTORS.to_owned(),
        "valgrind".to_owned(),
    ];
    wrapper.extend_from_slice(tool);
    let counted = Ours {
        wrapper: &wrapper,
        ..*ours
    };
    let portal = free_port();
    let count = format!("--operations {operations}");
    let loads = AtomicBool::new(false);
    awake(portal, &loads, || -> Result<()> {
        let mut builder = counted.builder()?;
        if ours.program == plan.client {
            // How often it polls depends on time. An earlier program may not know the option.
            builder = builder.argument("--spin").argument("off");
        }
        let server: Server = builder.iscsi_at(portal, "").start()?;
        if point.backend == Backend::Memory {
            fill(plan, &server)?;
        }
        loads.store(true, Ordering::Relaxed);
        load(plan, point, &url(&server, point.protocol), &count)?;
        loads.store(false, Ordering::Relaxed);
        server.stop(END_LIMIT)?;
        Ok(())
    })
    .with_context(|| format!("count instructions of {}", point.name()))
}

/// Connects now and then while `work` goes on: with io_uring, a thread that waits keeps all others
/// of the process from running below Valgrind, and start and end wait for them. Less often while it `loads`: what
/// that costs is counted.
fn awake<T>(portal: SocketAddr, loads: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let loads = loads.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(if loads { 2_000 } else { 50 }));
                // Refused before the server is up and after its end.
                let _ = TcpStream::connect_timeout(&portal, Duration::from_secs(1));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// From the line `==123== I   refs:      1,234,567`.
fn total_of(log: &str) -> Result<u64> {
    let line = log.lines().find_map(|line| line.split_once("refs:"));
    let (_, number) = line.context("Cachegrind gave no total")?;
    let digits = number.trim().replace(',', "");
    digits.parse().with_context(|| format!("{number:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_cachegrind_is_found() {
        let log = "==1== Command: longshore serve\n==1== \n==1== I   refs:      186,066,672\n";
        assert_eq!(total_of(log).unwrap(), 186_066_672);
        assert!(total_of("==1== Command\n").is_err());
    }
}
