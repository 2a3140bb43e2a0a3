//! From a configuration to a running server, and to its end.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longshore_api::object::Owner;
use longshore_api::plane::ControlPlane;
use longshore_api::state::Listener;
use longshore_control::ControlServer;
use longshore_control::events::Events;
use longshore_pool::POOL;
use longshore_reactor::EngineError;
use longshore_server::{Control, Server, StartError as ServerStartError};
use longshore_volume::{MachineId, Volume, VolumeSpec};

use crate::api::{self, Api, ApiError, Recorder};
use crate::backends::{backends, close_pools};
use crate::change::exports::OpenVolumes;
use crate::change::plane::{Plane, Process};
use crate::change::server::ServerSwitch;
use crate::change::start::Start;
use crate::config::file::ConfigFile;
use crate::config::problem::{Problem, ProblemKind};
use crate::config::{Arguments, Config, VolumeSource};
use crate::confinement::{self, Incomplete};
use crate::control::{self, ControlEvent};
use crate::held;
use crate::inspection::{LastLook, Looks};
use crate::machine::{self, MachineError};
use crate::opening::log_opened;
use crate::portals::{self, PortalError};
use crate::scst::MountedTree;
use crate::state::{self, StateError};
use crate::threads::THREAD_STACK_BYTES;
use crate::{
    change, connect, descriptors, dumps, exports, logging, memory, service_manager, statistics,
};

/// How often is looked at what volumes are stored in.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(2);

/// What the server gets on top of its own drain time before it is given up at shutdown.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// How long a change in progress may take until the server stops nevertheless.
const CHANGE_IN_PROGRESS: Duration = Duration::from_secs(2);

/// How long pools may take for their last checkpoint.
const POOLS_CLOSE: Duration = Duration::from_secs(10);

/// What is left at least of it for the last look at volumes.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// Asked to, with everything accepted finished and flushed.
    Stopped,
    /// A second signal came before that; its number.
    Forced(i32),
    /// It did not end within its time, ended without being asked, or may have lost what was written.
    Failed,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be served.
    #[error(transparent)]
    Config(#[from] Problem),
    /// The objects of the API cannot be served, or not beside those of the file.
    #[error(transparent)]
    Objects(#[from] Box<longshore_api::problem::Problem>),
    /// A portal cannot be had.
    #[error(transparent)]
    Portal(#[from] PortalError),
    /// The control API cannot be had.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Volumes cannot have identities.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Reports could not be written.
    #[error(
        "cannot write the statistics to {}: {source}; correct the path of --statistics, or [log] statistics of the file",
        path.display()
    )]
    Statistics {
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The sandbox is not complete.
    #[error(transparent)]
    Sandbox(#[from] Incomplete),
    /// Signals cannot be watched, or there can be no more threads.
    #[error("cannot start a thread or watch signals: {0}")]
    Thread(#[source] io::Error),
    #[error("{}{}", .0, advice(.0))]
    Server(#[from] ServerStartError),
}

/// What to do about a server that does not start, where its message leaves that open.
fn advice(error: &ServerStartError) -> &'static str {
    match error {
        ServerStartError::Engine(EngineError::IoUring(_)) => {
            "\nUse --engine auto, which uses epoll where io_uring is not available"
        }
        _ => "",
    }
}

/// What to print at start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// How to connect, in front of the `ready` line.
    pub connect: bool,
}

/// Where the configuration comes from, to be read again.
#[derive(Clone, Debug)]
pub struct Sources {
    pub file: Option<ConfigFile>,
    pub arguments: Arguments,
}

/// Serves until a signal ends it. `config` is what the sources say.
pub fn serve(config: &Config, sources: Sources, output: Output) -> Result<ServerEnd, StartError> {
    abort_on_panic();
    memory::prepare();
    logging::start(&config.log);
    dumps::forbid();
    change::prepare_steps();

    if let Some(path) = &config.log.statistics {
        statistics::probe(path).map_err(|source| StartError::Statistics {
            path: path.clone(),
            source,
        })?;
    }
    control::survive_file_size_limit().map_err(StartError::Thread)?;
    config.check_cores()?;
    let bound = portals::bind(config)?;
    let addresses = portals::addresses(&bound);
    let state_directory = state::directory(config.state_dir.as_deref())?;
    let is_chosen = config.state_dir.is_some();
    let is_managed = sources.arguments.is_managed || config.api.is_asked_for();
    let (directory, Sources { file, arguments }) = (state_directory.as_deref(), sources);
    let start = Start::read(arguments, file, directory, is_chosen)?;
    // With the objects of the API.
    let config = &start.config.clone();
    // Sockets are made before: their places and low ports need nothing afterwards.
    let api = Api::bind(&config.api)?;
    confinement::enter(&start, directory)?;
    logging::write();
    if !is_managed {
        config.check_volumes()?;
    }
    let specs = config.enabled_volumes().map(|source| &source.spec);
    descriptors::make_room(&config.limits, descriptors::of_volumes(specs));
    // Keeps what has no access control from other machines, unless asked for.
    let reach = config.check_reach(&addresses)?;
    for warning in config.warnings.iter().chain(&reach) {
        tracing::warn!("{warning}");
    }
    let listening = change::listening(&bound);
    let api_listener = api.address.map(|address| Listener {
        service: "api".to_owned(),
        address: address.to_string(),
    });
    let mut listeners = listening.shown();
    listeners.extend(api_listener.clone());
    let ready = ready_line(&listeners);
    let audit = api::audit(directory)?;
    let published = Events::default();
    logging::publish(&published);
    let specs = config.enabled_volumes().map(|source| &source.spec);
    let machine = machine::settle(specs, directory)?;
    let (volumes, new_files) = open_volumes(config, machine.as_ref())?;
    let sizes: Vec<u64> = config
        .volumes
        .iter()
        .map(|source| volumes.get(&source.spec.name))
        .map(|volume| volume.map_or(0, |volume| size_bytes(volume.as_ref())))
        .collect();

    let (events, inbox) = channel();
    let own_events = events.clone();
    control::watch_signals(events.clone()).map_err(StartError::Thread)?;
    let memory = memory::decide(config, &sizes);
    let bounds = memory::bounds(config, &sizes, memory);
    longshore_pool::set_map_memory(memory::map_bytes(config, &sizes));
    let exports = change::exports::exports(config, &volumes);
    let server_config =
        exports::server_config(config, exports, bound, state_directory.clone(), memory)?;
    let server = Server::start(server_config)?;
    new_files.keep();
    log_engine(&server);
    held::refuse_rings();
    let controlled = server.control();
    let process = Process {
        engine: server.engine().to_string(),
        listening,
        api: api_listener,
        state_directory: state_directory.clone(),
        drain_timeout: config.limits.drain_timeout,
        storage_timeout: None,
        memory: Some(bounds),
    };
    let switch = Box::new(ServerSwitch::new(server.control()));
    let plane = Plane::new(start, volumes, switch, process);
    plane.set_record(Arc::new(Recorder::new(audit.clone(), published.clone())));
    let control = api.start(
        Arc::clone(&plane) as Arc<dyn ControlPlane>,
        controlled.clone(),
        published,
        audit,
        state_directory.as_deref(),
    )?;
    thread::Builder::new()
        .name("wait".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(move || {
            // Nobody listens any more when the process is about to end anyway.
            let _ = events.send(ControlEvent::Ended(server.wait()));
        })
        .map_err(StartError::Thread)?;

    let looks = {
        let (count, server) = (controlled.clone(), controlled.clone());
        Looks::new(
            move || count.volume_names().len(),
            move |number| server.inspect_volume(number),
        )
    };
    let inspection = Inspection {
        looks: Arc::clone(&looks),
        stop: Mutex::default(),
    };
    inspection.begin(config).map_err(StartError::Thread)?;
    plane.set_watch(move |config| {
        if let Err(error) = inspection.begin(config) {
            tracing::warn!("cannot start the inspection of volumes: {error}");
        }
    });
    let tree = config.api.scst_tree.as_deref();
    let tree = tree.and_then(|path| MountedTree::mount(path, &plane, controlled.clone()));
    // A server that has said that it is ready does not fail for want of a thread.
    let watched = controlled.clone();
    service_manager::watch(move || watched.statistics().shards.iter().all(|it| it.answered))
        .map_err(StartError::Thread)?;
    let reload = reload_on_request(Arc::clone(&plane)).map_err(StartError::Thread)?;
    memory::settle();
    if output.connect {
        print(&connect::lines(config, &addresses, &sizes));
    }
    print(&format!("{ready}\n"));
    service_manager::ready(&ready);
    let mut running = Running {
        _control: control,
        tree,
        server: controlled,
        plane,
        reload,
        statistics: config.log.statistics.clone(),
        events: own_events,
        inbox,
        looks,
        last_look: None,
    };
    let outcome = running.until_end(config.limits.drain_timeout);
    if !matches!(outcome, ServerEnd::Forced(_)) {
        running.report(false);
    }
    logging::flush();
    Ok(outcome)
}

/// A server that has started.
struct Running {
    /// Answers until the server has ended.
    _control: Option<ControlServer>,
    /// SCST's trees, mounted until the server begins to stop.
    tree: Option<MountedTree>,
    server: Control,
    /// What is served, and what changes it.
    plane: Arc<Plane>,
    /// Has the file read again, by a thread that may wait for storage.
    reload: SyncSender<()>,
    statistics: Option<PathBuf>,
    events: Sender<ControlEvent>,
    inbox: Receiver<ControlEvent>,
    looks: Arc<Looks>,
    /// Under way since the server has ended.
    last_look: Option<Arc<LastLook>>,
}

impl Running {
    /// Does what signals ask for until the server has ended.
    fn until_end(&mut self, drain_timeout: Duration) -> ServerEnd {
        let mut give_up: Option<Instant> = None;
        loop {
            let event = match give_up {
                None => self
                    .inbox
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self
                    .inbox
                    .recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(ControlEvent::Stop(signal)) if give_up.is_none() => {
                    tracing::info!(
                        "{}: completing accepted commands; a second signal ends the server at once",
                        control::signal_name(signal)
                    );
                    service_manager::stopping();
                    drop(self.tree.take());
                    self.plane.stop(CHANGE_IN_PROGRESS);
                    self.server.shut_down();
                    for volume in self.plane.volumes() {
                        // A third of the time to notice that another server is away, a third to wait for it, and
                        // the rest for what comes after.
                        volume.hurry(drain_timeout / 3);
                    }
                    give_up = Some(Instant::now() + drain_timeout + DRAIN_GRACE);
                }
                Ok(ControlEvent::Stop(signal)) => {
                    tracing::warn!("{}: ending at once", control::signal_name(signal));
                    return ServerEnd::Forced(signal);
                }
                // One that waits already reads all that there is now.
                Ok(ControlEvent::Refresh) => drop(self.reload.try_send(())),
                Ok(ControlEvent::Report) => self.report(true),
                Ok(ControlEvent::Ended(Err(error))) => {
                    tracing::error!("the server failed: {error}");
                    return ServerEnd::Failed;
                }
                Ok(ControlEvent::Ended(Ok(()))) if give_up.is_some() => {
                    if let Err(error) = self.begin_last_look() {
                        tracing::error!("cannot inspect the volumes at shutdown: {error}");
                        return ServerEnd::Failed;
                    }
                    let at_least = Instant::now() + LAST_LOOK;
                    give_up = give_up.map(|at| at.max(at_least));
                }
                Ok(ControlEvent::Inspected) => return self.stopped(),
                Err(RecvTimeoutError::Timeout) if self.last_look.is_some() => {
                    return self.stopped();
                }
                Ok(ControlEvent::Ended(Ok(()))) | Err(RecvTimeoutError::Disconnected) => {
                    tracing::error!("the server ended unexpectedly");
                    return ServerEnd::Failed;
                }
                Err(RecvTimeoutError::Timeout) => {
                    tracing::error!("the server did not end in time; unflushed writes may be lost");
                    return ServerEnd::Failed;
                }
            }
        }
    }

    /// Has somebody look what has become of the volumes. A signal may come meanwhile, and time may end.
    fn begin_last_look(&mut self) -> io::Result<()> {
        let events = self.events.clone();
        let last = self.looks.last(move || {
            // Nobody listens any more when a signal has ended all of it.
            let _ = events.send(ControlEvent::Inspected);
        })?;
        self.last_look = Some(last);
        Ok(())
    }

    /// It has ended as asked to. Whether all is well that was written, its volumes know.
    fn stopped(&self) -> ServerEnd {
        close_pools(POOLS_CLOSE);
        let mut failed = self.server.failed_volumes();
        let names = self.server.volume_names();
        for number in self.last_look.iter().flat_map(|last| last.unseen()) {
            let reason = "its storage does not answer".to_owned();
            failed.push((names[number].clone(), reason));
        }
        for (volume, reason) in &failed {
            tracing::error!(volume, reason, "acknowledged writes may be lost");
        }
        if failed.is_empty() {
            tracing::info!("stopped");
            ServerEnd::Stopped
        } else {
            ServerEnd::Failed
        }
    }

    /// Reports what the server has done, into the file that was named for it. `asked`: without one,
    /// into the log.
    fn report(&self, asked: bool) {
        let Some(path) = &self.statistics else {
            if asked {
                statistics::log(&self.server.statistics());
            }
            return;
        };
        let path_shown = path.display();
        match statistics::write(path, &self.server.statistics()) {
            Ok(()) => tracing::debug!("statistics written to {path_shown}"),
            Err(error) => tracing::error!(
                "cannot write statistics to {path_shown}: {error}; \
                 correct the path, its permissions or the free space"
            ),
        }
    }
}

/// A thread that takes up what the file says now, and new sizes of volumes, each time it is asked to. It may wait for
/// storage; who ends the server does not wait for it. One request waits while another is carried out.
fn reload_on_request(plane: Arc<Plane>) -> io::Result<SyncSender<()>> {
    let (request, requests) = sync_channel(1);
    thread::Builder::new()
        .name("reload".to_owned())
        .spawn(move || {
            for () in requests {
                service_manager::reloading();
                plane.reload();
                let changed = plane.refresh_sizes();
                tracing::info!(changed, "SIGHUP: read the sizes of all volumes");
                if !plane.is_stopping() {
                    service_manager::ready(&ready_line(&plane.listeners()));
                }
            }
        })?;
    Ok(request)
}

/// Looks at files, devices and pools from time to time, once there is one. A server that has none is left asleep.
struct Inspection {
    looks: Arc<Looks>,
    stop: Mutex<Option<Sender<()>>>,
}

impl Inspection {
    fn begin(&self, config: &Config) -> io::Result<()> {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let may_change =
            |source: &VolumeSource| source.spec.path.is_some() || source.spec.backend == POOL;
        if stop.is_none() && config.enabled_volumes().any(may_change) {
            *stop = Some(self.looks.from_time_to_time(INSPECTION_INTERVAL)?);
        }
        Ok(())
    }
}

/// Which engine runs, and why not the other one.
fn log_engine(server: &Server) {
    match server.engine_refusal() {
        Some(reason) => tracing::info!(
            "engine {}: io_uring cannot be used: {reason}",
            server.engine()
        ),
        None => tracing::info!("engine {}", server.engine()),
    }
}

/// The line that says that all listeners accept: for each service, its addresses.
fn ready_line(listeners: &[Listener]) -> String {
    let mut line = "ready".to_owned();
    let mut before = "";
    for listener in listeners {
        if listener.service == before {
            line += &format!(",{}", listener.address);
        } else {
            line += &format!(" {}={}", listener.service, listener.address);
        }
        before = &listener.service;
    }
    line
}

/// Prints to standard output. A reader that has gone is no reason to stop serving.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        tracing::debug!("cannot write to standard output: {error}");
    }
}

/// Files that this start has created. A start that fails takes them away again: an empty file that
/// nobody has written to would look like a volume to whoever finds it.
#[derive(Default)]
struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// The server has started; from now on there may be data in them.
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(
                    "cannot remove the empty file {}: {error}; remove it",
                    path.display()
                );
            }
        }
    }
}

/// Opens every volume, in order. The files are those that were not there before; they are removed when
/// they are dropped, which has to be before the volumes are and with them the locks of the files.
fn open_volumes(
    config: &Config,
    machine: Option<&MachineId>,
) -> Result<(OpenVolumes, NewFiles), StartError> {
    let mut volumes = OpenVolumes::new();
    let mut new_files = NewFiles::default();
    for source in config.enabled_volumes() {
        let spec = VolumeSpec {
            machine_id: machine.cloned(),
            ..source.spec.clone()
        };
        let opened = backends().open(&spec).map_err(|error| {
            let location = source.location.clone().map(Box::new);
            Problem {
                location: location.filter(|_| source.owner == Owner::File),
                kind: ProblemKind::Volume(error),
            }
        })?;
        if opened.created
            && let Some(path) = &source.spec.path
        {
            new_files.0.push(path.clone());
        }
        let volume = opened.volume;
        log_opened(source, volume.as_ref());
        volumes.insert(source.spec.name.clone(), volume);
    }
    Ok((volumes, new_files))
}

fn size_bytes(volume: &dyn Volume) -> u64 {
    volume.geometry().size_bytes()
}

/// A panic is a fault of ours; a server that has lost one of its threads must not go on as if it had
/// not. Peers find the connection gone and recover, as from any crash.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        logging::flush();
        std::process::abort();
    }));
}
