//! A server that can be asked, started again and looked into.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use longshore_tests::api::{ApiAddress, Reply, VerbResult, verb};
use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::pdu::opcode;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, free_port};
use serde_json::{Value, json};

/// A target and a subsystem that tests add.
pub const TARGET: &str = "iqn.2026-11.local.longshore:changes";
pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:changes";

/// For what has to come about on a machine that is busy with other tests.
pub const LIMIT: Duration = Duration::from_secs(60);

/// `[limits] drain-timeout` of the servers here.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A server with a file, a socket and an address for its API, on ports that stay its own when it starts again.
pub struct Rig {
    pub scratch: Scratch,
    /// What the file says of it when it is written next.
    pub drain_timeout: Duration,
    builder: ServerBuilder,
    server: Option<Server>,
    pub iscsi: SocketAddr,
    pub nvme: SocketAddr,
    pub api: SocketAddr,
}

impl Rig {
    /// Started, with the volume `f0` in its file, and these tables behind it.
    pub fn start(tables: &str) -> Self {
        let mut rig = Self::new(ServerBuilder::new(), tables);
        rig.start_again();
        rig
    }

    pub fn new(builder: ServerBuilder, tables: &str) -> Self {
        let scratch = Scratch::new("changes");
        let (iscsi, nvme, api) = (free_port(), free_port(), free_port());
        let text = |path: &Path| path.display().to_string();
        let builder = builder
            .iscsi_at(iscsi, "")
            .nvme_at(nvme, "")
            .argument("--api")
            .argument(&api.to_string())
            .argument("--socket")
            .argument(&text(&scratch.join("socket")))
            .argument("--state-dir")
            .argument(&text(&scratch.join("state")))
            .argument("--config")
            .argument(&text(&scratch.join("longshore.toml")));
        let rig = Self {
            scratch,
            drain_timeout: DRAIN_TIMEOUT,
            builder,
            server: None,
            iscsi,
            nvme,
            api,
        };
        rig.write_file(tables);
        rig
    }

    /// Gives the file the tables that all servers have, and these.
    pub fn write_file(&self, tables: &str) {
        let seconds = self.drain_timeout.as_secs();
        let image = self.path("f0.img");
        let text = format!(
            "[limits]\ndrain-timeout = \"{seconds}s\"\n\n\
             [[volume]]\nname = \"f0\"\nbackend = \"file\"\npath = \"{image}\"\nsize = \"8M\"\n{tables}"
        );
        fs::write(self.scratch.join("longshore.toml"), text).unwrap();
    }

    /// A path in the directory of the test.
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// Starts it below another program from now on.
    pub fn below(&mut self, wrapper: &[&str]) {
        self.builder = self.builder.clone().below(wrapper);
    }

    pub fn start_again(&mut self) {
        self.server = Some(self.builder.clone().start().unwrap());
    }

    /// Starts the server and expects it to refuse: what it says.
    pub fn start_and_fail(&self) -> String {
        let (status, log) = self.builder.clone().start_and_fail().unwrap();
        assert_eq!(status.code(), Some(1), "{log}");
        log
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Ends the server without a warning.
    pub fn kill(&mut self) {
        self.server.take().expect("it runs").kill().unwrap();
    }

    /// Stops the server: its status and its log.
    pub fn stop(&mut self) -> (ExitStatus, String) {
        let server = self.server.take().expect("it runs");
        server.stop_and_read(LIMIT).unwrap()
    }

    /// Waits until a server that was asked to end has ended.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut server = self.server.take().expect("it runs");
        let mut ended = None;
        wait_for("the end of the server", || {
            ended = server.ended().unwrap();
            ended.is_some()
        });
        ended.expect("it has ended")
    }

    pub fn socket(&self) -> PathBuf {
        self.scratch.join("socket")
    }

    /// Runs a verb over the socket.
    pub fn verb(&self, arguments: &[&str]) -> VerbResult {
        VerbResult::of(verb(&self.socket(), arguments))
    }

    /// The JSON of a verb that succeeds.
    #[track_caller]
    pub fn show(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        self.verb(&arguments).expect(0).json()
    }

    /// The secret of the first token.
    pub fn token(&self) -> String {
        let text = fs::read_to_string(self.scratch.join("state/admin-token")).unwrap();
        text.trim().to_owned()
    }

    /// Over TCP, with all rights.
    pub fn http(&self) -> ApiAddress {
        ApiAddress::Tcp(self.api, Some(self.token()))
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.http().ask(method, path, body).unwrap()
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None).expect_success().json()
    }

    pub fn revision(&self) -> u64 {
        self.get("/api/v1/")["revision"].as_u64().unwrap()
    }

    /// A session of one of several initiators with a target.
    pub fn initiator(&self, target: &str, number: u16) -> Initiator {
        Initiator::log_in(self.iscsi, &login(target, number)).unwrap()
    }

    pub fn host(&self, subsystem: &str, number: u8) -> Host {
        Host::connect(self.nvme, &host_options(subsystem, number)).unwrap()
    }

    /// Whether the server has this file open.
    pub fn has_open(&self, path: &str) -> bool {
        let directory = format!("/proc/{}/fd", self.server().pid());
        let files = fs::read_dir(directory).unwrap();
        files
            .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
            .any(|target| target == Path::new(path))
    }
}

pub fn login(target: &str, number: u16) -> Login {
    Login {
        initiator: format!("iqn.2026-11.local.longshore:tests-{number}"),
        target: Some(target.to_owned()),
        ..Login::numbered(number)
    }
}

pub fn host_options(subsystem: &str, number: u8) -> HostOptions {
    HostOptions {
        subsystem: subsystem.to_owned(),
        ..HostOptions::numbered(number)
    }
}

/// Waits until it holds.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// REPORTED LUNS DATA HAS CHANGED.
pub const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
/// CAPACITY DATA HAS CHANGED.
pub const CAPACITY_CHANGED: (u8, u8, u8) = (6, 0x2a, 0x09);
/// LOGICAL UNIT NOT SUPPORTED.
pub const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0);
/// Sense key DATA PROTECT, WRITE PROTECTED.
pub const WRITE_PROTECTED: (u8, u8, u8) = (7, 0x27, 0);

/// The answer of a command behind the unit attentions in front of it, and these.
pub fn ask_scsi(
    initiator: &mut Initiator,
    cdb: &[u8],
    data: Data<'_>,
) -> (Answer, Vec<(u8, u8, u8)>) {
    let mut told = Vec::new();
    for _ in 0..16 {
        let answer = initiator.command(0, cdb, data).unwrap();
        match answer.sense_code() {
            Some(code) if code.0 == 6 => told.push(code),
            _ => return (answer, told),
        }
    }
    panic!("unit attentions without an end: {told:x?}");
}

/// Waits for the event of a change of maps.
pub fn wait_for_scsi_event(initiator: &mut Initiator) {
    if initiator.events.pop().is_some() {
        return;
    }
    let event = initiator.receive().unwrap();
    assert_eq!(event.opcode(), opcode::ASYNCHRONOUS_MESSAGE, "{event:?}");
    assert_eq!(event.bhs[36], 0, "a SCSI event: {event:?}");
}

pub fn scsi_write(initiator: &mut Initiator, lba: u64, byte: u8) -> Answer {
    let cdb = cdb::write_16(lba, 1, false);
    ask_scsi(initiator, &cdb, Data::Out(&[byte; 512])).0
}

/// The first byte of a block.
#[track_caller]
pub fn scsi_read(initiator: &mut Initiator, lba: u64) -> u8 {
    let (answer, _) = ask_scsi(initiator, &cdb::read_16(lba, 1), Data::In(512));
    assert!(answer.is_good(), "{answer:?}");
    answer.data[0]
}

/// Blocks of the unit.
pub fn scsi_blocks(initiator: &mut Initiator) -> u64 {
    let (answer, _) = ask_scsi(initiator, &cdb::read_capacity_16(), Data::In(32));
    u64::from_be_bytes(answer.data[..8].try_into().unwrap()) + 1
}

/// The one who asks for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// By the verbs, over the socket.
    Verbs,
    /// By requests, over TCP.
    Http,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    CreateVolume(&'a str, Value),
    /// A target or a subsystem without a map.
    CreateTarget(&'a str),
    /// Under the number at this place: the first is LUN 0 or NSID 1.
    Map(&'a str, &'a str, u32),
    Unmap(&'a str, &'a str, u32),
    Resize(&'a str, &'a str),
    ReadOnly(&'a str),
    Remove(&'a str),
}

/// A refusal, as both ways tell it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Of HTTP; the verbs have no numbers.
    pub status: Option<u16>,
    pub text: String,
}

impl Rig {
    /// Asks for a change; `options` are those of the query: `drain`.
    pub fn change(&self, hand: Hand, change: &Change<'_>, options: &[&str]) -> Result<(), Refusal> {
        match hand {
            Hand::Verbs => {
                let words = words(change);
                let options = options.iter().map(|option| format!("--{option}"));
                let words: Vec<String> = words.into_iter().chain(options).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let outcome = self.verb(&words);
                match outcome.code {
                    Some(0) => Ok(()),
                    _ => Err(Refusal {
                        status: None,
                        text: outcome.stderr,
                    }),
                }
            }
            Hand::Http => {
                let (method, path, body) = request(change);
                let path = match options {
                    [] => path,
                    _ => format!("{path}?{}", options.join("&")),
                };
                let reply = self.ask(method, &path, body.as_ref());
                if reply.status == 202 {
                    self.wait_for_operation(&reply);
                }
                match reply.status {
                    200..300 => Ok(()),
                    status => Err(Refusal {
                        status: Some(status),
                        text: reply.body,
                    }),
                }
            }
        }
    }

    #[track_caller]
    pub fn make(&self, hand: Hand, change: &Change<'_>) {
        if let Err(refusal) = self.change(hand, change, &[]) {
            panic!("{change:?}: {refusal:?}");
        }
    }

    /// Waits until what was removed is closed.
    pub fn wait_for_operation(&self, reply: &Reply) {
        let place = reply.header("location").unwrap().to_owned();
        wait_for("the end of the drain", || {
            // Operations whose time is up are stuck for as long as it takes to end them.
            let state = &self.get(&place)["state"];
            state != "running" && state != "stuck"
        });
    }
}

/// Whether it is the name of a subsystem.
fn is_nvme(name: &str) -> bool {
    name.starts_with("nqn.")
}

/// LUNs begin at 0, and NSIDs at 1.
fn number(name: &str, place: u32) -> u32 {
    place + u32::from(is_nvme(name))
}

fn words(change: &Change<'_>) -> Vec<String> {
    let text = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    match change {
        Change::CreateVolume(name, keys) => {
            let mut words: Vec<String> = text(&["volume", "create", name]);
            words.extend(keys.as_object().unwrap().iter().map(|(key, value)| {
                let value = value.as_str().map_or(value.to_string(), str::to_owned);
                format!("{key}={value}")
            }));
            words
        }
        Change::CreateTarget(name) if is_nvme(name) => {
            text(&["target", "create", name, "namespaces=[]"])
        }
        Change::CreateTarget(name) => text(&["target", "create", name, "luns=[]"]),
        Change::Map(name, volume, place) => {
            let number = number(name, *place).to_string();
            text(&["target", "map", name, volume, "--number", &number])
        }
        Change::Unmap(name, volume, _) => text(&["target", "unmap", name, volume]),
        Change::Resize(name, size) => text(&["volume", "resize", name, size]),
        Change::ReadOnly(name) => text(&["volume", "set", name, "read-only=true"]),
        Change::Remove(name) => text(&["volume", "remove", name]),
    }
}

fn request(change: &Change<'_>) -> (&'static str, String, Option<Value>) {
    let volume = |name: &str| format!("/api/v1/volumes/{name}");
    let target = |name: &str| match is_nvme(name) {
        true => format!("/api/v1/subsystems/{name}"),
        false => format!("/api/v1/targets/{name}"),
    };
    let entry = |name: &str, place: u32| {
        let map = match is_nvme(name) {
            true => "namespaces",
            false => "luns",
        };
        format!("{}/{map}/{}", target(name), number(name, place))
    };
    match change {
        Change::CreateVolume(name, keys) => ("PUT", volume(name), Some(keys.clone())),
        Change::CreateTarget(name) => {
            let map = match is_nvme(name) {
                true => "namespaces",
                false => "luns",
            };
            ("PUT", target(name), Some(json!({ map: [] })))
        }
        Change::Map(name, volume, place) => (
            "PUT",
            entry(name, *place),
            Some(json!({ "volume": volume })),
        ),
        Change::Unmap(name, _, place) => ("DELETE", entry(name, *place), None),
        Change::Resize(name, size) => {
            let place = format!("{}:resize", volume(name));
            ("POST", place, Some(json!({ "size": size })))
        }
        Change::ReadOnly(name) => ("PATCH", volume(name), Some(json!({ "read-only": true }))),
        Change::Remove(name) => ("DELETE", volume(name), None),
    }
}
