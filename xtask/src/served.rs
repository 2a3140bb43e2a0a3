//! A server with its API on TCP, and plain requests to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

use crate::workspace;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A server that runs, with a state directory of its own.
pub struct Served {
    pub server: Server,
    pub program: PathBuf,
    /// Where its API listens.
    pub address: SocketAddr,
    scratch: Scratch,
}

/// An answer of HTTP.
pub struct Answer {
    pub content_type: String,
    pub body: String,
}

impl Served {
    /// Starts a server with two volumes in memory, on both protocols.
    pub fn start() -> Result<Self> {
        Self::with(&["disk0,backend=mem,size=64M", "disk1,backend=mem,size=64M"])
    }

    /// The same with these volumes.
    pub fn with(volumes: &[&str]) -> Result<Self> {
        let scratch = Scratch::new("served");
        let program = workspace::server_program()?;
        let mut builder = ServerBuilder::with_program(program.clone());
        for volume in volumes {
            builder = builder.volume(volume);
        }
        let server = builder
            .iscsi()
            .nvme()
            .argument("--api")
            .argument("127.0.0.1:0")
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string())
            .start()?;
        let output = server.output();
        let mut words = output.split_whitespace();
        let address = words
            .find_map(|word| word.strip_prefix("api="))
            .context("the server does not say where its API is")?
            .parse()?;
        Ok(Self {
            server,
            program,
            address,
            scratch,
        })
    }

    /// The file with a token that may do everything.
    pub fn token_file(&self) -> PathBuf {
        self.scratch.join("state").join("admin-token")
    }

    /// Where a file of a test may lie.
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    pub fn token(&self) -> Result<String> {
        let text = std::fs::read_to_string(self.token_file()).context("read the first token")?;
        Ok(text.trim().to_owned())
    }

    /// The answer to a GET, which must be 200.
    pub fn get(&self, path: &str, accept: &str) -> Result<Answer> {
        self.ask("GET", path, accept, "")
    }

    /// Sends a document, which must be taken.
    pub fn put(&self, path: &str, body: &Value) -> Result<()> {
        let json = "application/json";
        self.ask("PUT", path, json, &body.to_string()).map(drop)
    }

    pub fn patch(&self, path: &str, body: &Value) -> Result<()> {
        let json = "application/json";
        self.ask("PATCH", path, json, &body.to_string()).map(drop)
    }

    fn ask(&self, method: &str, path: &str, accept: &str, body: &str) -> Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        // Of version 1.0, so that the body comes in one piece and ends with the connection.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAccept: {accept}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.token()?,
            body.len()
        )?;
        let mut text = String::new();
        stream
            .read_to_string(&mut text)
            .with_context(|| format!("read {path}"))?;
        let (head, body) = text.split_once("\r\n\r\n").context("an answer of HTTP")?;
        if head.split(' ').nth(1) != Some("200") {
            bail!("{method} {path}: {head}\n{body}");
        }
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        let content_type = fields
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            .map_or("", |(_, value)| value);
        Ok(Answer {
            content_type: content_type.to_owned(),
            body: body.to_owned(),
        })
    }
}
