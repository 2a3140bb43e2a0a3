//! A driver: the thread that waits for sockets, receives and completes. The first one also manages.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, EngineError, EngineEvent, SocketToken, Waker,
};

use super::cork::Cork;
use super::link::LinkControl;
use super::lock::lock;
use super::mail::{Mail, QueueAddress};
use super::manage::{AfterControl, ControlWatch, Manager};
use super::path::Phase;
use super::queue_owner::{QueueOutcome, QueueOwner};
use super::shared::Shared;
use crate::error::Lost;

/// Sockets only, and few of them: the smallest engine there is.
const ENGINE: EngineConfig = EngineConfig {
    ring_entries: 16,
    completion_entries: 64,
    helper_threads_max: 1,
    registered_bytes_max: 0,
};

pub(super) struct Driver {
    id: usize,
    shared: Arc<Shared>,
    engine: Engine,
    events: Vec<EngineEvent>,
    mail: Vec<Mail>,
    /// Queues that may have something to receive.
    ready: Vec<QueueAddress>,
    serving: Vec<QueueAddress>,
    outcome: QueueOutcome,
    /// Of the first driver.
    manager: Option<Manager>,
    is_stopped: bool,
    /// When there was something to do last.
    busy_at: Instant,
}

impl Driver {
    /// Starts a driver's thread. `dials`: paths that are to be connected by connectors. It says on `ready` when it has
    /// read the mail that was there, or why it cannot run.
    pub(super) fn spawn(
        id: usize,
        shared: Arc<Shared>,
        waker: Waker,
        dials: Vec<usize>,
        ready: SyncSender<Result<(), EngineError>>,
    ) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new()
            .name(format!("volume-{id}"))
            .spawn(move || {
                // epoll: there is no storage whose submissions could ride on a ring, and a ring would take
                // locked memory that ordinary users have little of.
                match Engine::new(EngineChoice::Epoll, ENGINE, waker) {
                    Ok(engine) => {
                        let driver = Self::new(id, shared.clone(), engine);
                        let run = AssertUnwindSafe(|| driver.run(&dials, &ready));
                        if let Err(panic) = catch_unwind(run) {
                            // Somebody's completer, or a mistake of ours: nobody is to wait for ever.
                            shared.collapse();
                            resume_unwind(panic);
                        }
                    }
                    // Nobody waits for it only if opening has failed already.
                    Err(error) => drop(ready.send(Err(error))),
                }
            })
    }

    fn new(id: usize, shared: Arc<Shared>, engine: Engine) -> Self {
        Self {
            id,
            engine,
            events: Vec::new(),
            mail: Vec::new(),
            ready: Vec::new(),
            serving: Vec::new(),
            outcome: QueueOutcome::default(),
            manager: (id == 0).then(|| Manager::new(shared.clone())),
            shared,
            is_stopped: false,
            busy_at: Instant::now(),
        }
    }

    fn run(mut self, dials: &[usize], ready: &SyncSender<Result<(), EngineError>>) {
        if let Some(manager) = &mut self.manager {
            for path in dials {
                manager.dial(*path);
            }
        }
        self.turn(Instant::now());
        // As above.
        let _ = ready.send(Ok(()));
        while !self.is_stopped {
            let now = Instant::now();
            let timeout = self.timeout(now);
            if let Err(error) = self.engine.wait(timeout, &mut self.events) {
                // Only a mistake of ours makes epoll_wait fail. Time goes on all the same.
                tracing::error!(%error, "waiting for sockets failed");
                thread::sleep(Duration::from_millis(100));
            }
            self.turn(Instant::now());
        }
        if self.id == 0 {
            for driver in 1..self.shared.drivers() {
                self.shared.post(driver, Mail::Stop);
            }
            self.shared.end();
        }
    }

    /// How long to sleep: until the next deadline, or not at all while there is something to do, or soon may be.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let spin = self.shared.settings.volume.driver_spin;
        if !self.ready.is_empty()
            || !spin.is_zero() && now.saturating_duration_since(self.busy_at) < spin
        {
            return Some(Duration::ZERO);
        }
        let deadline = self.manager.as_ref()?.deadline().unwrap_or(now);
        Some(deadline.saturating_duration_since(now))
    }

    /// Takes in everything, completes, and sends what completers have submitted.
    fn turn(&mut self, now: Instant) {
        self.shared.set_clock(now);
        let cork = Cork::new();
        self.read_events(now);
        self.read_mail(now);
        self.serve();
        if let Some(manager) = &mut self.manager {
            manager.turn(now, &mut self.outcome);
        }
        self.watch_controls();
        drop(cork);
        self.is_stopped |= self.manager.as_ref().is_some_and(Manager::is_done);
    }

    fn read_events(&mut self, now: Instant) {
        let mut events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            self.busy_at = now;
        }
        for event in events.drain(..) {
            match event {
                EngineEvent::Socket { token, readiness } => match self.address_of(token) {
                    Some(TokenOwner::Queue(address)) => {
                        if readiness.is_hang_up() {
                            self.shared.queue(address).hang_up();
                        }
                        self.mark_ready(address);
                    }
                    Some(TokenOwner::Control(path)) => {
                        if let Some(manager) = &mut self.manager {
                            manager.drive_control(path, now);
                        }
                    }
                    None => {}
                },
                EngineEvent::Woken | EngineEvent::File(_) => {}
            }
        }
        self.events = events;
    }

    fn mark_ready(&mut self, address: QueueAddress) {
        if !self.ready.contains(&address) {
            self.ready.push(address);
        }
    }

    /// Until there is none: mail of this driver may lead to more mail for it.
    fn read_mail(&mut self, now: Instant) {
        loop {
            let mut mail = std::mem::take(&mut self.mail);
            self.shared.take_mail(self.id, &mut mail);
            if mail.is_empty() {
                self.mail = mail;
                return;
            }
            self.busy_at = now;
            for mail in mail.drain(..) {
                match mail {
                    Mail::Watch(address) => self.watch(address),
                    Mail::Serve(address) => self.mark_ready(address),
                    Mail::TakeDown(address) => self.take_down(address),
                    Mail::Stop => self.is_stopped = true,
                    mail @ (Mail::TakenDown { .. }
                    | Mail::Dialled { .. }
                    | Mail::DialFailed { .. }
                    | Mail::Ended { .. }
                    | Mail::Lost { .. }
                    | Mail::Notices { .. }
                    | Mail::Suspect { .. }
                    | Mail::Identified { .. }
                    | Mail::Recheck) => {
                        if let Some(manager) = &mut self.manager {
                            manager.handle(mail, now);
                        }
                        self.watch_controls();
                    }
                }
            }
            self.mail = mail;
        }
    }

    fn serve(&mut self) {
        std::mem::swap(&mut self.ready, &mut self.serving);
        for index in 0..self.serving.len() {
            let address = self.serving[index];
            if self
                .shared
                .queue(address)
                .serve(&self.shared, &mut self.outcome)
            {
                self.ready.push(address);
            }
        }
        self.serving.clear();
    }

    // ---- queues ----

    /// A queue has a connection: waits for its socket, unless others poll it, and sends what waits.
    fn watch(&mut self, address: QueueAddress) {
        let is_polled = self.shared.paths[address.path].is_poll_queue(address.queue);
        if !is_polled {
            let token = self.queue_token(address);
            let engine = &mut self.engine;
            let watched = self
                .shared
                .queue(address)
                .with_queue(&self.shared, |queue| engine.register(queue.socket(), token));
            if let Some(Err(error)) = watched {
                self.shared
                    .queue(address)
                    .fail(&self.shared, Lost::from_io(&error));
            }
        }
        self.mark_ready(address);
    }

    /// The link of a queue is over: its operations go elsewhere, or are in doubt.
    fn take_down(&mut self, address: QueueAddress) {
        let token = self.queue_token(address);
        let engine = &mut self.engine;
        self.shared
            .queue(address)
            .with_queue(&self.shared, |queue| {
                engine.deregister(queue.socket(), token);
            });
        self.ready.retain(|ready| *ready != address);
        let taken = self.shared.queue(address).take_down(&self.shared);
        let path = address.path;
        let lost = self.shared.paths[path].management().lost.clone();
        for (request, answer) in taken.answered {
            match answer {
                Ok(done) => self.outcome.finished.push((request, Ok(done))),
                Err(failure) => self.outcome.failed.push((request, failure)),
            }
        }
        self.shared.settle(address, &mut self.outcome, true);
        for request in taken.sent {
            let writes = request.operation().writes();
            let Some(request) = self.shared.salvage(request, &lost) else {
                continue;
            };
            if writes {
                self.shared.paths[path].management().doubt(request);
            } else {
                self.shared.route(request);
            }
        }
        for request in taken.unsent {
            self.shared.route(request);
        }
        self.shared.post(0, Mail::TakenDown { path });
    }

    // ---- controls ----

    /// Does what the manager wants of the engine.
    fn watch_controls(&mut self) {
        let Some(manager) = &mut self.manager else {
            return;
        };
        let mut watches = std::mem::take(&mut manager.watches);
        for watch in watches.drain(..) {
            match watch {
                ControlWatch::Begin { path, generation } => self.watch_control(path, generation),
                ControlWatch::End {
                    path,
                    control,
                    generation,
                    then,
                } => {
                    if let Some(socket) = control.socket() {
                        self.engine
                            .deregister(socket, control_token(path, generation));
                    }
                    self.dismiss(path, generation, control, then);
                }
            }
        }
        if let Some(manager) = &mut self.manager {
            manager.watches.append(&mut watches);
        }
    }

    fn watch_control(&mut self, path: usize, generation: u64) {
        let management = self.shared.paths[path].management();
        if management.generation != generation || management.phase != Phase::Up {
            return;
        }
        if let Some(socket) = management.control.as_ref().and_then(|c| c.socket())
            && let Err(error) = self
                .engine
                .register(socket, control_token(path, generation))
        {
            tracing::error!(%error, "cannot wait for the control connection");
        }
    }

    /// Lets a thread do with a control what takes time.
    fn dismiss(
        &self,
        path: usize,
        generation: u64,
        control: Box<dyn LinkControl>,
        then: AfterControl,
    ) {
        let shared = self.shared.clone();
        // Where there is no thread it comes back.
        let place = Arc::new(Mutex::new(Some(control)));
        let its_place = place.clone();
        let work = move || {
            let Some(mut control) = lock(&its_place).take() else {
                return;
            };
            match then {
                AfterControl::Ends => {
                    let confirmed = control.end();
                    shared.post(
                        0,
                        Mail::Ended {
                            path,
                            generation,
                            confirmed,
                        },
                    );
                }
                AfterControl::Identifies => {
                    let info = control.identify();
                    shared.post(
                        0,
                        Mail::Identified {
                            path,
                            generation,
                            control,
                            info: info.map(Box::new).map_err(|error| error.to_string()),
                        },
                    );
                }
            }
        };
        match thread::Builder::new()
            .name(format!("control-{path}"))
            .spawn(work)
        {
            Ok(handle) => self.shared.keep_connector(handle),
            Err(error) => {
                tracing::error!(%error, "cannot start a thread for the control connection");
                let control = lock(&place).take();
                if let (AfterControl::Identifies, Some(control)) = (then, control) {
                    self.shared.post(
                        0,
                        Mail::Identified {
                            path,
                            generation,
                            control,
                            info: Err(format!("cannot start a thread: {error}")),
                        },
                    );
                }
            }
        }
    }

    // ---- tokens ----

    fn queue_token(&self, address: QueueAddress) -> SocketToken {
        let queues = self.shared.paths[address.path].queues.len();
        let generation = self.shared.paths[address.path].management().generation;
        let slot = u32::try_from(address.path * queues + address.queue);
        SocketToken::new(slot.expect("few paths of few queues"), low_half(generation))
    }

    /// Whose event that is; `None`: of somebody who is gone.
    fn address_of(&self, token: SocketToken) -> Option<TokenOwner> {
        let slot = usize::try_from(token.slot()).ok()?;
        let control = usize::try_from(u32::MAX - token.slot()).ok()?;
        let queues = self.shared.paths[0].queues.len();
        if control < self.shared.paths.len() {
            return Some(TokenOwner::Control(control));
        }
        let path = slot / queues;
        (path < self.shared.paths.len()).then_some(TokenOwner::Queue(QueueAddress {
            path,
            queue: slot % queues,
        }))
    }
}

/// Whose socket it was. A late event is harmless: its queue looks for what is not there.
enum TokenOwner {
    Queue(QueueAddress),
    Control(usize),
}

/// Controls have the last slots.
fn control_token(path: usize, generation: u64) -> SocketToken {
    let path = u32::try_from(path).expect("few paths");
    SocketToken::new(u32::MAX - path, low_half(generation))
}

fn low_half(generation: u64) -> u32 {
    u32::try_from(generation & u64::from(u32::MAX)).expect("masked")
}
