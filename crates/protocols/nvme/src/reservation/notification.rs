//! What hosts are told of reservations: the Reservation Notification log page (80h) of a controller.
//!
//! ```text
//!  0..7   Log Page Count (LPC): numbers notifications from 1; 0 in an empty page
//!  8      Reservation Notification Log Page Type (RNLPT): 0 empty, 1 registration preempted,
//!         2 reservation released, 3 reservation preempted
//!  9      Number of Available Log Pages (NALP): how many more there are
//! 12..15  Namespace ID
//! 16..63  reserved
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use longshore_block::reservation::NoticeEvent;
use longshore_wire::field::{set_le32, set_le64};

use crate::command::NamespaceId;

/// Notifications that wait to be read. When there are more, the oldest are lost, and the gap in
/// Log Page Count tells the host.
const WAITING_MAX: usize = 64;

/// The feature *Reservation Notification Mask* (82h) of one namespace: bits 1 to 3, as RNLPT counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationMask(pub(super) u8);

impl NotificationMask {
    const ALL: u8 = 0b1110;

    /// From dword 11 of Set Features; `None` if a reserved bit is set.
    #[must_use]
    pub fn from_dword(dword: u32) -> Option<Self> {
        let bits = u8::try_from(dword).ok()?;
        (bits & !Self::ALL == 0).then_some(Self(bits))
    }

    /// What Get Features returns.
    #[must_use]
    pub fn dword(self) -> u32 {
        u32::from(self.0)
    }

    /// Whether this is not told.
    #[must_use]
    pub fn masks(self, event: NoticeEvent) -> bool {
        self.0 & 1 << log_page_type(event) != 0
    }
}

/// RNLPT: the type in the Reservation Notification log page.
fn log_page_type(event: NoticeEvent) -> u8 {
    match event {
        NoticeEvent::RegistrationsPreempted => 1,
        NoticeEvent::ReservationsReleased => 2,
        NoticeEvent::ReservationsPreempted => 3,
    }
}

/// The Reservation Notification log of one controller, for all its namespaces.
#[derive(Default)]
pub struct NotificationLog {
    waiting: Mutex<Waiting>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Log Page Count of the last one.
    count: u64,
    notifications: VecDeque<Notification>,
    /// Something came that [`NotificationLog::take_event`] has not told yet.
    is_news: bool,
}

#[derive(Clone, Copy, Debug)]
struct Notification {
    count: u64,
    event: NoticeEvent,
    namespace: NamespaceId,
}

impl NotificationLog {
    /// Bytes of a log page.
    pub const PAGE_LENGTH: usize = 64;

    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// `waker` is called with each notification, on any thread, with locks held: it must do no more
    /// than leave word that [`Self::take_event`] is worth a call. Only the first one counts.
    pub fn set_waker(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
    }

    /// Whether something came since the last call: the event *Reservation Log Page Available*.
    #[must_use]
    pub fn take_event(&self) -> bool {
        std::mem::take(&mut self.waiting().is_news)
    }

    /// Whether there is nothing to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().notifications.is_empty()
    }

    /// The log page: the oldest notification, which is gone thereby unless it is to be retained.
    #[must_use]
    pub fn read(&self, retain: bool) -> [u8; Self::PAGE_LENGTH] {
        let mut waiting = self.waiting();
        let first = if retain {
            waiting.notifications.front().copied()
        } else {
            waiting.notifications.pop_front()
        };
        let mut page = [0; Self::PAGE_LENGTH];
        if let Some(first) = first {
            let more = waiting.notifications.len() - usize::from(retain);
            set_le64(&mut page, 0, first.count);
            page[8] = log_page_type(first.event);
            page[9] = u8::try_from(more).unwrap_or(u8::MAX);
            set_le32(&mut page, 12, first.namespace.0);
        }
        page
    }

    /// The controller was reset: nothing waits, and counting starts anew.
    pub fn reset(&self) {
        *self.waiting() = Waiting::default();
    }

    pub(super) fn add(&self, event: NoticeEvent, namespace: NamespaceId) {
        {
            let mut waiting = self.waiting();
            if waiting.notifications.len() == WAITING_MAX {
                waiting.notifications.pop_front();
            }
            // Zero marks an empty page.
            waiting.count = waiting.count.wrapping_add(1).max(1);
            let count = waiting.count;
            waiting.notifications.push_back(Notification {
                count,
                event,
                namespace,
            });
            waiting.is_news = true;
        }
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Every change under the lock leaves it consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NotificationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("NotificationLog");
        out.field("waiting", &self.waiting).finish_non_exhaustive()
    }
}
