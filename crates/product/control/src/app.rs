//! What all requests share.

use std::sync::Arc;

use longshore_api::access::Role;
use longshore_api::change::Caller;
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::answer::{Failure, unavailable};
use crate::audit::Audit;
use crate::collection::{Collection, Measure};
use crate::events::Events;
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
    pub events: Events,
    pub audit: Audit,
    pub tokens: Tokens,
    /// Names of this server that a `Host` may have, beside its addresses.
    pub names: Vec<String>,
}

pub(crate) struct App {
    pub plane: Arc<dyn ControlPlane>,
    pub collection: Collection,
    pub events: Events,
    pub audit: Audit,
    pub tokens: Tokens,
    pub names: Vec<String>,
    pub streams: Arc<Semaphore>,
    pub operations: Operations,
    pub requests: RequestCounts,
    /// The OpenAPI document.
    pub openapi: Box<RawValue>,
}

impl App {
    pub(crate) fn new(parts: Parts, openapi: Box<RawValue>) -> Arc<Self> {
        let plane = parts.plane;
        Arc::new(Self {
            collection: Collection::new(Arc::clone(&plane), parts.statistics.into()),
            plane,
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

    /// Does what may block on one of the few threads for that.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let app = Arc::clone(self);
        tokio::task::spawn_blocking(move || act(&app))
            .await
            .map_err(|_| unavailable("the server did not answer"))
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
            let problem = Problem::new(ProblemCode::System, title);
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

    /// The role that reading needs.
    pub(crate) const READ: Option<Role> = Some(Role::Read);
}
