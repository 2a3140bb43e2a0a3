//! Calls that block, on threads. Each kind has threads of its own, so that none waits for those of another kind: a change
//! may hang on a disk while the server still says how it is.

use std::sync::Arc;
use std::time::Duration;

use longshore_api::problem::{Problem, ProblemCode};
use longshore_reactor::allocator::ThreadRoom;
use tokio::sync::Semaphore;

use crate::answer::{Failure, unavailable};

/// How long a call waits for those before it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls of one kind.
#[derive(Clone, Debug)]
pub(crate) struct CallPool {
    /// Threads that are free.
    threads: Arc<Semaphore>,
    /// Calls that may run or wait still.
    places: Arc<Semaphore>,
    busy: fn() -> Problem,
}

impl CallPool {
    fn new(threads: usize, waiting: usize, busy: fn() -> Problem) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            places: Arc::new(Semaphore::new(threads + waiting)),
            busy,
        }
    }

    /// Runs `act` when those before are done. It goes on to its end, also when nobody waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| (self.busy)())?;
        let thread = Arc::clone(&self.threads).acquire_owned();
        let Ok(Ok(thread)) = tokio::time::timeout(PATIENCE, thread).await else {
            return Err((self.busy)().into());
        };
        let Ok(room) = ThreadRoom::find() else {
            return Err((self.busy)().into());
        };
        let act = move || {
            drop(room);
            let done = act();
            drop((thread, place));
            done
        };
        tokio::task::spawn_blocking(act)
            .await
            .map_err(|_| unavailable("the server did not answer"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CallPools {
    pub changes: CallPool,
    /// They may look at storage, too.
    pub plans: CallPool,
    /// What waits for the state directory, and changes nothing that is served: tokens, sessions, old revisions.
    pub records: CallPool,
    /// What waits for nothing but the event loops.
    pub reads: CallPool,
    /// What metrics and health are made of.
    pub collection: CallPool,
    /// Looking users up, which may ask another machine.
    pub users: CallPool,
}

impl CallPools {
    /// Threads of all pools together.
    pub(crate) const THREADS: usize = 7;

    pub(crate) fn new() -> Self {
        Self {
            changes: CallPool::new(1, 63, changing),
            plans: CallPool::new(1, 63, planning),
            records: CallPool::new(1, 63, recording),
            reads: CallPool::new(2, 254, reading),
            collection: CallPool::new(1, 3, reading),
            users: CallPool::new(1, 31, reading),
        }
    }
}

fn changing() -> Problem {
    let problem = Problem::new(ProblemCode::Busy, "another change is being carried out");
    problem
        .advise("try again in a moment; if it goes on, see whether storage hangs: longshore events")
}

fn planning() -> Problem {
    let problem = Problem::new(ProblemCode::Busy, "other plans are being made");
    problem
        .advise("try again in a moment; if it goes on, see whether storage hangs: longshore events")
}

fn recording() -> Problem {
    let title = "the state directory does not answer in time";
    let problem = Problem::new(ProblemCode::Busy, title);
    problem.advise("try again in a moment; if it goes on, look at the disk of the state directory")
}

fn reading() -> Problem {
    let title = "the server did not answer in time";
    Problem::new(ProblemCode::Unavailable, title).advise("try again in a moment")
}
