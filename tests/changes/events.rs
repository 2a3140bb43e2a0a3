//! Events that are followed while the server is killed and started again.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use longshore_tests::api::verb;
use serde_json::{Value, json};

use crate::rig::{Change, Hand, Rig, wait_for};

/// `longshore events --follow`, with what it prints in a file.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What it has printed by now, in whole lines.
fn printed(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn adds(event: &Value, volume: &str) -> bool {
    event["topic"] == "change" && event["message"].as_str().unwrap().contains(volume)
}

#[test]
fn a_follower_loses_and_doubles_no_event_and_is_told_of_the_gap_of_a_restart() {
    let mut rig = Rig::start("");
    let path = rig.path("events");
    let words = ["events", "--follow", "--output", "json"];
    let mut command = verb(&rig.socket(), &words);
    command.stdout(File::create(&path).unwrap());
    command.stderr(Stdio::null());
    let _follower = Follower(command.spawn().unwrap());

    let create = |rig: &Rig, number: usize| {
        let name = format!("volume-{number:03}-");
        let keys = json!({"backend": "mem", "size": "1M"});
        rig.make(Hand::Http, &Change::CreateVolume(&name, keys));
    };
    let mut numbers = 0..;
    for round in 0..3 {
        for number in numbers.by_ref().take(10) {
            create(&rig, number);
        }
        let last = format!("volume-{:03}-", round * 10 + 9);
        wait_for("the last event", || {
            printed(&path).iter().any(|event| adds(event, &last))
        });
        if round < 2 {
            rig.kill();
            rig.start_again();
        }
    }

    let events = printed(&path);
    for number in 0..30 {
        let name = format!("volume-{number:03}-");
        let times = events.iter().filter(|event| adds(event, &name)).count();
        assert_eq!(times, 1, "{name}");
    }
    // Between two servers stands one gap, and within each the numbers go up by one.
    let gaps = events.iter().filter(|event| event["topic"] == "gap");
    assert_eq!(gaps.count(), 2);
    for server in events.split(|event| event["topic"] == "gap") {
        let numbers: Vec<u64> = server
            .iter()
            .map(|event| event["sequence"].as_u64().unwrap())
            .collect();
        let expected: Vec<u64> = (1..=numbers.len())
            .map(|it| u64::try_from(it).unwrap())
            .collect();
        assert_eq!(numbers, expected);
    }
}
