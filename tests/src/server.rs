//! Starts the server under test and takes it down again.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LIMIT;
pub use crate::ports::free_port;
use crate::process::Process;
use crate::scratch::Scratch;

/// The target that volumes given on the command line appear in.
pub const TARGET: &str = "iqn.2026-11.local.longshore:default";

/// How to start a server: a builder for `longshore serve …`.
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    program: PathBuf,
    wrapper: Vec<String>,
    arguments: Vec<String>,
    config: Option<String>,
    ordinary_user: Option<u64>,
    portals: Vec<SocketAddr>,
    nvme: Vec<SocketAddr>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerBuilder {
    /// A server without volumes and listeners.
    pub fn new() -> Self {
        Self::with_program(program())
    }

    /// The same with a program built by the caller.
    pub fn with_program(program: PathBuf) -> Self {
        Self {
            program,
            wrapper: Vec::new(),
            arguments: Vec::new(),
            config: None,
            ordinary_user: None,
            portals: Vec::new(),
            nvme: Vec::new(),
        }
    }

    /// One volume, in the notation of the command line: `NAME[,key=value]…`.
    #[must_use]
    pub fn volume(self, volume: &str) -> Self {
        self.argument("--volume").argument(volume)
    }

    /// Listens for iSCSI on a free loopback port.
    #[must_use]
    pub fn iscsi(self) -> Self {
        let portal = free_port();
        self.iscsi_at(portal, "")
    }

    /// Listens for iSCSI at `portal`; `options` (`,advertise=…`) are appended to the address.
    #[must_use]
    pub fn iscsi_at(mut self, portal: SocketAddr, options: &str) -> Self {
        self.portals.push(portal);
        self.argument("--iscsi")
            .argument(&format!("{portal}{options}"))
    }

    /// Listens for NVMe/TCP on a free loopback port.
    #[must_use]
    pub fn nvme(self) -> Self {
        let address = free_port();
        self.nvme_at(address, "")
    }

    /// Listens for NVMe/TCP at `address`; `options` (`,advertise=…`) are appended to it.
    #[must_use]
    pub fn nvme_at(mut self, address: SocketAddr, options: &str) -> Self {
        self.nvme.push(address);
        self.argument("--nvme")
            .argument(&format!("{address}{options}"))
    }

    /// Runs the server as user 65534 (as this user, where this is not root) with so many bytes of
    /// memory that it may lock.
    #[must_use]
    pub fn as_ordinary_user(mut self, lockable_bytes: u64) -> Self {
        self.ordinary_user = Some(lockable_bytes);
        self
    }

    /// Settings in the notation of the configuration file, beside the arguments.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Any other argument of `longshore serve`.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Runs the server below another program, such as `setpriv` or `taskset`, with its arguments.
    #[must_use]
    pub fn below(mut self, wrapper: &[&str]) -> Self {
        self.wrapper
            .extend(wrapper.iter().map(|&word| word.to_owned()));
        self
    }

    /// Starts the server and waits for its `ready` line.
    pub fn start(self) -> io::Result<Server> {
        let scratch = Scratch::new("server");
        let mut server = Server {
            child: self.spawn(&scratch)?,
            portals: self.portals,
            nvme: self.nvme,
            scratch,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the server and expects it to refuse: its exit status and standard error.
    pub fn start_and_fail(self) -> io::Result<(ExitStatus, String)> {
        let scratch = Scratch::new("server");
        let mut server = Server {
            child: self.spawn(&scratch)?,
            portals: self.portals,
            nvme: self.nvme,
            scratch,
        };
        let status = server.wait(LIMIT)?;
        Ok((status, server.log()))
    }

    fn spawn(&self, scratch: &Scratch) -> io::Result<Child> {
        let mut words = self.wrapper.clone();
        let mut program = self.program.clone();
        if let Some(lockable_bytes) = self.ordinary_user {
            words.extend(words_for_ordinary_user(lockable_bytes));
            program = copy_for_everybody(&program, scratch)?;
        }
        words.push(program.display().to_string());
        words.push("serve".to_owned());
        if let Some(text) = &self.config {
            let path = scratch.join("longshore.toml");
            std::fs::write(&path, text)?;
            words.extend(["--config".to_owned(), path.display().to_string()]);
        }
        Command::new(&words[0])
            .args(&words[1..])
            .args(&self.arguments)
            // Where its control socket goes: no two servers share one.
            .env("RUNTIME_DIRECTORY", scratch.path())
            .stdin(Stdio::null())
            .stdout(File::create(scratch.join("stdout"))?)
            .stderr(File::create(scratch.join("stderr"))?)
            .spawn()
            .map_err(|error| io::Error::other(format!("start {}: {error}", words[0])))
    }
}

/// A running server. Killed when this value goes away, unless it was stopped before.
#[derive(Debug)]
pub struct Server {
    child: Child,
    portals: Vec<SocketAddr>,
    nvme: Vec<SocketAddr>,
    scratch: Scratch,
}

impl Server {
    /// Where it listens for iSCSI, in the order of the arguments.
    pub fn portal(&self, index: usize) -> SocketAddr {
        self.portals[index]
    }

    /// Where it listens for NVMe/TCP, in the order of the arguments.
    pub fn nvme(&self, index: usize) -> SocketAddr {
        self.nvme[index]
    }

    /// The process, for its memory and time.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server has written to standard error so far.
    pub fn log(&self) -> String {
        read_text(&self.scratch.join("stderr"))
    }

    /// Waits until this text stands in the log.
    ///
    /// # Panics
    /// When it does not within a minute.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.log().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text} is missing in\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the server has written to standard output so far.
    pub fn output(&self) -> String {
        read_text(&self.scratch.join("stdout"))
    }

    /// Has the server look for volumes whose size has changed (SIGHUP).
    pub fn reload(&self) -> io::Result<()> {
        signal(self.child.id(), "HUP")
    }

    /// Stops the server from running for a while (SIGSTOP, SIGCONT).
    pub fn stall(&self, pause: Duration) -> io::Result<()> {
        signal(self.child.id(), "STOP")?;
        std::thread::sleep(pause);
        signal(self.child.id(), "CONT")
    }

    /// Asks the server to end (SIGTERM) and waits; after `limit` it is killed and an error comes.
    pub fn stop(mut self, limit: Duration) -> io::Result<ExitStatus> {
        signal(self.child.id(), "TERM")?;
        self.wait(limit)
    }

    /// Like [`Self::stop`]; gives its complete log as well.
    pub fn stop_and_read(self, limit: Duration) -> io::Result<(ExitStatus, String)> {
        // The file goes with the directory of the server; open, it can still be read.
        let mut log = File::open(self.scratch.join("stderr"))?;
        let status = self.stop(limit)?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        Ok((status, text))
    }

    /// Ends the server without any warning (SIGKILL).
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Whether the server still runs; if not, how it ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("server did not end within {limit:?}\n{}", self.log()),
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if self.output().lines().any(|line| line.starts_with("ready")) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let how = describe(status);
                return Err(io::Error::other(format!(
                    "server ended {how}\n{}",
                    self.log()
                )));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("server was not ready within {LIMIT:?}\n{}", self.log()),
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log());
        }
    }
}

/// `prlimit`, and `setpriv` where there is somebody else to become.
fn words_for_ordinary_user(lockable_bytes: u64) -> Vec<String> {
    let mut words = vec![
        "prlimit".to_owned(),
        format!("--memlock={lockable_bytes}:{lockable_bytes}"),
    ];
    if rustix::process::geteuid().is_root() {
        words.extend(["setpriv", "--reuid=65534", "--clear-groups"].map(str::to_owned));
    }
    words
}

/// The folder a program was built in may be closed to other users, so it is run from the scratch
/// folder, which is opened to them.
fn copy_for_everybody(program: &Path, scratch: &Scratch) -> io::Result<PathBuf> {
    let copy = scratch.join("longshore");
    // By another process: a copy of ours would be open for writing in children that other threads
    // start meanwhile, and a file that is open for writing cannot be executed (ETXTBSY).
    let status = Command::new("cp").args([program, &copy]).status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "cp {}: {status}",
            program.display()
        )));
    }
    for path in [scratch.path(), copy.as_path()] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    Ok(copy)
}

/// Sends the signal of this name (`TERM`) to the process `pid`. After `STOP` all of its threads have stopped.
pub fn signal(pid: u32, name: &str) -> io::Result<()> {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        _ => return Err(io::Error::other(format!("no test sends SIG{name}"))),
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("not the number of a process"))?;
    kill_process(pid, signal)?;
    if signal == Signal::STOP {
        wait_until_stopped(pid)?;
    }
    Ok(())
}

/// Some threads go on until one has taken the signal.
fn wait_until_stopped(pid: Pid) -> io::Result<()> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut stopped = true;
        for task in std::fs::read_dir(&tasks)? {
            // One that has ended meanwhile does nothing either.
            let stat = std::fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            stopped &= state.is_empty() || state.starts_with(['T', 't', 'Z', 'X']);
        }
        if stopped {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("the process does not stop"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// "with status 1" or "by signal 9".
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with status {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}

/// The server program: `LONGSHORE_BIN` when set, else the one beside this test program, built
/// first if needed.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| match std::env::var_os("LONGSHORE_BIN") {
            Some(path) => PathBuf::from(path),
            None => build_beside_this_program(),
        })
        .clone()
}

fn build_beside_this_program() -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    // …/target/<profile>/deps/<test>, or …/target/<profile>/<program>.
    let mut folder = this.parent().expect("a program lies in a folder");
    if folder.ends_with("deps") {
        folder = folder.parent().expect("deps lies in the profile's folder");
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "longshore-cli"]);
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    cargo.env(
        "CARGO_TARGET_DIR",
        folder.parent().expect("the profile lies in target"),
    );
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "building the server failed");
    folder.join("longshore")
}

fn read_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        // A file that cannot be read shows as empty, and the caller's limit ends the wait.
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
