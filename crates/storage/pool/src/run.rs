//! Runs the pool's futures on a thread that may block: when a pool is opened, and for verbs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use futures_channel::oneshot;
use longshore_reactor::storage::{
    CompletionSink, Delegated, FileCompletion, FileOperation, Storage, StorageTag,
};
use longshore_reactor::{BlockingPool, carry_out};
use longshore_volume::{Executor, Io};

thread_local! {
    /// Tasks of pools on this thread that have not ended.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
    /// Volumes of pools that work on this thread.
    static AT_WORK: Cell<usize> = const { Cell::new(0) };
    /// Those that wait until no task runs here.
    static WAITING: RefCell<Vec<oneshot::Sender<()>>> = const { RefCell::new(Vec::new()) };
}

struct Running;

impl Running {
    fn new() -> Self {
        RUNNING.set(RUNNING.get() + 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
        if RUNNING.get() == 0 {
            // Dropped, they wake those that wait. At the end of the thread nobody does.
            let _ = WAITING.try_with(RefCell::take);
        }
    }
}

/// A volume begins to work on this thread.
pub fn begin_work() {
    AT_WORK.set(AT_WORK.get() + 1);
}

/// Whether a volume works on this thread. Where none does, somebody waits for what runs here to end.
pub fn is_at_work() -> bool {
    AT_WORK.get() > 0
}

/// A volume ends its work on this thread. Once none is left, this waits for the tasks there: they may write what volumes
/// on other threads have staged, and whoever ends the thread would take them along.
pub async fn end_work() {
    AT_WORK.set(AT_WORK.get().saturating_sub(1));
    while AT_WORK.get() == 0 && RUNNING.get() > 0 {
        let (sender, receiver) = oneshot::channel();
        WAITING.with_borrow_mut(|waiting| waiting.push(sender));
        let _ = receiver.await;
    }
}

/// Runs a future beside others on the event loop.
pub fn spawn(io: &Io, future: impl Future<Output = ()> + 'static) {
    let running = Running::new();
    io.spawn(async move {
        future.await;
        drop(running);
    });
}

/// Runs a future to its end on this thread, together with what it [spawns](spawn).
pub fn block_on<T: 'static, F: Future<Output = T> + 'static>(work: impl FnOnce(Io) -> F) -> T {
    let before = RUNNING.get();
    let thread = thread::current();
    let mut executor: Executor<()> = Executor::new(move || thread.unpark());
    let mut storage = Blocking::default();
    let result = Rc::new(RefCell::new(None));
    let slot = result.clone();
    executor.spawn(
        |io| {
            let work = work(io);
            async move {
                let value = work.await;
                *slot.borrow_mut() = Some(value);
            }
        },
        &mut storage,
    );
    loop {
        while let Some(completion) = storage.next() {
            executor.complete(completion, &mut storage);
        }
        executor.proceed(&mut storage);
        storage.begin();
        if !storage.is_idle() {
            continue;
        }
        // Others may wait for what was begun here, so that ends as well.
        if RUNNING.get() == before
            && storage.under_way == 0
            && let Some(value) = result.borrow_mut().take()
        {
            return value;
        }
        match executor.next_deadline() {
            Some(deadline) => {
                thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
                executor.expire(Instant::now(), &mut storage);
            }
            None => thread::park(),
        }
        executor.proceed(&mut storage);
    }
}

/// Operations that are carried out at once.
const THREADS_MAX: usize = 8;

/// Storage that carries out an operation on this thread if it is the only one, and several on others.
#[derive(Default)]
struct Blocking {
    queued: Vec<FileOperation>,
    completions: VecDeque<FileCompletion>,
    delegated: Arc<Inbox>,
    threads: Option<BlockingPool>,
    /// What threads have carried out.
    ended: Arc<Inbox>,
    /// Operations that threads have not ended.
    under_way: usize,
}

#[derive(Default)]
struct Inbox(Mutex<VecDeque<FileCompletion>>);

impl Inbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<FileCompletion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionSink for Inbox {
    fn accept(&self, completion: FileCompletion) {
        self.lock().push_back(completion);
    }
}

impl Blocking {
    /// Begins what was submitted.
    fn begin(&mut self) {
        if self.under_way == 0 && self.queued.len() == 1 {
            self.completions
                .extend(self.queued.drain(..).map(carry_out));
            return;
        }
        for operation in self.queued.drain(..) {
            let threads = self
                .threads
                .get_or_insert_with(|| BlockingPool::named("pool-io", THREADS_MAX));
            let (ended, waiting) = (self.ended.clone(), thread::current());
            self.under_way += 1;
            threads.run(Box::new(move || {
                ended.accept(carry_out(operation));
                waiting.unpark();
            }));
        }
    }

    fn next(&mut self) -> Option<FileCompletion> {
        if let Some(completion) = self.completions.pop_front() {
            return Some(completion);
        }
        let ended = self.ended.lock().pop_front();
        self.under_way -= usize::from(ended.is_some());
        ended.or_else(|| self.delegated.lock().pop_front())
    }

    fn is_idle(&self) -> bool {
        self.completions.is_empty()
            && self.ended.lock().is_empty()
            && self.delegated.lock().is_empty()
    }
}

impl Storage for Blocking {
    fn submit(&mut self, operation: FileOperation) {
        self.queued.push(operation);
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        Delegated::new(tag, self.delegated.clone())
    }
}
