//! Step by step, and side by side with the specification as it is written.

use super::*;
use crate::config::TransmitPolicy;

fn machine(threshold: u32, margin: u32) -> AdaptiveNagle {
    AdaptiveNagle::new(&config(threshold, margin, NagleCycles::Paper))
}

fn config(threshold: u32, margin: u32, cycles: NagleCycles) -> TransmitConfig {
    TransmitConfig {
        policy: TransmitPolicy::AdaptiveNagle,
        nagle_threshold: NagleThreshold::Requests(threshold),
        nagle_margin: margin,
        nagle_cycles: cycles,
        ..TransmitConfig::default()
    }
}

/// Reads so many requests; at which of them, from 1, Nagle was enabled.
fn read(machine: &mut AdaptiveNagle, requests: u32) -> Option<u32> {
    let mut enabled = None;
    for request in 1..=requests {
        match machine.request_read() {
            Switch::Keep => {}
            Switch::Nagle => assert_eq!(enabled.replace(request), None),
            other => panic!("{other:?} after a request"),
        }
    }
    enabled
}

#[test]
fn nagle_waits_for_the_average_of_four_cycles() {
    let mut machine = machine(96, 40);
    // From nothing, (96 + 40) / 2 in the average of four takes 272 requests.
    assert_eq!(read(&mut machine, 271), None);
    assert_eq!(read(&mut machine, 1), Some(1));
    assert!(machine.is_nagle());
}

#[test]
fn nagle_is_enabled_at_the_threshold_after_cycles_that_were_long() {
    let mut machine = machine(96, 40);
    for _ in 0..3 {
        assert_eq!(read(&mut machine, 95), None);
        assert_eq!(machine.idle(), Switch::Keep);
    }
    // 285 are there: the average would do from the first request on.
    assert_eq!(read(&mut machine, 96), Some(96));
}

#[test]
fn short_cycles_never_enable_nagle() {
    let mut machine = machine(96, 40);
    for _ in 0..1000 {
        assert_eq!(read(&mut machine, 95), None);
        assert_eq!(machine.idle(), Switch::Keep);
    }
}

#[test]
fn nagle_stays_for_two_short_cycles_after_a_long_one() {
    let mut machine = machine(96, 40);
    read(&mut machine, 300);
    assert_eq!(machine.idle(), Switch::Flush);
    read(&mut machine, 135);
    assert_eq!(machine.idle(), Switch::Flush);
    read(&mut machine, 1);
    assert_eq!(machine.idle(), Switch::Flush);
    read(&mut machine, 135);
    assert_eq!(machine.idle(), Switch::NoDelay);
    assert!(!machine.is_nagle());
}

#[test]
fn a_cycle_of_threshold_and_margin_keeps_nagle() {
    let mut machine = machine(96, 40);
    read(&mut machine, 300);
    for _ in 0..100 {
        assert_eq!(machine.idle(), Switch::Flush);
        read(&mut machine, 136);
    }
    for _ in 0..3 {
        assert!(machine.is_nagle());
        let _ = machine.idle();
        read(&mut machine, 135);
    }
    assert_eq!(machine.idle(), Switch::NoDelay);
}

#[test]
fn threshold_0_is_nagle_for_ever_and_flushes_nothing() {
    let mut machine = machine(0, 40);
    assert_eq!(read(&mut machine, 1), Some(1));
    for _ in 0..10 {
        assert_eq!(machine.idle(), Switch::Keep);
        assert_eq!(machine.flush(), Switch::Keep);
        assert_eq!(read(&mut machine, 1), None);
    }
    assert!(machine.is_nagle());
}

#[test]
fn threshold_1_without_margin_is_nagle_for_ever_and_flushes_when_idle() {
    let mut machine = machine(1, 0);
    assert_eq!(read(&mut machine, 1), Some(1));
    for _ in 0..10 {
        assert_eq!(machine.idle(), Switch::Flush);
        assert_eq!(machine.flush(), Switch::Flush);
        assert_eq!(read(&mut machine, 1), None);
    }
    assert!(machine.is_nagle());
}

#[test]
fn an_infinite_threshold_is_never_reached() {
    let mut machine = AdaptiveNagle::new(&TransmitConfig {
        nagle_threshold: NagleThreshold::Infinite,
        nagle_margin: u32::MAX,
        ..TransmitConfig::default()
    });
    assert_eq!(read(&mut machine, 100_000), None);
    assert_eq!(machine.idle(), Switch::Keep);
}

#[test]
fn a_corrected_cycle_that_began_in_nagle_needs_the_margin_alone() {
    for (cycles, stays) in [(NagleCycles::Paper, false), (NagleCycles::Corrected, true)] {
        let mut machine = AdaptiveNagle::new(&config(96, 40, cycles));
        read(&mut machine, 300);
        for _ in 0..5 {
            let _ = machine.idle();
            read(&mut machine, 40);
        }
        assert_eq!(machine.is_nagle(), stays, "{cycles:?}");
    }
}

#[test]
fn a_corrected_cycle_that_began_without_nagle_needs_threshold_and_margin() {
    let mut machine = AdaptiveNagle::new(&config(96, 40, NagleCycles::Corrected));
    for _ in 0..3 {
        read(&mut machine, 95);
        let _ = machine.idle();
    }
    assert_eq!(read(&mut machine, 135), Some(96));
    assert_eq!(machine.idle(), Switch::NoDelay);
}

/// The specification as it is written, with all its variables.
struct Specification {
    nagle: bool,
    busy: [u64; 4],
    threshold: u64,
    margin: u64,
    /// Calls of `setsockopt(TCP_NODELAY, …)`.
    calls: Vec<bool>,
}

impl Specification {
    fn on_each_complete_request_read(&mut self) {
        self.busy[0] += 1;
        let sum = self.busy[0] + self.busy[1] + self.busy[2] + self.busy[3];
        let (t, m) = (self.threshold, self.margin);
        if !self.nagle && self.busy[0] >= t && (t == 0 || sum / 4 >= (t + m) / 2) {
            self.calls.push(false);
            self.nagle = true;
        }
    }

    fn on_idle(&mut self) {
        let (t, m) = (self.threshold, self.margin);
        if self.nagle && t > 0 {
            self.calls.push(true);
            if self.busy[0] >= t + m || self.busy[1] >= t + m || self.busy[2] >= t + m {
                self.calls.push(false);
            } else {
                self.nagle = false;
            }
        }
        self.busy = [0, self.busy[0], self.busy[1], self.busy[2]];
    }
}

#[test]
fn the_machine_does_what_the_specification_says() {
    // A generator of our own keeps the runs the same everywhere.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..2_000 {
        let threshold = [0, 1, 2, 7, 32, 96, 256][usize::try_from(random(7)).unwrap()];
        let margin = [0, 1, 5, 40][usize::try_from(random(4)).unwrap()];
        let mut machine = machine(threshold, margin);
        let mut specification = Specification {
            nagle: false,
            busy: [0; 4],
            threshold: u64::from(threshold),
            margin: u64::from(margin),
            calls: Vec::new(),
        };
        let mut calls = Vec::new();
        // Cycles around the numbers that decide.
        let around = u64::from(threshold + margin) * 2 + 3;
        for _ in 0..40 {
            for _ in 0..random(around) {
                calls.extend(machine.request_read().settings());
                specification.on_each_complete_request_read();
                assert_eq!(machine.is_nagle(), specification.nagle);
            }
            calls.extend(machine.idle().settings());
            specification.on_idle();
            assert_eq!(machine.is_nagle(), specification.nagle);
            assert_eq!(machine.busy(), specification.busy[0]);
        }
        assert_eq!(
            calls, specification.calls,
            "threshold {threshold}, margin {margin}"
        );
    }
}
