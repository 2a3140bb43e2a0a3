//! Operations that somebody else carries out.

use std::cell::Cell;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use longshore_reactor::storage::{Delegated, FileHandle, FileOperation, FileOperationKind};
use longshore_reactor::storage::{Storage, StorageTag};
use longshore_reactor::{Buffer, EngineConfig, EngineEvent};

use crate::rig::{A_WHILE, on_both_engines};

fn filled(value: u8) -> Buffer {
    let mut buffer = Buffer::allocate(512);
    buffer.fill(value);
    buffer
}

fn in_another_thread(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(work)
}

on_both_engines! {
    fn operation_completed_before_the_wait_is_reported_by_it(rig) {
        let delegated = rig.engine.delegate(StorageTag(7));
        assert_eq!(delegated.tag(), StorageTag(7));
        assert_eq!(rig.engine.operations_in_flight(), 1);
        delegated.complete(Ok(512), Some(filled(3)));
        let done = rig.completions(1).pop().unwrap();
        assert_eq!((done.tag, done.result.unwrap()), (StorageTag(7), 512));
        assert_eq!(done.buffer.unwrap()[..], [3; 512]);
        assert_eq!(rig.engine.operations_in_flight(), 0);
    }

    fn completion_by_another_thread_wakes_the_engine(rig) {
        let delegated = rig.engine.delegate(StorageTag(1));
        let other = in_another_thread(move || {
            thread::sleep(A_WHILE);
            delegated.complete(Err(ErrorKind::TimedOut.into()), Some(filled(1)));
        });
        let start = Instant::now();
        let events = rig.turn(Duration::from_secs(20));
        assert!(start.elapsed() < Duration::from_secs(10), "slept on");
        let [EngineEvent::File(done)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(done.result.as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(done.buffer.is_some(), "the buffer comes back with an error too");
        other.join().unwrap();
    }

    fn each_of_many_comes_back_once_with_its_own_result(rig) {
        const OPERATIONS: u64 = 600;
        const THREADS: u64 = 3;
        let mut shares: Vec<Vec<Delegated>> = (0..THREADS).map(|_| Vec::new()).collect();
        for number in 0..OPERATIONS {
            let share = usize::try_from(number % THREADS).unwrap();
            shares[share].push(rig.engine.delegate(StorageTag(number)));
        }
        for share in shares {
            in_another_thread(move || {
                for delegated in share {
                    let tag = delegated.tag().0;
                    delegated.complete(Ok(tag * 2), None);
                }
            });
        }
        let mut tags: Vec<u64> = rig
            .completions(600)
            .into_iter()
            .map(|done| {
                assert_eq!(done.result.unwrap(), done.tag.0 * 2);
                done.tag.0
            })
            .collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..OPERATIONS));
        let counters = rig.engine.counters();
        assert_eq!((counters.file_submitted, counters.file_completed), (OPERATIONS, OPERATIONS));
        assert_eq!(counters.helper_operations, 0);
    }

    fn dropped_operation_completes_as_cancelled(rig) {
        drop(rig.engine.delegate(StorageTag(5)));
        let done = rig.completions(1).pop().unwrap();
        assert_eq!(done.tag, StorageTag(5));
        assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert!(done.buffer.is_none());
        assert_eq!(rig.engine.operations_in_flight(), 0);
    }

    fn delegated_operations_and_those_on_files_do_not_disturb_each_other(rig) {
        let file = FileHandle(Arc::new(tempfile::tempfile().unwrap()));
        let mut waiting = Vec::new();
        for number in 0..40 {
            waiting.push(rig.engine.delegate(StorageTag(1000 + number)));
            let kind = FileOperationKind::Write {
                offset: number * 512,
                buffer: filled(1),
                start: 0,
                end: 512,
                dsync: false,
            };
            let tag = StorageTag(number);
            rig.engine.submit(FileOperation { file: file.clone(), kind, is_direct: false, tag });
        }
        let written = rig.completions(40);
        assert!(written.iter().all(|done| done.tag.0 < 1000));
        assert_eq!(rig.engine.operations_in_flight(), 40);
        in_another_thread(move || waiting.into_iter().for_each(|one| one.complete(Ok(0), None)));
        assert!(rig.completions(40).iter().all(|done| done.tag.0 >= 1000));
        assert_eq!(rig.engine.operations_in_flight(), 0);
    }

    fn dropping_an_engine_waits_for_what_was_delegated(rig) {
        let mut engine = rig.resized(EngineConfig::default()).engine;
        let delegated = engine.delegate(StorageTag(1));
        let buffer = Arc::new(());
        let witness = buffer.clone();
        let other = in_another_thread(move || {
            thread::sleep(Duration::from_millis(100));
            drop(witness);
            delegated.complete(Ok(0), Some(filled(1)));
        });
        let start = Instant::now();
        drop(engine);
        assert!(start.elapsed() < Duration::from_secs(5), "waits no longer than it takes");
        assert_eq!(Arc::strong_count(&buffer), 1, "the operation is still under way");
        other.join().unwrap();
    }

    fn what_is_to_happen_at_the_end_of_a_turn_happens_once_before_the_next_wait(rig) {
        thread_local! {
            static CALLS: Cell<u32> = const { Cell::new(0) };
        }
        fn call() {
            CALLS.set(CALLS.get() + 1);
        }
        let mut engine = rig.resized(EngineConfig::default()).engine;
        engine.at_turn_end(call);
        engine.at_turn_end(call);
        assert_eq!(CALLS.get(), 0, "the turn goes on");
        engine.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        assert_eq!(CALLS.get(), 2);
        engine.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        assert_eq!(CALLS.get(), 2);
        engine.at_turn_end(call);
        drop(engine);
        assert_eq!(CALLS.get(), 3, "the last turn ends with the engine");
    }

    fn idle_engine_with_a_delegated_operation_sleeps(rig) {
        let delegated = rig.engine.delegate(StorageTag(1));
        rig.turn(Duration::ZERO);
        let before = rig.engine.counters();
        let start = Instant::now();
        assert!(rig.turn(A_WHILE).is_empty());
        assert!(start.elapsed() >= A_WHILE);
        assert_eq!(rig.engine.counters().turns - before.turns, 1);
        delegated.complete(Ok(0), None);
        rig.completions(1);
    }
}
