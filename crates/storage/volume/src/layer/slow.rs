//! Makes a volume slow on purpose: a device of known times, for tests of whatever measures, and for demonstrations.
//!
//! The device moves bytes one operation after the other, at its rate, and each operation ends so much later than its bytes
//! have moved, whatever else is under way:
//!
//! ```text
//! operation 1   ▐██ bytes / rate ██▌── delay ──▶ ended
//! operation 2                      ▐██ bytes / rate ██▌── delay ──▶ ended
//! ```
//!
//! The volume below carries an operation out first; what is left of the time is slept. So an operation that nobody waits
//! for any more has done what it does, and ends at once when it is woken. The times are those of the machine's clock:
//! simulations have no use for this layer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::condition::Condition;
use crate::description::{Characteristics, Geometry, Identity};
use crate::error::VolumeError;
use crate::io::Io;
use crate::request::{Execution, Request};
use crate::throttle::Throttle;
use crate::volume::{Attempt, Fullness, Volume};
use longshore_block::extent::Lba;

/// How slow a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowSpec {
    /// What each operation takes beside the moving of bytes.
    pub delay: Duration,
    /// Bytes per second, at least 1; `None`: they take no time.
    pub rate: Option<u64>,
    /// It may be served where other machines reach it. For whoever serves it to heed.
    pub anywhere: bool,
}

impl SlowSpec {
    /// Whether it is slow at all.
    #[must_use]
    pub const fn any(&self) -> bool {
        !self.delay.is_zero() || self.rate.is_some()
    }

    /// What moving so many bytes takes.
    fn moving(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// See the module documentation.
pub struct SlowVolume {
    inner: Arc<dyn Volume>,
    spec: SlowSpec,
    /// Until then bytes of operations move that have begun.
    busy_until: Mutex<Option<Instant>>,
}

impl SlowVolume {
    #[must_use]
    pub fn new(inner: Arc<dyn Volume>, spec: SlowSpec) -> Self {
        Self {
            inner,
            spec,
            busy_until: Mutex::new(None),
        }
    }

    /// When an operation ends that begins now.
    fn end_of(&self, bytes: u64, now: Instant) -> Instant {
        let mut busy_until = self
            .busy_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let begin = busy_until.map_or(now, |until| until.max(now));
        // A rate of a byte in a century has no end that an instant can tell.
        let moved = begin.checked_add(self.spec.moving(bytes)).unwrap_or(begin);
        *busy_until = Some(moved);
        moved.checked_add(self.spec.delay).unwrap_or(moved)
    }
}

impl Volume for SlowVolume {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        self.inner.characteristics()
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        self.inner.throttle()
    }

    fn try_read(&self, _lba: Lba, _into: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _lba: Lba, _from: &[u8], _fua: bool) -> Attempt {
        Attempt::WouldSleep
    }

    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        let end = self.end_of(request.payload_length(), Instant::now());
        let execution = Arc::clone(&self.inner).execute(request, io.clone());
        Execution::running(async move {
            let ended = execution.await;
            io.sleep_until(end).await;
            ended
        })
    }

    fn attach(self: Arc<Self>, io: &Io) {
        Arc::clone(&self.inner).attach(io);
    }

    fn quiesce(self: Arc<Self>, io: Io) -> Execution {
        // Requests that sleep have done what they do.
        Arc::clone(&self.inner).quiesce(io)
    }

    fn resume(self: Arc<Self>, io: &Io) {
        Arc::clone(&self.inner).resume(io);
    }

    fn hurry(&self, within: Duration) {
        self.inner.hurry(within);
    }

    fn condition(&self) -> Condition {
        self.inner.condition()
    }

    fn inspect(&self) -> Condition {
        self.inner.inspect()
    }

    fn fullness(&self) -> Fullness {
        self.inner.fullness()
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        self.inner.refresh_geometry()
    }

    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        self.inner.grow(size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestStorage;
    use crate::{BackendName, Executor, Extent, Operation, Reply, Started, VolumeSpec, open};
    use longshore_reactor::Buffer;

    fn slow(spec: SlowSpec) -> Arc<dyn Volume> {
        let below = VolumeSpec {
            size: Some(1 << 20),
            ..VolumeSpec::new("m", BackendName::MEM)
        };
        Arc::new(SlowVolume::new(open(&below).unwrap(), spec))
    }

    fn delay(delay: Duration) -> Arc<dyn Volume> {
        slow(SlowSpec {
            delay,
            ..SlowSpec::default()
        })
    }

    fn write(blocks: u64) -> Request {
        let length = usize::try_from(blocks * 512).unwrap();
        Request {
            buffer: Some(Buffer::allocate(length)),
            end: length,
            ..Request::new(Operation::Write {
                extent: Extent::new(0, blocks),
                fua: false,
            })
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn bytes_move_one_operation_after_the_other_and_delays_pass_side_by_side() {
        let spec = SlowSpec {
            delay: Duration::from_millis(3),
            rate: Some(1_000_000),
            ..SlowSpec::default()
        };
        let volume = SlowVolume::new(slow(SlowSpec::default()), spec);
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(volume.end_of(2_000, now), after(2 + 3));
        assert_eq!(volume.end_of(4_000, now), after(2 + 4 + 3));
        assert_eq!(volume.end_of(0, now), after(6 + 3));
        // It was idle meanwhile.
        assert_eq!(volume.end_of(1_000, after(50)), after(50 + 1 + 3));
        let never = SlowSpec {
            delay: Duration::MAX,
            rate: Some(0),
            ..SlowSpec::default()
        };
        let volume = SlowVolume::new(slow(SlowSpec::default()), never);
        assert!(volume.end_of(u64::MAX, now) >= now);
    }

    #[test]
    fn an_operation_ends_when_its_time_has_come_and_not_before() {
        let volume = delay(HOUR);
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        let before = Instant::now();
        let started = executor.start(&volume, write(8), 7, &mut storage);
        assert!(matches!(started, Started::Waits(_)));
        let due = executor.next_deadline().expect("it waits for a time");
        assert!(due >= before + HOUR);
        executor.expire(due - Duration::from_nanos(1), &mut storage);
        assert!(executor.next_ended().is_none());
        executor.expire(due, &mut storage);
        let (owner, ended) = executor.next_ended().expect("it is over");
        assert_eq!((owner, ended.result.ok()), (7, Some(Reply::Done)));
        assert_eq!(ended.buffer.expect("it comes back").len(), 4096);
        assert_eq!(executor.next_deadline(), None);
    }

    #[test]
    fn an_operation_that_nobody_waits_for_any_more_ends_at_once_and_no_other_does() {
        let volume = delay(HOUR);
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        let start = |executor: &mut Executor<u32>, storage: &mut TestStorage, owner| match executor
            .start(&volume, write(1), owner, storage)
        {
            Started::Waits(request) => request,
            Started::Ended(..) => panic!("it sleeps"),
        };
        let first = start(&mut executor, &mut storage, 1);
        let second = start(&mut executor, &mut storage, 2);
        executor.hurry(second);
        executor.proceed(&mut storage);
        assert_eq!(executor.next_ended().expect("the second").0, 2);
        assert!(executor.next_ended().is_none());
        // The number of one that is over wakes nobody who has its place.
        let third = start(&mut executor, &mut storage, 3);
        executor.hurry(second);
        executor.proceed(&mut storage);
        assert!(executor.next_ended().is_none());
        for (request, owner) in [(third, 3), (first, 1)] {
            executor.hurry(request);
            executor.proceed(&mut storage);
            assert_eq!(executor.next_ended().expect("woken").0, owner);
        }
    }

    #[test]
    fn at_the_end_nobody_sleeps() {
        let volume = delay(HOUR);
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        executor.start(&volume, write(1), 1, &mut storage);
        executor.end_sleep(&mut storage);
        assert_eq!(executor.next_ended().expect("woken").0, 1);
        let started = executor.start(&volume, write(1), 2, &mut storage);
        assert!(started.ended().is_some());
    }

    #[test]
    fn an_executor_that_ends_takes_its_sleepers_along() {
        let volume = delay(HOUR);
        let mut storage = TestStorage::new();
        let mut executor = Executor::default();
        executor.start(&volume, write(1), 1, &mut storage);
        drop(executor);
        assert_eq!(Arc::strong_count(&volume), 1);
    }
}
