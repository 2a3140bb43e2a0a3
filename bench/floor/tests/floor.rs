//! The floor as a process: whatever is asked of it is answered, by either engine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore-floor");

/// A server that ends with this value.
struct Floor {
    child: Child,
    address: String,
}

impl Floor {
    fn serve(arguments: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").unwrap().to_owned();
        Self { child, address }
    }

    fn drive(&self, arguments: &str) -> Value {
        let mut command = Command::new(PROGRAM);
        command.args(["drive", &self.address]);
        let ended = command.args(arguments.split(' ')).output().unwrap();
        assert!(ended.status.success(), "{arguments}: {ended:?}");
        serde_json::from_slice(&ended.stdout).unwrap()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn every_request_is_answered_in_either_direction_by_either_engine() {
    for engine in ["io_uring", "epoll"] {
        let floor = Floor::serve(&["--engine", engine]);
        for load in [
            "--protocol iscsi --read 512 --iodepth 1",
            "--protocol iscsi --read 4096 --iodepth 128",
            "--protocol nvme --read 1048576 --iodepth 8 --sessions 2",
            "--protocol nvme --write 4096 --iodepth 32",
            "--protocol iscsi --write 1048576 --iodepth 4",
            "--request-bytes 7 --answer-bytes 3 --read 1024 --iodepth 200",
        ] {
            let report = floor.drive(&format!("{load} --operations 600"));
            assert_eq!(report["operations"], 600, "{engine}: {load}");
            assert_eq!(report["unanswered"], 0, "{engine}: {load}");
        }
    }
}

#[test]
fn a_file_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let floor = Floor::serve(&["--file", path.to_str().unwrap()]);
    let report = floor.drive("--read 65536 --iodepth 8 --operations 100");
    assert_eq!(report["operations"], 100);
    floor.drive("--write 65536 --iodepth 8 --operations 16");
    let file = std::fs::read(&path).unwrap();
    assert_eq!(file.len(), 1 << 20);
    assert!(file.iter().any(|byte| *byte != 0), "nothing was written");
}

#[test]
fn the_processor_time_of_the_server_is_told() {
    let floor = Floor::serve(&[]);
    let pid = floor.child.id();
    let report = floor.drive(&format!("--read 4096 --time 1 --server-pid {pid}"));
    assert!(report["server_cpu_us_per_op"].as_f64().unwrap() > 0.0);
    assert!(report["iops"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_load_that_makes_no_sense_is_refused() {
    let drive = |arguments: &str| {
        let mut command = Command::new(PROGRAM);
        let words = format!("drive 127.0.0.1:1 {arguments}");
        command.args(words.split(' ')).output().unwrap().status
    };
    for arguments in [
        "--iodepth 1",
        "--read 512 --write 512",
        "--read 100",
        "--read 512 --iodepth 0",
    ] {
        assert!(!drive(arguments).success(), "{arguments}");
    }
}
