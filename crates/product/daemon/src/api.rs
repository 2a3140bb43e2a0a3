//! The control API of this server: where it is reached, and what it is made of.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_api::change::{Caller, Revision};
use longshore_api::place;
use longshore_api::plane::ControlPlane;
use longshore_api::problem::Problem;
use longshore_api::record::{Intent, Record};
use longshore_control::audit::{self, Audit};
use longshore_control::events::Events;
use longshore_control::listen::{self, ListenError, Socket};
use longshore_control::tls::{Tls, TlsError};
use longshore_control::tokens::Tokens;
use longshore_control::{ControlServer, Listeners, Parts};
use longshore_server::Control;
use serde_json::Value;

use crate::config::api::{ApiAddress, ApiConfig, ApiSocket};
use crate::logging;

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot read or write {}: {source}; correct the file or its permissions", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error(
        "--api needs a state directory for its tokens; name one with --state-dir, or leave --api out and use the socket"
    )]
    NoStateDirectory,
    #[error("cannot start a thread for the API: {0}")]
    Thread(#[source] io::Error),
}

/// The API, bound and not answering yet.
pub struct Api {
    listeners: Listeners,
    /// Over TCP, with its real port.
    pub address: Option<SocketAddr>,
    names: Vec<String>,
}

impl Api {
    /// Binds address and socket.
    ///
    /// # Errors
    /// One that was asked for cannot be had. A default socket may fail.
    pub fn bind(config: &ApiConfig) -> Result<Self, ApiError> {
        let tcp = config
            .address
            .map(|ApiAddress(address)| listen::bind_tcp(address));
        let tcp = tcp.transpose()?;
        let table = &config.table;
        let tls = match (&table.tls_certificate, &table.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
            _ => None,
        };
        let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        Ok(Self {
            listeners: Listeners {
                tcp,
                tls,
                unix: socket(&config.socket)?,
            },
            address,
            names: table.names.clone(),
        })
    }

    /// Begins to answer. `None`: it is reached nowhere.
    ///
    /// # Errors
    /// Tokens or the audit log cannot be kept, or there can be no thread.
    pub fn start(
        self,
        plane: Arc<dyn ControlPlane>,
        server: Control,
        events: Events,
        audit: Audit,
        state_directory: Option<&Path>,
    ) -> Result<Option<ControlServer>, ApiError> {
        if self.listeners.tcp.is_none() && self.listeners.unix.is_none() {
            return Ok(None);
        }
        let tokens = self.tokens(state_directory)?;
        let parts = Parts {
            plane,
            statistics: Box::new(move |tcp| {
                if tcp {
                    server.statistics_with_tcp()
                } else {
                    server.statistics()
                }
            }),
            log_lines_dropped: logging::dropped,
            events,
            audit,
            tokens,
            names: self.names,
        };
        let server = ControlServer::start(self.listeners, parts);
        server.map(Some).map_err(ApiError::Thread)
    }

    fn tokens(&self, state_directory: Option<&Path>) -> Result<Tokens, ApiError> {
        let failed = |source| ApiError::State {
            path: state_directory.unwrap_or(Path::new("")).join("tokens.json"),
            source,
        };
        let tokens = Tokens::open(state_directory).map_err(failed)?;
        if self.listeners.tcp.is_some() {
            if state_directory.is_none() {
                return Err(ApiError::NoStateDirectory);
            }
            if let Some(path) = tokens.make_first().map_err(failed)? {
                tracing::info!("API: the first token (role admin) is in {}", path.display());
            }
        }
        Ok(tokens)
    }
}

/// Keeps the record of changes: the audit log, and events.
pub struct Recorder {
    audit: Audit,
    events: Events,
}

impl Recorder {
    #[must_use]
    pub const fn new(audit: Audit, events: Events) -> Self {
        Self { audit, events }
    }
}

impl Record for Recorder {
    fn intend(
        &self,
        caller: &Caller,
        before: Revision,
        steps: &[String],
    ) -> io::Result<Box<dyn Intent>> {
        let intent = self.audit.intent(caller, Some(before), steps)?;
        Ok(Box::new(Intended(intent)))
    }

    fn tell(&self, topic: &str, message: &str, data: Value) {
        self.events.publish(topic, message, data);
    }
}

struct Intended(audit::Intent);

impl Intent for Intended {
    fn end(self: Box<Self>, outcome: Result<Revision, &Problem>) {
        match outcome {
            Ok(revision) => self.0.outcome(Ok(Some(revision))),
            Err(problem) => self.0.outcome(Err(&problem.title)),
        }
    }
}

/// Opens the audit log.
///
/// # Errors
/// It cannot be opened.
pub fn audit(state_directory: Option<&Path>) -> Result<Audit, ApiError> {
    Audit::open(state_directory).map_err(|source| ApiError::State {
        path: state_directory.unwrap_or(Path::new("")).join("audit.log"),
        source,
    })
}

/// Binds the Unix socket.
fn socket(wanted: &ApiSocket) -> Result<Option<Socket>, ListenError> {
    let path = match wanted {
        ApiSocket::Nowhere => return Ok(None),
        ApiSocket::At(path) => return listen::bind_unix(path).map(Some),
        ApiSocket::Default => {
            let is_root = rustix::process::geteuid().is_root();
            place::of_server(is_root, |name| std::env::var_os(name))
        }
    };
    let Some(path) = path else {
        tracing::info!("no socket for the API: neither --socket nor XDG_RUNTIME_DIR is set");
        return Ok(None);
    };
    if let Some(directory) = path.parent()
        && !directory.exists()
    {
        // What this cannot do shows when the socket is made.
        let _ = fs::DirBuilder::new().mode(0o755).create(directory);
    }
    match listen::bind_unix(&path) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            tracing::warn!("no socket for the API: {error}");
            Ok(None)
        }
    }
}
