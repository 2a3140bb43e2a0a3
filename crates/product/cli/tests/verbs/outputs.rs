//! Interfaces to programs, for all verbs: a version in every JSON document, and exit statuses.

use longshore_tests::server::signal;
use serde_json::Value;

use crate::support::{Desk, builder, namespace, serve, unit, wait_for};

/// The verbs whose help offers JSON.
fn verbs_with_json(desk: &Desk) -> Vec<String> {
    let help = desk.run(&["--help"]).good().stdout;
    let commands = help.split("Commands:").nth(1).expect("a list of commands");
    let commands = commands.split("\n\n").next().unwrap_or_default();
    let verbs = commands
        .lines()
        // Further lines of a description stand deeper.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    verbs
        .filter(|verb| *verb != "help")
        .filter(|verb| {
            desk.run(&[verb, "--help"])
                .good()
                .stdout
                .contains("--output <text|json")
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_json_document_has_a_version() {
    let desk = Desk::new();
    desk.image("image", 1 << 20);
    let server = serve(&["a,backend=mem,size=1M", "b,backend=mem,size=2M"]);
    let (a, b) = (unit(&server, 0), namespace(&server, 1));
    let (address, image, copy) = (
        server.portal(0).to_string(),
        desk.path("image"),
        desk.path("copy"),
    );
    let (secret, drive) = (desk.path("secret"), desk.path("drive"));
    desk.run(&["key", "generate", &secret]).good();
    let small = ["--operations", "50"];
    let outputs: &[(&[&str], i32)] = &[
        (&["discover", &address], 0),
        (&["discover", "127.0.0.1:1"], 1),
        (&["info", &a], 0),
        (&["info", &b], 0),
        (&["copy", &image, &copy, "--quiet"], 0),
        // Too large for its destination.
        (&["copy", &b, &a, "--quiet"], 1),
        (&["bench", &a, small[0], small[1]], 0),
        (&["bench", &a, "--iodepth", "1,2", small[0], small[1]], 0),
        (
            &["bench", &a, "--vs", &b, "--rounds", "2", small[0], small[1]],
            0,
        ),
        (&["probe", &a, "--time", "1s"], 0),
        (&["explain", &a, "--time", "2s"], 0),
        (&["advise", &a, "--time", "2s"], 0),
        (&["predict", "--preset", "scst-10ms"], 0),
        (&["key", "check", &secret], 0),
        (&["pool", "create", "tank", &drive, "--size", "64M"], 0),
        (&["pool", "volume", "create", &drive, "a", "1M"], 0),
        (&["pool", "snapshot", "create", &drive, "s", "a"], 0),
        (&["pool", "list", &drive], 0),
        (&["pool", "show", &drive], 0),
        (&["pool", "check", &drive, "--data"], 0),
    ];
    let (socket, state) = (desk.path("socket"), desk.path("state-of-api"));
    std::fs::create_dir(&state).unwrap();
    let _controlled = builder()
        .volume("c,backend=mem,size=1M")
        .iscsi()
        .argument("--socket")
        .argument(&socket)
        .argument("--state-dir")
        .argument(&state)
        .argument("--api")
        .argument("127.0.0.1:0")
        .start()
        .unwrap();
    let file = desk.path("api.toml");
    std::fs::write(
        &file,
        "[[volume]]\nname = \"d\"\nbackend = \"mem\"\nsize = \"1M\"\n",
    )
    .unwrap();
    let of_server: &[(&[&str], i32)] = &[
        (&["status"], 0),
        (&["top", "--once"], 0),
        (&["dashboard"], 0),
        (&["plan", &file], 10),
        (&["apply", &file], 0),
        (&["volume", "list"], 0),
        (&["pool", "list"], 0),
        (&["target", "list"], 0),
        (&["setting", "list"], 0),
        (&["session", "list"], 0),
        (&["config", "history"], 0),
        (&["token", "list"], 0),
        (&["events"], 0),
    ];
    let server = ["--server", socket.as_str()];
    let of_server = of_server
        .iter()
        .map(|(words, status)| ([words, &server[..]].concat(), *status));
    let others = outputs
        .iter()
        .map(|(words, status)| (words.to_vec(), *status));
    let outputs: Vec<(Vec<&str>, i32)> = others.chain(of_server).collect();
    for (words, status) in &outputs {
        let ran = desk.run(&[words, &["--output", "json"][..]].concat());
        assert_eq!(ran.status.code(), Some(*status), "{ran:?}");
        let version = &ran.json()["version"];
        assert!(version.is_u64(), "{words:?}: {}", ran.stdout);
    }
    for verb in verbs_with_json(&desk) {
        let is_tested = outputs.iter().any(|(words, _)| words[0] == verb);
        assert!(is_tested, "{verb} prints JSON and is not in the table");
    }
}

#[test]
fn statistics_and_the_log_have_a_version() {
    let desk = Desk::new();
    let report = desk.path("report.json");
    let server = builder()
        .volume("a,backend=mem,size=1M")
        .argument("--statistics")
        .argument(&report)
        .argument("--log-format")
        .argument("json")
        .iscsi()
        .start()
        .expect("start a server");
    signal(server.pid(), "USR1").expect("send a signal");
    let read = || serde_json::from_str::<Value>(&desk.text("report.json")).ok();
    wait_for("the report", || read().is_some());
    assert!(read().is_some_and(|report| report["version"].is_u64()));
    let log = server.log();
    let first: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert!(first["version"].is_u64(), "{first}");
}

#[test]
fn exit_statuses_are_those_of_the_manual() {
    let desk = Desk::new();
    let server = serve(&["a,backend=mem,size=1M"]);
    let url = unit(&server, 0);
    let missing = desk.path("missing");
    let nowhere = "iscsi://127.0.0.1:1/iqn.2026-11.com.example:a/0";
    let memory = ["serve", "--volume", "a,backend=mem,size=1M"];
    let quick = ["--connect-timeout", "2s"];
    let table: &[(&[&str], i32)] = &[
        (&["--version"], 0),
        (&["--help"], 0),
        (&[], 2),
        (&["colour"], 2),
        (&["serve", "--help"], 0),
        (&["serve", "--colour"], 2),
        (&["serve", "--config", &missing], 1),
        (&["serve", "--config", &missing, "--check"], 1),
        (&[&memory[..], &["--check"]].concat(), 0),
        (
            &[
                "serve",
                "--volume",
                "a,backend=file,path=/none/a",
                "--check",
            ],
            1,
        ),
        (
            &[
                &memory[..],
                &[
                    "--nvme-discovery",
                    "none",
                    "--nvme-discovery",
                    "127.0.0.1:0",
                ],
            ]
            .concat(),
            2,
        ),
        (
            &[
                &memory[..],
                &[
                    "--nvme-discovery",
                    "none",
                    "--nvme-discovery",
                    "127.0.0.1:0",
                    "--check",
                ],
            ]
            .concat(),
            2,
        ),
        (&["discover", "127.0.0.1:1"], 1),
        (&["discover"], 2),
        (&["discover", "127.0.0.1:x"], 2),
        (&["discover", "127.0.0.1:1", "--host-id", "x"], 2),
        (&["info", &url], 0),
        (&["info", nowhere, quick[0], quick[1]], 1),
        (&["info", "http://a/b/c"], 2),
        (&["info", &url, "--initiator-name", "x"], 2),
        (&["info", &url, "--chap-user", "x"], 2),
        (
            &[
                "info",
                &url,
                "--chap-user",
                "x",
                "--chap-secret-file",
                &missing,
            ],
            1,
        ),
        (&["copy", &missing, &url], 1),
        (&["copy", &url], 2),
        (&["copy", &missing, &url, "--host-nqn", "x"], 2),
        (&["bench", &url, "--operations", "5"], 0),
        (&["bench", nowhere, quick[0], quick[1]], 1),
        (&["bench", &url, "--rw", "trim"], 2),
        (&["bench", &url, "--plot", "one.svg"], 2),
        (&["bench", &url, "--chap-user", "x"], 2),
        (&["probe", &missing], 1),
        (&["probe", &url, "--write", "16m"], 2),
        (&["probe", &url, "--time", "1ms"], 2),
        (&["probe", &url, "--time", "1s", "--write", "0+1t"], 1),
        (&["explain", &missing], 1),
        (&["explain", &url, "--interval", "1s"], 2),
        (&["explain", "--server", &missing], 1),
        (&["advise"], 2),
        (&["advise", &url, "--check", &missing], 1),
        (&["advise", &url, "--iodepth", "0"], 2),
        (&["predict", "--preset", "scst-10ms"], 0),
        (&["predict", &missing], 1),
        (&["predict"], 2),
        (&["predict", "--preset", "scst"], 2),
        (&["completions", "bash"], 0),
        (&["completions", "tcsh"], 2),
        (&["manual"], 0),
        (&["manual", "longshore.toml"], 0),
        (&["manual", "colour"], 2),
        (&["manual", "--directory", "/proc/none"], 1),
    ];
    for (words, status) in table {
        let ran = desk.run(words);
        assert_eq!(ran.status.code(), Some(*status), "{words:?}: {ran:?}");
        assert!(
            *status == 0 || !ran.stderr.is_empty(),
            "{words:?} says nothing"
        );
    }
}
