//! An epoll instance that polls network cards before it sleeps (Linux 6.9, `EPIOCSPARAMS`).
//!
//! epoll_wait(2) polls the queue that the sockets of the instance last received from, for as long as it is told to and would
//! sleep otherwise. Looks that do not wait, and short exact sleeps, for which ppoll(2) stands in, do not poll.

use std::io;
use std::os::fd::BorrowedFd;

use libc::epoll_params;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const GROUP: u8 = 0x8A;
const SET_PARAMETERS: Opcode = opcode::write::<epoll_params>(GROUP, 1);

/// Has `epoll` poll network cards for so many microseconds. `prefer`: polling takes the place of interrupts
/// while it goes on.
///
/// # Errors
/// The operating system's: ENOTTY before Linux 6.9, EOPNOTSUPP without CONFIG_NET_RX_BUSY_POLL, EINVAL with more than
/// 2^31 - 1.
pub(super) fn poll(epoll: BorrowedFd<'_>, microseconds: u32, prefer: bool) -> io::Result<()> {
    let parameters = epoll_params {
        busy_poll_usecs: microseconds,
        // The kernel's own, as for rings and sockets. More than 64 packets at a time take CAP_NET_ADMIN.
        busy_poll_budget: 0,
        prefer_busy_poll: u8::from(prefer),
        __pad: 0,
    };
    // SAFETY: the request reads one `epoll_params`, which is what the setter holds, before the call returns. A descriptor
    // that is no epoll instance refuses its number.
    unsafe { ioctl(epoll, Setter::<SET_PARAMETERS, _>::new(parameters))? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::epoll::{self, CreateFlags};
    use rustix::io::Errno;
    use rustix::ioctl::Getter;

    use super::*;

    const PARAMETERS: Opcode = opcode::read::<epoll_params>(GROUP, 2);

    fn parameters(epoll: BorrowedFd<'_>) -> epoll_params {
        // SAFETY: the request writes one `epoll_params`, for which the getter has the place.
        unsafe { ioctl(epoll, Getter::<PARAMETERS, epoll_params>::new()) }.unwrap()
    }

    /// Whether a kernel without NAPI busy poll of epoll says that. Any other error is one.
    fn is_missing(error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        let missing = matches!(errno, Some(Errno::NOTTY | Errno::OPNOTSUPP));
        if missing {
            eprintln!("SKIPPED: no NAPI busy poll of epoll in this kernel: {error}");
        }
        missing
    }

    #[test]
    fn requests_have_the_numbers_of_the_kernels_header() {
        assert_eq!(SET_PARAMETERS, 0x4008_8a01);
        assert_eq!(PARAMETERS, 0x8008_8a02);
    }

    #[test]
    fn what_is_asked_for_is_what_the_kernel_has() {
        let instance = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let epoll = instance.as_fd();
        for (microseconds, prefer) in [(50, true), (20, false), (0, false)] {
            match poll(epoll, microseconds, prefer) {
                Ok(()) => {
                    let had = parameters(epoll);
                    assert_eq!(had.busy_poll_usecs, microseconds);
                    assert_eq!(had.prefer_busy_poll, u8::from(prefer));
                    assert_eq!(had.busy_poll_budget, 0);
                }
                Err(error) if is_missing(&error) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_kernel_that_refuses_leaves_things_as_they_were() {
        let instance = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let epoll = instance.as_fd();
        let error = poll(epoll, u32::MAX, true).unwrap_err();
        if is_missing(&error) {
            return;
        }
        assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL));
        assert_eq!(parameters(epoll).busy_poll_usecs, 0);
    }

    #[test]
    fn what_is_no_epoll_instance_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(poll(file.as_fd(), 50, false).is_err());
    }
}
