//! Sends whose pages the kernel takes rather than copies, and when it lets go of them.
//!
//! Only data of operations is sent this way; headers lie in memory that is used again at once.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use longshore_reactor::send_ring::SendRing;
use longshore_reactor::{socket, zero_copy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::table::Table;
use crate::operation::Data;
use crate::options::{SendPath, TransferPaths};

/// After so many sends, all of which the kernel has copied, it is asked no more.
const COPIED_IN_VAIN: u64 = 64;

/// Sends of a ring whose pages the kernel may hold at a time.
const RING_ENTRIES: u32 = 256;

/// An operation that has its answer waits so long, at most, for the ring within a receive call: the peer has
/// acknowledged all of the data, so that it is a matter of microseconds.
const RING_WAIT: Duration = Duration::from_millis(2);

/// Who gives a connection up waits so long, at most, for the kernel to let go of memory. Usually it does at once.
const DISCONNECT_WAIT: Duration = Duration::from_millis(20);

/// What it holds then (in a network card that is stuck) is waited for by a thread, for so long.
const REMAINS_WAIT: Duration = Duration::from_secs(60);

/// How often that thread looks.
const REMAINS_PAUSE: Duration = Duration::from_millis(20);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    how: How,
    threshold: usize,
    /// Switched off after copies in vain.
    active: bool,
    fallback: bool,
    notified: u64,
    copied: u64,
}

#[derive(Debug)]
enum How {
    Off,
    Socket(SocketPins),
    Ring(Box<SendRing>),
}

/// Sends of MSG_ZEROCOPY whose pages the kernel holds. It numbers them from 0 on, and tells of them by number, not
/// always in order.
#[derive(Debug, Default)]
struct SocketPins {
    /// The number of the first in the list.
    first: u32,
    sends: VecDeque<Pin>,
}

#[derive(Debug)]
struct Pin {
    /// Whose data.
    number: u32,
    done: bool,
}

/// What a send took.
pub(super) struct ZeroCopySent {
    pub(super) bytes: usize,
    /// The kernel holds their pages until it says otherwise.
    pub(super) pinned: bool,
}

impl ZeroCopy {
    pub(super) fn start(socket: &OwnedFd, paths: &TransferPaths) -> io::Result<Self> {
        let how = match paths.send {
            SendPath::Copy | SendPath::Gather => How::Off,
            SendPath::ZeroCopy => {
                zero_copy::enable(socket).map_err(|error| unavailable("MSG_ZEROCOPY", error))?;
                How::Socket(SocketPins::default())
            }
            SendPath::Ring => {
                let ring = SendRing::new(RING_ENTRIES);
                How::Ring(Box::new(
                    ring.map_err(|error| unavailable("io_uring", error))?,
                ))
            }
        };
        Ok(Self {
            active: !matches!(how, How::Off),
            how,
            threshold: paths.zerocopy_threshold.max(1),
            fallback: paths.zerocopy_fallback,
            notified: 0,
            copied: 0,
        })
    }

    /// Whether so many bytes of data are sent this way.
    #[inline]
    pub(super) const fn suits(&self, length: usize) -> bool {
        self.active && length >= self.threshold
    }

    /// Sends data of the operation with this number.
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        bytes: &[u8],
        more: bool,
        number: u32,
    ) -> io::Result<ZeroCopySent> {
        match &mut self.how {
            How::Off => unreachable!("nothing suits"),
            How::Socket(pins) => {
                let bytes = zero_copy::send(socket, bytes, more)?;
                pins.sends.push_back(Pin {
                    number,
                    done: false,
                });
                Ok(ZeroCopySent {
                    bytes,
                    pinned: true,
                })
            }
            How::Ring(ring) => {
                let sent = ring.send(socket, bytes, more, number)?;
                Ok(ZeroCopySent {
                    bytes: sent.bytes,
                    pinned: sent.held,
                })
            }
        }
    }

    /// Tells `unpin` of each send whose pages the kernel has let go of. `urgent`: somebody waits for just that. Returns
    /// how many of the sends were copied.
    pub(super) fn take_notifications(
        &mut self,
        socket: &OwnedFd,
        urgent: bool,
        mut unpin: impl FnMut(u32),
    ) -> u64 {
        let (mut notified, mut copied) = (0, 0);
        let mut count = |was_copied: bool, sends: u64| {
            notified += sends;
            copied += if was_copied { sends } else { 0 };
        };
        match &mut self.how {
            How::Off => {}
            How::Socket(pins) => {
                while let Ok(Some(told)) = zero_copy::next_notification(socket) {
                    let sends = pins.unpin(told.first, told.last, &mut unpin);
                    count(told.copied, sends);
                }
            }
            How::Ring(ring) => {
                let mut seen = |number, was_copied| {
                    unpin(number);
                    count(was_copied, 1);
                };
                let found = ring.notifications(&mut seen);
                if urgent && found == 0 && ring.wait(RING_WAIT).is_ok() {
                    ring.notifications(&mut seen);
                }
            }
        }
        self.notified += notified;
        self.copied += copied;
        if self.fallback
            && self.active
            && self.copied == self.notified
            && self.copied >= COPIED_IN_VAIN
        {
            tracing::info!(
                "the kernel copies data sent by zero copy; sending without zero copy from now on"
            );
            self.active = false;
        }
        copied
    }

    pub(super) fn notifier(&self) -> Option<BorrowedFd<'_>> {
        match &self.how {
            How::Ring(ring) => Some(ring.as_fd()),
            How::Off | How::Socket(_) => None,
        }
    }

    /// Discards unsent data of the socket, and waits until the kernel holds no memory. Memory that it
    /// still holds after a moment is left behind, and operations go on with copies: other connections do
    /// not wait for this one. Only while the system has no memory for copies, the wait goes on.
    pub(super) fn disconnect(&mut self, socket: &OwnedFd, table: &mut Table) {
        // An error means that it is disconnected already.
        let _ = socket::disconnect(socket);
        let mut give_up = Instant::now() + DISCONNECT_WAIT;
        loop {
            self.take_notifications(socket, false, |number| table.unpin_quietly(number));
            if table.pinned() == 0 {
                return;
            }
            if Instant::now() >= give_up {
                if let Some((memory, sends)) = table.take_pinned() {
                    return self.leave_behind(socket, memory, sends);
                }
                give_up = Instant::now() + DISCONNECT_WAIT;
            }
            self.wait_a_little(socket);
        }
    }

    /// Has a thread keep memory of so many sends until the kernel lets go of it.
    pub(super) fn leave_behind(&mut self, socket: &OwnedFd, memory: Vec<Data>, sends: usize) {
        let how = std::mem::replace(&mut self.how, How::Off);
        self.active = false;
        let remains = Remains {
            zero_copy: Self { how, ..*self },
            memory: ManuallyDrop::new(memory),
            sends,
        };
        let thread = socket.try_clone().and_then(|socket| {
            thread::Builder::new()
                .name("sent-memory".to_owned())
                .spawn(move || remains.wait(&socket))
        });
        if let Err(error) = thread {
            tracing::warn!(%error, sends, "cannot wait for memory that was being sent; it is lost");
        }
    }

    fn wait_a_little(&mut self, socket: &OwnedFd) {
        const STEP: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        match &mut self.how {
            // A time-out is no surprise: the caller looks, and comes again.
            How::Ring(ring) => drop(ring.wait(Duration::from_millis(5))),
            // POLLERR comes unasked.
            How::Off | How::Socket(_) => {
                let fds = &mut [PollFd::new(socket, PollFlags::empty())];
                if poll(fds, Some(&STEP)).is_err() || !fds[0].revents().is_empty() {
                    // A hang-up is reported without end; do not spin on it.
                    thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }
}

/// What a connection that was given up has left in the kernel. It is free when the kernel says so, and never used again
/// if it does not.
struct Remains {
    zero_copy: ZeroCopy,
    memory: ManuallyDrop<Vec<Data>>,
    sends: usize,
}

impl Remains {
    fn wait(mut self, socket: &OwnedFd) {
        let give_up = Instant::now() + REMAINS_WAIT;
        while self.sends > 0 {
            if Instant::now() >= give_up {
                tracing::warn!(
                    sends = self.sends,
                    "the kernel does not release memory that was being sent; it stays allocated"
                );
                return;
            }
            thread::sleep(REMAINS_PAUSE);
            let sends = &mut self.sends;
            let unpin = |_| *sends = sends.saturating_sub(1);
            self.zero_copy.take_notifications(socket, false, unpin);
        }
        drop(ManuallyDrop::into_inner(self.memory));
    }
}

#[cold]
fn unavailable(what: &str, error: io::Error) -> io::Error {
    let text = format!(
        "zero-copy sends by {what} are not available here: {error}; choose another way to send"
    );
    io::Error::new(error.kind(), text)
}

impl SocketPins {
    /// The kernel has let go of the sends with these numbers. Returns how many they were.
    fn unpin(&mut self, first: u32, last: u32, unpin: &mut impl FnMut(u32)) -> u64 {
        let mut sends = 0;
        // Numbers wrap around; what is in the list is far less than half of them.
        let from = first.wrapping_sub(self.first);
        let to = last.wrapping_sub(self.first);
        for at in from..=to {
            let Some(pin) = self.sends.get_mut(at as usize) else {
                break;
            };
            if !std::mem::replace(&mut pin.done, true) {
                unpin(pin.number);
                sends += 1;
            }
        }
        while self.sends.front().is_some_and(|pin| pin.done) {
            self.sends.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        sends
    }
}
