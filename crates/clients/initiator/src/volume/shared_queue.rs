//! A queue (one connection) shared by all submitters, and the operations waiting for it.
//!
//! ```text
//!   submit ──► lock free, inbox empty?     ── yes ──► hand over, send, let go ──┐
//!                       │ no                                                    │
//!                       ▼                                                       ▼
//!                    inbox, attention := true ──► lock free? ── yes ──► hand over what fits, send, let go
//!                                                   │ no                        │   ▲
//!                                                   ▼                           ▼   │ yes
//!                                        whoever holds it looks here ──►  attention? ── no ──► done
//! ```
//!
//! The lock is held to encode, send and receive: microseconds. The store of `attention` before the try to lock,
//! and its load after the unlock, are ordered by a fence on both sides; so either the holder of the lock sees the
//! operation, or the submitter gets the lock. What finds no room in the queue stays in the inbox; the next
//! receive makes room and takes it along.
//!
//! A shared queue outlives its connections: it is empty while its path is down, and what arrives then is sent on
//! elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::cork;
use super::link::{LinkQueue, Received};
use super::lock::lock;
use super::mail::{Loss, Mail, QueueAddress};
use super::queue_owner::{QueueOutcome, QueueOwner};
use super::request::{Request, TransferLimits};
use super::state::count;
use crate::error::{Failure, Lost};
use crate::operation::{Completion, Reply};

/// Portions received before a driver looks after its other queues.
const RECEIVES_PER_TURN: usize = 8;

/// Rounds that somebody who submits makes for others.
const ATTENTIONS_MAX: usize = 16;

/// See the module documentation.
pub(super) struct SharedQueue {
    address: QueueAddress,
    inbox: Mutex<VecDeque<Request>>,
    /// Length of the inbox.
    waiting: AtomicUsize,
    /// Something was put into the inbox since the holder of the lock looked.
    attention: AtomicBool,
    /// Operations here, waiting or in the queue.
    load: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    queue: Option<Attached>,
    /// By tag: what the queue has.
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
}

struct Attached {
    queue: Box<dyn LinkQueue>,
    limits: TransferLimits,
    /// Counts the links of the path.
    generation: u64,
    /// It failed, and waits for the driver to take it down.
    lost: bool,
    /// The engine has told of a hang-up, which it does once: the end of the stream may lie behind what has come, so that
    /// a short receive proves nothing.
    hung_up: bool,
    /// When the peer was last heard, and asked for a sign of life since, in milliseconds of the volume's clock.
    heard_ms: u64,
    asked_ms: Option<u64>,
    /// Since when it has taken nothing, without having anything to do.
    closed_since_ms: Option<u64>,
}

/// What a queue gives back when its path goes down.
#[derive(Default)]
pub(super) struct TakenDown {
    /// Not sent: they never reached the peer.
    pub(super) unsent: Vec<Request>,
    /// Requests that the peer may have executed.
    pub(super) sent: Vec<Request>,
    /// Requests whose answers came before the connection ended.
    pub(super) answered: Vec<(Request, Result<Reply, Failure>)>,
}

impl TakenDown {
    fn len(&self) -> usize {
        self.unsent.len() + self.sent.len() + self.answered.len()
    }
}

/// Time limits of a queue, in milliseconds of the volume's clock; zero: none.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueTimeouts {
    pub(super) request_ms: u64,
    pub(super) keep_alive_ms: u64,
    /// Nothing heard for so long, with an operation unanswered for as long, is the end of a connection.
    pub(super) silence_ms: u64,
}

impl SharedQueue {
    pub(super) fn new(address: QueueAddress) -> Self {
        Self {
            address,
            inbox: Mutex::default(),
            waiting: AtomicUsize::new(0),
            attention: AtomicBool::new(false),
            load: AtomicUsize::new(0),
            state: Mutex::new(State {
                queue: None,
                slots: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    /// Operations waiting here or in the queue. A hint.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Takes an operation, in the context of whoever submits it. Does not block.
    pub(super) fn enter(&self, owner: &Arc<impl QueueOwner + 'static>, request: Request) {
        self.load.fetch_add(1, Ordering::Relaxed);
        let mut request = Some(request);
        if self.waiting.load(Ordering::Acquire) == 0
            && let Some(mut state) = self.try_lock()
        {
            let mut outcome = QueueOutcome::default();
            request = request.and_then(|request| state.hand_over(&**owner, request, &mut outcome));
            if request.is_none() {
                if self.send_or_hold(owner, &mut state, &mut outcome) {
                    count(&owner.counters().direct_sends);
                }
                drop(state);
                self.leave(owner, &mut outcome);
            }
        }
        if let Some(request) = request {
            let mut inbox = lock(&self.inbox);
            inbox.push_back(request);
            self.waiting.store(inbox.len(), Ordering::Release);
            drop(inbox);
            self.attention.store(true, Ordering::SeqCst);
        }
        self.attend(owner);
    }

    /// Sends what a cork has held back.
    pub(super) fn flush(&self, owner: &Arc<impl QueueOwner + 'static>) {
        self.attention.store(true, Ordering::SeqCst);
        self.attend(owner);
    }

    /// Looks after the inbox for as long as somebody has put something into it and the lock is free; but not
    /// for ever, while others submit: then the driver goes on.
    fn attend(&self, owner: &Arc<impl QueueOwner + 'static>) {
        for _ in 0..ATTENTIONS_MAX {
            // See the module documentation.
            fence(Ordering::SeqCst);
            if !self.attention.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut state) = self.try_lock() else {
                return;
            };
            self.attention.store(false, Ordering::SeqCst);
            let mut outcome = QueueOutcome::default();
            self.empty_inbox(&**owner, &mut state, &mut outcome);
            self.send_or_hold(owner, &mut state, &mut outcome);
            drop(state);
            self.leave(owner, &mut outcome);
        }
        owner.post(owner.driver_of(self.address), Mail::Serve(self.address));
    }

    /// Deals with what happened, in a context that must not run completers.
    fn leave(&self, owner: &Arc<impl QueueOwner + 'static>, outcome: &mut QueueOutcome) {
        self.count_out(outcome);
        owner.settle(self.address, outcome, false);
    }

    fn count_out(&self, outcome: &QueueOutcome) {
        let gone = outcome.finished.len() + outcome.homeless.len() + outcome.failed.len();
        if gone > 0 {
            self.load.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    /// Hands over what fits. Without a queue, all become homeless.
    fn empty_inbox(&self, owner: &impl QueueOwner, state: &mut State, outcome: &mut QueueOutcome) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        while let Some(request) = self.next_waiting(state) {
            if let Some(request) = state.hand_over(owner, request, outcome) {
                let mut inbox = lock(&self.inbox);
                inbox.push_front(request);
                self.waiting.store(inbox.len(), Ordering::Release);
                return;
            }
        }
    }

    fn next_waiting(&self, state: &State) -> Option<Request> {
        if !state.takes() {
            return None;
        }
        let mut inbox = lock(&self.inbox);
        let request = inbox.pop_front();
        self.waiting.store(inbox.len(), Ordering::Release);
        request
    }

    /// Sends now, unless this thread holds sends back. Whether it sent.
    fn send_or_hold(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        state: &mut State,
        outcome: &mut QueueOutcome,
    ) -> bool {
        let Some(attached) = &mut state.queue else {
            return false;
        };
        if attached.lost || !attached.queue.has_unsent() {
            return false;
        }
        if cork::hold(owner, self.address) {
            return false;
        }
        attached.send(outcome)
    }

    /// Receives, refills and sends, in the context of a driver or of somebody who polls; completes. Returns
    /// whether there may be more to receive.
    pub(super) fn serve(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        outcome: &mut QueueOutcome,
    ) -> bool {
        let more = self.serve_locked(owner, lock(&self.state), outcome);
        owner.settle(self.address, outcome, true);
        self.attend(owner);
        more
    }

    /// As [`Self::serve`], unless somebody else holds the lock. Returns how many completed.
    pub(super) fn poll(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        outcome: &mut QueueOutcome,
    ) -> usize {
        let Some(state) = self.try_lock() else {
            return 0;
        };
        self.serve_locked(owner, state, outcome);
        let finished = outcome.finished.len();
        owner.settle(self.address, outcome, true);
        self.attend(owner);
        finished
    }

    fn serve_locked(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        mut state: MutexGuard<'_, State>,
        outcome: &mut QueueOutcome,
    ) -> bool {
        let more = state.receive(&**owner, outcome);
        self.attention.store(false, Ordering::SeqCst);
        self.empty_inbox(&**owner, &mut state, outcome);
        if let Some(attached) = &mut state.queue
            && !attached.lost
            && attached.queue.has_unsent()
        {
            attached.send(outcome);
        }
        drop(state);
        self.count_out(outcome);
        more
    }

    /// Looks for operations without an answer and for a silent peer.
    pub(super) fn check_time(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        limits: QueueTimeouts,
        outcome: &mut QueueOutcome,
    ) {
        let mut state = lock(&self.state);
        let now = owner.now_ms();
        let waits = self.waiting.load(Ordering::Acquire) > 0;
        state.check_time(now, waits, limits, outcome);
        drop(state);
        owner.settle(self.address, outcome, true);
        self.attend(owner);
    }

    /// A new link brings the connection. What waits goes with the next [`Self::serve`].
    pub(super) fn attach(
        &self,
        queue: Box<dyn LinkQueue>,
        limits: TransferLimits,
        generation: u64,
        now_ms: u64,
    ) {
        let mut state = lock(&self.state);
        debug_assert!(state.queue.is_none(), "taken down before");
        state.queue = Some(Attached {
            queue,
            limits,
            generation,
            lost: false,
            hung_up: false,
            heard_ms: now_ms,
            asked_ms: None,
            closed_since_ms: None,
        });
    }

    /// Runs `call` with the queue, if there is one.
    pub(super) fn with_queue<R>(
        &self,
        owner: &Arc<impl QueueOwner + 'static>,
        call: impl FnOnce(&mut dyn LinkQueue) -> R,
    ) -> Option<R> {
        let mut state = lock(&self.state);
        let attached = state.queue.as_mut();
        let result = attached.map(|attached| call(&mut *attached.queue));
        drop(state);
        self.attend(owner);
        result
    }

    /// The engine says that the peer sends no more, or that the connection failed: whoever serves the queue next receives
    /// until nothing is left.
    pub(super) fn hang_up(&self) {
        if let Some(attached) = &mut lock(&self.state).queue {
            attached.hung_up = true;
        }
    }

    /// Its queue cannot be used.
    pub(super) fn fail(&self, owner: &Arc<impl QueueOwner + 'static>, lost: Lost) {
        let mut outcome = QueueOutcome::default();
        if let Some(attached) = &mut lock(&self.state).queue {
            attached.fail(Loss::Lost(lost), &mut outcome);
        }
        owner.settle(self.address, &mut outcome, false);
        self.attend(owner);
    }

    /// Closes the connection, and gives back whatever waited for it. What arrives meanwhile is sent on
    /// elsewhere.
    pub(super) fn take_down(&self, owner: &Arc<impl QueueOwner + 'static>) -> TakenDown {
        let taken = self.give_back();
        self.flush(owner);
        taken
    }

    fn give_back(&self) -> TakenDown {
        let mut state = lock(&self.state);
        let mut taken = TakenDown::default();
        if let Some(attached) = state.queue.take() {
            for unfinished in attached.queue.abandon() {
                let Some(mut request) = state.release(unfinished.tag) else {
                    continue;
                };
                request.return_data(unfinished.data);
                match unfinished.answer {
                    Some(Ok(_)) if request.advance() => taken.unsent.push(request),
                    Some(answer) => taken.answered.push((request, answer)),
                    None if unfinished.was_sent => taken.sent.push(request),
                    None => taken.unsent.push(request),
                }
            }
        }
        // A queue that forgets an operation would be a mistake of ours; its memory is gone with it, but the
        // caller still gets an answer, and not one that claims too much.
        taken
            .sent
            .extend(state.slots.iter_mut().filter_map(Option::take));
        state.slots.clear();
        state.free.clear();
        let mut inbox = lock(&self.inbox);
        taken.unsent.extend(inbox.drain(..));
        self.waiting.store(0, Ordering::Release);
        drop(inbox);
        self.load.fetch_sub(taken.len(), Ordering::Relaxed);
        #[cfg(test)]
        super::tests::before_letting_go();
        taken
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// Whether handing over makes sense: there is room, or nothing to wait for.
    fn takes(&self) -> bool {
        self.queue
            .as_ref()
            .is_none_or(|attached| !attached.lost && attached.queue.room() > 0)
    }

    /// Gives an operation to the queue. Comes back when it has to wait.
    fn hand_over(
        &mut self,
        owner: &impl QueueOwner,
        mut request: Request,
        outcome: &mut QueueOutcome,
    ) -> Option<Request> {
        let Some(attached) = &mut self.queue else {
            outcome.homeless.push(request);
            return None;
        };
        if attached.lost || attached.queue.room() == 0 {
            return Some(request);
        }
        if request.is_split(&attached.limits) {
            count(&owner.counters().splits);
        }
        let (piece, data) = request.begin_piece(&attached.limits);
        request.sent_ms = owner.now_ms();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let tag = u64::try_from(slot).expect("an index fits 64 bits");
        match attached.queue.submit(&piece, data, tag) {
            Ok(()) => {
                let before = self.slots[slot].replace(request);
                debug_assert!(before.is_none(), "a tag names one request");
                None
            }
            Err(rejected) => {
                self.free.push(slot);
                request.return_data(rejected.data);
                match rejected.failure {
                    // It never left: it goes on with what else is here.
                    Some(Failure::ConnectionLost(lost)) => {
                        attached.fail(Loss::Lost(lost), outcome);
                        Some(request)
                    }
                    Some(failure) => {
                        outcome.failed.push((request, failure));
                        None
                    }
                    None => Some(request),
                }
            }
        }
    }

    fn release(&mut self, tag: u64) -> Option<Request> {
        let slot = usize::try_from(tag).ok()?;
        let request = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(request)
    }

    /// Takes in what has arrived. Whether there may be more.
    fn receive(&mut self, owner: &impl QueueOwner, outcome: &mut QueueOutcome) -> bool {
        for _ in 0..RECEIVES_PER_TURN {
            let Some(attached) = self.queue.as_mut().filter(|attached| !attached.lost) else {
                return false;
            };
            let received = attached
                .queue
                .receive(&mut outcome.completions, &mut outcome.notices);
            let more = match received {
                Ok(Received { heard, more }) => {
                    if heard {
                        attached.heard_ms = owner.now_ms();
                        attached.asked_ms = None;
                    }
                    attached.hung_up &= heard;
                    more || attached.hung_up
                }
                Err(lost) => {
                    attached.fail(Loss::Lost(lost), outcome);
                    false
                }
            };
            let mut completions = std::mem::take(&mut outcome.completions);
            for completion in completions.drain(..) {
                self.complete(owner, completion, outcome);
            }
            outcome.completions = completions;
            if !more {
                return false;
            }
        }
        true
    }

    fn complete(
        &mut self,
        owner: &impl QueueOwner,
        completion: Completion,
        outcome: &mut QueueOutcome,
    ) {
        let Some(mut request) = self.release(completion.tag) else {
            debug_assert!(false, "a queue completes what it was given");
            return;
        };
        request.return_data(completion.data);
        match completion.result {
            Err(failure) => outcome.failed.push((request, failure)),
            Ok(done) => {
                if !request.advance() {
                    outcome.finished.push((request, Ok(done)));
                    return;
                }
                // Its slot has just become free, so that there is room; a lost queue gives it back when it is
                // taken down, which nobody but its inbox could do.
                if let Some(request) = self.hand_over(owner, request, outcome) {
                    outcome.homeless.push(request);
                }
            }
        }
    }

    /// `waits`: there is something in the inbox.
    fn check_time(
        &mut self,
        now_ms: u64,
        waits: bool,
        limits: QueueTimeouts,
        outcome: &mut QueueOutcome,
    ) {
        let Some(attached) = self.queue.as_mut().filter(|attached| !attached.lost) else {
            return;
        };
        let overdue = |since: u64, limit: u64| limit > 0 && now_ms.saturating_sub(since) >= limit;
        let late = |slot: &Option<Request>| {
            slot.as_ref()
                .is_some_and(|request| overdue(request.sent_ms, limits.request_ms))
        };
        if attached.queue.in_flight() > 0 && self.slots.iter().any(late) {
            attached.fail(Loss::TimedOut, outcome);
            return;
        }
        // A peer that takes no commands at all answers none of those that wait, either.
        if waits && attached.queue.in_flight() == 0 && attached.queue.room() == 0 {
            let since = *attached.closed_since_ms.get_or_insert(now_ms);
            if overdue(since, limits.request_ms) {
                attached.fail(Loss::TimedOut, outcome);
                return;
            }
        } else {
            attached.closed_since_ms = None;
        }
        let unanswered = |slot: &Option<Request>| {
            slot.as_ref()
                .is_some_and(|request| overdue(request.sent_ms, limits.silence_ms))
        };
        if overdue(attached.heard_ms, limits.silence_ms) && self.slots.iter().any(unanswered) {
            attached.fail(Loss::Silent, outcome);
            return;
        }
        match attached.asked_ms {
            Some(asked) if overdue(asked, limits.keep_alive_ms) => {
                attached.fail(Loss::Silent, outcome);
            }
            None if overdue(attached.heard_ms, limits.keep_alive_ms) => {
                if attached.queue.ping() {
                    attached.asked_ms = Some(now_ms);
                    attached.send(outcome);
                }
            }
            Some(_) | None => {}
        }
    }
}

impl Attached {
    /// Whether it went well.
    fn send(&mut self, outcome: &mut QueueOutcome) -> bool {
        match self.queue.send() {
            Ok(()) => true,
            Err(lost) => {
                self.fail(Loss::Lost(lost), outcome);
                false
            }
        }
    }

    fn fail(&mut self, loss: Loss, outcome: &mut QueueOutcome) {
        self.lost = true;
        outcome.lost = Some((self.generation, loss));
    }
}
