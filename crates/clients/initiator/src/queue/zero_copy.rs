//! Sends whose pages the kernel takes rather than copies, and when it lets go of them.
//!
//! Only data of operations is sent this way; headers lie in memory that is used again at once.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use longshore_reactor::{socket, zero_copy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::table::Table;
use crate::channel::Channel;
use crate::operation::Data;
use crate::options::{SendPath, TransferPaths};

/// After so many sends, all of which the kernel has copied, it is asked no more.
const COPIED_IN_VAIN: u64 = 64;

/// Who gives a connection up waits so long, at most, for the kernel to let go of memory. Usually it does at once.
const DISCONNECT_WAIT: Duration = Duration::from_millis(20);

/// Copies are tried so often before their operations are given up, with a wait in between. Memory may come back.
const COPIES_TRIED: u32 = 50;

/// What it holds then (in a network card that is stuck) is waited for by a thread, for so long.
const REMAINS_WAIT: Duration = Duration::from_secs(60);

/// How often that thread looks.
const REMAINS_PAUSE: Duration = Duration::from_millis(20);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    /// `None`: the socket sends nothing this way.
    pins: Option<Pins>,
    threshold: usize,
    /// Switched off after copies in vain.
    active: bool,
    fallback: bool,
    notified: u64,
    copied: u64,
}

/// Sends whose pages the kernel holds. It numbers them from 0 on, and reports them by number, not always in order.
#[derive(Debug, Default)]
struct Pins {
    /// The number of the first in the list.
    first: u32,
    sends: VecDeque<Pin>,
}

#[derive(Debug)]
struct Pin {
    /// Number of the operation in the table.
    number: u32,
    done: bool,
}

impl ZeroCopy {
    pub(super) fn start(channel: &Channel, paths: &TransferPaths) -> io::Result<Self> {
        let pins = match paths.send {
            SendPath::Copy | SendPath::Gather => None,
            SendPath::ZeroCopy if channel.is_encrypted() => {
                let text = "TLS sends no data by zero copy; choose another way to send";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            SendPath::ZeroCopy => {
                zero_copy::enable(channel).map_err(unavailable)?;
                Some(Pins::default())
            }
        };
        Ok(Self {
            active: pins.is_some(),
            pins,
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

    /// Sends data of the operation with this number, whose pages the kernel holds until it reports the send. Returns
    /// how many bytes the socket took.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        more: bool,
        number: u32,
    ) -> io::Result<usize> {
        let pins = self.pins.as_mut().expect("nothing suits without pins");
        let sent = zero_copy::send(socket, bytes, more)?;
        pins.sends.push_back(Pin {
            number,
            done: false,
        });
        Ok(sent)
    }

    /// Calls `unpin` for each send whose pages the kernel has let go of. Returns how many of the sends were copied.
    pub(super) fn take_notifications(
        &mut self,
        socket: BorrowedFd<'_>,
        mut unpin: impl FnMut(u32),
    ) -> u64 {
        let Some(pins) = &mut self.pins else {
            return 0;
        };
        let (mut notified, mut copied) = (0, 0);
        while let Ok(Some(told)) = zero_copy::next_notification(socket) {
            let sends = pins.unpin(told.first, told.last, &mut unpin);
            notified += sends;
            copied += if told.copied { sends } else { 0 };
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

    /// Discards unsent data of the socket, and waits for a moment until the kernel holds no memory. Memory that it still
    /// holds then is left behind, and operations go on with copies: other connections do not wait for this one. While the
    /// system has no memory for copies the wait goes on, within bounds; then these operations have failed.
    ///
    /// `goes_on`: the operations are wanted, with their data.
    pub(super) fn disconnect(&mut self, socket: BorrowedFd<'_>, table: &mut Table, goes_on: bool) {
        // An error means that it is disconnected already.
        let _ = socket::disconnect(socket);
        let mut tries = 0;
        let mut look_again = Instant::now() + DISCONNECT_WAIT;
        loop {
            self.take_notifications(socket, |number| table.unpin_quietly(number));
            if table.pinned() == 0 {
                return;
            }
            if Instant::now() >= look_again {
                tries += 1;
                let copied = if goes_on { table.take_pinned() } else { None };
                let left = match copied {
                    None if goes_on && tries < COPIES_TRIED => None,
                    None => Some(table.give_up_pinned()),
                    copied => copied,
                };
                if let Some((memory, sends)) = left {
                    return self.leave_behind(socket, memory, sends);
                }
                look_again = Instant::now() + DISCONNECT_WAIT;
            }
            wait_a_little(socket);
        }
    }

    /// Has a thread keep memory of so many sends until the kernel lets go of it.
    pub(super) fn leave_behind(&mut self, socket: BorrowedFd<'_>, memory: Vec<Data>, sends: usize) {
        let pins = self.pins.take();
        self.active = false;
        let remains = Remains {
            zero_copy: Self { pins, ..*self },
            memory: ManuallyDrop::new(memory),
            sends,
        };
        let thread = socket.try_clone_to_owned().and_then(|socket| {
            thread::Builder::new()
                .name("sent-memory".to_owned())
                .spawn(move || remains.wait(socket.as_fd()))
        });
        if let Err(error) = thread {
            tracing::warn!(%error, sends, "cannot wait for memory that was being sent; it is lost");
        }
    }
}

fn wait_a_little(socket: BorrowedFd<'_>) {
    const STEP: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    // POLLERR comes unasked.
    let fds = &mut [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    if poll(fds, Some(&STEP)).is_err() || !fds[0].revents().is_empty() {
        // A hang-up is reported without end; do not spin on it.
        thread::sleep(Duration::from_micros(200));
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
    fn wait(mut self, socket: BorrowedFd<'_>) {
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
            self.zero_copy.take_notifications(socket, unpin);
        }
        drop(ManuallyDrop::into_inner(self.memory));
    }
}

#[cold]
fn unavailable(error: io::Error) -> io::Error {
    let text = format!(
        "zero-copy sends by MSG_ZEROCOPY are not available here: {error}; choose another way to send"
    );
    io::Error::new(error.kind(), text)
}

impl Pins {
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
