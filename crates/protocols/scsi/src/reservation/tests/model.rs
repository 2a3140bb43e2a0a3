//! Random conversations, compared with a model that is written as differently as possible: a row of
//! slots, one for each host, and the rules of SPC-4 §5.12 as plain cases.

use super::*;
use proptest::prelude::*;

const HOSTS: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    keys: [u64; HOSTS],
    /// Type code, and the slot of the holder unless all registrants hold it.
    reservation: Option<(u8, Option<usize>)>,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Good,
    Conflict,
    Check,
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
        self.reservation = Some((kind, (kind < 7).then_some(host)));
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

    fn set_key(&mut self, host: usize, key: u64) -> Expected {
        if self.keys[host] != 0 || key != 0 {
            self.keys[host] = key;
            self.generation += 1;
            self.drop_reservation_without_registrants();
        }
        Expected::Good
    }

    fn out(&mut self, host: usize, action: u8, kind: u8, key: u64, new_key: u64) -> Expected {
        let own = self.keys[host];
        let valid_type = ALL_TYPES.contains(&kind);
        match action {
            REGISTER if key == own => self.set_key(host, new_key),
            REGISTER => Expected::Conflict,
            REGISTER_AND_IGNORE => self.set_key(host, new_key),
            _ if own == 0 || own != key => Expected::Conflict,
            RESERVE if !valid_type => Expected::Check,
            RESERVE => match self.reservation {
                None => {
                    self.reserve_by(host, kind);
                    Expected::Good
                }
                Some((held, _)) if held == kind && self.holds(host) => Expected::Good,
                Some(_) => Expected::Conflict,
            },
            RELEASE => match self.reservation {
                Some((held, _)) if self.holds(host) && held != kind => Expected::Check,
                Some(_) if self.holds(host) => {
                    self.reservation = None;
                    Expected::Good
                }
                _ => Expected::Good,
            },
            CLEAR => {
                *self = Self {
                    generation: self.generation + 1,
                    ..Self::default()
                };
                Expected::Good
            }
            PREEMPT | PREEMPT_AND_ABORT => self.preempt(host, kind, new_key, valid_type),
            _ => Expected::Conflict,
        }
    }

    fn preempt(&mut self, host: usize, kind: u8, victim: u64, valid_type: bool) -> Expected {
        let takes_over = match self.reservation {
            Some((_, Some(holder))) => self.keys[holder] == victim,
            Some((_, None)) => victim == 0,
            None => false,
        };
        if takes_over {
            if !valid_type {
                return Expected::Check;
            }
            for other in (0..HOSTS).filter(|other| *other != host) {
                if victim == 0 || self.keys[other] == victim {
                    self.keys[other] = 0;
                }
            }
            self.reserve_by(host, kind);
        } else if victim == 0 {
            return Expected::Check;
        } else if !self.keys.contains(&victim) {
            return Expected::Conflict;
        } else {
            for key in self.keys.iter_mut().filter(|key| **key == victim) {
                *key = 0;
            }
            self.drop_reservation_without_registrants();
        }
        self.generation += 1;
        Expected::Good
    }

    fn may(&self, host: usize, writes: bool) -> bool {
        let Some((kind, _)) = self.reservation else {
            return true;
        };
        let shared = matches!(kind, 5..=8) && self.keys[host] != 0;
        let read_allowed = matches!(kind, 1 | 5 | 7);
        self.holds(host) || shared || (read_allowed && !writes)
    }
}

fn key() -> impl Strategy<Value = u64> {
    0u64..4
}

fn kind() -> impl Strategy<Value = u8> {
    prop_oneof![9 => proptest::sample::select(ALL_TYPES.to_vec()), 1 => 0u8..16]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_conversations_go_as_the_model_says(
        steps in proptest::collection::vec(
            (0..HOSTS, 0u8..7, kind(), key(), key(), any::<bool>(), any::<bool>()), 1..60),
    ) {
        let mut world = World::new();
        let mut hosts = [1, 2, 3, 4].map(|number| world.host(number));
        let mut model = Model::default();
        for (host, action, kind, key, new_key, knows_key, restarts) in steps {
            let key = if knows_key { model.keys[host] } else { key };
            let flags = list(key, new_key, APTPL);
            let outcome = world.out_with(&hosts[host].clone(), action, kind, &flags);
            let expected = model.out(host, action, kind, key, new_key);
            match (&outcome, expected) {
                (ReservationOutcome::Good, Expected::Good)
                | (ReservationOutcome::Conflict, Expected::Conflict)
                | (ReservationOutcome::Check(_), Expected::Check) => {}
                _ => prop_assert!(false, "action {action}: {outcome:?}, expected {expected:?}"),
            }
            hosts.iter().for_each(|nexus| drop(attentions(nexus)));
            let mut keys = world.keys(&hosts[0]);
            keys.sort_unstable();
            let mut expected: Vec<u64> = model.keys.into_iter().filter(|key| *key != 0).collect();
            expected.sort_unstable();
            prop_assert_eq!(keys, expected);
            let expected = model.reservation.map(|(kind, holder)| {
                (holder.map_or(0, |holder| model.keys[holder]), kind)
            });
            prop_assert_eq!(world.reservation(&hosts[0]), expected);
            prop_assert_eq!(world.generation(&hosts[0]), model.generation);
            for (index, nexus) in hosts.iter().enumerate() {
                prop_assert_eq!(world.read(nexus) == ReservationOutcome::Good, model.may(index, false));
                prop_assert_eq!(world.write(nexus) == ReservationOutcome::Good, model.may(index, true));
            }
            if restarts {
                // What was stored is all there is, whenever power fails.
                let stored = world.stored.take();
                world = World::new();
                if let Some(bytes) = &stored {
                    world.unit.reservations().restore(bytes).unwrap();
                    model.generation = 0;
                } else {
                    model = Model::default();
                }
                world.stored = stored;
                hosts = [1, 2, 3, 4].map(|number| world.host(number));
            }
        }
    }

    #[test]
    fn random_parameter_lists_never_panic(
        lists in proptest::collection::vec(
            (0u8..32, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..120)), 1..20),
    ) {
        let mut world = World::new();
        let one = world.host(1);
        world.register(&one, 0);
        for (action, kind, list) in lists {
            let _ = world.out_with(&one, action, kind, &list);
            let mut begun = list.clone();
            begun.resize(24, 0);
            let _ = world.out_with(&one, REGISTER_AND_IGNORE, kind, &begun);
            for action in 0..4 {
                let _ = world.run(&one, &in_cdb(action), &[]);
            }
        }
    }
}
