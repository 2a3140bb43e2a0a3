//! Queues to files and block devices of this machine.
//!
//! A queue stands where a connection to a server would: it takes the same operations and brings the same
//! completions, through the engine and the backend with which `longshore serve` reaches storage. So
//! what differs from the figures of a server over the same storage is protocol and network.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longshore_initiator::error::{Failure, Lost};
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_reactor::{
    Buffer, Engine, EngineChoice, EngineConfig, EngineError, EngineEvent, Waker,
};
use longshore_volume::{Ended, Executor, Request, Started, Volume, VolumeError};

use rustix::io::Errno;

use crate::queue::{LoadQueue, Refused};

/// Most threads that wait for storage in place of io_uring, for a queue.
const HELPERS_MAX: usize = 64;

thread_local! {
    /// An event loop stays on the thread that has made it, while queues change threads. No thread has more
    /// than one queue of this kind.
    static EVENT_LOOP: RefCell<Option<EventLoop>> = const { RefCell::new(None) };
}

struct EventLoop {
    /// The owner of a request is the number of its slot.
    executor: Executor<usize>,
    engine: Engine,
}

/// See the module documentation.
pub(crate) struct LocalQueue {
    volume: Arc<dyn Volume>,
    choice: EngineChoice,
    block_size: u32,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ended: Vec<Completion>,
    events: Vec<EngineEvent>,
}

/// An operation under way.
struct Slot {
    tag: u64,
    lent: Lent,
    /// Memory for operations that bring none of their own.
    own: Option<Own>,
}

/// Where the memory of an operation is.
enum Lent {
    /// It is in the request.
    Buffer { start: usize },
    /// There was none; the request has the slot's own.
    Nothing,
    /// The request has a copy of it.
    Shared {
        buffer: Arc<Buffer>,
        start: usize,
        length: usize,
    },
}

struct Own {
    buffer: Buffer,
    /// What it begins with, if it is a copy.
    copied: Option<Copied>,
}

/// A part of memory that is shared.
struct Copied {
    content: Arc<Buffer>,
    start: usize,
    length: usize,
}

impl Slot {
    /// Own memory that begins with a part of what is shared.
    fn copy(&mut self, content: &Arc<Buffer>, start: usize, length: usize) -> Buffer {
        let own = self.own.take();
        let has = own.as_ref().and_then(|own| own.copied.as_ref());
        let is_there = has.is_some_and(|copied| {
            Arc::ptr_eq(&copied.content, content)
                && copied.start == start
                && copied.length >= length
        });
        let own = own.filter(|own| own.buffer.len() >= length);
        let mut buffer = own.map_or_else(|| Buffer::allocate(length), |own| own.buffer);
        if !is_there {
            buffer[..length].copy_from_slice(&content[start..start + length]);
        }
        buffer
    }

    /// A request with the memory of the operation.
    fn lend(&mut self, operation: Operation, data: Data, length: usize) -> Request {
        let (buffer, start, lent) = match data {
            Data::Buffer { buffer, start } => (buffer, start, Lent::Buffer { start }),
            Data::Shared { buffer, start } => {
                let copy = self.copy(&buffer, start, length);
                let lent = Lent::Shared {
                    buffer,
                    start,
                    length,
                };
                (copy, 0, lent)
            }
            Data::Discard | Data::None => {
                let own = self.own.take().filter(|own| own.buffer.len() >= length);
                let buffer = own.map_or_else(|| Buffer::allocate(length), |own| own.buffer);
                (buffer, 0, Lent::Nothing)
            }
        };
        self.lent = lent;
        Request {
            operation,
            buffer: Some(buffer),
            start,
            end: start + length,
        }
    }
}

/// An engine for a queue of this depth.
pub(crate) fn engine(choice: EngineChoice, depth: usize) -> Result<Engine, EngineError> {
    let waker = Waker::new().map_err(|source| EngineError::SystemCall {
        call: "eventfd",
        source,
    })?;
    let entries = |least: u32| {
        let depth = u32::try_from(depth.min(32_768)).expect("clamped");
        depth.next_power_of_two().max(least)
    };
    let config = EngineConfig {
        ring_entries: entries(256).min(4096),
        completion_entries: entries(1024),
        helper_threads_max: depth.clamp(1, HELPERS_MAX),
        ..EngineConfig::default()
    };
    Engine::new(choice, config, waker)
}

impl LocalQueue {
    pub(crate) fn new(volume: &Arc<dyn Volume>, choice: EngineChoice, depth: usize) -> Self {
        let slot = |_| Slot {
            tag: 0,
            lent: Lent::Nothing,
            own: None,
        };
        Self {
            volume: volume.clone(),
            choice,
            block_size: volume.geometry().block_size,
            slots: (0..depth).map(slot).collect(),
            free: (0..depth).rev().collect(),
            ended: Vec::with_capacity(depth),
            events: Vec::new(),
        }
    }

    /// Does something with the event loop of this thread.
    fn with_event_loop<T>(&self, act: impl FnOnce(&mut EventLoop) -> T) -> Result<T, Lost> {
        EVENT_LOOP.with_borrow_mut(|place| {
            let event_loop = match place {
                Some(event_loop) => event_loop,
                None => {
                    let made = engine(self.choice, self.slots.len());
                    // One like it was made before the threads began, so it is memory that has run out.
                    let out_of_memory = io::Error::from(Errno::NOMEM);
                    place.insert(EventLoop {
                        executor: Executor::default(),
                        engine: made.map_err(|_| Lost::from_io(&out_of_memory))?,
                    })
                }
            };
            Ok(act(event_loop))
        })
    }

    /// Ends an operation whose request is over.
    fn end(&mut self, number: usize, ended: Ended) {
        let slot = &mut self.slots[number];
        let buffer = ended.buffer.expect("it comes back");
        let data = match std::mem::replace(&mut slot.lent, Lent::Nothing) {
            Lent::Buffer { start } => Data::Buffer { buffer, start },
            Lent::Nothing => {
                slot.own = Some(Own {
                    buffer,
                    copied: None,
                });
                Data::Discard
            }
            Lent::Shared {
                buffer: content,
                start,
                length,
            } => {
                slot.own = Some(Own {
                    buffer,
                    copied: Some(Copied {
                        content: content.clone(),
                        start,
                        length,
                    }),
                });
                Data::Shared {
                    buffer: content,
                    start,
                }
            }
        };
        self.free.push(number);
        self.ended.push(Completion {
            tag: slot.tag,
            result: answer(ended.result),
            data,
        });
    }

    fn take_ended(&mut self) -> Result<(), Lost> {
        let next = |event_loop: &mut EventLoop| event_loop.executor.next_ended();
        while let Some((number, ended)) = self.with_event_loop(next)? {
            self.end(number, ended);
        }
        Ok(())
    }

    /// Submits, waits for completions, and handles them.
    fn turn(&mut self, timeout: Duration) -> Result<(), Lost> {
        let mut events = std::mem::take(&mut self.events);
        let waited = self.with_event_loop(|event_loop| {
            let waited = event_loop.engine.wait(Some(timeout), &mut events);
            for event in events.drain(..) {
                if let EngineEvent::File(completion) = event {
                    let engine = &mut event_loop.engine;
                    event_loop.executor.complete(completion, engine);
                }
            }
            waited
        })?;
        self.take_ended()?;
        self.events = events;
        match waited {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(Lost::from_io(&error)),
            _ => Ok(()),
        }
    }
}

/// As an operation of a server's volume would have failed.
fn answer(result: Result<Reply, VolumeError>) -> Result<Reply, Failure> {
    match result {
        Ok(_) => Ok(Reply::Done),
        Err(VolumeError::NoSpace) => Err(Failure::NoSpace),
        Err(VolumeError::ReadOnly) => Err(Failure::ReadOnly),
        Err(VolumeError::OutOfRange | VolumeError::ShortFile { .. }) => Err(Failure::OutOfRange),
        Err(VolumeError::Unsupported) => Err(Failure::Unsupported),
        Err(VolumeError::Io { source, .. }) => {
            let errno = source.raw_os_error();
            Err(Failure::System(errno.unwrap_or(Errno::IO.raw_os_error())))
        }
        Err(VolumeError::OutOfMemory) => Err(Failure::System(Errno::NOMEM.raw_os_error())),
        Err(VolumeError::Poisoned | VolumeError::Removed | VolumeError::Shortened) => {
            Err(Failure::System(Errno::IO.raw_os_error()))
        }
    }
}

impl LoadQueue for LocalQueue {
    fn room(&self) -> usize {
        self.free.len()
    }

    fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Refused> {
        // A load has no others, and only these have a payload to lend.
        if !matches!(operation, Operation::Read { .. } | Operation::Write { .. }) {
            return Err(Refused::Failed(data, Failure::Unsupported));
        }
        if self.with_event_loop(|_| ()).is_err() {
            let out_of_memory = Failure::System(Errno::NOMEM.raw_os_error());
            return Err(Refused::Failed(data, out_of_memory));
        }
        let Some(number) = self.free.pop() else {
            return Err(Refused::Busy(data));
        };
        let length = operation
            .extent()
            .map_or(0, |extent| extent.bytes(self.block_size));
        let length = usize::try_from(length).expect("an operation fits into memory");
        let slot = &mut self.slots[number];
        slot.tag = tag;
        let request = slot.lend(operation, data, length);
        let volume = self.volume.clone();
        let started = self.with_event_loop(|event_loop| {
            let engine = &mut event_loop.engine;
            event_loop.executor.start(&volume, request, number, engine)
        });
        if let Ok(Some((number, ended))) = started.map(Started::ended) {
            self.end(number, ended);
        }
        // There is an event loop, so this cannot fail.
        let _ = self.take_ended();
        Ok(())
    }

    fn send(&mut self, _most: usize) -> Result<(), Lost> {
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        // The next turn passes everything on.
        false
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<bool, Lost> {
        if self.ended.is_empty() {
            self.turn(Duration::ZERO)?;
        }
        let any = !self.ended.is_empty();
        completions.append(&mut self.ended);
        Ok(any)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn leave_thread(&mut self) {
        // Waits for what is still under way.
        EVENT_LOOP.with_borrow_mut(Option::take);
    }

    fn sleep(&mut self, most: Duration) -> Result<(), Lost> {
        if self.ended.is_empty() {
            self.turn(most)?;
        }
        Ok(())
    }
}
