//! Why a copy makes no progress.

use std::time::Duration;

use longshore_initiator::volume::Outage;

use super::monitor::{End, Trouble};
use crate::side::Side;

/// Silence of a server after which the user is told.
const NO_ANSWER: Duration = Duration::from_secs(3);

/// Why a copy makes no progress: one end is away, or a server has not answered for `waiting`.
pub(super) fn trouble(source: &Side, destination: &Side, waiting: Duration) -> Option<Trouble> {
    let lost = [(End::Source, source), (End::Destination, destination)]
        .into_iter()
        .find_map(|(end, side)| Some((end, side.outage()?)));
    if let Some((end, Outage { gives_up_in, .. })) = lost {
        return Some(Trouble::ConnectionLost { end, gives_up_in });
    }
    let is_remote = source.link.is_some() || destination.link.is_some();
    (is_remote && waiting >= NO_ANSWER).then_some(Trouble::NoAnswer { lasted: waiting })
}
