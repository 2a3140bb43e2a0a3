//! Drives a volume on an event loop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use longshore_reactor::buffer::Buffer;
use longshore_reactor::{Engine, EngineChoice, EngineConfig, EngineEvent, Waker};
use longshore_volume::{Executor, Extent, Io, Operation, Request, Started, Volume};
use rustix::time::ClockId;

use crate::load::{Content, FILL, Load, Spread};

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub iops: f64,
    /// CPU time of the process for an operation.
    pub cpu_micros: f64,
    /// One of a thousand operations took longer.
    pub slowest_micros: f64,
    pub longest_micros: f64,
}

/// An event loop, and what it writes.
pub struct Driver {
    engine: Engine,
    /// With the moment at which each began.
    executor: Executor<Instant>,
    content: Content,
    random: u64,
    buffers: Vec<Buffer>,
    events: Vec<EngineEvent>,
}

impl Driver {
    pub fn new(content: Content) -> anyhow::Result<Self> {
        let waker = Waker::new()?;
        let engine = Engine::new(EngineChoice::IoUring, EngineConfig::default(), waker)?;
        Ok(Self {
            engine,
            executor: Executor::default(),
            content,
            random: 0x2545_f491_4f6c_dd1d,
            buffers: Vec::new(),
            events: Vec::new(),
        })
    }

    /// From now on the volume works on this event loop, as a server's do.
    pub fn attach(&mut self, volume: &Arc<dyn Volume>) {
        self.executor.attach(volume, &mut self.engine);
    }

    /// Attaches the volume, and writes all of it once.
    pub fn fill(&mut self, volume: &Arc<dyn Volume>) -> anyhow::Result<()> {
        self.attach(volume);
        let count = volume.geometry().size_bytes() >> 20;
        self.repeat(volume, &FILL, count)
    }

    /// Runs this many operations of a load.
    pub fn repeat(
        &mut self,
        volume: &Arc<dyn Volume>,
        load: &Load,
        count: u64,
    ) -> anyhow::Result<()> {
        self.drive(volume, load, |started| started < count)?;
        Ok(())
    }

    /// Writes content to the start of a volume, in its order.
    pub fn write(
        &mut self,
        volume: &Arc<dyn Volume>,
        content: Vec<u8>,
        bytes: usize,
    ) -> anyhow::Result<Figures> {
        let load = Load {
            name: "write",
            bytes,
            depth: 32,
            ..FILL
        };
        let most = u64::try_from(content.len() / bytes)?;
        let before = std::mem::replace(&mut self.content, Content::whole(content));
        let figures = self.figures(volume, &load, |started| started < most);
        self.content = before;
        figures
    }

    pub fn run(
        &mut self,
        volume: &Arc<dyn Volume>,
        load: &Load,
        seconds: u64,
    ) -> anyhow::Result<Figures> {
        let end = Instant::now() + Duration::from_secs(seconds);
        self.figures(volume, load, |_| Instant::now() < end)
    }

    fn figures(
        &mut self,
        volume: &Arc<dyn Volume>,
        load: &Load,
        goes_on: impl Fn(u64) -> bool,
    ) -> anyhow::Result<Figures> {
        let begin = Instant::now();
        let cpu = cpu_time();
        let mut micros = self.drive(volume, load, goes_on)?;
        let count = f64::from(u32::try_from(micros.len()).context("too many operations")?);
        let (iops, cpu) = (count / begin.elapsed().as_secs_f64(), cpu_time() - cpu);
        micros.sort_unstable();
        let slowest = micros.len() - micros.len().div_ceil(1000).min(micros.len());
        Ok(Figures {
            iops,
            cpu_micros: cpu.as_secs_f64() * 1e6 / count,
            slowest_micros: micros.get(slowest).copied().map_or(0.0, f64::from),
            longest_micros: micros.last().copied().map_or(0.0, f64::from),
        })
    }

    /// Begins work that goes on beside what is driven.
    pub fn begin<F: Future<Output = ()> + 'static>(&mut self, work: impl FnOnce(Io) -> F) {
        self.executor.spawn(work, &mut self.engine);
    }

    /// Runs a future on the event loop.
    pub fn wait_for<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        work: impl FnOnce(Io) -> F,
    ) -> anyhow::Result<T> {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.executor.spawn(
            |io| {
                let work = work(io);
                async move {
                    let value = work.await;
                    *slot.borrow_mut() = Some(value);
                }
            },
            &mut self.engine,
        );
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return Ok(value);
            }
            self.turn()?;
        }
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let most = Some(Duration::from_secs(1));
        self.engine.wait(most, &mut events)?;
        for event in events.drain(..) {
            if let EngineEvent::File(completion) = event {
                self.executor.complete(completion, &mut self.engine);
            }
        }
        self.events = events;
        self.executor.proceed(&mut self.engine);
        Ok(())
    }

    fn drive(
        &mut self,
        volume: &Arc<dyn Volume>,
        load: &Load,
        goes_on: impl Fn(u64) -> bool,
    ) -> anyhow::Result<Vec<u32>> {
        let places = volume.geometry().size_bytes() / u64::try_from(load.bytes)?;
        let (mut started, mut micros, mut under_way) = (0_u64, Vec::new(), 0);
        loop {
            while under_way < load.depth && goes_on(started) {
                let is_flush =
                    load.flush_every > 0 && started % (load.flush_every + 1) == load.flush_every;
                let request = if is_flush {
                    Request::new(Operation::Flush)
                } else {
                    self.request(load, started, places)
                };
                started += 1;
                let now = Instant::now();
                let begun = self.executor.start(volume, request, now, &mut self.engine);
                match begun {
                    Started::Ended(begin, ended) => {
                        ended.result.context(load.name)?;
                        self.buffers.extend(ended.buffer);
                        micros.push(since(begin));
                    }
                    Started::Waits(_) => under_way += 1,
                }
                self.take_ended(load, &mut micros, &mut under_way)?;
            }
            if under_way == 0 {
                return Ok(micros);
            }
            self.turn()?;
            self.take_ended(load, &mut micros, &mut under_way)?;
        }
    }

    fn take_ended(
        &mut self,
        load: &Load,
        micros: &mut Vec<u32>,
        under_way: &mut usize,
    ) -> anyhow::Result<()> {
        while let Some((begin, ended)) = self.executor.next_ended() {
            ended.result.context(load.name)?;
            self.buffers.extend(ended.buffer);
            micros.push(since(begin));
            *under_way -= 1;
        }
        Ok(())
    }

    fn request(&mut self, load: &Load, number: u64, places: u64) -> Request {
        let place = if load.random {
            match load.spread {
                Spread::Even => self.roll() % places,
                Spread::Skewed => {
                    let tenth = (places / 10).max(1);
                    let (most, place) = (!self.roll().is_multiple_of(10), self.roll());
                    if most { place % tenth } else { place % places }
                }
            }
        } else {
            number % places
        };
        let blocks = u64::try_from(load.bytes / 4096).unwrap_or(1);
        let extent = Extent::new(place * blocks, blocks);
        let mut request = Request::new(if load.writes {
            Operation::Write {
                extent,
                fua: load.fua,
            }
        } else {
            Operation::Read { extent }
        });
        let fits = |buffer: &Buffer| buffer.capacity() >= load.bytes;
        let kept = self.buffers.iter().rposition(fits);
        let mut buffer = match kept {
            Some(place) => self.buffers.swap_remove(place),
            None => Buffer::allocate(load.bytes),
        };
        buffer.set_len(load.bytes);
        if load.writes {
            let chosen = if load.random {
                self.random ^ number
            } else {
                number
            };
            let bytes = self.content.slice(chosen, load.bytes);
            buffer.copy_from_slice(bytes);
        }
        request.buffer = Some(buffer);
        request.end = load.bytes;
        request
    }

    fn roll(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }
}

/// Microseconds since a moment.
fn since(begin: Instant) -> u32 {
    u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Bytes that this process has written to drives, as the kernel counts them.
pub fn drive_bytes() -> anyhow::Result<u64> {
    let counts = std::fs::read_to_string("/proc/self/io")?;
    let line = counts
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))
        .context("/proc/self/io has no write_bytes")?;
    Ok(line.parse()?)
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
