//! Clients of a server's control API: the verbs of the command, and HTTP without a library.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::LIMIT;
use crate::server::program;

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(found, _)| found == name)
            .map(|(_, value)| &**value)
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in status {}: {}", self.status, self.body))
    }

    /// Itself, if it says that all went well.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }
}

#[derive(Debug, Clone)]
pub enum ApiAddress {
    Socket(PathBuf),
    /// With the text of a token, or without one.
    Tcp(SocketAddr, Option<String>),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl ApiAddress {
    /// Asks, and reads the whole answer. One connection each.
    ///
    /// # Errors
    /// The socket's, or it is no answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Reply> {
        let mut stream = self.connect()?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let (host, token) = match self {
            Self::Socket(_) => ("localhost".to_owned(), None),
            Self::Tcp(address, token) => (address.to_string(), token.as_ref()),
        };
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: application/json\r\n"
        );
        if let Some(token) = token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if !body.is_empty() {
            head += &format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            );
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        read_reply(BufReader::new(stream))
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(LIMIT))?;
                Box::new(stream)
            }
            Self::Tcp(address, _) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(LIMIT))?;
                Box::new(stream)
            }
        })
    }
}

fn read_reply(mut stream: impl BufRead) -> io::Result<Reply> {
    let malformed = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| malformed(&format!("`{line}` is no line of status")))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut reply = Reply {
        status,
        headers,
        body: String::new(),
    };
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16);
            let length = length.map_err(|_| malformed("a chunk without a length"))?;
            let mut chunk = vec![0; length + 2];
            stream.read_exact(&mut chunk)?;
            if length == 0 {
                return Ok(reply);
            }
            reply.body += &String::from_utf8_lossy(&chunk[..length]);
        }
    }
    stream.read_to_string(&mut reply.body)?;
    Ok(reply)
}

/// `longshore` with these arguments, for the server behind `socket`.
pub fn verb(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env("LONGSHORE_SERVER", socket);
    command.env_remove("LONGSHORE_TOKEN");
    command.stdin(Stdio::null());
    command
}

/// What a verb came to.
#[derive(Debug, Clone)]
pub struct VerbResult {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl VerbResult {
    /// Runs it to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(mut command: Command) -> Self {
        let output = command.output().expect("start longshore");
        Self::from(output)
    }

    /// What it printed, if its status is this.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// The JSON that it printed.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl From<Output> for VerbResult {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
