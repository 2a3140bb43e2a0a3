//! As an ordinary user with little lockable memory: the limit that root never meets.
//!
//! The facts are checked in a child process, this program run once more, because a user and a limit
//! belong to a whole process.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, EngineKind, Event, IoUringRefusal, SocketToken, Waker,
};
use rustix::process::{Resource, Rlimit};

/// Set in the child: the limit to work under, in bytes.
const LIMIT_VARIABLE: &str = "LONGSHORE_TEST_MEMLOCK";
const NOBODY: u32 = 65534;

/// Runs the test `child` in a process of an ordinary user. `None`: that cannot be had here.
fn run_child(child: &str, limit_bytes: u64) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        child,
        "--nocapture",
        "--test-threads=1",
        "--ignored",
    ]);
    command
        .env(LIMIT_VARIABLE, limit_bytes.to_string())
        .current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: an ordinary user cannot run this program: {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("engine="), "{text}\n{errors}");
    Some(text)
}

#[test]
fn without_lockable_memory_auto_takes_epoll_and_says_why() {
    let Some(text) = run_child("unprivileged::child", 0) else {
        return;
    };
    if text.contains("engine=io_uring") {
        eprintln!("SKIPPED: this kernel does not count rings against RLIMIT_MEMLOCK");
        return;
    }
    assert!(text.contains("engine=epoll"), "{text}");
}

#[test]
fn with_64_kib_of_lockable_memory_auto_works() {
    run_child("unprivileged::child", 64 << 10);
}

#[test]
fn with_the_default_of_8_mib_auto_works() {
    run_child("unprivileged::child", 8 << 20);
}

/// Not a test of its own: what the child does.
#[test]
#[ignore = "run by the others in a process of its own"]
fn child() {
    let Ok(limit) = std::env::var(LIMIT_VARIABLE) else {
        return;
    };
    let limit: u64 = limit.parse().unwrap();
    let rlimit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    rustix::process::setrlimit(Resource::Memlock, rlimit).unwrap();
    let waker = Waker::new().unwrap();
    let mut engine = Engine::new(EngineChoice::Auto, EngineConfig::default(), waker).unwrap();
    println!("engine={} refusal={:?}", engine.kind(), engine.refusal());
    match (engine.kind(), engine.refusal()) {
        (EngineKind::IoUring, None) => {}
        (EngineKind::Epoll, Some(refusal)) => {
            if let IoUringRefusal::Memory {
                memlock_limit_bytes,
            } = refusal
            {
                assert_eq!(*memlock_limit_bytes, Some(limit));
                assert!(refusal.to_string().contains("RLIMIT_MEMLOCK"), "{refusal}");
            }
        }
        other => panic!("{other:?}"),
    }
    let (ours, _peer) = crate::rig::pair();
    engine.register(ours.as_fd(), SocketToken(1)).unwrap();
    let mut events = Vec::new();
    engine
        .wait(Some(Duration::from_secs(5)), &mut events)
        .unwrap();
    assert!(matches!(events[..], [Event::Socket { .. }]), "{events:?}");
}
