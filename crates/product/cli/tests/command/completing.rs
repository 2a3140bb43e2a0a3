//! Completions in a shell that know what a running server knows.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::Run;

/// What the program offers for the last of these words, as the script of bash asks it.
fn offered(server: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(["--", "longshore"]).args(words);
    command.env("LONGSHORE_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_IFS", "\n");
    command.env("LONGSHORE_SERVER", server);
    command.env_remove("LONGSHORE_TOKEN").output().unwrap()
}

/// The lines of it.
fn names(server: &Path, words: &[&str]) -> Vec<String> {
    let output = offered(server, words);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn names_of_objects_sessions_and_tokens_are_offered() {
    let run = Run::serve_memory(&["--api", "127.0.0.1:0"]).start();
    let socket = run.path("longshore.sock");
    let login = longshore_tests::initiator::Login::numbered(1);
    let portal = run.addresses_of("iscsi")[0];
    let _initiator = longshore_tests::initiator::Initiator::log_in(portal, &login).unwrap();
    let default = "iqn.2026-11.local.longshore:default";
    for (words, expected) in [
        (&["volume", "show", ""][..], "disk0"),
        (&["volume", "resize", "di"], "disk0"),
        (&["target", "map", "iqn"], default),
        (&["target", "map", default, ""], "disk0"),
        (&["target", "allow", default, ""], &login.initiator),
        (&["session", "close", ""], "1"),
        (&["token", "remove", ""], "admin"),
    ] {
        let offered = names(&socket, words);
        assert!(
            offered.iter().any(|it| it == expected),
            "{words:?}: {offered:?}"
        );
    }
    assert!(!names(&socket, &["volume", "show", "x"]).contains(&"disk0".to_owned()));
    // Over TCP, as the words before say.
    let url = format!("http://{}", run.addresses_of("api")[0]);
    let token = run.path("state/admin-token").display().to_string();
    let words = [
        "volume",
        "--server",
        &url,
        "--token-file",
        &token,
        "show",
        "",
    ];
    let nowhere = run.path("nowhere");
    let offered = names(&nowhere, &words);
    assert!(offered.iter().any(|it| it == "disk0"), "{offered:?}");
}

#[test]
fn without_an_answer_there_is_no_name_and_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("s");
    assert!(!names(&nowhere, &["volume", "show", ""]).contains(&"disk0".to_owned()));
    // It accepts, and says nothing.
    let _silent = std::os::unix::net::UnixListener::bind(&nowhere).unwrap();
    assert!(!names(&nowhere, &["volume", "show", ""]).contains(&"disk0".to_owned()));
}

#[test]
fn bash_completes_names_with_its_script() {
    let run = Run::serve_memory(&[]).start();
    let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let script = Command::new(program)
        .args(["completions", "bash"])
        .output()
        .unwrap();
    std::fs::write(run.path("script"), script.stdout).unwrap();
    let asks = r#"
        source "$1"
        COMP_WORDS=(longshore volume show di); COMP_CWORD=3; COMP_TYPE=9
        complete -p longshore
        _longshore longshore di show
        echo "${COMPREPLY[@]}"
    "#;
    let folder = program.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["--norc", "-c", asks, "bash"])
        .arg(run.path("script"))
        .env("PATH", path)
        .env("LONGSHORE_SERVER", run.path("longshore.sock"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("-F _longshore longshore"), "{output:?}");
    assert_eq!(text.lines().last(), Some("disk0"), "{output:?}");
}
