//! A server with an engine that remembers what it was asked, and plain requests to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Revision, RevisionInfo, Wish};
use longshore_api::object::{Document, Keys, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::{Health, Session, Status};
use longshore_control::audit::Audit;
use longshore_control::events::Events;
use longshore_control::tokens::Tokens;
use longshore_control::{ControlServer, Listeners, Parts, listen};
use longshore_server::Statistics;
use longshore_server::observe::{ClientStatistics, Counters, Derived, MemoryStatistics, Sampling};
use serde_json::{Value, json};

/// An engine that carries nothing out.
#[derive(Default)]
pub struct Plane {
    pub asked: Mutex<Vec<(Wish, ChangeOptions, Caller)>>,
    pub health: Mutex<Health>,
    /// Changes answer that these drain.
    pub draining: Mutex<Vec<String>>,
    /// The storage of those does not answer.
    pub is_stuck: AtomicBool,
    /// Their last flush failed.
    pub failures: Mutex<BTreeMap<String, String>>,
    /// Held: changes do not end, as if storage hung.
    pub storage: Mutex<()>,
    /// Changes that have begun.
    pub begun: AtomicUsize,
}

const REVISION: Revision = Revision(7);

impl ControlPlane for Plane {
    fn status(&self) -> Status {
        Status {
            version: "0.0.0".to_owned(),
            pid: 1,
            started_ms: 1,
            revision: REVISION,
            engine: "epoll".to_owned(),
            sandbox: "off".to_owned(),
            config_file: None,
            listeners: Vec::new(),
            volumes: 1,
            targets: 1,
            subsystems: 0,
            sessions: 0,
            needs_restart: Vec::new(),
            health: self.health.lock().unwrap().clone(),
        }
    }

    fn revision(&self) -> Revision {
        REVISION
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        let (name, keys) = match kind {
            ObjectKind::Volume => ("a", json!({"backend": "mem"})),
            ObjectKind::Target => (
                "iqn.2026-11.x:y",
                json!({"luns": [{"lun": 0, "volume": "a"}]}),
            ),
            ObjectKind::Subsystem | ObjectKind::Setting => return Vec::new(),
        };
        let draining = self.draining.lock().unwrap().contains(&name.to_owned());
        vec![Object {
            id: ObjectId {
                kind,
                name: name.to_owned(),
            },
            owner: Owner::Api,
            state: match (draining, self.is_stuck.load(Ordering::Relaxed)) {
                (true, true) => ObjectState::Stuck,
                (true, false) => ObjectState::Draining,
                (false, _) => ObjectState::Up,
            },
            location: None,
            keys: keys.as_object().cloned().unwrap(),
            facts: Keys::new(),
        }]
    }

    fn document(&self, _: Option<Owner>) -> (Revision, Document) {
        (REVISION, Document::default())
    }

    fn plan(&self, wish: &Wish, options: ChangeOptions) -> Result<Plan, Box<Problem>> {
        let caller = Caller {
            name: "plan".to_owned(),
            from: String::new(),
        };
        let mut asked = self.asked.lock().unwrap();
        asked.push((wish.clone(), options, caller));
        Ok(Plan::default())
    }

    fn apply(
        &self,
        wish: Wish,
        options: ChangeOptions,
        caller: &Caller,
    ) -> Result<Applied, Box<Problem>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        drop(self.storage.lock().unwrap());
        if options.revision.is_some_and(|it| it != REVISION) {
            let code = ProblemCode::RevisionChanged;
            return Err(Box::new(Problem::new(code, "another revision")));
        }
        let mut asked = self.asked.lock().unwrap();
        asked.push((wish, options, caller.clone()));
        Ok(Applied {
            revision: Revision(8),
            plan: Plan::default(),
            draining: self.draining.lock().unwrap().clone(),
        })
    }

    fn failed_flushes(&self, _: Revision) -> BTreeMap<String, String> {
        self.failures.lock().unwrap().clone()
    }

    fn revisions(&self) -> Vec<RevisionInfo> {
        Vec::new()
    }

    fn at_revision(&self, _: Revision) -> Option<Document> {
        None
    }

    fn sessions(&self) -> Vec<Session> {
        Vec::new()
    }

    fn close_session(&self, id: &str, _: &Caller) -> Result<(), Box<Problem>> {
        match id {
            "1" => Ok(()),
            _ => Err(Box::new(Problem::new(
                ProblemCode::NotFound,
                "no such session",
            ))),
        }
    }
}

fn statistics(_tcp: bool) -> Statistics {
    Statistics {
        version: 3,
        uptime_ms: 1,
        total: Counters::default(),
        derived: Derived::default(),
        shards: Vec::new(),
        connections: Vec::new(),
        volumes: Vec::new(),
        clients: ClientStatistics::default(),
        stages: Vec::new(),
        sampling: Sampling::default(),
        memory: MemoryStatistics::default(),
    }
}

/// A server, its directory and its first token.
pub struct Server {
    pub plane: Arc<Plane>,
    pub events: Events,
    pub address: SocketAddr,
    pub socket: PathBuf,
    pub token: String,
    pub directory: tempfile::TempDir,
    _control: ControlServer,
}

impl Server {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let tcp = listen::bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = tcp.local_addr().unwrap();
        let listeners = Listeners {
            tcp: Some(tcp),
            tls: None,
            unix: Some(listen::bind_unix(&socket).unwrap()),
        };
        let tokens = Tokens::open(Some(directory.path())).unwrap();
        let file = tokens.make_first().unwrap().unwrap();
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        let plane = Arc::new(Plane::default());
        *plane.health.lock().unwrap() = Health {
            alive: true,
            ready: true,
            reasons: Vec::new(),
        };
        let events = Events::default();
        let parts = Parts {
            plane: Arc::clone(&plane) as Arc<dyn ControlPlane>,
            statistics: Box::new(statistics),
            log_lines_dropped: || 0,
            events: events.clone(),
            audit: Audit::open(Some(directory.path())).unwrap(),
            tokens,
            names: vec!["storage.example".to_owned()],
        };
        Self {
            plane,
            events,
            address,
            socket,
            token,
            directory,
            _control: ControlServer::start(listeners, parts).unwrap(),
        }
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_with(method, path, body, &[])
    }

    pub fn ask_with(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        exchange(stream, method, path, "localhost", headers, &body)
    }

    /// Over TCP, with these headers.
    pub fn ask_tcp(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let host = self.address.to_string();
        self.ask_as(&host, method, path, headers)
    }

    pub fn ask_as(&self, host: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let stream = TcpStream::connect(self.address).unwrap();
        exchange(stream, method, path, host, headers, "")
    }

    /// A form, as a browser posts it.
    pub fn post_form(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let stream = TcpStream::connect(self.address).unwrap();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [&[kind], headers].concat();
        exchange(
            stream,
            "POST",
            path,
            &self.address.to_string(),
            &headers,
            body,
        )
    }

    /// Over the socket, as a forwarded port of a browser does.
    pub fn ask_socket_as(
        &self,
        host: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        exchange(stream, method, path, host, headers, "")
    }

    /// The lines of a stream of events over TCP.
    pub fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream
            .write_all(format!("{request}\r\n").as_bytes())
            .unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    }

    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    host: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    request += "\r\n";
    request += body;
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("no status: {head}")),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
