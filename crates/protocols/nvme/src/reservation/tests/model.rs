//! Random conversations, compared with a model that is written as differently as possible: a row of
//! slots, one for each host, and the rules as plain cases.

use super::*;
use proptest::prelude::*;

const HOSTS: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    keys: [u64; HOSTS],
    /// Type code, and the slot of the holder unless all registrants hold it.
    reservation: Option<(u8, Option<usize>)>,
    generation: u32,
    persists: bool,
}

/// A command, with numbers as they stand in its fields.
#[derive(Clone, Copy, Debug)]
struct Op {
    host: usize,
    opcode: u8,
    action: u32,
    ignore_existing_key: bool,
    kind: u8,
    persistence: u32,
    key: u64,
    second_key: u64,
}

impl Model {
    fn holds(&self, host: usize) -> bool {
        match self.reservation {
            None => false,
            Some((_, Some(holder))) => holder == host,
            Some((_, None)) => self.keys[host] != 0,
        }
    }

    fn reserve_by(&mut self, host: usize, kind: u8) {
        self.reservation = Some((kind, (kind < 5).then_some(host)));
    }

    fn drop_reservation_without_registrants(&mut self) {
        let orphaned = match self.reservation {
            Some((_, Some(holder))) => self.keys[holder] == 0,
            Some((_, None)) => self.keys == [0; HOSTS],
            None => false,
        };
        if orphaned {
            self.reservation = None;
        }
    }

    fn run(&mut self, op: Op) -> Status {
        let own = self.keys[op.host];
        let knows = own != 0 && own == op.key;
        let valid_type = ALL_TYPES.contains(&op.kind);
        match (op.opcode, op.action) {
            (0x0d, 0..=2) if op.persistence != 1 => self.register(op, own, knows),
            (0x11, 0..=2) | (0x15, 0..=1) if op.ignore_existing_key => INVALID_FIELD,
            (0x11, 0..=2) | (0x15, 0..=1) if !knows => CONFLICT,
            (0x11, 0) if !valid_type => INVALID_FIELD,
            (0x11, 0) => match self.reservation {
                None => {
                    self.reserve_by(op.host, op.kind);
                    SUCCESS
                }
                Some((held, _)) if held == op.kind && self.holds(op.host) => SUCCESS,
                Some(_) => CONFLICT,
            },
            (0x11, 1..=2) => self.preempt(op, valid_type),
            (0x15, 0) => match self.reservation {
                Some((held, _)) if self.holds(op.host) && held != op.kind => INVALID_FIELD,
                Some(_) if self.holds(op.host) => {
                    self.reservation = None;
                    SUCCESS
                }
                _ => SUCCESS,
            },
            (0x15, 1) => {
                self.keys = [0; HOSTS];
                self.reservation = None;
                self.generation += 1;
                SUCCESS
            }
            _ => INVALID_FIELD,
        }
    }

    fn register(&mut self, op: Op, own: u64, knows: bool) -> Status {
        let new = op.second_key;
        let may = knows || op.ignore_existing_key;
        let key = match op.action {
            0 if own == 0 && new == 0 => return INVALID_FIELD,
            0 if own != 0 && own != new => return CONFLICT,
            0 => new,
            1 if own == 0 || !may => return CONFLICT,
            1 => 0,
            _ if !may => return CONFLICT,
            _ if new == 0 => return INVALID_FIELD,
            _ => new,
        };
        self.keys[op.host] = key;
        self.generation += 1;
        self.drop_reservation_without_registrants();
        match op.persistence {
            2 => self.persists = false,
            3 => self.persists = true,
            _ => {}
        }
        SUCCESS
    }

    fn preempt(&mut self, op: Op, valid_type: bool) -> Status {
        let victim = op.second_key;
        let takes_over = match self.reservation {
            Some((_, Some(holder))) => self.keys[holder] == victim,
            Some((_, None)) => victim == 0,
            None => false,
        };
        if takes_over {
            if !valid_type {
                return INVALID_FIELD;
            }
            for other in (0..HOSTS).filter(|other| *other != op.host) {
                if victim == 0 || self.keys[other] == victim {
                    self.keys[other] = 0;
                }
            }
            self.reserve_by(op.host, op.kind);
        } else if victim == 0 {
            return INVALID_FIELD;
        } else if !self.keys.contains(&victim) {
            return CONFLICT;
        } else {
            for key in self.keys.iter_mut().filter(|key| **key == victim) {
                *key = 0;
            }
            self.drop_reservation_without_registrants();
        }
        self.generation += 1;
        SUCCESS
    }

    fn may(&self, host: usize, writes: bool) -> bool {
        let Some((kind, _)) = self.reservation else {
            return true;
        };
        let shared = matches!(kind, 3..=6) && self.keys[host] != 0;
        let read_allowed = matches!(kind, 1 | 3 | 5);
        self.holds(host) || shared || (read_allowed && !writes)
    }

    fn check(&self, world: &World, controllers: &[[Controller; 2]; HOSTS]) {
        let report = world.report();
        assert_eq!(report.generation, self.generation);
        assert_eq!(report.persists, self.persists);
        assert_eq!(report.kind, self.reservation.map_or(0, |(kind, _)| kind));
        let mut seen = 0;
        for (host, controllers) in controllers.iter().enumerate() {
            let number = u8::try_from(host + 1).unwrap();
            let mut all = report.registrants.iter();
            let found = all.find(|one| one.host_identifier == host_identifier(number));
            assert_eq!(found.map_or(0, |one| one.key), self.keys[host]);
            assert_eq!(found.is_some_and(|one| one.holds), self.holds(host));
            seen += usize::from(found.is_some());
            for controller in controllers {
                assert_eq!(controller.may_read(), self.may(host, false));
                assert_eq!(controller.may_write(), self.may(host, true));
            }
        }
        assert_eq!(report.registrants.len(), seen);
    }
}

fn op() -> impl Strategy<Value = (Op, bool)> {
    let opcode = proptest::sample::select(vec![0x0d, 0x0d, 0x11, 0x11, 0x15]);
    let action = prop_oneof![12 => 0..3_u32, 1 => 3..8_u32];
    let kind = prop_oneof![9 => 1..=6_u8, 1 => any::<u8>()];
    let persistence = prop_oneof![6 => Just(0), 1 => Just(2), 3 => Just(3), 1 => Just(1)];
    let ignore = prop::bool::weighted(0.15);
    let keys = (0..4_u64, 0..4_u64, prop::bool::weighted(0.8));
    (0..HOSTS, opcode, action, ignore, kind, persistence, keys).prop_map(
        |(host, opcode, action, ignore_existing_key, kind, persistence, keys)| {
            let (key, second_key, knows_key) = keys;
            let op = Op {
                host,
                opcode,
                action,
                ignore_existing_key,
                kind,
                persistence,
                key,
                second_key,
            };
            (op, knows_key)
        },
    )
}

fn controllers(world: &World) -> [[Controller; 2]; HOSTS] {
    std::array::from_fn(|host| {
        let number = u8::try_from(host + 1).unwrap();
        [world.controller(number), world.controller(number)]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_conversations_go_as_the_model_says(
        steps in proptest::collection::vec((op(), any::<bool>(), 0..12_u8), 1..60),
    ) {
        let mut world = World::new();
        let mut hosts = controllers(&world);
        let mut model = Model::default();
        for (index, ((mut op, knows_key), second_controller, restart)) in
            steps.into_iter().enumerate()
        {
            if knows_key {
                op.key = model.keys[op.host];
            }
            let dword = op.action
                | u32::from(op.ignore_existing_key) << 3
                | match op.opcode {
                    0x0d => op.persistence << 30,
                    _ => u32::from(op.kind) << 8,
                };
            let entry = entry(crate::opcode::Opcode(op.opcode), dword);
            let by = &hosts[op.host][usize::from(second_controller)];
            let status = world.run(by, &entry, &keys(op.key, op.second_key));
            prop_assert_eq!(status, model.run(op), "step {}: {:?}", index, op);
            model.check(&world, &hosts);
            if restart == 0 {
                // What was stored is all there is, whenever power fails.
                let stored = world.stored.take();
                world = World::new();
                if let Some(bytes) = &stored {
                    world.reservations.restore(bytes).unwrap();
                }
                world.stored = stored;
                model = if model.persists {
                    Model { generation: 0, ..model }
                } else {
                    Model::default()
                };
                hosts = controllers(&world);
                model.check(&world, &hosts);
            }
        }
    }

    #[test]
    fn random_commands_never_panic(
        commands in proptest::collection::vec(
            (any::<[u8; 64]>(), 0..5_usize, proptest::collection::vec(any::<u8>(), 0..40)), 1..20),
    ) {
        let mut world = World::new();
        let one = world.controller(1);
        for (bytes, opcode, data) in commands {
            let mut entry = SubmissionEntry(bytes);
            entry.0[0] = [0x0d, 0x0e, 0x11, 0x15, bytes[0]][opcode];
            let _ = world.run(&one, &entry, &data);
            if let Ok(report) = Report::begin(&entry) {
                report.execute(&world.reservations, 4096, &mut Vec::new());
            }
        }
    }
}
