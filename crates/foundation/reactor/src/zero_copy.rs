//! Sends of a TCP socket that take pages rather than copy bytes (MSG_ZEROCOPY), and their notifications.
//!
//! After [`enable`], each [`send`] that takes at least a byte has a number: 0, 1, 2 and so on, wrapping around at 32 bits.
//! The kernel holds the pages until all their bytes are acknowledged, and then says so on the socket's error queue
//! ([`next_notification`]): POLLERR, which is always waited for, reports that there is something. Until then the bytes
//! must stay as they are: what the peer gets (again) is what they are at that moment.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::net::SendFlags;

use crate::socket;

/// Sends whose pages the kernel holds no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The first of them.
    pub first: u32,
    /// The last of them; it may be less than the first, where numbers wrap around.
    pub last: u32,
    /// The kernel copied the bytes nevertheless (SO_EE_CODE_ZEROCOPY_COPIED).
    pub copied: bool,
}

const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Lets the socket do it (SO_ZEROCOPY).
pub fn enable(socket: impl AsFd) -> io::Result<()> {
    socket::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// Sends `bytes`, as far as the socket takes them. `more`: further bytes follow at once.
///
/// ENOBUFS: a limit on locked memory (RLIMIT_MEMLOCK) or on notifications (net.core.optmem_max) is reached; nothing was
/// sent.
pub fn send(socket: impl AsFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | MSG_ZEROCOPY;
    flags.set(SendFlags::MORE, more);
    Ok(socket::retry(|| rustix::net::send(&socket, bytes, flags))?)
}

/// rustix has no name for it.
const MSG_ZEROCOPY: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());

/// Takes one notification off the socket's error queue; `None` when there is none.
pub fn next_notification(socket: impl AsFd) -> io::Result<Option<Notification>> {
    loop {
        let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES as usize]);
        // SAFETY: `msghdr` is a C structure of integers and pointers, for which zeros are values: no
        // name, no buffers, no control messages.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES.into();
        // SAFETY: `message` outlives the call and asks for no data and no name. Its control buffer is `control`, which
        // is ours, has the size that is given, and outlives the call too.
        let received = unsafe {
            libc::recvmsg(
                socket.as_fd().as_raw_fd(),
                &raw mut message,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::Interrupted => continue,
                _ => Err(error),
            };
        }
        // Other things in the queue (ICMP errors, time stamps) are nothing that we asked for.
        if let Some(notification) = find(&message) {
            return Ok(Some(notification));
        }
    }
}

/// Room for a `sock_extended_err` with an address behind it, and more than that.
const CONTROL_BYTES: u16 = 256;

/// As aligned as control messages have to be.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES as usize]);

const _: () = assert!(mem::align_of::<Control>() >= mem::align_of::<libc::cmsghdr>());

/// The notification among the control messages that the kernel has written.
fn find(message: &libc::msghdr) -> Option<Notification> {
    // SAFETY: the kernel has filled in `message`: its control buffer holds `msg_controllen` bytes of control messages, and
    // is borrowed along with it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return pointers to headers that lie within the buffer as a whole.
        let (level, kind, length) = unsafe {
            (
                (*header).cmsg_level,
                (*header).cmsg_type,
                (*header).cmsg_len,
            )
        };
        let is_error = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
        // SAFETY: CMSG_LEN and CMSG_DATA only calculate, the latter from a pointer into the buffer.
        let (needed, data) = unsafe {
            (
                libc::CMSG_LEN(EXTENDED_ERROR_BYTES),
                libc::CMSG_DATA(header),
            )
        };
        if is_error && is_at_least(length, needed) {
            // SAFETY: the message's data begins at `data` and holds a whole `sock_extended_err`, of integers only, which
            // the kernel has written; it is read without a demand on its alignment.
            let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(data.cast()) };
            if error.ee_errno == 0 && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
                return Some(Notification {
                    first: error.ee_info,
                    last: error.ee_data,
                    copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
                });
            }
        }
        // SAFETY: `header` is one of this message's, whose buffer is unchanged.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// As CMSG_LEN takes it.
#[expect(clippy::cast_possible_truncation, reason = "16 bytes")]
const EXTENDED_ERROR_BYTES: u32 = mem::size_of::<libc::sock_extended_err>() as u32;

/// Compares a length of the C library, whose type differs between libraries.
fn is_at_least<N: PartialOrd + TryFrom<u32>>(length: N, needed: u32) -> bool {
    N::try_from(needed).is_ok_and(|needed| length >= needed)
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::socket::tests::connection;

    fn wait_for_notification(socket: &OwnedFd) -> Notification {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(notification) = next_notification(socket).unwrap() {
                return notification;
            }
            assert!(Instant::now() < end, "no notification came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn sends_are_numbered_and_told_of_once_the_peer_has_them() {
        let (client, server) = connection();
        enable(&client).unwrap();
        assert_eq!(next_notification(&client).unwrap(), None);
        let data = [7; 10_000];
        assert_eq!(send(&client, &data, false).unwrap(), 10_000);
        assert_eq!(send(&client, &data, false).unwrap(), 10_000);
        let mut received = 0;
        let mut buffer = [0; 20_000];
        while received < 20_000 {
            match socket::receive(&server, &mut [IoSliceMut::new(&mut buffer[received..])]) {
                Ok(n) => received += n,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(buffer.iter().all(|byte| *byte == 7));
        let first = wait_for_notification(&client);
        assert_eq!(first.first, 0);
        if first.last == 0 {
            let second = wait_for_notification(&client);
            assert_eq!((second.first, second.last), (1, 1));
        }
        // Over loopback the receiver's queue cannot keep the sender's pages.
        assert!(first.copied);
        assert_eq!(next_notification(&client).unwrap(), None);
    }

    #[test]
    fn a_disconnected_socket_lets_go_of_all_pages() {
        let (client, _server) = connection();
        enable(&client).unwrap();
        let data = vec![7; 1 << 20];
        let mut sends = 0;
        while send(&client, &data, false).is_ok() {
            sends += 1;
        }
        assert!(sends > 0);
        socket::disconnect(&client).unwrap();
        let mut told = 0;
        while told < sends {
            let notification = wait_for_notification(&client);
            told += notification.last - notification.first + 1;
        }
    }
}
