//! Zero-copy sends through an io_uring of their own (IORING_OP_SEND_ZC).
//!
//! Each send has its result when [`SendRing::send`] returns, like a plain one; the kernel may hold the pages longer, and
//! tells by a second completion when it lets go of them ([`SendRing::notifications`]). Until then the bytes must stay as
//! they are: what the peer gets (again) is what they are at that moment.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A ring for sends. See the module documentation.
pub struct SendRing {
    ring: IoUring,
    /// Notifications found while a result was waited for.
    found: Vec<Notification>,
    /// Notifications that are still to come.
    held: u32,
    held_max: u32,
    /// A submission has failed, and may still lie in the ring: it must never be handed in.
    is_broken: bool,
}

struct Notification {
    tag: u32,
    copied: bool,
}

/// What a send took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSent {
    /// Bytes.
    pub bytes: usize,
    /// The kernel holds their pages until a notification says otherwise.
    pub held: bool,
}

/// Asks the kernel to say whether it copied (in `ioprio`).
const IORING_SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
/// It did (in `res` of a notification).
const IORING_NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

impl SendRing {
    /// A ring for so many sends whose pages are held at a time.
    ///
    /// # Errors
    /// The kernel allows no ring, or has no such sends (before Linux 6.0).
    pub fn new(held_max: u32) -> io::Result<Self> {
        // One submission at a time, and two completions for each.
        let ring = IoUring::builder()
            .setup_cqsize((held_max + 1).next_power_of_two().max(2))
            .build(2)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel has no zero-copy sends on io_uring",
            ));
        }
        Ok(Self {
            ring,
            found: Vec::new(),
            held: 0,
            held_max,
            is_broken: false,
        })
    }

    /// Sends `bytes`, as far as the socket takes them; does not block. `more`: further bytes follow at once. `tag` comes
    /// back with the notification, when the pages are held.
    ///
    /// # Errors
    /// ENOBUFS: too many are held, or another limit is reached; nothing was sent.
    pub fn send(
        &mut self,
        socket: impl AsFd,
        bytes: &[u8],
        more: bool,
        tag: u32,
    ) -> io::Result<RingSent> {
        if self.is_broken || self.held >= self.held_max {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let mut flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        if more {
            flags |= libc::MSG_MORE;
        }
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let fd = types::Fd(socket.as_fd().as_raw_fd());
        let entry = opcode::SendZc::new(fd, bytes.as_ptr(), length)
            .flags(flags)
            .zc_flags(IORING_SEND_ZC_REPORT_USAGE)
            .build()
            .user_data(u64::from(tag));
        // SAFETY: the descriptor and the bytes stay as they are until this call returns, which is not before the result
        // has come: with MSG_DONTWAIT the kernel tries at once and gives up rather than wait. From then on it reads no
        // memory by address; it holds references to the pages that it took. When a submission fails and may
        // lie in the ring still, the ring is never entered again.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))?;
        let (result, held) = self.submit()?;
        self.held += u32::from(held);
        match usize::try_from(result) {
            Ok(bytes) => Ok(RingSent { bytes, held }),
            Err(_) => {
                if held {
                    // Nothing was taken, and yet a notification comes.
                    self.ignore_one(tag);
                }
                Err(io::Error::from_raw_os_error(-result))
            }
        }
    }

    /// Hands the submission in, and waits for its result: the value, and whether a notification follows.
    fn submit(&mut self) -> io::Result<(i32, bool)> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_broken = true;
                    return Err(error);
                }
            }
            let mut result = None;
            for entry in self.ring.completion() {
                match note(&entry) {
                    Some(notification) => self.found.push(notification),
                    None => result = Some((entry.result(), cqueue::more(entry.flags()))),
                }
            }
            if let Some(result) = result {
                return Ok(result);
            }
        }
    }

    /// Waits, within bounds, for the notification of a send that took nothing: its caller has forgotten it.
    #[cold]
    fn ignore_one(&mut self, tag: u32) {
        for _ in 0..100 {
            let completion = self.ring.completion();
            self.found
                .extend(completion.filter_map(|entry| note(&entry)));
            if let Some(at) = self.found.iter().rposition(|found| found.tag == tag) {
                self.found.swap_remove(at);
                self.held -= 1;
                return;
            }
            // An interruption is an attempt like others.
            let _ = self.wait(Duration::from_millis(1));
        }
        self.is_broken = true;
    }

    /// Tells `seen` of each send whose pages the kernel has let go of: its tag, and whether it copied them
    /// nevertheless. Makes no system call. Returns how many there were.
    pub fn notifications(&mut self, mut seen: impl FnMut(u32, bool)) -> u32 {
        let mut count = 0;
        let completion = self.ring.completion();
        let fresh = completion.filter_map(|entry| note(&entry));
        for notification in self.found.drain(..).chain(fresh) {
            seen(notification.tag, notification.copied);
            count += 1;
        }
        self.held -= count.min(self.held);
        count
    }

    /// Waits until a notification is there, or for so long.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        if !self.found.is_empty() {
            return Ok(());
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The notification that a completion is, if it is one.
fn note(entry: &cqueue::Entry) -> Option<Notification> {
    cqueue::notif(entry.flags()).then(|| Notification {
        tag: u32::try_from(entry.user_data()).expect("tags have 32 bits"),
        copied: entry.result().cast_unsigned() & IORING_NOTIF_USAGE_ZC_COPIED != 0,
    })
}

impl AsFd for SendRing {
    /// Readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl fmt::Debug for SendRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRing")
            .field("held", &self.held)
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use super::*;
    use crate::socket::{self, tests::connection};

    /// A ring, unless there is none here.
    fn ring(held_max: u32) -> Option<SendRing> {
        match SendRing::new(held_max) {
            Ok(ring) => Some(ring),
            Err(error) => {
                eprintln!("SKIPPED: no ring for sends: {error}");
                None
            }
        }
    }

    fn receive(socket: &impl AsFd, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut received = 0;
        while received < length {
            match socket::receive(socket, &mut [IoSliceMut::new(&mut bytes[received..])]) {
                Ok(n) => received += n,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        bytes
    }

    fn wait_for(ring: &mut SendRing, count: u32) -> Vec<u32> {
        let mut tags = Vec::new();
        for _ in 0..5000 {
            ring.notifications(|tag, _| tags.push(tag));
            if tags.len() >= count as usize {
                return tags;
            }
            ring.wait(Duration::from_millis(1)).unwrap();
        }
        panic!("{count} notifications were to come, there are {tags:?}");
    }

    #[test]
    fn a_send_has_its_result_at_once_and_its_notification_later() {
        let Some(mut ring) = ring(8) else { return };
        let (client, server) = connection();
        let data = vec![7; 100_000];
        let sent = ring.send(&client, &data, false, 5).unwrap();
        assert!(sent.bytes > 0);
        assert_eq!(receive(&server, sent.bytes), data[..sent.bytes]);
        if sent.held {
            assert_eq!(wait_for(&mut ring, 1), [5]);
        }
    }

    #[test]
    fn a_full_socket_does_not_block() {
        let Some(mut ring) = ring(256) else { return };
        let (client, _server) = connection();
        let data = vec![7; 1 << 20];
        let mut held = 0;
        let error = loop {
            match ring.send(&client, &data, false, 1) {
                Ok(sent) => held += u32::from(sent.held),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        socket::disconnect(&client).unwrap();
        wait_for(&mut ring, held);
    }

    #[test]
    fn no_more_pages_are_held_than_was_agreed() {
        let Some(mut ring) = ring(1) else { return };
        let (client, _server) = connection();
        let data = vec![7; 4096];
        if !ring.send(&client, &data, false, 1).unwrap().held {
            return;
        }
        let error = ring.send(&client, &data, false, 2).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
        wait_for(&mut ring, 1);
        ring.send(&client, &data, false, 3).unwrap();
    }

    #[test]
    fn a_broken_connection_is_an_error() {
        let Some(mut ring) = ring(8) else { return };
        let (client, server) = connection();
        socket::reset_on_close(&server).unwrap();
        drop(server);
        let data = vec![7; 4096];
        assert!((0..3).any(|_| ring.send(&client, &data, false, 1).is_err()));
    }
}
