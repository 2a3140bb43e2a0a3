//! Runs the requests of one event loop.
//!
//! ```text
//! start ──► poll ──┬─ ready ──► ended
//!                  └─ waits ──► operations to storage … complete ──► wake ──► poll …
//! ```
//!
//! A request is polled when it starts, and whenever something that it waits for has ended. What it asks
//! of storage while it is polled goes there before the executor returns. The order of events is that of
//! the calls, so that a simulation repeats it.
//!
//! Futures may be woken by any thread, for example by the holder of a lock that they wait for. When that
//! happens while the executor does not run, it calls its notifier, which has the event loop call
//! [`Executor::proceed`].

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use longshore_reactor::storage::{FileCompletion, Storage};
use slab::Slab;

use crate::io::{Background, Io};
use crate::request::{Ended, Execution, Request};
use crate::volume::Volume;

/// A request of an executor. No other one ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    place: usize,
    number: u64,
}

/// What became of a request that was started.
#[derive(Debug)]
pub enum Started<T> {
    /// The request has ended.
    Ended(T, Ended),
    /// It waits. Its end comes out of [`Executor::next_ended`].
    Waits(RequestId),
}

impl<T> Started<T> {
    /// Its end, if it is over.
    pub fn ended(self) -> Option<(T, Ended)> {
        match self {
            Self::Ended(owner, ended) => Some((owner, ended)),
            Self::Waits(_) => None,
        }
    }
}

/// See the module documentation. `T` is what the owner of a request wants to have back with it.
#[derive(Debug)]
pub struct Executor<T> {
    io: Io,
    tasks: Slab<Task<T>>,
    /// Tasks that are requests.
    requests: usize,
    ended: VecDeque<(RequestId, T, Ended)>,
    /// Of the request that comes next.
    next_number: u64,
    ready: Arc<Ready>,
    /// For each place of a task.
    wakers: Vec<Waker>,
}

enum Task<T> {
    Request {
        number: u64,
        execution: Execution,
        owner: T,
    },
    Background(Background),
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Request { .. } => "Request",
            Self::Background(_) => "Background",
        })
    }
}

/// Places of tasks that are to be polled.
struct Ready {
    places: Mutex<VecDeque<usize>>,
    /// The executor runs, and will look at the places again before it returns.
    is_running: AtomicBool,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl Ready {
    fn push(&self, place: usize) {
        self.lock().push_back(place);
        if !self.is_running.load(Ordering::SeqCst) {
            (self.notify)();
        }
    }

    fn pop(&self) -> Option<usize> {
        self.lock().pop_front()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

struct TaskWaker {
    ready: Arc<Ready>,
    place: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.place);
    }
}

impl<T> Default for Executor<T> {
    /// One without a notifier, for volumes whose futures are woken by completions of storage alone.
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl<T> Executor<T> {
    /// `notify` is called, by any thread, when [`Self::proceed`] has something to do.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            io: Io::default(),
            tasks: Slab::new(),
            requests: 0,
            ended: VecDeque::new(),
            next_number: 0,
            ready: Arc::new(Ready {
                places: Mutex::default(),
                is_running: AtomicBool::new(false),
                notify: Box::new(notify),
            }),
            wakers: Vec::new(),
        }
    }

    /// Starts a request to a volume.
    pub fn start(
        &mut self,
        volume: &Arc<dyn Volume>,
        request: Request,
        owner: T,
        storage: &mut dyn Storage,
    ) -> Started<T> {
        let execution = Arc::clone(volume).execute(request, self.io.clone());
        self.run(execution, owner, storage)
    }

    /// Runs what `work` makes beside the requests until it ends, or the event loop does. It shares its thread with
    /// everything else there, as [`Io::spawn`] says.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &mut self,
        work: impl FnOnce(Io) -> F,
        storage: &mut dyn Storage,
    ) {
        self.io.spawn(work(self.io.clone()));
        self.proceed(storage);
    }

    /// Lets a volume begin what it does of its own accord on this event loop; see
    /// [`Volume::attach`].
    pub fn attach(&mut self, volume: &Arc<dyn Volume>, storage: &mut dyn Storage) {
        Arc::clone(volume).attach(&self.io);
        self.proceed(storage);
    }

    /// Has a volume stop that; see [`Volume::quiesce`].
    pub fn quiesce(
        &mut self,
        volume: &Arc<dyn Volume>,
        owner: T,
        storage: &mut dyn Storage,
    ) -> Started<T> {
        let execution = Arc::clone(volume).quiesce(self.io.clone());
        self.run(execution, owner, storage)
    }

    /// Lets a volume work of its own accord again; see [`Volume::resume`].
    pub fn resume(&mut self, volume: &Arc<dyn Volume>, storage: &mut dyn Storage) {
        Arc::clone(volume).resume(&self.io);
        self.proceed(storage);
    }

    fn run(&mut self, mut execution: Execution, owner: T, storage: &mut dyn Storage) -> Started<T> {
        if let Execution::Ended(ended) = &mut execution {
            let ended = ended.take().expect("it has not been polled yet");
            if self.io.has_work() {
                self.proceed(storage);
            }
            return Started::Ended(owner, ended);
        }
        self.ready.is_running.store(true, Ordering::SeqCst);
        let place = self.tasks.vacant_key();
        let waker = self.waker(place);
        self.io.set_task(Some(place));
        let polled = Pin::new(&mut execution).poll(&mut Context::from_waker(&waker));
        self.io.set_task(None);
        if let Poll::Ready(ended) = polled {
            self.proceed(storage);
            return Started::Ended(owner, ended);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.requests += 1;
        self.tasks.insert(Task::Request {
            number,
            execution,
            owner,
        });
        self.proceed(storage);
        Started::Waits(RequestId { place, number })
    }

    /// An operation of storage has ended. Requests that end with it come out of [`Self::next_ended`].
    pub fn complete(&mut self, completion: FileCompletion, storage: &mut dyn Storage) {
        self.ready.is_running.store(true, Ordering::SeqCst);
        self.io.complete(completion);
        self.proceed(storage);
    }

    /// A request that is over, in the order in which they ended. To be asked after each [`Self::start`]
    /// and [`Self::complete`], until there is none: a request may end others.
    pub fn next_ended(&mut self) -> Option<(T, Ended)> {
        let (_, owner, ended) = self.ended.pop_front()?;
        Some((owner, ended))
    }

    /// Requests that are under way, or over and not yet taken out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests + self.ended.len()
    }

    /// Whether there are no such requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Self::next_ended`] has something.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// What the owner of a request gave along, until it is taken out.
    pub fn owner_mut(&mut self, request: RequestId) -> Option<&mut T> {
        match self.tasks.get_mut(request.place) {
            Some(Task::Request { number, owner, .. }) if *number == request.number => Some(owner),
            Some(_) | None => {
                let mut ended = self.ended.iter_mut();
                let (_, owner, _) = ended.find(|(id, ..)| *id == request)?;
                Some(owner)
            }
        }
    }

    /// What the owners of all requests gave along that have not been taken out.
    pub fn owners(&self) -> impl Iterator<Item = &T> {
        let under_way = self.tasks.iter().filter_map(|(_, task)| match task {
            Task::Request { owner, .. } => Some(owner),
            Task::Background(_) => None,
        });
        under_way.chain(self.ended.iter().map(|(_, owner, _)| owner))
    }

    /// The same, to be changed.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let under_way = self.tasks.iter_mut().filter_map(|(_, task)| match task {
            Task::Request { owner, .. } => Some(owner),
            Task::Background(_) => None,
        });
        under_way.chain(self.ended.iter_mut().map(|(_, owner, _)| owner))
    }

    /// Bytes of payload that were copied, since the last call, because O_DIRECT cannot use the memory
    /// they lie in.
    pub fn take_bounced_bytes(&mut self) -> u64 {
        self.io.take_bounced_bytes()
    }

    /// Whether a request waits for a time.
    #[inline]
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.io.has_sleepers()
    }

    /// When [`Self::expire`] has something to do: a request [waits for a time](Io::sleep_until).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.io.next_wake()
    }

    /// Lets requests go on whose time has come.
    pub fn expire(&mut self, now: Instant, storage: &mut dyn Storage) {
        self.ready.is_running.store(true, Ordering::SeqCst);
        self.io.wake_due(now);
        self.proceed(storage);
    }

    /// Nobody wants the answer of a request any more: what it waits for is no time. It goes on when the event loop calls
    /// [`Self::proceed`], which the notifier asks for.
    pub fn hurry(&mut self, request: RequestId) {
        if let Some(Task::Request { number, .. }) = self.tasks.get(request.place)
            && *number == request.number
        {
            self.io.wake_task(request.place);
        }
    }

    /// No request waits for a time any more, from now on.
    pub fn end_sleep(&mut self, storage: &mut dyn Storage) {
        self.ready.is_running.store(true, Ordering::SeqCst);
        self.io.end_sleep();
        self.proceed(storage);
    }

    /// Goes on until everything waits for storage or for another thread.
    pub fn proceed(&mut self, storage: &mut dyn Storage) {
        loop {
            self.ready.is_running.store(true, Ordering::SeqCst);
            self.drain(storage);
            self.ready.is_running.store(false, Ordering::SeqCst);
            // What was woken between these two notified nobody.
            if self.ready.is_empty() {
                return;
            }
        }
    }

    fn drain(&mut self, storage: &mut dyn Storage) {
        loop {
            let passed = self.io.pass_on(storage);
            for background in self.io.take_background() {
                let place = self.tasks.insert(Task::Background(background));
                self.ready.push(place);
            }
            match self.ready.pop() {
                Some(place) => self.poll(place),
                None if passed => {}
                None => return,
            }
        }
    }

    fn poll(&mut self, place: usize) {
        self.io.set_task(Some(place));
        self.poll_task(place);
        self.io.set_task(None);
    }

    fn poll_task(&mut self, place: usize) {
        let waker = self.waker(place);
        let context = &mut Context::from_waker(&waker);
        // A waker may outlive its task, and wake another one, or none.
        match self.tasks.get_mut(place) {
            None => {}
            Some(Task::Background(future)) => {
                let polled = future.as_mut().poll(context);
                if polled.is_ready() {
                    self.tasks.remove(place);
                }
            }
            Some(Task::Request { execution, .. }) => {
                let Poll::Ready(ended) = Pin::new(execution).poll(context) else {
                    return;
                };
                if let Task::Request { number, owner, .. } = self.tasks.remove(place) {
                    self.requests -= 1;
                    let id = RequestId { place, number };
                    self.ended.push_back((id, owner, ended));
                }
            }
        }
    }

    fn waker(&mut self, place: usize) -> Waker {
        while self.wakers.len() <= place {
            self.wakers.push(Waker::from(Arc::new(TaskWaker {
                ready: Arc::clone(&self.ready),
                place: self.wakers.len(),
            })));
        }
        self.wakers[place].clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use longshore_reactor::storage::{FileHandle, FileOperationKind};

    use super::*;
    use crate::testing::{CompletionSource, TestStorage};
    use crate::{BackendName, Operation, Reply, VolumeError, VolumeSpec, open};

    fn file() -> FileHandle {
        FileHandle(Arc::new(tempfile::tempfile().expect("a file")))
    }

    fn done() -> Ended {
        Ended {
            result: Ok(Reply::Done),
            buffer: None,
        }
    }

    fn waits<T>(started: Started<T>) -> RequestId {
        match started {
            Started::Waits(request) => request,
            Started::Ended(..) => panic!("it waits for storage"),
        }
    }

    fn complete_all<T>(executor: &mut Executor<T>, storage: &mut TestStorage) {
        while storage.has_completions() {
            let completion = storage.next_completion();
            executor.complete(completion, storage);
        }
    }

    #[test]
    fn a_request_that_ends_others_leaves_their_owners_known_until_they_are_taken_out() {
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        let lock = Rc::new(futures_util::lock::Mutex::new(()));
        let start = |executor: &mut Executor<u32>, storage: &mut TestStorage, owner| {
            let (lock, io) = (lock.clone(), executor.io.clone());
            let execution = Execution::running(async move {
                let _held = lock.lock().await;
                let call = io.call(file(), FileOperationKind::DataSync);
                call.await.expect("synced");
                done()
            });
            waits(executor.run(execution, owner, storage))
        };
        let first = start(&mut executor, &mut storage, 1);
        let second = start(&mut executor, &mut storage, 2);
        assert_eq!(executor.len(), 2);
        complete_all(&mut executor, &mut storage);
        assert!(executor.has_ended() && !executor.is_empty());
        // Its place is used again.
        let third = start(&mut executor, &mut storage, 3);
        for (request, owner) in [(first, 1), (second, 2), (third, 3)] {
            assert_eq!(executor.owner_mut(request).copied(), Some(owner));
        }
        assert_eq!(executor.owners().copied().sum::<u32>(), 6);
        assert_eq!(executor.next_ended().expect("the first").0, 1);
        assert_eq!(executor.owner_mut(first), None);
        assert_eq!(executor.next_ended().expect("the second").0, 2);
        complete_all(&mut executor, &mut storage);
        assert_eq!(executor.next_ended().expect("the third").0, 3);
        assert!(executor.is_empty());
    }

    #[test]
    fn an_operation_that_is_dropped_runs_to_its_end_and_leaves_nothing() {
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        let io = executor.io.clone();
        let execution = Execution::running(async move {
            drop(io.submit(file(), false, FileOperationKind::DataSync));
            let (delegated, answer) = io.delegate().await;
            drop(answer);
            drop(delegated);
            let (delegated, answer) = io.delegate().await;
            drop(delegated);
            assert!(answer.await.result.is_err(), "cancelled");
            done()
        });
        waits(executor.run(execution, (), &mut storage));
        for _ in 0..3 {
            let completion = storage.next_completion();
            executor.complete(completion, &mut storage);
        }
        assert!(executor.next_ended().is_some());
        assert_eq!(executor.io.operations(), 0);
    }

    #[test]
    fn background_work_is_no_request_and_ends_with_the_executor() {
        struct Noted(Rc<Cell<u32>>);
        impl Drop for Noted {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let ended = Rc::new(Cell::new(0));
        let (mut executor, mut storage) = (Executor::<()>::default(), TestStorage::new());
        for rounds in [1, usize::MAX] {
            let (io, noted) = (executor.io.clone(), Noted(ended.clone()));
            executor.io.spawn(async move {
                for _ in 0..rounds {
                    let call = io.call(file(), FileOperationKind::DataSync);
                    call.await.expect("synced");
                }
                drop(noted);
            });
        }
        executor.proceed(&mut storage);
        assert!(executor.is_empty());
        for _ in 0..8 {
            let completion = storage.next_completion();
            executor.complete(completion, &mut storage);
        }
        assert_eq!(ended.get(), 1);
        drop(executor);
        assert_eq!(ended.get(), 2);
    }

    #[test]
    fn what_a_volume_refuses_ends_at_once() {
        let spec = VolumeSpec {
            size: Some(1 << 20),
            read_only: true,
            ..VolumeSpec::new("m", BackendName::MEM)
        };
        let volume = open(&spec).expect("open");
        let (mut executor, mut storage) = (Executor::default(), TestStorage::new());
        let request = Request::new(Operation::Unmap {
            extent: crate::Extent::new(0, 8),
        });
        let Started::Ended(owner, ended) = executor.start(&volume, request, 5, &mut storage) else {
            panic!("nothing to wait for");
        };
        assert_eq!(owner, 5);
        assert!(matches!(ended.result, Err(VolumeError::ReadOnly)));
    }
}
