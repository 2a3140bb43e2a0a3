//! What errors of the operating system say.

use std::io;

use rustix::io::Errno;

pub(super) fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

pub(super) fn is_no_space(error: &io::Error) -> bool {
    is_errno(error, Errno::NOSPC) || is_errno(error, Errno::DQUOT)
}

pub(super) fn is_interruption(error: &io::Error) -> bool {
    is_errno(error, Errno::INTR)
}

/// File systems and devices say it in different ways.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::NODEV]
        .into_iter()
        .any(|errno| is_errno(error, errno))
}
