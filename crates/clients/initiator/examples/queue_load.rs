//! Keeps one queue of a volume full, from one thread, and says what that costs: the shortest loop around a queue
//! that there is, to measure the library with.
//!
//! ```text
//! cargo run --release -p longshore-initiator --example queue_load -- URL [read|write] [BYTES] [DEPTH] [SECONDS] \
//!     [copy|gather|zero-copy] [buffered|direct] [discard|fill]
//! ```
//!
//! It writes, when told to, over the first GiB of the volume.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::attach;
use longshore_initiator::operation::{Data, Operation};
use longshore_initiator::options::{Options, ReceivePath, SendPath};
use longshore_initiator::queue::AnyQueue;
use longshore_reactor::Buffer;
use rustix::event::{PollFd, PollFlags, poll};

/// Operations go to the first so many bytes.
const SPAN_BYTES: u64 = 1 << 30;

struct Load {
    queue: AnyQueue,
    is_write: bool,
    fill: bool,
    bytes: usize,
    blocks: u64,
    span_blocks: u64,
    random: u64,
    pattern: Arc<Buffer>,
    buffers: Vec<Data>,
}

impl Load {
    /// The next random block, by xorshift.
    fn next_lba(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (self.span_blocks / self.blocks) * self.blocks
    }

    fn submit(&mut self) -> Result<(), Box<dyn Error>> {
        let extent = Extent {
            lba: Lba(self.next_lba()),
            blocks: BlockCount(self.blocks),
        };
        let (operation, data) = if self.is_write {
            let data = Data::shared(self.pattern.clone());
            (Operation::Write { extent, fua: false }, data)
        } else if self.fill {
            let data = self.buffers.pop();
            let data = data.unwrap_or_else(|| Data::buffer(Buffer::allocate(self.bytes)));
            (Operation::Read { extent }, data)
        } else {
            (Operation::Read { extent }, Data::Discard)
        };
        self.queue
            .submit(operation, data, 0)
            .map_err(|rejected| format!("{:?}", rejected.refusal).into())
    }

    /// Keeps `depth` operations under way until then; returns how many have ended.
    fn run(&mut self, depth: usize, end: Instant) -> Result<u64, Box<dyn Error>> {
        let mut completions = Vec::with_capacity(depth);
        let mut count = 0;
        while Instant::now() < end {
            while self.queue.in_flight() < depth && self.queue.room() > 0 {
                self.submit()?;
            }
            self.queue.send()?;
            let received = self.queue.receive(&mut completions)?;
            for completion in completions.drain(..) {
                completion.result?;
                if self.fill && !self.is_write {
                    self.buffers.push(completion.data);
                }
                count += 1;
            }
            if received.bytes == 0 {
                let mut events = PollFlags::IN;
                events.set(PollFlags::OUT, self.queue.has_unsent());
                poll(
                    &mut [PollFd::from_borrowed_fd(self.queue.socket(), events)],
                    None,
                )?;
            }
        }
        Ok(count)
    }
}

/// Of this thread, as the scheduler counts it.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default| arguments.get(at).map_or(default, String::as_str);
    let url = argument(0, "").parse()?;
    let is_write = argument(1, "read") == "write";
    let bytes: usize = argument(2, "512").parse()?;
    let depth: u16 = argument(3, "128").parse()?;
    let seconds: u64 = argument(4, "3").parse()?;
    let mut options = Options {
        depth,
        ..Options::default()
    };
    options.paths.send = match argument(5, "gather") {
        "copy" => SendPath::Copy,
        "gather" => SendPath::Gather,
        "zero-copy" => SendPath::ZeroCopy,
        other => return Err(format!("no way to send is called {other}").into()),
    };
    options.paths.zerocopy_fallback = false;
    options.paths.receive = match argument(6, "direct") {
        "buffered" => ReceivePath::Buffered,
        "direct" => ReceivePath::Direct,
        other => return Err(format!("no way to receive is called {other}").into()),
    };
    let attachment = attach(&url, &options)?;
    let block_size = u64::from(attachment.info.block_size);
    let size = attachment.info.size_bytes().min(SPAN_BYTES);
    let queue = attachment.queues.into_iter().next();
    let mut pattern = Buffer::allocate(bytes);
    pattern.fill(0xa5);
    let mut load = Load {
        queue: queue.ok_or("there is no queue")?,
        is_write,
        fill: argument(7, "fill") == "fill",
        bytes,
        blocks: bytes as u64 / block_size,
        span_blocks: size / block_size,
        random: 0x2545_f491_4f6c_dd1d,
        pattern: Arc::new(pattern),
        buffers: Vec::new(),
    };
    load.run(depth.into(), Instant::now() + Duration::from_millis(300))?;
    let (start, before, processor) = (Instant::now(), *load.queue.counters(), processor_time()?);
    let count = load.run(depth.into(), start + Duration::from_secs(seconds))?;
    let (took, processor) = (start.elapsed(), processor_time()? - processor);
    let after = *load.queue.counters();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let per = |amount: u64| amount as f64 / count.max(1) as f64;
    println!(
        "{count} operations, {:.0} IOPS, {:.3} us of processor time, {:.4} sends and {:.4} receives each; {} zero-copy sends, {} of them copied, {} refused; {} bytes direct",
        f64::from(u32::try_from(count)?) / took.as_secs_f64(),
        processor.as_secs_f64() * 1e6 / f64::from(u32::try_from(count)?),
        per(after.send_calls - before.send_calls),
        per(after.receive_calls - before.receive_calls),
        after.zero_copy_sends - before.zero_copy_sends,
        after.zero_copy_copied - before.zero_copy_copied,
        after.zero_copy_refused - before.zero_copy_refused,
        after.bytes_direct - before.bytes_direct,
    );
    Ok(())
}
