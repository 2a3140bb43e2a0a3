//! Hosts whose connections are gone while their last writes are not.
//!
//! A host that lost its connection connects anew and submits again what was not answered. A write of
//! its old queue may still be on its way to the medium then. So each I/O queue owns a [`Life`], and a new
//! queue's commands wait for the lives of all queues of that host that have closed. Queues that are open
//! are no concern: a host may have several controllers at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::life::Life;
use crate::mail::Post;
use crate::message::ConnectionAddress;

/// Hosts are looked through for ended lives when there are so many.
const FORGET_AT_LEAST: usize = 64;

/// HOSTID.
type HostIdentifier = [u8; 16];

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// What is left of closed queues.
    closed: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    lives: HashMap<HostIdentifier, Vec<Weak<Life>>>,
    forget_at: usize,
}

impl Hosts {
    /// A new queue of a host. `true`: its commands wait for
    /// [`Note::PredecessorsEnded`](crate::message::Note::PredecessorsEnded).
    pub(crate) fn enter(
        &self,
        host: &HostIdentifier,
        post: &Post,
        connection: ConnectionAddress,
    ) -> bool {
        let table = self.lock();
        let closed = table.lives.get(host);
        let earlier: Vec<Arc<Life>> = closed
            .into_iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect();
        drop(table);
        Life::hold(&earlier, post, connection);
        !earlier.is_empty()
    }

    /// A queue has closed. Its life goes on in what storage still does for it.
    pub(crate) fn leave(&self, host: &HostIdentifier, life: Arc<Life>) {
        // Nobody else knows of a life before its queue closes, so none can be added.
        if Arc::strong_count(&life) == 1 {
            return;
        }
        let mut table = self.lock();
        let lives = table.lives.entry(*host).or_default();
        lives.retain(|life| life.strong_count() > 0);
        lives.push(Arc::downgrade(&life));
        if table.lives.len() >= table.forget_at.max(FORGET_AT_LEAST) {
            table.lives.retain(|_, lives| {
                lives.retain(|life| life.strong_count() > 0);
                !lives.is_empty()
            });
            table.forget_at = 2 * table.lives.len();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.closed.lock().expect("nothing panics under this lock")
    }
}

#[cfg(test)]
mod tests {
    use longshore_reactor::wake::Waker;

    use super::*;
    use crate::mail::post_box;
    use crate::message::{Message, Note};

    const HOST: HostIdentifier = [1; 16];
    const CONNECTION: ConnectionAddress = ConnectionAddress {
        shard: 0,
        slot: 3,
        generation: 1,
    };

    #[test]
    fn a_new_queue_waits_for_the_last_write_of_a_closed_one_of_its_host() {
        let (post, mut inbox) = post_box(Waker::new().expect("an eventfd"));
        let hosts = Hosts::default();
        let life = Arc::<Life>::default();
        let write = Arc::clone(&life);
        hosts.leave(&HOST, life);
        assert!(!hosts.enter(&[2; 16], &post, CONNECTION));
        assert!(inbox.is_empty());
        assert!(hosts.enter(&HOST, &post, CONNECTION));
        assert!(inbox.is_empty());
        drop(write);
        assert!(matches!(
            inbox.receive(),
            Some(Message::Note(CONNECTION, Note::PredecessorsEnded))
        ));
    }

    #[test]
    fn a_closed_queue_without_writes_leaves_nothing_behind() {
        let (post, _inbox) = post_box(Waker::new().expect("an eventfd"));
        let hosts = Hosts::default();
        hosts.leave(&HOST, Arc::default());
        assert!(!hosts.enter(&HOST, &post, CONNECTION));
    }
}
