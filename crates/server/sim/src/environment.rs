//! Clock, agenda and trace: what all parts of the simulated world share.
//!
//! Time is in nanoseconds from the start of the run. Events of the same time happen in the order in
//! which they were put on the agenda, so that a run depends on its seed alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longshore_reactor::storage::FileCompletion;
use longshore_wire::transmit::{Segment, Transmit};

use crate::disk::Disk;
use crate::profile::Profile;
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND};
use crate::wire::Wire;

/// Trace lines kept for the report of a failure.
const LINES_MAX: usize = 400;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedEvent {
    /// Bytes arrive at an end of a wire.
    Arrive {
        wire: usize,
        /// At the target's end.
        at_target: bool,
        bytes: usize,
    },
    /// The end of the stream, or of the connection, arrives at the target.
    HangUp { wire: usize },
    /// The target can send again.
    Writable { wire: usize },
    /// A storage operation does its work.
    StorageEffect { disk: usize, operation: u64 },
    /// A storage operation is over.
    StorageDone { disk: usize, operation: u64 },
    /// An operation that was delegated is over.
    DelegatedDone { operation: u64 },
    /// A shard takes a turn.
    Turn { shard: usize },
    /// An initiator or host does something.
    Initiator { index: usize },
    /// Trouble from outside: cuts, kills.
    Trouble,
}

struct Planned {
    at: u64,
    number: u64,
    event: SimulatedEvent,
}

impl Planned {
    const fn key(&self) -> (u64, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// See the module documentation.
pub struct Environment {
    /// Nanoseconds since the run began.
    pub now: u64,
    /// The shard whose turn it is.
    pub turning: usize,
    /// Times that a connection went from one shard to another.
    pub moves: u64,
    /// Chance for everything outside the workloads.
    pub random: Random,
    /// Which faults there are.
    pub profile: Profile,
    /// All connections there have been.
    pub wires: Vec<Wire>,
    pub disks: Vec<Disk>,
    delegated: DelegatedOperations,
    agenda: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    hash: u64,
    lines: VecDeque<String>,
    echo: bool,
    base: Instant,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Environment {
    /// A world in which nothing has happened. `echo`: the trace goes to standard error as it is made.
    #[must_use]
    pub fn new(random: Random, profile: Profile, echo: bool) -> Self {
        Self {
            now: 0,
            turning: 0,
            moves: 0,
            random,
            profile,
            wires: Vec::new(),
            disks: Vec::new(),
            delegated: DelegatedOperations::default(),
            agenda: BinaryHeap::new(),
            planned: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            lines: VecDeque::new(),
            echo,
            base: Instant::now(),
        }
    }

    /// Puts an event on the agenda.
    pub fn plan(&mut self, at: u64, event: SimulatedEvent) {
        self.planned += 1;
        let number = self.planned;
        let at = at.max(self.now);
        self.agenda.push(Reverse(Planned { at, number, event }));
    }

    /// Puts an event on the agenda for `delay` nanoseconds from now.
    pub fn plan_in(&mut self, delay: u64, event: SimulatedEvent) {
        self.plan(self.now + delay, event);
    }

    /// The next event; the clock moves on to it.
    pub fn take_next(&mut self) -> Option<SimulatedEvent> {
        let Reverse(planned) = self.agenda.pop()?;
        self.now = planned.at;
        Some(planned.event)
    }

    /// The time of day of a moment of the run, for the code under test.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.base + Duration::from_nanos(self.now)
    }

    /// The moment of the run of a time of day.
    #[must_use]
    pub fn moment(&self, instant: Instant) -> u64 {
        let nanoseconds = instant.saturating_duration_since(self.base).as_nanos();
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }

    /// Writes the line to the trace, if one is kept.
    pub fn trace(&mut self, line: fmt::Arguments<'_>) {
        let line = format!("{:>14.6} {line}", Millis(self.now));
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.echo {
            eprintln!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// A digest of all that was noted: two runs with the same one were the same.
    #[must_use]
    pub const fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// The last lines noted.
    #[must_use]
    pub fn last_lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// Operations that somebody else carries out, by number: whose they are, and how they ended.
#[derive(Debug, Default)]
struct DelegatedOperations {
    entries: BTreeMap<u64, (usize, Option<FileCompletion>)>,
    made: u64,
}

impl Environment {
    /// Takes note of an operation of a shard that somebody else carries out; its number.
    pub fn delegate(&mut self, shard: usize) -> u64 {
        self.delegated.made += 1;
        let operation = self.delegated.made;
        self.delegated.entries.insert(operation, (shard, None));
        self.trace(format_args!("delegated: {operation} of shard {shard}"));
        operation
    }

    /// Somebody has carried the operation out; its shard is told soon, unless it is gone.
    pub fn delegated_over(&mut self, operation: u64, completion: FileCompletion) {
        if let Some((_, place)) = self.delegated.entries.get_mut(&operation) {
            *place = Some(completion);
            self.plan_in(MICROSECOND, SimulatedEvent::DelegatedDone { operation });
        }
    }

    /// An operation is over: its shard is to be told.
    pub fn delegated_done(&mut self, operation: u64) -> Option<(usize, FileCompletion)> {
        let (shard, completion) = self.delegated.entries.remove(&operation)?;
        let completion = completion?;
        self.trace(format_args!(
            "delegated: {operation} done {:?}",
            completion.result
        ));
        Some((shard, completion))
    }

    /// The process is gone, and with it whoever would be told.
    pub fn forget_delegated(&mut self) {
        self.delegated.entries.clear();
    }
}

/// Nanoseconds shown as milliseconds.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / MILLISECOND, self.0 % MILLISECOND);
        f.pad_integral(true, "", &text)
    }
}

/// The environment as links, platforms and volumes hold it. Everything runs in one thread; the lock
/// is there because the code under test may not know that.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Environment>>);

impl Shared {
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self(Arc::new(Mutex::new(environment)))
    }

    /// Takes it for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Environment> {
        self.0.lock().expect("a run ends at its first panic")
    }

    /// Hands over to the network what it takes of a client's queue.
    pub(crate) fn send(&self, wire: usize, transmit: &mut Transmit) {
        let mut environment = self.lock();
        loop {
            let next = transmit.segments().next();
            let Some(segment) = next else {
                break;
            };
            let Segment::Arena { start, length } = segment else {
                unreachable!("a client's data is copied into the queue");
            };
            let bytes = &transmit.arena()[start..start + length];
            let sent = environment.send_to_target(wire, bytes);
            transmit.advance(sent, &mut Vec::new());
            if sent < length {
                break;
            }
        }
    }
}
