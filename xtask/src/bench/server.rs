//! Servers of ours to measure: any program, pinned, with one volume.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::{Server, ServerBuilder, TARGET};

use super::Plan;
use super::point::{Point, Protocol};
use super::rounds::{Side, load};
use crate::servers::Backend;
use crate::workspace;

pub use super::bounds::{CLIENT_CORE, SERVER_CORE, SPAN, VOLUME_SIZE, pinned};

/// How a server is started.
pub struct Ours<'a> {
    pub program: &'a Path,
    pub backend: Backend,
    pub engine: &'a str,
    /// Whether it listens for NVMe/TCP too.
    pub nvme: bool,
    /// What it runs below, besides being pinned.
    pub wrapper: &'a [String],
    /// Further options of `serve`.
    pub options: &'a [&'a str],
    /// Folder of its file and state, below that of all benchmarks.
    pub folder: &'a str,
}

impl Ours<'_> {
    /// What to start, with ports of its own.
    pub fn builder(&self) -> Result<ServerBuilder> {
        let folder = workspace::work_folder(&format!("bench/{}", self.folder))?;
        let mut volume = format!("disk0,backend={},size={VOLUME_SIZE}", self.backend.name());
        if self.backend == Backend::File {
            volume += &format!(",path={}", written_file(&folder)?.display());
        }
        let below: Vec<String> = pinned(SERVER_CORE)
            .into_iter()
            .chain(self.wrapper.iter().cloned())
            .collect();
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let mut builder = ServerBuilder::with_program(self.program.to_owned())
            .below(&below)
            .volume(&volume)
            .argument("--engine")
            .argument(self.engine)
            .argument("--state-dir")
            .argument(&folder.join("state").display().to_string());
        for option in self.options {
            builder = builder.argument(option);
        }
        if self.nvme {
            builder = builder.nvme();
        }
        Ok(builder)
    }

    /// Starts it, its volume filled.
    pub fn start(&self, plan: &Plan) -> Result<Server> {
        let server = self.builder()?.iscsi().start();
        let server = server.with_context(|| format!("start {}", self.program.display()))?;
        if self.backend == Backend::Memory {
            fill(plan, &server)?;
        }
        Ok(server)
    }
}

/// A file without holes: a hole would be a different kind of page-cache hit.
pub fn written_file(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("disk0.img");
    std::fs::write(&path, vec![0x5a; usize::try_from(VOLUME_SIZE)?])?;
    Ok(path)
}

/// Writes all that is going to be read.
pub fn fill(plan: &Plan, server: &Server) -> Result<()> {
    let point = Point {
        protocol: Protocol::Iscsi,
        backend: Backend::Memory,
        operation: "write",
        size: 65_536,
        depth: 8,
        data_digest: false,
    };
    let options = format!("--rw write --size {SPAN}");
    load(plan, point, &url(server, Protocol::Iscsi), &options).map(drop)
}

/// A server's volume as one side of a comparison.
pub fn side(name: &'static str, server: &Server, protocol: Protocol) -> Side {
    Side {
        name,
        url: url(server, protocol),
        pid: server.pid(),
    }
}

/// Where the load generator finds the volume.
pub fn url(server: &Server, protocol: Protocol) -> String {
    match protocol {
        Protocol::Iscsi => format!("iscsi://{}/{TARGET}/0", server.portal(0)),
        Protocol::Nvme => format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.nvme(0)),
    }
}
