//! Attaching a logical unit over one portal: a session for each queue. The first session identifies the unit.

use super::control::{Control, negotiated};
use super::identify::{Asking, identify, wire_lun};
use super::identity::{fresh_isid, later_isid};
use super::machine::{Dialect, Machine};
use super::session::Session;
use super::target_login::log_in_to_target;
use crate::attachment::{self, Attachment};
use crate::error::Error;
use crate::options::Options;
use crate::queue::{AnyQueue, Queue};
use crate::url::IscsiUrl;

/// Attaches the unit over the portal with this number in its URL. Blocks, within the time-outs.
///
/// The sessions' ISIDs count from that of the options, or from a fresh one: by queue, and from portal to
/// portal, since a target may take the same ISID at another portal for the same session. A target that
/// refuses sessions beyond the first gets by with fewer queues.
///
/// # Errors
/// Says where, why, and what to do next.
///
/// # Panics
/// When there is no such portal.
pub fn attach_path(url: &IscsiUrl, portal: usize, options: &Options) -> Result<Attachment, Error> {
    let queues = options.queues.total().max(1);
    let first = options.iscsi.isid.unwrap_or_else(fresh_isid);
    let log_in = |queue| {
        let isid = later_isid(first, portal * queues + queue);
        log_in_to_target(url, portal, isid, options.depth.max(1), options)
    };
    let mut session = log_in(0)?;
    let unit = identify(&mut session, url.lun)?;
    let (address, negotiated) = (session.address(), negotiated(session.parameters()));
    let lun = wire_lun(url.lun);
    let mut ready = Vec::with_capacity(queues);
    ready.push(queue(session, url, unit.dialect, options)?);
    for number in 1..queues {
        let mut session = match log_in(number) {
            Ok(session) => session,
            // The target takes no more sessions: those there are will do.
            Err(Error::Refused { reason, .. }) => {
                let sessions = ready.len();
                tracing::warn!(%reason, sessions, wanted = queues, "fewer sessions than requested");
                break;
            }
            Err(error) => return Err(error),
        };
        // Each session begins with unit attentions of its own.
        Asking::new(&mut session, lun).meet_unit_attentions()?;
        ready.push(queue(session, url, unit.dialect, options)?);
    }
    let granted = u16::try_from(ready.len()).unwrap_or(u16::MAX);
    let control = Control::new(url, portal, options, negotiated.clone(), unit.access);
    Ok(Attachment {
        info: unit.info,
        negotiated,
        portal: address,
        queues: ready,
        maps: options.queues.within(granted),
        control: attachment::Control::Iscsi(control),
    })
}

/// A session becomes a queue.
fn queue(
    session: Session,
    url: &IscsiUrl,
    dialect: Dialect,
    options: &Options,
) -> Result<AnyQueue, Error> {
    let (stream, connection, transmit) = session.into_parts();
    let machine = Machine::new(connection, wire_lun(url.lun), dialect);
    let queue = Queue::start(stream, machine, transmit, &[], &options.paths);
    queue.map(AnyQueue::Iscsi).map_err(|source| Error::System {
        what: "set the options of a socket",
        source: source.into(),
    })
}
