//! Large buffers that the kernel sends from where they are (MSG_ZEROCOPY), instead of copying them.
//!
//! The kernel numbers these sends, and tells on the socket's error queue when the peer has acknowledged one and its pages
//! are free. Until then the buffer stays where it is ([`ZeroCopy::holds`]), also when all its bytes have left, and when
//! the connection is over ([`Remains`]). Its contents do not change meanwhile, so a data digest stays right.
//!
//! Where the peer is on the same machine, the kernel has to copy after all, and the effort is for nothing. `auto`
//! does not try on loopback addresses, and rests for [`REST`] buffers wherever the kernel has said so [`IN_VAIN`] times.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longshore_reactor::{Buffer, socket, zero_copy};

use super::ByReference;

/// Buffers from this length on are sent so. An estimate: pinning and the notification may cost as much as copying half of it.
pub(crate) const LENGTH_MIN: usize = 32 << 10;
/// After so many copies in a row that the kernel made nevertheless, it is not asked for a while.
const IN_VAIN: u32 = 4;
/// For how many large buffers.
const REST: u32 = 4096;
/// The same when it had no memory for notifications, or no more may be locked.
const REST_WITHOUT_MEMORY: u32 = 64;

/// Time for a peer to take what was sent before its connection ended.
const LINGER_MS: u64 = 5_000;
/// Time for the kernel to let go of what is not sent any more.
const LET_GO_MS: u64 = 60_000;

/// What a connection knows of it. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    state: State,
    /// Sends whose pages the kernel may hold, oldest first.
    pins: VecDeque<Pin>,
    /// Number of the next one.
    next: u32,
    /// Copies in a row that were made nevertheless.
    in_vain: u32,
    /// Large buffers that are copied before the next attempt.
    rest: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There was nothing large yet.
    #[default]
    Unknown,
    Off,
    /// The kernel decides.
    Auto,
    /// Whatever the kernel says.
    Always,
}

/// A send.
#[derive(Clone, Copy, Debug)]
struct Pin {
    number: u32,
    /// What was sent of.
    payload: usize,
    gone: bool,
}

/// What notifications said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Sends that are over.
    pub sends: u64,
    /// Those whose bytes the kernel has copied nevertheless.
    pub copied: u64,
    /// System calls that it took to hear of them.
    pub calls: u64,
}

impl ZeroCopy {
    /// Finds out once whether the connection can.
    pub(crate) fn decide(&mut self, policy: ByReference, socket: Option<BorrowedFd<'_>>) {
        if self.state != State::Unknown {
            return;
        }
        let local = || {
            let peer = socket.map(socket::peer_address);
            peer.is_none_or(|peer| peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback()))
        };
        let wanted = match policy {
            ByReference::Off => State::Off,
            ByReference::Auto if local() => State::Off,
            ByReference::Auto => State::Auto,
            ByReference::Always => State::Always,
        };
        let able = || socket.is_some_and(|socket| zero_copy::enable(socket).is_ok());
        self.state = if wanted != State::Off && able() {
            wanted
        } else {
            State::Off
        };
    }

    /// Whether a run of so many bytes of a buffer is to be sent so.
    #[inline]
    pub(crate) fn suits(&self, length: usize) -> bool {
        length >= LENGTH_MIN && matches!(self.state, State::Auto | State::Always) && self.rest == 0
    }

    /// Whether the kernel may hold pages of anything.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Whether the kernel may hold pages of that payload.
    pub(crate) fn holds(&self, payload: usize) -> bool {
        self.pins
            .iter()
            .any(|pin| pin.payload == payload && !pin.gone)
    }

    /// A send has taken bytes of that payload.
    pub(crate) fn sent(&mut self, payload: usize) {
        self.pins.push_back(Pin {
            number: self.next,
            payload,
            gone: false,
        });
        self.next = self.next.wrapping_add(1);
    }

    /// A large buffer has left by being copied.
    pub(crate) fn copied_one(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// A send found no memory (ENOBUFS).
    pub(crate) fn found_no_memory(&mut self) {
        self.rest = REST_WITHOUT_MEMORY;
    }

    /// Takes in what the kernel says. Payload that it holds no more is appended to `free`.
    pub(crate) fn settle(&mut self, socket: BorrowedFd<'_>, free: &mut Vec<usize>) -> Told {
        let mut told = Told::default();
        loop {
            told.calls += 1;
            // An error here is the connection's, and comes again with the next receive or send.
            let Ok(Some(notification)) = zero_copy::next_notification(socket) else {
                break;
            };
            self.take_in(notification, &mut told, free);
        }
        while self.pins.front().is_some_and(|pin| pin.gone) {
            self.pins.pop_front();
        }
        told
    }

    fn take_in(
        &mut self,
        notification: zero_copy::Notification,
        told: &mut Told,
        free: &mut Vec<usize>,
    ) {
        let count = notification.last.wrapping_sub(notification.first);
        for place in 0..self.pins.len() {
            let pin = &mut self.pins[place];
            if pin.gone || pin.number.wrapping_sub(notification.first) > count {
                continue;
            }
            pin.gone = true;
            let payload = pin.payload;
            told.sends += 1;
            told.copied += u64::from(notification.copied);
            if !self.holds(payload) {
                free.push(payload);
            }
        }
        if !notification.copied {
            self.in_vain = 0;
            return;
        }
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN && self.state == State::Auto {
            self.in_vain = 0;
            self.rest = REST;
        }
    }
}

/// Buffers that the kernel still sends from, of a connection that is over.
#[derive(Debug)]
pub(crate) struct Remains {
    zero_copy: ZeroCopy,
    /// Keeps the connection in the kernel, which has been told that no more will be sent.
    socket: OwnedFd,
    buffers: Vec<Buffer>,
    /// When it is broken off, and when nothing is hoped for any more.
    disconnect_at_ms: Option<u64>,
    give_up_at_ms: u64,
}

impl Remains {
    /// Of a connection whose socket is about to be closed. `Err`: the kernel goes on using the memory and there is no
    /// way to learn for how long.
    pub(crate) fn new(
        zero_copy: ZeroCopy,
        socket: BorrowedFd<'_>,
        buffers: Vec<Buffer>,
        now_ms: u64,
    ) -> Result<Self, Vec<Buffer>> {
        let Ok(socket) = socket.try_clone_to_owned() else {
            return Err(buffers);
        };
        // The peer is to see the end although the socket is still open here.
        let _ = socket::shutdown(&socket, std::net::Shutdown::Write);
        Ok(Self {
            zero_copy,
            socket,
            buffers,
            disconnect_at_ms: Some(now_ms + LINGER_MS),
            give_up_at_ms: now_ms + LINGER_MS + LET_GO_MS,
        })
    }

    /// Memory that cannot be used meanwhile.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffers.iter().map(Buffer::capacity).sum()
    }

    /// Leaves the peer no more time.
    pub(crate) fn hurry(&mut self, now_ms: u64) {
        if let Some(at) = &mut self.disconnect_at_ms {
            *at = now_ms;
        }
    }

    /// Looks whether it is over, and ends it when it has lasted too long. Returns the buffers, if they are free.
    pub(crate) fn look(&mut self, now_ms: u64) -> Option<Vec<Buffer>> {
        self.zero_copy.settle(self.socket.as_fd(), &mut Vec::new());
        if !self.zero_copy.holds_any() {
            return Some(mem::take(&mut self.buffers));
        }
        if self.disconnect_at_ms.is_some_and(|at| now_ms >= at) {
            self.disconnect_at_ms = None;
            let _ = socket::disconnect(&self.socket);
        }
        if now_ms >= self.give_up_at_ms {
            let buffers = mem::take(&mut self.buffers);
            leak(buffers);
            return Some(Vec::new());
        }
        None
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        leak(mem::take(&mut self.buffers));
    }
}

/// Gives up memory that the kernel may still send from.
#[cold]
pub(crate) fn leak(buffers: Vec<Buffer>) {
    if !buffers.is_empty() {
        let bytes: usize = buffers.iter().map(|buffer| buffer.capacity()).sum();
        tracing::warn!(bytes, "memory is lost that the network may still send from");
        mem::forget(buffers);
    }
}

/// Whether a send failed for want of memory that may be locked, or for notifications.
pub(crate) fn lacks_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOBUFS)
}

/// Of Linux, on all machines but MIPS and SPARC.
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(first: u32, last: u32, copied: bool) -> zero_copy::Notification {
        zero_copy::Notification {
            first,
            last,
            copied,
        }
    }

    fn told(zero_copy: &mut ZeroCopy, first: u32, last: u32, copied: bool) -> Vec<usize> {
        let mut free = Vec::new();
        let notification = notification(first, last, copied);
        zero_copy.take_in(notification, &mut Told::default(), &mut free);
        free
    }

    #[test]
    fn a_payload_is_free_once_all_its_sends_are_over() {
        let mut zero_copy = ZeroCopy {
            next: u32::MAX,
            ..ZeroCopy::default()
        };
        zero_copy.sent(7);
        zero_copy.sent(7);
        zero_copy.sent(8);
        assert!(told(&mut zero_copy, 0, 0, false).is_empty());
        assert!(zero_copy.holds(7) && zero_copy.holds(8));
        assert_eq!(told(&mut zero_copy, u32::MAX, u32::MAX, false), [7]);
        assert_eq!(told(&mut zero_copy, 1, 1, false), [8]);
        assert!(!zero_copy.holds(7) && !zero_copy.holds(8));
    }

    #[test]
    fn after_copies_in_vain_it_rests_unless_told_to_go_on() {
        for (state, rests) in [(State::Auto, true), (State::Always, false)] {
            let mut zero_copy = ZeroCopy {
                state,
                ..ZeroCopy::default()
            };
            for number in 0..IN_VAIN {
                assert!(zero_copy.suits(LENGTH_MIN));
                zero_copy.sent(0);
                told(&mut zero_copy, number, number, true);
            }
            assert_eq!(zero_copy.suits(LENGTH_MIN), !rests);
            for _ in 0..REST {
                zero_copy.copied_one();
            }
            assert!(zero_copy.suits(LENGTH_MIN));
            assert!(!zero_copy.suits(LENGTH_MIN - 1));
        }
    }

    #[test]
    fn what_has_no_socket_copies() {
        let mut zero_copy = ZeroCopy::default();
        zero_copy.decide(ByReference::Always, None);
        assert!(!zero_copy.suits(1 << 20));
    }

    /// What a connection leaves behind whose peer takes nothing, and the peer. `None`: the kernel cannot.
    fn remains() -> Option<(Remains, usize, std::net::TcpStream)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        if let Err(error) = longshore_reactor::zero_copy::enable(&socket) {
            eprintln!("SKIPPED: no MSG_ZEROCOPY here: {error}");
            return None;
        }
        let (mut zero_copy, mut buffers) = (ZeroCopy::default(), Vec::new());
        // Until neither the peer's receive buffer nor ours takes any more. What is in ours is not copied.
        loop {
            let buffer = Buffer::allocate(1 << 20);
            let sent = longshore_reactor::zero_copy::send(&socket, &buffer, false);
            if sent.is_err() {
                break;
            }
            zero_copy.sent(buffers.len());
            buffers.push(buffer);
        }
        let bytes = buffers.len() << 20;
        let remains = Remains::new(zero_copy, socket.as_fd(), buffers, 0).unwrap();
        Some((remains, bytes, peer))
    }

    /// Looks until the memory is back, which the kernel gives when it gets to it.
    fn wait_for_buffers(remains: &mut Remains, now_ms: u64) -> usize {
        for _ in 0..2000 {
            if let Some(buffers) = remains.look(now_ms) {
                return buffers.iter().map(Buffer::capacity).sum();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("the kernel does not let go");
    }

    #[test]
    fn remains_hold_memory_until_the_peer_has_had_its_time() {
        let Some((mut remains, bytes, _peer)) = remains() else {
            return;
        };
        assert_eq!(remains.held_bytes(), bytes);
        assert!(remains.look(0).is_none());
        assert!(remains.look(LINGER_MS - 1).is_none());
        assert_eq!(remains.held_bytes(), bytes);
        assert_eq!(wait_for_buffers(&mut remains, LINGER_MS), bytes);
        assert_eq!(remains.held_bytes(), 0);
    }

    #[test]
    fn remains_that_are_hurried_give_the_peer_no_time() {
        let Some((mut remains, bytes, _peer)) = remains() else {
            return;
        };
        assert!(remains.look(1).is_none());
        remains.hurry(1);
        assert_eq!(wait_for_buffers(&mut remains, 1), bytes);
    }

    #[test]
    fn a_peer_that_takes_everything_ends_it_at_once() {
        let Some((mut remains, bytes, mut peer)) = remains() else {
            return;
        };
        let reading = std::thread::spawn(move || {
            std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
        });
        assert_eq!(wait_for_buffers(&mut remains, 0), bytes);
        reading.join().unwrap();
    }
}
