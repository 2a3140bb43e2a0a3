//! Requests to the control API of a server: each blocks until it is answered.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH, IF_NONE_MATCH, LOCATION,
};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use longshore_api::change::Revision;
use longshore_api::problem::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, Runtime};

use super::address::ServerAddress;
pub use super::error::ClientError;
use super::tls;

/// So long a server may take to be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// And to answer: a change may have to open volumes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest answer in bytes; a longer one is an error.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Where to ask, and how to prove who asks.
#[derive(Clone, Debug, Default)]
pub struct Access {
    pub server: Option<ServerAddress>,
    pub token_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    pub method: &'a str,
    /// Path of the request with its query.
    pub path: String,
    pub body: Option<Value>,
    pub if_match: Option<Revision>,
    /// Only if it is not there, or is the same.
    pub create: bool,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub revision: Option<Revision>,
    /// Where a change goes on.
    pub location: Option<String>,
    pub body: Bytes,
}

impl Answer {
    /// The document, as a type of the API.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(|error| ClientError::Answer {
            address: "the server".to_owned(),
            reason: error.to_string(),
        })
    }
}

/// The server that requests go to.
pub struct Client {
    runtime: Runtime,
    addresses: Vec<ServerAddress>,
    token: Option<String>,
    access: Access,
}

/// What requests travel on.
trait Link: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Link for T {}
type BoxedLink = Pin<Box<dyn Link>>;

impl Client {
    pub fn new(access: &Access) -> Result<Self, ClientError> {
        let addresses = ServerAddress::candidates(access.server.as_ref())?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|source| ClientError::Unreachable {
                addresses: list(&addresses),
                source,
            })?;
        Ok(Self {
            runtime,
            addresses,
            token: token(access.token_file.as_ref())?,
            access: access.clone(),
        })
    }

    /// Whether the server is on this machine, as far as its address tells.
    pub fn is_local(&self) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.all(|address| matches!(address, ServerAddress::Socket(_)))
    }

    /// Address of the server, for messages.
    pub fn address(&self) -> String {
        list(&self.addresses)
    }

    pub fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.ask(Ask {
            method: "GET",
            path: path.to_owned(),
            ..Ask::default()
        })
    }

    /// Asks, and waits for the whole answer.
    pub fn ask(&self, ask: Ask<'_>) -> Result<Answer, ClientError> {
        self.runtime.block_on(self.answer(&ask))
    }

    /// The answer, if it comes within so short a time.
    pub fn get_within(self, path: &str, limit: Duration) -> Option<Answer> {
        let ask = Ask {
            method: "GET",
            path: path.to_owned(),
            ..Ask::default()
        };
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, self.answer(&ask)).await });
        // Looking a host up may go on.
        self.runtime.shutdown_background();
        answer.ok()?.ok()
    }

    async fn answer(&self, ask: &Ask<'_>) -> Result<Answer, ClientError> {
        let (address, response) = in_time(self.send(ask, "application/json")).await?;
        let revision = header(&response, ETAG.as_str());
        let revision = revision.and_then(|tag| tag.trim_matches('"').parse().ok());
        let location = header(&response, LOCATION.as_str());
        let body = read_whole(&address, response).await?;
        Ok(Answer {
            revision: revision.map(Revision),
            location,
            body,
        })
    }

    /// Asks for a stream, and gives its lines until `take` says that it has enough, or the stream ends.
    pub fn lines(
        &self,
        path: &str,
        last_event_id: Option<&str>,
        take: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let mut path = path.to_owned();
            if let Some(id) = last_event_id {
                path += if path.contains('?') { "&" } else { "?" };
                path += &format!("after={id}");
            }
            let ask = Ask {
                method: "GET",
                path,
                ..Ask::default()
            };
            let (address, response) = in_time(self.send(&ask, "text/event-stream")).await?;
            let broken = |reason: String| ClientError::Answer {
                address: address.to_string(),
                reason,
            };
            let mut body = response.into_body();
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| broken(error.to_string()))?;
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if rest.len() > ANSWER_BYTES_MAX {
                    return Err(broken("a line is too long".to_owned()));
                }
                let end = rest.iter().rposition(|byte| *byte == b'\n');
                let Some(end) = end else {
                    continue;
                };
                let whole: Vec<u8> = rest.drain(..=end).collect();
                for line in String::from_utf8_lossy(&whole).lines() {
                    if !take(line) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    async fn send(
        &self,
        ask: &Ask<'_>,
        accept: &str,
    ) -> Result<(ServerAddress, Response<Incoming>), ClientError> {
        let (address, link) = self.connect().await?;
        let answered = |error: hyper::Error| ClientError::Answer {
            address: address.to_string(),
            reason: error.to_string(),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(link))
            .await
            .map_err(answered)?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(ask.method)
            .uri(&ask.path)
            .header(HOST, address.authority())
            .header(ACCEPT, accept);
        if let (Some(token), ServerAddress::Http { .. }) = (&self.token, &address) {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(Revision(revision)) = ask.if_match {
            request = request.header(IF_MATCH, format!("\"{revision}\""));
        }
        if ask.create {
            request = request.header(IF_NONE_MATCH, "*");
        }
        let body = match &ask.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| ClientError::Answer {
                address: address.to_string(),
                reason: error.to_string(),
            })?;
        let response = sender.send_request(request).await.map_err(answered)?;
        if response.status().is_success() {
            return Ok((address, response));
        }
        let status = response.status();
        let body = read_whole(&address, response).await?;
        Err(refusal(&address, status.as_u16(), &body))
    }

    /// The first address that answers.
    async fn connect(&self) -> Result<(ServerAddress, BoxedLink), ClientError> {
        let mut failed = None;
        for address in &self.addresses {
            let error = match self.connect_to(address).await {
                Ok(link) => return Ok((address.clone(), link)),
                Err(error) => error,
            };
            if matches!(&error, ClientError::Unreachable { source, .. } if source.kind() == io::ErrorKind::NotFound)
                && failed.is_some()
            {
                continue;
            }
            failed = Some(error);
        }
        Err(match failed {
            Some(ClientError::Unreachable { source, .. }) => ClientError::Unreachable {
                addresses: list(&self.addresses),
                source,
            },
            Some(other) => other,
            None => ClientError::Unreachable {
                addresses: list(&self.addresses),
                source: io::ErrorKind::NotFound.into(),
            },
        })
    }

    async fn connect_to(&self, address: &ServerAddress) -> Result<BoxedLink, ClientError> {
        let unreachable = |source: io::Error| match (source.kind(), address) {
            (io::ErrorKind::PermissionDenied, ServerAddress::Socket(path)) => {
                ClientError::Socket(path.display().to_string())
            }
            _ => ClientError::Unreachable {
                addresses: address.to_string(),
                source,
            },
        };
        match address {
            ServerAddress::Socket(path) => {
                let link = tokio::net::UnixStream::connect(path).await;
                Ok(Box::pin(link.map_err(unreachable)?))
            }
            ServerAddress::Http {
                host,
                port,
                is_encrypted,
            } => {
                let connect = tokio::net::TcpStream::connect((host.as_str(), *port));
                let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
                let link = connected
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                    .map_err(unreachable)?;
                if !is_encrypted {
                    return Ok(Box::pin(link));
                }
                let link = tls::wrap(link, host, self.access.ca_file.as_deref()).await?;
                Ok(Box::pin(link))
            }
        }
    }
}

async fn in_time<T>(asks: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, asks).await;
    answer.unwrap_or_else(|_| {
        Err(ClientError::Answer {
            address: "the server".to_owned(),
            reason: "no answer in time".to_owned(),
        })
    })
}

async fn read_whole(
    address: &ServerAddress,
    response: Response<Incoming>,
) -> Result<Bytes, ClientError> {
    let broken = |reason: String| ClientError::Answer {
        address: address.to_string(),
        reason,
    };
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let collected = tokio::time::timeout(ANSWER_TIMEOUT, body.collect()).await;
    let collected =
        collected.map_err(|_| broken("the answer was not complete in time".to_owned()))?;
    let collected = collected.map_err(|error| broken(error.to_string()))?;
    Ok(collected.to_bytes())
}

fn refusal(address: &ServerAddress, status: u16, body: &[u8]) -> ClientError {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return ClientError::Answer {
            address: address.to_string(),
            reason: format!("status {status}"),
        };
    };
    if status == 401 {
        return ClientError::Token {
            address: address.to_string(),
            problem: Box::new(problem),
        };
    }
    ClientError::Refused(Box::new(problem))
}

fn header(response: &Response<Incoming>, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    value.to_str().ok().map(str::to_owned)
}

fn list(addresses: &[ServerAddress]) -> String {
    let names: Vec<String> = addresses.iter().map(ServerAddress::to_string).collect();
    names.join(" or ")
}

/// From the file, else from `LONGSHORE_TOKEN`.
fn token(file: Option<&PathBuf>) -> Result<Option<String>, ClientError> {
    let Some(path) = file else {
        let token = std::env::var("LONGSHORE_TOKEN").ok();
        return Ok(token.filter(|token| !token.is_empty()));
    };
    let text = std::fs::read_to_string(path).map_err(|source| ClientError::TokenFile {
        path: path.clone(),
        source,
    })?;
    Ok(Some(text.trim().to_owned()))
}
