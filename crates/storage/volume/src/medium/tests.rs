//! The request machine against storage that fails to order.

use std::sync::Arc;

use rustix::io::Errno;

use super::bounce::tests::without_memory;
use crate::testing::client::write_request;
use crate::testing::harness::{Scratch, file_spec};
use crate::testing::{CompletionSource, Effect, OperationName, TestStorage, VolumeClient};
use crate::{
    Attempt, Executor, Extent, ExtentState, InlineWrites, Lba, Operation, Request, Started, Volume,
    VolumeError, VolumeSpec, open,
};

pub(super) const SIZE: u64 = 1 << 20;
pub(super) const BLOCK: u64 = 4096;

/// A volume on a file, and storage that fails to order.
pub(super) struct Bench {
    pub(super) volume: Arc<dyn Volume>,
    pub(super) storage: TestStorage,
    pub(super) scratch: Scratch,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with(|spec| spec)
    }

    pub(super) fn with(change: impl FnOnce(VolumeSpec) -> VolumeSpec) -> Bench {
        let scratch = Scratch::new();
        let volume = open(&change(file_spec(&scratch, SIZE, 4096))).expect("open");
        Bench {
            volume,
            storage: TestStorage::new(),
            scratch,
        }
    }

    pub(super) fn client(&mut self) -> VolumeClient<'_> {
        VolumeClient::new(self.volume.clone(), &mut self.storage)
    }
}

pub(super) fn block(fill: u8) -> Vec<u8> {
    vec![fill; 4096]
}

#[track_caller]
fn assert_poisoned<T: std::fmt::Debug>(result: Result<T, VolumeError>) {
    assert!(matches!(result, Err(VolumeError::Poisoned)), "{result:?}");
}

#[track_caller]
fn assert_only_reads_go_on(bench: &mut Bench, expected: &[u8]) {
    let mut client = bench.client();
    assert_eq!(client.read(0, expected.len()).expect("read"), expected);
    assert!(client.extent(0, BLOCK).is_ok());
    assert_poisoned(client.write(0, &block(9)));
    assert_poisoned(client.write_durable(0, &block(9)));
    assert_poisoned(client.flush());
    assert_poisoned(client.unmap(0, BLOCK));
    assert_poisoned(client.write_zeroes(0, BLOCK, true, false));
    assert_poisoned(client.anchor(0, BLOCK));
    let attempt = client.volume().try_write(Lba(0), &block(9), false);
    assert!(matches!(
        attempt,
        Attempt::WouldSleep | Attempt::Done(Err(VolumeError::Poisoned))
    ));
    assert_eq!(client.read(0, expected.len()).expect("read"), expected);
}

#[test]
fn a_failed_flush_poisons_the_volume_until_it_is_reopened() {
    let mut bench = Bench::new();
    bench.client().write(0, &block(1)).expect("write");
    bench
        .storage
        .once(OperationName::DataSync, Effect::Fail(Errno::IO));
    let failed = bench.client().flush();
    assert!(
        matches!(&failed, Err(VolumeError::Io { operation, .. })
            if operation == "fdatasync volume disk0"),
        "{failed:?}"
    );
    assert_only_reads_go_on(&mut bench, &block(1));
    drop(bench.volume);
    // The storage remembers file descriptions, and the lock lives as long as these.
    bench.storage.take_log();
    bench.volume = open(&file_spec(&bench.scratch, SIZE, 4096)).expect("reopen");
    bench.client().write(0, &block(2)).expect("write");
    bench.client().flush().expect("flush");
}

#[test]
fn inline_writes_stop_at_poison_too() {
    let mut bench = Bench::with(|spec| VolumeSpec {
        inline_writes: InlineWrites::Always,
        ..spec
    });
    let volume = Arc::clone(&bench.volume);
    let attempt = || volume.try_write(Lba(0), &block(1), false);
    assert!(matches!(attempt(), Attempt::Done(Ok(()))));
    bench
        .storage
        .once(OperationName::DataSync, Effect::Fail(Errno::IO));
    assert!(bench.client().flush().is_err());
    assert!(matches!(
        attempt(),
        Attempt::Done(Err(VolumeError::Poisoned))
    ));
}

#[test]
fn a_failed_durable_write_poisons_the_volume() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::DurableWrite, Effect::Fail(Errno::IO));
    let failed = bench.client().write_durable(0, &block(1));
    assert!(matches!(failed, Err(VolumeError::Io { .. })), "{failed:?}");
    assert_only_reads_go_on(&mut bench, &block(0));
}

#[test]
fn a_failed_sync_of_zeroes_poisons_the_volume() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::DataSync, Effect::Fail(Errno::NOSPC));
    let failed = bench.client().write_zeroes(0, BLOCK, true, true);
    assert!(matches!(failed, Err(VolumeError::NoSpace)), "{failed:?}");
    assert_only_reads_go_on(&mut bench, &block(0));
}

#[test]
fn a_failed_cached_write_does_not_poison() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::Write, Effect::Fail(Errno::IO));
    assert!(matches!(
        bench.client().write(0, &block(1)),
        Err(VolumeError::Io { .. })
    ));
    bench.client().write(0, &block(2)).expect("write");
    bench.client().flush().expect("flush");
}

#[test]
fn no_space_for_a_durable_write_itself_does_not_poison() {
    let mut bench = Bench::new();
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        bench
            .storage
            .once(OperationName::DurableWrite, Effect::Fail(errno));
        bench
            .storage
            .once(OperationName::Write, Effect::Fail(errno));
        let failed = bench.client().write_durable(0, &block(1));
        assert!(matches!(failed, Err(VolumeError::NoSpace)), "{failed:?}");
    }
    bench
        .client()
        .write_durable(BLOCK, &block(2))
        .expect("the volume is usable");
}

#[test]
fn no_space_in_the_sync_of_a_durable_write_poisons() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::DurableWrite, Effect::Fail(Errno::NOSPC));
    let failed = bench.client().write_durable(0, &block(1));
    assert!(matches!(failed, Err(VolumeError::NoSpace)), "{failed:?}");
    assert_poisoned(bench.client().flush());
}

#[test]
fn a_flush_that_overlaps_with_a_failed_one_does_not_succeed() {
    let mut bench = Bench::new();
    let requests = vec![
        Request::new(Operation::Flush),
        Request::new(Operation::Flush),
    ];
    bench
        .storage
        .once(OperationName::DataSync, Effect::Fail(Errno::IO));
    let results = bench.client().run_together(requests);
    assert!(matches!(results[0], Err(VolumeError::Io { .. })));
    assert!(matches!(results[1], Err(VolumeError::Poisoned)));
}

/// The kernel tells each file description once that write-back failed.
#[test]
fn syncs_under_way_at_once_have_file_descriptions_of_their_own() {
    let mut bench = Bench::new();
    let requests: Vec<_> = (0..20)
        .map(|number| write_request(Extent::new(number, 1), &block(1), 0, true))
        .chain((0..4).map(|_| Request::new(Operation::Flush)))
        .collect();
    let count = requests.len();
    let mut executor = Executor::default();
    for request in requests {
        let started = executor.start(&bench.volume, request, (), &mut bench.storage);
        assert!(matches!(started, Started::Waits(_)));
    }
    let mut files: Vec<_> = bench
        .storage
        .files()
        .iter()
        .map(|file| Arc::as_ptr(&file.0))
        .collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), count);
    let mut ended = 0;
    while ended < count {
        let completion = bench.storage.next_completion();
        executor.complete(completion, &mut bench.storage);
        while let Some(((), request)) = executor.next_ended() {
            request.result.expect("a write or flush");
            ended += 1;
        }
    }
    // All sync handles are free again, and used again.
    bench.storage.take_log();
    bench.client().flush().expect("flush");
    let first = Arc::as_ptr(&bench.storage.files()[0].0);
    bench.client().flush().expect("flush");
    assert_eq!(first, Arc::as_ptr(&bench.storage.files()[1].0));
}

#[test]
fn a_sync_handle_is_free_again_after_a_failure() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench
            .storage
            .once(OperationName::DurableWrite, Effect::Fail(Errno::NOSPC));
        bench
            .storage
            .once(OperationName::Write, Effect::Fail(Errno::NOSPC));
        assert!(bench.client().write_durable(0, &block(1)).is_err());
    }
    bench.storage.take_log();
    bench.client().flush().expect("flush");
    bench.client().flush().expect("flush");
    let [first, second] = bench.storage.files() else {
        panic!("two flushes")
    };
    assert!(Arc::ptr_eq(&first.0, &second.0));
}

#[test]
fn interrupted_operations_are_repeated() {
    use OperationName::{
        Allocate, DataSync, DurableWrite, PunchHole, Read, SeekData, SeekHole, Write,
    };
    let mut bench = Bench::new();
    for name in [
        Allocate,
        DataSync,
        DurableWrite,
        PunchHole,
        Read,
        SeekData,
        SeekHole,
        Write,
    ] {
        bench.storage.once(name, Effect::Fail(Errno::INTR));
    }
    let mut client = bench.client();
    client.write(0, &block(1)).expect("write");
    client
        .write_durable(BLOCK, &block(1))
        .expect("durable write");
    client.flush().expect("flush");
    client.unmap(BLOCK, BLOCK).expect("unmap");
    client.anchor(0, BLOCK).expect("anchor");
    assert_eq!(
        client.extent(0, 4 * BLOCK).expect("extent").1,
        ExtentState::Mapped
    );
    assert_eq!(client.read(0, 4096).expect("read"), block(1));
}

#[test]
fn a_way_of_zeroing_that_is_not_supported_is_tried_once() {
    use OperationName::{PunchHole, Write, ZeroRange};
    let mut bench = Bench::new();
    bench
        .storage
        .always(PunchHole, Effect::Fail(Errno::OPNOTSUPP));
    bench
        .storage
        .always(ZeroRange, Effect::Fail(Errno::OPNOTSUPP));
    bench.client().write(0, &[1; 8192]).expect("write");
    bench.storage.take_log();
    bench.client().unmap(0, BLOCK).expect("unmap");
    assert_eq!(bench.storage.take_log(), [PunchHole, ZeroRange, Write]);
    bench
        .client()
        .write_zeroes(BLOCK, BLOCK, true, false)
        .expect("zeroes");
    assert_eq!(bench.storage.take_log(), [Write]);
    assert_eq!(bench.client().read(0, 8192).expect("read"), [0; 8192]);
}

#[test]
fn zeros_are_written_in_bounded_pieces() {
    let mut bench = Bench::new();
    bench
        .storage
        .always(OperationName::ZeroRange, Effect::Fail(Errno::OPNOTSUPP));
    bench
        .client()
        .write_zeroes(0, SIZE, false, true)
        .expect("zeroes");
    let log = bench.storage.take_log();
    assert_eq!(
        log.iter()
            .filter(|name| **name == OperationName::Write)
            .count(),
        4
    );
    assert_eq!(log.last(), Some(&OperationName::DataSync));
}

#[test]
fn no_space_for_zeros_is_reported_and_the_volume_stays_usable() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::PunchHole, Effect::Fail(Errno::NOSPC));
    let failed = bench.client().unmap(0, BLOCK);
    assert!(matches!(failed, Err(VolumeError::NoSpace)), "{failed:?}");
    bench.client().unmap(0, BLOCK).expect("unmap");
}

#[test]
fn no_space_preserves_all_other_data() {
    let mut bench = Bench::new();
    bench.client().write(0, &block(1)).expect("write");
    bench
        .storage
        .once(OperationName::Write, Effect::Fail(Errno::NOSPC));
    assert!(matches!(
        bench.client().write(BLOCK, &block(2)),
        Err(VolumeError::NoSpace)
    ));
    assert_eq!(bench.client().read(0, 4096).expect("read"), block(1));
    assert_eq!(bench.client().read(BLOCK, 4096).expect("read"), block(0));
}

#[test]
fn a_write_that_moves_nothing_fails_instead_of_spinning() {
    let mut bench = Bench::new();
    bench.storage.once(OperationName::Write, Effect::Short(0));
    assert!(matches!(
        bench.client().write(0, &block(1)),
        Err(VolumeError::Io { .. })
    ));
    bench.client().write(0, &block(1)).expect("write");
}

#[test]
fn extents_follow_data_and_holes() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write(8 * BLOCK, &[1; 16384]).expect("write");
    client.flush().expect("flush");
    assert_eq!(
        client.extent(0, SIZE).expect("extent"),
        (8 * BLOCK, ExtentState::Deallocated)
    );
    assert_eq!(
        client.extent(8 * BLOCK, SIZE - 8 * BLOCK).expect("extent"),
        (4 * BLOCK, ExtentState::Mapped)
    );
    assert_eq!(
        client
            .extent(12 * BLOCK, SIZE - 12 * BLOCK)
            .expect("extent"),
        (SIZE - 12 * BLOCK, ExtentState::Deallocated)
    );
}

#[test]
fn extents_that_cannot_be_told_are_mapped() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::SeekData, Effect::Fail(Errno::INVAL));
    let found = bench.client().extent(0, SIZE).expect("extent");
    assert_eq!(found, (SIZE, ExtentState::Mapped));
}

#[test]
fn space_that_cannot_be_reserved_is_an_unsupported_operation() {
    let mut bench = Bench::new();
    bench
        .storage
        .once(OperationName::Allocate, Effect::Fail(Errno::OPNOTSUPP));
    assert!(matches!(
        bench.client().anchor(0, BLOCK),
        Err(VolumeError::Unsupported)
    ));
}

#[test]
fn read_only_volumes_refuse_changes_and_flush_at_once() {
    let mut bench = Bench::new();
    bench.client().write(0, &block(1)).expect("write");
    drop(bench.volume);
    bench.storage.take_log();
    let spec = VolumeSpec {
        read_only: true,
        ..file_spec(&bench.scratch, SIZE, 4096)
    };
    bench.volume = open(&spec).expect("open");
    let mut client = bench.client();
    assert!(matches!(
        client.write(0, &block(2)),
        Err(VolumeError::ReadOnly)
    ));
    assert!(matches!(client.unmap(0, BLOCK), Err(VolumeError::ReadOnly)));
    let zeroed = client.write_zeroes(0, BLOCK, true, false);
    assert!(matches!(zeroed, Err(VolumeError::ReadOnly)));
    client.flush().expect("flush");
    assert!(matches!(
        client.volume().grow(2 * SIZE),
        Err(VolumeError::ReadOnly)
    ));
    assert_eq!(client.read(0, 4096).expect("read"), block(1));
    assert_eq!(bench.storage.take_log(), [OperationName::Read]);
}

#[test]
fn a_transfer_bounces_where_o_direct_cannot_use_its_memory_and_nowhere_else() {
    let scratch = Scratch::new();
    let spec = VolumeSpec {
        direct: true,
        ..file_spec(&scratch, SIZE, 4096)
    };
    let volume = match open(&spec) {
        Ok(volume) => volume,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    // No kernel wants addresses of single bytes.
    let extent = Extent::new(1, 1);
    for (start, bounces) in [(0, false), (4096, false), (1, true)] {
        let mut write = write_request(extent, &block(7), start, false);
        client.run(&mut write).expect("write");
        assert_eq!(client.take_bounced_bytes() > 0, bounces, "{start}");
        let mut read = Request::new(Operation::Read { extent });
        read.buffer = write.buffer;
        (read.start, read.end) = (write.start, write.end);
        client.run(&mut read).expect("read");
        assert_eq!(client.take_bounced_bytes() > 0, bounces, "{start}");
    }
}

/// Memory that no budget counts: its lack ends one request, and nothing is wrong with the volume.
#[test]
fn a_request_that_finds_no_memory_fails_alone() {
    let mut bench = Bench::new();
    bench
        .storage
        .always(OperationName::ZeroRange, Effect::Fail(Errno::OPNOTSUPP));
    bench.client().write(0, &block(1)).expect("write");
    for fua in [false, true] {
        let zero = |bench: &mut Bench| bench.client().write_zeroes(0, BLOCK, false, fua);
        let failed = without_memory(|| zero(&mut bench));
        assert!(
            matches!(failed, Err(VolumeError::OutOfMemory)),
            "{failed:?}"
        );
        assert_eq!(bench.client().read(0, 4096).expect("read"), block(1));
    }
    let zeroed = bench.client().write_zeroes(0, BLOCK, false, true);
    zeroed.expect("zero");
    assert_eq!(bench.client().read(0, 4096).expect("read"), block(0));
}

/// Requests at depth take memory that no budget counts.
#[test]
fn a_request_under_way_takes_little_memory() {
    let bench = Bench::new();
    let crate::Execution::Running(future) =
        Arc::clone(&bench.volume).execute(Request::new(Operation::Flush), crate::Io::default())
    else {
        panic!("a flush waits");
    };
    assert!(
        size_of_val(&*future) <= 1024,
        "{} bytes",
        size_of_val(&*future)
    );
}

#[test]
fn a_write_through_volume_has_no_cache_and_every_change_fails_when_the_medium_does() {
    let through = |spec: VolumeSpec| VolumeSpec {
        write_through: true,
        ..spec
    };
    let mut bench = Bench::with(through);
    let characteristics = bench.volume.characteristics();
    assert_eq!(characteristics.write_cache, crate::WriteCache::None);
    let attempt = bench.volume.try_write(Lba(0), &block(1), false);
    assert!(matches!(attempt, Attempt::WouldSleep));
    bench.client().write(0, &block(1)).expect("write");
    bench.client().unmap(0, BLOCK).expect("unmap");
    for change in [
        (|bench| bench.client().write(0, &block(2))) as fn(&mut Bench) -> _,
        |bench| bench.client().unmap(0, BLOCK),
        |bench| bench.client().write_zeroes(0, BLOCK, true, false),
    ] {
        let mut bench = Bench::with(through);
        bench
            .storage
            .once(OperationName::DurableWrite, Effect::Fail(Errno::IO));
        bench
            .storage
            .once(OperationName::DataSync, Effect::Fail(Errno::IO));
        let result: Result<(), VolumeError> = change(&mut bench);
        result.expect_err("it reached the medium, which failed");
        assert_poisoned(bench.client().write(BLOCK, &block(3)));
    }
}
