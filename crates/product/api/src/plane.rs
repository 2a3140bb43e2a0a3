//! What the API asks of the server process. All of it blocks, and none of it but pools waits for a disk.

use std::collections::BTreeMap;

use crate::change::{Applied, Caller, ChangeOptions, Plan, Revision, RevisionInfo, Wish};
use crate::object::{Document, Object, ObjectKind, Owner};
use crate::pool::{Pool, PoolChange, PoolChanges, SnapshotId};
use crate::problem::{Problem, ProblemCode};
use crate::state::{Session, Status};

/// The server process, as the API sees it.
pub trait ControlPlane: Send + Sync {
    fn status(&self) -> Status;

    /// The objects of a kind with their state, by name; removed volumes too, until they are closed.
    fn objects(&self, kind: ObjectKind) -> Vec<Object>;

    fn revision(&self) -> Revision;

    /// What is asked for, by one owner or by all; secrets read as `"set"`.
    fn document(&self, owner: Option<Owner>) -> (Revision, Document);

    /// What a change would do.
    ///
    /// # Errors
    /// Why it cannot be done, with all problems and not just the first.
    fn plan(&self, wish: &Wish, options: ChangeOptions) -> Result<Plan, Box<Problem>>;

    /// Carries a change out, whole or not at all. Without anything to do there is no new revision.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn apply(
        &self,
        wish: Wish,
        options: ChangeOptions,
        caller: &Caller,
    ) -> Result<Applied, Box<Problem>>;

    /// Volumes that a change took away and whose last flush failed, with the reasons. Those of old changes are forgotten.
    fn failed_flushes(&self, revision: Revision) -> BTreeMap<String, String>;

    /// The revisions that are kept, the newest first.
    fn revisions(&self) -> Vec<RevisionInfo>;

    /// What the API's objects were at a revision; secrets read as `"set"`.
    fn at_revision(&self, revision: Revision) -> Option<Document>;

    /// Initiators' sessions and hosts' controllers.
    fn sessions(&self) -> Vec<Session>;

    /// Pools that are open or configured, by name. Opens none.
    fn pools(&self) -> Vec<Pool> {
        Vec::new()
    }

    /// A pool, by its name or UUID. One that is closed is opened for it, which waits for its drives.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    fn pool(&self, name: &str) -> Result<Pool, Box<Problem>> {
        Err(no_pool(name))
    }

    /// Changes what a pool holds, and tells what it holds then. Waits for its drives.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn change_pool(
        &self,
        name: &str,
        change: &PoolChange,
        caller: &Caller,
    ) -> Result<Pool, Box<Problem>> {
        let _ = (change, caller);
        Err(no_pool(name))
    }

    /// Where a snapshot of a pool differs from another one, from a byte on. Waits for its drives.
    ///
    /// # Errors
    /// There is no such pool or snapshot.
    fn pool_changes(
        &self,
        name: &str,
        of: &SnapshotId,
        since: &SnapshotId,
        from: u64,
    ) -> Result<PoolChanges, Box<Problem>> {
        let _ = (of, since, from);
        Err(no_pool(name))
    }

    /// Ends a session: asks its peer to log out, then drops it.
    ///
    /// # Errors
    /// There is no such session.
    fn close_session(&self, id: &str, caller: &Caller) -> Result<(), Box<Problem>>;
}

/// The problem of a pool that is not there.
#[must_use]
pub fn no_pool(name: &str) -> Box<Problem> {
    let title = format!("there is no pool {name} here");
    let problem = Problem::new(ProblemCode::NotFound, title).about(format_args!("pool {name}"));
    Box::new(problem.advise(
        "list the pools of the server (longshore pool list), or name the drives of another one by their paths",
    ))
}
