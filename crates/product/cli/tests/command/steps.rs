//! Servers that end at a step of a change, and start again.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use longshore_tests::api::ApiAddress;
use serde_json::{Value, json};

use crate::support::Run;

const TARGET: &str = "iqn.2026-11.local.longshore:steps";

/// What the change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A volume comes, another one grows.
    Add,
    /// The same, and the server refuses it when it is committed.
    Refused,
    /// A volume goes, and its data stay.
    Remove,
}

/// The state of the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    After,
}

/// Each step, how often it is passed before, and what the next start finds. Two files are written: the intent, and then
/// the revision.
const STEPS: &[(Change, &str, usize, State)] = &[
    (Change::Add, "begun", 0, State::Before),
    (Change::Add, "recorded", 0, State::Before),
    (Change::Add, "written", 0, State::Before),
    (Change::Add, "renamed", 0, State::Before),
    (Change::Add, "intended", 0, State::Before),
    (Change::Add, "opened", 0, State::Before),
    (Change::Add, "grown", 0, State::Before),
    (Change::Add, "prepared", 0, State::Before),
    (Change::Add, "written", 1, State::Before),
    (Change::Add, "renamed", 1, State::After),
    (Change::Add, "pruned", 0, State::After),
    (Change::Add, "committed", 0, State::After),
    (Change::Add, "switched", 0, State::After),
    // The client has no answer yet.
    (Change::Refused, "undoing", 0, State::After),
    (Change::Refused, "written", 2, State::After),
    (Change::Refused, "renamed", 2, State::Before),
    (Change::Refused, "undone", 0, State::Before),
    (Change::Remove, "committed", 0, State::After),
    (Change::Remove, "switched", 0, State::After),
    (Change::Remove, "closed", 0, State::After),
];

/// A document with these volumes of files, by size, each behind the target.
fn document(directory: &Path, volumes: &[(&str, &str)]) -> Value {
    let keys = volumes.iter().map(|(name, size)| {
        let path = directory.join(format!("{name}.img"));
        let keys = json!({"backend": "file", "path": path, "size": size});
        ((*name).to_owned(), keys)
    });
    let luns = volumes.iter().enumerate();
    let luns = luns.map(|(number, (name, _))| json!({"lun": number, "volume": name}));
    json!({
        "volumes": Value::Object(keys.collect()),
        "targets": {TARGET: {"luns": luns.collect::<Vec<_>>()}},
        "subsystems": {},
    })
}

/// What the API has been asked for.
fn found(socket: &ApiAddress) -> Value {
    let reply = socket.ask("GET", "/api/v1/config?owner=api", None).unwrap();
    let found = reply.expect_success().json();
    json!({
        "volumes": found["volumes"],
        "targets": found["targets"],
        "subsystems": found["subsystems"],
    })
}

/// Names and lengths of images, and names of what is stored.
fn left(directory: &Path) -> (Vec<(String, u64)>, Vec<String>) {
    let entries = |directory: &Path| -> Vec<_> {
        let entries = fs::read_dir(directory).unwrap();
        let mut entries: Vec<_> = entries.map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        entries
    };
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    let images = entries(directory).into_iter();
    let images = images.filter(|entry| name(entry).ends_with(".img"));
    let images = images.map(|entry| (name(&entry), entry.metadata().unwrap().len()));
    let stored = entries(&directory.join("state/config"));
    (images.collect(), stored.iter().map(name).collect())
}

fn end_at(change: Change, step: &str, passes: usize, state: State) {
    let mut run = Run::serve(&[
        "--iscsi",
        "127.0.0.1:0",
        "--socket",
        "{dir}/s",
        "--sandbox-path",
        "{dir}",
    ]);
    let mut points = match passes {
        0 => format!("change::{step}=panic"),
        _ => format!("change::{step}={passes}*off->panic"),
    };
    if change == Change::Refused {
        points += ";change::refused=return(by the test)";
    }
    run = run.start();
    let directory = run.scratch.path().to_owned();
    let socket = ApiAddress::Socket(run.path("s"));
    let before = document(&directory, &[("a", "64K"), ("b", "64K")]);
    let put = |document: &Value| socket.ask("PUT", "/api/v1/config", Some(document));
    put(&before).unwrap().expect_success();
    run.signal("TERM");
    assert!(run.end().success());

    run = run.with(|command| {
        command.env("FAILPOINTS", &points);
    });
    run = run.start();
    let after = match change {
        Change::Add | Change::Refused => {
            document(&directory, &[("a", "128K"), ("b", "64K"), ("c", "64K")])
        }
        Change::Remove => document(&directory, &[("a", "64K")]),
    };
    // It may have been answered before the volume was closed.
    let answer = put(&after);
    let ended = run.end();
    assert_eq!(ended.signal(), Some(6), "{ended:?} {}", run.stderr());
    assert!(
        run.stderr().contains(&format!("change::{step}")),
        "{}",
        run.stderr()
    );
    if step != "closed" {
        assert!(answer.is_err(), "{answer:?}");
    }

    run = run.with(|command| {
        command.env_remove("FAILPOINTS");
    });
    let run = run.start();
    let expected = match state {
        State::Before => &before,
        State::After => &after,
    };
    assert_eq!(&found(&socket), expected);
    let volumes = expected["volumes"].as_object().unwrap().iter();
    let mut images: Vec<(String, u64)> = volumes
        .map(|(name, keys)| {
            let kibibytes = keys["size"].as_str().unwrap().trim_end_matches('K');
            (
                format!("{name}.img"),
                kibibytes.parse::<u64>().unwrap() << 10,
            )
        })
        .collect();
    if change == Change::Remove {
        // Data stay.
        images.push(("b.img".to_owned(), 64 << 10));
    }
    let (lengths, stored) = left(&directory);
    assert_eq!(lengths, images);
    let is_whole =
        |name: &String| name == "lock" || name.starts_with("revision-") && !name.ends_with(".new");
    assert!(stored.iter().all(is_whole), "{stored:?}");
    // The next change is made as ever.
    let last = document(&directory, &[("a", "128K")]);
    put(&last).unwrap().expect_success();
    assert_eq!(found(&socket), last);
    drop(run);
}

#[test]
fn a_server_that_ends_at_any_step_of_a_change_starts_with_the_state_before_or_after() {
    for (change, step, passes, state) in STEPS {
        eprintln!("{change:?}: {step}, passed {passes} times before");
        end_at(*change, step, *passes, *state);
    }
}
