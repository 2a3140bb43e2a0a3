//! An estimate, before the copy, of whether it fits on the file system of its destination.
//!
//! A copy allocates blocks for data of the source where the destination has none. Both volumes are
//! asked for their extents; one that cannot tell counts as full of data. Stored zeros are not written
//! to a new file, so the result is an upper bound.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use longshore_volume::{ExtentState, Operation, Reply, Volume};

use super::driver::Driver;
use super::ends::Ends;
use super::error::CopyError;
use super::job::Job;
use super::monitor::Monitor;
use crate::endpoint::Opened;

/// Extents that are asked for. Each costs a round trip where the volume is remote.
const QUESTIONS_MAX: usize = 4096;

/// Signals are looked at so often.
const TURN: Duration = Duration::from_millis(100);

/// Bytes of data in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Data {
    bytes: u64,
    /// Part of it may be holes: the volume does not tell.
    is_guess: bool,
}

/// Refuses a copy for which there is certainly too little space, and warns of one for which there may be.
pub(super) fn check(
    ends: &Ends,
    job: &Job,
    start: u64,
    monitor: &mut Monitor<'_>,
) -> Result<(), CopyError> {
    let Some(free) = ends.destination.free_space() else {
        return Ok(());
    };
    let all = ends.size - start;
    if all <= free {
        return Ok(());
    }
    if let Some(changes) = &job.changes {
        let left = changes.ranges.iter().filter(|range| range.end > start);
        let needed: u64 = left.map(|range| range.end - range.start.max(start)).sum();
        if needed > free {
            warn(&ends.destination.side.name, needed, free, monitor);
        }
        return Ok(());
    }
    let thick = job.settings.thick;
    let mut driver = Driver::new(job.settings.engine, 1)?;
    let mut data_of = |end: &Opened| data(end, start..ends.size, &mut driver, monitor);
    let wanted = if thick {
        Data {
            bytes: all,
            is_guess: false,
        }
    } else {
        data_of(&ends.source)?
    };
    let allocated = if ends.destination.is_blank() {
        0
    } else {
        data_of(&ends.destination)?.bytes
    };
    let needed = wanted.bytes.saturating_sub(allocated);
    if needed <= free {
        return Ok(());
    }
    let destination = &ends.destination.side.name;
    if !wanted.is_guess && !job.settings.force {
        return Err(CopyError::NoRoom {
            destination: destination.clone(),
            needed,
            free,
            thick,
        });
    }
    warn(destination, needed, free, monitor);
    Ok(())
}

fn warn(destination: &str, needed: u64, free: u64, monitor: &mut Monitor<'_>) {
    monitor.warn(&format!(
        "the copy may need up to {needed} bytes, and the file system of {destination} has {free} \
         free. If it becomes full, make room and continue with --resume"
    ));
}

/// Bytes of data in a range of a volume.
fn data(
    end: &Opened,
    range: Range<u64>,
    driver: &mut Driver,
    monitor: &Monitor<'_>,
) -> Result<Data, CopyError> {
    let volume = &end.side.volume;
    let mut bytes = 0;
    let mut at = range.start;
    for _ in 0..QUESTIONS_MAX {
        let left = range.end.saturating_sub(at);
        if left == 0 {
            break;
        }
        let Some((length, state)) = ask(volume, at, left, driver, monitor)? else {
            break;
        };
        let is_all = at == range.start && length >= left;
        if is_all && state == ExtentState::Mapped && !end.tells_holes_truly() {
            // As volumes say that cannot tell.
            break;
        }
        if state == ExtentState::Mapped {
            bytes += length.min(left);
        }
        at = at.saturating_add(length);
    }
    let rest = range.end.saturating_sub(at);
    Ok(Data {
        bytes: bytes + rest,
        is_guess: rest > 0,
    })
}

/// The state at an offset, and for how long it goes on.
fn ask(
    volume: &Arc<dyn Volume>,
    offset: u64,
    length: u64,
    driver: &mut Driver,
    monitor: &Monitor<'_>,
) -> Result<Option<(u64, ExtentState)>, CopyError> {
    let geometry = volume.geometry();
    let operation = Operation::ExtentStatus {
        extent: geometry.extent_around(&(offset..offset + length)),
    };
    driver.start(0, volume, operation, None);
    loop {
        if let Some(finished) = driver.finished() {
            return Ok(match finished.result {
                Ok(Reply::Extent { blocks, state }) if blocks.0 > 0 => {
                    Some((geometry.bytes(blocks), state))
                }
                // If the volume cannot be reached, reading will say so better.
                _ => None,
            });
        }
        if let Some(signal) = monitor.interrupted() {
            return Err(CopyError::Interrupted { signal });
        }
        driver.wait(TURN).map_err(CopyError::Wait)?;
    }
}
