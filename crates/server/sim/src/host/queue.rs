//! One connection of a host: the real host machine, and what was sent through it.

use std::collections::BTreeMap;

use longshore_nvme::command::CommandId;
use longshore_nvme::host::{
    Command, CommandOutcome, CommandSlot, Connection, ConnectionConfig, ConnectionEvent, Transfer,
};
use longshore_wire::transmit::{Transmit, WriteData};

use crate::environment::Shared;

/// What a command under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandRole {
    Connect,
    /// Property Get of CAP, the first thing done with a controller.
    Capabilities,
    /// Property Set of CC.
    Configure,
    /// Property Get of CSTS.
    Status,
    Identify,
    NumberOfQueues,
    AsyncEvent,
    LogPage,
    KeepAlive,
    /// Abort of a job.
    Abort(u64),
    /// Part of a job.
    Job {
        serial: u64,
        part: usize,
    },
    /// The next step of what is done about a reservation.
    Reservation,
}

/// What came of a receive.
#[derive(Debug)]
pub(super) enum Happening {
    /// The connection is initialized.
    Ready,
    /// A command has ended.
    Done {
        role: CommandRole,
        outcome: CommandOutcome,
        data: Vec<u8>,
        /// All data that were asked for have come.
        whole: bool,
    },
}

#[derive(Debug)]
struct Exchange {
    role: CommandRole,
    data_out: Vec<u8>,
    data_in: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Queue {
    /// QID; 0 is the admin queue.
    pub id: u16,
    pub wire: usize,
    pub entries: u16,
    /// SQHD of completions means something.
    pub flow_control: bool,
    /// Its Connect has succeeded.
    pub connected: bool,
    /// It does not read until then.
    pub stopped_until: u64,
    /// Connections of this host that had come to their end at the target when this one was connected:
    /// nothing of them acts any more once this one answers.
    pub predecessors: Vec<usize>,
    machine: Connection,
    transmit: Transmit,
    exchanges: BTreeMap<u16, Exchange>,
}

impl Queue {
    pub(super) fn new(id: u16, wire: usize, entries: u16, config: ConnectionConfig) -> Self {
        let mut transmit = Transmit::new();
        Self {
            id,
            wire,
            entries,
            flow_control: true,
            connected: false,
            stopped_until: 0,
            predecessors: Vec::new(),
            machine: Connection::new(config, &mut transmit),
            transmit,
            exchanges: BTreeMap::new(),
        }
    }

    /// How many commands can be sent now.
    pub(super) fn room(&self) -> usize {
        if self.machine.is_ready() {
            self.machine.slots_free()
        } else {
            0
        }
    }

    pub(super) fn set_in_capsule_data_bytes(&mut self, bytes: u32) {
        self.machine.set_in_capsule_data_bytes(bytes);
    }

    /// Whether a command for that role is under way.
    pub(super) fn is_about(&self, role: CommandRole) -> bool {
        self.count(role) > 0
    }

    pub(super) fn count(&self, role: CommandRole) -> usize {
        let exchanges = self.exchanges.values();
        exchanges.filter(|e| e.role == role).count()
    }

    /// Sends a command, for which there is [room](Self::room).
    pub(super) fn submit(
        &mut self,
        role: CommandRole,
        command: &Command,
        data: &[u8],
    ) -> CommandId {
        let slot = self
            .machine
            .submit(command, WriteData::Bytes(data), &mut self.transmit)
            .expect("the caller looked for room");
        let data_in = match command.transfer {
            Transfer::ToHost(length) => vec![0xee; length as usize],
            Transfer::None | Transfer::ToController(_) => Vec::new(),
        };
        let exchange = Exchange {
            role,
            data_out: data.to_vec(),
            data_in,
        };
        self.exchanges.insert(slot.0, exchange);
        self.machine.command_id(slot)
    }

    /// Feeds bytes to the machine.
    ///
    /// # Errors
    /// What the controller did wrong.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<Happening>, String> {
        let mut happenings = Vec::new();
        loop {
            match self.machine.next(&mut bytes, &mut self.transmit) {
                ConnectionEvent::NeedMore => return Ok(happenings),
                ConnectionEvent::Ready => happenings.push(Happening::Ready),
                ConnectionEvent::DataIn {
                    slot,
                    buffer_offset,
                    bytes,
                } => {
                    let start = buffer_offset as usize;
                    let data = &mut self.exchange(slot).data_in;
                    data[start..start + bytes.len()].copy_from_slice(bytes);
                }
                ConnectionEvent::R2t(request) => {
                    let start = request.buffer_offset as usize;
                    let exchange = &self.exchanges[&request.slot.0];
                    let data = &exchange.data_out[start..start + request.length as usize];
                    let payload = WriteData::Bytes(data);
                    self.machine
                        .send_data(&request, payload, &mut self.transmit);
                }
                ConnectionEvent::Completed { slot, outcome } => {
                    let exchange = self.exchanges.remove(&slot.0);
                    let exchange = exchange.expect("the machine knows its commands");
                    if let Some(head) = outcome.sq_head
                        && self.flow_control
                        && head >= self.entries
                    {
                        return Err(format!("SQHD {head} of {} entries", self.entries));
                    }
                    let whole = exchange.data_in.len() == outcome.data_in_length as usize;
                    happenings.push(Happening::Done {
                        role: exchange.role,
                        outcome,
                        data: exchange.data_in,
                        whole,
                    });
                }
                ConnectionEvent::Close(reason) => return Err(format!("{reason:?}")),
            }
        }
    }

    fn exchange(&mut self, slot: CommandSlot) -> &mut Exchange {
        let exchange = self.exchanges.get_mut(&slot.0);
        exchange.expect("the machine knows its commands")
    }

    /// Hands over to the network what it takes.
    pub(super) fn pump(&mut self, environment: &Shared) {
        environment.send(self.wire, &mut self.transmit);
    }
}
