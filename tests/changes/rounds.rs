//! Many changes beside loads that check what they read.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use longshore_tests::server::{program, signal};
use serde_json::{Value, json};

use crate::rig::{Change, Hand, Rig, SUBSYSTEM, TARGET, wait_for};

/// How often the third volume comes and goes. `cargo xtask figures changes` has it do so 500 times.
const ROUNDS: u64 = 10;

/// `longshore bench` with random reads and writes, verified, of one volume. Killed if the test ends first.
struct Load {
    child: Child,
    name: &'static str,
}

impl Load {
    fn start(rig: &Rig, name: &'static str, url: &str) -> Self {
        let file = |name: String| File::create(rig.path(&name)).unwrap();
        let words = "--rw randrw --bs 512 --iodepth 4 --verify --time 1h --output json";
        let child = Command::new(program())
            .args(["bench", url])
            .args(words.split(' '))
            .stdin(Stdio::null())
            .stdout(file(format!("{name}.json")))
            .stderr(file(format!("{name}.text")))
            .spawn();
        Self {
            child: child.unwrap(),
            name,
        }
    }

    /// Ends it: its report.
    fn end(mut self, rig: &Rig) -> Value {
        signal(self.child.id(), "INT").unwrap();
        let status = self.child.wait().unwrap();
        let said = fs::read_to_string(rig.path(&format!("{}.text", self.name))).unwrap();
        assert_eq!(status.code(), Some(130), "{said}");
        let text = fs::read_to_string(rig.path(&format!("{}.json", self.name))).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that a volume has read and written.
fn moved(rig: &Rig, volume: &str) -> f64 {
    let text = rig.ask("GET", "/metrics", None).expect_success().body;
    let family = ["read", "written"];
    let bytes = family.map(|what| {
        let family = format!("longshore_volume_{what}_bytes_total");
        crate::figures::metric(&text, &family, &[("volume", volume)])
    });
    bytes.iter().sum()
}

#[test]
fn changes_beside_verified_loads_of_both_protocols_cost_them_no_operation() {
    let rig = Rig::start("");
    for (target, volume) in [(TARGET, "iscsi-load"), (SUBSYSTEM, "nvme-load")] {
        let keys = json!({"backend": "file", "path": rig.path(volume), "size": "1M"});
        rig.make(Hand::Http, &Change::CreateVolume(volume, keys));
        rig.make(Hand::Http, &Change::CreateTarget(target));
        rig.make(Hand::Http, &Change::Map(target, volume, 0));
    }
    let mut loads = [
        Load::start(
            &rig,
            "iscsi-load",
            &format!("iscsi://{}/{TARGET}/0", rig.iscsi),
        ),
        Load::start(
            &rig,
            "nvme-load",
            &format!("nvme+tcp://{}/{SUBSYSTEM}/1", rig.nvme),
        ),
    ];
    let mut run_on = |rig: &Rig| {
        let before = loads.each_ref().map(|load| moved(rig, load.name));
        wait_for("the loads", || {
            loads.iter_mut().zip(before).all(|(load, before)| {
                assert_eq!(load.child.try_wait().unwrap(), None, "{}", load.name);
                moved(rig, load.name) > before
            })
        });
    };
    run_on(&rig);
    let revision = rig.revision();
    let file = rig.path("third.img");
    let keys = json!({"backend": "file", "path": &file, "size": "64K"});
    for _ in 0..ROUNDS {
        rig.make(Hand::Http, &Change::CreateVolume("third", keys.clone()));
        rig.make(Hand::Http, &Change::Map(TARGET, "third", 1));
        rig.make(Hand::Http, &Change::Map(SUBSYSTEM, "third", 1));
        rig.make(Hand::Http, &Change::Resize("third", "128K"));
        for target in [TARGET, SUBSYSTEM] {
            let unmap = Change::Unmap(target, "third", 1);
            rig.change(Hand::Http, &unmap, &["drain"]).unwrap();
        }
        rig.make(Hand::Http, &Change::Remove("third"));
        wait_for("the file to be closed", || !rig.has_open(&file));
        fs::remove_file(&file).unwrap();
    }
    assert_eq!(rig.revision(), revision + 7 * ROUNDS);
    run_on(&rig);
    for load in loads {
        let report = load.end(&rig);
        assert_eq!(report["errors"], json!([]), "{report}");
        assert_eq!(report["lost"], Value::Null, "{report}");
        let verify = &report["verify"];
        assert_eq!(verify["faults"], 0, "{report}");
        assert!(verify["blocks_good"].as_u64() > Some(0), "{report}");
    }
}
