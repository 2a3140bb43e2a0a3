//! Volumes that are made slow: their operations sleep, and nobody waits for one whose answer nobody wants any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::EngineChoice;
use longshore_volume::Volume;
use longshore_volume::layer::slow::{SlowSpec, SlowVolume};

use crate::scene::*;

fn slow(delay: Duration) -> Arc<dyn Volume> {
    let spec = SlowSpec {
        delay,
        ..SlowSpec::default()
    };
    Arc::new(SlowVolume::new(mem("disk", 512), spec))
}

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

#[test]
fn an_operation_takes_the_delay_of_its_volume_at_least() {
    for engine in ENGINES {
        let delay = Duration::from_millis(30);
        let scene = Scene::with(vec![slow(delay)], engine);
        let mut host = scene.host(1);
        let began = Instant::now();
        assert!(write(&mut host, 3, 7).is_good());
        assert!(began.elapsed() >= delay);
        let began = Instant::now();
        assert_eq!(read(&mut host, 3), [7; 512]);
        assert!(began.elapsed() >= delay);
    }
}

#[test]
fn a_task_that_sleeps_is_aborted_at_once() {
    for engine in ENGINES {
        let scene = Scene::with(vec![slow(FOR_EVER)], engine);
        let mut host = scene.host(1);
        let write = begin_write(&mut host, 3, 7);
        assert_silent(&mut host);
        let request = begin_management(&mut host, ABORT_TASK, 0, write);
        assert_eq!(management_response(&mut host, request), 0);
        assert_eq!(settle(&mut host), []);
    }
}

#[test]
fn a_server_ends_although_operations_sleep() {
    for engine in [EngineChoice::IoUring, EngineChoice::Epoll] {
        let scene = Scene::with(vec![slow(FOR_EVER)], engine);
        let mut host = scene.host(1);
        begin_write(&mut host, 3, 7);
        assert_silent(&mut host);
        scene.control().shut_down();
        drop(host);
        scene.wait();
    }
}
