//! From the transmit queue to the socket.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;

use longshore_wire::transmit::{PayloadId, Segment};

use super::{Machine, Queue};
use crate::error::Lost;

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing is left to send.
    Done,
    /// The socket takes no more now: wait until it is writable.
    WouldBlock,
}

/// Segments in one call. Linux takes up to 1,024.
const SEGMENTS_PER_SEND: usize = 256;
/// A list for many costs hundreds of instructions to clear.
const FEW_SEGMENTS: usize = 8;
const SOME_SEGMENTS: usize = 64;

/// Shared zeros that zero segments point at.
static ZEROS: [u8; 4096] = [0; 4096];

/// How far one call came.
enum Step {
    /// Everything that was given to it has left.
    All(usize),
    /// The socket is full.
    Part(usize),
}

impl<M: Machine> Queue<M> {
    /// Sends what is queued, as far as the socket takes it; does not block.
    ///
    /// # Errors
    /// The connection is broken.
    #[inline]
    pub fn send(&mut self) -> Result<Sent, Lost> {
        self.send_at_most(usize::MAX)
    }

    /// As [`Self::send`], up to so many bytes: other queues of the same thread have their turns then. What is left
    /// counts as what the socket does not take.
    ///
    /// # Errors
    /// The connection is broken.
    #[inline]
    pub fn send_at_most(&mut self, most: usize) -> Result<Sent, Lost> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let mut left = most;
        while !self.transmit.is_empty() {
            if left == 0 {
                return Ok(Sent::WouldBlock);
            }
            let step = match self.send_once(left) {
                Ok(step) => step,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Step::Part(0),
                Err(error) => return Err(self.lose(Lost::from_io(&error))),
            };
            let (Step::All(n) | Step::Part(n)) = step;
            left -= n;
            self.sent += n as u64;
            self.counters.bytes_sent += n as u64;
            self.transmit.advance(n, &mut self.released);
            for id in self.released.drain(..) {
                self.table.release(number_of(id));
            }
            if matches!(step, Step::Part(_)) {
                return Ok(Sent::WouldBlock);
            }
        }
        self.answers_queued = 0;
        Ok(Sent::Done)
    }

    /// One call, with up to `most` bytes.
    #[inline]
    fn send_once(&mut self, most: usize) -> std::io::Result<Step> {
        let mut segments = self.transmit.segments();
        let count = segments.size_hint().0;
        if let Some(Segment::Buffer { id, start, length }) = segments.next()
            && self.zero_copy.suits(length)
        {
            drop(segments);
            let more = count > 1 || length > most;
            return self.send_zero_copy(number_of(id), start, length.min(most), more);
        }
        drop(segments);
        if count <= FEW_SEGMENTS {
            self.send_list::<FEW_SEGMENTS>(most)
        } else if count <= SOME_SEGMENTS {
            self.send_list::<SOME_SEGMENTS>(most)
        } else {
            self.send_list::<SEGMENTS_PER_SEND>(most)
        }
    }

    /// Sends up to so many segments, none by zero copy.
    #[inline]
    fn send_list<const SEGMENTS: usize>(&mut self, most: usize) -> std::io::Result<Step> {
        let mut slices = [IoSlice::new(&[]); SEGMENTS];
        let mut count = 0;
        let mut total = 0;
        let mut by_reference = 0;
        let mut more = false;
        let arena = self.transmit.arena();
        for segment in self.transmit.segments() {
            if count == SEGMENTS {
                break;
            }
            let bytes = match segment {
                Segment::Arena { start, length } => &arena[start..start + length],
                Segment::Zeros { length } => &ZEROS[..length.min(ZEROS.len())],
                Segment::Buffer { id, start, length } => {
                    if self.zero_copy.suits(length) {
                        more = true;
                        break;
                    }
                    by_reference += length;
                    &self.table.entry(number_of(id)).data.bytes()[start..start + length]
                }
            };
            let cut = &bytes[..bytes.len().min(most - total)];
            slices[count] = IoSlice::new(cut);
            count += 1;
            total += cut.len();
            if total == most {
                more = true;
                break;
            }
            if cut.len() < segment.length() {
                break;
            }
        }
        self.counters.send_calls += 1;
        let sent = self.channel.send(&slices[..count], more)?;
        if sent < total {
            return Ok(Step::Part(sent));
        }
        self.counters.bytes_by_reference += by_reference as u64;
        Ok(Step::All(sent))
    }

    /// Sends one segment by zero copy.
    fn send_zero_copy(
        &mut self,
        number: u32,
        start: usize,
        length: usize,
        more: bool,
    ) -> std::io::Result<Step> {
        let bytes = &self.table.entry(number).data.bytes()[start..start + length];
        self.counters.send_calls += 1;
        let sent = self
            .zero_copy
            .send(self.channel.as_fd(), bytes, more, number);
        match sent {
            Ok(sent) => {
                self.table.pin(number);
                self.counters.zero_copy_sends += 1;
                self.counters.bytes_by_reference += sent as u64;
                Ok(if sent < length {
                    Step::Part(sent)
                } else {
                    Step::All(sent)
                })
            }
            // A limit on locked memory or on notifications: by copying it goes on.
            Err(error) if is_limit(&error) => {
                self.counters.zero_copy_refused += 1;
                self.counters.send_calls += 1;
                let sent = self.channel.send(&[IoSlice::new(bytes)], more)?;
                Ok(if sent < length {
                    Step::Part(sent)
                } else {
                    Step::All(sent)
                })
            }
            Err(error) => Err(error),
        }
    }
}

fn is_limit(error: &std::io::Error) -> bool {
    let limits = [
        rustix::io::Errno::NOBUFS,
        rustix::io::Errno::NOMEM,
        rustix::io::Errno::OPNOTSUPP,
    ];
    limits
        .into_iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The entry whose data a payload is.
#[inline]
fn number_of(id: PayloadId) -> u32 {
    u32::try_from(id.0).expect("payloads are numbered by us")
}
