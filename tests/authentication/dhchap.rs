//! NVMe hosts.

use std::time::Duration;

use longshore_nvme::auth::{Answer, Host, Parties, RECEIVE_LENGTH};
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{
    self, ANY_CONTROLLER, Property, authentication_receive, authentication_send,
};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::status::Status;
use longshore_tests::nvme::{HostOptions, Queue, SUBSYSTEM};
use longshore_tests::proxy::Direction;
use longshore_tests::relay::{Passed, Relay};

use crate::rig::{Rig, host_nqn, keep, secret};

const GROUPS: [&str; 4] = ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096"];

#[test]
fn hosts_that_know_their_secrets_are_let_in() {
    for group in GROUPS {
        let keys = format!("dhchap-groups = [\"{group}\"]\ndhchap-hashes = [\"sha384\"]");
        let rig = Rig::start("let-in", &keys, "");
        rig.attach(1, Some(secret(1)), None).unwrap();
        rig.attach(1, Some(secret(1)), Some(secret(9))).unwrap();
        rig.attach(2, Some(secret(2)), None).unwrap();
        rig.attach(3, None, None).unwrap();
    }
}

#[test]
fn hosts_without_their_secret_are_refused_and_told_what_to_do() {
    let rig = Rig::start("refused", "dhchap-groups = [\"null\"]", "");
    let text = rig.refusal(1, None, None);
    assert!(text.contains("--dhchap-secret-file"), "{text}");
    let text = rig.refusal(1, Some(secret(2)), None);
    assert!(
        text.contains("authentication failed") && text.contains("compare"),
        "{text}"
    );
    // Another host's secret is no better than a wrong one.
    let text = rig.refusal(2, Some(secret(1)), None);
    assert!(text.contains("authentication failed"), "{text}");
    let text = rig.refusal(1, Some(secret(1)), Some(secret(8)));
    assert!(text.contains("has not proved"), "{text}");
    // The controller has no secret for host 2.
    let text = rig.refusal(2, Some(secret(2)), Some(secret(9)));
    assert!(text.contains("authentication failed"), "{text}");
    let text = rig.refusal(3, Some(secret(3)), Some(secret(9)));
    assert!(text.contains("does not ask for authentication"), "{text}");
    rig.server.wait_for_log("NVMe authentication failed");
    rig.attach(1, Some(secret(1)), None).unwrap();
}

fn options(number: u8) -> HostOptions {
    HostOptions::numbered(number)
}

fn parties(number: u8) -> Parties {
    Parties {
        host: host_nqn(number),
        subsystem: Nqn::new(SUBSYSTEM).unwrap(),
    }
}

/// Authenticates a queue as a host does; the last status, and whether the controller has agreed.
fn authenticate(queue: &mut Queue, parties: &Parties, seed: u8, transaction: u16) -> bool {
    let secret = secret(seed);
    let mut host = Host::new(parties, &secret, None, transaction);
    let mut message = host.negotiate();
    loop {
        let send = authentication_send(message.len());
        queue.run(&send, &message).unwrap().expect_success();
        let receive = authentication_receive(RECEIVE_LENGTH);
        let answer = queue.run(&receive, &[]).unwrap();
        assert!(answer.status.is_success(), "{:?}", answer.status);
        match host.handle(&answer.data, &mut |bytes| bytes.fill(0x42)) {
            Answer::Reply(reply) => message = reply,
            Answer::Done => return true,
            Answer::Confirm(_) | Answer::Failed(..) => return false,
        }
    }
}

#[test]
fn nothing_is_done_for_a_host_before_it_has_authenticated() {
    let rig = Rig::start("before", "dhchap-groups = [\"null\"]", "");
    let (mut admin, answer) = options(1).try_connect(rig.nvme, 0, ANY_CONTROLLER).unwrap();
    assert!(answer.status.is_success());
    assert_eq!(answer.result >> 16 & 0xffff, 0b10, "ATR");
    for command in [
        commands::property_get(Property::CAP),
        commands::property_set(Property::CC, 0x0046_0001),
        commands::identify(0x01, NamespaceId::NONE),
        commands::keep_alive(),
        commands::disconnect(),
    ] {
        let answer = admin.run(&command, &[]).unwrap();
        let refused = Status::AUTHENTICATION_REQUIRED.do_not_retry();
        assert_eq!(answer.status, refused, "{command:?}");
    }
    let receive = authentication_receive(RECEIVE_LENGTH);
    let early = admin.run(&receive, &[]).unwrap();
    assert_eq!(early.code(), Status::COMMAND_SEQUENCE_ERROR);
    // AL is more than there is room for.
    let mut long = authentication_receive(RECEIVE_LENGTH);
    long.transfer = longshore_nvme::host::Transfer::ToHost(16);
    let refused = admin.run(&long, &[]).unwrap();
    assert_eq!(refused.code(), Status::DATA_SGL_LENGTH_INVALID);
    assert!(authenticate(&mut admin, &parties(1), 1, 1));
    let answer = admin
        .run(&commands::property_get(Property::CAP), &[])
        .unwrap();
    assert!(answer.status.is_success());
}

#[test]
fn each_queue_authenticates_by_itself() {
    let rig = Rig::start("each-queue", "dhchap-groups = [\"null\"]", "");
    let (mut admin, answer) = options(1).try_connect(rig.nvme, 0, ANY_CONTROLLER).unwrap();
    let controller = u16::from_le_bytes([
        answer.result.to_le_bytes()[0],
        answer.result.to_le_bytes()[1],
    ]);
    assert!(authenticate(&mut admin, &parties(1), 1, 1));
    let enable = commands::property_set(Property::CC, 0x0046_0001);
    admin.run(&enable, &[]).unwrap().expect_success();
    let (mut io, answer) = options(1).try_connect(rig.nvme, 1, controller).unwrap();
    assert_eq!(answer.result >> 16 & 0xffff, 0b10, "ATR");
    let read = commands::read(longshore_tests::nvme::blocks(0, 1));
    let early = io.run(&read, &[]).unwrap();
    assert_eq!(early.status, Status::AUTHENTICATION_REQUIRED.do_not_retry());
    assert!(authenticate(&mut io, &parties(1), 1, 2));
    io.run(&read, &[]).unwrap().expect_success();
    // A queue that does not prove itself ends, and no other with it.
    let (mut other, answer) = options(1).try_connect(rig.nvme, 2, controller).unwrap();
    assert!(answer.status.is_success());
    assert!(!authenticate(&mut other, &parties(1), 2, 3));
    assert!(other.run(&read, &[]).is_err(), "the connection is closed");
    io.run(&read, &[]).unwrap().expect_success();
}

#[test]
fn a_host_authenticates_again_while_its_commands_go_on() {
    let rig = Rig::start("again", "dhchap-groups = [\"ffdhe2048\"]", "");
    let (mut admin, answer) = options(1).try_connect(rig.nvme, 0, ANY_CONTROLLER).unwrap();
    let controller = u16::from_le_bytes([
        answer.result.to_le_bytes()[0],
        answer.result.to_le_bytes()[1],
    ]);
    assert!(authenticate(&mut admin, &parties(1), 1, 1));
    let enable = commands::property_set(Property::CC, 0x0046_0001);
    admin.run(&enable, &[]).unwrap().expect_success();
    let (mut io, _) = options(1).try_connect(rig.nvme, 1, controller).unwrap();
    assert!(authenticate(&mut io, &parties(1), 1, 2));
    let read = commands::read(longshore_tests::nvme::blocks(0, 1));
    for transaction in 3..6 {
        // The queue is used in the middle of a transaction.
        let known = secret(1);
        let parties = parties(1);
        let mut host = Host::new(&parties, &known, None, transaction);
        let message = host.negotiate();
        io.run(&authentication_send(message.len()), &message)
            .unwrap()
            .expect_success();
        io.run(&read, &[]).unwrap().expect_success();
        let challenge = io
            .run(&authentication_receive(RECEIVE_LENGTH), &[])
            .unwrap();
        io.run(&read, &[]).unwrap().expect_success();
        let Answer::Reply(reply) = host.handle(&challenge.data, &mut |bytes| bytes.fill(9)) else {
            panic!("the host replies");
        };
        io.run(&authentication_send(reply.len()), &reply)
            .unwrap()
            .expect_success();
        io.run(&read, &[]).unwrap().expect_success();
        let success = io
            .run(&authentication_receive(RECEIVE_LENGTH), &[])
            .unwrap();
        let answer = host.handle(&success.data, &mut |_| {});
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        io.run(&read, &[]).unwrap().expect_success();
    }
    assert!(!authenticate(&mut io, &parties(1), 2, 9));
    assert!(io.run(&read, &[]).is_err(), "the connection is closed");
}

#[test]
fn a_new_secret_counts_for_new_connections_and_leaves_others_alone() {
    let rig = Rig::start("rotation", "dhchap-groups = [\"null\"]", "");
    let old = rig.attach(1, Some(secret(1)), None).unwrap();
    keep(&rig.scratch, "host1", &secret(4).to_text());
    rig.server.reload().unwrap();
    rig.server
        .wait_for_log(&format!("change subsystem {SUBSYSTEM}"));
    // The step is logged when it begins; a host that comes too early is refused or let in by the old secret.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while rig.attach(1, Some(secret(4)), None).is_err() {
        assert!(std::time::Instant::now() < deadline, "{}", rig.server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    rig.refusal(1, Some(secret(1)), None);
    drop(old);
}

#[test]
fn a_host_that_does_not_authenticate_is_disconnected() {
    let rig = Rig::start("time-limit", "", "[limits]\nlogin-timeout = \"1s\"\n");
    let (mut admin, answer) = options(1).try_connect(rig.nvme, 0, ANY_CONTROLLER).unwrap();
    assert!(answer.status.is_success());
    rig.server.wait_for_log("has not authenticated in time");
    assert!(admin.run(&commands::keep_alive(), &[]).is_err());
}

/// User time of each thread of a process, in clock ticks, by name.
fn cpu_of_threads(pid: u32) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((name.trim().to_owned(), fields.get(11)?.parse().ok()?))
    });
    threads.collect()
}

/// What 24 exponentiations of 8,192 bits cost is to be found in the helper, not in the event loops.
#[test]
fn event_loops_compute_no_exponentiations() {
    let rig = Rig::start("helper", "dhchap-groups = [\"ffdhe8192\"]", "");
    let of = |is_helper: bool| -> u64 {
        let threads = cpu_of_threads(rig.server.pid());
        let those = threads
            .iter()
            .filter(|(name, _)| (name == "longshore-auth") == is_helper);
        those.map(|(_, ticks)| ticks).sum()
    };
    // What the start cost does not count.
    let before = of(false);
    for _ in 0..6 {
        rig.attach(1, Some(secret(1)), None).unwrap();
    }
    let (helpers, others) = (of(true), of(false) - before);
    assert!(helpers > others, "{helpers} ticks, and {others} elsewhere");
}

/// A controller that computes for many others says so, and its host tries again.
#[test]
fn a_message_that_comes_at_a_bad_time_is_sent_again() {
    /// The status of what answers the first Authentication Send, behind ICResp and the response to Connect.
    const STATUS: usize = 128 + 24 + 22;
    let rig = Rig::start("bad-time", "dhchap-groups = [\"null\"]", "");
    let relay = Relay::start(rig.nvme, |direction| {
        let mut passed = 0;
        Box::new(move |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let interrupted = Status::COMMAND_INTERRUPTED.0 << 1;
            for (at, byte) in [STATUS, STATUS + 1]
                .into_iter()
                .zip(interrupted.to_le_bytes())
            {
                if direction == Direction::ToClient
                    && let Some(place) = at.checked_sub(passed).and_then(|at| bytes.get_mut(at))
                {
                    *place |= byte;
                }
            }
            passed += bytes.len();
            Passed::On(bytes)
        })
    })
    .unwrap();
    Rig::attach_at(relay.address(), 1, Some(secret(1)), Some(secret(9))).unwrap();
}

#[test]
fn wrong_proofs_make_a_host_wait() {
    let rig = Rig::start(
        "pauses",
        "dhchap-groups = [\"null\"]",
        "[limits]\nlogin-pause-max = \"1h\"\n",
    );
    let connect = |number: u8| {
        let connected = options(number).try_connect(rig.nvme, 0, ANY_CONTROLLER);
        connected.unwrap().0
    };
    let try_wrong = || authenticate(&mut connect(1), &parties(1), 2, 1);
    for _ in 0..6 {
        assert!(!try_wrong());
    }
    rig.server.wait_for_log("too many wrong proofs");
    let negotiate = |queue: &mut Queue, number: u8| {
        let (parties, secret) = (parties(number), secret(number));
        let message = Host::new(&parties, &secret, None, 1).negotiate();
        let send = authentication_send(message.len());
        queue.run(&send, &message).unwrap().status
    };
    // A slow machine may miss the first pause, of a second, and finds the next one, which is longer.
    let is_paused = (0..10).any(|_| {
        let status = negotiate(&mut connect(1), 1);
        if status.is_success() {
            assert!(!try_wrong());
        }
        status == Status::COMMAND_INTERRUPTED
    });
    assert!(is_paused, "during a pause, the right secret is none either");
    // Another host of the same address has pauses of its own.
    assert!(negotiate(&mut connect(2), 2).is_success());
}
