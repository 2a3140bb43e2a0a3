//! State shared by all threads of a remote volume: its paths, the routes of operations to them, and the places of
//! waiting operations.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longshore_reactor::Waker;

use super::completer::Completer;
use super::link::Dialer;
use super::lock::lock;
use super::mail::{Mail, QueueAddress};
use super::options::{PathPolicy, VolumeOptions};
use super::path::Path;
use super::queue_owner::{QueueOutcome, QueueOwner};
use super::request::{Delayed, Request};
use super::shared_queue::{QueueTimeouts, SharedQueue};
use super::state::{LiveCounters, Outage, VolumeState, count};
use crate::error::{Failure, Lost};
use crate::info::VolumeInfo;
use crate::operation::{Data, Operation, OperationKind, Reply};
use crate::options::{QueueMaps, Timeouts};

/// A queue is left for another of its kind that has so many operations less than half.
const BUSY_MARGIN: usize = 8;

/// What does not change while the volume is open.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) volume: VolumeOptions,
    pub(super) timeouts: Timeouts,
    /// Queues that each path asks for.
    pub(super) queues: QueueMaps,
}

/// See the module documentation.
pub(super) struct Shared {
    pub(super) dialer: Box<dyn Dialer>,
    pub(super) settings: Settings,
    pub(super) paths: Vec<Path>,
    pub(super) counters: LiveCounters,
    info: RwLock<Arc<VolumeInfo>>,
    block_size: u32,
    /// Paths that new operations take, one bit each; none: they are parked.
    routes: AtomicU64,
    /// Paths that could be taken if those cannot.
    pub(super) usable: AtomicU64,
    opened: Instant,
    /// Milliseconds since then, as of when a driver looked last: at each turn, and each [`tick`](Self::tick).
    clock_ms: AtomicU64,
    /// See [`Shared::patience`]; the greatest number when nobody hurries.
    hurry_ms: AtomicU64,
    /// Start of the time without a path, on the clock of `opened`; the greatest number while there is one.
    outage_since_ms: AtomicU64,
    outstanding: AtomicUsize,
    parked: Mutex<Parked>,
    /// Operations to be repeated later.
    pub(super) retries: Mutex<BinaryHeap<Delayed>>,
    /// Finished where no completer may run: the first driver does it.
    deferred: Mutex<Vec<(Request, Result<Reply, Failure>)>>,
    posts: Vec<Post>,
    closing: Mutex<Option<Closing>>,
    is_closing: AtomicBool,
    /// Connectors are to end; they may be pausing.
    is_ending: Mutex<bool>,
    ending: Condvar,
    connectors: Mutex<Vec<JoinHandle<()>>>,
}

/// How the end was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// What is not complete by then is given up.
    pub(super) deadline: Instant,
}

/// Operations without a path.
#[derive(Default)]
struct Parked {
    requests: VecDeque<Request>,
    /// They fail, and so do those that come, for this reason: there has been no path for too long, or there is no
    /// hope for one.
    verdict: Option<Failure>,
    /// The drivers have gone.
    closed: bool,
}

/// A driver's letter box.
struct Post {
    mail: Mutex<Vec<Mail>>,
    waker: Waker,
}

impl Shared {
    /// For a volume whose first link tells this about it.
    pub(super) fn new(
        dialer: Box<dyn Dialer>,
        settings: Settings,
        info: VolumeInfo,
        wakers: Vec<Waker>,
    ) -> Arc<Self> {
        let queues = settings.queues.total();
        let paths = dialer
            .portals()
            .into_iter()
            .enumerate()
            .map(|(path, portal)| Path::new(path, portal, queues))
            .collect();
        Arc::new(Self {
            dialer,
            paths,
            counters: LiveCounters::default(),
            block_size: info.block_size,
            info: RwLock::new(Arc::new(info)),
            routes: AtomicU64::new(0),
            usable: AtomicU64::new(0),
            opened: Instant::now(),
            clock_ms: AtomicU64::new(0),
            hurry_ms: AtomicU64::new(u64::MAX),
            outage_since_ms: AtomicU64::new(u64::MAX),
            outstanding: AtomicUsize::new(0),
            parked: Mutex::default(),
            retries: Mutex::default(),
            deferred: Mutex::default(),
            posts: wakers
                .into_iter()
                .map(|waker| Post {
                    mail: Mutex::default(),
                    waker,
                })
                .collect(),
            closing: Mutex::default(),
            is_closing: AtomicBool::new(false),
            is_ending: Mutex::default(),
            ending: Condvar::new(),
            connectors: Mutex::default(),
            settings,
        })
    }

    /// See [`VolumeInfo`]. As of the last look at the volume.
    pub(super) fn info(&self) -> Arc<VolumeInfo> {
        self.info
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set_info(&self, info: VolumeInfo) {
        *self.info.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(info);
    }

    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    pub(super) fn queue(&self, address: QueueAddress) -> &SharedQueue {
        &self.paths[address.path].queues[address.queue]
    }

    // ---- the clock ----

    /// Sets the clock. For drivers, at each turn.
    pub(super) fn set_clock(&self, now: Instant) -> u64 {
        let now_ms = millis(now.saturating_duration_since(self.opened));
        self.clock_ms.fetch_max(now_ms, Ordering::Relaxed);
        now_ms
    }

    pub(super) fn instant(&self, at_ms: u64) -> Instant {
        self.opened + Duration::from_millis(at_ms)
    }

    /// How long operations wait for a path; zero: for ever.
    pub(super) fn patience(&self) -> Duration {
        let usual = self.settings.timeouts.give_up;
        match self.hurry_ms.load(Ordering::Relaxed) {
            u64::MAX => usual,
            hurry if usual.is_zero() => Duration::from_millis(hurry),
            hurry => usual.min(Duration::from_millis(hurry)),
        }
    }

    /// Publishes since when there has been no path.
    pub(super) fn set_outage(&self, since: Option<Instant>) {
        let since = since.map(|since| millis(since.saturating_duration_since(self.opened)));
        self.outage_since_ms
            .store(since.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn outage(&self) -> Option<Outage> {
        let since_ms = self.outage_since_ms.load(Ordering::Relaxed);
        if since_ms == u64::MAX {
            return None;
        }
        let lasted = self.instant(since_ms).elapsed();
        let patience = self.patience();
        Some(Outage {
            lasted,
            gives_up_in: (!patience.is_zero()).then(|| patience.saturating_sub(lasted)),
        })
    }

    /// Shortens that time to `within`; the first driver looks again at once.
    pub(super) fn hurry(&self, within: Duration) {
        self.hurry_ms
            .fetch_min(millis(within).max(1), Ordering::Relaxed);
        self.post(0, Mail::Recheck);
    }

    /// How often the first driver looks for operations without an answer: finer than what it looks for, and rare
    /// enough for an idle process.
    pub(super) fn tick(&self) -> Duration {
        let timeouts = &self.settings.timeouts;
        [timeouts.request, timeouts.keep_alive, timeouts.give_up]
            .into_iter()
            .filter(|timeout| !timeout.is_zero())
            .min()
            .map_or(Duration::from_secs(5), |shortest| shortest / 4)
            .clamp(Duration::from_millis(5), Duration::from_secs(5))
    }

    /// The clock may be a tick old when an operation is sent, so that none is late before its time.
    pub(super) fn queue_timeouts(&self) -> QueueTimeouts {
        let timeouts = &self.settings.timeouts;
        let limit = |timeout: Duration| {
            if timeout.is_zero() {
                0
            } else {
                millis(timeout + self.tick())
            }
        };
        QueueTimeouts {
            request_ms: limit(timeouts.request),
            keep_alive_ms: limit(timeouts.keep_alive),
            silence_ms: match self.hurry_ms.load(Ordering::Relaxed) {
                u64::MAX => 0,
                hurry => limit(Duration::from_millis(hurry)),
            },
        }
    }

    // ---- operations ----

    /// Takes an operation in. Never blocks, and never completes anything itself.
    pub(super) fn submit(
        self: &Arc<Self>,
        operation: Operation,
        data: Data,
        completer: Arc<dyn Completer>,
        tag: u64,
        polled: bool,
    ) {
        let request = Request::new(operation, data, completer, tag, polled);
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        if let Some(result) = request.result_at_once(self.block_size) {
            self.defer(request, result);
        } else if self.is_closing.load(Ordering::Acquire) {
            self.defer(request, Err(Failure::Closed));
        } else {
            self.route(request);
        }
    }

    /// Sends an operation to the queue that suits it, or parks it.
    pub(super) fn route(self: &Arc<Self>, request: Request) {
        match self.choose(&request) {
            Some(address) => self.queue(address).enter(self, request),
            None => self.park(request),
        }
    }

    /// The queue for an operation from this thread; `None`: there is no path.
    fn choose(&self, request: &Request) -> Option<QueueAddress> {
        let mut routes = self.routes.load(Ordering::SeqCst);
        if request.avoid & routes != 0 {
            let others = self.usable.load(Ordering::SeqCst) & !request.avoid;
            if others != 0 {
                routes = others;
            }
        }
        let path = match routes.count_ones() {
            0 => return None,
            1 => index_of_lowest(routes),
            _ if self.settings.volume.policy == PathPolicy::Failover => index_of_lowest(routes),
            _ => self.least_busy(routes),
        };
        let maps = self.paths[path].maps();
        let kind = OperationKind::of(request.operation());
        let queues = &self.paths[path].queues;
        let own = maps.queue(kind, request.polled, current_cpu(maps));
        let count = maps.total();
        if count == 1 || queues[own].load() <= BUSY_MARGIN {
            return Some(QueueAddress { path, queue: own });
        }
        // Those of the same kind are neighbours, found by asking for each core's.
        let queue = (0..count)
            .map(|cpu| maps.queue(kind, request.polled, cpu))
            .min_by_key(|queue| queues[*queue].load())
            .filter(|queue| queues[*queue].load() * 2 + BUSY_MARGIN < queues[own].load())
            .unwrap_or(own);
        Some(QueueAddress { path, queue })
    }

    /// This thread's own path among those, or one that is much less busy.
    fn least_busy(&self, routes: u64) -> usize {
        let members = || (0..self.paths.len()).filter(|path| routes >> path & 1 == 1);
        let count = members().count().max(1);
        let own = members().nth(cpu() % count).unwrap_or_default();
        let load = |path: usize| self.paths[path].load();
        members()
            .min_by_key(|path| load(*path))
            .filter(|path| load(*path) * 2 + BUSY_MARGIN < load(own))
            .unwrap_or(own)
    }

    /// Keeps an operation until there is a path, or fails it if there is no hope.
    fn park(self: &Arc<Self>, request: Request) {
        let mut parked = lock(&self.parked);
        // A path that came up since has set the routes before it took what is parked.
        if self.routes.load(Ordering::SeqCst) != 0 {
            drop(parked);
            return self.route(request);
        }
        if parked.closed {
            drop(parked);
            return self.finish(request, Err(Failure::Closed));
        }
        if let Some(verdict) = parked.verdict.clone() {
            drop(parked);
            return self.defer(request, Err(verdict));
        }
        parked.requests.push_back(request);
    }

    /// Completes an operation here and now.
    pub(super) fn finish(&self, request: Request, result: Result<Reply, Failure>) {
        if matches!(result, Err(Failure::OutcomeUnknown(_))) {
            tracing::warn!(operation = ?request.operation(), "outcome of an operation is unknown");
        }
        request.finish(result);
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) == 1
            && self.is_closing.load(Ordering::Acquire)
        {
            self.post(0, Mail::Recheck);
        }
    }

    /// Has the first driver complete an operation.
    fn defer(&self, request: Request, result: Result<Reply, Failure>) {
        // Under the lock of what is parked, so that the drivers are still there.
        let parked = lock(&self.parked);
        if parked.closed {
            drop(parked);
            return self.finish(request, result);
        }
        lock(&self.deferred).push((request, result));
        drop(parked);
        self.post(0, Mail::Recheck);
    }

    /// Receives from all poll queues in this thread. How many operations completed; `None`: there are no poll
    /// queues now, nor is anybody waiting for them to come.
    pub(super) fn poll(self: &Arc<Self>, outcome: &mut QueueOutcome) -> Option<usize> {
        let usable = self.usable.load(Ordering::Acquire);
        if usable == 0 {
            // They may come back any moment, but not for looking.
            std::thread::yield_now();
            return Some(0);
        }
        let mut completed = None;
        for (index, path) in self.paths.iter().enumerate() {
            if usable >> index & 1 == 1 {
                for queue in path.poll_queues() {
                    *completed.get_or_insert(0) += queue.poll(self, outcome);
                }
            }
        }
        completed
    }

    // ---- for drivers ----

    /// Takes a driver's mail.
    pub(super) fn take_mail(&self, driver: usize, into: &mut Vec<Mail>) {
        std::mem::swap(&mut *lock(&self.posts[driver].mail), into);
    }

    pub(super) fn drivers(&self) -> usize {
        self.posts.len()
    }

    /// Completes what was finished in places where no completer may run.
    pub(super) fn finish_deferred(&self) {
        loop {
            let deferred = std::mem::take(&mut *lock(&self.deferred));
            if deferred.is_empty() {
                return;
            }
            for (request, result) in deferred {
                self.finish(request, result);
            }
        }
    }

    /// New routes. What was parked goes on if there are any.
    pub(super) fn set_routes(self: &Arc<Self>, routes: u64, usable: u64) {
        self.usable.store(usable, Ordering::SeqCst);
        self.routes.store(routes, Ordering::SeqCst);
        if routes == 0 {
            return;
        }
        let mut parked = lock(&self.parked);
        parked.verdict = None;
        let requests = std::mem::take(&mut parked.requests);
        drop(parked);
        for request in requests {
            self.route(request);
        }
    }

    pub(super) fn routes(&self) -> u64 {
        self.routes.load(Ordering::SeqCst)
    }

    /// There is no hope for a path: what is parked fails, and what comes, until there is one.
    pub(super) fn give_up(&self, verdict: &Failure) {
        let mut parked = lock(&self.parked);
        if self.routes.load(Ordering::SeqCst) != 0 {
            return;
        }
        parked.verdict = Some(verdict.clone());
        let requests = std::mem::take(&mut parked.requests);
        drop(parked);
        for request in requests {
            self.finish(request, Err(verdict.clone()));
        }
    }

    /// What a lost path gave back: which of it goes on, and how.
    pub(super) fn salvage(self: &Arc<Self>, mut request: Request, lost: &Lost) -> Option<Request> {
        if !request.operation().is_idempotent() {
            count(&self.counters.unknown_outcomes);
            self.finish(request, Err(Failure::OutcomeUnknown(lost.clone())));
            return None;
        }
        if request.resubmissions >= self.settings.volume.resubmissions {
            self.finish(request, Err(Failure::ConnectionLost(lost.clone())));
            return None;
        }
        request.resubmissions += 1;
        count(&self.counters.resubmissions);
        Some(request)
    }

    // ---- the end ----

    /// Begins to close, if nobody has. What is not complete after `wait` is given up.
    pub(super) fn begin_closing(&self, wait: Duration) {
        let mut closing = lock(&self.closing);
        if closing.is_none() {
            *closing = Some(Closing {
                deadline: Instant::now() + wait,
            });
        }
        self.is_closing.store(true, Ordering::SeqCst);
        drop(closing);
        self.post(0, Mail::Recheck);
    }

    /// All has been finished that could be: no more links are wanted.
    pub(super) fn end_connectors(&self) {
        *lock(&self.is_ending) = true;
        self.ending.notify_all();
    }

    pub(super) fn closing(&self) -> Option<Closing> {
        if self.is_closing.load(Ordering::Acquire) {
            *lock(&self.closing)
        } else {
            None
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// The last act of the first driver: from here on everything completes where it is submitted.
    pub(super) fn end(&self) {
        let mut parked = lock(&self.parked);
        parked.closed = true;
        let requests = std::mem::take(&mut parked.requests);
        drop(parked);
        for request in requests {
            self.finish(request, Err(Failure::Closed));
        }
        let retries = std::mem::take(&mut *lock(&self.retries));
        for delayed in retries {
            self.finish(delayed.request, Err(Failure::Closed));
        }
        self.finish_deferred();
    }

    /// A driver has panicked: all of them end, and so does everything that was submitted.
    pub(super) fn collapse(self: &Arc<Self>) {
        self.begin_closing(Duration::ZERO);
        self.set_routes(0, 0);
        self.end_connectors();
        for driver in 0..self.drivers() {
            self.post(driver, Mail::Stop);
        }
        self.end();
        for path in &self.paths {
            for queue in &path.queues {
                let taken = queue.take_down(self);
                for (request, answer) in taken.answered {
                    self.finish(request, answer);
                }
                for request in taken.sent {
                    let failure = if request.operation().is_idempotent() {
                        Failure::Closed
                    } else {
                        Failure::OutcomeUnknown(Lost::Ours)
                    };
                    self.finish(request, Err(failure));
                }
                for request in taken.unsent {
                    self.finish(request, Err(Failure::Closed));
                }
            }
            let in_doubt = std::mem::take(&mut path.management().in_doubt);
            for doubt in in_doubt {
                self.finish(doubt.request, Err(Failure::Closed));
            }
        }
    }

    /// Waits before an attempt to connect. False: no more links are wanted.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let (is_ending, _) = self
            .ending
            .wait_timeout_while(lock(&self.is_ending), pause, |is_ending| !*is_ending)
            .unwrap_or_else(PoisonError::into_inner);
        !*is_ending
    }

    /// Keeps the handle of a connector thread, to be waited for.
    pub(super) fn keep_connector(&self, handle: JoinHandle<()>) {
        let mut connectors = lock(&self.connectors);
        connectors.retain(|connector| !connector.is_finished());
        connectors.push(handle);
    }

    pub(super) fn take_connectors(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *lock(&self.connectors))
    }

    pub(super) fn state(&self) -> VolumeState {
        let routes = self.routes();
        VolumeState {
            paths: self
                .paths
                .iter()
                .enumerate()
                .map(|(index, path)| path.state(routes >> index & 1 == 1))
                .collect(),
            counters: self.counters.read(),
            outstanding: self.outstanding(),
            parked: lock(&self.parked).requests.len(),
            outage: self.outage(),
        }
    }
}

impl QueueOwner for Shared {
    fn counters(&self) -> &LiveCounters {
        &self.counters
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed)
    }

    fn driver_of(&self, address: QueueAddress) -> usize {
        address.queue % self.posts.len()
    }

    fn post(&self, driver: usize, mail: Mail) {
        let post = &self.posts[driver];
        lock(&post.mail).push(mail);
        count(&self.counters.driver_messages);
        post.waker.wake();
    }

    fn settle(
        self: &Arc<Self>,
        address: QueueAddress,
        outcome: &mut QueueOutcome,
        may_complete: bool,
    ) {
        let path = address.path;
        if let Some((generation, loss)) = outcome.lost.take() {
            self.post(
                0,
                Mail::Lost {
                    path,
                    generation,
                    loss,
                },
            );
        }
        if !outcome.notices.is_empty() {
            let notices = std::mem::take(&mut outcome.notices);
            self.post(0, Mail::Notices { path, notices });
        }
        for (request, failure) in outcome.failed.drain(..) {
            if let Some((request, failure)) = self.judge(path, request, failure) {
                outcome.finished.push((request, Err(failure)));
            }
        }
        for request in outcome.homeless.drain(..) {
            self.route(request);
        }
        for (request, result) in outcome.finished.drain(..) {
            if may_complete {
                self.finish(request, result);
            } else {
                self.defer(request, result);
            }
        }
    }

    fn flush(self: Arc<Self>, address: QueueAddress) {
        self.queue(address).flush(&self);
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn index_of_lowest(bits: u64) -> usize {
    usize::try_from(bits.trailing_zeros()).unwrap_or(0)
}

/// The core this thread runs on, if it matters.
fn current_cpu(maps: QueueMaps) -> usize {
    if maps.default <= 1 && maps.read <= 1 && maps.poll <= 1 {
        0
    } else {
        cpu()
    }
}

fn cpu() -> usize {
    rustix::thread::sched_getcpu()
}
