//! iSCSI beside Debian's `tgt`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Plan;
use super::page;
use super::point::{self, Protocol};
use super::rounds::{Side, measure, side_by_side};
use super::server::{CLIENT_CORE, Ours, SERVER_CORE, VOLUME_SIZE, pinned, side, written_file};
use crate::command::run_checked;
use crate::servers::{Backend, Kind, Running, Setup};
use crate::workspace;

/// Measures all points; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let points = plan.chosen(point::beside_tgt(plan.quick));
    if points.is_empty() {
        return Ok(0);
    }
    let program = workspace::server_program()?;
    let mut rows = Vec::new();
    for backend in [Backend::File, Backend::Null] {
        let mut points = points.iter().filter(|p| p.backend == backend).peekable();
        if points.peek().is_none() {
            continue;
        }
        let ours = Ours {
            program: &program,
            backend,
            engine: &plan.engine,
            nvme: false,
            wrapper: &[],
            options: &[],
            folder: "longshore",
        };
        let ours = ours.start(plan)?;
        let theirs = start_tgt(backend, plan)?;
        let sides = [
            side("longshore", &ours, Protocol::Iscsi),
            Side {
                name: "tgt",
                url: theirs.url(0),
                pid: theirs.pid(),
            },
        ];
        for &point in points {
            rows.push(measure(plan, point, [&sides[0], &sides[1]])?);
        }
    }
    let mut text = page::conditions(plan, &[("tgt", page::tgt_version())])?;
    text += &side_by_side(&rows, "longshore", "tgt");
    if !plan.quick && plan.only.is_none() {
        text += "\n`iscsi-perf` (4 KiB random reads of a null volume, 32 deep), a third-party client, in a single run \
                 for each server:\n\n";
        text += &iscsi_perf(&plan.engine)?;
    }
    plan.publish("beside tgt", &text)?;
    Ok(rows.len())
}

/// `tgt` with a volume of this kind.
fn start_tgt(backend: Backend, plan: &Plan) -> Result<Running> {
    let folder = workspace::work_folder("bench/tgt")?;
    if backend == Backend::File {
        written_file(&folder)?;
    }
    started(Kind::Tgt, backend, &plan.engine, &folder)
}

fn started(kind: Kind, backend: Backend, engine: &str, folder: &Path) -> Result<Running> {
    let below = pinned(SERVER_CORE);
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let setup = Setup {
        kind,
        backend,
        size: VOLUME_SIZE,
        block_size: 512,
        engine,
        portals: 1,
        below: &below,
        folder,
        keep_file: backend == Backend::File,
        lockable_bytes: None,
    };
    setup.start()
}

/// The same question asked by a client we did not write: `iscsi-perf` of libiscsi, which counts by
/// itself.
fn iscsi_perf(engine: &str) -> Result<String> {
    let mut lines = String::new();
    for kind in [Kind::Longshore, Kind::Tgt] {
        let folder = workspace::work_folder("bench/iscsi-perf")?;
        let server = started(kind, Backend::Null, engine, &folder)?;
        let mut words = pinned(CLIENT_CORE);
        words.extend(["iscsi-perf", "-r", "-m", "32", "-b", "8", "-t", "3"].map(str::to_owned));
        words.push(server.url(0));
        let before = server.process().cpu_time()?;
        let output = run_checked(
            Command::new(&words[0]).args(&words[1..]),
            Duration::from_secs(30),
        )?;
        let used = server.process().cpu_time()?.saturating_sub(before);
        // It overwrites its line by carriage returns; the last one holds the average of the run.
        let average = output
            .split(['\r', '\n'])
            .filter_map(|line| line.split_once("iops average "))
            .filter_map(|(_, rest)| rest.split(',').next())
            .next_back()
            .map_or("no figure", str::trim);
        lines += &format!(
            "- {}: {average} IOPS, {used:.1?} of CPU in all\n",
            kind.name()
        );
    }
    Ok(lines)
}
