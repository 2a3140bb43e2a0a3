//! A server that is killed at random moments of a loop of changes.

use std::collections::BTreeSet;
use std::time::Duration;
use std::{env, fs, thread};

use longshore_tests::random::Random;
use longshore_tests::server::{ServerBuilder, TARGET as DEFAULT, signal};
use serde_json::{Map, Value, json};

use crate::ports::{full_status, reserve};
use crate::rig::{Rig, TARGET, wait_for};

/// The next document: a volume of a file comes, the oldest of three goes, and the map follows.
fn next(rig: &Rig, before: &Value, number: u64) -> Value {
    let mut volumes = before["volumes"].as_object().cloned().unwrap_or_default();
    if volumes.len() >= 3 {
        let oldest = volumes.keys().min().unwrap().clone();
        volumes.remove(&oldest);
    }
    let name = format!("v{number:06}");
    let path = rig.path(&format!("{name}.img"));
    volumes.insert(
        name,
        json!({"backend": "file", "path": path, "size": "64K"}),
    );
    let luns = volumes.keys().map(|name| {
        let number: u64 = name[1..].parse().unwrap();
        json!({"lun": number % 1000, "volume": name})
    });
    let luns: Vec<Value> = luns.collect();
    json!({"volumes": volumes, "targets": {TARGET: {"luns": luns}}, "subsystems": {}})
}

/// What the API says that an owner has asked for.
fn document(rig: &Rig, owner: &str) -> Value {
    let found = rig.get(&format!("/api/v1/config?owner={owner}"));
    let keys = ["volumes", "targets", "subsystems"];
    let parts = keys.map(|key| (key.to_owned(), found[key].clone()));
    Value::Object(Map::from_iter(parts))
}

/// A table of the file, another one each time.
fn table(number: u64) -> String {
    format!("\n[[volume]]\nname = \"g{number}\"\nbackend = \"mem\"\nsize = \"64K\"\n")
}

/// Files of volumes in the directory of the test.
fn images(rig: &Rig) -> BTreeSet<String> {
    let entries = fs::read_dir(rig.scratch.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('v')).collect()
}

#[test]
fn a_server_that_is_killed_among_changes_has_one_document_or_the_next_as_a_whole() {
    let kills = env::var("LONGSHORE_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let mut rig = Rig::new(ServerBuilder::new(), "");
    rig.start_again();
    let reserved = {
        let mut initiator = rig.initiator(DEFAULT, 1);
        reserve(&mut initiator);
        full_status(&mut initiator)
    };
    let mut random = Random::new(15);
    let mut known = document(&rig, "api");
    let mut committed = BTreeSet::new();
    let mut number = 0;
    for kill in 0..kills {
        let (pid, pause) = (rig.server().pid(), random.below(150));
        let token = rig.http();
        let (begun, last) = thread::scope(|scope| {
            let killer = scope.spawn(move || {
                thread::sleep(Duration::from_millis(pause));
                signal(pid, "KILL").unwrap();
            });
            let mut last = known.clone();
            let begun = loop {
                number += 1;
                if number % 4 == 0 {
                    rig.write_file(&table(number));
                    // It may be dead by now.
                    let _ = rig.server().reload();
                }
                let begun = next(&rig, &last, number);
                let answer = token.ask("PUT", "/api/v1/config", Some(&begun));
                match answer {
                    Ok(reply) if reply.status == 200 || reply.status == 202 => last = begun,
                    // While SIGHUP is carried out, or cut off within the answer.
                    Ok(reply) if reply.status == 409 => {}
                    Ok(_) | Err(_) => break begun,
                }
                for name in last["volumes"].as_object().unwrap().keys() {
                    committed.insert(format!("{name}.img"));
                }
            };
            killer.join().unwrap();
            (begun, last)
        });
        rig.wait_for_end();
        rig.start_again();
        let found = document(&rig, "api");
        assert!(
            found == last || found == begun,
            "kill {kill}: {found} is neither {last} nor {begun}"
        );
        for name in found["volumes"].as_object().into_iter().flatten() {
            committed.insert(format!("{}.img", name.0));
        }
        // The file is what it is, and its objects are those.
        let of_file = document(&rig, "file");
        let names: BTreeSet<&str> = of_file["volumes"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let text = fs::read_to_string(rig.path("longshore.toml")).unwrap();
        assert_eq!(names.len(), text.matches("[[volume]]").count());
        assert!(
            names
                .iter()
                .all(|name| text.contains(&format!("\"{name}\"")))
        );
        // Nothing is left of changes that did not come about.
        let stray: Vec<String> = images(&rig).difference(&committed).cloned().collect();
        assert!(stray.is_empty(), "kill {kill}: {stray:?}");
        for entry in fs::read_dir(rig.path("state/config")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_revision = name.starts_with("revision-") && !name.ends_with(".new");
            assert!(name == "lock" || is_revision, "kill {kill}: {name}");
        }
        assert_eq!(full_status(&mut rig.initiator(DEFAULT, 1)), reserved);
        known = found;
    }
    wait_for("a document", || !committed.is_empty());
}
