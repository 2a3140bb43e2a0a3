//! `longshore top`

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::Args;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::pool::Pool;
use longshore_api::rates::Rates;
use longshore_api::sample::Sample;
use longshore_api::state::{Event, EventList, Session};
use longshore_top::{App, Source, run as show};
use signal_hook::consts::{SIGHUP, SIGTERM};

use crate::output::{OutputFormat, columns, printable};
use crate::server::client::{Ask, Client, ClientError};
use crate::server::path::path;
use crate::server::{ServerArguments, ended};

#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    server: ServerArguments,

    /// Time between two samples, such as 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// Print the rates of one interval, and exit
    #[arg(long, conflicts_with = "batch")]
    once: bool,

    /// Print the rates of N intervals, and exit; 0: until SIGINT
    #[arg(long, value_name = "N")]
    batch: Option<u64>,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let span = longshore_daemon::config::size::Span::parse(text);
    let span = span.map_err(|error| error.to_string())?.0;
    if (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&span) {
        Ok(span)
    } else {
        Err("use 100ms to 1h".to_owned())
    }
}

pub fn run(arguments: &TopArguments) -> ExitCode {
    let intervals = match (arguments.once, arguments.batch) {
        (true, _) => Some(1),
        (false, Some(0)) => Some(u64::MAX),
        (false, Some(number)) => Some(number),
        (false, None) if arguments.server.output == OutputFormat::Json => Some(1),
        (false, None) => None,
    };
    ended(match intervals {
        Some(intervals) => print_rates(arguments, intervals),
        None => interactive(arguments),
    })
}

/// Prints the rates of so many intervals.
fn print_rates(arguments: &TopArguments, intervals: u64) -> Result<ExitCode, ClientError> {
    let client = arguments.server.client()?;
    let mut before: Option<Sample> = None;
    let mut printed = 0;
    while printed < intervals {
        let sample: Sample = client.get("/api/v1/statistics")?.read()?;
        let rates = before.as_ref().and_then(|it| Rates::between(it, &sample));
        before = Some(sample);
        if let Some(rates) = rates {
            printed += 1;
            let rates = Versioned::new(rates);
            let ended = arguments.server.print(&rates, |rates| table(&rates.body));
            if ended != ExitCode::SUCCESS {
                return Ok(ended);
            }
        }
        if printed < intervals {
            thread::sleep(arguments.interval);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rates: &Rates) -> String {
    let number = |rate: f64| format!("{rate:.0}");
    let rows = rates.volumes.iter().map(|volume| {
        vec![
            printable(&volume.name),
            number(volume.reads),
            number(volume.writes),
            number(volume.read_bytes),
            number(volume.written_bytes),
            volume
                .mean_ns
                .map_or_else(|| "–".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3)),
            volume.errors.to_string(),
        ]
    });
    let mut text = columns(
        &[
            "VOLUME",
            "READ/s",
            "WRITE/s",
            "READ B/s",
            "WRITE B/s",
            "MEAN µs",
            "ERRORS",
        ],
        rows.collect(),
    );
    let _ = writeln!(text, "limited by {}", rates.limited_by);
    text
}

fn interactive(arguments: &TopArguments) -> Result<ExitCode, ClientError> {
    if !io::stdout().is_terminal() {
        eprintln!("error: standard output is not a terminal; use --once or --batch N");
        return Ok(ExitCode::FAILURE);
    }
    let client = arguments.server.client()?;
    // What keeps it from being reached at all is told before the terminal changes.
    client.get("/api/v1/")?;
    let interval = u64::try_from(arguments.interval.as_millis()).unwrap_or(1000);
    let mut app = App::new(client.address(), interval);
    app.has_colors = std::env::var_os("NO_COLOR").is_none();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        // Without it, the signal ends the process and leaves the terminal as it is.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let server = Server { client, seen: None };
    match show(app, Box::new(server), &stop) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("error: cannot use the terminal: {error}; use --once or --batch N");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The server as the source of what is shown.
struct Server {
    client: Client,
    /// The last event that was shown: of which start of the server, and its number.
    seen: Option<(u64, u64)>,
}

fn told(error: &ClientError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Where the events are after the last one that was shown.
fn place_after(seen: Option<(u64, u64)>) -> String {
    match seen {
        Some((epoch, sequence)) => format!("/api/v1/events?after={epoch}-{sequence}"),
        None => "/api/v1/events?after=0".to_owned(),
    }
}

/// The last event that was shown when these are. A server that was started anew counts from one again.
fn last_seen(seen: Option<(u64, u64)>, events: &EventList) -> Option<(u64, u64)> {
    let before = seen.filter(|(epoch, _)| *epoch == events.epoch);
    let last = events.items.last().map(|event| event.sequence);
    let sequence = last.or(before.map(|(_, sequence)| sequence));
    Some((events.epoch, sequence.unwrap_or(0)))
}

impl Source for Server {
    fn sample(&mut self) -> Result<Sample, String> {
        let answer = self.client.get("/api/v1/statistics");
        answer
            .and_then(|it| it.read())
            .map_err(|error| told(&error))
    }

    fn sessions(&mut self) -> Result<Vec<Session>, String> {
        let answer = self.client.get(&path(&["sessions"]));
        let sessions: Result<Listing<Session>, _> = answer.and_then(|it| it.read());
        sessions.map(|it| it.items).map_err(|error| told(&error))
    }

    fn pools(&mut self) -> Result<Vec<Pool>, String> {
        let answer = self.client.get(&path(&["pools"]));
        let pools: Result<Listing<Pool>, _> = answer.and_then(|it| it.read());
        match pools {
            Ok(pools) => Ok(pools.items),
            // A server of an earlier version has none.
            Err(ClientError::Refused(_)) => Ok(Vec::new()),
            Err(error) => Err(told(&error)),
        }
    }

    fn events(&mut self) -> Result<Vec<Event>, String> {
        let answer = self.client.get(&place_after(self.seen));
        let events: EventList = match answer.and_then(|it| it.read()) {
            Ok(events) => events,
            // The rest can be shown without. It may be another answer the next time.
            Err(ClientError::Refused(_)) => return Ok(Vec::new()),
            Err(error) => return Err(told(&error)),
        };
        self.seen = last_seen(self.seen, &events);
        Ok(events.items)
    }

    fn close_session(&mut self, id: &str) -> Result<(), String> {
        let ask = Ask {
            method: "DELETE",
            path: path(&["sessions", id]),
            ..Ask::default()
        };
        self.client.ask(ask).map(drop).map_err(|error| told(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(epoch: u64, sequences: &[u64]) -> EventList {
        let event = |sequence: &u64| Event {
            sequence: *sequence,
            time_ms: 0,
            monotonic_ns: 0,
            topic: "log".to_owned(),
            message: String::new(),
            data: serde_json::Value::Null,
        };
        EventList {
            version: 1,
            epoch,
            gap: false,
            items: sequences.iter().map(event).collect(),
        }
    }

    #[test]
    fn events_go_on_after_the_last_one_and_begin_anew_with_the_server() {
        assert_eq!(place_after(None), "/api/v1/events?after=0");
        let seen = last_seen(None, &list(5, &[1, 2]));
        assert_eq!(place_after(seen), "/api/v1/events?after=5-2");
        assert_eq!(last_seen(seen, &list(5, &[])), seen);
        assert_eq!(last_seen(seen, &list(6, &[])), Some((6, 0)));
        assert_eq!(last_seen(seen, &list(6, &[1])), Some((6, 1)));
    }
}
