//! A process that is killed leaves its address to the next one.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::time::Duration;

use longshore_reactor::{SocketToken, socket};

use crate::rig::listener;

/// Set in the child of the test below.
const CHILD_VARIABLE: &str = "LONGSHORE_TEST_LISTEN";

#[test]
fn address_is_free_when_a_killed_process_is_gone() {
    for choice in ["io_uring", "epoll"] {
        for _ in 0..10 {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "killed::listening_child",
                    "--nocapture",
                    "--ignored",
                ])
                .env(CHILD_VARIABLE, choice)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let address = lines.map(Result::unwrap).find_map(|line| {
                line.split_once("listening=")
                    .map(|(_, address)| address.parse().unwrap())
            });
            child.kill().unwrap();
            child.wait().unwrap();
            let Some(address) = address else {
                eprintln!("SKIPPED: no server on {choice} here");
                assert_eq!(choice, "io_uring");
                break;
            };
            socket::listen(address, socket::ListenOptions::default()).unwrap();
        }
    }
}

/// Not a test of its own: what the child does.
#[test]
#[ignore = "run by another test in a process of its own"]
fn listening_child() {
    let Ok(choice) = std::env::var(CHILD_VARIABLE) else {
        return;
    };
    let choice = match choice.as_str() {
        "epoll" => longshore_reactor::EngineChoice::Epoll,
        _ => longshore_reactor::EngineChoice::IoUring,
    };
    crate::rig::with(choice, |mut rig| {
        let (listener, address) = listener();
        rig.engine
            .register(listener.as_fd(), SocketToken(1))
            .unwrap();
        rig.turn(Duration::ZERO);
        println!("listening={address}");
        rig.turn(crate::rig::PATIENCE);
    });
}
