//! The state of an NVMe/TCP connection: its machine, its queue, its tasks.

use std::sync::Arc;
use std::time::Duration;

use longshore_nvme::auth;
use longshore_nvme::command::{CommandId, SubmissionEntry};
use longshore_nvme::controller::{AttachedNamespace, Controller};
use longshore_nvme::io::{Command, FusedPair, Fusing};
use longshore_nvme::server::{CommandSlot, Connection as Machine, ConnectionConfig};
use longshore_nvme::status::Status;
use longshore_wire::transmit::Transmit;

use crate::computations::Pending;
use crate::core::Shared;
use crate::execute::inline_reads::InlineReads;
use crate::execute::task;
use crate::execute::tasks::Tasks;
use crate::mail::abort::AbortOrder;
use crate::observe::sessions::SessionId;
use crate::sessions::activity::Activity;

pub(crate) type Task = task::Task<NvmeWork>;

/// An NVMe/TCP connection's machine and queue.
#[derive(Debug)]
pub(crate) struct Nvme {
    pub(super) machine: Machine,
    pub(super) queue: Queue,
    /// If the host of the queue can authenticate.
    pub(super) authentication: Option<Box<Authentication>>,
    pub(super) tasks: Tasks<NvmeWork>,
    /// Commands wait for the writes of closed queues of the same host.
    pub(super) held: bool,
    /// The server is about to end: no more commands.
    pub(super) draining: bool,
    /// The controller is shut down: volumes are flushed once no I/O queue is left.
    pub(super) flush_at_end: bool,
    /// The host must not use the subsystem any more, and is disconnected then.
    pub(super) dismissed_ms: Option<u64>,
    /// The controller, for those who look at it.
    pub(super) id: SessionId,
    /// When it was connected, in milliseconds since the shards started.
    pub(super) since_ms: u64,
}

/// What the connection is a queue of.
#[derive(Debug)]
pub(super) enum Queue {
    /// Nothing yet: only Connect is carried out.
    Fresh,
    /// Connected, but its host has to prove who it is: only Authentication Send and Receive are carried out.
    Unproved(Box<Queue>),
    /// The admin queue of a controller.
    Admin(Arc<Controller>),
    Io(Box<IoQueue>),
    /// An I/O queue that its host has disconnected; the host closes the connection.
    Left(Arc<Controller>),
}

#[derive(Debug)]
pub(super) struct IoQueue {
    pub(super) controller: Arc<Controller>,
    pub(super) id: u16,
    /// What its host sees.
    pub(super) namespaces: Arc<[AttachedNamespace]>,
    /// The same, and behind them those that commands under way began with and that the host does not see any more.
    /// Commands know namespaces by their places here.
    pub(super) known: Arc<[AttachedNamespace]>,
    /// With it, the controller learns that nothing of the queue can act any more.
    pub(super) activity: Arc<Activity>,
    /// Finds the pairs of fused commands, by their slots.
    pub(super) fusing: Fusing<u32>,
}

/// What a task is to NVMe.
#[derive(Debug)]
pub(crate) struct NvmeWork {
    pub(super) id: CommandId,
    /// SLBA of the commands that have one.
    pub(super) first_block: u64,
    pub(super) kind: Kind,
    /// It was aborted while it could not end: with what it ends as soon as it can.
    pub(super) aborted: Option<Box<Aborted>>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A Fabrics or admin command.
    Admin(Box<SubmissionEntry>),
    /// A command of an I/O queue.
    Io(Command),
    /// Half of a Compare and Write whose data arrive, or which waits for the other half.
    Half(Box<Half>),
    /// The second half of a Compare and Write, which carries out both; the slot of the first.
    Pair { pair: Box<FusedPair>, first: u32 },
    /// A half whose part another task has taken over.
    Spent,
}

impl NvmeWork {
    /// Has the task end with this status as soon as it can. The order waits for that.
    pub(super) fn abort(&mut self, status: Status, order: Option<&Arc<AbortOrder>>) {
        let aborted = self.aborted.get_or_insert_with(|| {
            Box::new(Aborted {
                status,
                orders: Vec::new(),
            })
        });
        aborted.orders.extend(order.cloned());
    }
}

#[derive(Debug)]
pub(super) struct Aborted {
    pub(super) status: Status,
    /// What waits for its end.
    pub(super) orders: Vec<Arc<AbortOrder>>,
}

impl Nvme {
    pub(crate) fn new(shared: &Shared, now_ms: u64) -> Self {
        let limits = &shared.limits;
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = ConnectionConfig {
            in_capsule_data_bytes: limits.in_capsule_data,
            max_h2c_data_bytes: limits.r2t_bytes,
            r2t_bytes: limits.r2t_bytes,
            connect_timeout_ms: milliseconds(limits.login_timeout),
            ..ConnectionConfig::default()
        };
        Self {
            machine: Machine::new(config, now_ms),
            queue: Queue::Fresh,
            authentication: None,
            tasks: Tasks::default(),
            held: false,
            draining: false,
            flush_at_end: false,
            dismissed_ms: None,
            id: SessionId(0),
            since_ms: now_ms,
        }
    }

    /// Whether the host is sending data it was asked for, or the rest of a command: what was taken in ends
    /// only with them.
    pub(super) fn awaits_data(&self) -> bool {
        let machine = &self.machine;
        machine.is_inside_pdu()
            || machine
                .commands()
                .any(|slot| machine.outstanding_data_out(slot))
    }

    /// The controller, once connected.
    pub(super) fn controller(&self) -> Option<&Arc<Controller>> {
        self.queue.controller()
    }
}

impl Queue {
    /// The controller, once connected.
    pub(super) fn controller(&self) -> Option<&Arc<Controller>> {
        match self {
            Self::Fresh => None,
            Self::Unproved(queue) => queue.controller(),
            Self::Admin(controller) | Self::Left(controller) => Some(controller),
            Self::Io(queue) => Some(&queue.controller),
        }
    }

    /// The queue that it is, or will be.
    pub(super) fn proved(self) -> Self {
        match self {
            Self::Unproved(queue) => *queue,
            Self::Fresh | Self::Admin(_) | Self::Io(_) | Self::Left(_) => self,
        }
    }
}

/// How far the host of a queue has proved who it is.
#[derive(Debug)]
pub(super) struct Authentication {
    pub(super) machine: auth::Controller,
    /// Until when it has to be done; `None`: it is, or need not be.
    pub(super) deadline_ms: Option<u64>,
    /// What an Authentication Send waits for; given up with the connection.
    pub(super) awaited: Option<Pending>,
    /// It has failed, and that has been counted.
    pub(super) has_failed: bool,
}

/// Half of a Compare and Write.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) command: Command,
    /// Slots of both, first things first, once the second has arrived.
    pub(super) pair: Option<(u32, u32)>,
    /// Its data did not arrive well, or there was no memory for them.
    pub(super) failed: Option<Status>,
}

impl Half {
    /// Its other half has not come.
    pub(super) fn is_lone(&self) -> bool {
        self.pair.is_none()
    }

    /// It fails as soon as its data have gone by and the other half is there.
    pub(super) fn fail(&mut self, status: Status) {
        self.failed = Some(status);
    }
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
        Self::begin_inline_read(self, CommandSlot(slot), length, transmit)
    }

    #[inline(always)]
    fn read_inline(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool> {
        Self::read_inline(self, CommandSlot(slot), length, transmit, fill)
    }

    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit) {
        Self::rollback_inline_read(self, CommandSlot(slot), transmit);
    }
}
