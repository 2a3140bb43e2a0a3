//! What all requests share.

use std::net::SocketAddr;
use std::sync::Arc;

use longshore_api::access::Role;
use longshore_api::change::Caller;
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::answer::Failure;
use crate::audit::Audit;
use crate::call_pool::CallPools;
use crate::collection::{Collection, Measure};
use crate::events::Events;
use crate::history::History;
use crate::logins::Logins;
use crate::operations::Operations;
use crate::requests::RequestCounts;
use crate::tokens::Tokens;

/// Streams of events at a time.
pub(crate) const STREAMS_MAX: usize = 64;

/// What the API is made of.
pub struct Parts {
    pub plane: Arc<dyn ControlPlane>,
    /// Blocks for a second at most.
    pub statistics: Box<Measure>,
    /// Lines of the log that were lost.
    pub log_lines_dropped: fn() -> u64,
    pub events: Events,
    pub audit: Audit,
    pub tokens: Tokens,
    /// Names of this server that a `Host` may have, beside its addresses.
    pub names: Vec<String>,
}

/// Where the API is reached over TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpPlace {
    pub address: SocketAddr,
    pub is_encrypted: bool,
}

pub(crate) struct App {
    /// None: over the socket alone.
    pub tcp: Option<TcpPlace>,
    pub logins: Logins,
    pub history: History,
    pub plane: Arc<dyn ControlPlane>,
    pub collection: Collection,
    pub log_lines_dropped: fn() -> u64,
    pub events: Events,
    pub audit: Audit,
    pub tokens: Tokens,
    pub names: Vec<String>,
    pub streams: Arc<Semaphore>,
    pub pools: CallPools,
    pub operations: Operations,
    pub requests: RequestCounts,
    pub openapi: Box<RawValue>,
}

impl App {
    pub(crate) fn new(parts: Parts, openapi: Box<RawValue>, tcp: Option<TcpPlace>) -> Arc<Self> {
        let plane = parts.plane;
        let pools = CallPools::new();
        let (collecting, statistics) = (pools.collection.clone(), parts.statistics.into());
        Arc::new(Self {
            tcp,
            logins: Logins::default(),
            history: History::default(),
            collection: Collection::new(Arc::clone(&plane), statistics, collecting),
            pools,
            plane,
            log_lines_dropped: parts.log_lines_dropped,
            events: parts.events,
            audit: parts.audit,
            tokens: parts.tokens,
            names: parts.names,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            operations: Operations::default(),
            requests: RequestCounts::default(),
            openapi,
        })
    }

    /// Reads what is known without a disk.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let app = Arc::clone(self);
        self.pools.reads.run(move || act(&app)).await
    }

    /// Does what may wait for the state directory.
    pub(crate) async fn record<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let app = Arc::clone(self);
        self.pools.records.run(move || act(&app)).await
    }

    /// Does what the audit log has to tell beside changes of the configuration.
    pub(crate) fn audited<T>(
        &self,
        caller: &Caller,
        step: &str,
        act: impl FnOnce() -> Result<T, Box<Problem>>,
    ) -> Result<T, Box<Problem>> {
        let steps = [step.to_owned()];
        let intent = self.audit.intent(caller, None, &steps);
        let intent = intent.map_err(|error| {
            let title = format!("cannot write the audit log: {error}");
            let problem = Problem::new(ProblemCode::of_io(&error), title);
            Box::new(
                problem.advise("free space in the state directory, or correct its permissions"),
            )
        })?;
        let done = act();
        match &done {
            Ok(_) => {
                intent.outcome(Ok(None));
                let data = serde_json::json!({ "caller": caller });
                self.events.publish("audit", step, data);
            }
            Err(problem) => intent.outcome(Err(&problem.title)),
        }
        done
    }

    /// Whether browsers reach it by TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tcp.is_some_and(|tcp| tcp.is_encrypted)
    }

    /// The role that reading needs.
    pub(crate) const READ: Option<Role> = Some(Role::Read);
}
