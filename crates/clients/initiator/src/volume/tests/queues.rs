//! Shared queues, pieces, poll queues, futures.

use super::fake::Behaviour;
use super::*;
use crate::volume::{BlockingVolume, Cork, Run, block_on};
use longshore_block::operation::ExtentState;

#[test]
fn an_idle_queue_is_sent_on_by_the_thread_that_submits_and_nobody_wakes_up_for_it() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.foretell(|_, _| Behaviour::Hold);
    let before = volume.state().counters;
    let held = submit(&volume, read(0, 1), 0);
    assert_eq!(fake.held(), 1, "it is there when submit returns");
    let after = volume.state().counters;
    assert_eq!(after.direct_sends, before.direct_sends + 1);
    assert_eq!(after.driver_messages, before.driver_messages);
    fake.release();
    assert_eq!(held.result(), Ok(()));
    assert_eq!(
        volume.state().counters.driver_messages,
        before.driver_messages
    );
    volume.close();
}

#[test]
fn what_is_submitted_under_a_cork_is_sent_together() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    let are_sent_together = || {
        let sends = fake.world().sends;
        let collector = Collector::new();
        let cork = Cork::new();
        for tag in 0..20 {
            volume.submit(
                read(tag, 1),
                data_for(&read(tag, 1), 0),
                collector.clone(),
                tag,
            );
        }
        let corked = fake.world().sends - sends;
        drop(cork);
        let all = fake.world().sends - sends;
        collector.results(20);
        (corked, all) == (0, 1)
    };
    // What finds its queue in the hands of the driver, which looks after it now and then, is sent by that.
    assert!((0..100).any(|_| are_sent_together()));
    volume.close();
}

#[test]
fn what_completers_submit_is_sent_together() {
    struct Again(RemoteVolume, Arc<Collector>);
    impl Completer for Again {
        fn complete(&self, completion: Completion) {
            self.0
                .submit(read(1, 1), completion.data, self.1.clone(), completion.tag);
        }
    }
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.foretell(|_, _| Behaviour::Hold);
    let collector = Collector::new();
    let again = Arc::new(Again(volume.clone(), collector.clone()));
    let cork = Cork::new();
    for tag in 0..8 {
        volume.submit(read(0, 1), data_for(&read(0, 1), 0), again.clone(), tag);
    }
    drop(cork);
    fake.foretell(|_, _| Behaviour::Answer);
    let sends = fake.world().sends;
    fake.release();
    collector.results(8);
    // The driver may see the first answers before the last are there.
    let sends = fake.world().sends - sends;
    assert!(sends < 8, "{sends}");
    drop(again);
    volume.close();
}

#[test]
fn more_than_a_queue_takes_waits_its_turn() {
    let fake = Fake::new(1);
    fake.world().room = 4;
    let volume = open(&fake);
    fake.foretell(|_, _| Behaviour::Hold);
    let collector = Collector::new();
    for tag in 0..100 {
        volume.submit(
            write(tag, 1),
            data_for(&write(tag, 1), tag),
            collector.clone(),
            tag,
        );
    }
    assert_eq!(fake.held(), 4);
    assert_eq!(volume.state().outstanding, 100);
    fake.foretell(|_, _| Behaviour::Answer);
    fake.release();
    collector.results(100);
    assert!((0..100).all(|block| fake.word(block) == block));
    volume.close();
}

#[test]
fn more_than_a_socket_takes_is_sent_on_by_the_driver() {
    let fake = Fake::new(1);
    fake.world().send_limit = 1;
    let volume = open(&fake);
    let collector = Collector::new();
    let cork = Cork::new();
    for tag in 0..20 {
        volume.submit(
            read(tag, 1),
            data_for(&read(tag, 1), 0),
            collector.clone(),
            tag,
        );
    }
    drop(cork);
    collector.results(20);
    volume.close();
}

#[test]
fn many_threads_submit_at_once_and_nothing_is_lost() {
    const THREADS: u64 = 8;
    const EACH: u64 = 2000;
    let fake = Fake::new(1);
    fake.world().room = 16;
    let volume = open(&fake);
    let collectors: Vec<_> = (0..THREADS)
        .map(|_| Counter::default())
        .map(Arc::new)
        .collect();
    std::thread::scope(|scope| {
        for (thread, collector) in (0..THREADS).zip(&collectors) {
            let volume = &volume;
            scope.spawn(move || {
                for tag in 0..EACH {
                    let operation = write(thread * EACH + tag, 1);
                    volume.submit(
                        operation,
                        data_for(&operation, tag + 1),
                        collector.clone(),
                        tag,
                    );
                }
            });
        }
    });
    for collector in &collectors {
        until("all have completed", || collector.count() == EACH);
    }
    until("nothing is left", || volume.state().outstanding == 0);
    for thread in 0..THREADS {
        assert!((0..EACH).all(|tag| fake.word(thread * EACH + tag) == tag + 1));
    }
    volume.close();
}

/// Counts what went well.
#[derive(Default)]
struct Counter(std::sync::atomic::AtomicU64);

impl Completer for Counter {
    fn complete(&self, completion: Completion) {
        completion.result.unwrap();
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Counter {
    fn count(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[test]
fn large_operations_go_in_pieces_over_the_same_memory() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    let words: Vec<u64> = (1..=40).collect();
    let (result, written) = block_on(volume.write(0, buffer(&words), true));
    assert_eq!((result, super::words(&written)), (Ok(()), words.clone()));
    assert_eq!(
        fake.executed(),
        [(0, 16), (16, 16), (32, 8)].map(|(lba, blocks)| Operation::Write {
            extent: extent(lba, blocks),
            fua: true
        })
    );
    let (result, read) = block_on(volume.read(0, Buffer::allocate(40 * BLOCK as usize)));
    assert_eq!((result, super::words(&read)), (Ok(()), words));
    assert_eq!(volume.state().counters.splits, 2);
    volume.close();
}

#[test]
fn a_piece_that_is_lost_is_repeated_and_the_others_are_not() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.behaviours([Behaviour::Answer, Behaviour::CutAfter]);
    let words: Vec<u64> = (1..=40).collect();
    let (result, _) = block_on(volume.write(0, buffer(&words), false));
    assert_eq!(result, Ok(()));
    assert_eq!(
        fake.executed(),
        [write(0, 16), write(16, 16), write(16, 16), write(32, 8)]
    );
    assert_eq!(volume.state().paths[0].outstanding, 0);
    volume.close();
}

#[test]
fn pieces_of_an_unmap_end_where_units_do() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    assert_eq!(block_on(volume.unmap(3 * 512, 50 * 512)), Ok(()));
    let pieces: Vec<_> = fake
        .executed()
        .iter()
        .map(|operation| operation.extent().unwrap())
        .map(|extent| (extent.lba.0, extent.blocks.0))
        .collect();
    assert_eq!(pieces, [(3, 13), (16, 16), (32, 16), (48, 5)]);
    volume.close();
}

#[test]
fn compare_and_write_is_never_cut() {
    let fake = Fake::new(1);
    fake.world().info.max_transfer_blocks = Some(2);
    let volume = open(&fake);
    let expected_and_new = [[0; 8], [5; 8]].concat();
    let (result, _) = block_on(volume.compare_and_write(0, buffer(&expected_and_new), false));
    assert_eq!(result, Ok(()));
    assert_eq!(fake.executed(), [compare_and_write(0, 8)]);
    assert_eq!(fake.word(7), 5);
    volume.close();
}

#[test]
fn all_operations_have_a_future() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    block_on(async {
        assert_eq!(volume.write(512, buffer(&[1, 2]), false).await.0, Ok(()));
        assert_eq!(volume.flush().await, Ok(()));
        assert_eq!(volume.write_zeroes(512, 512, true, false).await, Ok(()));
        assert_eq!(
            volume.extent_status(0, 1024).await,
            Ok(Run {
                bytes: 1024,
                state: ExtentState::Mapped
            })
        );
        let (result, read) = volume.read(512, Buffer::allocate(1024)).await;
        assert_eq!((result, words(&read)), (Ok(()), vec![0, 2]));
    });
    volume.close();
}

#[test]
fn what_makes_no_sense_fails_without_the_peer() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    let (result, buffer) = block_on(volume.read(100, Buffer::allocate(512)));
    assert!(matches!(
        result,
        Err(Failure::Misaligned { offset: 100, .. })
    ));
    assert_eq!(buffer.len(), 512, "the memory comes back");
    assert!(block_on(volume.unmap(0, 5)).is_err());
    let short = submit_with(&volume, write(0, 2), Data::buffer(Buffer::allocate(512)));
    assert_eq!(
        short.result(),
        Err(Failure::WrongDataLength {
            needed: 1024,
            given: 512
        })
    );
    let endless = submit_with(&volume, read(u64::MAX, 2), Data::Discard);
    assert_eq!(endless.result(), Err(Failure::OutOfRange));
    let nothing = submit_with(&volume, write(5, 0), Data::None);
    assert_eq!(nothing.result(), Ok(()));
    assert_eq!(fake.executed(), []);
    volume.close();
}

fn submit_with(volume: &RemoteVolume, operation: Operation, data: Data) -> Arc<Collector> {
    let collector = Collector::new();
    volume.submit(operation, data, collector.clone(), 0);
    collector
}

#[test]
fn a_future_that_is_dropped_leaves_its_operation_to_finish() {
    let fake = Fake::new(1);
    let volume = open(&fake);
    fake.behaviours([Behaviour::Hold]);
    drop(volume.write(0, buffer(&[3]), false));
    fake.release();
    until("it has finished", || volume.state().outstanding == 0);
    assert_eq!(fake.word(0), 3);
    volume.close();
}

#[test]
fn reads_and_writes_have_queues_of_their_own() {
    let fake = Fake::new(1);
    let maps = QueueMaps {
        default: 1,
        read: 1,
        poll: 0,
    };
    fake.world().portals[0].maps = maps;
    fake.world().room = 1;
    let mut settings = settings();
    settings.queues = maps;
    let volume = open_with(&fake, settings);
    fake.foretell(|_, operation| match operation {
        Operation::Write { .. } => Behaviour::Hold,
        _ => Behaviour::Answer,
    });
    let held = submit(&volume, write(0, 1), 1);
    assert_eq!(
        run(&volume, read(0, 1), 0),
        Ok(()),
        "it does not wait behind the write"
    );
    fake.release();
    assert_eq!(held.result(), Ok(()));
    volume.close();
}

/// A volume with a poll queue.
fn open_polled(fake: &Fake) -> RemoteVolume {
    let maps = QueueMaps {
        default: 1,
        read: 0,
        poll: 1,
    };
    fake.world().portals[0].maps = maps;
    let mut settings = settings();
    settings.queues = maps;
    open_with(fake, settings)
}

#[test]
fn poll_queues_complete_in_the_thread_that_polls() {
    struct Here(Mutex<Option<std::thread::ThreadId>>);
    impl Completer for Here {
        fn complete(&self, _: Completion) {
            *self.0.lock().unwrap() = Some(std::thread::current().id());
        }
    }
    let fake = Fake::new(1);
    let volume = open_polled(&fake).polled();
    let here = Arc::new(Here(Mutex::new(None)));
    volume.submit(read(0, 1), data_for(&read(0, 1), 0), here.clone(), 0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(*here.0.lock().unwrap(), None, "nobody has polled");
    until("it has completed", || volume.poll() == 1);
    assert_eq!(*here.0.lock().unwrap(), Some(std::thread::current().id()));
    assert_eq!(volume.poll(), 0);
    volume.close();
}

#[test]
fn futures_of_poll_queues_poll_themselves() {
    let fake = Fake::new(1);
    let volume = open_polled(&fake).polled();
    for word in 1..50 {
        assert_eq!(block_on(volume.write(0, buffer(&[word]), false)).0, Ok(()));
        let (_, read) = block_on(volume.read(0, Buffer::allocate(512)));
        assert_eq!(words(&read), [word]);
    }
    fake.behaviours([Behaviour::CutAfter]);
    assert_eq!(
        block_on(volume.flush()),
        Ok(()),
        "also over a lost connection"
    );
    volume.close();
}

#[test]
fn poll_queues_that_nobody_polls_are_looked_after_now_and_then() {
    let fake = Fake::new(1);
    fake.world().portals[0].maps = QueueMaps {
        default: 1,
        read: 0,
        poll: 1,
    };
    let mut settings = settings();
    settings.queues = fake.world().portals[0].maps;
    settings.timeouts.request = Duration::from_millis(80);
    let volume = open_with(&fake, settings).polled();
    assert_eq!(run(&volume, read(0, 1), 0), Ok(()));
    assert_eq!(volume.state().counters.timeouts, 0);
    volume.close();
}

#[test]
fn a_server_that_grants_fewer_queues_is_used_with_those() {
    let fake = Fake::new(1);
    let mut settings = settings();
    settings.queues = QueueMaps {
        default: 2,
        read: 2,
        poll: 2,
    };
    let volume = open_with(&fake, settings);
    assert_eq!(volume.state().paths[0].queues, 1);
    assert_eq!(run(&volume, read(0, 1), 0), Ok(()));
    assert_eq!(run(&volume.polled(), read(0, 1), 0), Ok(()));
    volume.close();
}

#[test]
fn several_drivers_share_the_queues() {
    let fake = Fake::new(2);
    for portal in &mut fake.world().portals {
        portal.maps = QueueMaps::plain(4);
    }
    let mut settings = settings();
    settings.queues = QueueMaps::plain(4);
    settings.volume.drivers = 3;
    settings.volume.driver_spin = Duration::from_micros(50);
    let volume = open_with(&fake, settings);
    let counter = Arc::new(Counter::default());
    for round in 0..4 {
        for tag in 0..200 {
            volume.submit(
                write(tag, 1),
                data_for(&write(tag, 1), tag),
                counter.clone(),
                tag,
            );
        }
        // One of two, so that there always is a path.
        fake.take_away(round % 2);
        fake.bring_back(round % 2);
    }
    until("all have completed", || counter.count() == 800);
    volume.close();
}

#[test]
fn a_blocking_volume_reads_what_it_has_written() {
    let fake = Fake::new(1);
    let volume = BlockingVolume::from(open(&fake));
    assert_eq!(volume.block_size(), BLOCK);
    let block = u64::from(BLOCK);
    let written = buffer(&[7, 9]);
    volume.write_at(&written, block).unwrap();
    volume.flush().unwrap();
    let mut read = vec![0; written.len()];
    volume.read_at(&mut read, block).unwrap();
    assert_eq!(read, *written);
    volume.write_zeroes_at(2 * block, block).unwrap();
    volume.read_at(&mut read, block).unwrap();
    assert_eq!(read, *buffer(&[7, 0]));
    let misaligned = volume.read_at(&mut read, 1).unwrap_err();
    assert!(matches!(misaligned, Failure::Misaligned { offset: 1, .. }));
    volume.close();
}
