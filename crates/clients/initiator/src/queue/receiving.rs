//! From the socket to completions.

use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::{Machine, MachineEvent, Queue, write_data};
use crate::error::{CloseCause, Lost};
use crate::operation::{Completion, Data, OperationKind};

/// What one call has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes that came from the socket.
    pub bytes: usize,
    /// There may be more: call again before waiting.
    pub more: bool,
}

/// Data of a read goes straight to its place when so much of it is still to come.
const DIRECT_MIN: usize = 4096;

/// With large reads only so much is received that does not go to its place: the next header, and the beginning of
/// what follows, which has to be copied. With a page it is a thirtieth of the data of a 128 KiB read.
const TAIL_BYTES: usize = 4096;

/// In front of data of this length a short tail pays off: what is copied less is worth another call.
const LARGE_PLACE: usize = 16 << 10;

/// Answers to the peer's own questions that wait to be sent. A peer that asks on and reads nothing is not to fill
/// our memory.
const ANSWERS_MAX: usize = 4 << 20;

impl<M: Machine> Queue<M> {
    /// Receives about a buffer full and takes in what came; does not block. Appends the operations that have ended, also when it
    /// fails. What is to be sent then waits for [`send`](Self::send).
    ///
    /// # Errors
    /// The connection is over: nothing more will come.
    #[inline]
    pub fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<Received, Lost> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if !self.early.is_empty() {
            return self.take_early(completions);
        }
        let mut received = Received::default();
        loop {
            let part = match self.receive_once(completions) {
                Ok(part) => part,
                Err(lost) => return Err(self.lose(lost)),
            };
            received.bytes += part.bytes;
            received.more = part.more;
            // Calls that are short for the sake of large reads count as one, so that what has ended is
            // followed by new commands in batches.
            let is_short = part.more && received.bytes < self.receive_bytes;
            if !(is_short && self.direct && self.table.reads_are_large()) {
                break;
            }
        }
        if self.table.pinned() > 0 {
            self.take_notifications(completions, received);
        }
        if self.table.is_short() {
            return Err(self.lose(Lost::Socket(Errno::NOMEM.raw_os_error())));
        }
        Ok(received)
    }

    #[inline]
    fn receive_once(&mut self, completions: &mut Vec<Completion>) -> Result<Received, Lost> {
        if self.receive_buffer.is_empty() {
            if self
                .receive_buffer
                .try_reserve_exact(self.receive_bytes)
                .is_err()
            {
                return Err(self.lose(Lost::Socket(Errno::NOMEM.raw_os_error())));
            }
            self.receive_buffer.resize(self.receive_bytes, 0);
        }
        // Out of `self`, so that it can be looked at while the machine works; that moves three words.
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        let received = self.receive_into(&mut buffer, completions);
        self.receive_buffer = buffer;
        received
    }

    #[inline]
    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        completions: &mut Vec<Completion>,
    ) -> Result<Received, Lost> {
        self.counters.receive_calls += 1;
        let is_large = self.direct && self.table.reads_are_large();
        let tail = if is_large { TAIL_BYTES } else { buffer.len() };
        let (received, direct, room) = if self.direct
            && let Some(place) = wanted(&self.machine, &mut self.table)
        {
            let wanted = place.len();
            let tail = if wanted < LARGE_PLACE {
                buffer.len()
            } else {
                tail
            };
            let mut buffers = [IoSliceMut::new(place), IoSliceMut::new(&mut buffer[..tail])];
            (self.channel.receive(&mut buffers), wanted, wanted + tail)
        } else {
            let mut buffers = [IoSliceMut::new(&mut buffer[..tail])];
            (self.channel.receive(&mut buffers), 0, tail)
        };
        let bytes = match received {
            Ok(0) => return Err(Lost::HungUp),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::default()),
            Err(error) => return Err(Lost::from_io(&error)),
        };
        self.counters.bytes_received += bytes as u64;
        let direct = direct.min(bytes);
        if direct > 0 {
            self.take_direct(direct);
        }
        self.take_in(&buffer[..bytes - direct], completions)?;
        Ok(Received {
            bytes,
            more: bytes == room || self.channel.has_more(),
        })
    }

    /// Tells the machine what was received straight to its place.
    fn take_direct(&mut self, bytes: usize) {
        self.counters.bytes_direct += bytes as u64;
        let wanted = self.machine.payload_wanted();
        let wanted = wanted.expect("it was asked before the call");
        let (_, entry) = self.table.of_slot(wanted.slot).expect("it was there then");
        entry.received += bytes;
        let start = wanted.offset as usize;
        let place = &entry.data.bytes()[start..start + bytes];
        self.machine.payload_received(place);
    }

    /// What was received while the connection was set up.
    #[cold]
    fn take_early(&mut self, completions: &mut Vec<Completion>) -> Result<Received, Lost> {
        let early = std::mem::take(&mut self.early);
        if let Err(lost) = self.take_in(&early, completions) {
            return Err(self.lose(lost));
        }
        Ok(Received {
            bytes: early.len(),
            more: true,
        })
    }

    /// Goes through bytes of the stream.
    #[inline]
    fn take_in(&mut self, mut input: &[u8], completions: &mut Vec<Completion>) -> Result<(), Lost> {
        loop {
            let queued = self.transmit.pending_bytes();
            let event = self.machine.next(&mut input, &mut self.transmit);
            self.answers_queued += self.transmit.pending_bytes() - queued;
            match event {
                MachineEvent::NeedMore => break,
                MachineEvent::DataIn {
                    slot,
                    offset,
                    bytes,
                } => {
                    let Some((_, entry)) = self.table.of_slot(slot) else {
                        return Err(astray());
                    };
                    let start = offset as usize;
                    let end = start.checked_add(bytes.len());
                    let Some(end) = end.filter(|end| *end <= entry.length) else {
                        return Err(astray());
                    };
                    entry.received += bytes.len();
                    if !matches!(entry.data, Data::Discard) {
                        entry.data.bytes_mut()[start..end].copy_from_slice(bytes);
                    }
                }
                MachineEvent::Completed { slot, result } => {
                    self.table.end(slot, result, completions);
                }
                MachineEvent::DataWanted {
                    slot,
                    offset,
                    length,
                    token,
                } => self.send_wanted(slot, offset, length, token)?,
                MachineEvent::Pong => self.pongs += 1,
                MachineEvent::Notice(notice) => self.notices.push(notice),
                MachineEvent::Closed(cause) => return Err(Lost::Closed(cause)),
            }
        }
        self.counters.data_pdus = self.machine.data_pdus();
        if self.answers_queued > ANSWERS_MAX {
            let cause = "it asks and asks, and reads no answer".to_owned();
            return Err(Lost::Closed(CloseCause::Protocol(cause)));
        }
        Ok(())
    }

    /// Answers a request for data.
    fn send_wanted(
        &mut self,
        slot: u16,
        offset: u32,
        length: u32,
        token: M::Token,
    ) -> Result<(), Lost> {
        let Some((number, entry)) = self.table.of_slot(slot) else {
            return Err(astray());
        };
        let start = offset as usize;
        let end = start.checked_add(length as usize);
        let end = end
            .filter(|end| *end <= entry.length && takes_data(OperationKind::of(&entry.operation)));
        let Some(end) = end else {
            return Err(astray());
        };
        let by_reference = entry.by_reference;
        let bytes = &entry.data.bytes()[start..end];
        let counters = &mut self.counters;
        counters.data_requests += 1;
        counters.data_requested_bytes += u64::from(length);
        counters.data_request_bytes_max = counters.data_request_bytes_max.max(length);
        let releases = self.transmit.releases_due();
        let data = write_data(by_reference, number, start, bytes);
        self.machine.send_data(token, data, &mut self.transmit);
        entry.queued += self.transmit.releases_due() - releases;
        Ok(())
    }

    /// Looks which pages the kernel has let go of.
    fn take_notifications(&mut self, completions: &mut Vec<Completion>, received: Received) {
        // As long as no operation waits for it, that can wait until nothing else is to be done.
        if received.bytes > 0 && self.table.answered() == 0 {
            return;
        }
        let table = &mut self.table;
        let copied = self
            .zero_copy
            .take_notifications(self.channel.as_fd(), |number| {
                table.unpin(number, completions);
            });
        self.counters.zero_copy_copied += copied;
    }
}

/// The memory for the data of a read that comes next, if it is large.
#[inline]
fn wanted<'a, M: Machine>(machine: &M, table: &'a mut super::Table) -> Option<&'a mut [u8]> {
    let wanted = machine.payload_wanted()?;
    let length = wanted.length as usize;
    if length < DIRECT_MIN {
        return None;
    }
    let (_, entry) = table.of_slot(wanted.slot)?;
    let start = wanted.offset as usize;
    let end = start
        .checked_add(length)
        .filter(|end| *end <= entry.length)?;
    entry.data.bytes_mut().get_mut(start..end)
}

const fn takes_data(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::Write)
}

/// A machine names a command or bytes that there are not. They check what the peer says, so this does not
/// happen; and if it does, no memory is touched.
#[cold]
fn astray() -> Lost {
    let cause = "data of no command".to_owned();
    Lost::Closed(CloseCause::Protocol(cause))
}
