//! From Connect to the first command of an I/O queue, and from the last one to the end.

use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::Command;
use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Connect, Property};
use longshore_nvme::nqn::Nqn;
use longshore_wire::field;

use super::queue::CommandRole;
use super::{Host, SUBSYSTEM, State};
use crate::checker::Violation;
use crate::scene::Scene;
use crate::time::MILLISECOND;

/// CC: enabled, entries of 64 and 16 bytes.
const ENABLED: u64 = 0x0046_0001;
/// CC with entry sizes and without EN.
const DISABLED: u64 = 0x0046_0000;
/// CC: a normal shutdown.
const SHUTDOWN: u64 = ENABLED | 1 << 14;

const NUMBER_OF_QUEUES: u8 = 0x07;
impl Host {
    /// A connection is initialized: connects the queue.
    pub(super) fn connect(&mut self, place: usize, scene: &mut Scene<'_>) {
        let number = u8::try_from(self.index + 1).expect("few parties");
        let nqn = |text: &str| Nqn::new(text).expect("a valid name");
        let entries = self.queue(place).map_or(2, |queue| queue.entries);
        let is_admin = place == 0;
        let connect = Connect {
            host_identifier: [number; 16],
            host: nqn(&format!("nqn.2026-11.local.longshore:sim-{number}")),
            subsystem: nqn(SUBSYSTEM),
            controller_id: if is_admin {
                ANY_CONTROLLER
            } else {
                self.controller
            },
            queue_id: u16::try_from(place).expect("few queues"),
            entries,
            disable_flow_control: !is_admin && self.random.chance(5000),
            keep_alive_ms: if is_admin { self.keep_alive_ms } else { 0 },
        };
        let predecessors = if is_admin {
            Vec::new()
        } else {
            let environment = scene.environment.lock();
            let mut wires: Vec<usize> = self.orphans.iter().map(|orphan| orphan.wire).collect();
            wires.sort_unstable();
            wires.dedup();
            wires.retain(|wire| environment.wires[*wire].dropped);
            wires
        };
        if let Some(queue) = self.queue(place) {
            queue.predecessors = predecessors;
            queue.flow_control = !connect.disable_flow_control;
            queue.submit(CommandRole::Connect, &connect.command(), &connect.data());
        }
        self.spoke_at = scene.now();
    }

    /// Sends a command without data on the admin queue.
    pub(super) fn ask(&mut self, role: CommandRole, command: &Command) {
        if let Some(admin) = &mut self.admin
            && admin.room() > 0
            && (role == CommandRole::AsyncEvent || !admin.is_about(role))
        {
            admin.submit(role, command, &[]);
        }
    }

    /// The next step on the way to work.
    pub(super) fn proceed(
        &mut self,
        place: usize,
        role: CommandRole,
        result: u64,
        data: &[u8],
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        let now = scene.now();
        let low = |value: u64| u16::try_from(value & 0xffff).expect("masked");
        match role {
            CommandRole::Connect if place == 0 => {
                self.controller = low(result);
                self.ask(
                    CommandRole::Capabilities,
                    &commands::property_get(Property::CAP),
                );
            }
            CommandRole::Connect => {
                let limit = self.in_capsule;
                let in_capsule = self.random.pick(&[0, 600, 4096, 8192, u64::from(limit)]);
                let in_capsule = u32::try_from(in_capsule)
                    .expect("one of 32 bits")
                    .min(limit);
                if let Some(queue) = self.queue(place) {
                    queue.connected = true;
                    queue.set_in_capsule_data_bytes(in_capsule);
                }
                if place == usize::from(self.queues_granted) {
                    scene.trace(format_args!("host {}: up", self.index));
                    self.state = State::Up;
                    self.next_command = now;
                }
            }
            CommandRole::Capabilities => {
                self.entries_max = low(result).saturating_add(1);
                self.configure(ENABLED);
            }
            CommandRole::Configure | CommandRole::Status if !self.is_changing() => {
                if role == CommandRole::Status && result & 1 == 1 {
                    self.ask(
                        CommandRole::Identify,
                        &commands::identify(1, NamespaceId::NONE),
                    );
                } else {
                    self.ask(CommandRole::Status, &commands::property_get(Property::CSTS));
                }
            }
            CommandRole::Status => self.changed(result, scene)?,
            CommandRole::Identify => {
                let identified: [u8; 4096] = data.try_into().expect("as long as asked for");
                // IOCCSZ, in units of 16 bytes.
                self.in_capsule = (field::le32(&identified, 1792) * 16).saturating_sub(64);
                let count = self.queues_wanted - 1;
                self.ask(
                    CommandRole::NumberOfQueues,
                    &commands::set_features(NUMBER_OF_QUEUES, count << 16 | count),
                );
            }
            CommandRole::NumberOfQueues => {
                let wanted = u16::try_from(self.queues_wanted).expect("small");
                self.queues_granted = wanted.min(low(result).saturating_add(1));
                self.state = State::Opening { since: now };
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn configure(&mut self, value: u64) {
        let command = commands::property_set(Property::CC, value);
        self.ask(CommandRole::Configure, &command);
    }

    /// CSTS while the controller is reset or shut down.
    pub(super) fn changed(&mut self, status: u64, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        match self.state {
            State::Resetting { .. } if status & 1 == 0 => {
                self.check_queues_closed(scene)?;
                for wire in self.io.iter().map(|queue| queue.wire).collect::<Vec<_>>() {
                    scene.environment.lock().close_at_initiator(wire);
                    self.drop_queue(wire, scene);
                }
                self.configure(ENABLED);
                self.state = State::Starting { since: now };
            }
            State::Leaving { .. } if status >> 2 & 3 == 2 => {
                self.check_queues_closed(scene)?;
                scene.trace(format_args!("host {}: shut down", self.index));
                let shutdown = std::mem::take(&mut self.shutdown);
                for (unit, started) in shutdown.into_iter().enumerate() {
                    // The controller has not flushed what its host does not see.
                    let missed = scene.noticed.absences[unit].may_miss(self.left_at);
                    if missed || scene.has_disk_errors(unit) {
                        scene.histories[unit].read_over(started);
                    } else {
                        scene.histories[unit].flush_done(started);
                    }
                }
                self.lost(scene, "left", true);
            }
            _ => {}
        }
        Ok(())
    }

    /// A reset or shutdown is over, so all I/O queues must be.
    pub(super) fn check_queues_closed(&self, scene: &Scene<'_>) -> Result<(), Violation> {
        let environment = scene.environment.lock();
        let open = self
            .io
            .iter()
            .find(|queue| !environment.wires[queue.wire].dropped);
        match open {
            Some(queue) => Err(self.protocol(format!(
                "QID {} is open behind the end of a reset or shutdown",
                queue.id
            ))),
            None => Ok(()),
        }
    }

    /// The host must say something in time.
    pub(super) fn keep_alive(&mut self, now: u64) {
        let interval = u64::from(self.keep_alive_ms) * MILLISECOND / 3;
        let speaks = matches!(self.state, State::Opening { .. } | State::Up);
        if speaks && now >= self.spoke_at + interval {
            self.spoke_at = now;
            self.ask(CommandRole::KeepAlive, &commands::keep_alive());
        }
    }

    /// Resets the controller; the admin queue stays.
    pub(super) fn reset(&mut self, scene: &mut Scene<'_>) {
        scene.trace(format_args!("host {}: resets its controller", self.index));
        let now = scene.now();
        self.configure(DISABLED);
        self.state = State::Resetting { since: now };
        self.look_at = now;
    }

    /// Shuts the controller down.
    pub(super) fn leave(&mut self, scene: &mut Scene<'_>) {
        scene.trace(format_args!("host {}: shuts down", self.index));
        let now = scene.now();
        for started in std::mem::take(&mut self.shutdown).into_iter().enumerate() {
            scene.histories[started.0].read_over(started.1);
        }
        let histories = scene.histories.iter_mut();
        self.shutdown = histories.map(|history| history.begin_read()).collect();
        self.left_at = now;
        self.configure(SHUTDOWN);
        self.state = State::Leaving { since: now };
        self.look_at = now;
    }
}
