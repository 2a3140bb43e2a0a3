//! The identities of disks where the host has no machine id, as in containers.

use std::process::Command;

use longshore_tests::skip::skip;

use crate::support::Run;

/// Starts the run in a mount namespace of its own, whose `/etc/machine-id` is empty.
fn without_machine_id(run: Run) -> Run {
    let empty = run.path("no-machine-id");
    std::fs::write(&empty, "").expect("write a file of the test");
    run.with(|command| {
        let mut wrapped = Command::new("unshare");
        wrapped
            .args(["--mount", "--map-root-user", "sh", "-c"])
            .arg("mount --bind \"$0\" /etc/machine-id && exec \"$@\"")
            .arg(&empty)
            .arg(command.get_program())
            .args(command.get_args());
        wrapped.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
        *command = wrapped;
    })
}

/// Whether this system lets us have such a namespace, and has no second machine id.
fn can_be_without() -> bool {
    let works = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount --bind /dev/null /etc/machine-id && ! grep -q . /var/lib/dbus/machine-id")
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        skip("no mount namespaces here, or no /etc/machine-id to hide");
    }
    works
}

const ARGUMENTS: [&str; 4] = [
    "--volume",
    "disk0,backend=file,path=/tmp/longshore-identity-{n}.img,size=1M",
    "--iscsi",
    "127.0.0.1:0",
];

/// The UUID of the only volume.
fn uuid(log: &str) -> &str {
    let (_, rest) = log.split_once("uuid=").expect("a volume was opened");
    &rest[..36]
}

#[test]
fn two_machines_without_an_id_give_disks_of_one_name_and_path_different_identities() {
    if !can_be_without() {
        return;
    }
    let disk = ARGUMENTS[1].replace("{n}", &std::process::id().to_string());
    let arguments = [ARGUMENTS[0], &disk, ARGUMENTS[2], ARGUMENTS[3]];
    let mut seen = Vec::new();
    for _ in 0..2 {
        // Each run has a state directory of its own.
        let mut run = without_machine_id(Run::serve(&arguments)).start();
        run.signal("TERM");
        assert_eq!(run.end().code(), Some(0), "{}", run.stderr());
        let log = run.stderr();
        let place = run.path("state").join("machine-id");
        assert!(log.contains(&place.display().to_string()), "{log}");
        seen.push(uuid(&log).to_owned());
        let mut again = run.start();
        again.signal("TERM");
        assert_eq!(again.end().code(), Some(0), "{}", again.stderr());
        assert_eq!(uuid(&again.stderr()), seen.last().unwrap(), "a restart");
    }
    assert_ne!(seen[0], seen[1]);
    std::fs::remove_file(
        disk.split("path=")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap(),
    )
    .unwrap();
}

#[test]
fn without_an_id_and_a_state_directory_memory_is_served_and_a_file_refused() {
    if !can_be_without() {
        return;
    }
    // No variable names a state directory, and /dev/null is none.
    let nowhere = |run: Run| {
        run.with(|command| {
            let mut without = Command::new(command.get_program());
            let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let option = words.iter().position(|word| word == "--state-dir");
            let option = option.expect("every run has one");
            without.args(&words[..option]).args(&words[option + 2..]);
            without.env("STATE_DIRECTORY", "/dev/null");
            without.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
            *command = without;
        })
    };
    let file = "disk0,backend=file,path={dir}/a.img,size=1M";
    let run = Run::serve(&["--volume", file, "--iscsi", "127.0.0.1:0"]);
    let (run, status, message) = nowhere(without_machine_id(run)).refuse_and_stay();
    assert_eq!(status, 1, "{message}");
    for part in [
        "volume disk0",
        "/etc/machine-id is empty",
        "--state-dir",
        "uuid=",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!run.path("a.img").exists());
    let mut run = nowhere(without_machine_id(Run::serve_memory(&[]))).start();
    run.signal("TERM");
    assert_eq!(run.end().code(), Some(0), "{}", run.stderr());
    assert!(
        run.stderr().contains("another identity at each start"),
        "{}",
        run.stderr()
    );
}
