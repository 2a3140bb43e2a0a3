//! What the server runs on: the simulated disk as storage, and a volume whose quick paths go there too.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use longshore_reactor::storage::{
    CompletionSink, Delegated, FileCompletion, FileOperation, Storage, StorageTag,
};
use longshore_reactor::{EngineEvent, SocketToken};
use longshore_server::platform::Platform;
use longshore_volume::{
    Attempt, Characteristics, Condition, Execution, Fullness, Geometry, Identity, Io, Lba,
    Operation, Reply, Request, Volume, VolumeError,
};

use crate::environment::Shared;
use crate::random::to_usize;

/// The platform of one shard.
#[derive(Debug)]
pub struct SimPlatform {
    environment: Shared,
    shard: usize,
}

impl SimPlatform {
    /// That of this shard.
    #[must_use]
    pub const fn new(environment: Shared, shard: usize) -> Self {
        Self { environment, shard }
    }
}

impl Storage for SimPlatform {
    fn submit(&mut self, operation: FileOperation) {
        let metadata = operation.file.0.metadata();
        let inode = metadata.expect("an open file has metadata").ino();
        let mut environment = self.environment.lock();
        let disk = environment
            .disks
            .iter()
            .position(|disk| disk.inode == inode)
            .expect("every file stands for a disk");
        environment.submit(self.shard, disk, operation);
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        let sink = DelegatedOperation {
            number: self.environment.lock().delegate(self.shard),
            environment: self.environment.clone(),
        };
        Delegated::new(tag, Arc::new(sink))
    }
}

/// Where the end of a delegated operation is told.
struct DelegatedOperation {
    environment: Shared,
    number: u64,
}

impl CompletionSink for DelegatedOperation {
    fn accept(&self, completion: FileCompletion) {
        let mut environment = self.environment.lock();
        environment.delegated_over(self.number, completion);
    }
}

impl Platform for SimPlatform {
    fn watch(&mut self, _descriptor: BorrowedFd<'_>, _token: SocketToken) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn forget(&mut self, _descriptor: BorrowedFd<'_>, _token: SocketToken) {}

    fn wait(
        &mut self,
        _timeout: Option<Duration>,
        _events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file volume over a simulated disk. What sleeps goes through the real volume's machine; what
/// would be answered from the page cache at once is answered from the simulated one, or not.
pub struct SimVolume {
    inner: Arc<dyn Volume>,
    environment: Shared,
    disk: usize,
    /// Its flushes do nothing: a mistake made on purpose.
    forgets_flushes: bool,
}

impl SimVolume {
    /// Wraps the volume whose file stands for that disk.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Volume>,
        environment: Shared,
        disk: usize,
        forgets_flushes: bool,
    ) -> Self {
        Self {
            inner,
            environment,
            disk,
            forgets_flushes,
        }
    }

    /// Where the bytes lie, if they are inside the volume.
    fn place(&self, lba: Lba, length: usize) -> Option<u64> {
        let geometry = self.inner.geometry();
        let offset = lba.0.checked_mul(u64::from(geometry.block_size))?;
        let end = offset.checked_add(length as u64)?;
        (end <= geometry.size_bytes()).then_some(offset)
    }
}

impl Volume for SimVolume {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            // The same whatever file system the file is on.
            unmap_granularity: Some(4096),
            ..self.inner.characteristics()
        }
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        let mut environment = self.environment.lock();
        let chance = environment.profile.inline;
        let Some(offset) = self.place(lba, into.len()) else {
            return Attempt::WouldSleep;
        };
        if !environment.random.chance(chance) {
            return Attempt::WouldSleep;
        }
        let start = to_usize(offset);
        into.copy_from_slice(&environment.disks[self.disk].cache()[start..start + into.len()]);
        Attempt::Done(Ok(()))
    }

    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt {
        let mut environment = self.environment.lock();
        let chance = environment.profile.inline;
        let Some(offset) = self.place(lba, from.len()) else {
            return Attempt::WouldSleep;
        };
        if fua || environment.disks[self.disk].is_suspect() || !environment.random.chance(chance) {
            return Attempt::WouldSleep;
        }
        environment.disks[self.disk].write_cache(offset, from);
        Attempt::Done(Ok(()))
    }

    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        if self.forgets_flushes && request.operation == Operation::Flush {
            return Execution::ended(Ok(Reply::Done), request.buffer);
        }
        Arc::clone(&self.inner).execute(request, io)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Environment, SimulatedEvent};
    use crate::profile::Profile;
    use crate::random::Random;

    fn platform() -> SimPlatform {
        let environment = Environment::new(Random::new(1), Profile::calm(), false);
        SimPlatform::new(Shared::new(environment), 3)
    }

    #[test]
    fn a_delegated_operation_comes_back_to_its_shard_in_virtual_time() {
        let mut platform = platform();
        let delegated = platform.delegate(StorageTag(5));
        assert!(
            platform.environment.lock().take_next().is_none(),
            "nothing has happened"
        );
        delegated.complete(Ok(7), None);
        let mut environment = platform.environment.lock();
        let Some(SimulatedEvent::DelegatedDone { operation }) = environment.take_next() else {
            panic!("the end is on the agenda");
        };
        let (shard, completion) = environment.delegated_done(operation).unwrap();
        assert_eq!(
            (shard, completion.tag, completion.result.unwrap()),
            (3, StorageTag(5), 7)
        );
        assert!(environment.delegated_done(operation).is_none(), "once");
    }

    #[test]
    fn a_server_that_was_killed_is_told_of_nothing() {
        let mut platform = platform();
        let (done, under_way) = (
            platform.delegate(StorageTag(1)),
            platform.delegate(StorageTag(2)),
        );
        done.complete(Ok(0), None);
        platform.environment.lock().forget_delegated();
        under_way.complete(Ok(0), None);
        let mut environment = platform.environment.lock();
        let Some(SimulatedEvent::DelegatedDone { operation }) = environment.take_next() else {
            panic!("the first was over before");
        };
        assert!(environment.delegated_done(operation).is_none());
        assert!(environment.take_next().is_none());
    }
}
