//! Facts of the kernel about a TCP connection (TCP_INFO).
//!
//! The kernel's `struct tcp_info` grows at its end, and a kernel writes as much of it as it knows. So it is read as
//! bytes, and what an older kernel does not write is `None`. Numbers are in the machine's byte order.
//!
//! ```text
//!   7  bit 0: the delivery rate is that of the application
//!  16  snd_mss        20  rcv_mss       60  pmtu
//!  68  rtt            72  rttvar        80  snd_cwnd     100  total_retrans
//! 148  min_rtt       160  delivery_rate (8 bytes)
//! 168  busy_time     176  rwnd_limited  184  sndbuf_limited (8 bytes each)
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Room for more than Linux 6.18 writes.
const BYTES: usize = 256;
/// Up to and including `total_retrans`, which every kernel since 2.6.9 writes.
const BYTES_MIN: usize = 104;

/// What TCP_INFO says. Times are in microseconds, and since the connection began where they add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time in microseconds (`tcpi_rtt`).
    pub rtt_us: u32,
    /// Mean deviation of it in microseconds (`tcpi_rttvar`).
    pub rtt_variance_us: u32,
    /// The shortest round trip of the last minutes.
    pub min_rtt_us: Option<u32>,
    /// Bytes of payload in a segment that is sent.
    pub send_segment_bytes: u32,
    /// The same of segments that come.
    pub receive_segment_bytes: u32,
    /// MTU of the path.
    pub path_mtu: u32,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Bytes per second that were delivered, as last measured by the kernel.
    pub delivery_rate: Option<u64>,
    /// That rate is the application's: it had nothing more to send.
    pub is_app_limited: Option<bool>,
    /// Time with something to send.
    pub busy_us: Option<u64>,
    /// The part of it in which the peer's receive window held back.
    pub receive_window_limited_us: Option<u64>,
    /// The part of it in which the send buffer held back.
    pub send_buffer_limited_us: Option<u64>,
}

/// Asks the kernel about a connection.
///
/// # Errors
/// It is no TCP socket, or the kernel tells less than any that io_uring or epoll needs.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; BYTES];
    #[expect(clippy::cast_possible_truncation, reason = "256")]
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: the kernel writes up to `length` bytes to the array, which has as many, and to `length`; both outlive the
    // call, and nobody else has them.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = usize::try_from(length).unwrap_or(BYTES).min(BYTES);
    parse(&bytes[..length]).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn parse(bytes: &[u8]) -> Option<TcpInfo> {
    let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    if bytes.len() < BYTES_MIN {
        return None;
    }
    // Until something has been measured the kernel says that it is the largest number.
    let min_rtt_us = word(148).filter(|rtt| *rtt != u32::MAX);
    let delivery_rate = long(160);
    Some(TcpInfo {
        rtt_us: word(68)?,
        rtt_variance_us: word(72)?,
        min_rtt_us,
        send_segment_bytes: word(16)?,
        receive_segment_bytes: word(20)?,
        path_mtu: word(60)?,
        congestion_window: word(80)?,
        retransmits: word(100)?,
        delivery_rate,
        is_app_limited: delivery_rate.map(|_| bytes[7] & 1 != 0),
        busy_us: long(168),
        receive_window_limited_us: long(176),
        send_buffer_limited_us: long(184),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::tests::connection;
    use crate::socket::{receive, send};
    use std::io::{IoSlice, IoSliceMut};

    #[test]
    fn each_field_is_at_its_place() {
        let mut bytes = [0_u8; 200];
        let words = [
            (16, 1448_u32),
            (20, 536),
            (60, 1500),
            (68, 250),
            (72, 20),
            (80, 10),
            (100, 3),
            (148, 200),
        ];
        for (at, value) in words {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        for (at, value) in [(160, 125_000_000_u64), (168, 9_000), (176, 400), (184, 50)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[7] = 0b0000_0111;
        let info = parse(&bytes).unwrap();
        let expected = TcpInfo {
            rtt_us: 250,
            rtt_variance_us: 20,
            min_rtt_us: Some(200),
            send_segment_bytes: 1448,
            receive_segment_bytes: 536,
            path_mtu: 1500,
            congestion_window: 10,
            retransmits: 3,
            delivery_rate: Some(125_000_000),
            is_app_limited: Some(true),
            busy_us: Some(9_000),
            receive_window_limited_us: Some(400),
            send_buffer_limited_us: Some(50),
        };
        assert_eq!(info, expected);
        bytes[7] = 0b1111_1110;
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        let info = parse(&bytes).unwrap();
        assert_eq!((info.is_app_limited, info.min_rtt_us), (Some(false), None));
    }

    #[test]
    fn what_an_older_kernel_does_not_tell_is_unknown() {
        let bytes = [1_u8; 104];
        let info = parse(&bytes).unwrap();
        assert_eq!((info.min_rtt_us, info.delivery_rate), (None, None));
        assert_eq!((info.is_app_limited, info.busy_us), (None, None));
        assert_eq!(parse(&bytes[..103]), None);
    }

    #[test]
    fn the_kernel_tells_of_a_connection_that_has_moved_bytes() {
        let (client, server) = connection();
        let mut into = [0; 64];
        for _ in 0..10 {
            send(&client, &[IoSlice::new(&[7; 64])], false).unwrap();
            while receive(&server, &mut [IoSliceMut::new(&mut into)]).is_err() {}
        }
        let info = tcp_info(&client).unwrap();
        assert!(info.send_segment_bytes >= 536, "{info:?}");
        assert!(info.path_mtu > info.send_segment_bytes, "{info:?}");
        assert!(info.congestion_window > 0);
        assert!(info.busy_us.is_some(), "this kernel tells");
    }

    #[test]
    fn other_descriptors_have_none() {
        let file = tempfile::tempfile().unwrap();
        assert!(tcp_info(&file).is_err());
    }
}
