//! The description of a namespace and its controller, for a host and for people.

use longshore_nvme::command::NamespaceId;
use uuid::Uuid;

use super::admin::{Admin, is_no_namespace};
use super::identify::{
    CommandLimits, DeallocatedBlocks, IdentifyController, IdentifyNamespace, NamespaceDescriptors,
};
use super::reservation_report::Report;
use crate::error::Error;
use crate::info::{AccessState, Identifier, Protocol, Registration, ReservationReport, VolumeInfo};

/// NLB has 16 bits and is less one.
const COMMAND_BLOCKS_MAX: u64 = 1 << 16;

/// What is moved at a time where the controller has no limit of its own. More brings nothing, and takes memory at both
/// ends.
const TRANSFER_BYTES_MAX: u64 = 4 << 20;

/// A namespace, and the controller through which it was found.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) id: NamespaceId,
    pub(super) controller: IdentifyController,
    pub(super) namespace: IdentifyNamespace,
    descriptors: NamespaceDescriptors,
    limits: Option<CommandLimits>,
    page_exponent: u8,
}

impl Facts {
    /// Asks for all of it.
    ///
    /// # Errors
    /// There is no such namespace, or none that can be used.
    pub(super) fn ask(
        admin: &mut Admin,
        controller: IdentifyController,
        id: NamespaceId,
    ) -> Result<Self, Error> {
        let namespace = identify(admin, id)?;
        let descriptors = admin.namespace_descriptors(id)?;
        let limits = admin.command_limits()?;
        let facts = Self {
            id,
            controller,
            namespace,
            descriptors,
            limits,
            page_exponent: admin.capabilities().page_exponent(),
        };
        facts.check().map_err(|reason| Error::Unusable {
            portal: admin.portal().clone(),
            reason,
        })?;
        Ok(facts)
    }

    /// Asks again for what can change.
    ///
    /// # Errors
    /// The namespace is gone, or cannot be used any more.
    pub(super) fn refresh(&mut self, admin: &mut Admin) -> Result<(), Error> {
        let found = Self {
            namespace: identify(admin, self.id)?,
            ..self.clone()
        };
        found.check().map_err(|reason| Error::Unusable {
            portal: admin.portal().clone(),
            reason,
        })?;
        *self = found;
        Ok(())
    }

    /// Whether a host without metadata and with one command set can use it.
    fn check(&self) -> Result<(), String> {
        let namespace = &self.namespace;
        if let Some(set) = self.descriptors.command_set.filter(|set| *set != 0) {
            let name = match set {
                1 => "Key Value".to_owned(),
                2 => "Zoned Namespace".to_owned(),
                set => set.to_string(),
            };
            return Err(format!(
                "its command set is {name}; this host supports NVM only"
            ));
        }
        if namespace.metadata_bytes != 0 {
            let bytes = namespace.metadata_bytes;
            return Err(format!(
                "its blocks have {bytes} bytes of metadata; format or export it without metadata"
            ));
        }
        if namespace.block_size().is_none() {
            let exponent = namespace.block_exponent;
            return Err(format!("its blocks have 2^{exponent} bytes"));
        }
        let (blocks, size) = (namespace.block_count, self.block_size());
        if blocks.checked_mul(size.into()).is_none() {
            return Err(format!("it claims {blocks} blocks of {size} bytes"));
        }
        Ok(())
    }

    /// Bytes of a block.
    pub(super) fn block_size(&self) -> u32 {
        self.namespace.block_size().unwrap_or(512)
    }

    /// Most bytes of a transfer.
    pub(super) fn transfer_bytes(&self) -> u32 {
        let limit = self.controller.max_transfer_bytes(self.page_exponent);
        let bytes = limit.unwrap_or(TRANSFER_BYTES_MAX);
        u32::try_from(bytes).unwrap_or(1 << 31)
    }

    /// Most blocks of a transfer.
    fn transfer_blocks(&self) -> u64 {
        let bytes = u64::from(self.transfer_bytes());
        (bytes / u64::from(self.block_size())).clamp(1, COMMAND_BLOCKS_MAX)
    }

    /// Most blocks of a Write Zeroes. MDTS says nothing about it, but controllers too old to have a limit of its own
    /// were written with MDTS in mind; Linux is as careful.
    fn write_zeroes_blocks(&self) -> u64 {
        let Some(limits) = self.limits else {
            return self.transfer_blocks();
        };
        let Some(exponent) = limits.write_zeroes_exponent else {
            return COMMAND_BLOCKS_MAX;
        };
        let exponent = u32::from(exponent) + u32::from(self.page_exponent) + 12;
        let bytes = 1_u64.checked_shl(exponent).unwrap_or(u64::MAX);
        (bytes / u64::from(self.block_size())).clamp(1, COMMAND_BLOCKS_MAX)
    }

    /// Most blocks of the one range of a Dataset Management.
    fn unmap_blocks(&self) -> u64 {
        let limits = self.limits.unwrap_or_default();
        let range = limits.dataset_range_blocks.unwrap_or(u32::MAX);
        let all = limits.dataset_blocks.unwrap_or(u64::MAX);
        u64::from(range).min(all).max(1)
    }

    fn compare_and_write_blocks(&self) -> Option<u32> {
        let controller = &self.controller;
        let there_is = controller.fused_compare_and_write && controller.optional_commands.compare();
        let blocks = self.namespace.compare_and_write_blocks;
        let blocks = blocks.unwrap_or(controller.compare_and_write_blocks);
        let most = u32::try_from(self.transfer_blocks()).unwrap_or(u32::MAX);
        there_is.then_some(blocks.min(most))
    }

    /// The volume, as all protocols describe one.
    pub(super) fn volume_info(&self) -> VolumeInfo {
        let (controller, namespace) = (&self.controller, &self.namespace);
        let block_size = self.block_size();
        let commands = controller.optional_commands;
        // Granularities that make no sense count as not reported.
        let sensible = |blocks: &u32| blocks.is_power_of_two() && *blocks <= 1 << 12;
        let physical_blocks = namespace.preferred_write_blocks.filter(sensible);
        VolumeInfo {
            protocol: Protocol::NvmeTcp,
            block_size,
            block_count: namespace.block_count,
            physical_block_size: physical_blocks.unwrap_or(1).saturating_mul(block_size),
            read_only: namespace.write_protected,
            write_cache: controller.write_cache,
            // FUA is no option in NVMe.
            fua: true,
            unmap: commands.dataset_management(),
            unmapped_reads_zeros: namespace.deallocated_blocks == DeallocatedBlocks::Zeros,
            write_zeroes: commands.write_zeroes(),
            compare_and_write_max: self.compare_and_write_blocks(),
            extent_status: false,
            max_transfer_blocks: u32::try_from(self.transfer_blocks()).ok(),
            optimal_transfer_blocks: namespace.optimal_write_blocks,
            unmap_granularity_blocks: namespace.preferred_deallocate_blocks,
            max_unmap_blocks: Some(self.unmap_blocks()),
            max_write_zeroes_blocks: Some(self.write_zeroes_blocks()),
            vendor: "NVMe".to_owned(),
            product: controller.model.clone(),
            revision: controller.firmware.clone(),
            serial: controller.serial.clone(),
            identifiers: self.identifiers(),
        }
    }

    fn identifiers(&self) -> Vec<Identifier> {
        let (namespace, descriptors) = (&self.namespace, &self.descriptors);
        let named = |kind: &str, value: Option<String>| {
            value.map(|value| Identifier {
                kind: kind.to_owned(),
                value,
            })
        };
        let nguid = descriptors.nguid.or(namespace.nguid);
        let eui64 = descriptors.eui64.or(namespace.eui64);
        let uuid = descriptors.uuid.filter(|uuid| *uuid != [0; 16]);
        [
            named("uuid", uuid.map(|uuid| Uuid::from_bytes(uuid).to_string())),
            named("nguid", nguid.map(|id| hex(&id))),
            named("eui", eui64.map(|id| hex(&id))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What the controller has to say of itself and of the namespace, by the standard's names.
    pub(super) fn negotiated(
        &self,
        admin: &Admin,
        state: Option<AccessState>,
    ) -> Vec<(String, String)> {
        let (controller, namespace) = (&self.controller, &self.namespace);
        let version = admin.version();
        let bytes = |blocks: u32| format!("{blocks} blocks");
        let atomic = namespace
            .atomic_write_blocks
            .unwrap_or(controller.atomic_write_blocks);
        let over_power = namespace
            .atomic_write_power_fail_blocks
            .unwrap_or(controller.atomic_write_power_fail_blocks);
        let kato = admin.keep_alive();
        let mut list = vec![
            ("SUBNQN", admin.subsystem().to_string()),
            ("HOSTNQN", admin.identity().nqn.to_string()),
            ("HOSTID", Uuid::from_bytes(admin.identity().id).to_string()),
            ("CNTLID", admin.controller_id().to_string()),
            ("NSID", self.id.0.to_string()),
            (
                "VS",
                format!(
                    "{}.{}.{}",
                    version >> 16,
                    version >> 8 & 0xff,
                    version & 0xff
                ),
            ),
            (
                "CAP.MQES",
                format!("{} entries", admin.capabilities().queue_entries()),
            ),
            ("MAXCMD", or_none(controller.max_commands)),
            (
                "KATO",
                if kato.is_zero() {
                    "none".to_owned()
                } else {
                    format!("{} ms", kato.as_millis())
                },
            ),
            (
                "KAS",
                format!("{} ms", u32::from(controller.keep_alive_granularity) * 100),
            ),
            (
                "MDTS",
                controller
                    .max_transfer_bytes(self.page_exponent)
                    .map_or("no limit".to_owned(), |limit| format!("{limit} bytes")),
            ),
            ("AWUN", bytes(atomic)),
            ("AWUPF", bytes(over_power)),
            ("VWC", yes(controller.write_cache)),
            (
                "NMIC",
                if namespace.is_shared {
                    "shared"
                } else {
                    "private"
                }
                .to_owned(),
            ),
            ("RESCAP", yes(self.has_reservations())),
        ];
        if let Some(blocks) = namespace.optimal_boundary_blocks {
            list.push(("NOIOB", bytes(blocks)));
        }
        if let Some(state) = state {
            list.push(("ANA group", namespace.ana_group.to_string()));
            list.push(("ANA state", ana_text(state).to_owned()));
        }
        list.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Whether Reservation Report can be asked for.
    pub(super) fn has_reservations(&self) -> bool {
        self.controller.optional_commands.reservations() && self.namespace.has_reservations()
    }

    /// Whether the state of its ANA group can be asked for.
    pub(super) fn has_ana(&self) -> bool {
        self.controller.reports_ana && self.namespace.ana_group != 0
    }
}

/// Identify Namespace of a namespace that has to be there.
fn identify(admin: &mut Admin, id: NamespaceId) -> Result<IdentifyNamespace, Error> {
    match admin.identify_namespace(id) {
        Ok(found) if found.block_count > 0 => Ok(found),
        Err(error) if !is_no_namespace(&error) => Err(error),
        Ok(_) | Err(_) => {
            let active = admin.active_namespaces()?;
            Err(Error::NotFound {
                portal: admin.portal().clone(),
                wanted: format!("namespace {} in {}", id.0, admin.subsystem()),
                available: active
                    .iter()
                    .map(|id| format!("namespace {}", id.0))
                    .collect(),
            })
        }
    }
}

/// A Reservation Report as it is printed.
pub(super) fn reservations(report: &Report) -> ReservationReport {
    let name = |id: [u8; 16], controller| {
        format!(
            "host {} (controller {controller:04x}h)",
            Uuid::from_bytes(id)
        )
    };
    let registrations: Vec<_> = report
        .registrants
        .iter()
        .map(|registrant| Registration {
            key: registrant.key,
            registrant: name(registrant.host_id, registrant.controller_id),
            holds: registrant.is_holder,
        })
        .collect();
    let is_held = report.kind != 0;
    let holder = registrations.iter().find(|registration| registration.holds);
    ReservationReport {
        generation: report.generation,
        kind: is_held.then(|| report.kind_name().to_owned()),
        holder: holder
            .filter(|_| is_held)
            .map(|registration| format!("{:#018x}, {}", registration.key, registration.registrant)),
        registrations,
    }
}

const fn ana_text(state: AccessState) -> &'static str {
    match state {
        AccessState::Optimized => "optimized",
        AccessState::NonOptimized => "non-optimized",
        AccessState::Inaccessible => "inaccessible",
        AccessState::PersistentLoss => "persistent loss",
        AccessState::Change => "change",
    }
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn or_none(count: u16) -> String {
    if count == 0 {
        "not reported".to_owned()
    } else {
        count.to_string()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
