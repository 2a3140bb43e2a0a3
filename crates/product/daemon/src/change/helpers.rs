//! Work that waits for storage, on threads that are given up after a time: no disk that is stuck holds up a change for
//! ever, and with it all changes that follow.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use longshore_api::problem::{Problem, ProblemCode};
use longshore_reactor::allocator;

use super::problems::Refused;

/// Threads that may wait for storage at a time, those included that nobody waits for any more.
const THREADS_MAX: usize = 64;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Helpers {
    threads: Arc<AtomicUsize>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfinished {
    #[error("the storage has not answered within {0:?}")]
    Late(Duration),
    #[error("{THREADS_MAX} threads wait for storage that does not answer")]
    TooMany,
    #[error("there can be no thread for it: {0}")]
    NoThread(io::Error),
}

impl Unfinished {
    /// The refusal of what could not be done.
    pub(super) fn refusal(&self, what: &str) -> Refused {
        let problem = Problem::new(ProblemCode::Unavailable, format!("{what}: {self}"));
        Box::new(problem.advise("see to the storage, and try again; nothing has changed"))
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Helpers {
    /// Has a thread of its own do this, and waits for it for so long. The outcome of work that takes longer is dropped by
    /// that thread, when there is one.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub(super) fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let counted = Counted(Arc::clone(&self.threads));
        if self.threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            return Err(Unfinished::TooMany);
        }
        // Without room for the outcome: it is taken, or the thread has it.
        let (outcome, inbox) = sync_channel(0);
        let act = move || {
            let _counted = counted;
            let _ = outcome.send(work());
        };
        let thread = thread::Builder::new().name("storage".to_owned());
        allocator::spawn(thread, act).map_err(Unfinished::NoThread)?;
        inbox
            .recv_timeout(limit)
            .map_err(|_| Unfinished::Late(limit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_does_not_end_is_given_up_and_cleans_up_when_it_ends() {
        struct Undone(std::sync::mpsc::Sender<()>);
        impl Drop for Undone {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }
        let helpers = Helpers::default();
        let (go_on, blocked) = channel::<()>();
        let (undone, inbox) = channel();
        let work = move || {
            let _ = blocked.recv();
            Undone(undone)
        };
        let late = helpers.within(Duration::from_millis(1), work);
        assert!(matches!(late, Err(Unfinished::Late(_))));
        assert_eq!(helpers.within(Duration::from_secs(60), || 7).unwrap(), 7);
        drop(go_on);
        inbox.recv().unwrap();
    }

    #[test]
    fn threads_that_hang_are_bounded() {
        let helpers = Helpers::default();
        let (go_on, blocked) = channel::<()>();
        let blocked = Arc::new(std::sync::Mutex::new(blocked));
        for _ in 0..THREADS_MAX {
            let blocked = Arc::clone(&blocked);
            let late = helpers.within(Duration::ZERO, move || {
                let _ = blocked.lock().map(|blocked| blocked.recv());
            });
            assert!(matches!(late, Err(Unfinished::Late(_))));
        }
        let refused = helpers.within(Duration::from_secs(60), || ());
        assert!(matches!(refused, Err(Unfinished::TooMany)));
        drop(go_on);
    }
}
