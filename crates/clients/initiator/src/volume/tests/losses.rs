//! Connections that are cut, silent or slow.

use super::super::mail::QueueAddress;
use super::fake::Behaviour;
use super::*;
use crate::error::Sense;

const UNIT_ATTENTION: Failure = Failure::Scsi {
    status: 0x02,
    sense: Some(Sense {
        key: 6,
        asc: 0x29,
        ascq: 0,
        information: None,
    }),
};
const BUSY: Failure = Failure::Scsi {
    status: 0x08,
    sense: None,
};

#[test]
fn operations_lost_with_a_connection_are_done_on_the_next() {
    for behaviour in [Behaviour::CutBefore, Behaviour::CutAfter] {
        let fake = Fake::new(1);
        let volume = open(&fake);
        fake.behaviours([behaviour.clone()]);
        assert_eq!(run(&volume, write(3, 1), 7), Ok(()), "{behaviour:?}");
        assert_eq!(fake.word(3), 7);
        fake.behaviours([behaviour.clone()]);
        let read = submit(&volume, read(3, 1), 0);
        assert_eq!(read.result(), Ok(()));
        assert_eq!(read.words(), [7]);
        fake.behaviours([behaviour.clone()]);
        assert_eq!(run(&volume, Operation::Flush, 0), Ok(()));
        let counters = volume.state().counters;
        assert_eq!((counters.reconnects, counters.resubmissions), (3, 3));
        volume.close();
    }
}

#[test]
fn what_was_not_sent_is_no_resubmission() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    // The first cuts the connection while the second has not been sent.
    fake.world().send_limit = 1;
    fake.behaviours([Behaviour::CutBefore]);
    let collector = Collector::new();
    let cork = crate::volume::Cork::new();
    for tag in 0..2 {
        let operation = compare_and_write(tag, 1);
        volume.submit(operation, data_for(&operation, 0), collector.clone(), tag);
    }
    drop(cork);
    let results = collector.results(2);
    assert!(matches!(results[0].1, Err(Failure::OutcomeUnknown(_))));
    assert_eq!(results[1].1, Ok(()), "it never left");
    assert_eq!(volume.state().counters.resubmissions, 0);
    volume.close();
}

#[test]
fn compare_and_write_that_may_have_been_done_has_an_unknown_outcome() {
    for (behaviour, executed) in [(Behaviour::CutBefore, 0), (Behaviour::CutAfter, 1)] {
        let fake = Fake::new(1);
        let volume = open(&fake);
        fake.behaviours([behaviour]);
        let result = run(&volume, compare_and_write(0, 1), 0);
        assert!(
            matches!(result, Err(Failure::OutcomeUnknown(_))),
            "{result:?}"
        );
        assert_eq!(run(&volume, read(0, 1), 1), Ok(()));
        let compared = |operation: &Operation| !operation.is_idempotent();
        assert_eq!(
            fake.executed().iter().filter(|o| compared(o)).count(),
            executed
        );
        assert_eq!(volume.state().counters.unknown_outcomes, 1);
        volume.close();
    }
}

#[test]
fn an_operation_that_takes_the_connection_down_each_time_fails_in_the_end() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.foretell(|_, operation| match operation {
        Operation::Write { .. } => Behaviour::CutBefore,
        _ => Behaviour::Answer,
    });
    let result = run(&volume, write(0, 1), 1);
    assert!(
        matches!(result, Err(Failure::ConnectionLost(_))),
        "{result:?}"
    );
    assert_eq!(volume.state().counters.resubmissions, 5);
    assert_eq!(run(&volume, read(0, 1), 2), Ok(()), "others go on");
    volume.close();
}

#[test]
fn an_operation_without_an_answer_in_time_costs_the_connection_and_is_done_on_the_next() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.timeouts.request = Duration::from_millis(60);
    let volume = open_with(&fake, settings);
    fake.behaviours([Behaviour::Hold]);
    let begun = Instant::now();
    assert_eq!(run(&volume, write(0, 1), 5), Ok(()));
    assert!(
        begun.elapsed() >= Duration::from_millis(60),
        "not before its time"
    );
    assert_eq!(fake.word(0), 5);
    let counters = volume.state().counters;
    assert_eq!((counters.timeouts, counters.reconnects), (1, 1));
    volume.close();
}

#[test]
fn a_silent_peer_is_asked_and_given_up_when_it_does_not_answer() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.timeouts.keep_alive = Duration::from_millis(20);
    let volume = open_with(&fake, settings);
    // Time is the subject: several questions fall due. A machine that stands still for a moment is silent too.
    let losses = || volume.state().counters.losses;
    let answers = (0..20).any(|_| {
        let before = losses();
        std::thread::sleep(Duration::from_millis(150));
        losses() == before
    });
    assert!(answers, "it answers");
    let silences = volume.state().counters.silences;
    fake.world().answers_pings = false;
    until("the silence is found", || {
        volume.state().counters.silences > silences
    });
    fake.world().answers_pings = true;
    assert_eq!(run(&volume, read(0, 1), 0), Ok(()));
    volume.close();
}

#[test]
fn a_busy_peer_is_asked_again_until_it_does_it() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.behaviours([
        Behaviour::Fail(UNIT_ATTENTION),
        Behaviour::Fail(BUSY),
        Behaviour::Fail(BUSY),
    ]);
    assert_eq!(run(&volume, write(1, 1), 4), Ok(()));
    assert_eq!(volume.state().counters.retries, 3);
    fake.behaviours([Behaviour::Fail(UNIT_ATTENTION), Behaviour::Fail(BUSY)]);
    assert_eq!(
        run(&volume, compare_and_write(1, 1), 4),
        Ok(()),
        "it was not begun, so it can be repeated"
    );
    volume.close();
}

#[test]
fn a_peer_that_is_busy_for_too_long_is_believed() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.retry_for = Duration::from_millis(50);
    let volume = open_with(&fake, settings);
    fake.foretell(|_, _| Behaviour::Fail(BUSY));
    assert_eq!(run(&volume, write(1, 1), 4), Err(BUSY));
    fake.foretell(|_, _| Behaviour::Fail(UNIT_ATTENTION));
    assert_eq!(run(&volume, write(1, 1), 4), Err(UNIT_ATTENTION));
    volume.close();
}

#[test]
fn failures_that_repeating_does_not_help_are_reported_at_once() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    for failure in [
        Failure::ReservationConflict,
        Failure::OutOfRange,
        Failure::NoSpace,
    ] {
        fake.behaviours([Behaviour::Fail(failure.clone())]);
        assert_eq!(run(&volume, write(1, 1), 4), Err(failure));
    }
    assert_eq!(volume.state().counters.retries, 0);
    volume.close();
}

#[test]
fn without_a_path_for_too_long_everything_fails_and_later_works_again() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.timeouts.give_up = Duration::from_secs(2);
    let volume = open_with(&fake, settings);
    assert_eq!(volume.state().outage, None);
    fake.take_away(0);
    let waits = submit(&volume, read(0, 1), 0);
    until("the outage shows", || volume.state().outage.is_some());
    let outage = volume.state().outage.unwrap();
    let left = outage.gives_up_in.unwrap();
    assert!(left + outage.lasted >= Duration::from_secs(2), "{outage:?}");
    assert!(left <= Duration::from_secs(2), "{outage:?}");
    assert!(matches!(waits.result(), Err(Failure::ConnectionLost(_))));
    let left = volume.state().outage.unwrap().gives_up_in;
    assert_eq!(left, Some(Duration::ZERO), "it lasts");
    // A machine that stands still for a moment is slow once, not each time.
    let no_second_wait = (0..5).any(|_| {
        let begun = Instant::now();
        let read = run(&volume, read(0, 1), 0);
        assert!(matches!(read, Err(Failure::ConnectionLost(_))));
        begun.elapsed() < Duration::from_millis(1500)
    });
    assert!(no_second_wait);
    fake.bring_back(0);
    until("it works again", || run(&volume, read(0, 1), 0).is_ok());
    assert_eq!(volume.state().outage, None);
    volume.close();
}

#[test]
fn who_hurries_waits_for_no_server_and_no_silent_one() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.behaviours([Behaviour::Hold]);
    fake.world().answers_pings = false;
    let held = submit(&volume, write(0, 1), 1);
    fake.world().portals[0].up = false;
    volume.hurry(Duration::from_millis(10));
    assert!(matches!(held.result(), Err(Failure::ConnectionLost(_))));
    volume.close();
}

#[test]
fn a_restarted_server_that_has_another_volume_is_refused_until_it_has_the_right_one() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.take_away(0);
    let waits = submit(&volume, write(0, 1), 1);
    fake.world().portals[0].serial = Some("another");
    fake.bring_back(0);
    let failure = waits.result().unwrap_err();
    assert!(
        failure.to_string().contains("another volume is there"),
        "{failure}"
    );
    assert!(failure.to_string().contains("ours"), "{failure}");
    assert!(run(&volume, write(0, 1), 2).is_err());
    assert_eq!(fake.word(0), 0, "nothing was written to it");
    let path = &volume.state().paths[0];
    assert_eq!(path.condition, crate::volume::PathCondition::Refused);
    fake.world().portals[0].serial = None;
    until("it is accepted again", || {
        run(&volume, write(0, 1), 3).is_ok()
    });
    volume.close();
}

#[test]
fn closing_finishes_what_is_under_way_and_refuses_what_comes() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.behaviours([Behaviour::Hold]);
    let held = submit(&volume, write(0, 1), 1);
    let other = volume.clone();
    let closer = std::thread::spawn(move || other.close());
    until("it closes", || {
        matches!(run(&volume, read(0, 1), 0), Err(Failure::Closed))
    });
    assert_eq!(held.count(), 0);
    fake.release();
    assert_eq!(held.result(), Ok(()));
    closer.join().unwrap();
    assert_eq!(fake.world().logouts, 1);
    assert_eq!(
        run(&volume, read(0, 1), 0),
        Err(Failure::Closed),
        "after the end, too"
    );
    until("nothing is left", || volume.state().outstanding == 0);
}

#[test]
fn closing_gives_up_what_is_not_answered() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.close_wait = Duration::from_millis(30);
    let volume = open_with(&fake, settings);
    fake.behaviours([Behaviour::Hold, Behaviour::Hold, Behaviour::Hold]);
    let held = [
        submit(&volume, write(0, 1), 1),
        submit(&volume, read(0, 1), 2),
        submit(&volume, compare_and_write(0, 1), 3),
    ];
    volume.close();
    assert_eq!(held[0].result(), Err(Failure::Closed));
    assert_eq!(held[1].result(), Err(Failure::Closed));
    assert!(matches!(held[2].result(), Err(Failure::OutcomeUnknown(_))));
}

#[test]
fn closing_waits_for_a_lost_connection_to_come_back() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.volume.close_wait = Duration::from_secs(20);
    let volume = open_with(&fake, settings);
    fake.take_away(0);
    let parked = submit(&volume, write(0, 1), 1);
    let closer = std::thread::spawn(move || volume.close());
    std::thread::sleep(Duration::from_millis(20));
    fake.bring_back(0);
    assert_eq!(parked.result(), Ok(()));
    closer.join().unwrap();
}

#[test]
fn no_thread_is_left_behind() {
    let fake = Fake::new(2);
    let mut settings = settings();
    settings.volume.drivers = 2;
    let volume = open_with(&fake, settings);
    fake.take_away(1);
    assert!(volume_threads() >= 2);
    let clone = volume.clone();
    drop(volume);
    assert_eq!(run(&clone, read(0, 1), 0), Ok(()));
    let shared = Arc::downgrade(&clone.handle.shared);
    drop(clone);
    until("all threads have gone", || shared.strong_count() == 0);
}

#[test]
fn a_completer_may_close_the_volume() {
    struct Closes(Mutex<Option<RemoteVolume>>);
    impl Completer for Closes {
        fn complete(&self, _: Completion) {
            let volume = self.0.lock().unwrap().take();
            volume.expect("one completion").close();
        }
    }
    let fake = Fake::new(1);
    let volume = open(&fake);
    let shared = Arc::downgrade(&volume.handle.shared);
    let closes = Arc::new(Closes(Mutex::new(Some(volume.clone()))));
    volume.submit(read(0, 1), data_for(&read(0, 1), 0), closes, 0);
    drop(volume);
    until("it has closed", || shared.strong_count() == 0);
}

#[test]
fn a_peer_that_takes_no_commands_costs_the_connection_in_the_end() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.timeouts.request = Duration::from_millis(60);
    fake.world().room = 0;
    let volume = open_with(&fake, settings);
    fake.world().room = 32;
    assert_eq!(run(&volume, write(0, 1), 5), Ok(()));
    let counters = volume.state().counters;
    assert_eq!((counters.timeouts, counters.reconnects), (1, 1));
    volume.close();
}

#[test]
fn an_operation_that_comes_while_its_queue_is_taken_down_goes_elsewhere() {
    let fake = Fake::new(2);
    let mut settings = settings();
    // A tick each 5 s.
    settings.timeouts.request = Duration::from_secs(60);
    settings.timeouts.keep_alive = Duration::from_secs(60);
    settings.timeouts.give_up = Duration::from_secs(60);
    let volume = open_with(&fake, settings);
    until("all paths are up", || {
        volume.state().paths.iter().all(|path| path.queues > 0)
    });
    let shared = volume.handle.shared.clone();
    let address = QueueAddress { path: 0, queue: 0 };
    // It has chosen its queue, meets the one who empties it, and comes too late for that.
    let late = (volume.clone(), shared.clone());
    BEFORE_LETTING_GO.set(Some(Box::new(move || {
        submit(&late.0, write(0, 1), 3);
        late.1.set_routes(0b10, 0b10);
    })));
    drop(shared.queue(address).take_down(&shared));
    assert!(BEFORE_LETTING_GO.take().is_none(), "it has come");
    let begun = Instant::now();
    until("it is done elsewhere", || fake.word(0) == 3);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "before the next tick"
    );
    drop(shared);
    drop(volume);
}

#[test]
fn a_completer_that_panics_ends_the_volume_and_everything_under_way() {
    struct Panics;
    impl Completer for Panics {
        fn complete(&self, _: Completion) {
            panic!("a completer's mistake");
        }
    }
    for drivers in [1, 2] {
        let fake = Fake::new(1);
        fake.world().portals[0].maps = QueueMaps::plain(2);
        let mut settings = settings();
        settings.volume.drivers = drivers;
        settings.queues = QueueMaps::plain(2);
        let volume = open_with(&fake, settings);
        fake.behaviours([Behaviour::Hold, Behaviour::Hold]);
        let held = [
            submit(&volume, read(0, 1), 1),
            submit(&volume, compare_and_write(0, 1), 2),
        ];
        until("they are there", || fake.held() == 2);
        let operation = read(1, 1);
        volume.submit(operation, data_for(&operation, 0), Arc::new(Panics), 0);
        assert_eq!(held[0].result(), Err(Failure::Closed));
        assert!(matches!(held[1].result(), Err(Failure::OutcomeUnknown(_))));
        assert_eq!(run(&volume, read(0, 1), 0), Err(Failure::Closed));
        volume.close();
    }
}
