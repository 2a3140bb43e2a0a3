//! What does not start says why on standard error, with what to do next: exit status 2 for arguments
//! that make no sense, 1 for everything else.

use std::net::TcpListener;

use super::support::Run;

/// Runs with arguments and expects a status and texts in the message.
#[track_caller]
fn refused(run: Run, status: i32, expected: &[&str]) {
    let (found, message) = run.refuse();
    for text in expected {
        assert!(message.contains(text), "{text:?} is missing in: {message}");
    }
    assert_eq!(found, status, "{message}");
}

#[test]
fn arguments_that_make_no_sense_are_usage_errors() {
    refused(
        Run::serve(&["--colour"]),
        2,
        &["unexpected argument '--colour'"],
    );
    refused(
        Run::serve_memory(&["--zero-copy", "off"]),
        2,
        &["unexpected argument '--zero-copy'"],
    );
    refused(
        Run::serve(&["--volume", "disk0,backend=fil"]),
        2,
        &[
            "`fil` is not a backend; did you mean `file`?",
            "disk0,backend=fil",
            "^^^",
        ],
    );
    refused(
        Run::serve(&["--iscsi", "example.com:x"]),
        2,
        &["`x` is not a port"],
    );
    refused(
        Run::serve_memory(&["--nvme", "127.0.0.1,advertise=nas.example.com"]),
        2,
        &["reports addresses, not names", "^^^"],
    );
    refused(
        Run::serve_memory(&["--nvme-discovery", "nowhere"]),
        2,
        &["for example 127.0.0.1:8009"],
    );
    refused(
        Run::serve_memory(&["--engine", "kqueue"]),
        2,
        &["use auto, io_uring or epoll"],
    );
    refused(
        Run::serve_memory(&["--cores", "3-1"]),
        2,
        &["not a list of cores"],
    );
    refused(
        Run::serve_memory(&["--log-format", "xml"]),
        2,
        &["use text or json"],
    );
    refused(
        Run::serve_memory(&["--log-level", "loud"]),
        2,
        &["not a log level"],
    );
}

#[test]
fn parts_of_later_versions_are_refused_and_never_pretended() {
    let not_available = "not available in this version";
    refused(
        Run::serve(&["--volume", "d,backend=rbd"]),
        2,
        &["rbd", not_available],
    );
}

#[test]
fn nothing_to_serve_is_an_error() {
    refused(
        Run::serve(&[]),
        1,
        &["there is no volume to serve", "--volume disk0"],
    );
}

#[test]
fn a_port_for_nvme_that_is_taken_is_named_with_its_option() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for option in ["--nvme", "--nvme-discovery"] {
        let run = Run::serve_memory(&["--nvme", "127.0.0.1:0", option, &address]);
        let named = format!("cannot listen on {address}");
        let way_out = format!("for example {option} 127.0.0.1:0");
        refused(run, 1, &[&named, &way_out]);
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = Run::serve(&[
        "--volume",
        "disk0,backend=file,path={dir}/disk0.img,size=1M",
        "--iscsi",
        &address,
    ]);
    let (run, status, message) = run.refuse_and_stay();
    assert_eq!(status, 1, "{message}");
    assert!(
        message.contains(&format!("cannot listen on {address}")),
        "{message}"
    );
    assert!(
        message.contains("Another program listens there"),
        "{message}"
    );
    assert!(
        !run.path("disk0.img").exists(),
        "nothing is created by a server that cannot start"
    );
}

#[test]
fn a_server_that_cannot_start_leaves_no_new_files_and_all_old_ones() {
    let new = "new,backend=file,path={dir}/new.img,size=1M";
    let old = "old,backend=file,path={dir}/old.img";
    let missing = "missing,backend=file,path={dir}/missing.img";
    let again = "again,backend=file,path={dir}/./new.img";
    let block = vec!["A"; 512].concat();
    for (volumes, reason) in [
        ([new, old, missing], "no such file"),
        ([new, old, again], "in use by another volume"),
        // The directory for reservations, which comes after the volumes, is a file.
        ([new, old, "mem,backend=mem,size=1M"], "state directory"),
    ] {
        let arguments = volumes.map(|volume| ["--volume", volume]).concat();
        let run = Run::serve(&[&arguments, &["--iscsi", "127.0.0.1:0"][..]].concat())
            .with_file("old.img", &block);
        std::fs::create_dir(run.path("state")).unwrap();
        let run = run.with_file("state/reservations", "");
        let (run, status, message) = run.refuse_and_stay();
        assert_eq!(status, 1, "{message}");
        assert!(message.contains(reason), "{message}");
        assert!(!run.path("new.img").exists(), "{message}");
        let kept = std::fs::read_to_string(run.path("old.img")).unwrap();
        assert_eq!(kept, block);
    }
}

#[test]
fn a_file_that_is_missing_is_named() {
    let run = Run::serve(&["--volume", "d,backend=file,path={dir}/none.img"]);
    refused(run, 1, &["none.img: no such file; give size="]);
}

#[test]
fn a_size_that_is_no_multiple_of_the_block_is_named() {
    let run = Run::serve(&["--volume", "d,backend=mem,size=1000"]);
    refused(
        run,
        1,
        &["size 1000 is not a multiple of the block size 512"],
    );
    let run = Run::serve(&[
        "--volume",
        "d,backend=file,path={dir}/d.img,block-size=4096",
    ])
    .with_file("d.img", &"x".repeat(4096 + 512));
    refused(
        run,
        1,
        &["d.img", "4608", "not a multiple of the block size 4096"],
    );
}

#[test]
fn two_volumes_on_one_file_are_refused() {
    let run = Run::serve(&[
        "--volume",
        "a,backend=file,path={dir}/d.img,size=1M",
        "--volume",
        "b,backend=file,path={dir}/d.img",
    ]);
    refused(run, 1, &["d.img: in use by another volume of this server"]);
}

#[test]
fn two_servers_on_one_file_are_refused() {
    let first = Run::serve(&[
        "--volume",
        "a,backend=file,path={dir}/d.img,size=1M",
        "--iscsi",
        "127.0.0.1:0",
    ])
    .start();
    let volume = format!("a,backend=file,path={}", first.path("d.img").display());
    let second = Run::serve(&["--volume", &volume, "--iscsi", "127.0.0.1:0"]);
    let holder = format!("in use by process {}", first.pid());
    refused(second, 1, &["d.img", &holder]);
}

#[test]
fn two_volumes_of_one_name_are_refused() {
    let run = Run::serve_memory(&["--volume", "disk0,backend=mem,size=1M"]);
    refused(run, 1, &["two volumes have the name `disk0`"]);
}

#[test]
fn an_open_target_is_kept_from_other_machines_unless_the_file_says_so() {
    let volume = [
        "--volume",
        "disk0,backend=mem,size=1M",
        "--iscsi",
        "0.0.0.0:0",
    ];
    refused(
        Run::serve(&volume),
        1,
        &["other machines can reach", "allow-open = true"],
    );

    let asked_for = Run::serve(&[&volume[..], &["--config", "{dir}/x.toml"]].concat())
        .with_file("x.toml", "[listen]\nallow-open = true\n")
        .start();
    assert!(
        asked_for.stderr().contains("WARN"),
        "{}",
        asked_for.stderr()
    );
}

#[test]
fn an_open_target_is_served_to_other_machines_when_the_command_line_says_so() {
    for listen in [["--iscsi", "0.0.0.0:0"], ["--nvme", "0.0.0.0:0"]] {
        let volume = ["--volume", "disk0,backend=mem,size=1M"];
        let open = [&volume[..], &listen].concat();
        refused(
            Run::serve(&open),
            1,
            &["other machines can reach", "--allow-open"],
        );
        let asked_for = Run::serve(&[&open[..], &["--allow-open"]].concat()).start();
        let text = asked_for.stderr();
        assert!(text.contains("has no access control"), "{text}");
    }
}

#[test]
fn a_file_for_statistics_that_cannot_be_written_is_refused_at_start() {
    let arguments = [
        "--volume",
        "disk0,backend=mem,size=1M",
        "--iscsi",
        "127.0.0.1:0",
        "--statistics",
        "{dir}/missing/statistics.json",
    ];
    refused(
        Run::serve(&arguments),
        1,
        &[
            "missing/statistics.json",
            "correct the path of --statistics",
        ],
    );
}

#[test]
fn an_open_subsystem_is_kept_from_other_machines_unless_the_file_says_so() {
    let volume = ["--volume", "disk0,backend=mem,size=1M", "--nvme"];
    refused(
        Run::serve(&[&volume[..], &["0.0.0.0:0"]].concat()),
        1,
        &["other machines can reach", "[[subsystem.access]]"],
    );
    let asked_for = [&volume[..], &["0.0.0.0:0", "--config", "{dir}/x.toml"]].concat();
    let asked_for = Run::serve(&asked_for)
        .with_file("x.toml", "[listen]\nallow-open = true\n")
        .start();
    assert!(
        asked_for.stderr().contains("no access control"),
        "{}",
        asked_for.stderr()
    );
}

#[test]
fn errors_of_the_file_name_line_and_column() {
    for (text, expected) in [
        (
            "[limits]\nqueue-dept = 1\n",
            "x.toml:2:1: unknown key `queue-dept`; did you mean `queue-depth`?",
        ),
        ("[limits\n", "x.toml:1:8: "),
        (
            "[[target]]\nname = \"iqn.bad\"\n",
            "x.toml:2:8: `iqn.bad` is not an iSCSI name",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.bad\"\n",
            "x.toml:2:7: `nqn.bad` is not an NVMe qualified name",
        ),
        (
            "[listen]\nnvme = [\"127.0.0.1\", \"nowhere\"]\n",
            "x.toml:2:22: `nowhere` is not an address to listen on",
        ),
        (
            "[[target]]\nname = \"iqn.2026-11.com.example:t\"\naccounts = \
             [{ user = \"a\", secret-file = \"missing\" }]\n",
            "x.toml:3:41: cannot read secret file ",
        ),
        (
            "[[volume]]\nname = \"v\"\nbackend = \"file\"\npath = \"none.img\"\n",
            "x.toml:2:8: ",
        ),
    ] {
        let run = Run::serve_memory(&["--config", "{dir}/x.toml"]).with_file("x.toml", text);
        refused(run, 1, &[expected]);
    }
    refused(
        Run::serve_memory(&["--config", "{dir}/none.toml"]),
        1,
        &["cannot read configuration file", "none.toml"],
    );
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    let run = Run::serve_memory(&[]).with(|command| {
        command.args(["--state-dir", "/dev/null"]);
    });
    let (status, message) = run.refuse();
    // Given twice, which no option of this kind allows.
    assert_eq!(status, 2, "{message}");
    let run = Run::serve_memory(&["--config", "{dir}/x.toml"]);
    let state = run.path("state");
    std::fs::write(&state, "a file where the directory should be").unwrap();
    refused(
        run.with_file("x.toml", ""),
        1,
        &["cannot use state directory", "--state-dir"],
    );
}

#[test]
fn a_core_this_process_may_not_use_is_named() {
    let run = Run::serve_memory(&["--cores", "0,1023"]);
    refused(run, 1, &["may not use core 1023", "choose from"]);
}
