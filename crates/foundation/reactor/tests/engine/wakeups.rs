//! Sleeping, waking and not waking.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longshore_reactor::{EngineEvent, mailbox};

use crate::rig::{PATIENCE, on_both_engines, pair};

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

extern "C" fn ignore(_signal: libc::c_int) {}

on_both_engines! {
    fn wait_lasts_as_long_as_its_timeout(rig) {
        rig.turn(Duration::ZERO);
        for timeout in [Duration::from_micros(700), Duration::from_millis(40)] {
            let start = Instant::now();
            assert!(rig.turn(timeout).is_empty());
            assert!(start.elapsed() >= timeout);
        }
    }

    fn zero_timeout_does_not_sleep(rig) {
        let start = Instant::now();
        for _ in 0..100 {
            assert!(rig.turn(Duration::ZERO).is_empty());
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(rig.engine.counters().sleeps, 0);
    }

    fn largest_timeout_is_accepted(rig) {
        rig.engine.waker().wake();
        assert!(matches!(rig.turn(Duration::MAX)[..], [EngineEvent::Woken]));
    }

    fn wake_from_another_thread_ends_an_endless_sleep(rig) {
        let waker = rig.engine.waker();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let mut events = Vec::new();
        while events.is_empty() {
            rig.engine.wait(None, &mut events).unwrap();
        }
        assert!(matches!(events[..], [EngineEvent::Woken]));
        other.join().unwrap();
    }

    fn wake_before_the_wait_is_reported_once_without_sleep(rig) {
        rig.engine.waker().wake();
        rig.engine.waker().wake();
        assert!(matches!(rig.turn(PATIENCE)[..], [EngineEvent::Woken]));
        assert!(rig.turn(Duration::ZERO).is_empty());
    }

    fn every_message_of_many_threads_arrives_in_order(rig) {
        const THREADS: usize = 4;
        const MESSAGES: u32 = 20_000;
        let (sender, mut mailbox) = mailbox(64, rig.engine.waker());
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for number in 0..MESSAGES {
                        while sender.send((thread, number)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; THREADS];
        while next != [MESSAGES; THREADS] {
            let events = rig.next_events();
            assert!(matches!(events[..], [EngineEvent::Woken]), "{events:?}");
            while let Some((thread, number)) = mailbox.receive() {
                assert_eq!(number, next[thread]);
                next[thread] += 1;
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn idle_engine_with_connections_uses_no_processor(rig) {
        let connections: Vec<_> = (0..100)
            .map(|token| rig.connection(longshore_reactor::SocketToken(token)))
            .collect();
        while !rig.turn(Duration::from_millis(50)).is_empty() {}
        let mut used = Duration::ZERO;
        let is_little = (0..3).any(|_| {
            let (turns, time, start) =
                (rig.engine.counters().turns, thread_time(), Instant::now());
            while start.elapsed() < Duration::from_millis(500) {
                assert!(rig.turn(Duration::from_secs(1)).is_empty());
            }
            assert!(rig.engine.counters().turns - turns <= 2, "it wakes up by itself");
            // 0.2 % of a core, the promise of an idle server, is 1 ms per 500 ms.
            used = thread_time() - time;
            used < Duration::from_millis(1)
        });
        assert!(is_little, "{used:?}");
        drop(connections);
    }

    fn signal_ends_a_sleep_without_an_error(rig) {
        // SAFETY: the handler does nothing, so it may run at any moment.
        unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t) };
        // SAFETY: always succeeds and touches no memory.
        let thread = unsafe { libc::pthread_self() };
        let (ours, _peer) = pair();
        rig.engine.register(ours.as_fd(), longshore_reactor::SocketToken(1)).unwrap();
        while !rig.turn(Duration::from_millis(20)).is_empty() {}
        let (start, done) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The first may come before the sleep.
                while !done.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(50));
                    // SAFETY: the thread is alive: it does not leave the scope before this one ends.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                }
            });
            let events = rig.turn(PATIENCE);
            done.store(true, Ordering::Relaxed);
            assert!(events.is_empty());
            assert!(start.elapsed() < PATIENCE / 2);
        });
    }

    fn polling_an_idle_ring_makes_no_system_calls(rig) {
        rig.turn(Duration::from_millis(1));
        let before = rig.engine.counters().system_calls;
        for _ in 0..100 {
            rig.turn(Duration::ZERO);
        }
        let calls = rig.engine.counters().system_calls - before;
        match rig.engine.kind() {
            longshore_reactor::EngineKind::IoUring => assert_eq!(calls, 0),
            longshore_reactor::EngineKind::Epoll => assert_eq!(calls, 100),
        }
    }
}
