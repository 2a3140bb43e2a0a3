//! Abort of tasks on any shard, with a notice when the last of them can no longer act.
//!
//! An [`AbortOrder`] is mailed to every shard. Each shard aborts the tasks it names; a task whose
//! storage request is still in flight keeps a reference to the order until that has ended. When the
//! last reference is dropped, the waiter is notified. So the answer to a task management function,
//! and the status of PREEMPT AND ABORT, leave only when no aborted task can touch the medium any
//! more (SAM-5 §7.1).

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use longshore_block::reservation::{Participant, is_same_participant};

use crate::address::{ConnectionAddress, TaskAddress};

/// Which tasks an order is about. Units are indices into the exports.
#[derive(Debug)]
pub(crate) enum AbortScope {
    Task(TaskAddress),
    /// No task; but tasks of that connection that were aborted before must be quiet.
    Ended {
        connection: ConnectionAddress,
    },
    /// All tasks of one connection on one unit.
    ConnectionUnit {
        connection: ConnectionAddress,
        unit: usize,
    },
    /// All tasks of all nexuses on one unit.
    Unit {
        unit: usize,
    },
    /// All tasks of all nexuses on several units.
    Units {
        units: Vec<usize>,
    },
    /// All tasks of these nexuses and hosts on one unit.
    Participants {
        unit: usize,
        participants: Vec<Arc<dyn Participant>>,
    },
}

/// Tasks that an order is not about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exception {
    /// The PREEMPT AND ABORT itself.
    Task(TaskAddress),
    /// What the connection sent after its task management request: only tasks with lower numbers are
    /// affected (RFC 7143 §4.2.3.3), and the order is carried out some time after it was given.
    Later {
        connection: ConnectionAddress,
        /// That of the last task before the request.
        sequence: u64,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct AbortOrder {
    scope: AbortScope,
    /// Tasks that stay, although the scope names them.
    except: Exception,
    /// The nexuses and hosts that lost tasks.
    aborted: Mutex<Vec<Arc<dyn Participant>>>,
    waiter: Box<dyn AbortWaiter>,
}

/// Who waits for the end of an order.
pub(crate) trait AbortWaiter: Debug + Send + Sync {
    /// None of the tasks can act any more. `aborted`: the nexuses and hosts that lost some.
    fn tasks_aborted(&self, aborted: Vec<Arc<dyn Participant>>);
}

impl AbortOrder {
    pub(crate) fn new(
        scope: AbortScope,
        except: Exception,
        waiter: impl AbortWaiter + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            scope,
            except,
            aborted: Mutex::default(),
            waiter: Box::new(waiter),
        })
    }

    /// Whether it is about this task, which runs on that unit for that nexus or host. `sequence` is its place
    /// in the order of arrival on its connection.
    pub(crate) fn names(
        &self,
        task: TaskAddress,
        sequence: u64,
        on: Option<(usize, &dyn Participant)>,
    ) -> bool {
        let stays = match self.except {
            Exception::Task(except) => except == task,
            Exception::Later {
                connection,
                sequence: last,
            } => connection == task.connection && sequence > last,
        };
        if stays {
            return false;
        }
        let on_unit = |wanted: usize| on.is_some_and(|(unit, _)| unit == wanted);
        match &self.scope {
            AbortScope::Task(wanted) => *wanted == task,
            AbortScope::Ended { .. } => false,
            AbortScope::ConnectionUnit { connection, unit } => {
                task.connection == *connection && on_unit(*unit)
            }
            AbortScope::Unit { unit } => on_unit(*unit),
            AbortScope::Units { units } => units.iter().any(|unit| on_unit(*unit)),
            AbortScope::Participants { unit, participants } => on.is_some_and(|(own_unit, own)| {
                let is_own = |one: &Arc<dyn Participant>| is_same_participant(&**one, own);
                own_unit == *unit && participants.iter().any(is_own)
            }),
        }
    }

    /// Whether it is about this task of an NVMe host: those of other protocols have no part in SCSI's
    /// task sets, only in reservations.
    pub(crate) fn preempts(&self, task: TaskAddress, unit: usize, host: &dyn Participant) -> bool {
        matches!(self.scope, AbortScope::Participants { .. })
            && self.names(task, 0, Some((unit, host)))
    }

    /// Whether requests of tasks of this connection that ended earlier on this unit must be waited
    /// for too.
    pub(crate) fn waits_for_orphans_of(&self, wanted: usize, of: ConnectionAddress) -> bool {
        match &self.scope {
            AbortScope::Task(_) => false,
            AbortScope::Ended { connection } => *connection == of,
            AbortScope::ConnectionUnit { unit, .. }
            | AbortScope::Unit { unit }
            | AbortScope::Participants { unit, .. } => *unit == wanted,
            AbortScope::Units { units } => units.contains(&wanted),
        }
    }

    /// A task of that nexus or host was aborted.
    pub(crate) fn note_aborted(&self, whose: Arc<dyn Participant>) {
        let mut aborted = self.aborted.lock().expect("nothing panics under this lock");
        if !aborted
            .iter()
            .any(|known| is_same_participant(&**known, &*whose))
        {
            aborted.push(whose);
        }
    }
}

impl Drop for AbortOrder {
    fn drop(&mut self) {
        let aborted = self
            .aborted
            .get_mut()
            .expect("nothing panics under this lock");
        self.waiter.tasks_aborted(std::mem::take(aborted));
    }
}
