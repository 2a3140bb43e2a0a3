//! From a configuration to a running server, and to its end.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longshore_reactor::EngineError;
use longshore_remote::RemoteSpec;
use longshore_server::{Control, Server, StartError as ServerStartError};
use longshore_volume::{Geometry, MachineId, Volume, VolumeSpec};

use crate::backends::backends;
use crate::config::problem::{Problem, ProblemKind};
use crate::config::transmit::{TransmitConfig, TransmitSources};
use crate::config::{Config, VolumeSource};
use crate::control::{self, ControlEvent};
use crate::inspection::{LastLook, Looks};
use crate::machine::{self, MachineError};
use crate::portals::{self, Kind, Portal, PortalError};
use crate::state::{self, StateError};
use crate::threads::THREAD_STACK_BYTES;
use crate::{connect, descriptors, exports, logging, memory, service_manager, statistics};

/// How often is looked at what volumes are stored in.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(2);

/// What the server gets on top of its own drain time before it is given up at shutdown.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

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
    /// A portal cannot be had.
    #[error(transparent)]
    Portal(#[from] PortalError),
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
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Signals cannot be watched, or there can be no more threads.
    #[error("cannot start a thread or watch signals: {0}")]
    Thread(#[source] io::Error),
    /// The server itself.
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

/// Serves until a signal ends it.
pub fn serve(config: &Config, output: Output) -> Result<ServerEnd, StartError> {
    abort_on_panic();
    memory::prepare();
    logging::start(&config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }

    if let Some(path) = &config.log.statistics {
        statistics::probe(path).map_err(|source| StartError::Statistics {
            path: path.clone(),
            source,
        })?;
    }
    control::survive_file_size_limit().map_err(StartError::Thread)?;
    descriptors::make_room(&config.limits);
    config.check_cores()?;
    let bound = portals::bind(config)?;
    let addresses = portals::addresses(&bound);
    // Keeps what has no access control from other machines, unless asked for.
    for warning in config.check_reach(&addresses)? {
        tracing::warn!("{warning}");
    }
    let ready = ready_line(&bound);
    let state_directory = state::directory(config.state_dir.as_deref())?;
    let specs = config.volumes.iter().map(|source| &source.spec);
    let machine = machine::settle(specs, state_directory.as_deref())?;
    let (volumes, new_files) = open_volumes(config, machine.as_ref())?;
    let sizes: Vec<u64> = volumes
        .iter()
        .map(|volume| size_bytes(volume.as_ref()))
        .collect();

    let (events, inbox) = channel();
    let own_events = events.clone();
    control::watch_signals(events.clone()).map_err(StartError::Thread)?;
    let memory = memory::decide(config, &sizes);
    let server_config =
        exports::server_config(config, volumes.clone(), bound, state_directory, memory)?;
    let server = Server::start(server_config)?;
    new_files.keep();
    log_engine(&server);
    let stopper = server.control();
    thread::Builder::new()
        .name("wait".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(move || {
            // Nobody listens any more when the process is about to end anyway.
            let _ = events.send(ControlEvent::Ended(server.wait()));
        })
        .map_err(StartError::Thread)?;

    let looks = {
        let stopper = stopper.clone();
        let volumes = stopper.volume_names().len();
        Looks::new(volumes, move |number| stopper.inspect_volume(number))
    };
    let _inspection = inspect_volumes(config, &looks).map_err(StartError::Thread)?;
    if output.connect {
        print(&connect::lines(config, &addresses, &sizes));
    }
    print(&format!("{ready}\n"));
    service_manager::ready(&ready);
    let mut running = Running {
        stopper,
        volumes,
        ready,
        statistics: config.log.statistics.clone(),
        events: own_events,
        inbox,
        looks,
        last_look: None,
        transmit: (config.transmit.clone(), config.engine.transmit),
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
    stopper: Control,
    volumes: Vec<Arc<dyn Volume>>,
    /// The `ready` line.
    ready: String,
    /// Where reports go.
    statistics: Option<PathBuf>,
    events: Sender<ControlEvent>,
    inbox: Receiver<ControlEvent>,
    looks: Arc<Looks>,
    /// Under way since the server has ended.
    last_look: Option<Arc<LastLook>>,
    /// Where it is said when responses leave, and what was said last.
    transmit: (TransmitSources, TransmitConfig),
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
                    self.stopper.shut_down();
                    for volume in &self.volumes {
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
                Ok(ControlEvent::Refresh) => self.refresh(),
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
        let mut failed = self.stopper.failed_volumes();
        let names = self.stopper.volume_names();
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
                statistics::log(&self.stopper.statistics());
            }
            return;
        };
        let path_shown = path.display();
        match statistics::write(path, &self.stopper.statistics()) {
            Ok(()) => tracing::debug!("statistics written to {path_shown}"),
            Err(error) => tracing::error!(
                "cannot write statistics to {path_shown}: {error}; \
                 correct the path, its permissions or the free space"
            ),
        }
    }

    /// Takes up settings that can change, and new sizes of volumes.
    fn refresh(&mut self) {
        service_manager::reloading();
        self.refresh_transmit();
        let mut changed = 0_u32;
        for (volume, outcome) in self.stopper.refresh_volumes() {
            match outcome {
                Ok(Some(resized)) => {
                    changed += 1;
                    let (before, after) = (
                        geometry_bytes(resized.before),
                        geometry_bytes(resized.after),
                    );
                    tracing::info!(volume, before, after, "volume has a new size");
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(volume, "cannot read its size: {error}"),
            }
        }
        tracing::info!(changed, "SIGHUP: read the sizes of all volumes");
        service_manager::ready(&self.ready);
    }

    /// Has responses leave as the configuration says now.
    fn refresh_transmit(&mut self) {
        let (sources, before) = &mut self.transmit;
        match sources.read() {
            Ok(now) if now == *before => {}
            Ok(now) => {
                tracing::info!(%before, %now, "SIGHUP: transmit policy changed");
                self.stopper.set_transmit(now);
                *before = now;
            }
            Err(problem) => {
                tracing::error!("SIGHUP: all settings are unchanged: {problem}");
            }
        }
    }
}

/// Looks at files and devices from time to time, until what it returns is dropped. A server that has
/// none is left asleep.
fn inspect_volumes(config: &Config, looks: &Arc<Looks>) -> io::Result<Option<Sender<()>>> {
    let has_path = |source: &VolumeSource| source.spec.path.is_some();
    if !config.volumes.iter().any(has_path) {
        return Ok(None);
    }
    looks.from_time_to_time(INSPECTION_INTERVAL).map(Some)
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

/// The line that says that all listeners accept: for each kind of them, their addresses.
fn ready_line(portals: &[Portal]) -> String {
    let mut line = "ready".to_owned();
    for kind in [Kind::Iscsi, Kind::Nvme, Kind::NvmeDiscovery] {
        let of_kind = portals.iter().filter(|portal| portal.kind() == kind);
        let addresses: Vec<String> = of_kind.map(|portal| portal.address.to_string()).collect();
        if !addresses.is_empty() {
            line = format!("{line} {}={}", kind.name(), addresses.join(","));
        }
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
) -> Result<(Vec<Arc<dyn Volume>>, NewFiles), StartError> {
    let mut volumes = Vec::with_capacity(config.volumes.len());
    let mut new_files = NewFiles::default();
    for source in &config.volumes {
        let spec = VolumeSpec {
            machine_id: machine.cloned(),
            ..source.spec.clone()
        };
        let opened = backends().open(&spec).map_err(|error| {
            let location = source.location.clone().map(Box::new);
            Problem {
                location,
                kind: ProblemKind::Volume(error),
            }
        })?;
        if opened.created
            && let Some(path) = &source.spec.path
        {
            new_files.0.push(path.clone());
        }
        let volume = opened.volume;
        tracing::info!(
            volume = source.spec.name,
            backend = source.spec.backend.as_str(),
            bytes = size_bytes(volume.as_ref()),
            uuid = %volume.identity().uuid,
            // Prints no password.
            url = source
                .spec
                .options::<RemoteSpec>()
                .and_then(|remote| remote.url.as_ref())
                .map(tracing::field::display),
            "volume opened"
        );
        volumes.push(volume);
    }
    Ok((volumes, new_files))
}

/// Its size now.
fn size_bytes(volume: &dyn Volume) -> u64 {
    geometry_bytes(volume.geometry())
}

/// The size in bytes.
fn geometry_bytes(geometry: Geometry) -> u64 {
    u64::from(geometry.block_size) * geometry.block_count
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
