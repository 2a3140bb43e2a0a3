//! All subsystems, and the controllers in them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::access::HostAccess;
use super::admin_command::QueueHandle;
use super::limits::ControllerLimits;
use super::registry::Registry;
use super::state::Controller;
use super::subsystem::{Subsystem, SubsystemConfig};
use crate::nqn::{DISCOVERY_NQN, Nqn};

/// A subsystem and its controllers.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) controllers: Arc<Registry<Controller>>,
}

/// All subsystems, and the controllers that hosts have made in them. Shared by all reactors; its
/// locks are taken by Connect, admin commands and events only, never by commands of I/O queues.
pub struct Subsystems {
    subsystems: Vec<Member>,
    discovery: Member,
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
        let member = |config, others| Member {
            subsystem: Subsystem::new(config, others, &limits),
            controllers: Arc::new(Registry::new(&limits, &population)),
        };
        let subsystems: Vec<_> = subsystems
            .into_iter()
            .map(|config| member(config, Vec::new()))
            .collect();
        let others = subsystems
            .iter()
            .map(|member| Arc::clone(&member.subsystem));
        let discovery = member(discovery, others.collect());
        Self {
            subsystems,
            discovery,
            notify,
        }
    }

    pub(super) fn find(&self, nqn: &Nqn) -> Option<&Member> {
        if nqn.is_discovery() {
            return Some(&self.discovery);
        }
        self.subsystems
            .iter()
            .find(|member| member.subsystem.nqn == *nqn)
    }

    /// Controllers of all subsystems.
    #[must_use]
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        let all = self.subsystems.iter().chain([&self.discovery]);
        all.flat_map(|member| member.controllers.controllers())
            .collect()
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
            .field("subsystems", &self.subsystems)
            .finish_non_exhaustive()
    }
}
