//! Runs the threads of a load and looks after them: start and end, the server's processor time,
//! keep-alive, signals, progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use longshore_initiator::attach::Control;
use longshore_initiator::error::Lost;

use crate::cpu::{ProcessClock, Ticks};
use crate::queue::LoadQueue;
use crate::stream::Stream;
use crate::watch::{Interrupt, Phase, Progress, Watch};
use crate::worker::{self, Report, Settings, Shared, Worker};

/// Signals are looked for so often, and progress is told.
const TICK: Duration = Duration::from_millis(100);
/// The control path gets its turn so often.
const CONTROL_PERIOD: Duration = Duration::from_secs(1);

/// Who looks after a load.
pub struct Supervisor<'a> {
    /// Keep-alive and news of the peer, where there is a connection.
    pub control: Option<&'a mut Control>,
    pub server: Option<ProcessClock>,
    /// Ends the load early.
    pub interrupt: &'a Interrupt,
    pub watch: &'a mut dyn Watch,
    pub read_back: bool,
}

/// How a load went.
#[derive(Debug)]
pub struct LoadOutcome {
    /// What each thread has seen.
    pub reports: Vec<Report>,
    /// The server's processor time, and the time in which it was spent.
    pub server: Option<(Duration, Duration)>,
    /// What part of it was spent in the kernel.
    pub server_system_share: Option<f64>,
    /// The signal that ended it.
    pub signal: Option<usize>,
    /// The control path is lost, and why.
    pub control_lost: Option<Lost>,
}

/// A thread's part: its queues and its streams.
pub type Part<Q> = (Vec<Q>, Vec<Stream>);

impl Supervisor<'_> {
    /// Runs a load; one thread a part. Gives the queues back, thread by thread.
    pub fn run<Q: LoadQueue>(
        &mut self,
        parts: Vec<Part<Q>>,
        settings: &Settings,
    ) -> (Vec<Vec<Q>>, LoadOutcome) {
        let threads = parts.len();
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            progress: parts.iter().map(|_| worker::Progress::default()).collect(),
        });
        // Memory is made by the threads that use it, before the time starts.
        let (ready, go) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
        let go_ns = AtomicU64::new(0);
        let (done, all_done) = channel();
        thread::scope(|scope| {
            let mut handles = Vec::new();
            for (number, (queues, streams)) in parts.into_iter().enumerate() {
                let (shared, settings) = (Arc::clone(&shared), settings.clone());
                let (ready, go, go_ns, done) = (&ready, &go, &go_ns, done.clone());
                let body = move || {
                    prepare_thread();
                    let worker = Worker::new(number, shared, settings, queues, streams);
                    ready.wait();
                    go.wait();
                    let ended = worker.run(go_ns.load(Ordering::Acquire));
                    // Whoever waits for it may be gone.
                    let _ = done.send(());
                    ended
                };
                let thread = thread::Builder::new().name(format!("load-{number}"));
                handles.push(
                    thread
                        .spawn_scoped(scope, body)
                        .expect("the system has room for a thread"),
                );
            }
            drop(done);
            ready.wait();
            let start_ns = shared.now_ns();
            go_ns.store(start_ns, Ordering::Release);
            let watched = Watched::new(self, &shared, settings, start_ns);
            let mut outcome = watched.until_done(&go, &all_done);
            let mut queues = Vec::new();
            for handle in handles {
                let (report, of_thread) = handle.join().expect("threads of load do not panic");
                outcome.reports.push(report);
                queues.push(of_thread);
            }
            (queues, outcome)
        })
    }
}

/// Timers are to be exact to the microsecond: the kernel's usual slack is 50.
fn prepare_thread() {
    // Without it a rate is kept a little less evenly.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// What a server had spent at a moment.
#[derive(Clone, Copy)]
struct ServerTime {
    at_ns: u64,
    spent: Duration,
    ticks: Option<Ticks>,
}

/// A load that runs.
struct Watched<'a, 'b> {
    supervisor: &'a mut Supervisor<'b>,
    shared: &'a Shared,
    settings: &'a Settings,
    start_ns: u64,
    measure_from_ns: u64,
    end_ns: u64,
    server_before: Option<ServerTime>,
    server_after: Option<ServerTime>,
    next_control: Instant,
    signal: Option<usize>,
    control_lost: Option<Lost>,
}

impl<'a, 'b> Watched<'a, 'b> {
    fn new(
        supervisor: &'a mut Supervisor<'b>,
        shared: &'a Shared,
        settings: &'a Settings,
        start_ns: u64,
    ) -> Self {
        Self {
            supervisor,
            shared,
            settings,
            start_ns,
            measure_from_ns: start_ns.saturating_add(settings.measure_from_ns),
            end_ns: start_ns.saturating_add(settings.end_ns),
            server_before: None,
            server_after: None,
            next_control: Instant::now() + CONTROL_PERIOD,
            signal: None,
            control_lost: None,
        }
    }

    /// Lets the threads go, and returns when all have ended.
    fn until_done(mut self, go: &Barrier, all_done: &Receiver<()>) -> LoadOutcome {
        if self.settings.measure_from_ns == 0 {
            self.server_before = self.server_time();
        }
        go.wait();
        loop {
            match all_done.recv_timeout(self.next_wait()) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => self.turn(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.server_after.is_none() {
            self.server_after = self.server_time();
        }
        let both = self.server_before.zip(self.server_after);
        LoadOutcome {
            reports: Vec::new(),
            server: both.map(|(before, after)| {
                let window = Duration::from_nanos(after.at_ns.saturating_sub(before.at_ns));
                (after.spent.saturating_sub(before.spent), window)
            }),
            server_system_share: both
                .and_then(|(before, after)| after.ticks?.system_share_since(&before.ticks?)),
            signal: self.signal,
            control_lost: self.control_lost,
        }
    }

    fn next_wait(&self) -> Duration {
        let now = self.shared.now_ns();
        let until = |event: u64| Duration::from_nanos(event.saturating_sub(now));
        let mut wait = TICK;
        // What has passed is not waited for again, whether or not a figure came of it.
        for event in [self.measure_from_ns, self.end_ns] {
            if event > now {
                wait = wait.min(until(event));
            }
        }
        wait
    }

    fn turn(&mut self) {
        let now_ns = self.shared.now_ns();
        if self.server_before.is_none() && now_ns >= self.measure_from_ns {
            self.server_before = self.server_time();
        }
        if self.server_after.is_none() && now_ns >= self.end_ns {
            self.server_after = self.server_time();
        }
        self.look_for_signal();
        self.drive_control();
        self.tell(now_ns);
    }

    fn server_time(&self) -> Option<ServerTime> {
        let clock = self.supervisor.server?;
        // Of a server that has ended there is no figure; its connections tell the rest.
        let spent = clock.time().ok()?;
        Some(ServerTime {
            at_ns: self.shared.now_ns(),
            spent,
            ticks: clock.ticks(),
        })
    }

    fn look_for_signal(&mut self) {
        if self.signal.is_none() {
            self.signal = self.supervisor.interrupt.signal();
            if self.signal.is_some() {
                self.shared.stop();
            }
        }
    }

    fn drive_control(&mut self) {
        let now = Instant::now();
        let Some(control) = self.supervisor.control.as_mut() else {
            return;
        };
        let is_due = control.deadline().is_some_and(|deadline| deadline <= now);
        if self.control_lost.is_some() || (now < self.next_control && !is_due) {
            return;
        }
        self.next_control = now + CONTROL_PERIOD;
        match control.drive(now) {
            Ok(notices) => {
                for notice in notices {
                    self.supervisor
                        .watch
                        .warn(&format!("the server reports: {notice:?}"));
                }
            }
            Err(lost) => {
                self.control_lost = Some(lost);
                self.shared.stop();
            }
        }
    }

    fn tell(&mut self, now_ns: u64) {
        let sum = |value: fn(&worker::Progress) -> &AtomicU64| {
            let values = self.shared.progress.iter().map(value);
            values.map(|value| value.load(Ordering::Relaxed)).sum()
        };
        let phase = match (self.supervisor.read_back, now_ns < self.measure_from_ns) {
            (true, _) => Phase::ReadBack,
            (false, true) => Phase::WarmUp,
            (false, false) => Phase::Measure,
        };
        let total =
            (self.settings.end_ns < u64::MAX).then(|| Duration::from_nanos(self.settings.end_ns));
        let progress = Progress {
            phase,
            elapsed: Duration::from_nanos(now_ns - self.start_ns),
            total,
            operations: sum(|progress| &progress.operations),
            bytes: sum(|progress| &progress.bytes),
        };
        self.supervisor.watch.progress(progress);
    }
}
