//! The state of an iSCSI connection: its machine, its session, its tasks.

use std::time::Duration;

use longshore_iscsi::server::{Connection as Machine, ConnectionConfig, TaskId, TaskManagementId};
use longshore_scsi::command::Command;
use longshore_wire::transmit::Transmit;

use super::session::{LunEntry, Session};
use crate::address::TargetId;
use crate::core::Shared;
use crate::execute::inline_reads::InlineReads;
use crate::execute::tasks::Tasks;

/// An iSCSI connection's machine and session.
#[derive(Debug)]
pub(crate) struct Iscsi {
    pub(super) machine: Machine,
    pub(super) session: Option<Session>,
    pub(super) tasks: Tasks<ScsiWork>,
    /// How many live tasks are ORDERED.
    pub(super) ordered: usize,
    /// A task ended while there were ordered ones.
    pub(super) order_changed: bool,
    /// Tasks that have arrived.
    pub(super) sequence: u64,
    pub(super) management: Vec<PendingManagement>,
    /// Commands wait for the end of the session this one takes the place of.
    pub(super) held: bool,
}

/// What a task is to iSCSI.
#[derive(Debug)]
pub(crate) struct ScsiWork {
    pub(super) command: Command,
    /// Index into the session's logical units; `None` when the LUN has no unit.
    pub(super) lun: Option<usize>,
    pub(super) expected_data_transfer_length: u32,
    /// Place in the order of arrival on this connection.
    pub(super) sequence: u64,
    /// ORDERED (SAM-5 §8.6): all older tasks end before it runs, and no younger one runs before it ends.
    pub(super) ordered: bool,
    /// HEAD OF QUEUE: it waits for no older task.
    pub(super) head_of_queue: bool,
}

impl Iscsi {
    pub(crate) fn new(shared: &Shared, now_ms: u64) -> std::io::Result<Self> {
        let limits = &shared.limits;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = ConnectionConfig {
            login_timeout_ms: milliseconds(limits.login_timeout),
            nop_interval_ms: milliseconds(limits.nop_interval),
            nop_timeout_ms: milliseconds(limits.nop_timeout),
            logout_timeout_ms: milliseconds(limits.drain_timeout),
            queue_depth: limits.queue_depth,
            tag_seed: u64::from_ne_bytes(seed),
            ..ConnectionConfig::default()
        };
        Ok(Self {
            machine: Machine::new(config, now_ms),
            session: None,
            tasks: Tasks::default(),
            ordered: 0,
            order_changed: false,
            sequence: 0,
            management: Vec::new(),
            held: false,
        })
    }

    /// The logical units of the session.
    pub(super) fn luns(&self) -> &[LunEntry] {
        self.session
            .as_ref()
            .map_or(&[], |session| &session.luns[..])
    }
}

/// A request whose tasks have not all ended yet.
#[derive(Debug)]
pub(super) struct PendingManagement {
    pub(super) id: TaskManagementId,
    pub(super) effect: Effect,
}

/// What a function does once the tasks are gone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    None,
    /// There was no such task any more.
    Missing,
    ClearTaskSet {
        unit: usize,
    },
    ResetUnit {
        unit: usize,
    },
    /// All units of the session's map.
    ResetTarget {
        target: TargetId,
        cold: bool,
    },
}

impl InlineReads for Machine {
    #[inline]
    fn has_data_digest(&self) -> bool {
        Self::has_data_digest(self)
    }

    fn begin_inline_read<'t>(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]> {
        Self::begin_inline_read(self, TaskId(slot), length, transmit)
    }

    #[inline(always)]
    fn read_inline(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool> {
        Self::read_inline(self, TaskId(slot), length, transmit, fill)
    }

    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit) {
        Self::rollback_inline_read(self, TaskId(slot), transmit);
    }
}
