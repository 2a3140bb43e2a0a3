//! `longshore copy`

mod display;
mod resume;
mod since;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use longshore_client::copy::{
    self, CHUNK_MAX, CHUNK_MIN, Changes, CopyError, Interrupt, Job, PARALLEL_MAX, Report, Settings,
    Summary,
};
use longshore_client::endpoint::Endpoint;
use longshore_daemon::config::size::{Size, Span};
use longshore_daemon::config::words;
use longshore_daemon::state;
use longshore_reactor::EngineChoice;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::connection::{ConnectionArguments, ConnectionError};
use crate::output::{Bytes, OutputFormat, json};
use crate::server::AccessArguments;
use crate::server::client::ClientError;
use display::{Display, Screen};
use since::{Since, SinceError};

#[derive(Debug, Args)]
pub struct CopyArguments {
    /// Source: a file, a block device, or the URL of a volume
    #[arg(value_name = "SRC", value_parser = endpoint())]
    source: Endpoint,

    /// Destination: a file, a block device, or the URL of a volume
    ///
    /// A file that does not exist is created with the size of the source. Anything else must be large
    /// enough and is overwritten.
    #[arg(value_name = "DST", value_parser = endpoint())]
    destination: Endpoint,

    /// Read both sides again after the copy, and compare them
    #[arg(long)]
    verify: bool,

    /// Continue an interrupted copy
    #[arg(long)]
    resume: bool,

    /// Copy only what changed since this snapshot of a pool, which DST holds
    ///
    /// SRC is the URL of a newer snapshot that the same server serves. The server's control API tells what changed.
    #[arg(long, value_name = "POOL/VOLUME@SNAPSHOT", value_parser = Since::parse)]
    since: Option<Since>,

    /// Copy even if both ends have the names of one remote volume, or if there is too little space
    #[arg(long)]
    force: bool,

    /// File that records the progress of the copy, for --resume
    ///
    /// [default: DST.copy-journal beside a file, a file in the state directory for all else]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Chunks in progress at a time
    #[arg(long, value_name = "N", default_value_t = copy::PARALLEL_DEFAULT, value_parser = parse_parallel)]
    parallel: usize,

    /// Size of a chunk: a power of two from 4K to 64M
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_chunk)]
    block_size: Size,

    /// Limit in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    rate: Option<Size>,

    /// Write zeros too, so that the destination is allocated
    #[arg(long)]
    thick: bool,

    /// Bypass the page cache of files and block devices (O_DIRECT)
    #[arg(long)]
    direct: bool,

    /// Time between updates of the journal
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = Span::parse)]
    checkpoint: Span,

    /// I/O engine for files [default: auto]
    #[arg(long, value_name = "auto|io_uring|epoll", value_parser = words::parse::<EngineChoice>)]
    engine: Option<EngineChoice>,

    /// Format of the output
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    output: OutputFormat,

    /// Do not show progress
    #[arg(long)]
    quiet: bool,

    #[command(flatten, next_help_heading = "Server of --since")]
    access: AccessArguments,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Why a copy cannot begin.
#[derive(Debug, thiserror::Error)]
enum JobError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(
        "--since: {source_name} is not the URL of a snapshot; serve the newer snapshot \
         (pool-volume = \"VOLUME@SNAPSHOT\", read-only = true), and copy from there"
    )]
    NoUrl { source_name: String },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Since(#[from] SinceError),
}

fn endpoint() -> ValueParser {
    OsStringValueParser::new().try_map(Endpoint::parse).into()
}

fn parse_parallel(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=PARALLEL_MAX).contains(number))
        .ok_or_else(|| format!("give a number from 1 to {PARALLEL_MAX}"))
}

fn parse_chunk(text: &str) -> Result<Size, String> {
    let size = Size::parse(text).map_err(|error| error.to_string())?;
    if size.0.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&size.0) {
        Ok(size)
    } else {
        Err("give a power of two from 4K to 64M".to_owned())
    }
}

fn parse_rate(text: &str) -> Result<Size, String> {
    match Size::parse(text) {
        Ok(Size(0)) => Err("give a rate above 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

impl CopyArguments {
    fn job(&self) -> Result<Job, JobError> {
        let changes = self.since.as_ref().map(|since| self.changes(since));
        Ok(Job {
            source: self.source.clone(),
            destination: self.destination.clone(),
            source_options: self.connection.options(self.source.url())?,
            destination_options: self.connection.options(self.destination.url())?,
            settings: Settings {
                chunk: self.block_size.0,
                parallel: self.parallel,
                thick: self.thick,
                direct: self.direct,
                rate: self.rate.map(|Size(rate)| rate),
                checkpoint: self.checkpoint.0,
                verify: self.verify,
                resume: self.resume,
                force: self.force,
                engine: self.engine.unwrap_or_default(),
            },
            changes: changes.transpose()?,
            journal: self.journal.clone(),
            state_directory: self.state_directory(),
        })
    }

    fn changes(&self, since: &Since) -> Result<Changes, JobError> {
        let url = self.source.url().ok_or_else(|| JobError::NoUrl {
            source_name: self.source.to_string(),
        })?;
        let options = self.connection.options(Some(url))?;
        Ok(since.changes(&self.access.client()?, url, &options)?)
    }

    /// Needed for destinations that are not files.
    fn state_directory(&self) -> Option<PathBuf> {
        let is_file = self.destination.url().is_none();
        if self.journal.is_some() || (is_file && !self.destination.is_device()) {
            return None;
        }
        // One that nobody asked for by name may be missing; the copy says what that means.
        state::directory(None).ok().flatten()
    }
}

pub fn run(arguments: &CopyArguments) -> ExitCode {
    let job = match arguments.job() {
        Ok(job) => job,
        Err(JobError::Connection(error)) => return crate::exit::refuse(&error),
        Err(error @ JobError::NoUrl { .. }) => crate::exit::usage(&error),
        Err(error) => return crate::exit::fail(&error),
    };
    let interrupt = Interrupt::new();
    let mut display = Display::new(arguments.quiet);
    if let Err(error) = watch_signals(interrupt.clone(), display.screen()) {
        return crate::exit::fail(&error);
    }
    let report = copy::copy(&job, &interrupt, &mut display);
    display.end();
    let command = resume::command(std::env::args_os().collect());
    let printed = match arguments.output {
        OutputFormat::Json => crate::exit::print(&json(&CopyOutcome::new(&report, &command))),
        OutputFormat::Text => print_text(&report),
    };
    match &report.result {
        Ok(()) => printed,
        Err(CopyError::Interrupted { signal }) => {
            explain(&report, &command);
            // As shells see a program that the signal has ended.
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("error: {error}");
            explain(&report, &command);
            ExitCode::FAILURE
        }
    }
}

/// The first signal has the copy stop at a good moment, the second one ends the process.
fn watch_signals(interrupt: Interrupt, screen: Screen) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if interrupt.signal().is_some() {
                    // The prompt of the shell begins on a line of its own.
                    screen.clear();
                    std::process::exit(128 + signal);
                }
                interrupt.raise(signal);
                screen.print("stopping after the operations in progress; a second signal ends the copy at once");
            }
        })?;
    Ok(())
}

/// What a copy came to, as JSON.
#[derive(Debug, Serialize)]
struct CopyOutcome<'a> {
    /// `done`, `interrupted` or `failed`.
    status: &'static str,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Why it is not done.
    error: Option<String>,
    /// The command that goes on.
    resume_command: Option<&'a str>,
}

impl<'a> CopyOutcome<'a> {
    fn new(report: &'a Report, command: &'a str) -> Self {
        let status = match &report.result {
            Ok(()) => "done",
            Err(CopyError::Interrupted { .. }) => "interrupted",
            Err(_) => "failed",
        };
        Self {
            status,
            summary: &report.summary,
            error: report.result.as_ref().err().map(ToString::to_string),
            resume_command: report.journal.is_some().then_some(command),
        }
    }
}

fn print_text(report: &Report) -> ExitCode {
    let summary = &report.summary;
    if report.result.is_err() && summary.bytes + summary.unchanged_bytes == 0 {
        return ExitCode::SUCCESS;
    }
    let mut text = format!(
        "copied {} ({} of data, {} of zeros not sent) in {:.1} s: {}/s\n",
        Bytes(summary.bytes),
        Bytes(summary.data_bytes),
        Bytes(summary.zero_bytes),
        summary.seconds,
        Bytes(whole(summary.bytes_per_second)),
    );
    if summary.unchanged_bytes > 0 {
        text += &format!("{} had not changed\n", Bytes(summary.unchanged_bytes));
    }
    if summary.left_alone_bytes > 0 {
        text += &format!(
            "the last {} of {} are unchanged\n",
            Bytes(summary.left_alone_bytes),
            summary.destination
        );
    }
    if let (Some(true), Some(seconds)) = (summary.verified, summary.verify_seconds) {
        text += &format!("verified in {seconds:.1} s: both sides are identical\n");
    }
    crate::exit::print(text.as_bytes())
}

/// What there is, and how to go on.
fn explain(report: &Report, command: &str) {
    let summary = &report.summary;
    if report.journal.is_none() {
        // What was refused was said already, and what differs is not made good by going on.
        if summary.bytes > 0 && summary.verified.is_none() {
            eprintln!("start the copy again from its beginning");
        }
        return;
    }
    let condition = match &report.result {
        Err(error) if error.is_out_of_space() => "make room, then continue with:",
        _ => "continue with:",
    };
    eprintln!(
        "{} of {} are copied and flushed; {condition}\n  {command}",
        Bytes(summary.done),
        Bytes(summary.size)
    );
}

/// A rate for people; whatever a float says, this is a number of bytes.
fn whole(rate: f64) -> u64 {
    Duration::try_from_secs_f64(rate.max(0.0)).map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        copy: CopyArguments,
    }

    fn parse(words: &[&str]) -> Result<CopyArguments, clap::Error> {
        let words = ["copy"].iter().chain(words).map(OsString::from);
        Command::try_parse_from(words).map(|command| command.copy)
    }

    #[test]
    fn sides_are_paths_or_urls() {
        let arguments = parse(&["a.img", "iscsi://h/iqn.2026-11.local:a/0", "--verify"]).unwrap();
        assert!(arguments.source.url().is_none());
        assert!(arguments.destination.url().is_some());
        assert!(arguments.verify && !arguments.resume);
        let job = arguments.job().unwrap();
        assert_eq!((job.settings.chunk, job.settings.parallel), (1 << 20, 16));
    }

    #[test]
    fn what_makes_no_sense_is_a_usage_error() {
        for words in [
            &["a", "-"][..],
            &["a", "http://b"],
            &["a", "iscsi://b"],
            &["a", "b", "--block-size", "100K"],
            &["a", "b", "--block-size", "128M"],
            &["a", "b", "--parallel", "0"],
            &["a", "b", "--rate", "0"],
            &["a", "b", "--since", "disk0@monday"],
            &["a", "b", "--since", "tank/disk0"],
            &["a"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
