//! Health while an event loop stands still, and while the server ends.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::opcode;
use longshore_tests::server::{ServerBuilder, TARGET, signal};
use longshore_tests::skip::skip;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::rig::{LIMIT, Rig, ask_scsi, login, wait_for};

/// The number of a thread, by its name.
fn thread(process: u32, name: &str) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .map(|task| task.unwrap())
        .find(|task| {
            let found = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            found.trim() == name
        })
        .map(|task| task.file_name().to_string_lossy().parse().unwrap())
        .unwrap_or_else(|| panic!("no thread {name}"))
}

/// A thread that stands still while its process goes on. It goes on when this value goes away.
struct Stopped(Pid);

impl Stopped {
    /// `None`: it may not be traced here.
    fn new(thread: i32) -> Option<Self> {
        let thread = Pid::from_raw(thread);
        ptrace::seize(thread, ptrace::Options::empty()).ok()?;
        ptrace::interrupt(thread).unwrap();
        // Threads of others are waited for with __WALL.
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Some(Self(thread))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// How many messages say that the server lives; those that have come by now.
fn signs_of_life(socket: &UnixDatagram) -> usize {
    let mut signs = 0;
    let mut bytes = [0; 4096];
    while let Ok(length) = socket.recv(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..length]);
        signs += text.lines().filter(|line| *line == "WATCHDOG=1").count();
    }
    signs
}

#[test]
fn an_event_loop_that_stands_still_is_no_health_and_ends_the_signs_of_life() {
    let mut rig = Rig::new(ServerBuilder::new(), "");
    let path = rig.path("notify");
    let notified = UnixDatagram::bind(&path).unwrap();
    notified.set_nonblocking(true).unwrap();
    let notify = format!("NOTIFY_SOCKET={path}");
    let variables = [
        "env",
        "--unset=WATCHDOG_PID",
        &notify,
        "WATCHDOG_USEC=600000",
    ];
    rig.below(&variables);
    rig.start_again();
    let health = || rig.ask("GET", "/healthz", None);
    assert_eq!(health().status, 200);
    wait_for("a sign of life", || signs_of_life(&notified) > 0);

    let Some(stopped) = Stopped::new(thread(rig.server().pid(), "reactor-0")) else {
        skip("nothing can be traced here");
        return;
    };
    wait_for("bad health", || health().status == 503);
    let told = health().json();
    assert_eq!(told["alive"], false, "{told}");
    assert!(!told["reasons"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(rig.ask("GET", "/readyz", None).status, 503);
    // A sign may have been on its way; when the server complains, none is.
    rig.server().wait_for_log("an event loop does not answer");
    signs_of_life(&notified);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(signs_of_life(&notified), 0);

    drop(stopped);
    wait_for("good health", || health().status == 200);
    wait_for("a sign of life", || signs_of_life(&notified) > 0);
    assert_eq!(rig.ask("GET", "/readyz", None).status, 200);
}

#[test]
fn a_server_that_drains_lives_and_is_not_ready() {
    let mut rig = Rig::new(ServerBuilder::new(), "");
    rig.drain_timeout = LIMIT;
    rig.write_file("");
    rig.start_again();
    assert_eq!(rig.ask("GET", "/readyz", None).status, 200);
    // A write whose data come late.
    let login = Login {
        initial_r2t: true,
        immediate_data: false,
        ..login(TARGET, 1)
    };
    let mut late = Initiator::log_in(rig.iscsi, &login).unwrap();
    ask_scsi(&mut late, &cdb::TEST_UNIT_READY, Data::None);
    let write = late.command_pdu(0, &cdb::write_16(0, 1, false), Data::Out(&[1; 512]));
    late.send(&write).unwrap();
    let r2t = late.receive().unwrap();
    assert_eq!(r2t.opcode(), opcode::R2T);

    signal(rig.server().pid(), "TERM").unwrap();
    wait_for("not ready", || {
        rig.ask("GET", "/readyz", None).status == 503
    });
    let told = rig.ask("GET", "/readyz", None).json();
    assert_eq!(
        (&told["alive"], &told["ready"]),
        (&true.into(), &false.into())
    );
    assert!(told["reasons"].to_string().contains("stopping"), "{told}");
    assert_eq!(rig.ask("GET", "/healthz", None).status, 200);
    let change = rig.ask("DELETE", "/api/v1/volumes/f0", None);
    assert!(!(200..300).contains(&change.status), "{change:?}");

    // Then they come, and all of it ends well.
    let data = longshore_tests::pdu::Pdu::new(opcode::DATA_OUT)
        .set_byte(1, 0x80)
        .set_word(16, r2t.initiator_task_tag())
        .set_word(20, r2t.target_transfer_tag())
        .with_data(&[1; 512]);
    late.send(&data).unwrap();
    assert!(rig.wait_for_end().success());
    assert_eq!(fs::read(rig.path("f0.img")).unwrap()[0], 1);
}
