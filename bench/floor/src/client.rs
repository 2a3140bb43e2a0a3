//! The client: the worker of `longshore bench` over queues that speak the protocol of the floor.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_bench::cpu::ProcessClock;
use longshore_bench::layout::Layout;
use longshore_bench::load::Load;
use longshore_bench::queue::{LoadQueue, Refused};
use longshore_bench::spec::{self, Job, Length, Run, Verify};
use longshore_bench::supervise::Supervisor;
use longshore_bench::watch::{Interrupt, Unwatched};
use longshore_bench::workload::Region;
use longshore_initiator::error::Lost;
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::{Options, QueueMaps};
use longshore_initiator::queue::{Queue, QueueCounters, Refusal};
use longshore_wire::transmit::Transmit;

use crate::Drive;
use crate::machine::{BLOCK_SIZE, FloorMachine};
use crate::shape::Shape;

/// Bytes that places are chosen from; the server knows of none.
const SPAN: u64 = 64 << 20;

/// A connection, as the load generator sees it.
struct FloorQueue(Queue<FloorMachine>);

impl LoadQueue for FloorQueue {
    #[inline]
    fn room(&self) -> usize {
        self.0.room()
    }

    #[inline]
    fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Refused> {
        let taken = self.0.submit(operation, data, tag);
        taken.map_err(|rejected| match rejected.refusal {
            Refusal::Busy => Refused::Busy(rejected.data),
            Refusal::Failed(failure) => Refused::Failed(rejected.data, failure),
        })
    }

    #[inline]
    fn send(&mut self, most: usize) -> Result<(), Lost> {
        self.0.send_at_most(most).map(drop)
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    #[inline]
    fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<bool, Lost> {
        Ok(self.0.receive(completions)?.bytes > 0)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.socket())
    }

    fn counters(&self) -> QueueCounters {
        *self.0.counters()
    }
}

/// Drives a server, and prints what `longshore bench --output json` would.
pub fn drive(arguments: &Drive) -> Result<()> {
    let shape = arguments.shape();
    let run = run_of(arguments, shape)?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = Load {
        run: &run,
        maps: run.maps,
        layout: Layout::new(&run.jobs, run.maps, None, processors)?,
        region: Region {
            lba: 0,
            blocks: SPAN / u64::from(BLOCK_SIZE),
            block_size: BLOCK_SIZE,
        },
        max_transfer: u32::MAX,
        verifier: None,
        content: None,
    };
    let queues = (0..arguments.sessions)
        .map(|_| connect(arguments.address, shape, &run))
        .collect::<Result<Vec<_>>>()?;
    let server = arguments.server_pid.map(ProcessClock::new).transpose();
    let mut supervisor = Supervisor {
        control: None,
        server: server.context("--server-pid")?,
        interrupt: &Interrupt::default(),
        watch: &mut Unwatched,
        read_back: false,
    };
    let (_, result) = load.measure(queues, &mut supervisor);
    if let Some(lost) = &result.lost {
        bail!("the connection to {} is lost: {lost}", arguments.address);
    }
    let text = serde_json::to_string_pretty(&result)?;
    writeln!(std::io::stdout(), "{text}").context("print the figures")
}

fn connect(address: SocketAddr, shape: Shape, run: &Run) -> Result<FloorQueue> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.write_all(&shape.encode())?;
    let depth = run.jobs[0].depth;
    let machine = FloorMachine::new(shape, depth);
    let (transmit, paths) = (Transmit::new(), &run.options.paths);
    let queue = Queue::start(stream, machine, transmit, &[], paths)?;
    Ok(FloorQueue(queue))
}

fn run_of(arguments: &Drive, shape: Shape) -> Result<Run> {
    let (pattern, payload) = match (shape.payload_in, shape.payload_out) {
        (0, 0) => bail!("give --read BYTES or --write BYTES"),
        (0, bytes) => ("randread", bytes),
        (bytes, 0) => ("randwrite", bytes),
        _ => bail!("either --read or --write: data goes one way"),
    };
    let fits = payload.is_multiple_of(BLOCK_SIZE) && u64::from(payload) <= SPAN;
    if !fits || !shape.is_sane() || arguments.iodepth == 0 || arguments.sessions == 0 {
        bail!(
            "data comes in multiples of {BLOCK_SIZE} bytes up to 16 MiB, requests and answers have 1 to \
             4096 bytes besides, and --iodepth and --sessions are 1 at least"
        );
    }
    let sessions = arguments.sessions;
    let text = format!(
        "floor,rw={pattern},bs={payload},iodepth={},numjobs={sessions}",
        arguments.iodepth
    );
    let mut job: Job = text.parse()?;
    // The only one needs no name in the figures.
    job.name.clear();
    let time = Duration::try_from_secs_f64(arguments.time).context("--time")?;
    let length = match arguments.operations {
        None => Length {
            time: Some(time),
            ..Length::default()
        },
        operations => Length {
            operations,
            ..Length::default()
        },
    };
    let mut options = Options::default();
    let receive_bytes = spec::receive_bytes(std::slice::from_ref(&job));
    options.paths.receive_buffer = usize::try_from(receive_bytes)?;
    Ok(Run {
        jobs: vec![job],
        maps: QueueMaps::plain(sessions),
        threads: None,
        warmup: length.time.map_or(Duration::ZERO, |time| time / 5),
        whole: false,
        length,
        seed: 0,
        verify: Verify::Off,
        offset: 0,
        span: Some(SPAN),
        discard: false,
        spin: false,
        continue_on_error: false,
        options,
    })
}
