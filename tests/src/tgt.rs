//! Starts Debian's `tgt`, the server that ours is measured against, and on which the harness
//! itself can be tried.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
    /// 512 or 4096.
    pub block_size: u32,
}

/// A running `tgtd`, killed when this value goes away.
#[derive(Debug)]
pub struct Tgt {
    child: Child,
    control_port: String,
    portals: Vec<SocketAddr>,
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
            _scratch: scratch,
        };
        tgt.configure(volumes)?;
        Ok(tgt)
    }

    /// Where it listens.
    pub fn portal(&self, index: usize) -> SocketAddr {
        self.portals[index]
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process, for its memory and time.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    fn configure(&self, volumes: &[TgtVolume]) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.admin(&["--op", "show", "--mode", "target"]).is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "tgtd does not answer",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.admin(&[
            "--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET,
        ])?;
        for (volume, lun) in volumes.iter().zip(1..) {
            self.admin(&[
                "--op",
                "new",
                "--mode",
                "logicalunit",
                "--tid",
                "1",
                "--lun",
                &format!("{lun}"),
                "--bstype",
                volume.backing_store_type,
                "--blocksize",
                &volume.block_size.to_string(),
                "-b",
                &volume.path.display().to_string(),
            ])?;
            let lun = format!("{lun}");
            let thin = [
                "--op",
                "update",
                "--mode",
                "logicalunit",
                "--tid",
                "1",
                "--lun",
                &lun,
            ];
            self.admin(&[&thin[..], &["--params", "thin_provisioning=1"]].concat())?;
        }
        self.admin(&[
            "--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL",
        ])
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
