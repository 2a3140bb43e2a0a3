//! Subsystems and the controllers in them.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::access::{HostAccess, NamespaceGrant};
use super::namespace::Namespace;
use super::{Controller, QueueHandle};
use crate::command::NamespaceId;
use crate::nqn::{DISCOVERY_NQN, Nqn};

/// A namespace of a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// NSID.
    pub id: NamespaceId,
    /// What all controllers share of it.
    pub namespace: Arc<Namespace>,
    /// The driver's index of the volume.
    pub index: usize,
}

/// One NVM subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// SUBNQN.
    pub nqn: Nqn,
    /// SN, at most 20 ASCII characters.
    pub serial: String,
    /// MN, at most 40 ASCII characters.
    pub model: String,
    /// FR, at most 8 ASCII characters.
    pub firmware: String,
    /// All its namespaces, by distinct identifiers.
    pub namespaces: Vec<NamespaceConfig>,
    /// Who may connect, and sees what.
    pub hosts: HostAccess,
}

/// Bounds on what hosts can make grow.
#[derive(Clone, Debug)]
pub struct ControllerLimits {
    /// Entries of a queue (MQES + 1), at least 2.
    pub queue_entries_max: u16,
    /// I/O queues of a controller.
    pub io_queues_max: u16,
    /// Controllers, discovery included.
    pub controllers_max: usize,
    /// Asynchronous Event Requests outstanding on a controller (AERL + 1), at least 1.
    pub async_events_max: u8,
    /// Aborts outstanding on a controller (ACL + 1), at least 1.
    pub aborts_max: u8,
    /// Longest Keep Alive Timeout a host may ask for.
    pub keep_alive_ms_max: u32,
    /// How long a discovery controller without a Keep Alive Timeout may be idle.
    pub discovery_idle_ms: u32,
    /// Data in a command capsule of an I/O queue, a multiple of 16 (IOCCSZ).
    pub in_capsule_data_bytes: u32,
    /// Largest transfer of a command (MDTS), rounded down to a power of two; at least 8 KiB.
    pub transfer_bytes_max: u32,
}

impl ControllerLimits {
    const PAGE_BYTES: u32 = 4096;

    /// MDTS: the exponent of the largest transfer in pages. 0 would mean that there is no limit.
    pub(super) fn transfer_exponent(&self) -> u8 {
        let pages = (self.transfer_bytes_max / Self::PAGE_BYTES).max(2);
        u8::try_from(pages.ilog2()).expect("less than 32")
    }

    /// Largest transfer of a command.
    pub(super) fn transfer_bytes(&self) -> u32 {
        Self::PAGE_BYTES << self.transfer_exponent()
    }
}

impl Default for ControllerLimits {
    fn default() -> Self {
        Self {
            queue_entries_max: 128,
            io_queues_max: 64,
            controllers_max: 1024,
            async_events_max: 4,
            aborts_max: 4,
            keep_alive_ms_max: 600_000,
            discovery_idle_ms: 120_000,
            in_capsule_data_bytes: 8192,
            transfer_bytes_max: 1 << 20,
        }
    }
}

/// What the controllers of a subsystem share.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) firmware: String,
    pub(super) is_discovery: bool,
    pub(super) limits: Arc<ControllerLimits>,
    /// Access of NVM subsystems by name, for the discovery log page. Only discovery has it.
    others: Vec<Arc<Self>>,
    /// In the order of their identifiers.
    namespaces: Vec<NamespaceConfig>,
    hosts: HostAccess,
    population: Arc<AtomicUsize>,
    controllers: Mutex<Controllers>,
}

#[derive(Debug, Default)]
struct Controllers {
    /// By CNTLID.
    by_id: BTreeMap<u16, Weak<Controller>>,
    /// Given out last. Identifiers are not reused soon, so that a host that comes back with an old
    /// one is told so.
    last_id: u16,
}

/// Highest CNTLID; those above mean something else.
const CONTROLLER_ID_MAX: u16 = 0xffef;

/// Most I/O queues there can be: their number is told less one, and FFFFh is no number of queues.
const IO_QUEUES_MAX: u16 = 0xfffe;

impl Subsystem {
    fn new(
        config: SubsystemConfig,
        others: Vec<Arc<Self>>,
        limits: &Arc<ControllerLimits>,
        population: &Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let is_discovery = config.nqn.is_discovery();
        let mut namespaces = config.namespaces;
        namespaces.retain(|namespace| namespace.id.is_single());
        namespaces.sort_by_key(|namespace| namespace.id);
        namespaces.dedup_by_key(|namespace| namespace.id);
        Arc::new(Self {
            nqn: config.nqn,
            serial: config.serial,
            model: config.model,
            firmware: config.firmware,
            is_discovery,
            limits: Arc::clone(limits),
            others,
            namespaces,
            hosts: config.hosts,
            population: Arc::clone(population),
            controllers: Mutex::default(),
        })
    }

    /// What a host sees; `None` when it must not connect.
    pub(super) fn visible(&self, host: &Nqn) -> Option<Vec<(&NamespaceConfig, NamespaceGrant)>> {
        if self.is_discovery {
            return Some(Vec::new());
        }
        let grants = self.hosts.namespaces_of(host)?;
        let grant_of = |id: NamespaceId| grants.iter().find(|grant| grant.id == id);
        let visible = self
            .namespaces
            .iter()
            .filter_map(|config| Some((config, *grant_of(config.id)?)));
        Some(visible.collect())
    }

    /// I/O queues a controller may have.
    pub(super) fn io_queues_max(&self) -> u16 {
        if self.is_discovery {
            0
        } else {
            self.limits.io_queues_max.clamp(1, IO_QUEUES_MAX)
        }
    }

    /// Whether discovery tells a host of a subsystem: it may connect, or we do not know the name.
    pub(super) fn shows(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        self.others
            .iter()
            .find(|other| other.nqn == *subsystem)
            .is_none_or(|other| other.hosts.namespaces_of(host).is_some())
    }

    /// Takes the next free CNTLID; `None` when there are too many controllers. It is free again by
    /// [`Self::forget`].
    pub(super) fn take_id(&self) -> Option<u16> {
        let take = |population: usize| {
            (population < self.limits.controllers_max).then_some(population + 1)
        };
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
    pub(super) fn insert(&self, controller: &Arc<Controller>) {
        let known = Arc::downgrade(controller);
        self.lock().by_id.insert(controller.id(), known);
    }

    pub(super) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().by_id.get(&id)?.upgrade()
    }

    /// All controllers, in the order of their identifiers. Their locks are not to be taken under
    /// that of the subsystem, nor may the last reference to one go away under it.
    pub(super) fn controllers(&self) -> Vec<Arc<Controller>> {
        let controllers = self.lock();
        controllers
            .by_id
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// A controller is gone. Its identifier may be another one's by now, if it was forgotten before.
    pub(super) fn forget(&self, controller: &Controller) {
        let mut controllers = self.lock();
        let known = controllers.by_id.get(&controller.id());
        if known.is_some_and(|known| ptr::eq(known.as_ptr(), controller)) {
            controllers.by_id.remove(&controller.id());
            self.population.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        self.controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controllers {
    fn free_id(&self) -> Option<u16> {
        let after = self.last_id + 1..=CONTROLLER_ID_MAX;
        let before = 1..=self.last_id;
        after.chain(before).find(|id| !self.by_id.contains_key(id))
    }
}

/// All subsystems, and the controllers that hosts have made in them. Shared by all reactors; its
/// locks are taken by Connect, admin commands and events only, never by commands of I/O queues.
pub struct Subsystems {
    subsystems: Vec<Arc<Subsystem>>,
    discovery: Arc<Subsystem>,
    notify: Notify,
}

/// Tells the driver that a controller has something for [`Controller::poll_events`] on this admin
/// queue. Called on any thread, with locks held: it must do no more than leave word.
pub type Notify = Arc<dyn Fn(QueueHandle) + Send + Sync>;

impl Subsystems {
    /// Subsystems without controllers. That of discovery is added, with the serial number, model and
    /// firmware revision of the first. `notify` is called whenever a controller has something for
    /// [`Controller::poll_events`], with the connection of its admin queue.
    ///
    /// # Panics
    /// Never: the name of discovery is one.
    #[must_use]
    pub fn new(subsystems: Vec<SubsystemConfig>, limits: ControllerLimits, notify: Notify) -> Self {
        let limits = Arc::new(limits);
        let population = Arc::new(AtomicUsize::new(0));
        let first = subsystems.first();
        let text = |of: fn(&SubsystemConfig) -> &String| first.map(of).cloned().unwrap_or_default();
        let discovery = SubsystemConfig {
            nqn: Nqn::new(DISCOVERY_NQN).expect("the name of discovery is one"),
            serial: text(|config| &config.serial),
            model: text(|config| &config.model),
            firmware: text(|config| &config.firmware),
            namespaces: Vec::new(),
            hosts: HostAccess::default(),
        };
        let subsystems: Vec<_> = subsystems
            .into_iter()
            .map(|config| Subsystem::new(config, Vec::new(), &limits, &population))
            .collect();
        let discovery = Subsystem::new(discovery, subsystems.clone(), &limits, &population);
        Self {
            subsystems,
            discovery,
            notify,
        }
    }

    pub(super) fn find(&self, nqn: &Nqn) -> Option<&Arc<Subsystem>> {
        if nqn.is_discovery() {
            return Some(&self.discovery);
        }
        self.subsystems
            .iter()
            .find(|subsystem| subsystem.nqn == *nqn)
    }

    /// Controllers of all subsystems.
    #[must_use]
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        let all = self.subsystems.iter().chain([&self.discovery]);
        all.flat_map(|subsystem| subsystem.controllers()).collect()
    }

    /// A volume has a new size, which its [`Namespace`] knows already.
    pub fn namespace_resized(&self, index: usize) {
        self.notify_where(&self.controllers(), |controller| {
            controller.namespace_changed(index)
        });
    }

    /// A volume has failed: [`Environment::health`](super::Environment::health) says so from now on.
    pub fn health_changed(&self, index: usize) {
        self.notify_where(&self.controllers(), |controller| {
            controller.namespace_failed(index)
        });
    }

    /// The entries of discovery have changed.
    pub fn discovery_changed(&self) {
        self.notify_where(&self.discovery.controllers(), |controller| {
            controller.discovery_changed()
        });
    }

    fn notify_where(
        &self,
        controllers: &[Arc<Controller>],
        has_news: impl Fn(&Controller) -> bool,
    ) {
        for controller in controllers.iter().filter(|controller| has_news(controller)) {
            (self.notify)(controller.admin_queue());
        }
    }

    /// The way to tell the driver of a reservation notification.
    pub(super) fn waker(&self, queue: QueueHandle) -> impl Fn() + Send + Sync + use<> {
        let notify = Arc::clone(&self.notify);
        move || notify(queue)
    }
}

impl fmt::Debug for Subsystems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subsystems")
            .field("subsystems", &self.subsystems)
            .finish_non_exhaustive()
    }
}
