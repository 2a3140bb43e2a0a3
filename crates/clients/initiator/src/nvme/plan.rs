//! The number and size of I/O queues, and the settings of their connections.

use super::admin::Admin;
use super::describe::Facts;
use super::link::Link;
use crate::error::Error;
use crate::options::{Options, QueueMaps};

/// Fewest entries of an I/O queue, if the controller takes so many: a fused pair fits in.
const ENTRIES_MIN: u32 = 3;

/// What was settled for I/O queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoSettings {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    pub(super) max_h2c_data: u32,
    pub(super) flow_control: bool,
}

/// How many I/O queues there will be, and how large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) maps: QueueMaps,
    pub(super) wanted: QueueMaps,
    /// I/O queues that the controller grants.
    pub(super) granted: u16,
    pub(super) entries: u16,
    pub(super) in_capsule_data_bytes: u32,
}

impl Plan {
    pub(super) fn new(admin: &mut Admin, facts: &Facts, options: &Options) -> Result<Self, Error> {
        let wanted = u16::try_from(options.queues.total())
            .map_err(|_| Error::Options("a controller has at most 65,535 I/O queues".to_owned()))?;
        // One more than needed, for questions that only I/O queues answer.
        let granted = admin.ask_for_queues(wanted.max(1).saturating_add(1))?;
        let most = admin.capabilities().queue_entries();
        let most = match facts.controller.max_commands {
            0 => most,
            commands => most.min(commands.into()),
        };
        let entries = u32::from(options.depth)
            .saturating_add(1)
            .max(ENTRIES_MIN)
            .min(most.clamp(2, 1 << 15));
        Ok(Self {
            maps: options.queues.within(granted),
            wanted: options.queues,
            granted,
            entries: u16::try_from(entries).expect("at most 32,768"),
            in_capsule_data_bytes: facts.controller.in_capsule_data_bytes(),
        })
    }

    /// Connects the I/O queue with this number.
    pub(super) fn connect(
        &self,
        admin: &mut Admin,
        queue_id: u16,
    ) -> Result<(Link, IoSettings), Error> {
        let in_capsule = self.in_capsule_data_bytes;
        let (link, flow_control) = admin.connect_queue(queue_id, self.entries, in_capsule)?;
        let connection = link.connection();
        let settled = IoSettings {
            header_digest: connection.digests().header,
            data_digest: connection.digests().data,
            max_h2c_data: connection.max_h2c_data(),
            flow_control,
        };
        Ok((link, settled))
    }

    /// The number of an I/O queue that the controller grants and nobody uses.
    pub(super) fn spare_queue(&self) -> Option<u16> {
        let used = u16::try_from(self.maps.total()).ok()?;
        (used < self.granted).then_some(used + 1)
    }
}
