//! Operations as futures that need no runtime.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::completer::Completer;
use super::lock::lock;
use super::queue_owner::QueueOutcome;
use super::shared::Shared;
use crate::error::Failure;
use crate::operation::{Completion, Data, Operation};

/// An operation under way. Dropping it leaves the operation to finish, which frees its memory.
pub(super) struct Pending {
    answer: Arc<Answer>,
    /// The volume, when the operation is in a queue that somebody has to poll.
    polls: Option<Arc<Shared>>,
    /// How often that has brought nothing.
    fruitless_polls: u32,
}

/// After so many polls that brought nothing somebody else may have the core in between: on a busy machine it may
/// be the one who has the answer to give.
const POLLS_IN_A_ROW: u32 = 50;

/// Where its completion goes.
#[derive(Default)]
struct Answer(Mutex<Awaited>);

#[derive(Default)]
struct Awaited {
    completion: Option<Completion>,
    waker: Option<Waker>,
}

impl Completer for Answer {
    fn complete(&self, completion: Completion) {
        let mut awaited = lock(&self.0);
        awaited.completion = Some(completion);
        let waker = awaited.waker.take();
        drop(awaited);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Pending {
    /// Submits an operation; one that could not even be expressed has failed already.
    pub(super) fn submit(
        shared: &Arc<Shared>,
        operation: Result<Operation, Failure>,
        data: Data,
        polled: bool,
    ) -> Self {
        let answer = Arc::<Answer>::default();
        match operation {
            Ok(operation) => shared.submit(operation, data, answer.clone(), 0, polled),
            Err(failure) => answer.complete(Completion {
                tag: 0,
                result: Err(failure),
                data,
            }),
        }
        Self {
            answer,
            polls: (polled && shared.settings.queues.poll > 0).then(|| shared.clone()),
            fruitless_polls: 0,
        }
    }
}

impl Future for Pending {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        let found = self.polls.as_ref().and_then(poll_queues);
        let this = &mut *self;
        let mut awaited = lock(&this.answer.0);
        if let Some(completion) = awaited.completion.take() {
            return Poll::Ready(completion);
        }
        if let Some(completed) = found {
            // Nobody else looks: come back at once.
            context.waker().wake_by_ref();
            drop(awaited);
            if completed > 0 {
                this.fruitless_polls = 0;
            } else if this.fruitless_polls < POLLS_IN_A_ROW {
                this.fruitless_polls += 1;
            } else {
                thread::yield_now();
            }
        } else if !awaited
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            awaited.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

thread_local! {
    /// Memory for what a poll finds, so that polling does not allocate. Away while in use.
    static OUTCOME: std::cell::Cell<Option<Box<QueueOutcome>>> = const { std::cell::Cell::new(None) };
}

pub(super) fn poll_queues(shared: &Arc<Shared>) -> Option<usize> {
    let mut outcome = OUTCOME.take().unwrap_or_default();
    let completed = shared.poll(&mut outcome);
    OUTCOME.set(Some(outcome));
    completed
}

/// Runs a future to its end in this thread, which sleeps while there is nothing to do.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
