//! The controllers of a subsystem, by their identifiers.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::limits::ControllerLimits;

/// Highest CNTLID; those above mean something else.
const CONTROLLER_ID_MAX: u16 = 0xffef;

/// The controllers `C` of a subsystem. All subsystems share one bound on their number.
#[derive(Debug)]
pub(super) struct Registry<C> {
    controllers_max: usize,
    population: Arc<AtomicUsize>,
    controllers: Mutex<Controllers<C>>,
}

#[derive(Debug)]
struct Controllers<C> {
    /// Controllers by CNTLID; a dead one leaves its number free.
    by_id: BTreeMap<u16, Weak<C>>,
    /// Given out last. Identifiers are not reused soon, so that a host that comes back with an old
    /// one is told so.
    last_id: u16,
}

impl<C> Registry<C> {
    /// An empty one, which counts its controllers in `population`.
    pub(super) fn new(limits: &ControllerLimits, population: &Arc<AtomicUsize>) -> Self {
        Self {
            controllers_max: limits.controllers_max,
            population: Arc::clone(population),
            controllers: Mutex::new(Controllers {
                by_id: BTreeMap::new(),
                last_id: 0,
            }),
        }
    }

    /// Takes the next free CNTLID; `None` when there are too many controllers. It is free again by
    /// [`Self::forget`].
    pub(super) fn take_id(&self) -> Option<u16> {
        let take =
            |population: usize| (population < self.controllers_max).then_some(population + 1);
        let order = Ordering::AcqRel;
        self.population
            .fetch_update(order, Ordering::Acquire, take)
            .ok()?;
        let mut controllers = self.lock();
        let Some(id) = controllers.free_id() else {
            self.population.fetch_sub(1, order);
            return None;
        };
        controllers.by_id.insert(id, Weak::new());
        controllers.last_id = id;
        Some(id)
    }

    /// A controller can be found under its identifier from now on.
    pub(super) fn insert(&self, id: u16, controller: &Arc<C>) {
        let known = Arc::downgrade(controller);
        self.lock().by_id.insert(id, known);
    }

    pub(super) fn controller(&self, id: u16) -> Option<Arc<C>> {
        self.lock().by_id.get(&id)?.upgrade()
    }

    /// All controllers, in the order of their identifiers. Their locks are not to be taken under
    /// that of the registry, nor may the last reference to one go away under it.
    pub(super) fn controllers(&self) -> Vec<Arc<C>> {
        let controllers = self.lock();
        controllers
            .by_id
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// A controller is gone. Its identifier may be another one's by now, if it was forgotten before.
    pub(super) fn forget(&self, id: u16, controller: &C) {
        let mut controllers = self.lock();
        let known = controllers.by_id.get(&id);
        if known.is_some_and(|known| ptr::eq(known.as_ptr(), controller)) {
            controllers.by_id.remove(&id);
            self.population.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Controllers<C>> {
        self.controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Controllers<C> {
    fn free_id(&self) -> Option<u16> {
        let after = self.last_id + 1..=CONTROLLER_ID_MAX;
        let before = 1..=self.last_id;
        after.chain(before).find(|id| !self.by_id.contains_key(id))
    }
}
