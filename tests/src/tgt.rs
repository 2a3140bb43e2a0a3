//! Starts Debian's `tgt`, the server that ours is measured against, and on which the harness
//! itself can be tried.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::LIMIT;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::server::{TARGET, free_port};

/// One volume of `tgt`, which appears as LUN 1 upwards (LUN 0 is its controller).
#[derive(Debug, Clone)]
pub struct TgtVolume {
    /// `rdwr`, `aio` or `null`.
    pub backing_store_type: &'static str,
    /// The file; for `null` a size such as `64G` makes sense only in name.
    pub path: PathBuf,
    /// Bytes of a block: 512 or 4096.
    pub block_size: u32,
}

/// A name and a secret of CHAP.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    pub user: &'static str,
    /// 12 to 16 bytes.
    pub secret: &'static str,
}

/// A running `tgtd`, killed when this value goes away.
#[derive(Debug)]
pub struct Tgt {
    child: Child,
    control_port: String,
    portals: Vec<SocketAddr>,
    targets: AtomicU32,
    _scratch: Scratch,
}

static NEXT_CONTROL_PORT: AtomicU32 = AtomicU32::new(0);

impl Tgt {
    /// Starts `tgtd` below `wrapper` (`taskset -c 0`, or nothing) with `portals` portals.
    pub fn start(wrapper: &[&str], portals: usize, volumes: &[TgtVolume]) -> io::Result<Self> {
        let scratch = Scratch::new("tgt");
        // Each tgtd has a control socket named after a number; several may run on one machine.
        let number =
            std::process::id() % 30_000 + NEXT_CONTROL_PORT.fetch_add(1, Ordering::Relaxed);
        let control_port = number.to_string();
        let portals: Vec<SocketAddr> = (0..portals).map(|_| free_port()).collect();
        let mut words: Vec<String> = wrapper.iter().map(|&word| word.to_owned()).collect();
        words.extend(["tgtd", "-f", "-C", &control_port].map(str::to_owned));
        let addresses: Vec<String> = portals.iter().map(|p| format!("portal={p}")).collect();
        words.extend(["--iscsi".to_owned(), addresses.join(",")]);
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(File::create(scratch.join("stdout"))?)
            .stderr(File::create(scratch.join("stderr"))?)
            .spawn()
            .map_err(|error| io::Error::other(format!("start {}: {error}", words[0])))?;
        let tgt = Self {
            child,
            control_port,
            portals,
            targets: AtomicU32::new(0),
            _scratch: scratch,
        };
        tgt.wait_until_up()?;
        tgt.add_open_target(TARGET, volumes)?;
        Ok(tgt)
    }

    pub fn portal(&self, index: usize) -> SocketAddr {
        self.portals[index]
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process, for its memory and time.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    /// Adds a target that lets in only who knows the secret of `incoming`, and that proves itself
    /// by `outgoing` to those who ask.
    pub fn add_target(
        &self,
        name: &str,
        volumes: &[TgtVolume],
        incoming: Account,
        outgoing: Option<Account>,
    ) -> io::Result<()> {
        let tid = self.add_open_target(name, volumes)?;
        let accounts = [
            Some((incoming, None)),
            outgoing.map(|o| (o, Some("--outgoing"))),
        ];
        for (account, direction) in accounts.into_iter().flatten() {
            let new = ["--op", "new", "--mode", "account", "--user", account.user];
            // An account that another target has already is as good.
            let _ = self.admin(&[&new[..], &["--password", account.secret]].concat());
            let bind = ["--op", "bind", "--mode", "account", "--tid", &tid];
            let mut words = [&bind[..], &["--user", account.user]].concat();
            words.extend(direction);
            self.admin(&words)?;
        }
        Ok(())
    }

    /// What the first target negotiates about a key.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let target = ["--op", "update", "--mode", "target", "--tid", "1"];
        self.admin(&[&target[..], &["--name", key, "--value", value]].concat())
    }

    fn wait_until_up(&self) -> io::Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.admin(&["--op", "show", "--mode", "target"]).is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "tgtd does not answer",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Adds a target that everybody may use; its number.
    fn add_open_target(&self, name: &str, volumes: &[TgtVolume]) -> io::Result<String> {
        let tid = (self.targets.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let target = ["--mode", "target", "--tid", &tid];
        self.admin(&[&["--op", "new"], &target[..], &["-T", name]].concat())?;
        for (volume, lun) in volumes.iter().zip(1..) {
            let lun = format!("{lun}");
            let unit = ["--mode", "logicalunit", "--tid", &tid, "--lun", &lun];
            let block_size = volume.block_size.to_string();
            let path = volume.path.display().to_string();
            let store = ["--bstype", volume.backing_store_type, "-b", &path];
            let block_size = ["--blocksize", &block_size];
            self.admin(&[&["--op", "new"], &unit[..], &store[..], &block_size[..]].concat())?;
            let thin = ["--params", "thin_provisioning=1"];
            self.admin(&[&["--op", "update"], &unit[..], &thin[..]].concat())?;
        }
        self.admin(&[&["--op", "bind"], &target[..], &["-I", "ALL"]].concat())?;
        Ok(tid)
    }

    fn admin(&self, arguments: &[&str]) -> io::Result<()> {
        let output = Command::new("tgtadm")
            .args(["-C", &self.control_port, "--lld", "iscsi"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            Ok(())
        } else {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(io::Error::other(format!(
                "tgtadm {}: {why}",
                arguments.join(" ")
            )))
        }
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        // tgtd ignores SIGTERM while it has targets.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(format!("/var/run/tgtd/socket.{}", self.control_port));
        let _ = std::fs::remove_file(format!("/var/run/tgtd/socket.{}.lock", self.control_port));
    }
}
