//! A volume that stays attached, for many short measurements one after the other.
//!
//! [`measure`](crate::measure::measure) attaches, measures once and logs out. What is to be compared point by point, in
//! turns, had better use the same connections: their windows and round-trip times have settled, and logins are no part
//! of the time.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::attach::{Attachment, Control, attach};
use longshore_initiator::error::Lost;
use longshore_initiator::info::VolumeInfo;
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::{Options, QueueMaps};
use longshore_initiator::queue::AnyQueue;
use longshore_reactor::Buffer;
use longshore_reactor::socket::{TcpInfo, tcp_info};

use crate::cpu::ProcessClock;
use crate::load::Load;
use crate::local::{self, LocalQueue};
use crate::measure::{BenchError, TestedVolume, check, layout, log_out};
use crate::medium::{Facts, Local, LocalOptions, Medium};
use crate::queue::{LoadQueue, Refused};
use crate::result::PointResult;
use crate::spec::{Run, Verify};
use crate::supervise::Supervisor;
use crate::waiter::Waiter;
use crate::watch::{Interrupt, Watch};
use crate::worker::REPEATS_MAX;
use crate::workload::Region;

/// A volume that is attached. See the module documentation.
pub struct Bound {
    /// What it is, and how it was reached.
    pub place: TestedVolume,
    facts: Facts,
    way: Way,
}

#[allow(
    clippy::large_enum_variant,
    reason = "there is one of them, and it is not moved about"
)]
enum Way {
    Remote {
        queues: Vec<AnyQueue>,
        maps: QueueMaps,
        control: Control,
        info: VolumeInfo,
    },
    Local {
        local: Local,
        options: LocalOptions,
    },
}

impl Bound {
    /// Attaches a volume: with as many queues as the options say, or as few as the server grants; `writes`: local
    /// storage is opened for writing.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn open(
        medium: &Medium,
        options: &Options,
        local_options: LocalOptions,
        writes: bool,
    ) -> Result<Self, BenchError> {
        match medium {
            Medium::Remote(url) => {
                let attachment = attach(url, options)?;
                let place = TestedVolume::of(url, &attachment);
                let Attachment {
                    info,
                    queues,
                    maps,
                    control,
                    ..
                } = attachment;
                Ok(Self {
                    place,
                    facts: Facts::from(&info),
                    way: Way::Remote {
                        queues,
                        maps,
                        control,
                        info,
                    },
                })
            }
            Medium::Local(path) => {
                let local = Local::open(path, local_options, writes)?;
                let engine = local::engine(local_options.engine, 1)?.kind();
                Ok(Self {
                    place: TestedVolume::of_local(path, &local, engine, local_options),
                    facts: local.facts(),
                    way: Way::Local {
                        local,
                        options: local_options,
                    },
                })
            }
        }
    }

    /// Whether it takes no writes.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.facts.read_only
    }

    /// Most bytes of one operation, if there is a limit.
    #[must_use]
    pub fn transfer_bytes(&self) -> Option<u64> {
        let blocks = self.facts.max_transfer_blocks?;
        Some(u64::from(blocks) * u64::from(self.facts.block_size))
    }

    /// What the server says of the volume; nothing of local storage.
    #[must_use]
    pub const fn info(&self) -> Option<&VolumeInfo> {
        match &self.way {
            Way::Remote { info, .. } => Some(info),
            Way::Local { .. } => None,
        }
    }

    /// Bytes of a sparse file that are allocated.
    #[must_use]
    pub const fn allocated(&self) -> Option<u64> {
        match &self.way {
            Way::Remote { .. } => None,
            Way::Local { local, .. } => local.allocated,
        }
    }

    /// The queues; none of local storage. None has an operation under way between two points.
    #[must_use]
    pub fn queues(&mut self) -> &mut [AnyQueue] {
        match &mut self.way {
            Way::Remote { queues, .. } => queues,
            Way::Local { .. } => &mut [],
        }
    }

    /// The control path; none of local storage.
    #[must_use]
    pub const fn control(&mut self) -> Option<&mut Control> {
        match &mut self.way {
            Way::Remote { control, .. } => Some(control),
            Way::Local { .. } => None,
        }
    }

    /// What the kernel knows of the connections of the queues.
    ///
    /// # Errors
    /// It does not tell.
    pub fn tcp(&self) -> io::Result<Vec<TcpInfo>> {
        match &self.way {
            Way::Remote { queues, .. } => {
                let sockets = queues.iter().map(AnyQueue::socket);
                sockets.map(tcp_info).collect()
            }
            Way::Local { .. } => Ok(Vec::new()),
        }
    }

    /// Measures a point with all queues, whatever maps it names. `content`: what its region holds, and what writes write
    /// back there. `server`: the clock of the server's process, if it is here.
    ///
    /// # Errors
    /// The volume cannot be used so. What goes wrong later is part of the result; after a loss of the connection no
    /// other point is measured.
    pub fn point(
        &mut self,
        run: &Run,
        content: Option<&Arc<Buffer>>,
        server: Option<ProcessClock>,
        interrupt: &Interrupt,
        watch: &mut dyn Watch,
    ) -> Result<PointResult, BenchError> {
        let maps = match &self.way {
            Way::Remote { maps, .. } => *maps,
            Way::Local { .. } => run.maps,
        };
        let mut run = run.clone();
        run.maps = maps;
        run.verify = Verify::Off;
        if matches!(self.way, Way::Local { .. }) {
            run.threads = Some(u16::try_from(maps.total()).unwrap_or(u16::MAX));
        }
        let region = check(&run, self.facts)?;
        let layout = layout(&run, maps)?;
        let depth = usize::try_from(layout.depth).expect("a small number");
        let load = Load {
            run: &run,
            maps,
            layout,
            region,
            max_transfer: self.facts.max_transfer_blocks.unwrap_or(u32::MAX),
            verifier: None,
            content: content.cloned(),
        };
        let mut supervisor = Supervisor {
            control: None,
            server,
            interrupt,
            watch,
            read_back: false,
        };
        match &mut self.way {
            Way::Remote {
                queues, control, ..
            } => {
                supervisor.control = Some(control);
                let (used, result) = load.measure(std::mem::take(queues), &mut supervisor);
                *queues = used;
                Ok(result)
            }
            Way::Local { local, options } => {
                let queue = |_| LocalQueue::new(&local.volume, options.engine, depth);
                let queues = (0..maps.total()).map(queue).collect();
                let (_, result) = load.measure::<LocalQueue>(queues, &mut supervisor);
                Ok(result)
            }
        }
    }

    /// Reads a part of the volume into memory, in operations of up to so many bytes, each with so much time.
    ///
    /// # Errors
    /// A read fails, or takes longer.
    pub fn read(
        &mut self,
        region: Region,
        size: u32,
        limit: Duration,
    ) -> Result<Buffer, BenchError> {
        let size = (size / region.block_size).max(1);
        match &mut self.way {
            Way::Remote { queues, .. } => {
                read_region(&mut queues[0], region, u64::from(size), limit)
            }
            Way::Local { local, options } => {
                let mut queue = LocalQueue::new(&local.volume, options.engine, 1);
                let read = read_region(&mut queue, region, u64::from(size), limit);
                queue.leave_thread();
                read
            }
        }
    }

    pub fn close(self) {
        if let Way::Remote {
            queues, control, ..
        } = self.way
        {
            log_out(queues);
            control.close();
        }
    }
}

fn read_region<Q: LoadQueue>(
    queue: &mut Q,
    region: Region,
    blocks_max: u64,
    limit: Duration,
) -> Result<Buffer, BenchError> {
    let end = Lba(region.lba + region.blocks);
    let mut content = Buffer::allocate(region.offset(end));
    let mut lba = Lba(region.lba);
    while lba < end {
        let blocks = BlockCount((end.0 - lba.0).min(blocks_max));
        let extent = Extent { lba, blocks };
        let next = Lba(lba.0 + blocks.0);
        let place = region.offset(lba)..region.offset(next);
        let data = Data::buffer(Buffer::allocate(place.len()));
        let data = run(queue, Operation::Read { extent }, data, limit)?;
        content[place].copy_from_slice(data.bytes());
        lba = next;
    }
    Ok(content)
}

/// Runs one operation, with its memory. A unit attention reports a change instead of executing it.
fn run<Q: LoadQueue>(
    queue: &mut Q,
    operation: Operation,
    mut data: Data,
    limit: Duration,
) -> Result<Data, BenchError> {
    let end = Instant::now() + limit;
    for repeats in 0.. {
        let completion = run_once(queue, operation, data, end)?;
        data = completion.data;
        match completion.result {
            Err(failure) if failure.is_unit_attention() && repeats < REPEATS_MAX => {}
            result => return Ok(result.map(|_| data)?),
        }
    }
    unreachable!("the number of repetitions is bounded")
}

fn run_once<Q: LoadQueue>(
    queue: &mut Q,
    operation: Operation,
    data: Data,
    end: Instant,
) -> Result<Completion, BenchError> {
    queue
        .submit(operation, data, 0)
        .map_err(|refused| match refused {
            Refused::Busy(_) => BenchError::Lost(Lost::Silent),
            Refused::Failed(_, failure) => BenchError::Failed(failure),
        })?;
    let mut completions = Vec::new();
    loop {
        queue.send(usize::MAX)?;
        let left = end.saturating_duration_since(Instant::now());
        wait(queue, &mut completions, left)?;
        if let Some(completion) = completions.pop() {
            return Ok(completion);
        }
        if left.is_zero() {
            return Err(Lost::Silent.into());
        }
    }
}

fn wait<Q: LoadQueue>(
    queue: &mut Q,
    completions: &mut Vec<Completion>,
    most: Duration,
) -> Result<(), Lost> {
    if queue.socket().is_none() {
        queue.sleep(most)?;
        return queue.receive(completions).map(drop);
    }
    Waiter::default().receive(std::slice::from_mut(queue), completions, || most)
}
