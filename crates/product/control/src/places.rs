//! Places for connections, by who is at the other end: nobody can take those of another group.
//!
//! | group | places | time |
//! |---|---|---|
//! | socket: root, the user of the server | 128 | any |
//! | socket: other users | 32 | any |
//! | TCP, until a request brings a valid token | 32 | 5 s |
//! | TCP, from then on | 128 | any |
//!
//! Others wait in the kernel's queue; other users of the machine are turned away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

const OWNERS_MAX: usize = 128;
const OTHERS_MAX: usize = 32;
const STRANGERS_MAX: usize = 32;
const BEARERS_MAX: usize = 128;
/// So long a connection over TCP may take to bring a token.
pub(crate) const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Places {
    owners: Arc<Semaphore>,
    others: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    bearers: Arc<Semaphore>,
}

pub(crate) type Permit = OwnedSemaphorePermit;

impl Places {
    pub(crate) fn new() -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self {
            owners: places(OWNERS_MAX),
            others: places(OTHERS_MAX),
            strangers: places(STRANGERS_MAX),
            bearers: places(BEARERS_MAX),
        }
    }

    /// Waits for a place for root or the user of the server.
    pub(crate) async fn owner(&self) -> Option<Permit> {
        Arc::clone(&self.owners).acquire_owned().await.ok()
    }

    /// A place for another user, if there is one.
    pub(crate) fn other(&self) -> Option<Permit> {
        Arc::clone(&self.others).try_acquire_owned().ok()
    }

    /// Waits for a place for somebody who is not known yet.
    pub(crate) async fn stranger(&self) -> Option<Arc<Admission>> {
        let place = Arc::clone(&self.strangers).acquire_owned().await.ok()?;
        Some(Arc::new(Admission {
            place: Mutex::new(place),
            bearers: Arc::clone(&self.bearers),
            is_admitted: AtomicBool::new(false),
        }))
    }
}

/// The place of a connection over TCP.
#[derive(Debug)]
pub(crate) struct Admission {
    place: Mutex<Permit>,
    bearers: Arc<Semaphore>,
    is_admitted: AtomicBool,
}

impl Admission {
    /// A request has brought a valid token. Without a place among bearers, the connection keeps the one that it has.
    pub(crate) fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed)
            && let Ok(place) = Arc::clone(&self.bearers).try_acquire_owned()
        {
            *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }
    }

    /// Ends when the time of a connection is over that brought no token.
    pub(crate) async fn overdue(&self, accepted: Instant) {
        tokio::time::sleep_until(accepted + STRANGER_TIMEOUT).await;
        if self.is_admitted.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}
