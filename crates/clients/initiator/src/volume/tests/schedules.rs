//! Random schedules of submissions, answers, cuts and failures, against a model: every operation completes once, and
//! what was acknowledged is there.
//!
//! Each block has one writer that counts up, so that any older value after an acknowledged one is a lost or late
//! write, whatever order other blocks are written in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::fake::Behaviour;
use super::*;
use crate::volume::{Cork, PathPolicy};

const BLOCKS: u64 = 12;

/// So late may a server be with what a cut connection has left.
const SETTLE: Duration = Duration::from_millis(15);

/// What one run is like.
#[derive(Clone, Debug)]
struct Plan {
    portals: usize,
    queues: u16,
    drivers: usize,
    spread: bool,
    reinstates: bool,
    room: usize,
    send_limit: usize,
    steps: Vec<Step>,
    /// Drawn from in turn, for each operation that arrives.
    behaviours: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes the block's next value.
    Write {
        block: u64,
        blocks: u64,
    },
    Read {
        block: u64,
        blocks: u64,
    },
    /// From the block's last known value to the next.
    CompareAndWrite {
        block: u64,
    },
    Flush,
    TakeAway(usize),
    BringBack(usize),
    Release,
    /// The server gets to what a cut connection has left.
    Late,
    /// Waits until all that was submitted has completed.
    Settle,
    Pause,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..BLOCKS, 1..30u64).prop_map(|(block, blocks)| Step::Write { block, blocks }),
        6 => (0..BLOCKS, 1..30u64).prop_map(|(block, blocks)| Step::Read { block, blocks }),
        2 => (0..BLOCKS).prop_map(|block| Step::CompareAndWrite { block }),
        1 => Just(Step::Flush),
        1 => (0..2usize).prop_map(Step::TakeAway),
        2 => (0..2usize).prop_map(Step::BringBack),
        2 => Just(Step::Release),
        1 => Just(Step::Late),
        1 => Just(Step::Settle),
        1 => Just(Step::Pause),
    ];
    prop::collection::vec(step, 1..60)
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        (1..3usize, 1..4u16, 1..3usize, any::<bool>(), any::<bool>()),
        (1..6usize, prop_oneof![Just(1usize), Just(usize::MAX)]),
        steps(),
        prop::collection::vec(any::<u8>(), 1..40),
    )
        .prop_map(
            |(
                (portals, queues, drivers, spread, reinstates),
                (room, send_limit),
                steps,
                behaviours,
            )| {
                Plan {
                    portals,
                    queues,
                    drivers,
                    spread,
                    reinstates,
                    room,
                    send_limit,
                    steps,
                    behaviours,
                }
            },
        )
}

fn behaviour(byte: u8) -> Behaviour {
    match byte {
        0..160 => Behaviour::Answer,
        160..200 => Behaviour::Hold,
        200..210 => Behaviour::CutBefore,
        210..220 => Behaviour::CutAfter,
        220..230 => Behaviour::CutAndLate,
        _ => Behaviour::Fail(Failure::Scsi {
            status: 0x08,
            sense: None,
        }),
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The newest value that was acknowledged.
    acknowledged: u64,
    /// The newest that was submitted.
    submitted: u64,
    /// A write is under way: no other may be.
    busy: bool,
}

/// The model, and where completions go. A block's blocks are those at `block * 32`.
struct Model {
    blocks: Mutex<Vec<Block>>,
    open: Mutex<HashMap<u64, Step>>,
    completed: AtomicU64,
    /// What was found wrong: completers run in drivers, where a panic would say nothing.
    faults: Mutex<Vec<String>>,
}

impl Completer for Model {
    fn complete(&self, completion: Completion) {
        let Some(step) = self.open.lock().unwrap().remove(&completion.tag) else {
            self.fault(format!("tag {} completed twice", completion.tag));
            return;
        };
        let mut blocks = self.blocks.lock().unwrap();
        match (step, &completion.result) {
            (Step::Write { block, .. }, result) => {
                let block = &mut blocks[block as usize];
                block.busy = false;
                match result {
                    Ok(_) => block.acknowledged = block.submitted,
                    Err(Failure::ConnectionLost(_) | Failure::Scsi { .. }) => {}
                    Err(other) => self.fault(format!("write: {other:?}")),
                }
            }
            (Step::CompareAndWrite { block }, result) => {
                let block = &mut blocks[block as usize];
                block.busy = false;
                match result {
                    Ok(_) => block.acknowledged = block.submitted,
                    // Its expectation may be wrong after a write with an unknown result.
                    Err(
                        Failure::OutcomeUnknown(_)
                        | Failure::Miscompare { .. }
                        | Failure::Scsi { .. },
                    ) => {}
                    Err(other) => self.fault(format!("compare and write: {other:?}")),
                }
            }
            (Step::Read { .. } | Step::Flush, Ok(_) | Err(Failure::ConnectionLost(_))) => {}
            (step, Err(other)) => self.fault(format!("{step:?}: {other:?}")),
            (step, Ok(_)) => self.fault(format!("{step:?} is no operation")),
        }
        drop(blocks);
        self.completed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Model {
    fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }

    /// The operation of a step, unless its block has a write under way.
    fn begin(&self, step: &Step) -> Option<(Operation, Data)> {
        let mut blocks = self.blocks.lock().unwrap();
        match *step {
            Step::Write {
                block,
                blocks: count,
            } => {
                let state = &mut blocks[block as usize];
                if std::mem::replace(&mut state.busy, true) {
                    return None;
                }
                state.submitted += 1;
                let operation = write(block * 32, count);
                Some((operation, data_for(&operation, state.submitted)))
            }
            Step::Read { block, blocks } => {
                let operation = read(block * 32, blocks);
                Some((operation, data_for(&operation, 0)))
            }
            Step::CompareAndWrite { block } => {
                let state = &mut blocks[block as usize];
                if std::mem::replace(&mut state.busy, true) {
                    return None;
                }
                let expected = state.acknowledged;
                state.submitted += 1;
                Some((
                    compare_and_write(block * 32, 1),
                    Data::buffer(buffer(&[expected, state.submitted])),
                ))
            }
            Step::Flush => Some((Operation::Flush, Data::None)),
            _ => None,
        }
    }
}

fn play(plan: Plan) {
    let fake = Fake::new(plan.portals);
    {
        let mut world = fake.world();
        world.reinstates = plan.reinstates;
        world.room = plan.room;
        world.send_limit = plan.send_limit;
        for portal in &mut world.portals {
            portal.maps = QueueMaps::plain(plan.queues);
        }
    }
    let mut settings = settings();
    settings.queues = QueueMaps::plain(plan.queues);
    settings.volume.drivers = plan.drivers;
    settings.volume.resubmissions = 1000;
    settings.volume.settle = SETTLE;
    if plan.spread {
        settings.volume.policy = PathPolicy::Spread;
    }
    let volume = open_with(&fake, settings);
    let mut behaviours = plan.behaviours.clone().into_iter().cycle();
    // One queue with a write that always cuts would have no end: each byte counts once.
    let mut left = plan.behaviours.len() * 3;
    fake.foretell(move |_, _| {
        left = left.saturating_sub(1);
        if left == 0 {
            return Behaviour::Answer;
        }
        behaviours.next().map_or(Behaviour::Answer, behaviour)
    });
    let model = Arc::new(Model {
        blocks: Mutex::new(vec![Block::default(); BLOCKS as usize]),
        open: Mutex::default(),
        completed: AtomicU64::new(0),
        faults: Mutex::default(),
    });
    let mut submitted = 0;
    let settle = |submitted: u64| {
        until("all have completed", || {
            for portal in 0..plan.portals {
                fake.bring_back(portal);
            }
            fake.release();
            model.completed.load(Ordering::SeqCst) == submitted
        });
    };
    let mut cork = None;
    for step in &plan.steps {
        match step {
            Step::TakeAway(portal) => fake.take_away(portal % plan.portals),
            Step::BringBack(portal) => fake.bring_back(portal % plan.portals),
            Step::Release => fake.release(),
            Step::Late => {
                // Only within the time that the volume allows for it.
                fake.execute_late(SETTLE);
            }
            Step::Settle => {
                cork = None;
                settle(submitted);
            }
            Step::Pause => {
                cork = match cork {
                    Some(_) => None,
                    None => Some(Cork::new()),
                };
                std::thread::sleep(Duration::from_millis(1));
            }
            step => {
                if let Some((operation, data)) = model.begin(step) {
                    model.open.lock().unwrap().insert(submitted, step.clone());
                    volume.submit(operation, data, model.clone(), submitted);
                    submitted += 1;
                }
            }
        }
    }
    drop(cork);
    settle(submitted);
    assert_eq!(*model.faults.lock().unwrap(), Vec::<String>::new());
    assert!(model.open.lock().unwrap().is_empty());
    for (index, block) in model.blocks.lock().unwrap().iter().enumerate() {
        let word = fake.word(index as u64 * 32);
        assert!(
            (block.acknowledged..=block.submitted).contains(&word),
            "block {index} has {word}: {block:?}"
        );
    }
    until("nothing is left", || volume.state().outstanding == 0);
    volume.close();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_operation_completes_once_and_what_was_acknowledged_is_there(plan in plan()) {
        play(plan);
    }
}
