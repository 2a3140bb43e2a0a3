//! Events.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::support::Server;

/// A stream of events.
struct Stream(BufReader<UnixStream>);

impl Stream {
    fn open(server: &Server, path: &str, last: Option<&str>) -> Self {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n"));
        let last = last.unwrap_or_default();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n"
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).unwrap();
        assert!(length > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    fn status(&mut self) -> u16 {
        self.line().split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The next event: its topic, its id, its data.
    fn next(&mut self) -> (String, String, Value) {
        let (mut topic, mut id) = (String::new(), String::new());
        loop {
            let line = self.line();
            if let Some(value) = line.strip_prefix("event: ") {
                topic = value.to_owned();
            } else if let Some(value) = line.strip_prefix("id: ") {
                id = value.to_owned();
            } else if let Some(value) = line.strip_prefix("data: ") {
                return (topic, id, serde_json::from_str(value).unwrap());
            }
        }
    }
}

const PATH: &str = "/api/v1/events";

#[test]
fn a_stream_resumes_behind_the_last_event_that_was_seen() {
    let server = Server::start();
    for number in 1..=3 {
        server
            .events
            .publish("change", format!("{number}"), json!({}));
    }
    let mut all = Stream::open(&server, &format!("{PATH}?after=0"), None);
    let seen: Vec<_> = (0..3).map(|_| all.next()).collect();
    let messages: Vec<_> = seen.iter().map(|it| it.2["message"].clone()).collect();
    assert_eq!(messages, ["1", "2", "3"]);
    let mut resumed = Stream::open(&server, PATH, Some(&seen[1].1));
    assert_eq!(resumed.next().2["message"], "3");
    server.events.publish("volume", "4", json!({}));
    assert_eq!(resumed.next().2["message"], "4");
    assert_eq!(all.next().2["message"], "4");
}

#[test]
fn an_id_of_an_earlier_start_leads_to_a_gap_and_then_to_all_that_is_kept() {
    let server = Server::start();
    server.events.publish("change", "1", json!({}));
    let mut stream = Stream::open(&server, PATH, Some("5-1"));
    assert_eq!(stream.next().0, "gap");
    assert_eq!(stream.next().2["message"], "1");
    let refused = Stream::open(&server, PATH, Some("x")).status();
    assert_eq!(refused, 400);
}

#[test]
fn topics_filter_and_samples_come_only_when_named() {
    let server = Server::start();
    server.events.publish("log", "1", json!({}));
    server.events.publish("change", "2", json!({}));
    let path = format!("{PATH}?after=0&topics=change,sample");
    let mut stream = Stream::open(&server, &path, None);
    let mut topics = [stream.next().0, stream.next().0];
    topics.sort();
    assert_eq!(topics, ["change", "sample"]);
    let listed = server.ask_with(
        "GET",
        &format!("{PATH}?after=0&topics=log"),
        None,
        &[("Accept", "application/json")],
    );
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_list_says_which_start_it_is_of_and_whether_something_is_missing() {
    let server = Server::start();
    server.events.publish("change", "1", json!({}));
    server.events.publish("change", "2", json!({}));
    let list = |after: &str| {
        let path = format!("{PATH}?after={after}");
        let accept = [("Accept", "application/json")];
        server.ask_with("GET", &path, None, &accept).json()
    };
    let all = list("0");
    let epoch = server.events.epoch();
    assert_eq!((&all["epoch"], &all["gap"]), (&json!(epoch), &json!(false)));
    let rest = list(&format!("{epoch}-1"));
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&rest["items"][0]["message"], &rest["gap"]),
        (&json!("2"), &json!(false))
    );
    // That number is one of another start: both events are new to who asks.
    let other = list("5-1");
    assert_eq!(other["items"].as_array().unwrap().len(), 2);
    assert_eq!(other["gap"], true);
    for _ in 0..5000 {
        server.events.publish("log", "x", json!({}));
    }
    assert_eq!(list(&format!("{epoch}-1"))["gap"], true);
}

#[test]
fn the_number_of_streams_is_bounded_and_one_that_ends_makes_room() {
    let server = Server::start();
    let mut streams: Vec<Stream> = (0..64).map(|_| Stream::open(&server, PATH, None)).collect();
    for stream in &mut streams {
        assert_eq!(stream.status(), 200);
    }
    assert_eq!(Stream::open(&server, PATH, None).status(), 503);
    streams.pop();
    // The server notices the end when it has something to send.
    loop {
        server.events.publish("log", "x", json!({}));
        if Stream::open(&server, PATH, None).status() == 200 {
            break;
        }
    }
}
