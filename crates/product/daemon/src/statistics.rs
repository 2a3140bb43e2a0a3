//! Reports of what the server has done: into a file, or a summary into the log.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use longshore_server::Statistics;
use longshore_server::observe::{Durations, ShardStatistics, StageStatistics};

/// Writes a report as JSON. Who reads the file finds the old report or the new one, whole.
pub fn write(path: &Path, statistics: &Statistics) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(statistics).map_err(io::Error::other)?;
    text.push(b'\n');
    let new = beside(path);
    std::fs::write(&new, &text)
        .and_then(|()| std::fs::rename(&new, path))
        .inspect_err(|_| {
            // Perhaps it was not even there.
            let _ = std::fs::remove_file(&new);
        })
}

/// Whether a report can be written there. Better to learn it now than when there is something to report.
pub fn probe(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let new = beside(path);
    std::fs::write(&new, "").and_then(|()| std::fs::remove_file(&new))
}

/// The name of a file in the same directory.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Logs what matters most, a line for each shard and kind of operation.
pub fn log(statistics: &Statistics) {
    for shard in &statistics.shards {
        tracing::info!("statistics: {}", shard_line(shard));
    }
    let memory = &statistics.memory;
    tracing::info!(
        "statistics: memory: {} of {} KiB of the budget, {} KiB of that kept, {} KiB of transmit \
         queues, {} connections",
        memory.used_bytes >> 10,
        memory.budget_bytes >> 10,
        memory.kept_bytes >> 10,
        memory.transmit_bytes >> 10,
        memory.connections
    );
    for stages in &statistics.stages {
        tracing::info!("statistics: {}", stage_line(stages));
    }
}

fn shard_line(shard: &ShardStatistics) -> String {
    if !shard.answered {
        return format!("event loop {}: no response", shard.shard);
    }
    let (counters, derived, times) = (&shard.counters, &shard.derived, &shard.times);
    let percent = |part: u64| part.saturating_mul(100) / times.elapsed_ns.max(1);
    format!(
        "event loop {}: {} operations; {:.1} per turn, {:.1} per receive, {:.1} per send; {:.2} system \
         calls and {:.0} copied bytes per operation; {} % working, {} % polling, {} % asleep",
        shard.shard,
        counters.operations(),
        derived.operations_per_turn,
        derived.operations_per_receive,
        derived.operations_per_send,
        derived.system_calls_per_operation,
        derived.copied_bytes_per_operation,
        percent(times.working_ns),
        percent(times.polling_ns),
        percent(times.asleep_ns),
    )
}

/// `disk0 iscsi read up to 4096 bytes, 812 followed; median/p99 in µs: parse 0.8/3.1, …`
fn stage_line(stages: &StageStatistics) -> String {
    let mut line = format!(
        "{} {} {} up to {} bytes, {} followed; median/p99 in µs:",
        stages.volume,
        stages.protocol.name(),
        stages.direction.name(),
        stages.bytes_up_to,
        stages.operations
    );
    let mut separator = "";
    for (name, durations) in stages.by_name() {
        // Writing into a String does not fail.
        let _ = write!(line, "{separator} {name} {}", pair(durations));
        separator = ",";
    }
    line
}

fn pair(durations: &Durations) -> String {
    let micros = |ns: u64| format!("{}.{}", ns / 1000, ns % 1000 / 100);
    format!("{}/{}", micros(durations.p50_ns), micros(durations.p99_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_report_takes_shape_in_the_directory_of_the_old_one() {
        let new = beside(Path::new("/run/longshore/statistics.json"));
        assert_eq!(new.parent(), Some(Path::new("/run/longshore")));
        assert_ne!(new, Path::new("/run/longshore/statistics.json"));
    }

    #[test]
    fn a_place_for_reports_is_found_out_beforehand_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("statistics.json");
        probe(&path).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(&path, "an older report").unwrap();
        probe(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "an older report");
        assert!(probe(directory.path()).is_err());
        assert!(probe(&directory.path().join("missing/statistics.json")).is_err());
    }

    #[test]
    fn durations_are_shown_in_microseconds() {
        let durations = Durations {
            p50_ns: 12_345,
            p99_ns: 999,
            ..Durations::default()
        };
        assert_eq!(pair(&durations), "12.3/0.9");
    }
}
