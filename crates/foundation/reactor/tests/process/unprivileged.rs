//! As an ordinary user with little lockable memory: the limit that root never meets.
//!
//! The facts are checked in a child process, this program run once more, because a user and a limit
//! belong to a whole process.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_reactor::{
    BufferPool, Engine, EngineChoice, EngineConfig, EngineEvent, EngineKind, IoUringRefusal,
    MemoryBudget, SocketToken, Waker,
};
use rustix::process::{Resource, Rlimit};

use crate::direct::{Direct, direct_file};

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

#[test]
fn with_little_lockable_memory_some_buffers_are_registered_and_the_rest_serve_as_they_are() {
    run_child("unprivileged::child_with_buffers", 1 << 20);
}

/// Not a test of its own: reads from a file by more registered memory than may be locked.
#[test]
#[ignore = "run by another in a process of its own"]
fn child_with_buffers() {
    const LENGTH: usize = 64 << 10;
    let Some(limit) = set_limit() else { return };
    let said = Lines::default();
    let lines = said.clone();
    let _default = tracing::subscriber::set_default(said);
    let config = EngineConfig {
        registered_bytes_max: 64 << 20,
        ..EngineConfig::default()
    };
    let rig = crate::rig::Rig::new(EngineChoice::Auto, config).unwrap();
    let uring = rig.engine.kind() == EngineKind::IoUring;
    println!("engine={}", rig.engine.kind());
    let Some((file, _)) = direct_file() else {
        return;
    };
    let mut direct = Direct::new(rig, &file);
    let before = pinned_kib();
    let mut pool = BufferPool::new(MemoryBudget::new(64 << 20), 64 << 20);
    let mut buffers: Vec<_> = (0..64).map(|_| pool.take(LENGTH).unwrap()).collect();
    for round in 0..3 {
        let used = buffers.into_iter().enumerate();
        let read = |(n, buffer)| direct.read_all((n + round) % 16 * LENGTH, buffer);
        buffers = used.map(read).collect();
    }
    let counters = direct.counters();
    println!("{limit} {counters:?}");
    if !uring {
        return;
    }
    assert_eq!(counters.direct_operations, 3 * 64);
    assert_eq!(pinned_kib() - before, counters.registered_bytes >> 10);
    drop(buffers);
    direct.rig.turn(Duration::ZERO);
    assert_eq!(direct.counters().registered_bytes, 0);
    assert_eq!(pinned_kib(), before, "what is freed is free");
    if counters.registered_operations == 2 * 64 {
        eprintln!("SKIPPED: this user may lock as much memory as it likes");
        return;
    }
    assert!(counters.registered_bytes as u64 <= limit);
    assert_eq!(counters.registered_bytes_max, counters.registered_bytes);
    let lines = lines.0.lock().unwrap();
    let about: Vec<_> = lines
        .iter()
        .filter(|it| it.contains("RLIMIT_MEMLOCK"))
        .collect();
    assert_eq!(about.len(), 1, "{lines:?}");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What the kernel says is pinned of this process.
fn pinned_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let value = line.unwrap().trim().trim_end_matches(" kB");
    value.parse().unwrap()
}

/// Sets the limit that the environment asks for.
fn set_limit() -> Option<u64> {
    let limit = std::env::var(LIMIT_VARIABLE).ok()?.parse().unwrap();
    let rlimit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    rustix::process::setrlimit(Resource::Memlock, rlimit).unwrap();
    Some(limit)
}

/// Not a test of its own: what the child does.
#[test]
#[ignore = "run by the others in a process of its own"]
fn child() {
    let Some(limit) = set_limit() else { return };
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
    assert!(
        matches!(events[..], [EngineEvent::Socket { .. }]),
        "{events:?}"
    );
}
