//! The way back: from the initiator's threads to the reactor whose request it was.
//!
//! A reactor enters each operation here when it submits it, under a number that goes along as the tag. Places are
//! in lanes, one for each of a few reactors, so that a lock is shared by a reactor and the initiator's
//! threads, for as long as it takes to put something into a vector or out of it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_block::media::{BlockCount, ExtentState};
use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Completion, Done};
use longshore_initiator::volume::{Completer, Cork};
use longshore_reactor::storage::{Delegated, Storage};

/// A power of two.
const LANES: usize = 16;

/// Numbers of places have as many bits; those above are the lane's.
const PLACE_BITS: u32 = 32;

/// Operations under way, and who waits for each.
#[derive(Debug, Default)]
pub(super) struct Relay {
    lanes: [Mutex<Lane>; LANES],
}

#[derive(Debug, Default)]
struct Lane {
    places: Vec<Option<Delegated>>,
    free: Vec<usize>,
}

impl Relay {
    /// Takes note of who waits for an operation; the answer is the operation's tag.
    pub(super) fn enter(&self, delegated: Delegated) -> u64 {
        let number = own_lane();
        let mut lane = self.lane(number);
        let place = match lane.free.pop() {
            Some(place) => {
                lane.places[place] = Some(delegated);
                place
            }
            None => {
                lane.places.push(Some(delegated));
                lane.places.len() - 1
            }
        };
        drop(lane);
        wide(number) << PLACE_BITS | wide(place)
    }

    fn leave(&self, tag: u64) -> Option<Delegated> {
        let narrow = |part: u64| usize::try_from(part).expect("was a usize before");
        let number = narrow(tag >> PLACE_BITS);
        let place = narrow(tag & ((1 << PLACE_BITS) - 1));
        let mut lane = self.lane(number % LANES);
        let delegated = lane.places.get_mut(place)?.take()?;
        lane.free.push(place);
        Some(delegated)
    }

    /// Each change under the lock is whole, so a poisoned one still guards what it should.
    fn lane(&self, number: usize) -> MutexGuard<'_, Lane> {
        self.lanes[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completer for Relay {
    fn complete(&self, completion: Completion) {
        let Some(delegated) = self.leave(completion.tag) else {
            unreachable!("an operation completes once, with the tag it was submitted with");
        };
        let result = match completion.result {
            Ok(done) => Ok(packed(done)),
            Err(failure) => Err(failure.to_io_error()),
        };
        delegated.complete(result, completion.data.into_buffer());
    }
}

/// Holds the sends of this thread back until the turn of `storage` ends, so that what a turn submits leaves with one
/// system call for each connection.
pub(super) fn hold_sends(storage: &mut dyn Storage) {
    CORK.with_borrow_mut(|cork| {
        if cork.is_none() {
            *cork = Some(Cork::new());
        }
    });
    // Each time, as it may be the turn of another storage than last time. It costs next to nothing.
    storage.at_turn_end(release_sends);
}

thread_local! {
    static CORK: RefCell<Option<Cork>> = const { RefCell::new(None) };
}

fn release_sends() {
    drop(CORK.take());
}

/// The lane of this thread.
fn own_lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    LANE.get().unwrap_or_else(|| {
        let lane = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
        LANE.set(Some(lane));
        lane
    })
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).expect("usize is at most 64 bits wide")
}

/// How an operation ended well, as storage tells it: the state of an extent in the lowest two bits, its blocks
/// above.
fn packed(done: Done) -> u64 {
    match done {
        Done::Done => 0,
        Done::Extent { blocks, state } => {
            let state = match state {
                ExtentState::Mapped => 0,
                ExtentState::Deallocated => 1,
                ExtentState::Anchored => 2,
            };
            // More blocks than that would be more than 2^71 bytes.
            blocks.0.min(u64::MAX >> 2) << 2 | state
        }
    }
}

/// The blocks and state of an extent, from what [`packed`] made of it.
pub(super) fn unpacked(result: u64) -> (BlockCount, crate::ExtentState) {
    let state = match result & 3 {
        1 => crate::ExtentState::Deallocated,
        2 => crate::ExtentState::Anchored,
        _ => crate::ExtentState::Mapped,
    };
    (BlockCount(result >> 2), state)
}

/// What the initiator said of a failure, if it was the initiator who said it.
pub(super) fn failure(error: &io::Error) -> Option<&Failure> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_initiator::operation::Data;
    use longshore_reactor::storage::{CompletionSink, FileCompletion, StorageTag};

    use super::*;

    #[derive(Default)]
    struct Sink(Mutex<Vec<FileCompletion>>);

    impl CompletionSink for Sink {
        fn accept(&self, completion: FileCompletion) {
            self.0.lock().expect("not poisoned").push(completion);
        }
    }

    fn over(tag: u64, result: Result<Done, Failure>) -> Completion {
        Completion {
            tag,
            result,
            data: Data::None,
        }
    }

    #[test]
    fn each_operation_comes_back_to_who_waits_for_it() {
        let (relay, sink) = (Relay::default(), Arc::new(Sink::default()));
        let enter = |number| relay.enter(Delegated::new(StorageTag(number), sink.clone()));
        let tags: Vec<u64> = (0..10).map(enter).collect();
        for tag in tags.iter().rev() {
            relay.complete(over(*tag, Ok(Done::Done)));
        }
        let again = enter(77);
        assert!(tags.contains(&again), "places are used again");
        relay.complete(over(again, Err(Failure::NoSpace)));
        let seen = sink.0.lock().expect("not poisoned");
        let order: Vec<u64> = seen.iter().map(|completion| completion.tag.0).collect();
        assert_eq!(order, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 77]);
        let error = seen[10].result.as_ref().expect_err("failed");
        assert_eq!(failure(error), Some(&Failure::NoSpace));
    }

    #[test]
    fn threads_have_lanes_of_their_own() {
        let relay = Arc::new(Relay::default());
        let sink = Arc::new(Sink::default());
        let enter = |relay: &Relay| relay.enter(Delegated::new(StorageTag(0), sink.clone()));
        let here = enter(&relay);
        let there = std::thread::scope(|scope| {
            let other = scope.spawn(|| enter(&relay));
            other.join().expect("no panic")
        });
        assert_ne!(here >> PLACE_BITS, there >> PLACE_BITS);
    }

    #[test]
    fn extents_survive_the_way_through_a_number() {
        for (state, ours) in [
            (ExtentState::Mapped, crate::ExtentState::Mapped),
            (ExtentState::Deallocated, crate::ExtentState::Deallocated),
            (ExtentState::Anchored, crate::ExtentState::Anchored),
        ] {
            for blocks in [1, 7, u64::MAX >> 2].map(BlockCount) {
                let packed = packed(Done::Extent { blocks, state });
                assert_eq!(unpacked(packed), (blocks, ours));
            }
        }
    }
}
