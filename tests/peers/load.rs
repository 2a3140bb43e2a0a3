//! Work on a volume that verifies itself: many writes and reads in flight that do not overlap, against a model of
//! which write each block holds.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::{Attachment, attach};
use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Completion, Data, Operation, OperationKind, Reply};
use longshore_initiator::options::Options;
use longshore_initiator::queue::Refusal;
use longshore_initiator::url::Url;
use longshore_initiator::volume::{Completer, RemoteVolume};
use longshore_reactor::Buffer;
use longshore_tests::random::Random;
use rustix::event::{PollFd, PollFlags, poll};

use crate::pattern;
use crate::peer::Peer;

/// Nothing that was asked for takes longer than this, on any peer.
const PATIENCE: Duration = Duration::from_secs(40);

/// What waits longer says so in the output of its test.
const WORTH_A_LINE: Duration = Duration::from_secs(3);

/// Blocks of a volume.
pub fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

/// Something that carries operations.
pub trait Engine {
    /// Bytes of a block.
    fn block_size(&self) -> u32;
    /// Hands an operation over.
    fn submit(&mut self, operation: Operation, data: Data, tag: u64);
    /// Waits until at least one operation has ended.
    fn wait(&mut self) -> Vec<Completion>;
}

/// One operation, to its end.
pub fn one(
    engine: &mut dyn Engine,
    operation: Operation,
    data: Data,
) -> (Result<Reply, Failure>, Data) {
    engine.submit(operation, data, u64::MAX);
    let mut completions = engine.wait();
    let completion = completions.pop().expect("one has ended");
    assert!(
        completions.is_empty() && completion.tag == u64::MAX,
        "there was only one"
    );
    (completion.result, completion.data)
}

pub fn write(engine: &mut dyn Engine, lba: u64, bytes: &[u8], fua: bool) -> Result<Reply, Failure> {
    let blocks = blocks_of(engine, bytes.len());
    let mut buffer = Buffer::allocate(bytes.len());
    buffer.copy_from_slice(bytes);
    let extent = extent(lba, blocks);
    one(
        engine,
        Operation::Write { extent, fua },
        Data::buffer(buffer),
    )
    .0
}

/// Reads so many blocks.
pub fn read(engine: &mut dyn Engine, lba: u64, blocks: u64) -> Result<Buffer, Failure> {
    let buffer = Buffer::allocate(bytes_of(engine, blocks));
    let extent = extent(lba, blocks);
    let (result, data) = one(engine, Operation::Read { extent }, Data::buffer(buffer));
    result.map(|_| data.into_buffer().expect("the memory comes back"))
}

fn bytes_of(engine: &dyn Engine, blocks: u64) -> usize {
    usize::try_from(blocks * u64::from(engine.block_size())).expect("tests move little")
}

fn blocks_of(engine: &dyn Engine, bytes: usize) -> u64 {
    u64::try_from(bytes).expect("tests move little") / u64::from(engine.block_size())
}

/// The queues of an attachment, driven by this thread.
pub struct Queues {
    pub attachment: Attachment,
    waiting: Vec<(Operation, Data, u64)>,
    next: usize,
    in_flight: usize,
}

impl Queues {
    pub fn attach(url: &Url, options: &Options) -> Self {
        let attachment = attach(url, options).unwrap_or_else(|error| panic!("attach: {error}"));
        Self::over(attachment)
    }

    pub fn over(attachment: Attachment) -> Self {
        Self {
            attachment,
            waiting: Vec::new(),
            next: 0,
            in_flight: 0,
        }
    }

    pub fn close(mut self) {
        assert_eq!(self.in_flight, 0, "nothing is under way any more");
        for queue in &mut self.attachment.queues {
            queue.close();
            // The peer may be faster than our send.
            let _ = queue.send();
        }
        self.attachment.control.close();
    }

    /// Starts what there is room for.
    fn start(&mut self) {
        let count = self.attachment.queues.len();
        for (operation, data, tag) in std::mem::take(&mut self.waiting) {
            let mut data = Some(data);
            for _ in 0..count {
                // Each operation on another core, as it were: all queues of its kind are used.
                self.next += 1;
                let polls = self.next.is_multiple_of(3);
                let index =
                    self.attachment
                        .maps
                        .queue(OperationKind::of(&operation), polls, self.next);
                let queue = &mut self.attachment.queues[index];
                match queue.submit(operation, data.take().expect("came back"), tag) {
                    Ok(()) => {
                        self.in_flight += 1;
                        break;
                    }
                    Err(rejected) => {
                        if let Refusal::Failed(failure) = rejected.refusal {
                            panic!("{operation:?} was not taken: {failure}");
                        }
                        data = Some(rejected.data);
                    }
                }
            }
            if let Some(data) = data {
                self.waiting.push((operation, data, tag));
            }
        }
        for queue in &mut self.attachment.queues {
            queue.send().unwrap_or_else(|lost| panic!("send: {lost}"));
        }
    }
}

impl Engine for Queues {
    fn block_size(&self) -> u32 {
        self.attachment.info.block_size
    }

    fn submit(&mut self, operation: Operation, data: Data, tag: u64) {
        self.waiting.push((operation, data, tag));
    }

    fn wait(&mut self) -> Vec<Completion> {
        let begin = Instant::now();
        let mut completions = Vec::new();
        loop {
            self.start();
            for queue in &mut self.attachment.queues {
                while queue
                    .receive(&mut completions)
                    .unwrap_or_else(|lost| panic!("receive: {lost}"))
                    .more
                {}
                // Answers to R2Ts, and what waited for room.
                queue.send().unwrap_or_else(|lost| panic!("send: {lost}"));
            }
            if !completions.is_empty() {
                self.in_flight -= completions.len();
                return completions;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "no answer to {} operations within {PATIENCE:?}",
                self.in_flight
            );
            self.sleep();
        }
    }
}

impl Queues {
    fn sleep(&self) {
        let mut descriptors = Vec::new();
        for queue in &self.attachment.queues {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, queue.has_unsent());
            descriptors.push(PollFd::from_borrowed_fd(queue.socket(), flags));
        }
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&second)).expect("sockets can be polled");
    }
}

/// A remote volume, whose threads do the work.
pub struct Remote {
    pub volume: RemoteVolume,
    inbox: Arc<Inbox>,
    completions: Receiver<Completion>,
    /// Whether this thread polls for the end.
    polls: bool,
}

/// Where completions go, each of which comes once.
struct Inbox {
    sender: Mutex<Sender<Completion>>,
    open: Mutex<Open>,
}

/// Operations without an end, by a number that none had before them, and the tags they are known by here.
#[derive(Default)]
struct Open {
    tags: HashMap<u64, u64>,
    last: u64,
}

impl Completer for Inbox {
    fn complete(&self, mut completion: Completion) {
        let mut open = self.open.lock().expect("no panics while it is held");
        let Some(tag) = open.tags.remove(&completion.tag) else {
            // A panic here would be in a thread of the library; the test has to see it.
            eprintln!("operation {} was completed twice", completion.tag);
            std::process::abort();
        };
        drop(open);
        completion.tag = tag;
        // A test that failed does not wait any more.
        let _ = self.sender.lock().expect("no panics").send(completion);
    }
}

impl Remote {
    pub fn over(volume: RemoteVolume) -> Self {
        let (sender, completions) = channel();
        let inbox = Inbox {
            sender: Mutex::new(sender),
            open: Mutex::default(),
        };
        Self {
            volume,
            inbox: Arc::new(inbox),
            completions,
            polls: false,
        }
    }

    pub fn open(url: &Url, options: &Options) -> Self {
        let volume = RemoteVolume::open(url, options);
        Self::over(volume.unwrap_or_else(|error| panic!("open: {error}")))
    }

    /// The same through the poll queues, driven by this thread.
    pub fn polled(mut self) -> Self {
        self.volume = self.volume.polled();
        self.polls = true;
        self
    }

    /// Closes the volume; by then every operation has been completed.
    pub fn close(self) {
        self.volume.close();
        let open = self.inbox.open.lock().expect("no panics while it is held");
        let left = &open.tags;
        assert!(left.is_empty(), "operations without an end: {left:?}");
    }
}

impl Engine for Remote {
    fn block_size(&self) -> u32 {
        self.volume.info().block_size
    }

    fn submit(&mut self, operation: Operation, data: Data, tag: u64) {
        let mut open = self.inbox.open.lock().expect("no panics while it is held");
        open.last += 1;
        let number = open.last;
        open.tags.insert(number, tag);
        drop(open);
        let completer = Arc::clone(&self.inbox);
        self.volume.submit(operation, data, completer, number);
    }

    fn wait(&mut self) -> Vec<Completion> {
        let begin = Instant::now();
        loop {
            let mut completions: Vec<Completion> = self.completions.try_iter().collect();
            if !completions.is_empty() {
                return completions;
            }
            if self.polls && begin.elapsed() < PATIENCE {
                self.volume.poll();
                continue;
            }
            match self.completions.recv_timeout(WORTH_A_LINE) {
                Ok(completion) => completions.push(completion),
                Err(_) if begin.elapsed() < PATIENCE => {
                    println!(
                        "waiting for {:.1?}: {:#?}",
                        begin.elapsed(),
                        self.volume.state()
                    );
                    continue;
                }
                Err(_) => panic!(
                    "nothing ended within {PATIENCE:?}: {:#?}",
                    self.volume.state()
                ),
            }
            return completions;
        }
    }
}

#[derive(Debug, Clone)]
pub struct Load {
    /// The blocks it uses; all of them its own.
    pub region: Range<u64>,
    /// Writes and reads together.
    pub operations: usize,
    /// In flight at a time.
    pub depth: usize,
    /// Blocks of an operation: from 1 to this.
    pub blocks_max: u64,
    /// Of a hundred operations.
    pub reads: u64,
    /// One in so many writes is FUA; 0: none.
    pub fua_every: u64,
    /// What the operations are follows from this.
    pub seed: u64,
}

impl Load {
    /// Mixed small and large operations on the first blocks; fewer with peers that are emulated.
    pub fn new(peer: &Peer, operations: usize, depth: usize) -> Self {
        let is_slow = peer.maker.is_slow();
        Self {
            region: 0..if is_slow { 2048 } else { 8192 },
            operations: if is_slow {
                (operations / 8).max(24)
            } else {
                operations
            },
            depth,
            blocks_max: 300,
            reads: 40,
            fua_every: 8,
            seed: 4,
        }
    }

    /// Runs it; then reads everything back and compares.
    pub fn run(&self, engine: &mut dyn Engine) {
        let mut model = Model::new(self.region.clone());
        self.run_on(engine, &mut model);
        model.verify(engine);
    }

    /// Runs it on blocks that hold what the model says.
    pub fn run_on(&self, engine: &mut dyn Engine, model: &mut Model) {
        let mut random = Random::new(self.seed);
        let mut under_way: HashMap<u64, Operation> = HashMap::new();
        let mut started = 0;
        while started < self.operations || !under_way.is_empty() {
            while started < self.operations && under_way.len() < self.depth {
                let busy = |extent: Extent| {
                    let mut others = under_way.values().filter_map(Operation::extent);
                    others.any(|other| other.overlaps(extent))
                };
                let Some(extent) = self.pick(&mut random, busy) else {
                    break;
                };
                let reads = random.below(100) < self.reads;
                let tag = u64::try_from(started).expect("few operations");
                let fua = self.fua_every > 0 && random.below(self.fua_every) == 0;
                let mut buffer = Buffer::allocate(bytes_of(engine, extent.blocks.0));
                let operation = if reads {
                    Operation::Read { extent }
                } else {
                    let generation = model.start(extent);
                    pattern::fill(&mut buffer, extent.lba.0, generation, engine.block_size());
                    Operation::Write { extent, fua }
                };
                engine.submit(operation, Data::buffer(buffer), tag);
                under_way.insert(tag, operation);
                started += 1;
            }
            for completion in engine.wait() {
                let operation = under_way.remove(&completion.tag);
                let operation = operation.unwrap_or_else(|| panic!("{completion:?} of nothing"));
                if let Err(failure) = &completion.result {
                    panic!("{operation:?}: {failure}");
                }
                if let Operation::Read { extent } = operation {
                    let buffer = completion
                        .data
                        .into_buffer()
                        .expect("the memory comes back");
                    model.check(extent, &buffer, engine.block_size());
                }
            }
        }
    }

    /// A range that nothing else under way touches.
    fn pick(&self, random: &mut Random, busy: impl Fn(Extent) -> bool) -> Option<Extent> {
        for _ in 0..50 {
            // Half of them are small.
            let most = if random.below(2) == 0 {
                self.blocks_max
            } else {
                8.min(self.blocks_max)
            };
            let blocks = random.below(most) + 1;
            let room = self.region.end - self.region.start - blocks;
            let extent = extent(self.region.start + random.below(room + 1), blocks);
            if !busy(extent) {
                return Some(extent);
            }
        }
        None
    }
}

/// Which write each block holds; the blocks of one that failed or was never made hold anything.
#[derive(Debug)]
pub struct Model {
    region: Range<u64>,
    /// Generation of the last write to each block; 0: unknown.
    generations: Vec<u32>,
    last: u32,
}

impl Model {
    /// Blocks that hold anything.
    pub fn new(region: Range<u64>) -> Self {
        let blocks = usize::try_from(region.end - region.start).expect("few blocks");
        Self {
            region,
            generations: vec![0; blocks],
            last: 0,
        }
    }

    /// The generation of the next write, which these blocks hold from now on.
    pub fn start(&mut self, extent: Extent) -> u32 {
        self.last += 1;
        let generation = self.last;
        self.of(extent).fill(generation);
        generation
    }

    /// Compares what was read.
    pub fn check(&mut self, extent: Extent, bytes: &[u8], block_size: u32) {
        let block_size = usize::try_from(block_size).expect("blocks are small");
        let generations = self.of(extent).to_vec();
        for ((block, generation), lba) in bytes
            .chunks_exact(block_size)
            .zip(generations)
            .zip(extent.lba.0..)
        {
            if generation > 0
                && let Err(why) = pattern::check(block, lba, generation)
            {
                panic!("{extent:?}: {why}");
            }
        }
    }

    /// Reads all blocks and compares.
    pub fn verify(&mut self, engine: &mut dyn Engine) {
        let step = (256 << 10) / u64::from(engine.block_size());
        let mut lba = self.region.start;
        while lba < self.region.end {
            let blocks = step.min(self.region.end - lba);
            let buffer =
                read(engine, lba, blocks).unwrap_or_else(|failure| panic!("read: {failure}"));
            self.check(extent(lba, blocks), &buffer, engine.block_size());
            lba += blocks;
        }
    }

    fn of(&mut self, extent: Extent) -> &mut [u32] {
        let index = |lba: u64| usize::try_from(lba - self.region.start).expect("few blocks");
        let range = index(extent.lba.0)..index(extent.lba.0 + extent.blocks.0);
        &mut self.generations[range]
    }
}
