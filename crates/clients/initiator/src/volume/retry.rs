//! Failed operations, and remedies: the same again, later, over another path, or none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lock::lock;
use super::mail::Mail;
use super::queue_owner::QueueOwner;
use super::request::{Delayed, Request};
use super::shared::{Shared, millis};
use super::state::count;
use crate::error::{Failure, Retry};

/// Repetitions in a row that are not delayed; a peer that always says "now" is given time nevertheless.
const HASTY_RETRIES: u8 = 8;

/// The delay after those.
const HASTY_DELAY: Duration = Duration::from_millis(100);

/// Where no path can do it, a path's state may be about to change.
const NO_PATH_DELAY: Duration = Duration::from_millis(250);

impl Shared {
    /// An operation failed on a path. It comes back if that is final.
    pub(super) fn judge(
        self: &Arc<Self>,
        path: usize,
        mut request: Request,
        failure: Failure,
    ) -> Option<(Request, Failure)> {
        let operation = request.operation();
        if !operation.is_idempotent() && may_have_run(&failure) {
            let failure = if let Failure::ConnectionLost(lost) = failure {
                count(&self.counters.unknown_outcomes);
                Failure::OutcomeUnknown(lost)
            } else {
                failure
            };
            return Some((request, failure));
        }
        let delay = match failure.retry() {
            Retry::Never => return Some((request, failure)),
            Retry::Now if request.hasty_retries < HASTY_RETRIES => {
                request.hasty_retries += 1;
                None
            }
            Retry::Now => Some(HASTY_DELAY),
            Retry::After(delay) => Some(delay),
            Retry::OtherPath => {
                request.avoid |= 1 << path;
                self.post(0, Mail::Suspect { path });
                if self.usable.load(Ordering::SeqCst) & !request.avoid == 0 {
                    request.avoid = 0;
                    Some(NO_PATH_DELAY)
                } else {
                    None
                }
            }
        };
        count(&self.counters.retries);
        let Some(delay) = delay else {
            self.route(request);
            return None;
        };
        let now_ms = self.now_ms();
        let since = *request.retried_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since) > millis(self.settings.volume.retry_for) {
            return Some((request, failure));
        }
        lock(&self.retries).push(Delayed {
            due_ms: now_ms + millis(delay),
            request,
        });
        self.post(0, Mail::Recheck);
        None
    }

    /// Submits what was to wait until now. When the next is due.
    pub(super) fn submit_due(self: &Arc<Self>, now_ms: u64) -> Option<u64> {
        loop {
            let mut retries = lock(&self.retries);
            let due_ms = retries.peek()?.due_ms;
            if due_ms > now_ms {
                return Some(due_ms);
            }
            let delayed = retries.pop();
            drop(retries);
            if let Some(Delayed { request, .. }) = delayed {
                self.route(request);
            }
        }
    }
}

/// Whether an operation that ended so may have been executed. Those that the peer did not begin are safe
/// to repeat whatever they are.
fn may_have_run(failure: &Failure) -> bool {
    match failure {
        Failure::ConnectionLost(_) | Failure::TimedOut | Failure::Aborted | Failure::DataDigest => {
            true
        }
        Failure::Scsi { sense, .. } => {
            // ABORTED COMMAND, and statuses without sense data that end a command in progress.
            const ABORTED_COMMAND: u8 = 0xb;
            const TASK_ABORTED: u8 = 0x40;
            sense.is_some_and(|sense| sense.key == ABORTED_COMMAND)
                || matches!(
                    failure,
                    Failure::Scsi {
                        status: TASK_ABORTED,
                        ..
                    }
                )
        }
        Failure::Nvme { retry_after, .. } => {
            retry_after.is_none() && !matches!(failure.retry(), Retry::After(_) | Retry::OtherPath)
        }
        Failure::Miscompare { .. }
        | Failure::ReservationConflict
        | Failure::Unsupported
        | Failure::OutOfRange
        | Failure::ReadOnly
        | Failure::NoSpace
        | Failure::ShortTransfer { .. }
        | Failure::WrongDataLength { .. }
        | Failure::Misaligned { .. }
        | Failure::TooLarge
        | Failure::OutcomeUnknown(_)
        | Failure::System(_)
        | Failure::Closed => false,
    }
}

#[cfg(test)]
mod tests {
    use longshore_nvme::status::Status;

    use super::*;
    use crate::error::{Lost, Sense};

    fn sense(key: u8) -> Failure {
        Failure::Scsi {
            status: 0x02,
            sense: Some(Sense {
                key,
                asc: 0,
                ascq: 0,
                information: None,
            }),
        }
    }

    fn nvme(status: Status, retry_after: Option<Duration>) -> Failure {
        Failure::Nvme {
            status,
            retry_after,
        }
    }

    #[test]
    fn what_was_aborted_or_lost_may_have_been_done() {
        for failure in [
            Failure::ConnectionLost(Lost::HungUp),
            Failure::Aborted,
            sense(0xb),
            Failure::Scsi {
                status: 0x40,
                sense: None,
            },
            nvme(Status::ABORT_REQUESTED, None),
        ] {
            assert!(may_have_run(&failure), "{failure:?}");
        }
    }

    #[test]
    fn what_was_not_begun_has_not_been_done() {
        for failure in [
            sense(6),
            Failure::Scsi {
                status: 0x28,
                sense: None,
            },
            nvme(Status::NAMESPACE_NOT_READY, None),
            nvme(Status::ASYMMETRIC_ACCESS_INACCESSIBLE, None),
        ] {
            assert!(!may_have_run(&failure), "{failure:?}");
        }
    }
}
