//! Facts that hold for every volume, on any storage.
//!
//! [`check_volume`] overwrites the volume and panics at the first fact that does not hold. A volume
//! has to be at least [`SIZE_MIN`] long and writable.

use super::VolumeClient;
use super::client::write_request;
use crate::{Attempt, Extent, ExtentState, Lba, Operation, Reply, Request, VolumeError};

/// Smallest volume that the suite can work on.
pub const SIZE_MIN: u64 = 1 << 20;

/// What becomes of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The backend keeps what is written.
    Data,
    /// It vanishes, and reads give zeros.
    Nothing,
}

/// Runs the whole suite.
pub fn check_volume(client: &mut VolumeClient<'_>, keeps: Keeps) {
    let mut suite = Suite {
        block: u64::from(client.volume().geometry().block_size),
        size: size_of(client),
        client,
        keeps,
    };
    assert!(suite.size >= SIZE_MIN, "the suite needs {SIZE_MIN} bytes");
    suite.reads_give_what_was_written();
    suite.attempts_agree_with_requests();
    suite.payload_may_begin_anywhere_in_its_buffer();
    suite.first_and_last_blocks_are_usable();
    suite.nothing_outside_the_volume_is_touched();
    suite.payloads_are_as_long_as_their_ranges();
    suite.empty_ranges_do_nothing();
    suite.unmapped_ranges_read_as_promised();
    suite.zeroed_ranges_read_as_zeros();
    suite.anchored_ranges_keep_their_data();
    suite.extents_cover_the_volume();
    suite.flush_and_prefetch_succeed();
    suite.requests_run_together();
}

fn size_of(client: &VolumeClient<'_>) -> u64 {
    client.volume().geometry().size_bytes()
}

/// Bytes that tell their place: no two blocks of a pattern are alike.
#[must_use]
pub fn pattern(offset: u64, length: usize, seed: u8) -> Vec<u8> {
    (offset..)
        .take(length)
        .map(|at| {
            let [low, high, third, ..] = (at / 8).to_le_bytes();
            low ^ high.rotate_left(3) ^ third.rotate_left(5) ^ seed | 1
        })
        .collect()
}

struct Suite<'c, 'v> {
    client: &'c mut VolumeClient<'v>,
    keeps: Keeps,
    block: u64,
    size: u64,
}

impl Suite<'_, '_> {
    fn expected(&self, written: &[u8]) -> Vec<u8> {
        match self.keeps {
            Keeps::Data => written.to_vec(),
            Keeps::Nothing => vec![0; written.len()],
        }
    }

    #[track_caller]
    fn expect(&mut self, offset: u64, written: &[u8]) {
        let found = self.client.read(offset, written.len()).expect("read");
        assert!(
            found == self.expected(written),
            "bytes at {offset} differ from what was written"
        );
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.client.write(offset, bytes).expect("write");
    }

    fn blocks(&self, count: u64) -> usize {
        usize::try_from(self.block * count).expect("a few blocks")
    }

    fn reads_give_what_was_written(&mut self) {
        for (place, length) in [(0, 1), (1, 3), (7, 16), (64, 33)] {
            let offset = place * self.block;
            let bytes = pattern(offset, self.blocks(length), 1);
            self.write(offset, &bytes);
            self.expect(offset, &bytes);
            let again = pattern(offset, self.blocks(length), 2);
            self.client
                .write_durable(offset, &again)
                .expect("durable write");
            self.expect(offset, &again);
        }
    }

    fn attempts_agree_with_requests(&mut self) {
        let (lba, offset) = (Lba(16), 16 * self.block);
        let bytes = pattern(offset, self.blocks(4), 3);
        match self.client.volume().try_write(lba, &bytes, false) {
            Attempt::Done(result) => result.expect("write"),
            Attempt::WouldSleep => self.write(offset, &bytes),
        }
        self.expect(offset, &bytes);
        let mut found = vec![0xee; bytes.len()];
        match self.client.volume().try_read(lba, &mut found) {
            Attempt::Done(result) => {
                result.expect("read");
                assert!(
                    found == self.expected(&bytes),
                    "try_read reads something else"
                );
            }
            Attempt::WouldSleep => {}
        }
    }

    fn payload_may_begin_anywhere_in_its_buffer(&mut self) {
        for start in [1, 48, 512, 4096, 4097] {
            let offset = 3 * self.block;
            let seed = u8::try_from(start % 251).expect("small");
            let bytes = pattern(offset, self.blocks(5), seed);
            for fua in [false, true] {
                self.client
                    .write_at_start(offset, &bytes, start, fua)
                    .expect("write");
            }
            let found = self
                .client
                .read_at_start(offset, bytes.len(), start)
                .expect("read");
            assert!(
                found == self.expected(&bytes),
                "payload at {start} of its buffer"
            );
        }
    }

    fn first_and_last_blocks_are_usable(&mut self) {
        for offset in [0, self.size - self.block] {
            let bytes = pattern(offset, self.blocks(1), 4);
            self.write(offset, &bytes);
            self.expect(offset, &bytes);
        }
    }

    fn nothing_outside_the_volume_is_touched(&mut self) {
        let (block, size) = (self.block, self.size);
        let outside = [
            (size, block),
            (size - block, 2 * block),
            (size + block, block),
            (u64::MAX - block + 1, block),
            (0, size + block),
        ];
        for (offset, length) in outside {
            let payload = length.min(2 * block);
            let bytes = vec![1; usize::try_from(payload).expect("two blocks")];
            if payload == length {
                out_of_range(self.client.read(offset, bytes.len()));
                out_of_range(self.client.write(offset, &bytes));
                let volume = self.client.volume();
                let lba = Lba(offset / block);
                not_done(volume.try_read(lba, &mut bytes.clone()));
                not_done(volume.try_write(lba, &bytes, false));
            }
            let extent = self.client.blocks(offset, length);
            assert!(!self.client.volume().known_zeros(extent));
            out_of_range(self.client.unmap(offset, length));
            out_of_range(self.client.write_zeroes(offset, length, true, false));
            out_of_range(self.client.anchor(offset, length));
            out_of_range(self.client.extent(offset, length));
            out_of_range(self.client.prefetch(offset, length));
        }
        // Where bytes could not count.
        for operation in [
            Operation::Unmap {
                extent: Extent::new(u64::MAX / block + 1, 1),
            },
            Operation::Prefetch {
                extent: Extent::new(1, u64::MAX),
            },
        ] {
            out_of_range(self.client.run(&mut Request::new(operation)));
        }
    }

    fn payloads_are_as_long_as_their_ranges(&mut self) {
        let extent = Extent::new(1, 2);
        for length in [self.blocks(1), self.blocks(3), self.blocks(2) - 100] {
            let bytes = vec![1; length];
            for operation in [
                Operation::Read { extent },
                Operation::Write { extent, fua: false },
            ] {
                let mut request = write_request(extent, &bytes, 0, false);
                request.operation = operation;
                out_of_range(self.client.run(&mut request));
            }
        }
        let volume = self.client.volume();
        not_done(volume.try_read(Lba(1), &mut [0; 100]));
        not_done(volume.try_write(Lba(1), &[1; 100], false));
    }

    fn empty_ranges_do_nothing(&mut self) {
        let bytes = pattern(0, self.blocks(2), 5);
        self.write(0, &bytes);
        for offset in [0, self.block, self.size] {
            assert!(self.client.read(offset, 0).expect("read").is_empty());
            self.write(offset, &[]);
            let extent = self.client.blocks(offset, 0);
            for operation in [
                Operation::Read { extent },
                Operation::Write { extent, fua: true },
            ] {
                let without_buffer = self.client.run(&mut Request::new(operation));
                assert_eq!(without_buffer.expect("nothing to move"), Reply::Done);
            }
            self.client
                .write_durable(offset, &[])
                .expect("durable write");
            self.client
                .write_zeroes(offset, 0, true, true)
                .expect("zeroes");
            if self
                .client
                .volume()
                .characteristics()
                .unmap_granularity
                .is_some()
            {
                self.client.unmap(offset, 0).expect("unmap");
            }
        }
        self.expect(0, &bytes);
    }

    fn unmapped_ranges_read_as_promised(&mut self) {
        let characteristics = self.client.volume().characteristics();
        let Some(granularity) = characteristics.unmap_granularity else {
            let refused = self.client.unmap(0, self.block);
            assert!(
                matches!(refused, Err(VolumeError::Unsupported)),
                "{refused:?}"
            );
            return;
        };
        assert!(
            u64::from(granularity).is_multiple_of(self.block),
            "granularity in blocks"
        );
        let (start, length) = (5 * self.block, 40 * self.block);
        let bytes = pattern(0, self.blocks(64), 6);
        self.write(0, &bytes);
        self.client.unmap(start, length).expect("unmap");
        if characteristics.unmapped_reads_zeros {
            self.expect_only_zeroed(&bytes, start, length);
        }
        self.write(0, &bytes);
        self.expect(0, &bytes);
    }

    fn zeroed_ranges_read_as_zeros(&mut self) {
        for may_unmap in [true, false] {
            for fua in [false, true] {
                let (start, length) = (3 * self.block, 50 * self.block);
                let bytes = pattern(0, self.blocks(64), 7);
                self.write(0, &bytes);
                self.client
                    .write_zeroes(start, length, may_unmap, fua)
                    .expect("write zeroes");
                self.expect_only_zeroed(&bytes, start, length);
            }
        }
    }

    /// `written` lies at the start of the volume, and only the range in it was zeroed.
    fn expect_only_zeroed(&mut self, written: &[u8], start: u64, length: u64) {
        let mut expected = written.to_vec();
        let range =
            usize::try_from(start).expect("small")..usize::try_from(start + length).expect("small");
        expected[range].fill(0);
        self.expect(0, &expected);
    }

    fn anchored_ranges_keep_their_data(&mut self) {
        let bytes = pattern(0, self.blocks(8), 8);
        self.write(0, &bytes);
        match self.client.anchor(self.block, 4 * self.block) {
            Ok(()) | Err(VolumeError::Unsupported) => self.expect(0, &bytes),
            Err(error) => panic!("anchor: {error}"),
        }
    }

    fn extents_cover_the_volume(&mut self) {
        let bytes = pattern(0, self.blocks(8), 9);
        self.write(0, &bytes);
        let (mut offset, mut extents) = (0, 0);
        while offset < self.size {
            let (length, state) = self
                .client
                .extent(offset, self.size - offset)
                .expect("extent status");
            assert!(
                length >= self.block && length.is_multiple_of(self.block),
                "whole blocks"
            );
            assert!(offset + length <= self.size, "inside the range");
            if offset == 0 && self.keeps == Keeps::Data {
                assert_eq!(state, ExtentState::Mapped, "data is mapped");
            }
            offset += length;
            extents += 1;
            assert!(extents <= self.size / self.block, "extents make progress");
        }
        let (length, _) = self.client.extent(0, self.block).expect("extent status");
        assert_eq!(length, self.block, "looks no further than asked");
    }

    fn flush_and_prefetch_succeed(&mut self) {
        self.client.flush().expect("flush");
        self.client.prefetch(0, self.size).expect("prefetch");
    }

    fn requests_run_together(&mut self) {
        const COUNT: u64 = 40;
        let each = self.blocks(2);
        let block = self.block;
        let offset = |number: u64| number * 2 * block;
        let mut requests: Vec<_> = (0..COUNT)
            .map(|number| {
                let bytes = pattern(offset(number), each, 10);
                write_request(Extent::new(2 * number, 2), &bytes, 0, number % 3 == 0)
            })
            .collect();
        requests.extend((0..10).map(|_| Request::new(Operation::Flush)));
        for result in self.client.run_together(requests) {
            assert_eq!(result.expect("write or flush"), Reply::Done);
        }
        for number in 0..COUNT {
            let bytes = pattern(offset(number), each, 10);
            self.expect(offset(number), &bytes);
        }
    }
}

#[track_caller]
fn out_of_range<T: std::fmt::Debug>(result: Result<T, VolumeError>) {
    assert!(matches!(result, Err(VolumeError::OutOfRange)), "{result:?}");
}

#[track_caller]
fn not_done(attempt: Attempt) {
    let refused = matches!(
        attempt,
        Attempt::WouldSleep | Attempt::Done(Err(VolumeError::OutOfRange))
    );
    assert!(refused, "{attempt:?}");
}
