//! A path: one portal of the volume, its queues, and its condition.
//!
//! ```text
//!   dialling ──► up ──────► taking down ──► dialling …        taking down: until each queue has given back
//!      │          ▲  lost                      │                         what it had
//!      ▼          │                            ▼
//!   refused ──────┘ the right volume again   writes in doubt wait for the end of the former link, or `settle`
//! ```
//!
//! Everything here is changed by the first driver only ([`manage`](super::manage)); other threads look.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::link::LinkControl;
use super::lock::lock;
use super::mail::QueueAddress;
use super::options::PathPolicy;
use super::request::Request;
use super::shared_queue::SharedQueue;
use super::state::{PathCondition, PathState};
use crate::error::Lost;
use crate::info::AccessState;
use crate::options::QueueMaps;

/// See the module documentation.
pub(super) struct Path {
    portal: String,
    /// As many as were asked for. Those that were not granted stay empty.
    pub(super) queues: Vec<SharedQueue>,
    /// How many queues of each kind were granted, packed.
    maps: AtomicU64,
    management: Mutex<Management>,
}

/// What the first driver knows of a path.
pub(super) struct Management {
    pub(super) phase: Phase,
    /// While it is up.
    pub(super) access: AccessState,
    /// An operation said that this path cannot do it; it is the last choice until then.
    pub(super) suspect_until: Option<Instant>,
    /// The peer asked us to leave: nothing new goes there, and then or earlier the link ends.
    pub(super) leaves_at: Option<Instant>,
    /// Counts the links of this path, to tell a late event of an old one.
    pub(super) generation: u64,
    /// Where the last link leads, and how many queues it has.
    pub(super) reach: Option<(SocketAddr, usize)>,
    /// While it is up, unless a helper has it to identify the volume.
    pub(super) control: Option<Box<dyn LinkControl>>,
    /// A helper identifies the volume.
    pub(super) is_identifying: bool,
    /// The volume changed meanwhile: identify again.
    pub(super) identify_again: bool,
    /// Attempts to connect since it was up for a while.
    pub(super) attempts: u32,
    pub(super) up_since: Option<Instant>,
    pub(super) connects: u64,
    /// Why it was lost last: what its operations are told.
    pub(super) lost: Lost,
    pub(super) last_error: Option<String>,
    /// Writes that former links may still execute.
    pub(super) in_doubt: Vec<Doubt>,
    /// The last link that the peer has confirmed to execute nothing any more.
    pub(super) ended_generation: u64,
}

/// A write that a former link may still execute.
pub(super) struct Doubt {
    pub(super) request: Request,
    /// Of that link, as in [`Management`].
    pub(super) generation: u64,
    pub(super) reach: Option<(SocketAddr, usize)>,
    /// When it is taken to be over. `None`: not all queues have given back their operations.
    pub(super) ends: Option<Instant>,
}

/// What is being done about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A connector is at it, or pauses.
    Dialling,
    /// Its queues are connected.
    Up,
    /// This number of queues has not given back its operations.
    TakingDown { queues: usize },
    /// As dialling; the last link led to another volume.
    Refused,
    /// Over, because the volume is.
    Ended,
}

impl Path {
    pub(super) fn new(path: usize, portal: String, queues: usize) -> Self {
        Self {
            portal,
            queues: (0..queues)
                .map(|queue| SharedQueue::new(QueueAddress { path, queue }))
                .collect(),
            maps: AtomicU64::new(pack(QueueMaps::plain(1))),
            management: Mutex::new(Management {
                phase: Phase::Dialling,
                access: AccessState::Optimized,
                suspect_until: None,
                leaves_at: None,
                generation: 0,
                reach: None,
                control: None,
                is_identifying: false,
                identify_again: false,
                attempts: 0,
                up_since: None,
                connects: 0,
                lost: Lost::Ours,
                last_error: None,
                in_doubt: Vec::new(),
                ended_generation: 0,
            }),
        }
    }

    pub(super) fn portal(&self) -> &str {
        &self.portal
    }

    pub(super) fn management(&self) -> std::sync::MutexGuard<'_, Management> {
        lock(&self.management)
    }

    /// How many queues of each kind it has. Only queues that exist are counted.
    pub(super) fn maps(&self) -> QueueMaps {
        unpack(self.maps.load(Ordering::Acquire))
    }

    pub(super) fn set_maps(&self, maps: QueueMaps) {
        self.maps.store(pack(maps), Ordering::Release);
    }

    /// Operations in its queues.
    pub(super) fn load(&self) -> usize {
        self.queues.iter().map(SharedQueue::load).sum()
    }

    /// The queues for polled operations.
    pub(super) fn poll_queues(&self) -> &[SharedQueue] {
        let maps = self.maps();
        let first = usize::from(maps.default) + usize::from(maps.read);
        let end = (first + usize::from(maps.poll)).min(self.queues.len());
        self.queues.get(first..end).unwrap_or_default()
    }

    /// Whether a queue is for polled operations.
    pub(super) fn is_poll_queue(&self, queue: usize) -> bool {
        let maps = self.maps();
        queue >= usize::from(maps.default) + usize::from(maps.read)
    }

    pub(super) fn state(&self, in_use: bool) -> PathState {
        let maps = self.maps();
        let management = self.management();
        PathState {
            portal: self.portal.clone(),
            condition: management.condition(),
            in_use,
            queues: if management.phase == Phase::Up {
                maps.total()
            } else {
                0
            },
            outstanding: self.load() + management.in_doubt.len(),
            connects: management.connects,
            last_error: management.last_error.clone(),
        }
    }
}

impl Management {
    /// The link that is being taken down may still execute this.
    pub(super) fn doubt(&mut self, request: Request) {
        self.in_doubt.push(Doubt {
            request,
            generation: self.generation,
            reach: self.reach,
            ends: None,
        });
    }

    /// When the next of the writes in doubt is taken to be over.
    pub(super) fn doubt_ends(&self) -> Option<Instant> {
        self.in_doubt.iter().filter_map(|doubt| doubt.ends).min()
    }

    fn condition(&self) -> PathCondition {
        match (self.phase, self.access) {
            (Phase::Up, AccessState::Optimized) => PathCondition::Usable,
            (Phase::Up, AccessState::NonOptimized) => PathCondition::NonOptimized,
            (Phase::Up, _) => PathCondition::Inaccessible,
            (Phase::Refused, _) => PathCondition::Refused,
            (Phase::Dialling, _) if self.last_error.is_none() => PathCondition::Connecting,
            (Phase::Dialling | Phase::TakingDown { .. } | Phase::Ended, _) => PathCondition::Down,
        }
    }

    /// How good it is; `None`: of no use.
    pub(super) fn rank(&self) -> Option<Rank> {
        if self.phase != Phase::Up || self.leaves_at.is_some() {
            return None;
        }
        match self.access {
            _ if self.suspect_until.is_some() => Some(Rank::Suspect),
            AccessState::Optimized => Some(Rank::Optimized),
            AccessState::NonOptimized => Some(Rank::NonOptimized),
            AccessState::Inaccessible | AccessState::PersistentLoss | AccessState::Change => None,
        }
    }
}

/// How good a path is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Optimized,
    NonOptimized,
    /// It said that it cannot, a moment ago.
    Suspect,
}

/// The paths that new operations take, and those that could be, one bit each.
pub(super) fn select(
    ranks: impl Iterator<Item = Option<Rank>> + Clone,
    policy: PathPolicy,
) -> (u64, u64) {
    let bits = |want: &dyn Fn(Rank) -> bool| {
        ranks
            .clone()
            .enumerate()
            .filter(|(_, rank)| rank.is_some_and(want))
            .fold(0u64, |bits, (path, _)| bits | 1 << path)
    };
    let usable = bits(&|_| true);
    let Some(best) = ranks.clone().flatten().min() else {
        return (0, 0);
    };
    let equally_good = bits(&|rank| rank == best);
    let routes = match policy {
        PathPolicy::Failover => equally_good & equally_good.wrapping_neg(),
        PathPolicy::Spread => equally_good,
    };
    (routes, usable)
}

fn pack(maps: QueueMaps) -> u64 {
    u64::from(maps.default) | u64::from(maps.read) << 16 | u64::from(maps.poll) << 32
}

fn unpack(packed: u64) -> QueueMaps {
    let field = |shift: u32| u16::try_from(packed >> shift & 0xffff).unwrap_or(u16::MAX);
    QueueMaps {
        default: field(0),
        read: field(16),
        poll: field(32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_survive_packing() {
        let maps = QueueMaps {
            default: 1,
            read: u16::MAX,
            poll: 7,
        };
        assert_eq!(unpack(pack(maps)), maps);
    }

    #[test]
    fn failover_takes_the_first_of_the_best_and_spread_all_of_them() {
        let ranks = [
            None,
            Some(Rank::NonOptimized),
            Some(Rank::Optimized),
            Some(Rank::Optimized),
            Some(Rank::Suspect),
        ];
        let select = |policy| select(ranks.into_iter(), policy);
        assert_eq!(select(PathPolicy::Failover), (0b00100, 0b11110));
        assert_eq!(select(PathPolicy::Spread), (0b01100, 0b11110));
    }

    #[test]
    fn a_suspect_path_is_better_than_none() {
        let ranks = [Some(Rank::Suspect), None];
        assert_eq!(select(ranks.into_iter(), PathPolicy::Failover), (1, 1));
        assert_eq!(select([None, None].into_iter(), PathPolicy::Spread), (0, 0));
    }
}
