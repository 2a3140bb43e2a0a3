//! The servers that are measured, each started when the first set wants it.

use std::cell::OnceCell;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::{Server, ServerBuilder, TARGET};
use longshore_tests::tgt::{Tgt, TgtVolume};

use super::set::Way;
use crate::bench::Plan;
use crate::bench::load::words;
use crate::bench::point::Protocol;
use crate::bench::server::{CLIENT_CORE, SERVER_CORE, SPAN, VOLUME_SIZE, pinned, written_file};
use crate::command::run_checked;
use crate::servers::Backend;
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Ours, with the engine of the plan.
    Ours,
    /// Ours, which may spin as long as it pays.
    Spinning,
    Uring,
    Epoll,
    Tgt,
    /// The floor, with nothing behind it or a file.
    Floor,
    FloorFile,
}

/// A load, but for who is loaded.
#[derive(Debug, Clone)]
pub struct Load {
    pub protocol: Protocol,
    pub backend: Backend,
    /// Order and direction as `bench` names them: `randread`, `write`, …
    pub order: &'static str,
    pub size: u32,
    pub depth: u32,
    /// Further options of `longshore bench`.
    pub options: &'static str,
}

/// See the module documentation.
pub struct Lab<'a> {
    plan: &'a Plan,
    program: PathBuf,
    floor_program: OnceCell<PathBuf>,
    ours: OnceCell<Server>,
    spinning: OnceCell<Server>,
    uring: OnceCell<Server>,
    epoll: OnceCell<Server>,
    tgt: OnceCell<Tgt>,
    floor: OnceCell<Floor>,
    floor_file: OnceCell<Floor>,
}

struct Floor {
    child: Child,
    address: String,
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It serves for ever, so both succeed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value, made if it is not there.
fn made<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = make()?;
    Ok(cell.get_or_init(|| value))
}

impl<'a> Lab<'a> {
    pub fn new(plan: &'a Plan) -> Result<Self> {
        Ok(Self {
            plan,
            program: workspace::server_program()?,
            floor_program: OnceCell::new(),
            ours: OnceCell::new(),
            spinning: OnceCell::new(),
            uring: OnceCell::new(),
            epoll: OnceCell::new(),
            tgt: OnceCell::new(),
            floor: OnceCell::new(),
            floor_file: OnceCell::new(),
        })
    }

    /// The way of a load to a server.
    pub fn way(&self, name: &'static str, which: Which, load: &Load) -> Result<Way> {
        let (words, pid) = match which {
            Which::Floor | Which::FloorFile => self.to_floor(which, load)?,
            Which::Tgt => {
                let tgt = self.tgt()?;
                (self.bench(&tgt_url(tgt, load.backend), load), tgt.pid())
            }
            _ => {
                let server = self.server(which)?;
                (self.bench(&url(server, load), load), server.pid())
            }
        };
        Ok(Way {
            name,
            words,
            pid,
            disturbed: false,
        })
    }

    /// A server of ours, pinned, without volumes and listeners.
    pub fn builder(&self, name: &str) -> Result<ServerBuilder> {
        let folder = workspace::work_folder(&format!("bench/targets/{name}"))?;
        let below = pinned(SERVER_CORE);
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        Ok(ServerBuilder::with_program(self.program.clone())
            .below(&below)
            .argument("--state-dir")
            .argument(&folder.join("state").display().to_string()))
    }

    pub fn server(&self, which: Which) -> Result<&Server> {
        let engine = self.plan.engine.as_str();
        match which {
            Which::Spinning => made(&self.spinning, || {
                let spins = self.understands("--spin")?;
                let options = if spins { "--spin auto" } else { "" };
                self.start("spinning", engine, options)
            }),
            Which::Uring => made(&self.uring, || self.start("io_uring", "io_uring", "")),
            Which::Epoll => made(&self.epoll, || self.start("epoll", "epoll", "")),
            _ => made(&self.ours, || self.start("longshore", engine, "")),
        }
    }

    /// Whether `longshore serve` knows an option: the server that is measured may be an earlier one.
    fn understands(&self, option: &str) -> Result<bool> {
        let mut command = Command::new(&self.program);
        let help = run_checked(
            command.args(["serve", "--help"]),
            std::time::Duration::from_secs(10),
        )?;
        Ok(help.contains(option))
    }

    /// Starts one of ours with a volume of each kind.
    fn start(&self, name: &str, engine: &str, options: &str) -> Result<Server> {
        let folder = workspace::work_folder(&format!("bench/targets/{name}"))?;
        let file = written_file(&folder)?;
        let mut builder = self
            .builder(name)?
            .volume(&format!("disk0,backend=null,size={VOLUME_SIZE}"))
            .volume(&format!("disk1,backend=mem,size={VOLUME_SIZE}"))
            .volume(&format!(
                "disk2,backend=file,size={VOLUME_SIZE},path={}",
                file.display()
            ))
            .argument("--engine")
            .argument(engine)
            .iscsi()
            .nvme();
        for word in options.split_whitespace() {
            builder = builder.argument(word);
        }
        let server = builder.start().with_context(|| format!("start {name}"))?;
        let fill = Load {
            protocol: Protocol::Iscsi,
            backend: Backend::Memory,
            order: "write",
            size: 65_536,
            depth: 8,
            options: "",
        };
        let mut words = pinned(CLIENT_CORE);
        words.extend(self.bench(&url(&server, &fill), &fill));
        words.extend(["--size".to_owned(), SPAN.to_string()]);
        let mut command = Command::new(&words[0]);
        run_checked(
            command.args(&words[1..]),
            std::time::Duration::from_secs(60),
        )?;
        Ok(server)
    }

    pub fn tgt(&self) -> Result<&Tgt> {
        made(&self.tgt, || {
            let folder = workspace::work_folder("bench/targets/tgt")?;
            let path = written_file(&folder)?;
            let below = pinned(SERVER_CORE);
            let below: Vec<&str> = below.iter().map(String::as_str).collect();
            let volume = |backing_store_type| TgtVolume {
                backing_store_type,
                path: path.clone(),
                block_size: 512,
            };
            let volumes = [volume("null"), volume("rdwr")];
            Tgt::start(&below, 1, &volumes).context("start tgt")
        })
    }

    fn to_floor(&self, which: Which, load: &Load) -> Result<(Vec<String>, u32)> {
        let program = made(&self.floor_program, workspace::floor_program)?;
        let floor = if which == Which::FloorFile {
            made(&self.floor_file, || self.start_floor(program, true))?
        } else {
            made(&self.floor, || self.start_floor(program, false))?
        };
        let protocol = match load.protocol {
            Protocol::Iscsi => "iscsi",
            Protocol::Nvme => "nvme",
        };
        let direction = if load.order.contains("write") {
            "--write"
        } else {
            "--read"
        };
        let text = format!(
            "drive {} --protocol {protocol} {direction} {} --iodepth {}",
            floor.address, load.size, load.depth
        );
        let mut all = vec![program.display().to_string()];
        all.extend(words(&text));
        Ok((all, floor.child.id()))
    }

    fn start_floor(&self, program: &std::path::Path, with_file: bool) -> Result<Floor> {
        let mut all = pinned(SERVER_CORE);
        all.extend([program.display().to_string(), "serve".to_owned()]);
        all.extend(["--engine".to_owned(), self.plan.engine.clone()]);
        if with_file {
            let folder = workspace::work_folder("bench/targets/floor")?;
            let file = written_file(&folder)?;
            all.extend(["--file".to_owned(), file.display().to_string()]);
        }
        let mut child = Command::new(&all[0])
            .args(&all[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the floor")?;
        let stdout = child.stdout.take().context("the floor's output")?;
        let mut floor = Floor {
            child,
            address: String::new(),
        };
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next().context("the floor printed nothing")??;
        let Some(address) = line.strip_prefix("ready ") else {
            bail!("the floor printed {line:?}");
        };
        floor.address = address.to_owned();
        // What else it prints is counters, which are not looked at here.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(floor)
    }

    fn bench(&self, url: &str, load: &Load) -> Vec<String> {
        let text = format!(
            "bench {url} --output json --rw {} --bs {} --iodepth {} --span {SPAN} --flow-control off {}",
            load.order, load.size, load.depth, load.options
        );
        let mut all = vec![self.plan.client.display().to_string()];
        all.extend(words(&text));
        all
    }
}

/// Number of a volume, in the order in which [`Lab::start`] names them.
fn number(backend: Backend) -> u32 {
    match backend {
        Backend::Null => 0,
        Backend::Memory => 1,
        Backend::File => 2,
        Backend::Pool | Backend::Mirror => unreachable!("no load goes to a pool"),
    }
}

fn url(server: &Server, load: &Load) -> String {
    let number = number(load.backend);
    match load.protocol {
        Protocol::Iscsi => format!("iscsi://{}/{TARGET}/{number}", server.portal(0)),
        Protocol::Nvme => format!("nvme+tcp://{}/{SUBSYSTEM}/{}", server.nvme(0), number + 1),
    }
}

/// The same volume as [`url`] has it, as libiscsi and QEMU write it.
pub fn iscsi_url(server: &Server, backend: Backend) -> String {
    format!("iscsi://{}/{TARGET}/{}", server.portal(0), number(backend))
}

/// A volume of tgt, whose logical units are numbered from 1.
pub fn tgt_url(tgt: &Tgt, backend: Backend) -> String {
    let number = if backend == Backend::Null { 1 } else { 2 };
    format!("iscsi://{}/{TARGET}/{number}", tgt.portal(0))
}
