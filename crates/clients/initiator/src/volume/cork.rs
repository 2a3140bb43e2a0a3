//! Holding sends back, so that operations submitted together are sent together.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::mail::QueueAddress;
use super::queue_owner::QueueOwner;

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { depth: 0, queues: Vec::new() }) };
}

struct Held {
    /// Corks alive on this thread.
    depth: usize,
    /// Who waits for a send.
    queues: Vec<(Arc<dyn QueueOwner>, QueueAddress)>,
}

/// While it lives, what its thread submits to any remote volume is encoded but not sent (as long as nobody else
/// sends on the same queue); when it is dropped, each queue sends once. Drivers hold one while they complete, so that
/// completers that submit the next operation need none.
#[derive(Debug)]
#[must_use = "operations are held back for as long as it lives"]
pub struct Cork(PhantomData<*const ()>);

impl Cork {
    /// From here on, on this thread.
    #[allow(clippy::new_without_default, reason = "it acts; it is no value")]
    pub fn new() -> Self {
        HELD.with_borrow_mut(|held| held.depth += 1);
        Self(PhantomData)
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        let queues = HELD.with_borrow_mut(|held| {
            held.depth -= 1;
            (held.depth == 0).then(|| std::mem::take(&mut held.queues))
        });
        let Some(mut queues) = queues else { return };
        for (owner, queue) in queues.drain(..) {
            owner.flush(queue);
        }
        // The memory is for next time, unless flushing has held something back in its turn.
        HELD.with_borrow_mut(|held| {
            if held.queues.capacity() < queues.capacity() && held.queues.is_empty() {
                held.queues = queues;
            }
        });
    }
}

/// Has the queue wait for the end of this thread's cork. False: there is none, send now.
pub(super) fn hold(owner: &Arc<impl QueueOwner + 'static>, queue: QueueAddress) -> bool {
    HELD.with_borrow_mut(|held| {
        if held.depth == 0 {
            return false;
        }
        let waits = |(other, at): &(Arc<dyn QueueOwner>, QueueAddress)| {
            *at == queue && std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(owner))
        };
        if !held.queues.iter().any(waits) {
            held.queues
                .push((Arc::clone(owner) as Arc<dyn QueueOwner>, queue));
        }
        true
    })
}
