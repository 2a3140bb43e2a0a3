//! A volume as a logical unit and a namespace.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_block::reservation::Reservations;
use longshore_nvme::controller::{Health, Namespace, NamespaceParameters, Subsystems};
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig, SharedSpace};
use longshore_scsi::unit_attention::UnitAttention;
use longshore_volume::{AttemptCost, Fullness, SOFT_THRESHOLDS, Throttle, Volume, WriteCache};

use super::vacant::Vacant;
use crate::config::Copies;
use crate::counters::volume::VolumeStatistics;
use crate::gate::WriteGate;
use crate::mail::waiters::SanitizeWaiters;

/// Largest READ or WRITE, in bytes, where there is memory for it: the MAXIMUM TRANSFER LENGTH of the
/// block limits VPD page.
const MAX_TRANSFER_BYTES: u32 = 16 << 20;
/// Initiators take it for granted that this much goes through.
const MAX_TRANSFER_BYTES_LEAST: u32 = 64 << 10;

/// The largest READ or WRITE with `memory` bytes for payload. A command that can never have the
/// memory it needs would wait for ever.
pub(crate) fn max_transfer_bytes(memory: u64) -> u32 {
    let quarter = u32::try_from(memory / 4).unwrap_or(u32::MAX);
    quarter.clamp(MAX_TRANSFER_BYTES_LEAST, MAX_TRANSFER_BYTES)
}

/// What hosts read in the log of their logical block provisioning.
fn shared_space(fullness: Fullness) -> SharedSpace {
    SharedSpace {
        size: fullness.size,
        capacity: fullness.capacity,
        used: fullness.used,
    }
}

/// A volume as a logical unit and a namespace.
pub(crate) struct Unit {
    pub volume: Arc<dyn Volume>,
    pub logical_unit: Arc<LogicalUnit>,
    pub namespace: Arc<Namespace>,
    pub statistics: VolumeStatistics,
    pub gate: WriteGate,
    pub throttle: Arc<Throttle>,
    pub sanitize_waiters: SanitizeWaiters,
    sanitize_stored: Mutex<()>,
    /// Work for a sanitize operation that is under way.
    pub sanitizing: AtomicUsize,
    /// It is exported no more.
    pub is_removed: AtomicBool,
    /// log2 of the block size.
    pub block_shift: u32,
    pub attempt_cost: AttemptCost,
    /// Its pages may be sent by reference.
    pub splices: bool,
    /// The soft threshold of space that hosts know of, in percent.
    threshold_told: AtomicU8,
    is_vacant: bool,
}

impl Unit {
    pub(crate) fn new(
        volume: Arc<dyn Volume>,
        shards: usize,
        keeps_reservations: bool,
        memory: u64,
        copies: Copies,
    ) -> Self {
        let identity = volume.identity();
        let geometry = volume.geometry();
        let characteristics = volume.characteristics();
        let block_size = geometry.block_size;
        let volatile_cache = characteristics.write_cache == WriteCache::Volatile;
        let unmap_granularity_blocks = characteristics
            .unmap_granularity
            .map(|bytes| bytes.div_ceil(block_size));
        let max_transfer_blocks = max_transfer_bytes(memory) / block_size;
        let reservations = Reservations::new();
        let fullness = volume.fullness();
        let is_thin = unmap_granularity_blocks.is_some();
        let logical_unit = LogicalUnit::new(
            LogicalUnitConfig {
                uuid: identity.uuid,
                name: identity.name.clone(),
                serial: identity.serial.clone(),
                vendor: identity.vendor.clone(),
                product: identity.product.clone(),
                names: identity.names,
                block_size,
                physical_block_size: characteristics.physical_block_size,
                block_count: geometry.block_count,
                read_only: characteristics.read_only,
                volatile_cache,
                unmap_granularity_blocks,
                unmapped_reads_zeros: characteristics.unmapped_reads_zeros,
                rotational: characteristics.rotational,
                max_transfer_blocks,
                persistent_reservations_store: keeps_reservations,
                soft_thresholds: if is_thin && fullness.size > 0 {
                    &SOFT_THRESHOLDS
                } else {
                    &[]
                },
                product_revision: product_revision(),
            },
            Arc::clone(&reservations),
        );
        logical_unit.set_shared_space(shared_space(fullness));
        let namespace = Namespace::new(NamespaceParameters {
            uuid: identity.uuid,
            names: identity.names,
            block_size,
            physical_block_size: characteristics.physical_block_size,
            block_count: geometry.block_count,
            read_only: characteristics.read_only,
            volatile_cache,
            unmap_granularity_blocks,
            unmapped_reads_zeros: characteristics.unmapped_reads_zeros,
            rotational: characteristics.rotational,
            can_store_reservations: keeps_reservations,
            reservations,
        });
        Self {
            block_shift: block_size.trailing_zeros(),
            attempt_cost: volume.attempt_cost(),
            splices: copies.splice.is_done(characteristics.read_only),
            gate: WriteGate::new(shards),
            throttle: volume.throttle().cloned().unwrap_or_default(),
            sanitize_waiters: SanitizeWaiters::default(),
            sanitize_stored: Mutex::default(),
            sanitizing: AtomicUsize::new(0),
            is_removed: AtomicBool::new(false),
            logical_unit,
            namespace,
            statistics: VolumeStatistics::new(shards),
            volume,
            threshold_told: AtomicU8::new(0),
            is_vacant: false,
        }
    }

    /// What stands in a place without a unit.
    pub(super) fn vacant(shards: usize, copies: Copies) -> Self {
        Self {
            is_vacant: true,
            ..Self::new(Vacant::volume(), shards, false, 0, copies)
        }
    }

    /// Whether this only stands in for a unit.
    pub(crate) fn is_vacant(&self) -> bool {
        self.is_vacant
    }

    /// Held while the state of a sanitize operation is stored, so that what is stored last is the newest.
    pub(crate) fn sanitize_order(&self) -> MutexGuard<'_, ()> {
        let order = self.sanitize_stored.lock();
        order.unwrap_or_else(PoisonError::into_inner)
    }

    /// What hosts of the namespace read in its SMART / Health log.
    pub(crate) fn health(&self) -> Health {
        let has_failed = !self.volume.condition().is_sound();
        Health {
            degraded: has_failed,
            read_only: has_failed,
            used_percent: self.volume.fullness().percent,
        }
    }

    /// Tells hosts, once, that use of the space below the volume has reached another soft threshold.
    pub(crate) fn tell_of_fullness(&self, subsystems: &Subsystems, place: usize) {
        let fullness = self.volume.fullness();
        self.logical_unit.set_shared_space(shared_space(fullness));
        let reached = fullness.threshold;
        if reached <= self.threshold_told.swap(reached, Ordering::Relaxed) {
            return;
        }
        self.logical_unit
            .establish_for_all(UnitAttention::SoftThresholdReached);
        if self.health().lacks_spare() {
            subsystems.spare_low(place);
        }
    }

    /// Something went wrong with the volume. If it is the volume as a whole that has failed, hosts that want to know are
    /// told, once.
    #[cold]
    pub(crate) fn tell_of_failure(&self, subsystems: &Subsystems, place: usize) {
        if !self.volume.condition().is_sound() && self.statistics.is_news() {
            subsystems.health_changed(place);
        }
    }
}

/// Major and minor version in four characters.
pub(crate) fn product_revision() -> String {
    let version = concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        ".",
        env!("CARGO_PKG_VERSION_MINOR")
    );
    format!("{version:<4.4}")
}
