//! The way back: from the initiator's threads to the event loop whose request it was.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_initiator::volume::{Completer, Cork, RemoteVolume};
use longshore_reactor::storage::Delegated;
use longshore_volume::Io;
use rustix::io::Errno;

/// Has the initiator carry out an operation.
pub(super) async fn submit(
    remote: &RemoteVolume,
    operation: Operation,
    data: Data,
    io: &Io,
) -> (Result<Reply, Failure>, Data) {
    hold_sends(io);
    let (delegated, ended) = io.delegate().await;
    let answer = Arc::new(Answer(Mutex::new(State::Awaited(delegated))));
    remote.submit(operation, data, answer.clone(), 0);
    // The completion says that there is an answer, or that there will never be one.
    let _ = ended.await;
    answer.take()
}

/// The answer to one operation.
struct Answer(Mutex<State>);

enum State {
    Awaited(Delegated),
    Given(Completion),
    Taken,
}

impl Answer {
    fn replace(&self, state: State) -> State {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, state)
    }

    fn take(&self) -> (Result<Reply, Failure>, Data) {
        match self.replace(State::Taken) {
            State::Given(completion) => (completion.result, completion.data),
            State::Awaited(_) | State::Taken => {
                let cancelled = Failure::System(Errno::CANCELED.raw_os_error());
                (Err(cancelled), Data::None)
            }
        }
    }
}

impl Completer for Answer {
    fn complete(&self, completion: Completion) {
        if let State::Awaited(delegated) = self.replace(State::Given(completion)) {
            delegated.complete(Ok(0), None);
        }
    }
}

/// Holds the sends of this thread back until the turn of its event loop ends, so that what a turn submits
/// leaves with one system call for each connection.
fn hold_sends(io: &Io) {
    CORK.with_borrow_mut(|cork| {
        if cork.is_none() {
            *cork = Some(Cork::new());
        }
    });
    // Each time, as it may be the turn of another event loop than last time. It costs next to nothing.
    io.at_turn_end(release_sends);
}

thread_local! {
    static CORK: RefCell<Option<Cork>> = const { RefCell::new(None) };
}

fn release_sends() {
    drop(CORK.take());
}

#[cfg(test)]
mod tests {
    use longshore_reactor::storage::{CompletionSink, FileCompletion, StorageTag};

    use super::*;

    #[derive(Default)]
    struct Sink(Mutex<Vec<FileCompletion>>);

    impl CompletionSink for Sink {
        fn accept(&self, completion: FileCompletion) {
            self.0.lock().expect("not poisoned").push(completion);
        }
    }

    fn awaited(sink: &Arc<Sink>) -> Answer {
        let delegated = Delegated::new(StorageTag(7), sink.clone());
        Answer(Mutex::new(State::Awaited(delegated)))
    }

    #[test]
    fn an_answer_is_there_when_its_completion_arrives() {
        let sink = Arc::new(Sink::default());
        let answer = awaited(&sink);
        answer.complete(Completion {
            tag: 0,
            result: Err(Failure::NoSpace),
            data: Data::None,
        });
        assert_eq!(sink.0.lock().expect("not poisoned")[0].tag, StorageTag(7));
        assert!(matches!(answer.take(), (Err(Failure::NoSpace), _)));
    }

    #[test]
    fn an_operation_that_is_dropped_is_cancelled() {
        let sink = Arc::new(Sink::default());
        let answer = awaited(&sink);
        let cancelled = Errno::CANCELED.raw_os_error();
        assert!(matches!(answer.take(), (Err(Failure::System(error)), _) if error == cancelled));
        assert!(sink.0.lock().expect("not poisoned")[0].result.is_err());
    }
}
