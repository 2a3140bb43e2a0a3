//! Storage for tests: one that runs each operation when it is submitted, and one over an engine.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use longshore_reactor::storage::{
    CompletionSink, Delegated, FileCompletion, FileHandle, FileOperation, FileOperationKind,
    Storage, StorageTag,
};
use longshore_reactor::{Engine, EngineEvent};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

/// How long a test waits for others to do what they were asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Storage whose completions can be waited for.
pub trait CompletionSource: Storage {
    /// The next completion. Only called while at least one operation is under way.
    fn next_completion(&mut self) -> FileCompletion;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationName {
    Read,
    Write,
    DurableWrite,
    DataSync,
    PunchHole,
    ZeroRange,
    Allocate,
    BlockDiscard,
    BlockZeroOut,
    SeekData,
    SeekHole,
}

impl OperationName {
    fn of(kind: &FileOperationKind) -> OperationName {
        match kind {
            FileOperationKind::Read { .. } => OperationName::Read,
            FileOperationKind::Write { dsync: false, .. } => OperationName::Write,
            FileOperationKind::Write { dsync: true, .. } => OperationName::DurableWrite,
            FileOperationKind::DataSync => OperationName::DataSync,
            FileOperationKind::PunchHole { .. } => OperationName::PunchHole,
            FileOperationKind::ZeroRange { .. } => OperationName::ZeroRange,
            FileOperationKind::Allocate { .. } => OperationName::Allocate,
            FileOperationKind::BlockDiscard { .. } => OperationName::BlockDiscard,
            FileOperationKind::BlockZeroOut { .. } => OperationName::BlockZeroOut,
            FileOperationKind::SeekData { .. } => OperationName::SeekData,
            FileOperationKind::SeekHole { .. } => OperationName::SeekHole,
        }
    }
}

/// What happens to an operation instead of what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error and does nothing.
    Fail(Errno),
    /// It reads or writes at most this many bytes.
    Short(usize),
}

/// Storage that runs each operation in the submitting thread, and fails to order.
#[derive(Debug, Default)]
pub struct TestStorage {
    completions: VecDeque<FileCompletion>,
    once: Vec<(OperationName, Effect)>,
    always: Vec<(OperationName, Effect)>,
    log: Vec<OperationName>,
    /// Descriptions that the operations used, in the order of the log.
    files: Vec<FileHandle>,
    /// What others have completed.
    inbox: Arc<Inbox>,
}

/// Completions of delegated operations.
#[derive(Debug, Default)]
struct Inbox {
    completions: Mutex<VecDeque<FileCompletion>>,
    arrived: Condvar,
}

impl Inbox {
    /// The next one, whenever it comes.
    fn wait(&self) -> FileCompletion {
        let completions = self
            .completions
            .lock()
            .expect("a test ends at its first panic");
        let (mut completions, _) = self
            .arrived
            .wait_timeout_while(completions, PATIENCE, |completions| completions.is_empty())
            .expect("a test ends at its first panic");
        completions
            .pop_front()
            .expect("an operation is under way and ends in time")
    }
}

impl CompletionSink for Inbox {
    fn accept(&self, completion: FileCompletion) {
        self.completions
            .lock()
            .expect("a test ends at its first panic")
            .push_back(completion);
        self.arrived.notify_one();
    }
}

impl TestStorage {
    /// Storage that does what it is told.
    #[must_use]
    pub fn new() -> TestStorage {
        TestStorage::default()
    }

    /// The next operation of that name meets the effect. Several of one name are met in the order in
    /// which they were given.
    pub fn once(&mut self, name: OperationName, effect: Effect) {
        self.once.push((name, effect));
    }

    /// From now on every operation of that name meets the effect.
    pub fn always(&mut self, name: OperationName, effect: Effect) {
        self.always.push((name, effect));
    }

    /// Whether an operation that was submitted has not been taken out as completed.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Names of the operations submitted since the last call.
    pub fn take_log(&mut self) -> Vec<OperationName> {
        self.files.clear();
        std::mem::take(&mut self.log)
    }

    /// File descriptions of the operations submitted since the last [`TestStorage::take_log`].
    #[must_use]
    pub fn files(&self) -> &[FileHandle] {
        &self.files
    }

    fn effect_on(&mut self, name: OperationName) -> Option<Effect> {
        if let Some(place) = self.once.iter().position(|(of, _)| *of == name) {
            return Some(self.once.remove(place).1);
        }
        self.always
            .iter()
            .find(|(of, _)| *of == name)
            .map(|(_, effect)| *effect)
    }
}

impl Storage for TestStorage {
    fn submit(&mut self, operation: FileOperation) {
        let FileOperation {
            file,
            mut kind,
            tag,
            ..
        } = operation;
        let name = OperationName::of(&kind);
        self.log.push(name);
        self.files.push(file.clone());
        let result = match self.effect_on(name) {
            Some(Effect::Fail(errno)) => Err(errno.into()),
            Some(Effect::Short(most)) => run(&file, &mut kind, most),
            None => run(&file, &mut kind, usize::MAX),
        };
        let buffer = match kind {
            FileOperationKind::Read { buffer, .. } | FileOperationKind::Write { buffer, .. } => {
                Some(buffer)
            }
            _ => None,
        };
        self.completions.push_back(FileCompletion {
            tag,
            result,
            buffer,
        });
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        Delegated::new(tag, self.inbox.clone())
    }
}

impl CompletionSource for TestStorage {
    fn next_completion(&mut self) -> FileCompletion {
        self.completions
            .pop_front()
            .unwrap_or_else(|| self.inbox.wait())
    }
}

fn run(file: &FileHandle, kind: &mut FileOperationKind, most: usize) -> io::Result<u64> {
    let file = &file.0;
    let count = |moved: usize| u64::try_from(moved).expect("64 bits");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    Ok(match kind {
        FileOperationKind::Read {
            offset,
            buffer,
            start,
            end,
        } => {
            let end = (*end).min(start.saturating_add(most));
            count(rustix::io::pread(file, &mut buffer[*start..end], *offset)?)
        }
        FileOperationKind::Write {
            offset,
            buffer,
            start,
            end,
            dsync,
        } => {
            let end = (*end).min(start.saturating_add(most));
            let flags = if *dsync {
                ReadWriteFlags::DSYNC
            } else {
                ReadWriteFlags::empty()
            };
            let from = [io::IoSlice::new(&buffer[*start..end])];
            count(rustix::io::pwritev2(file, &from, *offset, flags)?)
        }
        FileOperationKind::DataSync => rustix::fs::fdatasync(file).map(|()| 0)?,
        // On block devices fallocate does what these ioctls do, as far as tests can see.
        FileOperationKind::PunchHole { offset, length }
        | FileOperationKind::BlockDiscard { offset, length } => {
            rustix::fs::fallocate(file, punch, *offset, *length).map(|()| 0)?
        }
        FileOperationKind::ZeroRange { offset, length }
        | FileOperationKind::BlockZeroOut { offset, length } => {
            rustix::fs::fallocate(file, zero, *offset, *length).map(|()| 0)?
        }
        FileOperationKind::Allocate { offset, length } => {
            rustix::fs::fallocate(file, FallocateFlags::empty(), *offset, *length).map(|()| 0)?
        }
        FileOperationKind::SeekData { offset } => rustix::fs::seek(file, SeekFrom::Data(*offset))?,
        FileOperationKind::SeekHole { offset } => rustix::fs::seek(file, SeekFrom::Hole(*offset))?,
    })
}

/// A real engine as storage of a test.
#[derive(Debug)]
pub struct EngineStorage {
    engine: Engine,
    completions: VecDeque<FileCompletion>,
}

impl EngineStorage {
    /// Takes the engine over.
    #[must_use]
    pub fn new(engine: Engine) -> EngineStorage {
        EngineStorage {
            engine,
            completions: VecDeque::new(),
        }
    }
}

impl Storage for EngineStorage {
    fn submit(&mut self, operation: FileOperation) {
        self.engine.submit(operation);
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        self.engine.delegate(tag)
    }

    fn at_turn_end(&mut self, call: fn()) {
        self.engine.at_turn_end(call);
    }
}

impl CompletionSource for EngineStorage {
    fn next_completion(&mut self) -> FileCompletion {
        let mut events = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.completions.pop_front() {
                return completion;
            }
            assert!(Instant::now() < deadline, "storage does not answer");
            self.engine
                .wait(Some(Duration::from_secs(1)), &mut events)
                .expect("the engine waits");
            self.completions
                .extend(events.drain(..).filter_map(|event| match event {
                    EngineEvent::File(completion) => Some(completion),
                    _ => None,
                }));
        }
    }
}
