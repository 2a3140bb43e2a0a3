//! One ping by the protocol's own means: NOP-Out on a queue of iSCSI, Keep Alive on the admin queue of NVMe.

use std::time::{Duration, Instant};

use longshore_bench::bound::Bound;
use longshore_initiator::error::Lost;

use crate::turn::turn;

/// An answer takes no longer, or the peer is lost.
const LIMIT: Duration = Duration::from_secs(10);

/// How long an answer took. `None`: the protocol cannot do that, with such data.
pub(crate) fn ping(bound: &mut Bound, data: &[u8]) -> Result<Option<Duration>, Lost> {
    let of_control = match bound.control() {
        Some(control) if data.is_empty() => control.round_trip()?,
        _ => None,
    };
    if of_control.is_some() {
        return Ok(of_control);
    }
    let [queue, ..] = bound.queues() else {
        return Ok(None);
    };
    let (pongs, received) = (queue.pongs(), queue.counters().bytes_received);
    let began = Instant::now();
    if !queue.ping_with(data) {
        return Ok(None);
    }
    let until = began + LIMIT;
    let mut completions = Vec::new();
    while queue.pongs() == pongs {
        turn(queue, &mut completions, until)?;
        if Instant::now() >= until {
            return Err(Lost::Silent);
        }
    }
    let took = began.elapsed();
    // A peer need not give back all that it was sent.
    let came_back = queue.counters().bytes_received - received;
    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
    Ok((came_back >= length).then_some(took))
}
