use std::cell::Cell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_reactor::Buffer;
use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::error::CloseCause;
use crate::operation::{Completion, Reply};

mod fake;

use fake::{ALONG_MAX, Fake, Peer};

const LARGE: usize = 256 << 10;

fn extent(bytes: usize) -> Extent {
    Extent {
        lba: Lba(0),
        blocks: BlockCount(bytes as u64 / u64::from(fake::BLOCK)),
    }
}

fn read(bytes: usize) -> Operation {
    Operation::Read {
        extent: extent(bytes),
    }
}

fn write(bytes: usize) -> Operation {
    Operation::Write {
        extent: extent(bytes),
        fua: false,
    }
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at * 31 + at / 251 + seed * 17) % 256).unwrap())
        .collect()
}

fn buffer(bytes: &[u8]) -> Data {
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    Data::buffer(buffer)
}

fn paths(send: SendPath) -> TransferPaths {
    TransferPaths {
        send,
        zerocopy_threshold: 4096,
        ..TransferPaths::default()
    }
}

fn pair(slots: u16, paths: &TransferPaths) -> (Queue<Fake>, Peer) {
    Peer::pair(slots, paths).unwrap()
}

/// Sends and receives until so many operations have ended.
fn run(queue: &mut Queue<Fake>, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    run_into(queue, count, &mut completions).unwrap();
    completions
}

fn run_into(
    queue: &mut Queue<Fake>,
    count: usize,
    completions: &mut Vec<Completion>,
) -> Result<(), Lost> {
    let end = Instant::now() + Duration::from_secs(10);
    while completions.len() < count {
        queue.send()?;
        if queue.receive(completions)?.bytes == 0 {
            thread::sleep(Duration::from_micros(50));
        }
        assert!(
            Instant::now() < end,
            "{} of {count} ended",
            completions.len()
        );
    }
    Ok(())
}

#[test]
fn a_read_fills_its_buffer() {
    let (mut queue, mut peer) = pair(4, &TransferPaths::default());
    let expected = pattern(1024, 1);
    queue.submit(read(1024), buffer(&[0; 1024]), 7).unwrap();
    assert_eq!(queue.send(), Ok(Sent::Done));
    let (command, _) = peer.take();
    assert_eq!((command.kind, command.length), (b'c', 1024));
    peer.send_data(command.slot, 0, &expected);
    peer.end(command.slot);
    let completions = run(&mut queue, 1);
    assert_eq!(
        (completions[0].tag, &completions[0].result),
        (7, &Ok(Reply::Done))
    );
    assert_eq!(completions[0].data.bytes(), expected);
    assert_eq!((queue.room(), queue.in_flight()), (4, 0));
}

#[test]
fn data_goes_behind_the_start_of_its_buffer() {
    let (mut queue, mut peer) = pair(4, &TransferPaths::default());
    let expected = pattern(LARGE, 1);
    let data = Data::Buffer {
        buffer: Buffer::allocate(LARGE + 100),
        start: 100,
    };
    queue.submit(read(LARGE), data, 0).unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    let thread = thread::spawn(move || {
        peer.send_data(slot, 0, &expected);
        peer.end(slot);
        expected
    });
    let completion = run(&mut queue, 1).remove(0);
    let expected = thread.join().unwrap();
    let buffer = completion.data.into_buffer().unwrap();
    assert!(buffer[..100].iter().all(|byte| *byte == 0));
    assert_eq!(buffer[100..], expected);
    assert!(queue.counters().bytes_direct > 0, "{:?}", queue.counters());
}

#[test]
fn operations_end_in_any_order() {
    let (mut queue, mut peer) = pair(3, &TransferPaths::default());
    for tag in 0..3 {
        queue.submit(read(512), Data::Discard, tag).unwrap();
    }
    assert_eq!(queue.room(), 0);
    let rejected = queue.submit(read(512), Data::Discard, 3).unwrap_err();
    assert_eq!(rejected.refusal, Refusal::Busy);
    queue.send().unwrap();
    let slots: Vec<_> = (0..3).map(|_| peer.take().0.slot).collect();
    for at in [1, 2, 0] {
        peer.send_data(slots[at], 0, &[0; 512]);
        peer.end(slots[at]);
    }
    let tags: Vec<_> = run(&mut queue, 3).iter().map(|c| c.tag).collect();
    assert_eq!(tags, [1, 2, 0]);
}

#[test]
fn all_commands_of_a_batch_are_one_send_and_all_answers_one_receive() {
    let (mut queue, mut peer) = pair(64, &TransferPaths::default());
    for tag in 0..64 {
        queue.submit(read(512), Data::Discard, tag).unwrap();
    }
    queue.send().unwrap();
    assert_eq!(queue.counters().send_calls, 1);
    let slots: Vec<_> = (0..64).map(|_| peer.take().0.slot).collect();
    let mut answers = Vec::new();
    for slot in slots {
        for (kind, length) in [(b'd', 512), (b'e', 0)] {
            let offset = 0;
            let message = fake::Message {
                kind,
                slot,
                offset,
                length,
            };
            answers.extend(message.encode());
            answers.resize(answers.len() + length as usize, 0);
        }
    }
    peer.stream.write_all(&answers).unwrap();
    let arrived = || rustix::io::ioctl_fionread(queue.socket()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while arrived() < answers.len() as u64 {
        assert!(Instant::now() < end, "{} bytes have arrived", arrived());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(run(&mut queue, 64).len(), 64);
    assert_eq!(queue.counters().receive_calls, 1);
    assert_eq!(queue.counters().operations, 64);
}

#[test]
fn a_read_that_brings_too_little_has_failed() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    queue.submit(read(1024), Data::Discard, 0).unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    peer.send_data(slot, 0, &[1; 512]);
    peer.end(slot);
    let expected = Failure::ShortTransfer {
        expected: 1024,
        moved: 512,
    };
    assert_eq!(run(&mut queue, 1)[0].result, Err(expected));
}

#[test]
fn memory_that_is_too_short_is_given_back() {
    let (mut queue, _peer) = pair(1, &TransferPaths::default());
    for (operation, data) in [
        (read(1024), buffer(&[0; 1023])),
        (write(1024), buffer(&[0; 1023])),
        (write(512), Data::Discard),
        (write(512), Data::None),
        (read(512), Data::shared(Arc::new(Buffer::allocate(512)))),
    ] {
        let rejected = queue.submit(operation, data, 0).unwrap_err();
        assert!(
            matches!(
                rejected.refusal,
                Refusal::Failed(Failure::WrongDataLength { .. })
            ),
            "{rejected:?}"
        );
    }
    let operation = Operation::ExtentStatus {
        extent: extent(512),
    };
    let rejected = queue.submit(operation, Data::None, 0).unwrap_err();
    assert_eq!(rejected.refusal, Refusal::Failed(Failure::Unsupported));
    queue.submit(Operation::Flush, Data::None, 0).unwrap();
}

/// Writes of all sizes, by one path; the peer asks for the data in parts.
fn written_data_arrives_whole(paths: &TransferPaths) {
    let (mut queue, mut peer) = pair(8, paths);
    let sizes = [512, ALONG_MAX, 4096, LARGE, LARGE, 512, 1 << 20, 8192];
    for (tag, size) in sizes.into_iter().enumerate() {
        let data = pattern(size, tag);
        let data = if tag % 2 == 0 {
            buffer(&data)
        } else {
            Data::shared(Arc::new(buffer(&data).into_buffer().unwrap()))
        };
        queue.submit(write(size), data, tag as u64).unwrap();
    }
    let thread = thread::spawn(move || {
        let mut commands = Vec::new();
        for _ in 0..sizes.len() {
            let (command, data) = peer.take();
            commands.push((command, data));
        }
        for (command, data) in &mut commands {
            if command.kind == b'i' {
                peer.end(command.slot);
                continue;
            }
            data.resize(command.length as usize, 0);
            let half = command.length / 2;
            peer.send(b'r', command.slot, half, command.length - half);
            peer.send(b'r', command.slot, 0, half);
            for _ in 0..2 {
                let (message, part) = peer.take();
                assert_eq!((message.kind, message.slot), (b'w', command.slot));
                let start = message.offset as usize;
                data[start..start + part.len()].copy_from_slice(&part);
            }
            peer.end(command.slot);
        }
        (peer, commands)
    });
    let completions = run(&mut queue, sizes.len());
    let (_peer, commands) = thread.join().unwrap();
    for (tag, (size, (_, data))) in sizes.into_iter().zip(commands).enumerate() {
        assert!(data == pattern(size, tag), "write {tag} of {size} bytes");
    }
    for completion in completions {
        assert_eq!(completion.result, Ok(Reply::Done));
        let tag = usize::try_from(completion.tag).unwrap();
        assert!(completion.data.bytes() == pattern(sizes[tag], tag));
    }
    assert_eq!((queue.in_flight(), queue.room()), (0, 8));
    assert_eq!(queue.table.pinned(), 0);
}

#[test]
fn written_data_arrives_whole_by_copying() {
    written_data_arrives_whole(&paths(SendPath::Copy));
}

#[test]
fn written_data_arrives_whole_by_reference() {
    written_data_arrives_whole(&paths(SendPath::Gather));
}

#[test]
fn written_data_arrives_whole_by_zero_copy() {
    written_data_arrives_whole(&paths(SendPath::ZeroCopy));
}

#[test]
fn written_data_arrives_whole_through_a_small_socket() {
    for send in [SendPath::Copy, SendPath::Gather, SendPath::ZeroCopy] {
        let small = TransferPaths {
            socket_send_bytes: Some(4096),
            ..paths(send)
        };
        written_data_arrives_whole(&small);
    }
}

/// Writes `count` times 64 KiB, one by one.
fn write_one_by_one(queue: &mut Queue<Fake>, mut peer: Peer, count: usize) {
    const SIZE: u32 = 64 << 10;
    let thread = thread::spawn(move || {
        for _ in 0..count {
            let slot = peer.take().0.slot;
            peer.send(b'r', slot, 0, SIZE);
            assert!(peer.take().1.iter().all(|byte| *byte == 9));
            peer.end(slot);
        }
        peer
    });
    for tag in 0..count {
        queue
            .submit(
                write(SIZE as usize),
                buffer(&[9; SIZE as usize]),
                tag as u64,
            )
            .unwrap();
        assert_eq!(run(queue, 1)[0].result, Ok(Reply::Done));
    }
    thread.join().unwrap();
}

#[test]
fn a_kernel_that_copies_is_asked_no_more() {
    let (mut queue, peer) = pair(1, &paths(SendPath::ZeroCopy));
    write_one_by_one(&mut queue, peer, 200);
    let counters = *queue.counters();
    // Over loopback all are copied.
    assert_eq!(
        counters.zero_copy_copied, counters.zero_copy_sends,
        "{counters:?}"
    );
    assert!(
        (64..100).contains(&counters.zero_copy_sends),
        "{counters:?}"
    );
}

#[test]
fn measurements_keep_asking_for_zero_copy() {
    let forced = TransferPaths {
        zerocopy_fallback: false,
        ..paths(SendPath::ZeroCopy)
    };
    let (mut queue, peer) = pair(1, &forced);
    write_one_by_one(&mut queue, peer, 200);
    assert!(queue.counters().zero_copy_sends >= 200);
}

#[test]
fn beyond_the_limits_of_zero_copy_data_is_sent_plainly() {
    const COUNT: u16 = 1000;
    let (mut queue, mut peer) = pair(COUNT, &paths(SendPath::ZeroCopy));
    let shared = Arc::new(buffer(&[8; 4096]).into_buffer().unwrap());
    for tag in 0..COUNT {
        let data = Data::shared(shared.clone());
        queue.submit(write(4096), data, tag.into()).unwrap();
    }
    queue.send().unwrap();
    for _ in 0..COUNT {
        let slot = peer.take().0.slot;
        peer.send(b'r', slot, 0, 4096);
    }
    // All requests are taken in before any data leaves, and no notification is read meanwhile.
    let end = Instant::now() + Duration::from_secs(10);
    while queue.transmit.releases_due() < usize::from(COUNT) {
        queue.receive(&mut Vec::new()).unwrap();
        assert!(Instant::now() < end);
    }
    let thread = thread::spawn(move || {
        for _ in 0..COUNT {
            let (message, data) = peer.take();
            assert!(data.iter().all(|byte| *byte == 8));
            peer.end(message.slot);
        }
        peer
    });
    while queue.send() == Ok(Sent::WouldBlock) {
        assert!(Instant::now() < end);
    }
    let completions = run(&mut queue, COUNT.into());
    assert!(completions.iter().all(|c| c.result == Ok(Reply::Done)));
    let counters = queue.counters();
    assert_eq!(
        counters.zero_copy_sends + counters.zero_copy_refused,
        COUNT.into(),
        "{counters:?}"
    );
    thread.join().unwrap();
}

/// Paths by whose sockets a [`FAILED_EARLY`] write does not go at once.
fn small_socket(send: SendPath) -> TransferPaths {
    TransferPaths {
        socket_send_bytes: Some(128 << 10),
        ..paths(send)
    }
}

const FAILED_EARLY: u32 = 8 << 20;

/// The peer asks for the data of a large write, and fails it at once. Returns the data.
fn fail_early(queue: &mut Queue<Fake>, peer: &mut Peer) -> Vec<u8> {
    let data = pattern(FAILED_EARLY as usize, 3);
    queue
        .submit(write(FAILED_EARLY as usize), buffer(&data), 1)
        .unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    peer.send(b'r', slot, 0, FAILED_EARLY);
    peer.send(b'e', slot, 1, 0);
    data
}

#[test]
fn a_write_that_fails_early_ends_while_its_data_is_still_being_sent() {
    for send in [SendPath::Gather, SendPath::ZeroCopy] {
        let (mut queue, mut peer) = pair(2, &small_socket(send));
        let expected = fail_early(&mut queue, &mut peer);
        // The pages of the first parts are held until the peer reads; so it reads while we wait.
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            (peer.take().1, peer)
        });
        let completion = run(&mut queue, 1).remove(0);
        assert_eq!(completion.result, Err(Failure::OutOfRange));
        // The caller uses its memory again.
        let mut data = completion.data;
        data.bytes_mut().fill(0);
        let end = Instant::now() + Duration::from_secs(10);
        while queue.has_unsent() {
            queue.send().unwrap();
            queue.receive(&mut Vec::new()).unwrap();
            assert!(Instant::now() < end);
        }
        let (received, _peer) = reader.join().unwrap();
        assert!(received == expected, "{send:?}");
        while queue.table.pinned() > 0 {
            queue.receive(&mut Vec::new()).unwrap();
            assert!(Instant::now() < end);
        }
        assert_eq!((queue.room(), queue.in_flight()), (2, 0));
    }
}

#[test]
fn a_large_write_leaves_in_the_parts_that_the_caller_gives_it() {
    const SIZE: u32 = 4 << 20;
    const MOST: usize = 100_000;
    for send in [SendPath::Gather, SendPath::ZeroCopy] {
        let (mut queue, mut peer) = pair(2, &paths(send));
        let expected = pattern(SIZE as usize, 9);
        let data = buffer(&expected);
        queue.submit(write(SIZE as usize), data, 1).unwrap();
        queue.send().unwrap();
        let slot = peer.take().0.slot;
        peer.send(b'r', slot, 0, SIZE);
        while !queue.has_unsent() {
            queue.receive(&mut Vec::new()).unwrap();
        }
        let reader = thread::spawn(move || (peer.take().1, peer));
        let mut calls = 0;
        while queue.has_unsent() {
            let before = queue.counters().bytes_sent;
            let sent = queue.send_at_most(MOST).unwrap();
            let bytes = queue.counters().bytes_sent - before;
            assert!(bytes <= MOST as u64, "{send:?}: {bytes}");
            assert_eq!(sent == Sent::Done, !queue.has_unsent());
            calls += 1;
        }
        assert!(calls > 40, "{send:?}: {calls}");
        let (received, peer) = reader.join().unwrap();
        assert!(received == expected, "{send:?}");
        // What the kernel pins comes back when the peer has read all.
        drop((queue, peer));
    }
}

#[test]
fn what_was_not_answered_comes_back_with_a_note_whether_it_was_sent() {
    let (mut queue, mut peer) = pair(4, &TransferPaths::default());
    queue.submit(read(512), Data::Discard, 1).unwrap();
    queue.submit(write(512), buffer(&[5; 512]), 2).unwrap();
    queue.send().unwrap();
    queue.submit(write(512), buffer(&[6; 512]), 3).unwrap();
    assert_eq!(peer.take().0.kind, b'c');
    let unfinished = queue.abandon();
    let told: Vec<_> = unfinished.iter().map(|u| (u.tag, u.was_sent)).collect();
    assert_eq!(told, [(1, true), (2, true), (3, false)]);
    assert_eq!(unfinished[2].data.bytes(), [6; 512]);
    // What was sent arrives; the end is a reset.
    let mut rest = Vec::new();
    let error = peer.stream.read_to_end(&mut rest).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_queue_that_is_given_up_under_zero_copy_gives_its_memory_back() {
    const SIZE: u32 = 8 << 20;
    for drop_it in [false, true] {
        let (mut queue, mut peer) = pair(2, &paths(SendPath::ZeroCopy));
        let expected = pattern(SIZE as usize, 1);
        queue
            .submit(write(SIZE as usize), buffer(&expected), 1)
            .unwrap();
        queue.send().unwrap();
        let slot = peer.take().0.slot;
        peer.send(b'r', slot, 0, SIZE);
        while !queue.has_unsent() {
            queue.receive(&mut Vec::new()).unwrap();
        }
        assert_eq!(queue.send(), Ok(Sent::WouldBlock));
        assert!(queue.table.pinned() > 0);
        let start = Instant::now();
        if drop_it {
            drop(queue);
        } else {
            let unfinished = queue.abandon();
            assert!(unfinished[0].data.bytes() == expected);
        }
        assert!(start.elapsed() < Duration::from_millis(900));
    }
}

#[test]
fn memory_that_the_kernel_keeps_is_left_to_it_and_nobody_waits() {
    // A machine that stands still for a moment is slow once, not each time.
    let nobody_waits = (0..5).any(|_| {
        let (mut queue, mut peer) = pair(2, &TransferPaths::default());
        queue.submit(write(512), buffer(&[5; 512]), 1).unwrap();
        let number = queue.table.next().unwrap();
        queue.submit(write(512), buffer(&[6; 512]), 2).unwrap();
        queue.send().unwrap();
        peer.take();
        // A send whose notification never comes.
        queue.table.pin(number);
        let start = Instant::now();
        let unfinished = queue.abandon();
        let took = start.elapsed();
        assert_eq!(unfinished[0].data.bytes(), [5; 512]);
        assert_eq!(unfinished[1].data.bytes(), [6; 512], "a copy");
        took < Duration::from_millis(500)
    });
    assert!(nobody_waits);
}

thread_local! {
    /// Calls of [`memory_is_short`] on this thread.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// Has memory at every odd call up to the fifth, and from then on.
fn memory_is_short(length: usize) -> Option<Buffer> {
    let asked = ASKED.get() + 1;
    ASKED.set(asked);
    (asked % 2 == 1 || asked > 5).then(|| Buffer::allocate(length))
}

#[test]
fn the_end_of_a_connection_waits_for_memory_for_copies() {
    let (mut queue, mut peer) = pair(2, &TransferPaths::default());
    queue.table.allocate = memory_is_short;
    for byte in [5, 6] {
        let number = queue.table.next().unwrap();
        queue
            .submit(write(512), buffer(&[byte; 512]), byte.into())
            .unwrap();
        // A send whose notification never comes.
        queue.table.pin(number);
    }
    queue.send().unwrap();
    peer.take();
    let unfinished = queue.abandon();
    // Twice the copy of the second operation failed after that of the first one.
    assert_eq!(ASKED.get(), 6);
    assert_eq!(unfinished[0].data.bytes(), [5; 512]);
    assert_eq!(unfinished[1].data.bytes(), [6; 512]);
}

#[test]
fn operations_without_memory_for_copies_fail_after_a_while() {
    for drop_it in [false, true] {
        let (mut queue, mut peer) = pair(3, &TransferPaths::default());
        queue.table.allocate = |_| {
            ASKED.set(ASKED.get() + 1);
            None
        };
        ASKED.set(0);
        let memory: Arc<Buffer> = Arc::new(Buffer::allocate(512));
        let shared = Data::Shared {
            buffer: memory.clone(),
            start: 0,
        };
        let mut numbers = Vec::new();
        for (data, tag) in [(buffer(&[5; 512]), 1), (shared, 2), (buffer(&[7; 512]), 3)] {
            numbers.push(queue.table.next().unwrap());
            queue.submit(write(512), data, tag).unwrap();
        }
        queue.send().unwrap();
        peer.take();
        // Sends whose notifications never come.
        queue.table.pin(numbers[0]);
        queue.table.pin(numbers[1]);
        if drop_it {
            drop(queue);
            assert_eq!(ASKED.get(), 0, "no copies are wanted");
        } else {
            let unfinished = queue.abandon();
            assert!(ASKED.get() > 1, "memory may come back");
            let lost = Lost::Socket(Errno::NOMEM.raw_os_error());
            let failed = Some(Err(Failure::OutcomeUnknown(lost)));
            assert_eq!(unfinished[0].answer, failed);
            assert!(matches!(unfinished[0].data, Data::None));
            // Shared data needs no copy.
            assert_eq!(unfinished[1].answer, None);
            assert_eq!(unfinished[1].data.bytes(), [0; 512]);
            // The kernel holds nothing of this one.
            assert_eq!(unfinished[2].answer, None);
            assert_eq!(unfinished[2].data.bytes(), [7; 512]);
        }
        assert_eq!(
            Arc::strong_count(&memory),
            2,
            "the kernel may read it still"
        );
    }
}

#[test]
fn answers_that_have_come_outlive_memory_that_the_kernel_keeps() {
    let (mut queue, mut peer) = pair(2, &TransferPaths::default());
    queue.table.allocate = |_| None;
    let memory = Arc::new(Buffer::allocate(512));
    let mut numbers = Vec::new();
    for (data, tag) in [(buffer(&[5; 512]), 1), (Data::shared(memory.clone()), 2)] {
        numbers.push(queue.table.next().unwrap());
        queue.submit(write(512), data, tag).unwrap();
    }
    queue.send().unwrap();
    peer.take();
    // Sends whose notifications never come. The peer answers the first write meanwhile.
    numbers.iter().for_each(|number| queue.table.pin(*number));
    let mut completions = Vec::new();
    let answer = Err(Failure::OutOfRange);
    queue.table.end(0, answer.clone(), &mut completions);
    assert!(completions.is_empty(), "the kernel still reads the data");
    let unfinished = queue.abandon();
    assert_eq!(unfinished[0].answer, Some(answer));
    assert!(matches!(unfinished[0].data, Data::None));
    // The second one is to be repeated.
    assert_eq!(unfinished[1].answer, None);
    assert_eq!(unfinished[1].data.bytes(), &memory[..]);
}

#[test]
fn an_early_answer_without_memory_for_a_copy_ends_the_connection() {
    let (mut queue, mut peer) = pair(2, &small_socket(SendPath::Gather));
    queue.table.allocate = |_| None;
    let expected = fail_early(&mut queue, &mut peer);
    let mut completions = Vec::new();
    let lost = loop {
        if let Err(lost) = queue.receive(&mut completions) {
            break lost;
        }
    };
    assert_eq!(lost, Lost::Socket(Errno::NOMEM.raw_os_error()));
    assert!(completions.is_empty());
    let unfinished = queue.abandon().remove(0);
    assert_eq!(unfinished.answer, Some(Err(Failure::OutOfRange)));
    assert!(unfinished.data.bytes() == expected);
}

#[test]
fn memory_that_the_kernel_lets_go_of_late_is_free_then() {
    let (mut queue, mut peer) = pair(1, &paths(SendPath::ZeroCopy));
    let data: Arc<Buffer> = Arc::new(Buffer::allocate(LARGE));
    let shared = Data::Shared {
        buffer: data.clone(),
        start: 0,
    };
    queue.submit(write(LARGE), shared, 1).unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    peer.send(b'r', slot, 0, u32::try_from(LARGE).unwrap());
    while queue.table.pinned() == 0 {
        queue.receive(&mut Vec::new()).unwrap();
        queue.send().unwrap();
    }
    let socket = queue.socket().try_clone_to_owned().unwrap();
    let (memory, sends) = queue.table.take_pinned().unwrap();
    queue.zero_copy.leave_behind(socket.as_fd(), memory, sends);
    assert_eq!(queue.table.pinned(), 0);
    let end = Instant::now() + Duration::from_secs(20);
    drop((queue, peer));
    while Arc::strong_count(&data) > 1 {
        assert!(Instant::now() < end, "the memory is free");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_quiet_queue_closes_without_a_reset() {
    let (queue, mut peer) = pair(1, &TransferPaths::default());
    drop(queue);
    assert_eq!(peer.stream.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn the_end_of_the_stream_is_the_end_after_what_came_before() {
    let (mut queue, mut peer) = pair(2, &TransferPaths::default());
    queue.submit(read(512), Data::Discard, 1).unwrap();
    queue.submit(read(512), Data::Discard, 2).unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    peer.send_data(slot, 0, &[0; 512]);
    peer.end(slot);
    peer.stream.shutdown(Shutdown::Write).unwrap();
    let mut completions = Vec::new();
    let lost = run_into(&mut queue, 2, &mut completions).unwrap_err();
    assert_eq!(lost, Lost::HungUp);
    assert_eq!(completions.len(), 1);
    assert_eq!(queue.send(), Err(Lost::HungUp));
    assert_eq!(queue.receive(&mut completions), Err(Lost::HungUp));
    assert!(queue.submit(read(512), Data::Discard, 3).is_err());
    assert_eq!(queue.abandon().len(), 1);
}

#[test]
fn the_peer_can_end_the_connection_with_words() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    peer.send(b'x', 0, 0, 0);
    let lost = run_into(&mut queue, 1, &mut Vec::new()).unwrap_err();
    assert!(lost.to_string().contains("that was it"), "{lost}");
}

#[test]
fn data_for_nobody_ends_the_connection() {
    for (slot, offset) in [(3, 0), (0, 512), (9, 0)] {
        let (mut queue, mut peer) = pair(4, &TransferPaths::default());
        queue.submit(read(512), buffer(&[0; 512]), 1).unwrap();
        queue.send().unwrap();
        assert_eq!(peer.take().0.slot, 0);
        peer.send_data(slot, offset, &[1; 512]);
        let lost = run_into(&mut queue, 1, &mut Vec::new()).unwrap_err();
        assert!(
            matches!(lost, Lost::Closed(CloseCause::Protocol(_))),
            "{lost}"
        );
    }
}

#[test]
fn a_peer_that_asks_and_reads_no_answer_is_given_up() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    let thread = thread::spawn(move || {
        let question = fake::Message {
            kind: b'q',
            slot: 0,
            offset: 0,
            length: 0,
        };
        let questions = question.encode().repeat(10_000);
        while peer.stream.write_all(&questions).is_ok() {}
    });
    let end = Instant::now() + Duration::from_secs(10);
    let lost = loop {
        match queue.receive(&mut Vec::new()) {
            Ok(_) => assert!(Instant::now() < end),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("reads no answer"), "{lost}");
    drop(queue);
    thread.join().unwrap();
}

#[test]
fn pings_are_counted_and_early_bytes_are_not_lost() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    assert!(queue.ping());
    queue.send().unwrap();
    assert_eq!(peer.take().0.kind, b'p');
    let pong = fake::Message {
        kind: b'o',
        slot: 0,
        offset: 0,
        length: 0,
    };
    queue.early = pong.encode().to_vec();
    let received = queue.receive(&mut Vec::new()).unwrap();
    assert!(received.more);
    assert_eq!(queue.pongs(), 1);
}

#[test]
fn what_a_peer_asks_for_is_counted_before_it_is_sent() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    let data = pattern(LARGE, 5);
    queue.submit(write(LARGE), buffer(&data), 1).unwrap();
    queue.send().unwrap();
    let slot = peer.take().0.slot;
    let half = u32::try_from(LARGE / 2).unwrap();
    for offset in [0, half] {
        peer.send(b'r', slot, offset, half);
    }
    let end = Instant::now() + Duration::from_secs(10);
    while queue.counters().data_requests < 2 {
        queue.receive(&mut Vec::new()).unwrap();
        assert!(Instant::now() < end);
    }
    assert_eq!(queue.counters().data_requested_bytes, LARGE as u64);
    assert_eq!(queue.counters().data_request_bytes_max, half);
    // Whoever holds data back by not sending has asked for nothing but that.
    assert!(queue.has_unsent() && queue.counters().bytes_sent < 64);
    queue.send().unwrap();
    let (first, second) = (peer.take().1, peer.take().1);
    assert_eq!([first, second].concat(), data);
}

#[test]
fn memory_kept_for_speed_can_be_given_back() {
    let (mut queue, mut peer) = pair(1, &TransferPaths::default());
    for _ in 0..2 {
        queue.submit(read(512), Data::Discard, 1).unwrap();
        queue.send().unwrap();
        let slot = peer.take().0.slot;
        peer.send_data(slot, 0, &[0; 512]);
        peer.end(slot);
        run(&mut queue, 1);
        queue.release_memory();
        assert!(queue.receive_buffer.is_empty());
    }
}

/// What the peer sends for two reads that come in turns.
fn two_reads() -> (Vec<u8>, [Vec<u8>; 2]) {
    let data = [pattern(6144, 1), pattern(1024, 2)];
    let mut stream = Vec::new();
    let mut push = |kind, slot, offset: usize, bytes: &[u8]| {
        let message = fake::Message {
            kind,
            slot,
            offset: u32::try_from(offset).unwrap(),
            length: u32::try_from(bytes.len()).unwrap(),
        };
        stream.extend(message.encode());
        stream.extend(bytes);
    };
    push(b'd', 0, 0, &data[0][..5000]);
    push(b'd', 1, 512, &data[1][512..]);
    push(b'd', 0, 5000, &data[0][5000..]);
    push(b'e', 0, 0, &[]);
    push(b'd', 1, 0, &data[1][..512]);
    push(b'e', 1, 0, &[]);
    (stream, data)
}

/// Cuts the peer's stream at the given places.
fn cut_stream_is_understood(cuts: &[usize], receive: ReceivePath) {
    let paths = TransferPaths {
        receive,
        ..TransferPaths::default()
    };
    let (mut queue, mut peer) = pair(2, &paths);
    let (stream, data) = two_reads();
    for (tag, data) in data.iter().enumerate() {
        let memory = buffer(&vec![0; data.len()]);
        queue.submit(read(data.len()), memory, tag as u64).unwrap();
    }
    queue.send().unwrap();
    let mut completions = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        peer.stream.write_all(&stream[from..to]).unwrap();
        let received_before = queue.counters().bytes_received;
        while queue.counters().bytes_received - received_before < (to - from) as u64 {
            queue.receive(&mut completions).unwrap();
        }
        from = to;
    }
    let tags: Vec<_> = completions.iter().map(|c| c.tag).collect();
    assert_eq!(tags, [0, 1]);
    for (completion, data) in completions.iter().zip(data) {
        assert_eq!(completion.result, Ok(Reply::Done));
        assert!(completion.data.bytes() == data);
    }
}

#[test]
fn a_stream_can_be_cut_around_every_header() {
    let (stream, _) = two_reads();
    let near = |at: &usize| *at < 40 || (4990..5700).contains(at) || *at > stream.len() - 600;
    for cut in (1..stream.len()).filter(near) {
        cut_stream_is_understood(&[cut], ReceivePath::Direct);
    }
}

#[test]
fn a_stream_can_come_byte_by_byte() {
    let (stream, _) = two_reads();
    let cuts: Vec<_> = (1..stream.len()).collect();
    for receive in [ReceivePath::Direct, ReceivePath::Buffered] {
        cut_stream_is_understood(&cuts, receive);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_can_be_cut_anywhere(
        cuts in prop::collection::btree_set(1_usize..7000, 0..12),
        direct in any::<bool>(),
    ) {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let receive = if direct { ReceivePath::Direct } else { ReceivePath::Buffered };
        cut_stream_is_understood(&cuts, receive);
    }
}
