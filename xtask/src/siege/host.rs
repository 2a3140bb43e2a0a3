//! A well-behaved host: reads, writes, zeroes and flushes at a steady rate, and checks every block that it reads.
//!
//! Operations are due at fixed times, and their latency counts from there: a server that makes them wait is not spared by
//! hosts that wait, too. Times without a connection are counted apart ([`Tally::outage`]); what would have been due then
//! is left out.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longshore_initiator::Buffer;
use longshore_initiator::attach::{Attachment, attach};
use longshore_initiator::error::Failure;
use longshore_initiator::extent::{BlockCount, Extent, Lba};
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::Options;
use longshore_initiator::queue::{AnyQueue, Refusal};
use longshore_initiator::url::Url;
use longshore_tests::random::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ledger::{Ledger, Run, Wrong};
use super::stamp::{self, BLOCK, Content};
use super::tally::Tally;

/// Bytes of a block, as a number of another width.
const BLOCK_BYTES: u64 = 4096;

/// Operations under way at a time.
const DEPTH: usize = 8;

/// From the moment an operation is due to the next one.
const PERIOD: Duration = Duration::from_millis(5);

/// A server that has not answered within this time loses the connection.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Writes of a lost connection are over when the server has served a later one for so long: slow disks and networks that
/// stand still take less here.
const SETTLE: Duration = Duration::from_secs(4);

/// Before the next attempt to connect.
const RECONNECT: Duration = Duration::from_millis(30);

/// How often keep-alives and the like are looked after.
const CONTROL: Duration = Duration::from_millis(50);

/// Longest wait for news of a socket.
const TICK: Duration = Duration::from_millis(20);

/// What a host is told.
pub struct Load<'a> {
    pub url: &'a Url,
    pub options: &'a Options,
    pub ledger: &'a Mutex<Ledger>,
    /// How often the server was started: a write of an earlier one cannot happen any more.
    pub epoch: &'a AtomicU64,
    /// Numbers of connections, of all phases.
    pub connections: &'a AtomicU64,
    pub stop: &'a AtomicBool,
    pub seed: u64,
}

/// A connection to the server.
struct Link {
    attachment: Attachment,
    number: u64,
    since: Instant,
    controlled: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write(Content),
    Flush,
}

/// An operation under way.
struct Pending {
    run: Run,
    kind: Kind,
    due: Instant,
    sent: Instant,
}

struct Host<'a> {
    load: &'a Load<'a>,
    random: Random,
    pending: HashMap<u64, Pending>,
    next_tag: u64,
    due: Instant,
    /// The last connection: its number, and the epoch of its server or a later one.
    last: (u64, u64),
    /// When an operation succeeded last.
    served: Instant,
    tally: Tally,
    wrong: Vec<Wrong>,
}

/// Works until it is told to stop, and until what is under way has ended: what it saw, and blocks that were wrong.
pub fn run(load: &Load<'_>) -> (Tally, Vec<Wrong>) {
    let mut host = Host {
        load,
        random: Random::new(load.seed),
        pending: HashMap::new(),
        next_tag: 0,
        due: Instant::now(),
        last: (0, 0),
        served: Instant::now(),
        tally: Tally::default(),
        wrong: Vec::new(),
    };
    let mut link = None;
    while !load.stop.load(Ordering::SeqCst) {
        link = match link.take() {
            None => host.attach(),
            Some(link) => host.turn(link, true),
        };
    }
    while let Some(open) = link.take_if(|_| !host.pending.is_empty()) {
        link = host.turn(open, false);
    }
    if let Some(link) = link {
        close(link);
    }
    host.outage();
    (host.tally, host.wrong)
}

fn close(mut link: Link) {
    for queue in &mut link.attachment.queues {
        queue.close();
        // Whoever ends need not know that the peer has ended first.
        let _ = queue.send();
    }
    link.attachment.control.close();
}

impl Host<'_> {
    fn attach(&mut self) -> Option<Link> {
        let (number, epoch) = self.last;
        if epoch < self.load.epoch.load(Ordering::SeqCst) {
            self.ledger().release(number);
        }
        match attach(self.load.url, self.load.options) {
            Ok(attachment) => {
                self.tally.attached += 1;
                let now = Instant::now();
                self.due = now;
                let number = self.load.connections.fetch_add(1, Ordering::SeqCst) + 1;
                // Looked at behind the connection: if the server has changed meanwhile, this is too late, never too early.
                self.last = (number, self.load.epoch.load(Ordering::SeqCst));
                Some(Link {
                    attachment,
                    number,
                    since: now,
                    controlled: now,
                })
            }
            Err(error) => {
                self.tally.not_attached += 1;
                self.tally.error(&error.to_string());
                std::thread::sleep(RECONNECT);
                None
            }
        }
    }

    /// Submits what is due, sends, receives; gives the connection back if it is still one.
    fn turn(&mut self, mut link: Link, submits: bool) -> Option<Link> {
        let now = Instant::now();
        if now > link.since + SETTLE {
            self.ledger().release(link.number - 1);
        }
        match self.work(&mut link, now, submits) {
            Ok(()) => Some(link),
            Err(why) => {
                self.tally.lost_connections += 1;
                self.tally.error(&why);
                self.lose(link.number);
                None
            }
        }
    }

    fn work(&mut self, link: &mut Link, now: Instant, submits: bool) -> Result<(), String> {
        if now > link.controlled + CONTROL {
            link.controlled = now;
            let driven = link.attachment.control.drive(now);
            driven.map_err(|lost| lost.to_string())?;
        }
        let block_size = link.attachment.info.block_size;
        let queue = &mut link.attachment.queues[0];
        while submits && self.due <= now && self.pending.len() < DEPTH && queue.room() > 0 {
            self.submit(queue, u64::from(block_size))?;
            self.due += PERIOD;
        }
        let mut completions = Vec::new();
        queue.send().map_err(|lost| lost.to_string())?;
        while queue
            .receive(&mut completions)
            .map_err(|lost| lost.to_string())?
            .more
        {}
        let is_idle = completions.is_empty();
        for completion in completions {
            self.complete(completion, link.number);
        }
        if self.pending.values().any(|it| now > it.sent + ANSWER_LIMIT) {
            self.tally.stuck += 1;
            return Err(format!("no answer within {ANSWER_LIMIT:?}"));
        }
        if is_idle {
            wait(queue, self.due.saturating_duration_since(now).min(TICK))?;
        }
        Ok(())
    }

    fn submit(&mut self, queue: &mut AnyQueue, block_size: u64) -> Result<(), String> {
        let Some((run, kind, fua)) = self.choose() else {
            return Ok(());
        };
        let blocks_of = BLOCK_BYTES / block_size;
        let extent = Extent {
            lba: Lba(run.first * blocks_of),
            blocks: BlockCount(run.count * blocks_of),
        };
        let length = usize::try_from(run.count * BLOCK_BYTES).expect("a run is short");
        let (operation, data) = match kind {
            Kind::Read => (
                Operation::Read { extent },
                Data::buffer(Buffer::allocate(length)),
            ),
            Kind::Flush => (Operation::Flush, Data::None),
            Kind::Write(Content::Zeros) => {
                let operation = Operation::WriteZeroes {
                    extent,
                    may_unmap: true,
                    fua,
                };
                (operation, Data::None)
            }
            Kind::Write(Content::Write(number)) => {
                let mut buffer = Buffer::allocate(length);
                for (block, bytes) in run.blocks().zip(buffer.chunks_exact_mut(BLOCK)) {
                    stamp::fill(self.ledger().seed(), block, number, bytes);
                }
                (Operation::Write { extent, fua }, Data::buffer(buffer))
            }
        };
        if let Kind::Write(content) = kind {
            self.ledger().begin(run, content);
        }
        self.next_tag += 1;
        if let Err(rejected) = queue.submit(operation, data, self.next_tag) {
            return match rejected.refusal {
                Refusal::Failed(Failure::ConnectionLost(lost)) => Err(lost.to_string()),
                Refusal::Failed(failure) => {
                    self.tally.failures += 1;
                    self.tally.error(&failure.to_string());
                    Ok(())
                }
                // It is due again at once.
                Refusal::Busy => Ok(()),
            };
        }
        let pending = Pending {
            run,
            kind,
            due: self.due,
            sent: Instant::now(),
        };
        self.pending.insert(self.next_tag, pending);
        Ok(())
    }

    /// The next operation; none where all places that were looked at are in use.
    fn choose(&mut self) -> Option<(Run, Kind, bool)> {
        let dice = self.random.below(100);
        let count = match self.random.below(10) {
            0 => 16,
            1 | 2 => 4,
            _ => 1,
        };
        let fua = self.random.below(10) == 0;
        let run = (0..16).find_map(|_| {
            let range = self.ledger().range();
            let first = range.first + self.random.below(range.count - count + 1);
            let run = Run { first, count };
            let is_free = !self.pending.values().any(|it| it.run.overlaps(run));
            let is_fit = dice < 50 || self.ledger().is_writable(run);
            (is_free && is_fit).then_some(run)
        })?;
        Some(match dice {
            0..50 => (run, Kind::Read, false),
            50..93 => {
                let number = self.ledger().next_number();
                (run, Kind::Write(Content::Write(number)), fua)
            }
            93..98 => (run, Kind::Write(Content::Zeros), fua),
            _ => (Run { first: 0, count: 0 }, Kind::Flush, false),
        })
    }

    fn complete(&mut self, completion: Completion, connection: u64) {
        let Some(pending) = self.pending.remove(&completion.tag) else {
            return;
        };
        match (completion.result, pending.kind) {
            (Ok(_), kind) => {
                self.outage();
                let latency = pending.due.elapsed().as_nanos();
                let latency = u64::try_from(latency).unwrap_or(u64::MAX);
                self.tally.latency.record(latency);
                match kind {
                    Kind::Read => {
                        self.tally.reads += 1;
                        self.tally.bytes += pending.run.count * BLOCK_BYTES;
                        self.check(pending.run, completion.data.bytes());
                    }
                    Kind::Write(content) => {
                        self.ledger().acknowledge(pending.run, content);
                        match content {
                            Content::Write(_) => {
                                self.tally.writes += 1;
                                self.tally.bytes += pending.run.count * BLOCK_BYTES;
                            }
                            Content::Zeros => self.tally.others += 1,
                        }
                    }
                    Kind::Flush => self.tally.others += 1,
                }
            }
            (Err(Failure::ConnectionLost(_)), kind) => {
                self.tally.unanswered += 1;
                if let Kind::Write(_) = kind {
                    self.ledger().lose(pending.run, connection);
                }
            }
            // Whether a write that failed was done, a read will tell.
            (Err(failure), _) => {
                self.tally.failures += 1;
                self.tally.error(&failure.to_string());
            }
        }
    }

    fn check(&mut self, run: Run, bytes: &[u8]) {
        let mut ledger = self.load.ledger.lock().expect("no panics");
        for (block, bytes) in run.blocks().zip(bytes.chunks_exact(BLOCK)) {
            self.wrong.extend(ledger.read(block, bytes).err());
        }
    }

    /// The connection is gone with all that was under way.
    fn lose(&mut self, connection: u64) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.tally.unanswered += 1;
            if let Kind::Write(_) = pending.kind {
                self.ledger().lose(pending.run, connection);
            }
        }
    }

    /// Notes how long nothing has succeeded.
    fn outage(&mut self) {
        self.tally.outage = self.tally.outage.max(self.served.elapsed());
        self.served = Instant::now();
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.load.ledger.lock().expect("no panics")
    }
}

/// Waits for the socket, or until it is time for something else.
fn wait(queue: &AnyQueue, pause: Duration) -> Result<(), String> {
    let mut interest = PollFlags::IN;
    interest.set(PollFlags::OUT, queue.has_unsent());
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: pause.subsec_nanos().into(),
    };
    let socket = queue.socket();
    match poll(&mut [PollFd::new(&socket, interest)], Some(&pause)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
