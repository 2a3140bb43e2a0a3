//! The host's side of a job: the server, the relays in front of it, and what a guest may ask for.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET, free_port};
use longshore_tests::tgt::{Tgt, TgtVolume};

use super::files::{image, sha256, write_noise, write_secret};
use super::header::Header;
use super::places::{Places, in_guest};
use super::script::{parse_size, read_script};
use crate::command::run_checked;
use crate::servers::Kind;
use crate::vm::relay::Relay;
use crate::workspace;

/// The subsystem that volumes given on the command line appear in.
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// How long the server may take to stop by itself.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// How long a verb of the control plane may take.
const VERB_LIMIT: Duration = Duration::from_secs(60);

/// Server, relays and files of one job.
pub struct Host {
    folder: PathBuf,
    builder: Option<ServerBuilder>,
    server: Option<Server>,
    _tgt: Option<Tgt>,
    /// In front of the listeners for iSCSI.
    relays: Vec<Relay>,
    /// In front of those for NVMe/TCP.
    nvme_relays: Vec<Relay>,
    /// Logs of servers that have ended.
    earlier_logs: String,
    control: Option<Control>,
    /// Ports of the guest, and of this machine's loopback.
    forwards: Vec<u16>,
    /// For arguments of clients.
    places: Places,
    /// The server's configuration file, where it has one.
    config: Option<PathBuf>,
}

/// How verbs of the control plane reach the server of a job.
struct Control {
    program: PathBuf,
    /// For its socket, its state and its volumes. Not below the target folder: the path of a socket has 107 bytes at
    /// most.
    scratch: Scratch,
}

impl Control {
    fn new(program: PathBuf) -> Result<Self> {
        let scratch = Scratch::new("kernel");
        std::fs::create_dir(scratch.join("volumes"))?;
        Ok(Self { program, scratch })
    }

    fn socket(&self) -> String {
        self.scratch.join("socket").display().to_string()
    }

    fn state(&self) -> String {
        self.scratch.join("state").display().to_string()
    }

    /// Runs `longshore WORDS… --server SOCKET`: its output in one line.
    fn run(&self, words: &[&str]) -> Result<String> {
        let folder = self.scratch.join("volumes").display().to_string();
        let mut command = Command::new(&self.program);
        command
            .args(words.iter().map(|word| word.replace("{folder}", &folder)))
            .args(["--server", &self.socket()]);
        run_checked(&mut command, VERB_LIMIT).map(|output| in_one_line(&output))
    }

    /// Two clients, each of which runs the verbs between slashes in turn, so many times.
    fn run_at_once(&self, times: usize, words: &[&str]) -> Result<()> {
        let client = || -> Result<()> {
            for _ in 0..times {
                for verb in words.split(|word| *word == "/") {
                    self.run(verb)?;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let clients = [(); 2].map(|()| scope.spawn(client));
            clients
                .into_iter()
                .try_for_each(|client| client.join().expect("clients do not panic"))
        })
    }
}

impl Host {
    /// Starts the server of a job with fresh files.
    pub fn start(kind: Kind, header: &Header, folder: &Path) -> Result<Self> {
        for (name, text) in &header.secrets {
            write_secret(&folder.join(name), text)?;
        }
        if header.serves_itself {
            return Ok(Self::idle(header, folder));
        }
        for volume in &header.volumes {
            let file = std::fs::File::create(image(folder, &volume.name))?;
            file.set_len(volume.size)?;
        }
        match kind {
            Kind::Longshore => Self::start_longshore(header, folder),
            Kind::Tgt => Self::start_tgt(header, folder),
        }
    }

    /// For a guest that needs no server here.
    fn idle(header: &Header, folder: &Path) -> Self {
        let forwards: Vec<u16> = (0..header.forwards).map(|_| free_port().port()).collect();
        let mut places = Places::new(folder);
        places.add_forwards(&forwards);
        Self {
            folder: folder.to_owned(),
            builder: None,
            server: None,
            _tgt: None,
            relays: Vec::new(),
            nvme_relays: Vec::new(),
            earlier_logs: String::new(),
            control: None,
            forwards,
            places,
            config: None,
        }
    }

    fn start_longshore(header: &Header, folder: &Path) -> Result<Self> {
        let (portals, relays) = listeners(header.portals)?;
        let (nvme, nvme_relays) = listeners(header.nvme)?;
        let program = workspace::server_program()?;
        let mut builder = ServerBuilder::with_program(program.clone());
        let control = match header.api {
            true => Some(Control::new(program)?),
            false => None,
        };
        if let Some(control) = &control {
            for (option, path) in [
                ("--socket", control.socket()),
                ("--state-dir", control.state()),
            ] {
                builder = builder.argument(option).argument(&path);
            }
        }
        let idle = Self::idle(header, folder);
        let mut places = idle.places.clone();
        places.add_listeners("portal", "advertise", &portals, &relays);
        places.add_listeners("nvme", "advertise-nvme", &nvme, &nvme_relays);
        let config = header.config.as_ref().map(|config| folder.join(config));
        if let (Some(source), Some(path)) = (&header.config, &config) {
            configure(source, &places, path)?;
            builder = builder
                .argument("--config")
                .argument(&path.display().to_string());
        } else {
            for (portal, relay) in portals.iter().zip(&relays) {
                builder = builder.iscsi_at(*portal, &format!(",advertise={}", in_guest(relay)));
            }
            for (listener, relay) in nvme.iter().zip(&nvme_relays) {
                builder = builder
                    .argument("--nvme")
                    .argument(&format!("{listener},advertise={}", in_guest(relay)));
            }
        }
        for volume in &header.volumes {
            let mut text = format!(
                "{},backend=file,path={}",
                volume.name,
                image(folder, &volume.name).display()
            );
            for option in &volume.options {
                text += &format!(",{option}");
            }
            if header.config.is_none() {
                builder = builder.volume(&text);
            }
        }
        let server = builder.clone().start()?;
        Ok(Self {
            builder: Some(builder),
            server: Some(server),
            relays,
            nvme_relays,
            control,
            places,
            config,
            ..idle
        })
    }

    fn start_tgt(header: &Header, folder: &Path) -> Result<Self> {
        let volumes: Vec<TgtVolume> = header
            .volumes
            .iter()
            .map(|volume| TgtVolume {
                backing_store_type: "rdwr",
                path: image(folder, &volume.name),
                block_size: if volume.options.iter().any(|o| o == "block-size=4096") {
                    4096
                } else {
                    512
                },
            })
            .collect();
        let tgt = Tgt::start(&[], header.portals, &volumes)?;
        let relays = (0..header.portals)
            .map(|i| Relay::start(tgt.portal(i)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            _tgt: Some(tgt),
            relays,
            ..Self::idle(header, folder)
        })
    }

    /// Ports of the guest that clients here reach by the same ports of loopback.
    pub fn forwards(&self) -> &[u16] {
        &self.forwards
    }

    /// Variables of the job: `TARGET`, `PORTAL0`, …, `SUBSYSTEM`, `NVME0`, …, `FORWARD0`, … (ports) and `WATCHDOG` in
    /// seconds.
    pub fn settings(&self, limit: Duration) -> Vec<(String, String)> {
        let mut settings = vec![
            ("TARGET".to_owned(), TARGET.to_owned()),
            ("SUBSYSTEM".to_owned(), SUBSYSTEM.to_owned()),
            ("WATCHDOG".to_owned(), limit.as_secs().to_string()),
        ];
        for (name, relays) in [("PORTAL", &self.relays), ("NVME", &self.nvme_relays)] {
            for (index, relay) in relays.iter().enumerate() {
                settings.push((format!("{name}{index}"), in_guest(relay)));
            }
        }
        for (index, port) in self.forwards.iter().enumerate() {
            settings.push((format!("FORWARD{index}"), port.to_string()));
        }
        settings
    }

    /// Does what a guest asks for:
    ///
    /// | request | what happens | answer |
    /// |---|---|---|
    /// | `kill-server` | SIGKILL | |
    /// | `start-server` | the same server again | |
    /// | `stop-server` | SIGTERM, must end with status 0 | |
    /// | `reload-server` | SIGHUP | |
    /// | `cut N`, `silence N`, `restore N` | relay N; `nvmeN` for those of NVMe | |
    /// | `allocated NAME` | | KiB the volume's file occupies |
    /// | `resize NAME SIZE` | truncates the file | |
    /// | `logged TEXT` | | how many lines of the log hold it |
    /// | `sleep-server SECONDS` | SIGSTOP, then SIGCONT | |
    /// | `at-once N VERB… / VERB…` | two clients at once, each runs both verbs in turn, N times | |
    /// | `longshore WORDS…` | this verb for the server (`# api: yes`); `{folder}` is one for files of volumes | what it prints |
    /// | `edit FROM TO` | changes a text in the server's configuration file; `reload-server` makes it count | |
    /// | `secret NAME TEXT` | writes `{folder}/NAME`, mode 0600 | |
    /// | `noise NAME SIZE` | writes `{folder}/NAME` | |
    /// | `sha256 NAME` | | of `{folder}/NAME` |
    /// | `watch N TEXT` | relay N looks for the text from now on | |
    /// | `seen N` | | bytes that have passed it since, and copies of the text |
    /// | `client WORDS…` | runs `longshore WORDS…`; `{folder}` and `{forward0}` are filled in | what it prints |
    pub fn perform(&mut self, request: &str) -> Result<String> {
        let words: Vec<&str> = request.split_whitespace().collect();
        match words[..] {
            ["kill-server"] => {
                let server = self.take_server()?;
                self.earlier_logs += &server.log();
                server.kill()?;
            }
            ["start-server"] => {
                let builder = self
                    .builder
                    .clone()
                    .context("only our own server can do this")?;
                self.server = Some(builder.start()?);
            }
            ["stop-server"] => {
                let server = self.take_server()?;
                self.earlier_logs += &server.log();
                let status = server.stop(STOP_LIMIT)?;
                if !status.success() {
                    bail!("the server ended with {status}");
                }
            }
            ["reload-server"] => self.server()?.reload()?,
            ["sleep-server", seconds] => {
                self.server()?
                    .stall(Duration::from_secs(seconds.parse()?))?;
            }
            ["cut", relay] => self.relay(relay)?.cut(),
            ["silence", relay] => self.relay(relay)?.silence(),
            ["restore", relay] => self.relay(relay)?.restore(),
            ["allocated", volume] => {
                let blocks = std::fs::metadata(image(&self.folder, volume))?.blocks();
                return Ok((blocks / 2).to_string());
            }
            ["resize", volume, size] => {
                let path = image(&self.folder, volume);
                let file = std::fs::OpenOptions::new().write(true).open(path)?;
                file.set_len(parse_size(size)?)?;
            }
            ["logged", ..] => {
                let text = request.trim_start_matches("logged").trim();
                let lines = self
                    .server_log()
                    .lines()
                    .filter(|l| l.contains(text))
                    .count();
                return Ok(lines.to_string());
            }
            ["edit", from, to] => {
                let path = self.config.as_ref().context("the job has no such file")?;
                edit(path, from, to)?;
            }
            ["secret", name, text] => write_secret(&self.folder.join(name), text)?,
            ["noise", name, size] => write_noise(&self.folder.join(name), parse_size(size)?)?,
            ["sha256", name] => return sha256(&self.folder.join(name)),
            ["watch", relay, text] => self.relay(relay)?.watch(text),
            ["seen", relay] => {
                let (bytes, copies) = self.relay(relay)?.seen();
                return Ok(format!("{bytes} {copies}"));
            }
            ["client", ref words @ ..] => {
                let mut command = Command::new(workspace::server_program()?);
                command.args(words.iter().map(|word| self.places.fill_in(word)));
                return run_checked(&mut command, VERB_LIMIT).map(|output| in_one_line(&output));
            }
            ["longshore", ref words @ ..] => {
                let control = self.control.as_ref().context("the job has no API")?;
                return control.run(words);
            }
            ["at-once", times, ref words @ ..] => {
                let control = self.control.as_ref().context("the job has no API")?;
                control.run_at_once(times.parse()?, words)?;
            }
            _ => bail!("the host does not know {request:?}"),
        }
        Ok(String::new())
    }

    /// What all servers of this job have logged.
    pub fn server_log(&self) -> String {
        let now = self.server.as_ref().map(Server::log).unwrap_or_default();
        format!("{}{now}", self.earlier_logs)
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server does not run")
    }

    fn take_server(&mut self) -> Result<Server> {
        self.server.take().context("the server does not run")
    }

    fn relay(&self, name: &str) -> Result<&Relay> {
        let (relays, index) = match name.strip_prefix("nvme") {
            Some(index) => (&self.nvme_relays, index),
            None => (&self.relays, name),
        };
        relays
            .get(index.parse::<usize>()?)
            .with_context(|| format!("no relay {name}"))
    }
}

/// Free ports of the host, and a relay in front of each.
fn listeners(count: usize) -> Result<(Vec<SocketAddr>, Vec<Relay>)> {
    let listeners: Vec<SocketAddr> = (0..count).map(|_| free_port()).collect();
    let relays: Result<Vec<Relay>> = listeners.iter().map(|&l| Relay::start(l)).collect();
    Ok((listeners, relays?))
}

fn edit(path: &Path, from: &str, to: &str) -> Result<()> {
    let text = read_script(path)?;
    if !text.contains(from) {
        bail!("{from} is not in {}", path.display());
    }
    std::fs::write(path, text.replace(from, to))?;
    Ok(())
}

/// Writes a configuration file of the jobs, filled in, to `path`.
fn configure(source: &str, places: &Places, path: &Path) -> Result<()> {
    let source = workspace::root().join("tests/kernel/jobs").join(source);
    let text = places.fill_in(&read_script(&source)?);
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn in_one_line(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    lines.join("; ")
}
