//! Controllers that are made, told and closed in any order. Whatever a host sends: an answer of at
//! most what it asked for, and states that fit together.

use std::sync::Arc;

use longshore_nvme::command::{CommandId, NamespaceId, SubmissionEntry};
use longshore_nvme::controller::{
    AdminOutcome, AdminTransfer, Controller, Deadline, Namespace, QueueHandle, Subsystems,
};
use longshore_nvme::host::commands::{ANY_CONTROLLER, Property, property_get, property_set};
use longshore_nvme::nqn::DISCOVERY_NQN;
use longshore_nvme::opcode::{Direction, FABRICS, Opcode, admin};
use longshore_nvme::sgl::SglDescriptor;

use super::subsystem::{
    BLOCKS, Driver, ENABLE, connect, controller, entry_of, name, shared, subsystems,
};
use crate::input::Input;

/// A controller and what its driver keeps of it.
struct Known {
    controller: Arc<Controller>,
    /// Asynchronous Event Requests that are outstanding.
    events: Vec<CommandId>,
}

impl Known {
    /// A reset or shutdown has ended requests without a completion.
    fn drop_events(&mut self) {
        for dropped in self.controller.take_dropped_event_requests() {
            let place = self.events.iter().position(|id| *id == dropped);
            self.events
                .swap_remove(place.expect("a request that was outstanding"));
        }
    }
}

struct World {
    subsystems: Subsystems,
    namespaces: Vec<Arc<Namespace>>,
    known: Vec<Known>,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let (subsystems, namespaces) = subsystems();
        let mut world = Self {
            subsystems,
            namespaces,
            known: Vec::new(),
            now_ms: 0,
        };
        for nqn in [shared(), name(DISCOVERY_NQN)] {
            world.keep(controller(&world.subsystems, 0, nqn));
        }
        world
    }

    fn keep(&mut self, controller: Arc<Controller>) {
        let events = Vec::new();
        self.known.push(Known { controller, events });
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let subsystem = match input.byte() % 4 {
            0 => name(DISCOVERY_NQN),
            1 => name("nqn.2026-11.local.longshore:private"),
            _ => shared(),
        };
        let mut connect = connect(input.byte() % 4, subsystem);
        connect.queue_id = u16::from(input.byte() % 6);
        connect.controller_id = match input.byte() {
            0..=0x7f => ANY_CONTROLLER,
            byte => u16::from(byte & 7),
        };
        connect.entries = match input.byte() {
            byte @ 0..=0x3f => u16::from(byte),
            _ => 32,
        };
        connect.keep_alive_ms = u32::from(input.byte()) << 8;
        let mut entry = entry_of(&connect.command());
        let mut data = connect.data().to_vec();
        if input.byte() >= 0xc0 {
            let at = usize::from(input.byte()) % 64;
            entry.0[at] ^= input.byte();
            let at = usize::from(input.byte()) << 2;
            data[at] ^= input.byte();
            data.truncate(1024 - usize::from(input.byte() / 0xf0));
        }
        self.connect_with(&entry, &data, input);
    }

    fn connect_with(&mut self, entry: &SubmissionEntry, data: &[u8], input: &mut Input<'_>) {
        let queue = QueueHandle(u128::from(input.byte()));
        let before = self.subsystems.controllers().len();
        let connected = self
            .subsystems
            .connect(entry, data, queue, &Driver, self.now_ms);
        match connected {
            Ok(association) => {
                assert!((2..=128).contains(&association.entries));
                if association.queue_id == 0 {
                    self.keep(association.controller);
                } else {
                    assert!(association.controller.io_queues().contains(&queue));
                }
            }
            Err(refusal) => {
                assert!(!refusal.status.is_success());
                assert_eq!(self.subsystems.controllers().len(), before);
            }
        }
        assert!(self.subsystems.controllers().len() <= 8);
    }

    fn execute(&mut self, index: usize, entry: &SubmissionEntry, data: &[u8]) {
        let known = &mut self.known[index];
        let transfer = AdminTransfer::of(entry);
        let mut out = vec![0xee; 3];
        let outcome = known
            .controller
            .admin(entry, data, &mut out, &Driver, self.now_ms);
        known.drop_events();
        let answer = &out[3..];
        assert_eq!(out[..3], [0xee; 3]);
        if !answer.is_empty() {
            assert_eq!(transfer.direction, Direction::ToHost);
            assert_eq!(answer.len(), transfer.length as usize);
            assert!(answer.len() <= entry.sgl().length() as usize);
        }
        match outcome {
            AdminOutcome::Complete { status, .. } => {
                let wanted = transfer.direction == Direction::ToHost;
                assert!(status.is_success() || answer.is_empty());
                assert!(
                    !status.is_success() || answer.is_empty() != (wanted && transfer.length > 0)
                );
            }
            AdminOutcome::AsyncEvent => {
                known.events.push(entry.id());
                assert!(known.events.len() <= 4);
            }
            AdminOutcome::CloseQueues { queues } | AdminOutcome::ShutDown { queues } => {
                assert_eq!(queues, known.controller.io_queues());
            }
            AdminOutcome::Abort { .. } => {}
            AdminOutcome::Sanitize { volumes, .. }
            | AdminOutcome::ExitSanitizeFailure { volumes } => {
                assert!(!volumes.is_empty());
            }
            AdminOutcome::Disconnect => panic!("an admin queue cannot be disconnected"),
        }
    }

    /// What holds at any time.
    fn check(&mut self) {
        for known in &mut self.known {
            known.drop_events();
            let Known { controller, events } = known;
            let mut completions = Vec::new();
            controller.poll_events(&mut completions);
            for completion in completions {
                let known = events.iter().position(|id| *id == completion.command);
                events.swap_remove(known.expect("a request that is outstanding"));
            }
            let property = |property| {
                let entry = entry_of(&property_get(property));
                let mut out = Vec::new();
                match controller.admin(&entry, &[], &mut out, &Driver, self.now_ms) {
                    AdminOutcome::Complete { status, result } if status.is_success() => result,
                    other => panic!("{other:?} of Property Get"),
                }
            };
            let (csts, cc) = (property(Property::CSTS), property(Property::CC));
            let (ready, failed, shutdown) = (csts & 1 != 0, csts & 2 != 0, csts >> 2 & 3);
            let enabled = cc & 1 != 0 && ready && !failed && shutdown == 0;
            assert_eq!(controller.is_enabled(), enabled);
        }
    }

    fn close(&mut self, index: usize, queue_id: u16) {
        let closed = self.known[index].controller.queue_closed(queue_id);
        if queue_id == 0 {
            let Known { controller, .. } = self.known.remove(index);
            assert_eq!(closed, controller.io_queues());
            assert!(!controller.is_enabled());
        }
    }
}

/// Mostly a command there is, with small numbers.
pub(super) fn entry(input: &mut Input<'_>) -> SubmissionEntry {
    const OPCODES: [Opcode; 9] = [
        admin::IDENTIFY,
        admin::GET_LOG_PAGE,
        admin::GET_LOG_PAGE,
        admin::GET_FEATURES,
        admin::SET_FEATURES,
        admin::ABORT,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
        FABRICS,
    ];
    let opcode = input.pick(&OPCODES);
    let namespace = NamespaceId(input.pick(&[0, 1, 2, 3, 4, u32::MAX]));
    let id = CommandId(u16::from(input.byte() & 7));
    let mut entry = SubmissionEntry::new(opcode, id, namespace);
    if opcode == FABRICS {
        entry.0[4] = input.byte() & 0x0f;
    }
    let selector = u32::from(input.byte());
    entry.set_dword(10, selector);
    for dword in 11..16 {
        let value = match input.byte() {
            0xff => input.word(),
            byte => u32::from(byte),
        };
        entry.set_dword(dword, value);
    }
    let mut length = AdminTransfer::of(&entry).length;
    match input.byte() {
        0xff => entry.set_dword(10, input.word()),
        0xf0..=0xfe => length = input.word() & 0x1fff,
        low if opcode == admin::GET_LOG_PAGE => {
            entry.set_dword(10, selector | u32::from(low) << 18);
            length = AdminTransfer::of(&entry).length;
        }
        _ => {}
    }
    entry.set_sgl(SglDescriptor::Transport { length });
    entry
}

/// Values of CC, mostly what hosts write.
fn configuration(input: &mut Input<'_>) -> u32 {
    match input.byte() % 6 {
        0..=2 => ENABLE,
        3 => 0,
        4 => ENABLE | u32::from(input.byte() & 3) << 14,
        _ => input.word(),
    }
}

/// Steps of hosts and of the driver, in any order.
pub(crate) fn nvme_admin_commands(data: &[u8]) {
    let mut input = Input(data);
    let mut world = World::new();
    while !input.is_empty() {
        let step = input.byte() % 12;
        if step == 0 || world.known.is_empty() {
            world.connect(&mut input);
            world.check();
            continue;
        }
        let index = usize::from(input.byte()) % world.known.len();
        match step {
            1..=4 => {
                let entry = entry(&mut input);
                let data = input.piece().repeat(1 + usize::from(input.byte() >> 4));
                world.execute(index, &entry, &data);
            }
            5 => {
                let entry = SubmissionEntry(input.array());
                world.execute(index, &entry, &[]);
                let controller = &world.known[index].controller;
                let _ = controller.fabrics_on_io_queue(1, &entry);
            }
            6 => {
                let value = configuration(&mut input);
                let entry = entry_of(&property_set(Property::CC, u64::from(value)));
                world.execute(index, &entry, &[]);
            }
            7 => {
                let queue_id = u16::from(input.byte() % 6);
                world.close(index, queue_id);
            }
            8 => {
                world.now_ms += u64::from(input.byte()) * 500;
                let controller = &world.known[index].controller;
                let due = controller.next_deadline_ms();
                let deadline = controller.handle_deadline(world.now_ms);
                let early = due.is_none_or(|at| at > world.now_ms);
                assert!(!early || deadline == Deadline::Nothing);
            }
            9 => {
                let volume = usize::from(input.byte()) % 2;
                world.namespaces[volume].resize(BLOCKS + u64::from(input.byte()));
                world.subsystems.namespace_resized(volume);
            }
            10 => {
                world.subsystems.health_changed(0);
                world.subsystems.discovery_changed();
            }
            _ => {
                world.known[index].controller.note_activity(1);
                world.known[index].controller.shutdown_finished();
            }
        }
        world.check();
    }
    world.known.clear();
    assert!(world.subsystems.controllers().is_empty());
}
