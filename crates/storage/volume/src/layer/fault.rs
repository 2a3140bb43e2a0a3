//! Makes a volume fail on purpose, to see how everything above it takes that.
//!
//! A [`FaultRule`] says which operations on which bytes fail, how, and how often. Which of the
//! operations that match fail is decided by a seed and by how many matched before: one reactor that
//! runs the same operations in the same order fails the same ones again.
//!
//! A flush or durable write that is made to fail poisons the layer as it would a backend: from then
//! on it refuses changes and flushes until it is created again.
//!
//! Operations that a rule may hit never finish inside `try_read` or `try_write`, so that each is
//! decided once. The layer does not delay: an operation has no clock to wait for.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_reactor::PagePipe;
use rustix::io::Errno;

use crate::condition::Condition;
use crate::description::{Characteristics, Geometry, Identity};
use crate::error::VolumeError;
use crate::io::Io;
use crate::outline::length_of;
use crate::request::{Execution, Request};
use crate::throttle::Throttle;
use crate::volume::{Attempt, AttemptCost, Fullness, Volume};
use longshore_block::extent::{Extent, Lba};
use longshore_block::operation::Operation;

/// Operations, as rules name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultTarget {
    Read,
    /// Writes, durable or not.
    Write,
    /// Flushes; they have no range, so a rule's range does not matter.
    Flush,
    /// Unmap, write zeroes and anchor.
    Provisioning,
    /// Operations of all kinds.
    Any,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The medium cannot do it (EIO).
    Medium,
    /// There is no space left.
    NoSpace,
}

/// Which operations fail, how and how often.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Operations that it is about.
    pub target: FaultTarget,
    /// Bytes of the volume; an operation that touches one of them matches.
    pub range: Range<u64>,
    /// Of a million operations that match, this many fail.
    pub failures_per_million: u32,
    pub fault: Fault,
}

/// See the module documentation.
pub struct FaultVolume {
    inner: Arc<dyn Volume>,
    rules: Vec<FaultRule>,
    seed: u64,
    decided: AtomicU64,
    failed: AtomicU64,
    poisoned: AtomicBool,
}

impl FaultVolume {
    /// Wraps `inner`. The first rule that matches an operation decides about it.
    #[must_use]
    pub fn new(inner: Arc<dyn Volume>, rules: Vec<FaultRule>, seed: u64) -> FaultVolume {
        FaultVolume {
            inner,
            rules,
            seed,
            decided: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Operations that were made to fail so far.
    #[must_use]
    pub fn failed_count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn rule_for(&self, target: FaultTarget, range: &Range<u64>) -> Option<&FaultRule> {
        self.rules.iter().find(|rule| {
            let operation = rule.target == target || rule.target == FaultTarget::Any;
            let place = target == FaultTarget::Flush
                || (rule.range.start < range.end && range.start < rule.range.end);
            operation && place
        })
    }

    fn may_fail(&self, target: FaultTarget, lba: Lba, bytes: &[u8]) -> bool {
        let start = lba.0.saturating_mul(self.block_size());
        let end = start.saturating_add(length_of(bytes));
        self.rule_for(target, &(start..end)).is_some()
    }

    fn block_size(&self) -> u64 {
        u64::from(self.inner.geometry().block_size)
    }

    fn bytes(&self, extent: Extent) -> Range<u64> {
        let block_size = self.block_size();
        let start = extent.lba.0.saturating_mul(block_size);
        start..start.saturating_add(extent.blocks.0.saturating_mul(block_size))
    }

    /// What a rule looks at; `None` for operations that rules leave alone.
    fn target_of(&self, operation: Operation) -> Option<(FaultTarget, Range<u64>)> {
        match operation {
            Operation::Read { extent } => Some((FaultTarget::Read, self.bytes(extent))),
            Operation::Write { extent, .. } | Operation::CompareAndWrite { extent, .. } => {
                Some((FaultTarget::Write, self.bytes(extent)))
            }
            Operation::Flush => Some((FaultTarget::Flush, 0..0)),
            Operation::Unmap { extent }
            | Operation::WriteZeroes { extent, .. }
            | Operation::Anchor { extent } => Some((FaultTarget::Provisioning, self.bytes(extent))),
            Operation::ExtentStatus { .. } | Operation::Prefetch { .. } => None,
        }
    }

    fn decide(&self, target: FaultTarget, range: &Range<u64>) -> Option<Fault> {
        let rule = self.rule_for(target, range)?;
        let number = self.decided.fetch_add(1, Ordering::Relaxed);
        let draw = scramble(self.seed ^ scramble(number)) % 1_000_000;
        (draw < u64::from(rule.failures_per_million)).then(|| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            rule.fault
        })
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn error(&self, fault: Fault) -> VolumeError {
        match fault {
            Fault::Medium => VolumeError::Io {
                operation: format!("injected fault volume {}", self.inner.identity().name),
                source: io::Error::from_raw_os_error(Errno::IO.raw_os_error()),
            },
            Fault::NoSpace => VolumeError::NoSpace,
        }
    }
}

/// The mixing step of SplitMix64.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A failure of the operation leaves completed writes in doubt.
fn syncs(operation: Operation) -> bool {
    match operation {
        Operation::Flush => true,
        Operation::Write { fua, .. }
        | Operation::CompareAndWrite { fua, .. }
        | Operation::WriteZeroes { fua, .. } => fua,
        Operation::Read { .. }
        | Operation::Unmap { .. }
        | Operation::Anchor { .. }
        | Operation::ExtentStatus { .. }
        | Operation::Prefetch { .. } => false,
    }
}

impl Volume for FaultVolume {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        self.inner.throttle()
    }

    fn characteristics(&self) -> Characteristics {
        self.inner.characteristics()
    }

    fn known_zeros(&self, extent: Extent) -> bool {
        let untouched = self
            .rule_for(FaultTarget::Read, &self.bytes(extent))
            .is_none();
        untouched && self.inner.known_zeros(extent)
    }

    fn attempt_cost(&self) -> AttemptCost {
        self.inner.attempt_cost()
    }

    fn take_pages(&self, extent: Extent, into: &mut PagePipe) -> bool {
        let untouched = self
            .rule_for(FaultTarget::Read, &self.bytes(extent))
            .is_none();
        untouched && self.inner.take_pages(extent, into)
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        if self.may_fail(FaultTarget::Read, lba, into) {
            return Attempt::WouldSleep;
        }
        self.inner.try_read(lba, into)
    }

    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt {
        if self.is_poisoned() || self.may_fail(FaultTarget::Write, lba, from) {
            return Attempt::WouldSleep;
        }
        self.inner.try_write(lba, from, fua)
    }

    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        let inner = Arc::clone(&self.inner);
        let Some((target, range)) = self.target_of(request.operation) else {
            return inner.execute(request, io);
        };
        if target != FaultTarget::Read && self.is_poisoned() {
            return Execution::ended(Err(VolumeError::Poisoned), request.buffer);
        }
        let Some(fault) = self.decide(target, &range) else {
            return inner.execute(request, io);
        };
        if syncs(request.operation) && fault == Fault::Medium {
            self.poisoned.store(true, Ordering::Release);
        }
        Execution::ended(Err(self.error(fault)), request.buffer)
    }

    fn attach(self: Arc<Self>, io: &Io) {
        Arc::clone(&self.inner).attach(io);
    }

    fn quiesce(self: Arc<Self>, io: Io) -> Execution {
        Arc::clone(&self.inner).quiesce(io)
    }

    fn resume(self: Arc<Self>, io: &Io) {
        Arc::clone(&self.inner).resume(io);
    }

    fn hurry(&self, within: std::time::Duration) {
        self.inner.hurry(within);
    }

    fn condition(&self) -> Condition {
        let own = if self.is_poisoned() {
            Condition::Poisoned
        } else {
            Condition::Sound
        };
        own.max(self.inner.condition())
    }

    fn inspect(&self) -> Condition {
        self.inner.inspect();
        self.condition()
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
    use crate::testing::{TestStorage, VolumeClient};
    use crate::{BackendName, VolumeSpec, open};

    fn faulty(rules: Vec<FaultRule>, seed: u64) -> Arc<FaultVolume> {
        let spec = VolumeSpec {
            size: Some(1 << 20),
            ..VolumeSpec::new("m", BackendName::MEM)
        };
        let inner = open(&spec).expect("mem opens");
        Arc::new(FaultVolume::new(inner, rules, seed))
    }

    fn rule(target: FaultTarget, range: Range<u64>, failures_per_million: u32) -> FaultRule {
        FaultRule {
            target,
            range,
            failures_per_million,
            fault: Fault::Medium,
        }
    }

    #[test]
    fn only_the_range_of_a_rule_fails() {
        let volume = faulty(vec![rule(FaultTarget::Read, 4096..8192, 1_000_000)], 1);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume.clone(), &mut storage);
        assert!(client.read(0, 4096).is_ok());
        assert!(client.read(8192, 4096).is_ok());
        assert!(matches!(
            client.read(7680, 512),
            Err(VolumeError::Io { .. })
        ));
        assert!(matches!(client.read(0, 8192), Err(VolumeError::Io { .. })));
        assert!(client.write(4096, &[1; 512]).is_ok());
        assert_eq!(volume.failed_count(), 2);
    }

    #[test]
    fn an_operation_that_may_fail_is_not_decided_twice() {
        let volume = faulty(vec![rule(FaultTarget::Read, 0..512, 0)], 1);
        assert!(matches!(
            volume.try_read(Lba(0), &mut [0; 512]),
            Attempt::WouldSleep
        ));
        assert!(matches!(
            volume.try_read(Lba(1), &mut [0; 512]),
            Attempt::Done(Ok(()))
        ));
    }

    #[test]
    fn one_seed_fails_the_same_operations_again() {
        let run = |seed| {
            let volume = faulty(vec![rule(FaultTarget::Write, 0..1 << 20, 300_000)], seed);
            let mut storage = TestStorage::new();
            let mut client = VolumeClient::new(volume.clone(), &mut storage);
            (0..64)
                .map(|block| client.write(block * 512, &[1; 512]).is_ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).contains(&true) && run(7).contains(&false));
    }

    #[test]
    fn a_failed_flush_ends_writing_but_not_reading() {
        let volume = faulty(vec![rule(FaultTarget::Flush, 0..0, 1_000_000)], 1);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume.clone(), &mut storage);
        assert!(client.write(0, &[1; 512]).is_ok());
        assert!(matches!(client.flush(), Err(VolumeError::Io { .. })));
        assert!(matches!(client.flush(), Err(VolumeError::Poisoned)));
        assert!(matches!(
            client.write(0, &[2; 512]),
            Err(VolumeError::Poisoned)
        ));
        assert_eq!(client.read(0, 512).expect("read"), [1; 512]);
    }

    #[test]
    fn no_space_leaves_the_data_and_the_volume_usable() {
        let mut no_space = rule(FaultTarget::Write, 0..512, 1_000_000);
        no_space.fault = Fault::NoSpace;
        let volume = faulty(vec![no_space], 1);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume.clone(), &mut storage);
        assert!(matches!(
            client.write_durable(0, &[1; 512]),
            Err(VolumeError::NoSpace)
        ));
        assert!(client.write(512, &[1; 512]).is_ok());
        assert_eq!(client.read(0, 512).expect("read"), [0; 512]);
    }
}
