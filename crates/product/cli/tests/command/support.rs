//! Starts the command and looks at what it prints.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::scratch::Scratch;
use longshore_tests::server::signal;

/// How long anything here may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A run of `longshore serve` in a directory of its own.
pub struct Run {
    pub scratch: Scratch,
    command: Command,
    child: Option<Child>,
}

impl Run {
    /// `longshore serve --state-dir …` with these arguments; `{dir}` stands for the directory.
    pub fn serve(arguments: &[&str]) -> Self {
        let scratch = Scratch::new("cli");
        let directory = scratch.path().display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command
            .args(["serve", "--state-dir"])
            .arg(scratch.join("state"));
        command.args(
            arguments
                .iter()
                .map(|word| word.replace("{dir}", &directory)),
        );
        command.stdin(Stdio::null());
        command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
        // Where its control socket goes: no two servers share one.
        command.env("RUNTIME_DIRECTORY", scratch.path());
        Self {
            scratch,
            command,
            child: None,
        }
    }

    /// A memory volume on a free loopback port, and these arguments.
    pub fn serve_memory(arguments: &[&str]) -> Self {
        let fixed = [
            "--volume",
            "disk0,backend=mem,size=1M",
            "--iscsi",
            "127.0.0.1:0",
        ];
        Self::serve(&[&fixed, arguments].concat())
    }

    /// Puts a file into the directory.
    pub fn with_file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.scratch.join(name), text).expect("write a file of the test");
        self
    }

    /// Changes the command before it starts.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Starts it and returns at once.
    pub fn spawn(mut self) -> Self {
        let output = |name: &str| File::create(self.scratch.join(name)).expect("create a file");
        self.command
            .stdout(output("stdout"))
            .stderr(output("stderr"));
        self.child = Some(self.command.spawn().expect("start longshore"));
        self
    }

    /// Starts it and waits for the `ready` line.
    pub fn start(self) -> Self {
        self.spawn().until_ready()
    }

    /// The same with another standard error.
    pub fn start_with_stderr(mut self, stderr: Stdio) -> Self {
        let stdout = File::create(self.scratch.join("stdout")).expect("create a file");
        self.command.stdout(stdout).stderr(stderr);
        self.child = Some(self.command.spawn().expect("start longshore"));
        // The command keeps the other end of a pipe open otherwise.
        self.command.stderr(Stdio::null());
        self.until_ready()
    }

    fn until_ready(self) -> Self {
        let mut run = self;
        run.wait_for("the ready line", |run| {
            run.stdout().lines().any(|l| l.starts_with("ready"))
        });
        run
    }

    /// Starts it, expects it to refuse, and gives its exit status and standard error.
    pub fn refuse(self) -> (i32, String) {
        let (_, status, message) = self.refuse_and_stay();
        (status, message)
    }

    /// The same, with the run, whose directory is there as long as it is.
    pub fn refuse_and_stay(self) -> (Self, i32, String) {
        let mut run = self.spawn();
        let status = run.end();
        assert_eq!(
            run.stdout(),
            "",
            "nothing but results goes to standard output"
        );
        let message = run.stderr();
        (run, status.code().expect("it exits"), message)
    }

    pub fn stdout(&self) -> String {
        self.read("stdout")
    }

    pub fn stderr(&self) -> String {
        self.read("stderr")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.join(name)).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name).expect("send a signal");
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        self.wait_for("the end of the process", |run| {
            ended = run
                .child
                .as_mut()
                .and_then(|child| child.try_wait().expect("wait for it"));
            ended.is_some()
        });
        ended.expect("it has ended")
    }

    /// Waits until a condition holds.
    pub fn wait_for(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let give_up = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(
                Instant::now() < give_up,
                "waited for {what}\nstdout: {}\nstderr: {}",
                self.stdout(),
                self.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The addresses of the `ready` line for iSCSI.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of("iscsi")
    }

    /// The addresses of the `ready` line for `iscsi`, `nvme` or `nvme-discovery`.
    pub fn addresses_of(&self, service: &str) -> Vec<SocketAddr> {
        let stdout = self.stdout();
        let line = stdout
            .lines()
            .find(|line| line.starts_with("ready"))
            .expect("a ready line");
        let list = line
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .find(|(name, _)| *name == service);
        list.map_or("", |(_, list)| list)
            .split(',')
            .filter(|address| !address.is_empty())
            .map(|address| address.parse().expect("an address"))
            .collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
