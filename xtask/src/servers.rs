//! The servers that suites run against: ours, or `tgt` to try the suite itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_tests::process::Process;
use longshore_tests::server::{Server, ServerBuilder, TARGET};
use longshore_tests::tgt::{Tgt, TgtVolume};

use crate::command::run_checked;
use crate::workspace;

const POOL_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one of this repository.
    Longshore,
    Tgt,
}

impl Kind {
    /// The name, as options and tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Longshore => "longshore",
            Self::Tgt => "tgt",
        }
    }

    /// From the value of `--server`.
    pub fn parse(name: Option<&str>) -> Result<Self> {
        match name {
            None | Some("longshore") => Ok(Self::Longshore),
            Some("tgt") => Ok(Self::Tgt),
            Some(other) => bail!("--server {other}: longshore or tgt"),
        }
    }
}

/// What kind of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A sparse file in the suite's folder.
    File,
    /// Memory. `tgt` has none and gets a file.
    Memory,
    /// Nothing: reads give zeros.
    Null,
    /// A volume of a pool on a sparse file in the suite's folder. `tgt` has none and gets a file.
    Pool,
    /// The same on a mirror of two files.
    Mirror,
}

impl Backend {
    /// The value of `backend=` on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "mem",
            Self::Null => "null",
            Self::Pool | Self::Mirror => "pool",
        }
    }
}

/// The file of a volume that is one.
const DISK: &str = "disk0.img";

/// One volume on a server with some portals.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    pub kind: Kind,
    /// What holds the data.
    pub backend: Backend,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Bytes of a block: 512 or 4096.
    pub block_size: u32,
    /// `io_uring`, `epoll` or `auto`.
    pub engine: &'a str,
    /// How many addresses it listens on.
    pub portals: usize,
    /// A program to run the server below, such as `taskset -c 0`.
    pub below: &'a [&'a str],
    /// Where a file goes.
    pub folder: &'a Path,
    /// Serve the file that lies there already.
    pub keep_file: bool,
    /// As an ordinary user who may lock so many bytes of memory. Ours only.
    pub lockable_bytes: Option<u64>,
}

#[derive(Debug)]
pub enum Running {
    Longshore(Server),
    Tgt(Tgt),
}

/// Removes the files of a volume that are there: gigabytes, where a pool was written to for long.
pub fn remove(data: &[PathBuf]) -> Result<()> {
    for path in data.iter().filter(|path| path.exists()) {
        std::fs::remove_file(path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

impl Setup<'_> {
    pub fn start(&self) -> Result<Running> {
        match self.kind {
            Kind::Longshore => self.start_longshore(),
            Kind::Tgt => self.start_tgt(),
        }
    }

    fn start_longshore(&self) -> Result<Running> {
        let mut volume = format!(
            "disk0,backend={},size={},block-size={}",
            self.backend.name(),
            self.size,
            self.block_size
        );
        let program = workspace::server_program()?;
        match self.backend {
            Backend::File => {
                volume += &format!(",path={}", self.data()[0].display());
            }
            Backend::Pool | Backend::Mirror => {
                volume += &format!(",pool={}", self.pool(&program)?);
            }
            Backend::Memory | Backend::Null => {}
        }
        let mut builder = ServerBuilder::with_program(program)
            .below(self.below)
            .volume(&volume)
            .argument("--engine")
            .argument(self.engine);
        if let Some(bytes) = self.lockable_bytes {
            builder = builder.as_ordinary_user(bytes);
        } else {
            // Volumes of other servers on this machine have the same name, and so the same records.
            let state = self.folder.join("state");
            if state.exists() {
                std::fs::remove_dir_all(&state)?;
            }
            builder = builder
                .argument("--state-dir")
                .argument(&state.display().to_string());
        }
        for _ in 0..self.portals {
            builder = builder.iscsi();
        }
        Ok(Running::Longshore(
            builder.start().context("start longshore")?,
        ))
    }

    /// The files that hold the volume's data.
    pub fn data(&self) -> Vec<PathBuf> {
        let names: &[&str] = match self.backend {
            Backend::File => &[DISK],
            Backend::Pool => &["pool.img"],
            Backend::Mirror => &["one.img", "other.img"],
            Backend::Memory | Backend::Null => &[],
        };
        names.iter().map(|it| self.folder.join(it)).collect()
    }

    /// Makes a pool that holds the volume twice, unless the one there is to be kept. Gives its drives, as `pool=` has them.
    fn pool(&self, program: &Path) -> Result<String> {
        let paths = self.data();
        if !self.keep_file || !paths.iter().all(|path| path.exists()) {
            let mut create = Command::new(program);
            create.args(["pool", "create", "suite"]).args(&paths);
            create.args(["--force", "--size", &(2 * self.size).to_string()]);
            if self.backend == Backend::Mirror {
                create.arg("--mirror");
            }
            run_checked(&mut create, POOL_LIMIT).context("create a pool")?;
        }
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Ok(paths.join("+"))
    }

    fn start_tgt(&self) -> Result<Running> {
        let path = self.folder.join(DISK);
        if !self.keep_file || !path.exists() {
            std::fs::File::create(&path)?.set_len(self.size)?;
        }
        let volume = TgtVolume {
            backing_store_type: if self.backend == Backend::Null {
                "null"
            } else {
                "rdwr"
            },
            path,
            block_size: self.block_size,
        };
        Ok(Running::Tgt(
            Tgt::start(self.below, self.portals, &[volume]).context("start tgt")?,
        ))
    }
}

impl Running {
    pub fn portal(&self, index: usize) -> SocketAddr {
        match self {
            Self::Longshore(server) => server.portal(index),
            Self::Tgt(tgt) => tgt.portal(index),
        }
    }

    /// The number of the volume.
    pub fn lun(&self) -> u8 {
        match self {
            Self::Longshore(_) => 0,
            Self::Tgt(_) => 1,
        }
    }

    /// The volume's address as libiscsi and QEMU write it.
    pub fn url(&self, portal: usize) -> String {
        format!("iscsi://{}/{TARGET}/{}", self.portal(portal), self.lun())
    }

    pub fn process(&self) -> Process {
        match self {
            Self::Longshore(server) => server.process(),
            Self::Tgt(tgt) => tgt.process(),
        }
    }

    /// The number of the server's process.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Longshore(server) => server.pid(),
            Self::Tgt(tgt) => tgt.pid(),
        }
    }

    /// What ours wrote to its log.
    pub fn log(&self) -> String {
        match self {
            Self::Longshore(server) => server.log(),
            Self::Tgt(_) => String::new(),
        }
    }
}
