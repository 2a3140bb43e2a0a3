//! Random conversations of two initiators and two hosts, compared with one model of slots.

use std::sync::Arc;

use longshore_block::reservation::ReservationClass::{Changes, Inspects, Reads};
use longshore_block::reservation::{Participant, is_same_participant};
use longshore_scsi::nexus::Nexus;
use longshore_scsi::unit::Reset;
use longshore_scsi::unit_attention::UnitAttention;
use proptest::prelude::*;

use crate::world::{Controller, Ending, World, nvme, out};

/// Slots 0 and 1 are sessions, 2 and 3 hosts.
const SLOTS: usize = 4;
const SESSIONS: usize = 2;

const RESERVATIONS_PREEMPTED: u8 = 3;
const RESERVATIONS_RELEASED: u8 = 2;
const REGISTRATIONS_PREEMPTED: u8 = 1;

#[derive(Clone, Debug, Default)]
struct Model {
    keys: [u64; SLOTS],
    /// Type as NVMe numbers it, and the slot of the holder unless all registrants hold it.
    reservation: Option<(u8, Option<usize>)>,
    /// Slot of the holder of RESERVE (6).
    legacy: Option<usize>,
    generation: u32,
    persists: bool,
    /// What each slot was told by the last command.
    told: [Vec<u8>; SLOTS],
    /// Who lost commands by the last command.
    aborted: [bool; SLOTS],
}

/// What both protocols can do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Register,
    /// REGISTER AND IGNORE EXISTING KEY; Replace with IEKEY.
    Ignore,
    Unregister,
    Reserve,
    Release,
    Clear,
    Preempt {
        abort: bool,
    },
    Reserve6,
    Release6,
    Reset,
    Reconnect,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    slot: usize,
    action: Action,
    kind: u8,
    /// To the own key if `knows_key`.
    key: u64,
    knows_key: bool,
    second_key: u64,
    persist: bool,
}

impl Op {
    fn is_session(&self) -> bool {
        self.slot < SESSIONS
    }
}

impl Model {
    fn holds(&self, slot: usize) -> bool {
        match self.reservation {
            None => false,
            Some((_, Some(holder))) => holder == slot,
            Some((_, None)) => self.keys[slot] != 0,
        }
    }

    /// Everything is permitted to it by the persistent reservation.
    fn is_let_in(&self, slot: usize) -> bool {
        let shared = self.reservation.is_some_and(|(kind, _)| kind >= 3);
        self.holds(slot) || (shared && self.keys[slot] != 0)
    }

    fn may(&self, slot: usize, reads: bool, writes: bool) -> bool {
        if let Some(holder) = self.legacy {
            return holder == slot;
        }
        let Some((kind, _)) = self.reservation else {
            return true;
        };
        self.is_let_in(slot) || !(writes || (reads && kind % 2 == 0))
    }

    fn tell_others(&mut self, but: usize, event: u8) {
        for slot in (0..SLOTS).filter(|slot| *slot != but) {
            if self.keys[slot] != 0 {
                self.told[slot].push(event);
            }
        }
    }

    fn run(&mut self, op: Op) -> Ending {
        self.told = Default::default();
        self.aborted = Default::default();
        let own = self.keys[op.slot];
        let key = if op.knows_key { own } else { op.key };
        match op.action {
            Action::Reserve6 | Action::Release6 if self.keys != [0; SLOTS] => {
                if self.is_let_in(op.slot) {
                    Ending::Success
                } else {
                    Ending::Conflict
                }
            }
            Action::Reserve6 => match self.legacy {
                Some(holder) if holder != op.slot => Ending::Conflict,
                _ => {
                    self.legacy = Some(op.slot);
                    Ending::Success
                }
            },
            Action::Release6 | Action::Reconnect => {
                self.legacy = self.legacy.filter(|holder| *holder != op.slot);
                Ending::Success
            }
            Action::Reset => {
                self.legacy = None;
                Ending::Success
            }
            _ if self.legacy.is_some() => Ending::Conflict,
            Action::Register if op.is_session() && key != own => Ending::Conflict,
            Action::Register if !op.is_session() && own != 0 && op.second_key != own => {
                Ending::Conflict
            }
            Action::Ignore | Action::Register if !op.is_session() && op.second_key == 0 => {
                Ending::Invalid
            }
            Action::Register | Action::Ignore => self.set_key(op, op.second_key),
            Action::Unregister if op.is_session() && key != own => Ending::Conflict,
            Action::Unregister if !op.is_session() && (own == 0 || key != own) => Ending::Conflict,
            Action::Unregister => self.set_key(op, 0),
            _ if own == 0 || own != key => Ending::Conflict,
            Action::Reserve => match self.reservation {
                None => {
                    self.reservation = Some((op.kind, (op.kind < 5).then_some(op.slot)));
                    Ending::Success
                }
                Some((kind, _)) if kind == op.kind && self.holds(op.slot) => Ending::Success,
                Some(_) => Ending::Conflict,
            },
            Action::Release => match self.reservation {
                Some((kind, _)) if self.holds(op.slot) && kind != op.kind => Ending::Invalid,
                Some((kind, _)) if self.holds(op.slot) => {
                    self.reservation = None;
                    if kind >= 3 {
                        self.tell_others(op.slot, RESERVATIONS_RELEASED);
                    }
                    Ending::Success
                }
                _ => Ending::Success,
            },
            Action::Clear => {
                self.tell_others(op.slot, RESERVATIONS_PREEMPTED);
                self.keys = [0; SLOTS];
                self.reservation = None;
                self.generation += 1;
                Ending::Success
            }
            Action::Preempt { abort } => self.preempt(op, abort),
        }
    }

    fn set_key(&mut self, op: Op, key: u64) -> Ending {
        let nothing = self.keys[op.slot] == 0 && key == 0;
        if nothing && op.is_session() {
            return Ending::Success;
        }
        let was_sole_holder = matches!(self.reservation, Some((_, Some(slot))) if slot == op.slot);
        self.keys[op.slot] = key;
        if key == 0 && was_sole_holder {
            let (kind, _) = self.reservation.take().unwrap();
            if kind >= 3 {
                self.tell_others(op.slot, RESERVATIONS_RELEASED);
            }
        }
        if self.keys == [0; SLOTS] {
            self.reservation = None;
        }
        if op.is_session() || op.persist {
            self.persists = op.persist;
        }
        self.generation += 1;
        Ending::Success
    }

    fn preempt(&mut self, op: Op, abort: bool) -> Ending {
        let victim = op.second_key;
        let takes_over = match self.reservation {
            Some((_, Some(holder))) => self.keys[holder] == victim,
            Some((_, None)) => victim == 0,
            None => false,
        };
        if !takes_over && victim == 0 {
            return Ending::Invalid;
        }
        if !takes_over && !self.keys.contains(&victim) {
            return Ending::Conflict;
        }
        for slot in 0..SLOTS {
            let own = slot == op.slot;
            let hit = self.keys[slot] != 0 && (victim == 0 || self.keys[slot] == victim);
            if hit && !(own && takes_over) {
                self.keys[slot] = 0;
                if !own {
                    self.told[slot].push(REGISTRATIONS_PREEMPTED);
                    self.aborted[slot] = abort;
                }
            }
        }
        if takes_over {
            if self.reservation.unwrap().0 != op.kind {
                self.tell_others(op.slot, RESERVATIONS_RELEASED);
            }
            self.reservation = Some((op.kind, (op.kind < 5).then_some(op.slot)));
        } else if self.keys == [0; SLOTS] {
            self.reservation = None;
        }
        self.generation += 1;
        Ending::Success
    }
}

struct Parties {
    world: World,
    sessions: [Arc<Nexus>; SESSIONS],
    hosts: [[Controller; 2]; SLOTS - SESSIONS],
}

impl Parties {
    fn of(world: World) -> Self {
        Self {
            sessions: [1, 2].map(|number| world.session(number)),
            hosts: [3, 4].map(|number| [world.controller(number), world.controller(number)]),
            world,
        }
    }

    /// `own`: the key of whoever asks.
    fn run(&mut self, op: Op, own: u64) -> Ending {
        self.world.aborted.clear();
        let key = if op.knows_key { own } else { op.key };
        let new_key = match op.action {
            Action::Unregister => 0,
            _ => op.second_key,
        };
        if op.action == Action::Reset {
            self.world.unit.reset(Reset::LogicalUnit);
            for nexus in &self.sessions {
                let told = nexus.take_unit_attention();
                assert_eq!(told, Some(UnitAttention::LogicalUnitReset));
            }
            return Ending::Success;
        }
        if op.is_session() {
            self.run_scsi(op, key, new_key)
        } else {
            self.run_nvme(op, key, new_key)
        }
    }

    fn run_scsi(&mut self, op: Op, key: u64, new_key: u64) -> Ending {
        let action = match op.action {
            Action::Register | Action::Unregister => 0,
            Action::Reserve => 1,
            Action::Release => 2,
            Action::Clear => 3,
            Action::Preempt { abort } => 4 + u8::from(abort),
            Action::Ignore => 6,
            Action::Reserve6 | Action::Release6 => {
                let opcode = if op.action == Action::Reserve6 {
                    0x16
                } else {
                    0x17
                };
                let nexus = &self.sessions[op.slot];
                return self.world.scsi(nexus, &[opcode, 0, 0, 0, 0, 0], &[]).0;
            }
            Action::Reconnect => {
                let number = u8::try_from(op.slot + 1).unwrap();
                self.sessions[op.slot] = self.world.session(number);
                return Ending::Success;
            }
            Action::Reset => unreachable!("of no protocol"),
        };
        let kind = [1, 3, 5, 6, 7, 8][usize::from(op.kind - 1)];
        let (cdb, list) = out(action, kind, key, new_key, op.persist);
        self.world.scsi(&self.sessions[op.slot], &cdb, &list).0
    }

    fn run_nvme(&mut self, op: Op, key: u64, new_key: u64) -> Ending {
        let persist = if op.persist { 3 << 30 } else { 0 };
        let kind = u32::from(op.kind) << 8;
        let (opcode, dword) = match op.action {
            Action::Register => (0x0d, persist),
            Action::Unregister => (0x0d, 1 | persist),
            Action::Ignore => (0x0d, 2 | 1 << 3 | persist),
            Action::Reserve => (0x11, kind),
            Action::Preempt { abort } => (0x11, (1 + u32::from(abort)) | kind),
            Action::Release => (0x15, kind),
            Action::Clear => (0x15, 1),
            other => unreachable!("{other:?} is of SCSI"),
        };
        let (entry, data) = nvme(opcode, dword, key, new_key);
        let by = &self.hosts[op.slot - SESSIONS][usize::from(op.kind) % 2];
        self.world.nvme(by, &entry, &data)
    }

    fn check(&mut self, model: &Model) {
        for (slot, nexus) in self.sessions.iter().enumerate() {
            assert_eq!(session_told(nexus), model.told[slot], "session {slot}");
            let lost = self.lost(&**nexus);
            assert_eq!(lost, model.aborted[slot]);
            for class in [Inspects, Reads, Changes] {
                let may = self.world.session_may(nexus, class);
                assert_eq!(may, model.may(slot, class == Reads, class == Changes));
            }
        }
        for (slot, controllers) in (SESSIONS..).zip(&self.hosts) {
            for controller in controllers {
                assert_eq!(host_told(controller), model.told[slot], "host {slot}");
                assert_eq!(self.lost(&*controller.host), model.aborted[slot]);
                let may = |class| !controller.host.conflicts(class);
                assert_eq!(may(Reads), model.may(slot, true, false));
                assert_eq!(may(Changes), model.may(slot, false, true));
            }
        }
        self.check_reports(model);
    }

    fn lost(&self, participant: &dyn Participant) -> bool {
        let mut aborted = self.world.aborted.iter();
        aborted.any(|one| is_same_participant(&**one, participant))
    }

    fn check_reports(&mut self, model: &Model) {
        let mut expected: Vec<u64> = model.keys.into_iter().filter(|key| *key != 0).collect();
        expected.sort_unstable();

        let report = self.world.report();
        assert_eq!(report[..4], model.generation.to_le_bytes());
        assert_eq!(report[4], model.reservation.map_or(0, |(kind, _)| kind));
        assert_eq!(report[9], u8::from(model.persists));
        let count = usize::from(report[5]);
        let le64 = |one: &[u8]| u64::from_le_bytes(one[8..16].try_into().unwrap());
        let mut keys: Vec<u64> = report[64..].chunks(64).take(count).map(le64).collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);

        let (ending, data) = self.world.read_in(&self.sessions[0].clone(), 0);
        if model.legacy.is_some() {
            assert_eq!(ending, Ending::Conflict);
            return;
        }
        assert_eq!(data[..4], model.generation.to_be_bytes());
        let be64 = |one: &[u8]| u64::from_be_bytes(one.try_into().unwrap());
        let mut keys: Vec<u64> = data[8..].chunks(8).map(be64).collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);
    }
}

/// Unit attentions as types of notifications.
fn session_told(nexus: &Nexus) -> Vec<u8> {
    std::iter::from_fn(|| nexus.take_unit_attention())
        .map(|attention| match attention {
            UnitAttention::RegistrationsPreempted => REGISTRATIONS_PREEMPTED,
            UnitAttention::ReservationsReleased => RESERVATIONS_RELEASED,
            UnitAttention::ReservationsPreempted => RESERVATIONS_PREEMPTED,
            other => panic!("unexpected {other:?}"),
        })
        .collect()
}

fn host_told(controller: &Controller) -> Vec<u8> {
    std::iter::from_fn(|| Some(controller.log.read(false)[8]).filter(|kind| *kind != 0)).collect()
}

fn op() -> impl Strategy<Value = Op> {
    let action = prop_oneof![
        4 => Just(Action::Register),
        3 => Just(Action::Ignore),
        2 => Just(Action::Unregister),
        5 => Just(Action::Reserve),
        3 => Just(Action::Release),
        1 => Just(Action::Clear),
        4 => any::<bool>().prop_map(|abort| Action::Preempt { abort }),
        1 => Just(Action::Reserve6),
        1 => Just(Action::Release6),
        1 => Just(Action::Reset),
        1 => Just(Action::Reconnect),
    ];
    let keys = (0..4_u64, prop::bool::weighted(0.8), 0..4_u64);
    let persist = prop::bool::weighted(0.3);
    (0..SLOTS, action, 1..=6_u8, keys, persist).prop_map(
        |(slot, action, kind, (key, knows_key, second_key), persist)| {
            let of_scsi = [Action::Reserve6, Action::Release6, Action::Reconnect];
            Op {
                slot: if of_scsi.contains(&action) {
                    slot % SESSIONS
                } else {
                    slot
                },
                action,
                kind,
                key,
                knows_key,
                second_key,
                persist,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_protocols_go_as_one_model_says(
        steps in proptest::collection::vec((op(), 0..15_u8), 1..80),
    ) {
        let mut parties = Parties::of(World::new());
        let mut model = Model::default();
        for (index, (op, restart)) in steps.into_iter().enumerate() {
            let own = model.keys[op.slot];
            let ending = parties.run(op, own);
            prop_assert_eq!(ending, model.run(op), "step {}: {:?}", index, op);
            parties.check(&model);
            if restart == 0 {
                let stored = parties.world.stored.take();
                let mut world = World::new();
                if let Some(bytes) = &stored {
                    world.reservations.restore(bytes).unwrap();
                }
                world.stored = stored;
                parties = Parties::of(world);
                model = if model.persists {
                    Model { generation: 0, legacy: None, ..model }
                } else {
                    Model::default()
                };
                model.told = Default::default();
                model.aborted = Default::default();
                parties.check(&model);
            }
        }
    }
}
