//! Driving one queue, without a load.

use std::time::{Duration, Instant};

use longshore_initiator::error::Lost;
use longshore_initiator::operation::Completion;
use longshore_initiator::queue::AnyQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Takes in what has come, once something has, or nothing at the deadline. Sends nothing.
pub(crate) fn receive(
    queue: &mut AnyQueue,
    completions: &mut Vec<Completion>,
    until: Instant,
) -> Result<bool, Lost> {
    if queue.receive(completions)?.bytes > 0 {
        queue.take_notices(&mut Vec::new());
        return Ok(true);
    }
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    wait(queue, PollFlags::IN, left)?;
    let received = queue.receive(completions)?;
    queue.take_notices(&mut Vec::new());
    Ok(received.bytes > 0)
}

/// Sends what is to be sent, and takes in what has come, once either was possible or the deadline is over.
pub(crate) fn turn(
    queue: &mut AnyQueue,
    completions: &mut Vec<Completion>,
    until: Instant,
) -> Result<(), Lost> {
    queue.send()?;
    if queue.has_unsent() {
        let left = until.saturating_duration_since(Instant::now());
        wait(queue, PollFlags::IN | PollFlags::OUT, left)?;
        queue.receive(completions)?;
        return Ok(());
    }
    receive(queue, completions, until).map(drop)
}

fn wait(queue: &AnyQueue, flags: PollFlags, most: Duration) -> Result<(), Lost> {
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    let socket = queue.socket();
    match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Lost::from_io(&errno.into())),
    }
}
