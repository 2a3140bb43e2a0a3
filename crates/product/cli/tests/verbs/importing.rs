//! Imports: files that are written, their modes, the report, the exit status, and a server that takes the result.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::builder;

const TARGETS: &str = "\
<target iqn.2026-11.com.example:t>
    backing-store DISK
    incominguser ann secret-of-twelve
</target>
";

/// A folder with a source.
struct Folder(TempDir);

impl Folder {
    fn new(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
        let disk = folder.path().join("disk.img");
        let source = source.replace("DISK", disk.to_str().unwrap());
        fs::write(folder.path().join("targets.conf"), source).unwrap();
        Self(folder)
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(words.split_whitespace()).current_dir(&self.0);
        command.output().expect("the command")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }
}

#[test]
fn an_import_writes_a_configuration_that_the_server_takes_and_secrets_apart() {
    let folder = Folder::new(TARGETS);
    let output = folder.run("import auto targets.conf");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("targets.conf:2  mapped"), "{report}");
    assert!(!report.contains("secret-of-twelve"));
    let written = fs::read_to_string(folder.0.path().join("longshore.toml")).unwrap();
    assert!(!written.contains("secret-of-twelve"), "{written}");
    let secrets: Vec<_> = fs::read_dir(folder.0.path().join("longshore.secrets"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(secrets.len(), 1);
    assert_eq!(fs::read(&secrets[0]).unwrap(), b"secret-of-twelve");
    let mode = fs::metadata(&secrets[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let checked = folder.run("serve --config longshore.toml --check");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn what_is_there_is_not_overwritten() {
    let folder = Folder::new(TARGETS);
    fs::write(folder.0.path().join("longshore.toml"), "mine").unwrap();
    let output = folder.run("import tgt targets.conf");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        fs::read(folder.0.path().join("longshore.toml")).unwrap(),
        b"mine"
    );
    assert_eq!(
        folder.names(),
        ["disk.img", "longshore.toml", "targets.conf"]
    );
}

#[test]
fn a_refused_setting_ends_with_3_and_nothing_written_but_the_rest_when_asked() {
    let source = TARGETS.replace("incominguser", "initiator-address 192.0.2.1\nincominguser");
    let folder = Folder::new(&source);
    let output = folder.run("import tgt targets.conf --report json");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = |entry: &&Value| entry["verdict"] == "refused";
    let entries = json["entries"].as_array().unwrap();
    let lines: Vec<_> = entries
        .iter()
        .filter(refused)
        .map(|it| it["line"].clone())
        .collect();
    assert_eq!(lines, [3]);
    assert_eq!(
        (&json["version"], &json["output"]),
        (&Value::from(1), &Value::Null)
    );
    assert_eq!(folder.names(), ["disk.img", "targets.conf"]);
    let partial = folder.run("import tgt targets.conf --partial");
    assert_eq!(partial.status.code(), Some(3), "{partial:?}");
    assert!(folder.0.path().join("longshore.toml").exists());
}

#[test]
fn a_dry_run_writes_nothing_and_mistakes_say_what_to_do() {
    let folder = Folder::new(TARGETS);
    assert_eq!(
        folder
            .run("import tgt targets.conf --dry-run")
            .status
            .code(),
        Some(0)
    );
    assert_eq!(folder.names(), ["disk.img", "targets.conf"]);
    for (words, code, advice) in [
        ("import tgt missing.conf", 1, "correct the path"),
        ("import auto disk.img", 1, "name it: scst, tgt"),
        ("import lio targets.conf", 1, "targets.conf:1"),
        ("import iet targets.conf", 2, "possible values"),
    ] {
        let output = folder.run(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words}: {text}");
        assert!(text.contains(advice), "{words}: {text}");
    }
}

#[test]
fn a_server_that_runs_takes_the_objects_of_an_imported_file() {
    let folder = Folder::new(TARGETS);
    let output = folder.run("import tgt targets.conf");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::create_dir(folder.0.path().join("state")).unwrap();
    let path = |name: &str| folder.0.path().join(name).display().to_string();
    let server = builder()
        .volume("c,backend=mem,size=1M")
        .iscsi()
        .argument("--socket")
        .argument(&path("socket"))
        .argument("--state-dir")
        .argument(&path("state"))
        .start()
        .unwrap();
    for (verb, status) in [("plan", 10), ("apply", 0), ("plan", 0)] {
        // The folder of the file is where its secrets are, wherever the verb runs.
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args([verb, &path("longshore.toml"), "--server", &path("socket")]);
        let output = command.output().expect("the command");
        assert_eq!(output.status.code(), Some(status), "{verb}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("[listen] left out"), "{told}");
    }
    let shown = folder.run("target show iqn.2026-11.com.example:t --server socket");
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("secret-file"), "{shown}");
    drop(server);
}
