//! Processes that change what they serve and are killed: at every step, and at any moment.
//!
//! The child is this test program, with the one test that does nothing otherwise. It makes one change after the other, and
//! writes down each before it begins and when it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_api::change::Wish;
use longshore_api::object::Document;
use longshore_api::plane::ControlPlane;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::scene::{Scene, TARGET, keys};
use crate::change::step;

const DIRECTORY: &str = "LONGSHORE_CRASH_DIRECTORY";
/// The step to die at, and how often it is passed before.
const STEP: &str = "LONGSHORE_CRASH_STEP";
/// How many random kills to survive.
const KILLS: &str = "LONGSHORE_KILLS";

/// A line that the child writes.
#[derive(Serialize, Deserialize)]
enum Line {
    Begun(Document),
    Done(u64),
}

/// The next state: a volume of a file comes, the oldest of four goes, one grows, the map follows.
fn next(document: &Document, directory: &Path, number: u64) -> Document {
    let mut next = document.clone();
    let name = format!("v{number:08}");
    let path = directory.join(format!("{name}.img"));
    if next.volumes.len() >= 4 {
        next.volumes.pop_first();
    }
    if let Some((_, keys)) = next.volumes.iter_mut().next() {
        let size = keys["size"].as_u64().unwrap();
        keys.insert("size".to_owned(), (size + 4096).into());
    }
    let volume = json!({"backend": "file", "path": path, "size": 1 << 20});
    next.volumes.insert(name, keys(volume));
    let luns = next.volumes.keys().map(|name| {
        let number: u64 = name[1..].parse().unwrap();
        json!({"lun": number % 1000, "volume": name})
    });
    let luns = json!({ "luns": luns.collect::<Vec<_>>() });
    next.targets.insert(TARGET.to_owned(), keys(luns));
    next
}

/// Not a test by itself: the process that dies.
#[test]
fn child_that_changes_and_dies() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    if let Ok(step) = std::env::var(STEP) {
        let (step, passes) = step.split_once(' ').unwrap();
        let passes: usize = passes.parse().unwrap();
        let seen = AtomicUsize::new(0);
        fail::cfg_callback(step, move || {
            if seen.fetch_add(1, Ordering::Relaxed) == passes {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
        })
        .unwrap();
    }
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(directory.join("log"))
        .unwrap();
    let mut tell = |line: &Line| {
        let line = serde_json::to_string(line).unwrap();
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
    };
    let mut scene = Scene::at(directory);
    scene.start().unwrap();
    let mut document = scene.plane().document(None).1;
    // A bound, so that a step that is never met ends the test.
    for _ in 0..100_000 {
        let number = scene.revision() + 1;
        document = next(&document, directory, number);
        tell(&Line::Begun(document.clone()));
        let applied = scene.apply(Wish::Replace(document.clone())).unwrap();
        tell(&Line::Done(applied.revision.0));
    }
}

fn spawn(directory: &Path, step: Option<(&str, usize)>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "change::tests::crashes::child_that_changes_and_dies",
        ])
        .env(DIRECTORY, directory)
        .env_remove(STEP)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some((step, passes)) = step {
        command.env(STEP, format!("{step} {passes}"));
    }
    command.spawn().unwrap()
}

/// What the child has told.
fn told(directory: &Path) -> Vec<Line> {
    let text = fs::read_to_string(directory.join("log")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Starts again and checks that the state is that of the last change that was acknowledged, or of the one after it, as a
/// whole, and that nothing else is left.
fn check(directory: &Path, committed: &mut BTreeMap<u64, Document>) {
    let mut scene = Scene::at(directory);
    scene.start().unwrap_or_else(|problem| panic!("{problem}"));
    let (revision, found) = scene.plane().document(None);
    let mut begun = None;
    let mut acknowledged = 0;
    for line in told(directory) {
        match line {
            Line::Begun(document) => begun = Some(document),
            Line::Done(number) => {
                acknowledged = number;
                committed.insert(number, begun.take().unwrap());
            }
        }
    }
    let last = committed.get(&acknowledged).cloned().unwrap_or_default();
    match begun {
        Some(begun) if revision.0 == acknowledged + 1 => {
            assert_eq!(found, begun);
            committed.insert(revision.0, begun);
        }
        _ => assert_eq!((revision.0, &found), (acknowledged, &last)),
    }
    // Files of volumes that were removed stay; those of changes that did not come about do not.
    let known: BTreeSet<String> = committed
        .values()
        .flat_map(|document| document.volumes.keys().map(|name| format!("{name}.img")))
        .chain(["log", "state", "x.toml"].map(str::to_owned))
        .collect();
    for entry in fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            known.contains(&name),
            "{name} is left over at revision {}",
            revision.0
        );
    }
    for entry in fs::read_dir(directory.join("state/config"))
        .into_iter()
        .flatten()
    {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "lock" || name.starts_with("revision-") && !name.ends_with(".new"),
            "{name}"
        );
    }
    assert_eq!(scene.fake.shown().len(), 2 * found.volumes.len());
    // What the log says is known; the child goes on from here.
    let line = Line::Done(revision.0);
    fs::write(
        directory.join("log"),
        match committed.get(&revision.0) {
            Some(document) => format!(
                "{}\n{}\n",
                serde_json::to_string(&Line::Begun(document.clone())).unwrap(),
                serde_json::to_string(&line).unwrap()
            ),
            None => String::new(),
        },
    )
    .unwrap();
}

#[test]
fn a_crash_at_any_step_leaves_one_revision_or_the_next_as_a_whole() {
    for step in step::ALL {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        fs::write(directory.join("x.toml"), "").unwrap();
        let mut committed = BTreeMap::new();
        // Later passes meet other files that are written, and other volumes.
        for passes in [0, 1, 2, 9, 40] {
            let child = spawn(directory, Some((step, passes)));
            let ended = child.wait_with_output().unwrap();
            let complaint = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.signal(), Some(9), "{step}: {complaint}");
            check(directory, &mut committed);
        }
        assert!(!committed.is_empty(), "{step}");
    }
}

#[test]
fn kills_at_random_moments_leave_one_revision_or_the_next_as_a_whole() {
    let kills = std::env::var(KILLS).map_or(10, |kills| kills.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    fs::write(directory.join("x.toml"), "").unwrap();
    let mut committed = BTreeMap::new();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    // On a busy machine, the first may come before any commit.
    let mut done = 0;
    while done < kills || (committed.len() < 2 && done < kills + 500) {
        done += 1;
        let before = fs::metadata(directory.join("log")).map_or(0, |it| it.len());
        let mut child = spawn(directory, None);
        // It is there, and at work.
        while fs::metadata(directory.join("log")).map_or(0, |it| it.len()) <= before {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        std::thread::sleep(Duration::from_micros(random >> 48));
        child.kill().unwrap();
        child.wait().unwrap();
        check(directory, &mut committed);
    }
    assert!(committed.len() > 1);
}
