//! A namespace: what all controllers share of one exported volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_block::names::WorldwideNames;
use longshore_block::reservation::Reservations;
use uuid::Uuid;

use super::access::NamespaceGrant;
use super::limits::ControllerLimits;
use crate::command::NamespaceId;
use crate::io::Attached;
use crate::reservation::{HostRegistrant, NotificationLog};

/// ANAGRPID of all namespaces.
pub(super) const ANA_GROUP: u32 = 1;

/// What a namespace is and can do. Fixed, but for the number of blocks.
#[derive(Clone, Debug)]
pub struct NamespaceParameters {
    /// Source of every identifier that hosts see.
    pub uuid: Uuid,
    /// Worldwide names that the volume was given.
    pub names: WorldwideNames,
    /// Bytes of a block: 512 or 4096.
    pub block_size: u32,
    /// Bytes that the medium writes in one piece: a power of two, at least the block size.
    pub physical_block_size: u32,
    /// Blocks of the namespace, at least 1.
    pub block_count: u64,
    /// The volume never changes.
    pub read_only: bool,
    /// A completed write may be lost until a flush (VWC).
    pub volatile_cache: bool,
    /// Deallocation works, in units of this many blocks; `None`: it does nothing.
    pub unmap_granularity_blocks: Option<u32>,
    /// Deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    pub rotational: bool,
    /// The driver can store reservations, and how far sanitizing is, durably: PTPL and Sanitize are offered.
    pub can_store_reservations: bool,
    /// Registrations and the reservation of the volume, whatever protocols export it.
    pub reservations: Arc<Reservations>,
}

/// A namespace. See the module documentation.
#[derive(Debug)]
pub struct Namespace {
    parameters: NamespaceParameters,
    block_count: AtomicU64,
}

impl Namespace {
    /// A namespace of a volume.
    #[must_use]
    pub fn new(parameters: NamespaceParameters) -> Arc<Self> {
        Arc::new(Self {
            block_count: AtomicU64::new(parameters.block_count),
            parameters,
        })
    }

    /// What it is and can do. The number of blocks in there is the one it started with; see
    /// [`Self::block_count`].
    #[must_use]
    pub const fn parameters(&self) -> &NamespaceParameters {
        &self.parameters
    }

    /// Bytes of a logical block.
    #[inline]
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.parameters.block_size
    }

    /// Number of blocks at this moment.
    #[inline]
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.block_count.load(Ordering::Acquire)
    }

    /// The volume has a new size. Whether it changed. Hosts learn of it by
    /// [`Subsystems::namespace_resized`](super::Subsystems::namespace_resized).
    pub fn resize(&self, block_count: u64) -> bool {
        self.block_count.swap(block_count, Ordering::AcqRel) != block_count
    }

    /// EUI64, where the volume was given one, or one follows from its NAA designator.
    #[must_use]
    pub fn eui64(&self) -> Option<[u8; 8]> {
        self.parameters.names.eui64()
    }

    /// NGUID, unless the volume was given none.
    #[must_use]
    pub fn nguid(&self) -> Option<[u8; 16]> {
        self.parameters.names.nguid(self.parameters.uuid.as_bytes())
    }
}

/// A namespace of a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    pub id: NamespaceId,
    /// What all controllers share of it.
    pub namespace: Arc<Namespace>,
    /// The driver's index of the volume.
    pub index: usize,
}

/// A controller's part in the reservations of a namespace. It ends with the last that refers to it, which may be a
/// command of a queue that was under way when the namespace was detached.
#[derive(Debug)]
pub(super) struct Membership {
    reservations: Arc<Reservations>,
    host: Arc<HostRegistrant>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.host.leave(&self.reservations);
    }
}

impl Membership {
    pub(super) fn new(reservations: &Arc<Reservations>, host: &Arc<HostRegistrant>) -> Arc<Self> {
        Arc::new(Self {
            reservations: Arc::clone(reservations),
            host: Arc::clone(host),
        })
    }
}

/// A namespace as one controller sees it. Immutable: a controller that sees it otherwise has another one.
#[derive(Clone, Debug)]
pub struct AttachedNamespace {
    pub id: NamespaceId,
    /// What all controllers share of it.
    pub namespace: Arc<Namespace>,
    /// The driver's index of the volume.
    pub index: usize,
    /// The controller's part in the reservations.
    pub host: Arc<HostRegistrant>,
    /// The host of this controller must not write, or nobody.
    pub read_only: bool,
    /// Largest transfer of a command (MDTS); more is INVALID FIELD.
    pub max_transfer_bytes: u32,
    /// Never read: its drop ends the membership.
    pub(super) _membership: Arc<Membership>,
}

impl AttachedNamespace {
    /// A namespace as a controller of that host begins to see it. What the host has to be told of reservations goes
    /// into `log`.
    pub(super) fn new(
        config: &NamespaceConfig,
        grant: NamespaceGrant,
        host_identifier: [u8; 16],
        limits: &ControllerLimits,
        log: Arc<NotificationLog>,
    ) -> Self {
        let parameters = config.namespace.parameters();
        let reservations = &parameters.reservations;
        let host = HostRegistrant::join(reservations, host_identifier, config.id, log);
        Self {
            id: config.id,
            namespace: Arc::clone(&config.namespace),
            index: config.index,
            read_only: grant.read_only || parameters.read_only,
            max_transfer_bytes: limits.transfer_bytes(),
            _membership: Membership::new(reservations, &host),
            host,
        }
    }

    /// Whether it is that namespace.
    pub(super) fn is_of(&self, config: &NamespaceConfig) -> bool {
        self.index == config.index && Arc::ptr_eq(&self.namespace, &config.namespace)
    }

    /// The same, used as its host may now.
    pub(super) fn granted(&self, grant: NamespaceGrant) -> Self {
        Self {
            read_only: grant.read_only || self.namespace.parameters().read_only,
            ..self.clone()
        }
    }
}

impl Attached for AttachedNamespace {
    #[inline]
    fn id(&self) -> NamespaceId {
        self.id
    }

    #[inline]
    fn block_size(&self) -> u32 {
        self.namespace.block_size()
    }

    #[inline]
    fn block_count(&self) -> u64 {
        self.namespace.block_count()
    }

    #[inline]
    fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.namespace.parameters.read_only
    }

    #[inline]
    fn is_write_protected(&self) -> bool {
        self.read_only
    }

    #[inline]
    fn has_volatile_cache(&self) -> bool {
        self.namespace.parameters.volatile_cache
    }

    #[inline]
    fn reservations(&self) -> &Arc<Reservations> {
        &self.namespace.parameters.reservations
    }

    #[inline]
    fn host(&self) -> &Arc<HostRegistrant> {
        &self.host
    }

    #[inline]
    fn can_store_reservations(&self) -> bool {
        self.namespace.parameters.can_store_reservations
    }
}
