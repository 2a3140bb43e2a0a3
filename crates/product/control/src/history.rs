//! Samples of the last seconds, and what happened between them. There are some while somebody looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_api::VERSION;
use longshore_api::rates::Rates;
use longshore_api::sample::Sample;
use longshore_dashboard::{Activity, Moment};
use serde::Serialize;

/// Samples that are kept: the longest time that a page takes the mean of is this many seconds.
const SAMPLES_MAX: usize = 10;
/// Points of the charts.
const MOMENTS_MAX: usize = 120;
/// The time that they show.
const HISTORY_MS: u64 = 120_000;
/// An older sample says nothing of now.
const AGE_NS_MAX: u64 = 60_000_000_000;
/// Two samples that are closer are one.
const GAP_NS_MIN: u64 = 150_000_000;
/// What pages call the last second.
const SECOND_NS: u64 = 900_000_000;
/// Connections that an event names: the busiest ones.
const CONNECTIONS_MAX: usize = 200;

/// The data of an event of the topic `rates`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RatesEvent {
    version: u32,
    time_ms: u64,
    #[serde(flatten)]
    rates: Rates,
}

impl RatesEvent {
    /// Volumes without operations are left out: of thousands, most are idle.
    fn new(time_ms: u64, mut rates: Rates) -> Self {
        rates.volumes.retain(|it| it.operations() > 0.0);
        let connections = &mut rates.connections;
        connections.sort_by(|one, other| other.operations.total_cmp(&one.operations));
        connections.truncate(CONNECTIONS_MAX);
        Self {
            version: VERSION,
            time_ms,
            rates,
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Arc<Sample>>,
    moments: VecDeque<Moment>,
    /// Between the last two samples.
    rates: Option<Arc<RatesEvent>>,
}

#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Kept>);

impl History {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample, and tells what happened since the one before.
    pub(crate) fn note(&self, sample: Sample) -> Option<Arc<RatesEvent>> {
        let mut kept = self.kept();
        let age = |it: &Sample| sample.monotonic_ns.saturating_sub(it.monotonic_ns);
        while kept.samples.front().is_some_and(|it| age(it) > AGE_NS_MAX) {
            kept.samples.pop_front();
        }
        let Some(last) = kept.samples.back().cloned() else {
            kept.rates = None;
            kept.samples.push_back(Arc::new(sample));
            return None;
        };
        if age(&last) < GAP_NS_MIN {
            return kept.rates.clone();
        }
        let rates = Rates::between(&last, &sample)?;
        let oldest = sample.time_ms.saturating_sub(HISTORY_MS);
        kept.moments.push_back(Moment::new(sample.time_ms, &rates));
        while kept.moments.len() > MOMENTS_MAX
            || kept.moments.front().is_some_and(|it| it.time_ms < oldest)
        {
            kept.moments.pop_front();
        }
        if kept.samples.len() == SAMPLES_MAX {
            kept.samples.pop_front();
        }
        let event = Arc::new(RatesEvent::new(sample.time_ms, rates));
        kept.samples.push_back(Arc::new(sample));
        kept.rates = Some(Arc::clone(&event));
        Some(event)
    }

    /// Whether there is a sample to compare this one with.
    pub(crate) fn is_warm(&self, now: &Sample) -> bool {
        let kept = self.kept();
        kept.samples.iter().any(|it| is_before(it, now))
    }

    /// What the server does, as of a sample: in the last second, or in all the time that is kept.
    pub(crate) fn activity(&self, now: &Sample, is_long: bool) -> Activity {
        let kept = self.kept();
        let moments: Vec<Moment> = kept.moments.iter().cloned().collect();
        let mut earlier = kept.samples.iter().filter(|it| is_before(it, now));
        let before = if is_long {
            earlier.next()
        } else {
            let second = |it: &&Arc<Sample>| now.monotonic_ns - it.monotonic_ns >= SECOND_NS;
            let mut newest_first = kept.samples.iter().rev().filter(|it| is_before(it, now));
            newest_first
                .clone()
                .find(second)
                .or(newest_first.next_back())
        };
        match before {
            Some(before) => Activity::between(before, now, moments),
            None => Activity::since_start(now, moments),
        }
    }
}

fn is_before(sample: &Sample, now: &Sample) -> bool {
    let ns = now.monotonic_ns.saturating_sub(sample.monotonic_ns);
    (GAP_NS_MIN..=AGE_NS_MAX).contains(&ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_api::sample::Volume;
    use longshore_dashboard::Basis;

    fn sample(ms: u64, reads: u64) -> Sample {
        let volume = |name: &str, reads| Volume {
            name: name.to_owned(),
            reads,
            ..Volume::default()
        };
        Sample {
            pid: 1,
            monotonic_ns: ms * 1_000_000,
            time_ms: ms,
            uptime_ms: ms,
            volumes: vec![volume("busy", reads), volume("idle", 0)],
            ..Sample::default()
        }
    }

    #[test]
    fn an_event_has_the_rates_since_the_sample_before_and_no_idle_volume() {
        let history = History::default();
        assert!(history.note(sample(1000, 0)).is_none());
        let event = history.note(sample(2000, 500)).unwrap();
        let value = serde_json::to_value(&*event).unwrap();
        assert_eq!(value["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(value["volumes"][0]["reads"], 500.0);
        assert_eq!(value["time-ms"], 2000);
        // The same sample, by another stream.
        let again = history.note(sample(2000, 500)).unwrap();
        assert!(Arc::ptr_eq(&again, &event));
    }

    #[test]
    fn a_page_shows_the_last_second_or_all_that_is_kept() {
        let history = History::default();
        let reads = |ms, is_long| {
            let activity = history.activity(&sample(ms, ms), is_long);
            (activity.basis, activity.rates.seconds)
        };
        assert_eq!(reads(1000, false), (Basis::Start, 1.0));
        for second in 1..=20 {
            history.note(sample(1000 * second, 1000 * second));
        }
        assert!(history.is_warm(&sample(20_500, 20_500)));
        assert_eq!(reads(21_000, false), (Basis::Interval, 1.0));
        assert_eq!(reads(21_000, true), (Basis::Interval, 10.0));
        // Nobody has looked for a while.
        assert!(!history.is_warm(&sample(200_000, 0)));
        assert_eq!(reads(200_000, false).0, Basis::Start);
    }
}
