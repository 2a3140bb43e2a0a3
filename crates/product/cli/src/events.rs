//! `longshore events`

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::{Event, EventList};
use serde_json::Value;

use crate::output::{OutputFormat, printable, time};
use crate::server::client::{Client, ClientError};
use crate::server::{ServerArguments, ended};

/// Before the server is asked again that has gone away.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct EventsArguments {
    #[command(flatten)]
    server: ServerArguments,

    /// Follow new events until SIGINT, across restarts of the server
    #[arg(long, short)]
    follow: bool,

    /// Only these topics, such as change,session,volume,audit,log
    #[arg(long, value_name = "TOPIC,...")]
    topics: Option<String>,
}

pub fn run(arguments: &EventsArguments) -> ExitCode {
    let outcome = arguments.server.client().and_then(|client| {
        if arguments.follow {
            follow(arguments, &client)
        } else {
            list(arguments, &client)
        }
    });
    ended(outcome)
}

fn place(arguments: &EventsArguments) -> String {
    match &arguments.topics {
        Some(topics) => format!("/api/v1/events?topics={topics}&after=0"),
        None => "/api/v1/events?after=0".to_owned(),
    }
}

/// Whether the same request may be answered later.
pub fn is_temporary(problem: &Problem) -> bool {
    matches!(
        problem.code,
        ProblemCode::Unavailable | ProblemCode::Busy | ProblemCode::System
    )
}

fn list(arguments: &EventsArguments, client: &Client) -> Result<ExitCode, ClientError> {
    let events: EventList = client.get(&place(arguments))?.read()?;
    Ok(arguments.server.print(&events, |events| {
        events.items.iter().map(line).collect::<String>()
    }))
}

/// Prints events as they come. After a loss it goes on behind the last one that it has seen.
fn follow(arguments: &EventsArguments, client: &Client) -> Result<ExitCode, ClientError> {
    let base = match &arguments.topics {
        Some(topics) => format!("/api/v1/events?topics={topics}"),
        None => "/api/v1/events".to_owned(),
    };
    let mut reader = Reader {
        format: arguments.server.output,
        out: io::stdout().lock(),
        last_id: "0".to_owned(),
        next_id: None,
        is_gone: false,
    };
    let mut was_there = false;
    loop {
        let after = reader.last_id.clone();
        let mut is_there = false;
        let outcome = client.lines(&base, Some(&after), &mut |text| {
            is_there = true;
            reader.take(text)
        });
        if reader.is_gone {
            return Ok(ExitCode::SUCCESS);
        }
        match outcome {
            // A server that starts or has many readers may take this one later.
            Err(ClientError::Refused(problem)) if was_there && is_temporary(&problem) => {}
            Err(error @ (ClientError::Token { .. } | ClientError::Refused(_))) => {
                return Err(error);
            }
            Err(error) if !was_there && !is_there => return Err(error),
            _ => {}
        }
        if is_there || !was_there {
            eprintln!("lost {}; trying again", client.address());
        }
        was_there = true;
        thread::sleep(RETRY);
    }
}

/// Reads the lines of a stream.
struct Reader<W> {
    format: OutputFormat,
    out: W,
    /// Of the last event that was printed.
    last_id: String,
    /// Of the event whose lines are coming.
    next_id: Option<String>,
    /// Nobody reads standard output any more.
    is_gone: bool,
}

impl<W: Write> Reader<W> {
    /// Takes a line; whether more are wanted.
    fn take(&mut self, text: &str) -> bool {
        if let Some(id) = text.strip_prefix("id:") {
            self.next_id = Some(id.trim().to_owned());
        } else if let Some(data) = text.strip_prefix("data:") {
            if let Ok(event) = serde_json::from_str::<Event>(data.trim()) {
                let printed = match self.format {
                    OutputFormat::Text => line(&event),
                    OutputFormat::Json => format!("{}\n", data.trim()),
                };
                let written = self.out.write_all(printed.as_bytes());
                self.is_gone = written.and_then(|()| self.out.flush()).is_err();
            }
        } else if text.is_empty()
            && let Some(id) = self.next_id.take()
        {
            self.last_id = id;
        }
        !self.is_gone
    }
}

fn line(event: &Event) -> String {
    let mut text = format!(
        "{} {:<8} {}",
        time(event.time_ms),
        event.topic,
        printable(&event.message)
    );
    for (name, value) in event.data.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => printable(text),
            other => printable(&other.to_string()),
        };
        text += &format!(" {name}={value}");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_remembers_the_last_event_that_came_whole() {
        let mut reader = Reader {
            format: OutputFormat::Text,
            out: Vec::new(),
            last_id: "0".to_owned(),
            next_id: None,
            is_gone: false,
        };
        let data = r#"{"sequence":7,"time-ms":0,"monotonic-ns":1,"topic":"change","message":"m","data":{"a":1}}"#;
        let event = ["event:change", "id: 5-7", &format!("data: {data}"), ""];
        for text in event.into_iter().chain([": heartbeat", "", "id: 5-8"]) {
            assert!(reader.take(text));
        }
        assert_eq!(reader.last_id, "5-7");
        let printed = String::from_utf8(reader.out).unwrap();
        assert_eq!(printed, "1970-01-01 00:00:00 change   m a=1\n");
    }
}
