//! Non-blocking TCP sockets: listening, accepting, moving bytes, options.
//!
//! Everything here is one system call (or a few, for set-up) on a borrowed descriptor and holds no
//! state. Each socket made here is non-blocking and close-on-exec.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

mod tcp_info;

pub use tcp_info::{TcpInfo, tcp_info};

/// Most buffers that one [`receive`] or [`send`] takes (`UIO_MAXIOV`).
pub const IO_SLICES_MAX: usize = 1024;

/// How a listener is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that wait for `accept`.
    pub backlog: i32,
    /// Lets several listeners share the address, with connections spread over them (SO_REUSEPORT).
    pub share_port: bool,
    /// An IPv6 wildcard listener takes IPv6 connections only.
    pub v6_only: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            share_port: false,
            v6_only: true,
        }
    }
}

/// Opens a listener. Port 0 picks a free one: ask [`local_address`].
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if options.share_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.v6_only)?;
    }
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

/// Starts to connect. The socket becomes writable when it is connected or has failed;
/// [`take_error`] tells which.
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Takes one waiting connection; [`io::ErrorKind::WouldBlock`] when there is none.
///
/// Connections that broke while they waited are passed over. Errors of the system (EMFILE, ENFILE,
/// ENOBUFS, ENOMEM) leave the connection waiting, and no event reminds of it: try again later.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match rustix::net::acceptfrom_with(&listener, flags) {
            Ok(accepted) => accepted,
            // accept(2): "treat them like EAGAIN by retrying".
            Err(
                rustix::io::Errno::INTR
                | rustix::io::Errno::CONNABORTED
                | rustix::io::Errno::NETDOWN
                | rustix::io::Errno::PROTO
                | rustix::io::Errno::NOPROTOOPT
                | rustix::io::Errno::HOSTDOWN
                | rustix::io::Errno::NONET
                | rustix::io::Errno::HOSTUNREACH
                | rustix::io::Errno::OPNOTSUPP
                | rustix::io::Errno::NETUNREACH,
            ) => continue,
            Err(error) => return Err(error.into()),
        };
        match peer.map(SocketAddr::try_from) {
            Some(Ok(peer)) => return Ok((socket, peer)),
            // Not an internet address: not a peer of ours.
            _ => drop(socket),
        }
    }
}

/// Receives into `buffers`, in order. 0: the peer sends no more. Fewer bytes than there was room
/// for: nothing else is there now.
pub fn receive(socket: impl AsFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let received = if let [buffer] = buffers {
        retry(|| rustix::net::recv(&socket, &mut **buffer, RecvFlags::DONTWAIT)).map(|(_, n)| n)
    } else {
        retry(|| {
            let mut control = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(&socket, buffers, &mut control, RecvFlags::DONTWAIT)
        })
        .map(|message| message.bytes)
    };
    Ok(received?)
}

/// Sends `buffers`, in order, as far as the socket takes them. `more`: further bytes follow at once,
/// so a partial segment may wait for them (MSG_MORE). A broken connection is an error, not a signal.
pub fn send(socket: impl AsFd, buffers: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    flags.set(SendFlags::MORE, more);
    let sent = if let [buffer] = buffers {
        retry(|| rustix::net::send(&socket, buffer, flags))
    } else {
        retry(|| rustix::net::sendmsg(&socket, buffers, &mut SendAncillaryBuffer::default(), flags))
    };
    Ok(sent?)
}

pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Ends one or both directions. A peer that has gone already is no error.
pub fn shutdown(socket: impl AsFd, how: Shutdown) -> io::Result<()> {
    match SockRef::from(&socket).shutdown(how) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        other => other,
    }
}

/// Closes with a reset instead of a FIN once the descriptor is closed, dropping what is unsent.
pub fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// The address a socket is bound to.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = SockRef::from(&socket).local_addr()?;
    address
        .as_socket()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// The pending error of a socket (SO_ERROR), cleared by this.
pub fn take_error(socket: impl AsFd) -> io::Result<Option<io::Error>> {
    SockRef::from(&socket).take_error()
}

/// The core whose softirq last received something for this socket (SO_INCOMING_CPU). `None` when the
/// kernel does not know.
#[must_use]
pub fn incoming_core(socket: impl AsFd) -> Option<usize> {
    rustix::net::sockopt::socket_incoming_cpu(&socket)
        .ok()
        .and_then(|core| usize::try_from(core).ok())
}

/// Which queue of a network card the socket last received from (SO_INCOMING_NAPI_ID). `None` when the
/// kernel does not know: on loopback there is none.
#[must_use]
pub fn incoming_napi_id(socket: impl AsFd) -> Option<u32> {
    let id = option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID);
    id.ok()
        .and_then(|id| u32::try_from(id).ok())
        .filter(|id| *id > 0)
}

/// Sends small segments at once (TCP_NODELAY).
pub fn set_nodelay(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_nodelay(&socket, on)?)
}

/// Has the kernel find peers that are gone: probes after `idle` without traffic every `interval`,
/// and fails the connection after `count` unanswered ones.
pub fn set_keepalive(
    socket: impl AsFd,
    idle: Duration,
    interval: Duration,
    count: u32,
) -> io::Result<()> {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(count);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)
}

/// Has receives that find nothing poll the network card for so many microseconds (SO_BUSY_POLL). `prefer`: polling takes
/// the place of interrupts while it goes on (SO_PREFER_BUSY_POLL). More than net.core.busy_read, and the latter, take
/// CAP_NET_ADMIN.
pub fn set_busy_poll(socket: impl AsFd, microseconds: u32, prefer: bool) -> io::Result<()> {
    let socket = socket.as_fd();
    let microseconds = i32::try_from(microseconds).unwrap_or(i32::MAX);
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
    if prefer {
        set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    }
    Ok(())
}

/// Sets the priority of what is sent (SO_PRIORITY), which queueing disciplines and network cards go by. Beyond 6 it takes
/// CAP_NET_ADMIN.
pub fn set_priority(socket: impl AsFd, priority: u32) -> io::Result<()> {
    let priority = i32::try_from(priority).map_err(|_| io::ErrorKind::InvalidInput)?;
    set_option(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_PRIORITY,
        priority,
    )
}

/// Has the kernel give a connection a receive buffer for a window of so many bytes, or as much of that as
/// net.ipv4.tcp_rmem allows, and still adapt it from there on. (What SO_RCVBUF sets it adapts no more.)
pub fn raise_receive_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    // Linux makes room for as much as a receive is to wait for, and leaves it when that is taken back.
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)
}

/// Ends the connection at once and throws away what it had to send, but keeps the socket: zero-copy sends report that
/// their pages are free. No connection is no error.
pub fn disconnect(socket: impl AsFd) -> io::Result<()> {
    match rustix::net::connect_unspec(&socket) {
        Err(error) if error != rustix::io::Errno::NOTCONN => Err(error.into()),
        _ => Ok(()),
    }
}

/// Bytes that were sent and that the peer has not acknowledged, whether they have left or not (SIOCOUTQ).
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes = 0_i32;
    // SAFETY: the kernel writes an `int` to where the argument points, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Sets an option whose value is an `int`.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the value is an `int` that outlives the call, whose size is given; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            INT_BYTES,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An option whose value is an `int`.
fn option(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut length = INT_BYTES;
    // SAFETY: the kernel writes up to `length` bytes to an `int` of that size, and to `length`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

/// As setsockopt takes it.
#[expect(clippy::cast_possible_truncation, reason = "4 bytes")]
const INT_BYTES: libc::socklen_t = size_of::<i32>() as libc::socklen_t;

/// Fails the connection when sent bytes stay unacknowledged for this long (TCP_USER_TIMEOUT).
pub fn set_user_timeout(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_user_timeout(Some(timeout))
}

/// Sets the send and receive buffer sizes; `None` leaves one to the kernel, which adapts it.
pub fn set_buffer_sizes(
    socket: impl AsFd,
    send_bytes: Option<usize>,
    receive_bytes: Option<usize>,
) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    send_bytes.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))?;
    receive_bytes.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn what_a_peer_does_not_receive_stays_unacknowledged() {
        let (ours, peer) = connection();
        assert_eq!(unacknowledged_bytes(&ours).unwrap(), 0);
        let bytes = vec![0; 1 << 20];
        let mut sent = 0;
        // Until neither end has room for more: the last window stays open for no byte.
        while let Ok(n) = send(&ours, &[IoSlice::new(&bytes)], false) {
            sent += n;
        }
        assert!((1..=sent).contains(&unacknowledged_bytes(&ours).unwrap()));
        let mut into = vec![0; 1 << 20];
        while sent > 0 {
            if let Ok(n) = receive(&peer, &mut [IoSliceMut::new(&mut into)]) {
                sent -= n;
            }
        }
        while unacknowledged_bytes(&ours).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    /// Two ends of a connection.
    pub(crate) fn connection() -> (OwnedFd, OwnedFd) {
        let listener = listen(loopback(), ListenOptions::default()).unwrap();
        let client = connect(local_address(&listener).unwrap()).unwrap();
        loop {
            match accept(&listener) {
                Ok((server, _)) => return (client, server),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    #[test]
    fn a_raised_receive_window_is_one_that_the_kernel_still_adapts() {
        const WINDOW: u32 = 512 << 10;
        let (client, server) = connection();
        let room = |socket: &OwnedFd| SockRef::from(socket).recv_buffer_size().unwrap();
        let before = room(&server);
        raise_receive_window(&server, WINDOW).unwrap();
        assert!(before < room(&server) && WINDOW as usize <= room(&server));
        // A single byte still wakes whoever waits, and is received.
        let low = option(server.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap();
        assert_eq!(low, 1);
        // What SO_RCVBUF has set would not grow by asking for more.
        raise_receive_window(&server, 2 * WINDOW).unwrap();
        assert!(room(&server) >= 2 * WINDOW as usize);
        drop(client);
    }

    #[test]
    fn port_in_use_is_an_error_unless_shared() {
        let shared = ListenOptions {
            share_port: true,
            ..Default::default()
        };
        let first = listen(loopback(), shared).unwrap();
        let address = local_address(&first).unwrap();
        let error = listen(address, ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        listen(address, shared).unwrap();
    }

    #[test]
    fn options_reach_the_kernel() {
        let (client, _server) = connection();
        let socket = SockRef::from(&client);
        set_nodelay(&client, true).unwrap();
        assert!(socket.tcp_nodelay().unwrap());
        set_user_timeout(&client, Duration::from_millis(1500)).unwrap();
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(Duration::from_millis(1500))
        );
        set_keepalive(&client, Duration::from_secs(7), Duration::from_secs(2), 3).unwrap();
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(7));
        let before = socket.recv_buffer_size().unwrap();
        set_buffer_sizes(&client, Some(100_000), None).unwrap();
        assert!(socket.send_buffer_size().unwrap() >= 100_000);
        assert_eq!(socket.recv_buffer_size().unwrap(), before);
    }

    #[test]
    fn priority_and_busy_polling_reach_the_kernel() {
        let (client, _server) = connection();
        set_priority(&client, 5).unwrap();
        match set_busy_poll(&client, 50, true) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}"),
        }
        assert!(set_priority(&client, u32::MAX).is_err());
    }

    #[test]
    fn a_disconnected_socket_is_open_and_its_peer_is_reset() {
        let (client, server) = connection();
        disconnect(&client).unwrap();
        disconnect(&client).unwrap();
        assert!(SockRef::from(&client).peer_addr().is_err());
        let end = std::time::Instant::now() + Duration::from_secs(5);
        loop {
            match receive(&server, &mut [IoSliceMut::new(&mut [0; 8])]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(std::time::Instant::now() < end, "no reset came");
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    break;
                }
                Ok(n) => panic!("{n} bytes came"),
            }
        }
    }

    #[test]
    fn incoming_core_of_a_connection_is_a_core() {
        let (client, server) = connection();
        send(&client, &[IoSlice::new(b"x")], false).unwrap();
        let core = incoming_core(&server).expect("loopback tells");
        assert!(core < rustix::thread::CpuSet::MAX_CPU);
    }

    #[test]
    fn v6_wildcard_listener_leaves_v4_alone() {
        let Ok(v6) = listen("[::]:0".parse().unwrap(), ListenOptions::default()) else {
            eprintln!("SKIPPED: no IPv6 here");
            return;
        };
        let port = local_address(&v6).unwrap().port();
        listen(
            SocketAddr::new("127.0.0.1".parse().unwrap(), port),
            ListenOptions::default(),
        )
        .unwrap();
    }

    #[test]
    fn shutdown_of_a_broken_connection_is_no_error() {
        let (client, server) = connection();
        reset_on_close(&client).unwrap();
        drop(client);
        shutdown(&server, Shutdown::Both).unwrap();
        shutdown(&server, Shutdown::Both).unwrap();
    }
}
