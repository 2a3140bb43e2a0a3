//! What the requests of a volume may wait for: operations of storage, and answers of other threads.
//!
//! Everything here belongs to one event loop. A future hands its operations to [`Io`]; the
//! [`Executor`](crate::Executor) passes them to the loop's storage as soon as the future waits, and
//! wakes the future with the completion. Another thread answers through [`Io::delegate`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::{
    Delegated, FileCompletion, FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use slab::Slab;

/// Something that a volume does of its own accord.
pub(crate) type Background = Pin<Box<dyn Future<Output = ()>>>;

/// See the module documentation. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Io(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    outgoing: Vec<Outgoing>,
    /// Operations under way; the place of one is the tag of its storage operation.
    operations: Slab<Operation>,
    background: Vec<Background>,
    bounced_bytes: u64,
    sleepers: Sleepers,
}

/// What storage is to be told.
enum Outgoing {
    Submit(FileOperation),
    Delegate(StorageTag),
    AtTurnEnd(fn()),
}

/// An operation under way.
enum Operation {
    Waiting(Option<Waker>),
    /// Storage has taken note of it, and the future does not know yet.
    Granted(Delegated),
    Ended(FileCompletion),
    /// No future waits for it any more.
    Abandoned,
}

/// A read or write that ended.
#[derive(Debug)]
pub struct Transferred {
    /// Bytes moved, at most those asked for.
    pub result: io::Result<u64>,
    /// The buffer that was given.
    pub buffer: Buffer,
}

impl Io {
    /// Reads `buffer[range]` from `offset` of the file on. May read less; 0 bytes at the end of the file.
    pub async fn read(
        &self,
        file: FileHandle,
        is_direct: bool,
        offset: u64,
        buffer: Buffer,
        range: Range<usize>,
    ) -> Transferred {
        let kind = FileOperationKind::Read {
            offset,
            buffer,
            start: range.start,
            end: range.end,
        };
        transferred(self.submit(file, is_direct, kind).await)
    }

    /// Writes `buffer[range]` to `offset` of the file and on. May write less. `dsync`: the bytes are on
    /// the medium when it ends.
    pub async fn write(
        &self,
        file: FileHandle,
        is_direct: bool,
        offset: u64,
        buffer: Buffer,
        range: Range<usize>,
        dsync: bool,
    ) -> Transferred {
        let kind = FileOperationKind::Write {
            offset,
            buffer,
            start: range.start,
            end: range.end,
            dsync,
        };
        transferred(self.submit(file, is_direct, kind).await)
    }

    /// Carries out an operation without a buffer. The answer is the value described at the operation.
    pub async fn call(&self, file: FileHandle, kind: FileOperationKind) -> io::Result<u64> {
        self.submit(file, false, kind).await.result
    }

    /// Begins an operation of storage at once; the future resolves with its completion.
    pub fn submit(&self, file: FileHandle, is_direct: bool, kind: FileOperationKind) -> Submitted {
        let mut state = self.0.borrow_mut();
        let tag = state.enter();
        state.outgoing.push(Outgoing::Submit(FileOperation {
            file,
            kind,
            is_direct,
            tag,
        }));
        drop(state);
        self.submitted(tag)
    }

    /// An operation that another thread carries out: what it completes, and the future of that.
    pub async fn delegate(&self) -> (Delegated, Submitted) {
        let submitted = self.ask_for_delegation();
        let granted = Granted(&submitted).await;
        (granted, submitted)
    }

    fn ask_for_delegation(&self) -> Submitted {
        let mut state = self.0.borrow_mut();
        let tag = state.enter();
        state.outgoing.push(Outgoing::Delegate(tag));
        drop(state);
        self.submitted(tag)
    }

    /// Has `call` run when the present turn of the event loop is over, before it sleeps.
    pub fn at_turn_end(&self, call: fn()) {
        let outgoing = &mut self.0.borrow_mut().outgoing;
        outgoing.push(Outgoing::AtTurnEnd(call));
    }

    /// Resolves at that time, and sooner when nobody is to wait any more: the request was aborted, or the server ends.
    pub fn sleep_until(&self, until: Instant) -> Sleep {
        Sleep {
            io: self.clone(),
            until,
            number: None,
        }
    }

    /// The task with that number is polled, or none any more.
    pub(crate) fn set_task(&self, task: Option<usize>) {
        self.0.borrow_mut().sleepers.task = task;
    }

    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        !self.0.borrow().sleepers.all.is_empty()
    }

    /// When the first sleeper wakes.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.0.borrow().sleepers.next_wake()
    }

    /// Wakes those whose time has come.
    pub(crate) fn wake_due(&self, now: Instant) {
        let due = self.0.borrow_mut().sleepers.take(|until, _| until <= now);
        due.into_iter().for_each(Waker::wake);
    }

    /// Wakes a task, if it sleeps.
    pub(crate) fn wake_task(&self, task: usize) {
        let woken = self
            .0
            .borrow_mut()
            .sleepers
            .take(|_, sleeper| sleeper.task == Some(task));
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes all, and lets nobody sleep from now on.
    pub(crate) fn end_sleep(&self) {
        let mut state = self.0.borrow_mut();
        state.sleepers.is_over = true;
        let woken = state.sleepers.take(|_, _| true);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Runs `future` on this event loop until it ends, or the event loop does. It shares its thread with
    /// everything else there, so it waits for an operation after every few microseconds of work.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().background.push(Box::pin(future));
    }

    /// Counts payload that was copied because O_DIRECT cannot use the memory it lies in.
    pub(crate) fn count_bounced(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).expect("usize is at most 64 bits wide");
        self.0.borrow_mut().bounced_bytes += bytes;
    }

    /// Bytes of payload copied since the last call.
    pub(crate) fn take_bounced_bytes(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().bounced_bytes)
    }

    /// Whether anything waits to be passed on or to be polled for the first time.
    pub(crate) fn has_work(&self) -> bool {
        let state = self.0.borrow();
        !state.outgoing.is_empty() || !state.background.is_empty()
    }

    /// Operations that storage has not completed, or whose futures have not seen it.
    #[cfg(test)]
    pub(crate) fn operations(&self) -> usize {
        self.0.borrow().operations.len()
    }

    /// Passes to storage what the futures have asked for. Returns whether there was anything.
    pub(crate) fn pass_on(&self, storage: &mut dyn Storage) -> bool {
        let mut outgoing = std::mem::take(&mut self.0.borrow_mut().outgoing);
        let any = !outgoing.is_empty();
        for each in outgoing.drain(..) {
            match each {
                Outgoing::Submit(operation) => storage.submit(operation),
                Outgoing::Delegate(tag) => self.grant(tag, storage.delegate(tag)),
                Outgoing::AtTurnEnd(call) => storage.at_turn_end(call),
            }
        }
        let mut state = self.0.borrow_mut();
        if state.outgoing.is_empty() {
            state.outgoing = outgoing;
        }
        any
    }

    /// Futures that were spawned since the last call.
    pub(crate) fn take_background(&self) -> Vec<Background> {
        std::mem::take(&mut self.0.borrow_mut().background)
    }

    /// An operation of storage has ended.
    pub(crate) fn complete(&self, completion: FileCompletion) {
        let mut state = self.0.borrow_mut();
        let place = place(completion.tag);
        let operation = &mut state.operations[place];
        match std::mem::replace(operation, Operation::Abandoned) {
            Operation::Waiting(waker) => {
                *operation = Operation::Ended(completion);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Operation::Abandoned | Operation::Granted(_) => {
                state.operations.remove(place);
            }
            Operation::Ended(_) => unreachable!("storage completes an operation once"),
        }
    }

    fn grant(&self, tag: StorageTag, delegated: Delegated) {
        let mut state = self.0.borrow_mut();
        let operation = &mut state.operations[place(tag)];
        match std::mem::replace(operation, Operation::Granted(delegated)) {
            Operation::Waiting(waker) => {
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // Dropped here, it completes as cancelled, and that completion frees its place.
            Operation::Abandoned => {
                let granted = std::mem::replace(operation, Operation::Abandoned);
                drop(state);
                drop(granted);
            }
            Operation::Granted(_) | Operation::Ended(_) => {
                unreachable!("an operation is delegated once, before it ends")
            }
        }
    }

    fn submitted(&self, tag: StorageTag) -> Submitted {
        Submitted {
            io: self.clone(),
            tag: Some(tag),
        }
    }
}

impl State {
    fn enter(&mut self) -> StorageTag {
        let place = self.operations.insert(Operation::Waiting(None));
        StorageTag(u64::try_from(place).expect("usize is at most 64 bits wide"))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("operations", &self.operations.len())
            .finish_non_exhaustive()
    }
}

fn place(tag: StorageTag) -> usize {
    usize::try_from(tag.0).expect("was a usize before")
}

fn transferred(completion: FileCompletion) -> Transferred {
    Transferred {
        result: completion.result,
        buffer: completion
            .buffer
            .expect("storage gives the buffer of a read or write back"),
    }
}

/// Those who wait for a time.
#[derive(Default)]
struct Sleepers {
    /// By time, and of two with one time by their coming.
    all: BTreeMap<(Instant, u64), Sleeper>,
    /// Of the next one.
    number: u64,
    /// The task that is polled.
    task: Option<usize>,
    /// Nobody sleeps any more.
    is_over: bool,
}

struct Sleeper {
    waker: Waker,
    task: Option<usize>,
}

impl Sleepers {
    fn next_wake(&self) -> Option<Instant> {
        self.all.keys().next().map(|(until, _)| *until)
    }

    /// Takes out those that are meant.
    fn take(&mut self, is_meant: impl Fn(Instant, &Sleeper) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        self.all.retain(|(until, _), sleeper| {
            let is_meant = is_meant(*until, sleeper);
            if is_meant {
                wakers.push(sleeper.waker.clone());
            }
            !is_meant
        });
        wakers
    }
}

/// A wait for a time ([`Io::sleep_until`]).
#[derive(Debug)]
#[must_use = "it waits when it is awaited"]
pub struct Sleep {
    io: Io,
    until: Instant,
    /// Number of the timer, once it runs.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { io, until, number } = &mut *self;
        let sleepers = &mut io.0.borrow_mut().sleepers;
        match number {
            Some(number) => match sleepers.all.get_mut(&(*until, *number)) {
                Some(sleeper) => {
                    sleeper.waker.clone_from(context.waker());
                    Poll::Pending
                }
                // It was taken out to be woken.
                None => Poll::Ready(()),
            },
            None if sleepers.is_over || *until <= Instant::now() => Poll::Ready(()),
            None => {
                let own = sleepers.number;
                sleepers.number += 1;
                let sleeper = Sleeper {
                    waker: context.waker().clone(),
                    task: sleepers.task,
                };
                sleepers.all.insert((*until, own), sleeper);
                *number = Some(own);
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let sleepers = &mut self.io.0.borrow_mut().sleepers;
            sleepers.all.remove(&(self.until, number));
        }
    }
}

/// An operation under way. Dropping it abandons the operation, which runs to its end all the same.
#[derive(Debug)]
#[must_use = "the operation's result, and its buffer, come out of it"]
pub struct Submitted {
    io: Io,
    /// `None` once it has resolved.
    tag: Option<StorageTag>,
}

impl Future for Submitted {
    type Output = FileCompletion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FileCompletion> {
        let Submitted { io, tag } = &mut *self;
        let place = place(tag.expect("polled after its end"));
        let state = &mut *io.0.borrow_mut();
        match &mut state.operations[place] {
            Operation::Waiting(Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            Operation::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Operation::Ended(_) => {
                let Operation::Ended(completion) = state.operations.remove(place) else {
                    unreachable!("it has just been seen");
                };
                *tag = None;
                Poll::Ready(completion)
            }
            Operation::Granted(_) | Operation::Abandoned => {
                unreachable!("its future waits for its end")
            }
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        let Some(tag) = self.tag else {
            return;
        };
        let state = &mut *self.io.0.borrow_mut();
        let operation = &mut state.operations[place(tag)];
        match std::mem::replace(operation, Operation::Abandoned) {
            Operation::Ended(_) => {
                state.operations.remove(place(tag));
            }
            // Its completion frees the place.
            Operation::Waiting(_) | Operation::Granted(_) | Operation::Abandoned => {}
        }
    }
}

/// Resolves when storage has taken note of a delegated operation.
struct Granted<'a>(&'a Submitted);

impl Future for Granted<'_> {
    type Output = Delegated;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Delegated> {
        let tag = self.0.tag.expect("it has not resolved yet");
        let state = &mut *self.0.io.0.borrow_mut();
        let operation = &mut state.operations[place(tag)];
        match std::mem::replace(operation, Operation::Waiting(Some(context.waker().clone()))) {
            Operation::Granted(delegated) => Poll::Ready(delegated),
            Operation::Waiting(_) => Poll::Pending,
            Operation::Ended(_) | Operation::Abandoned => {
                unreachable!("nobody else can end it before it is granted")
            }
        }
    }
}
