//! All that is asked for with its secrets, for a tree that only the server's user reads.

use std::time::Duration;

use longshore_api::change::Revision;
use longshore_api::object::{Document, Keys, ObjectKind, Owner};
use longshore_server::config::TransmitConfig;
use serde_json::{Value, json};

use super::super::objects::Described;
use super::parts::Plane;
use crate::config::Config;

/// All that is asked for. What is there by default is left out.
pub struct Whole {
    pub revision: Revision,
    /// The objects of the API.
    pub api: Document,
    pub volumes: Vec<WholeVolume>,
    pub targets: Vec<(String, Owner, Keys)>,
    /// Settings that are described, by name.
    pub settings: Vec<(String, Keys)>,
    /// When responses are sent.
    pub transmit: TransmitConfig,
    /// Volumes in maps of subsystems.
    pub in_subsystems: Vec<String>,
    /// Commands that a session may have outstanding.
    pub queue_depth: u64,
    /// Between questions to a silent initiator.
    pub nop_interval: Duration,
    /// For the answer to one.
    pub nop_timeout: Duration,
}

pub struct WholeVolume {
    pub name: String,
    pub owner: Owner,
    pub keys: Keys,
    /// 0: it is not open.
    pub size_bytes: u64,
    pub serial: String,
}

impl Plane {
    /// All that is asked for, with secrets.
    #[must_use]
    pub fn whole(&self) -> Whole {
        let now = self.now();
        let of = |kind| {
            let all = now.objects.of_kind(kind);
            all.filter(|(_, described)| !described.is_default)
        };
        let volumes = of(ObjectKind::Volume).map(|(id, described)| {
            let open = now.open.get(&id.name);
            WholeVolume {
                name: id.name.clone(),
                owner: described.owner,
                keys: keys(described),
                size_bytes: open.map_or(0, |volume| volume.geometry().size_bytes()),
                serial: open.map_or_else(String::new, |it| it.identity().serial.clone()),
            }
        });
        let targets = of(ObjectKind::Target).map(|(id, described)| {
            let mut keys = keys(described);
            let luns = keys.entry("luns");
            luns.or_insert_with(|| volumes_in_order(&now.config));
            (id.name.clone(), described.owner, keys)
        });
        let settings =
            of(ObjectKind::Setting).map(|(id, described)| (id.name.clone(), keys(described)));
        let subsystems = now.config.subsystems.iter();
        let maps = subsystems.flat_map(|subsystem| subsystem.maps().flatten());
        let in_subsystems = maps.map(|entry| now.config.volumes[entry.volume].spec.name.clone());
        Whole {
            revision: now.revision,
            api: now.objects.api_document(),
            volumes: volumes.collect(),
            targets: targets.collect(),
            settings: settings.collect(),
            transmit: now.config.engine.transmit,
            in_subsystems: in_subsystems.collect(),
            queue_depth: u64::from(now.config.limits.queue_depth),
            nop_interval: now.config.limits.nop_interval,
            nop_timeout: now.config.limits.nop_timeout,
        }
    }

    /// Whether a volume of that name is on its way out.
    #[must_use]
    pub fn is_leaving(&self, name: &str) -> bool {
        let all = self.leaving.all(self.switch.leaving());
        all.iter().any(|(leaving, _)| leaving.volume == name)
    }
}

/// As it is stored, or in one form where the API cannot change it.
fn keys(described: &Described) -> Keys {
    match described.owner {
        Owner::Api => described.keys.clone(),
        Owner::File | Owner::CommandLine => described.normal.clone(),
    }
}

/// The map of a target without one.
fn volumes_in_order(config: &Config) -> Value {
    let volumes = config.volumes.iter();
    let own = volumes.filter(|source| source.owner != Owner::Api);
    let entries = own.enumerate();
    entries
        .map(|(lun, source)| json!({"lun": lun, "volume": source.spec.name}))
        .collect()
}
