//! What a controller knows, and what its lock protects. Admin commands and events, in the files above, change it.

mod async_events;
mod features;
mod keep_alive;
mod properties;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

pub use async_events::AsyncCompletion;
pub(super) use async_events::{AsyncEvent, AsyncEvents, configurable, supported_notices};
pub(super) use features::{Features, Timestamp};
pub(super) use keep_alive::{Activity, GRANULARITY_MS, KeepAlive};
pub(super) use properties::{ATTRIBUTES_AT, CC, Change, OFFSET_AT, Properties, VERSION, refused};

use super::access::NamespaceGrant;
use super::admin_command::QueueHandle;
use super::failure::Failure;
use super::log_page::error::ErrorLog;
use super::namespace::{AttachedNamespace, NamespaceConfig};
use super::registry::Registry;
use super::subsystem::{Product, Subsystem};
use crate::auth::{Credentials, GeneratedKey, Parties};
use crate::command::NamespaceId;
use crate::io::limits;
use crate::nqn::Nqn;
use crate::psk::{Origin, RetainedPsk, Version};
use crate::reservation::NotificationLog;

/// A controller: made by Connect of an admin queue, gone with it.
pub struct Controller {
    pub(super) id: u16,
    pub(super) subsystem: Arc<Subsystem>,
    /// Where it is known, as long as it is there.
    pub(super) registry: Arc<Registry<Self>>,
    pub(super) host_nqn: Nqn,
    pub(super) host_identifier: [u8; 16],
    pub(super) admin_queue: QueueHandle,
    /// Its queues are over TLS; otherwise none is.
    pub(super) is_secure: bool,
    /// As it was when the host came.
    pub(super) product: Arc<Product>,
    /// MNAN: most namespaces that are attached at a time.
    pub(super) attached_max: u32,
    /// What the host sees, in the order of identifiers. Replaced as a whole, under the lock of the subsystem's access;
    /// that of the controller may be held while it is read.
    pub(super) namespaces: RwLock<Arc<[AttachedNamespace]>>,
    /// CC.EN and CSTS.RDY, and neither shut down nor failed.
    pub(super) enabled: AtomicBool,
    /// ACRE of Host Behavior Support.
    pub(super) advanced_retry: AtomicBool,
    /// One for each possible queue.
    pub(super) activity: Box<[Activity]>,
    /// Notifications that the host has not read.
    pub(super) reservations: Arc<NotificationLog>,
    pub(super) state: Mutex<State>,
}

/// What the lock of a controller protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) properties: Properties,
    pub(super) keep_alive: KeepAlive,
    pub(super) events: AsyncEvents,
    /// Of the changed namespace list log page.
    pub(super) changed_namespaces: BTreeSet<NamespaceId>,
    pub(super) features: Features,
    pub(super) errors: ErrorLog,
    /// I/O queues by their identifiers less one.
    pub(super) io_queues: Vec<Option<QueueHandle>>,
    /// The admin queue is gone.
    pub(super) closed: bool,
}

impl State {
    pub(super) fn open_io_queues(&self) -> Vec<QueueHandle> {
        self.io_queues.iter().flatten().copied().collect()
    }

    pub(super) fn new(subsystem: &Subsystem, keep_alive_ms: u32, now_ms: u64) -> Self {
        let (is_discovery, limits) = (subsystem.is_discovery, &subsystem.limits);
        let io_queues_max = subsystem.io_queues_max();
        let idle_ms = is_discovery.then_some(limits.discovery_idle_ms);
        Self {
            properties: Properties::new(is_discovery, limits),
            keep_alive: KeepAlive::new(keep_alive_ms, idle_ms, now_ms),
            events: AsyncEvents::new(limits.async_events_max, is_discovery),
            changed_namespaces: BTreeSet::new(),
            features: Features::new(io_queues_max, now_ms),
            errors: ErrorLog::default(),
            io_queues: vec![None; usize::from(io_queues_max)],
            closed: false,
        }
    }

    /// Ends what waits for the I/O queues, if they are gone.
    pub(super) fn settle(&mut self) {
        if self.io_queues.iter().all(Option::is_none) {
            self.properties.queues_closed();
        }
    }
}

impl Controller {
    /// CNTLID, unique within the subsystem.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// HOSTNQN, as Connect gave it.
    #[must_use]
    pub const fn host_nqn(&self) -> &Nqn {
        &self.host_nqn
    }

    /// HOSTID: the host that reservations know.
    #[must_use]
    pub const fn host_identifier(&self) -> &[u8; 16] {
        &self.host_identifier
    }

    /// The subsystem it is part of.
    #[must_use]
    pub fn subsystem_nqn(&self) -> &Nqn {
        &self.subsystem.nqn
    }

    /// Host and subsystem, as they prove to each other who they are.
    #[must_use]
    pub fn parties(&self) -> Parties {
        Parties {
            host: self.host_nqn.clone(),
            subsystem: self.subsystem.nqn.clone(),
        }
    }

    /// By what its host proves who it is, as it is configured now; `None`: it does not.
    #[must_use]
    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        self.subsystem.access().credentials(&self.host_nqn)
    }

    /// Keeps a key for TLS that its host has had made, which opens TLS from now on.
    pub fn keep_generated(&self, made: GeneratedKey) {
        let Some(retained) = RetainedPsk::generated(made.key) else {
            return;
        };
        let origin = Origin::Generated;
        let psk = retained.tls_psk(&self.host_nqn, &self.subsystem.nqn, Version::V1, origin);
        if let Ok(psk) = psk {
            self.subsystem.generated.keep(psk, made.credentials);
        }
    }

    /// Whether it is one of discovery: no namespaces, no I/O queues.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.subsystem.is_discovery
    }

    /// Connection of its admin queue.
    #[must_use]
    pub const fn admin_queue(&self) -> QueueHandle {
        self.admin_queue
    }

    /// What its host sees, in the order of identifiers.
    #[must_use]
    pub fn namespaces(&self) -> Arc<[AttachedNamespace]> {
        let namespaces = self.namespaces.read();
        Arc::clone(&namespaces.unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether commands of I/O queues are taken; they are COMMAND SEQUENCE ERROR otherwise.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Whether the host understands retry delays (CRD of a status).
    #[inline]
    #[must_use]
    pub fn has_advanced_retry(&self) -> bool {
        self.advanced_retry.load(Ordering::Relaxed)
    }

    /// A command arrived on a queue: the host is alive (CTRATT.TBKAS).
    #[inline]
    pub fn note_activity(&self, queue_id: u16) {
        if let Some(activity) = self.activity.get(usize::from(queue_id)) {
            activity.note();
        }
    }

    /// Connections of its I/O queues.
    #[must_use]
    pub fn io_queues(&self) -> Vec<QueueHandle> {
        self.lock().open_io_queues()
    }

    /// Whether a namespace of this controller can lose completed writes.
    pub(super) fn has_volatile_cache(&self) -> bool {
        self.namespaces()
            .iter()
            .any(|ns| ns.namespace.parameters().volatile_cache)
    }

    /// The namespace that a command is about.
    pub(super) fn named(&self, id: NamespaceId) -> Result<AttachedNamespace, Failure> {
        let inactive = (1..=limits::NAMESPACES_MAX).contains(&id.0);
        self.attached(id).ok_or(if inactive {
            Failure::field(Failure::NAMESPACE_AT)
        } else {
            Failure::INVALID_NAMESPACE
        })
    }

    pub(super) fn attached(&self, id: NamespaceId) -> Option<AttachedNamespace> {
        let namespaces = self.namespaces();
        let position = namespaces.binary_search_by_key(&id, |ns| ns.id).ok()?;
        namespaces.get(position).cloned()
    }

    /// The host sees these namespaces from now on. Returns the identifiers for which that is another namespace, none,
    /// or another way to use it.
    pub(super) fn see(&self, visible: &[(&NamespaceConfig, NamespaceGrant)]) -> Vec<NamespaceId> {
        let before = self.namespaces();
        let mut changed = Vec::new();
        let after: Vec<AttachedNamespace> = visible
            .iter()
            .map(|(config, grant)| {
                let known = before.binary_search_by_key(&config.id, |known| known.id);
                let known = known.ok().map(|at| &before[at]);
                match known.filter(|known| known.is_of(config)) {
                    Some(known) => {
                        let same = known.granted(*grant);
                        if same.read_only != known.read_only {
                            changed.push(config.id);
                        }
                        same
                    }
                    None => {
                        changed.push(config.id);
                        self.attach(config, *grant)
                    }
                }
            })
            .collect();
        let gone = before.iter().map(|known| known.id);
        let gone = gone.filter(|id| after.binary_search_by_key(id, |ns| ns.id).is_err());
        changed.extend(gone);
        if !changed.is_empty() {
            let mut namespaces = self
                .namespaces
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            *namespaces = after.into();
        }
        changed
    }

    fn attach(&self, config: &NamespaceConfig, grant: NamespaceGrant) -> AttachedNamespace {
        let log = Arc::clone(&self.reservations);
        let limits = &self.subsystem.limits;
        AttachedNamespace::new(config, grant, self.host_identifier, limits, log)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.registry.forget(self.id, self);
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("id", &self.id)
            .field("subsystem", &self.subsystem.nqn)
            .field("host", &self.host_nqn)
            .finish_non_exhaustive()
    }
}
