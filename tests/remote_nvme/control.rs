//! What the admin queue of an attachment does: keep-alive, news, questions, the end.

use std::fs::OpenOptions;
use std::time::{Duration, Instant};

use longshore_initiator::attach::Control;
use longshore_initiator::error::{Failure, Lost};
use longshore_initiator::info::Notice;
use longshore_initiator::operation::{Data, Operation};
use longshore_initiator::options::Options;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands;
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::process::assert_takes_less;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{ServerBuilder, signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{LIMIT, attach_with, buffer, extent, negotiated, run, serve, write};

/// Drives the admin queue for so long, or until there are news or it is lost.
fn drive(control: &mut Control, limit: Duration) -> Result<Vec<Notice>, Lost> {
    let until = Instant::now() + limit;
    loop {
        let news = control.drive(Instant::now())?;
        if !news.is_empty() || Instant::now() >= until {
            return Ok(news);
        }
        let due = control.deadline().unwrap_or(until).min(until);
        let pause = due.saturating_duration_since(Instant::now());
        let pause = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap(),
            tv_nsec: pause.subsec_nanos().into(),
        };
        let socket = control.socket().unwrap();
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&pause)).unwrap();
    }
}

fn with_keep_alive(keep_alive: Duration) -> Options {
    let mut options = Options::default();
    options.nvme.keep_alive = keep_alive;
    options
}

const SHORT: Duration = Duration::from_millis(600);

#[test]
fn an_admin_queue_tells_how_long_a_round_trip_takes() {
    let server = serve();
    for keep_alive in [Duration::from_secs(10), Duration::ZERO] {
        let mut attachment = attach_with(&server, &with_keep_alive(keep_alive));
        for _ in 0..3 {
            let took = attachment.control.round_trip().unwrap().unwrap();
            assert!(!took.is_zero() && took < LIMIT);
        }
    }
    let mut attachment = attach_with(&server, &with_keep_alive(SHORT));
    signal(server.pid(), "STOP").unwrap();
    assert_eq!(attachment.control.round_trip(), Err(Lost::Silent));
    signal(server.pid(), "CONT").unwrap();
}

#[test]
fn an_association_that_is_driven_lives_and_one_that_is_not_expires() {
    let server = serve();
    let mut left = attach_with(&server, &with_keep_alive(SHORT));
    // A machine that stands still for as long as a keep-alive loses one, but not each time.
    let lives = (0..3).any(|_| {
        let mut driven = attach_with(&server, &with_keep_alive(Duration::from_secs(3)));
        assert_eq!(negotiated(&driven, "KATO"), "3000 ms");
        let two_and_a_half = Duration::from_millis(7_500);
        let lives = drive(&mut driven.control, two_and_a_half) == Ok(Vec::new());
        if lives {
            write(&mut driven.queues[0], 0, &[1; 512]);
        }
        lives
    });
    assert!(lives);
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    while left.queues[0].receive(&mut completions).is_ok() {
        assert!(Instant::now() < until, "the server lets nobody go");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(drive(&mut left.control, LIMIT).is_err());
}

#[test]
fn a_server_that_falls_silent_is_noticed() {
    let server = serve();
    assert_takes_less(SHORT * 6, || {
        let mut attachment = attach_with(&server, &with_keep_alive(SHORT));
        let began = Instant::now();
        signal(server.pid(), "STOP").unwrap();
        let lost = drive(&mut attachment.control, LIMIT).unwrap_err();
        assert_eq!(lost, Lost::Silent);
        let took = began.elapsed();
        signal(server.pid(), "CONT").unwrap();
        took
    });
}

#[test]
fn a_server_that_is_killed_is_noticed_at_once() {
    assert_takes_less(Duration::from_secs(2), || {
        let server = serve();
        let mut attachment = attach_with(&server, &Options::default());
        server.kill().unwrap();
        let began = Instant::now();
        drive(&mut attachment.control, LIMIT).unwrap_err();
        began.elapsed()
    });
}

#[test]
fn a_volume_that_grows_is_news_and_can_be_used_to_its_new_end() {
    let scratch = Scratch::new("remote-nvme-grow");
    let disk = scratch.join("disk0.img");
    let volume = format!("disk0,backend=file,path={},size=16M", disk.display());
    let server = ServerBuilder::new().volume(&volume).nvme().start().unwrap();
    let mut attachment = attach_with(&server, &Options::default());
    assert_eq!(attachment.info.block_count, 16 << 11);
    for megabytes in [32_u64, 48] {
        let file = OpenOptions::new().write(true).open(&disk).unwrap();
        file.set_len(megabytes << 20).unwrap();
        server.reload().unwrap();
        let news = drive(&mut attachment.control, LIMIT).unwrap();
        assert_eq!(news, [Notice::CapacityChanged]);
        let description = attachment.control.describe().unwrap();
        assert_eq!(description.info.block_count, megabytes << 11);
        write(&mut attachment.queues[0], (megabytes << 11) - 1, &[9; 512]);
    }
}

#[test]
fn a_description_tells_of_reservations_of_others() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let none = attachment.control.describe().unwrap().reservation.unwrap();
    assert_eq!((none.kind, none.registrations.len()), (None, 0));
    // Write Exclusive, by another host.
    let mut other = Host::connect(server.nvme(0), &HostOptions::default()).unwrap();
    let one = NamespaceId(1);
    let key = [0_u64.to_le_bytes(), 0x77_u64.to_le_bytes()].concat();
    let register = commands::reservation_register(one, 0);
    other.io(&register, &key).unwrap().expect_success();
    let key = [0x77_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let acquire = commands::reservation_acquire(one, 0, 1);
    other.io(&acquire, &key).unwrap().expect_success();
    let description = attachment.control.describe().unwrap();
    let report = description.reservation.unwrap();
    assert_eq!(report.kind.as_deref(), Some("Write Exclusive"));
    assert!(report.holder.unwrap().starts_with("0x0000000000000077"));
    let [registration] = &report.registrations[..] else {
        panic!("one registrant")
    };
    assert!(registration.holds && registration.key == 0x77);
    let operation = Operation::Write {
        extent: extent(0, 1),
        fua: false,
    };
    let (result, _) = run(&mut attachment.queues[0], operation, buffer(&[0; 512]));
    assert_eq!(result, Err(Failure::ReservationConflict));
    // Asking again and again uses up nothing.
    for _ in 0..70 {
        attachment.control.describe().unwrap();
    }
}

#[test]
fn a_description_says_what_was_negotiated() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let description = attachment.control.describe().unwrap();
    assert_eq!(description.info, attachment.info);
    let names: Vec<_> = description
        .negotiated
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for name in [
        "SUBNQN",
        "HOSTNQN",
        "HOSTID",
        "CNTLID",
        "NSID",
        "KATO",
        "MDTS",
        "AWUN",
        "ANA state",
        "I/O queues",
        "SQSIZE",
        "In-capsule data",
        "MAXH2CDATA",
        "HDGST",
        "DDGST",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

#[test]
fn closing_shuts_the_controller_down_and_confirms() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let queue = &mut attachment.queues[0];
    queue.close();
    queue.send().unwrap();
    let until = Instant::now() + LIMIT;
    let mut completions = Vec::new();
    while queue.receive(&mut completions).is_ok() {
        assert!(Instant::now() < until, "the queue stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (result, _) = run(queue, Operation::Flush, Data::None);
    assert!(
        matches!(result, Err(Failure::ConnectionLost(_))),
        "{result:?}"
    );
    assert!(attachment.control.close());
}
