//! All subsystems, and the controllers in them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};

use super::access::HostAccess;
use super::admin_command::QueueHandle;
use super::limits::ControllerLimits;
use super::registry::Registry;
use super::state::Controller;
use super::subsystem::{Access, Subsystem, SubsystemConfig};
use crate::command::NamespaceId;
use crate::nqn::{DISCOVERY_NQN, Nqn};

/// A subsystem and its controllers.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) controllers: Arc<Registry<Controller>>,
}

/// What a change of the subsystems means for the controllers that were there.
#[derive(Debug, Default)]
pub struct Reconfigured {
    /// Controllers that see other namespaces, with the identifiers that have changed.
    changed: Vec<(Arc<Controller>, Vec<NamespaceId>)>,
    /// Controllers whose hosts may not use their subsystem any more, or whose subsystem is no more. They see no
    /// namespaces; the driver ends their connections.
    pub dismissed: Vec<Arc<Controller>>,
}

impl Reconfigured {
    /// Whether no controller sees anything else.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.dismissed.is_empty()
    }
}

impl Member {
    fn new(
        config: SubsystemConfig,
        limits: &Arc<ControllerLimits>,
        population: &Arc<AtomicUsize>,
    ) -> Self {
        Self {
            subsystem: Subsystem::new(config, limits),
            controllers: Arc::new(Registry::new(limits, population)),
        }
    }

    fn reconfigure(&self, new: Access, changes: &mut Reconfigured) {
        let mut access = self.subsystem.access_mut();
        *access = new;
        for controller in self.controllers.controllers() {
            let visible = access.visible(controller.host_nqn());
            let is_dismissed = visible.is_none();
            let changed = controller.see(&visible.unwrap_or_default());
            if !changed.is_empty() {
                changes.changed.push((Arc::clone(&controller), changed));
            }
            if is_dismissed {
                changes.dismissed.push(controller);
            }
        }
    }
}

/// All subsystems, and the controllers that hosts have made in them. Shared by all reactors; its
/// locks are taken by Connect, admin commands and events only, never by commands of I/O queues.
pub struct Subsystems {
    /// NVM subsystems by name.
    members: RwLock<Arc<HashMap<Nqn, Member>>>,
    discovery: Member,
    limits: Arc<ControllerLimits>,
    population: Arc<AtomicUsize>,
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
        let discovery = SubsystemConfig {
            nqn: Nqn::new(DISCOVERY_NQN).expect("the name of discovery is one"),
            serial: String::new(),
            model: String::new(),
            firmware: String::new(),
            namespaces: Vec::new(),
            hosts: HostAccess::default(),
        };
        let this = Self {
            members: RwLock::default(),
            discovery: Member::new(discovery, &limits, &population),
            limits,
            population,
            notify,
        };
        this.reconfigure(subsystems);
        this
    }

    pub(super) fn find(&self, nqn: &Nqn) -> Option<Member> {
        if nqn.is_discovery() {
            return Some(self.discovery.clone());
        }
        self.members().get(nqn).cloned()
    }

    pub(super) fn members(&self) -> Arc<HashMap<Nqn, Member>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&members)
    }

    /// Controllers of all subsystems.
    #[must_use]
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        let members = self.members();
        let all = members.values().chain([&self.discovery]);
        all.flat_map(|member| member.controllers.controllers())
            .collect()
    }

    /// From now on there are these subsystems, with these namespaces for these hosts. Those with known names keep
    /// their controllers, each of which has other namespaces at once ([`Controller::namespaces`]). Hosts learn of it
    /// by [`Self::tell`], when I/O queues have them too. One change at a time.
    pub fn reconfigure(&self, subsystems: Vec<SubsystemConfig>) -> Reconfigured {
        let before = self.members();
        let mut changes = Reconfigured::default();
        let mut members = HashMap::new();
        let first = subsystems.first().map(|config| config.nqn.clone());
        for config in subsystems {
            let nqn = config.nqn.clone();
            let member = match before.get(&nqn) {
                Some(member) => {
                    member.reconfigure(Access::new(config), &mut changes);
                    member.clone()
                }
                None => Member::new(config, &self.limits, &self.population),
            };
            members.insert(nqn, member);
        }
        let by_name = members.iter();
        let by_name = by_name.map(|(nqn, member)| (nqn.clone(), Arc::clone(&member.subsystem)));
        let product = first.and_then(|first| {
            let access = members.get(&first)?.subsystem.access();
            Some(Arc::clone(access.product()))
        });
        let mut discovery = self.discovery.subsystem.access_mut();
        discovery.discover(by_name.collect(), product);
        drop(discovery);
        let removed = before.iter().filter(|(nqn, _)| !members.contains_key(nqn));
        for (_, member) in removed {
            member.reconfigure(Access::removed(), &mut changes);
        }
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        changes
    }

    /// Tells hosts of other namespaces.
    pub fn tell(&self, changes: &Reconfigured) {
        for (controller, namespaces) in &changes.changed {
            if controller.namespaces_changed(namespaces) {
                (self.notify)(controller.admin_queue());
            }
        }
    }

    /// A volume has a new size, which its [`Namespace`](super::Namespace) knows already.
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

    /// A volume has come to lack spare: see [`crate::controller::Health::lacks_spare`].
    pub fn spare_low(&self, index: usize) {
        self.notify_where(&self.controllers(), |controller| {
            controller.spare_low(index)
        });
    }

    /// A sanitize operation of a volume has ended.
    pub fn sanitize_ended(&self, index: usize) {
        self.notify_where(&self.controllers(), |controller| {
            controller.sanitize_ended(index)
        });
    }

    /// The entries of discovery have changed.
    pub fn discovery_changed(&self) {
        self.notify_where(&self.discovery.controllers.controllers(), |controller| {
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
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
