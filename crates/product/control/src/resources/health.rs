//! The server itself: `/healthz`, `/readyz`, `/metrics`, status, statistics, the OpenAPI document.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use longshore_api::access::Role;
use longshore_api::envelope::Versioned;
use longshore_api::state::{Health, Status};
use serde::Serialize;

use crate::answer::{Answer, at_revision, bytes, document, json, unavailable};
use crate::app::{App, STREAMS_MAX};
use crate::collection::Collected;
use crate::history::RatesEvent;
use crate::input::{bad_request, query};
use crate::metrics::{Form, Sources, render};
use crate::route::{Content, Route, of};

pub(crate) fn routes() -> Vec<Route> {
    let plain = |path, id, summary, content, handler: MethodRouter<Arc<App>>| {
        Route::new("GET", path, id, summary, None, content, handler)
    };
    let health = Content::Json(of::<Versioned<Health>>);
    vec![
        plain(
            "/healthz",
            "healthz",
            "200 while every event loop answers, else 503",
            health,
            get(healthz),
        ),
        plain(
            "/readyz",
            "readyz",
            "200 while the server accepts connections and serves all enabled objects, else 503 with reasons",
            health,
            get(readyz),
        ),
        plain(
            "/openapi.json",
            "openapi",
            "This document",
            Content::Media(&[("application/json", None)]),
            get(openapi_document),
        ),
        Route {
            needs: Some(Role::Metrics),
            ..plain(
                "/metrics",
                "metrics",
                "Metrics in OpenMetrics 1.0 or the text form 0.0.4, by Accept",
                Content::Media(&[("application/openmetrics-text", None), ("text/plain", None)]),
                get(metrics),
            )
        },
        Route {
            needs: App::READ,
            ..plain(
                "/api/v1/",
                "getStatus",
                "Summary of the server",
                Content::Json(of::<Versioned<Status>>),
                get(status),
            )
        },
        Route {
            needs: App::READ,
            query: &[(
                "tcp",
                "true: with what the kernel knows of each connection (TCP_INFO), and of this very moment",
            )],
            ..plain(
                "/api/v1/statistics",
                "getStatistics",
                "What the server has done since it started, and the clocks at that moment",
                Content::Media(&[("application/json", None)]),
                get(statistics),
            )
        },
    ]
}

async fn collected(app: &Arc<App>) -> Result<Arc<Collected>, crate::answer::Failure> {
    let collected = app.collection.get().await;
    collected.ok_or_else(|| unavailable("the server is ending, or does not answer"))
}

async fn healthz(State(app): State<Arc<App>>) -> Answer {
    let health = collected(&app).await?.status.health.clone();
    Ok(verdict(health.alive, health))
}

async fn readyz(State(app): State<Arc<App>>) -> Answer {
    let health = collected(&app).await?.status.health.clone();
    Ok(verdict(health.ready && health.alive, health))
}

fn verdict(good: bool, health: Health) -> Response {
    let mut response = document(health);
    if !good {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn status(State(app): State<Arc<App>>) -> Answer {
    let health = collected(&app).await?.status.health.clone();
    let status = app.read(|app| app.plane.status()).await?;
    let status = Status { health, ..status };
    Ok(at_revision(status.revision, status))
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let collected = collected(&app).await?;
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let form = Form::accepted(accept.unwrap_or_default());
    let sources = Sources {
        collected: &collected,
        requests: app.requests.all(),
        last_change: app.audit.last_change(),
        log_lines_dropped: (app.log_lines_dropped)(),
        events_dropped: app.events.all_missed(),
        streams: STREAMS_MAX - app.streams.available_permits(),
    };
    Ok(bytes(form.content_type(), render(&sources, form)))
}

/// A sample of everything that is counted, with the server's clocks.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Sample<'a> {
    time_ms: u64,
    monotonic_ns: u64,
    pid: u32,
    #[serde(flatten)]
    statistics: &'a longshore_server::Statistics,
}

pub(crate) fn sample(collected: &Collected) -> Sample<'_> {
    Sample {
        time_ms: collected.time_ms,
        monotonic_ns: collected.monotonic_ns,
        pid: collected.status.pid,
        statistics: &collected.statistics,
    }
}

/// The same as clients read it.
pub(crate) fn as_read(collected: &Collected) -> longshore_api::sample::Sample {
    let value = serde_json::to_value(sample(collected)).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

/// Notes a sample in the history, and tells what happened since the one before.
pub(crate) async fn note(
    app: &Arc<App>,
    collected: &Arc<Collected>,
) -> Result<Option<Arc<RatesEvent>>, crate::answer::Failure> {
    let collected = Arc::clone(collected);
    app.read(move |app| app.history.note(as_read(&collected)))
        .await
}

/// The report has a version of its own.
async fn statistics(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Answer {
    let mut tcp = false;
    for (name, value) in query(raw.as_deref().unwrap_or_default()) {
        match (name.as_str(), value.as_str()) {
            ("tcp", "" | "true") => tcp = true,
            ("tcp", "false") => tcp = false,
            _ => return Err(bad_request("use ?tcp=true")),
        }
    }
    if !tcp {
        return Ok(json(&sample(&*collected(&app).await?)));
    }
    let detailed = app.collection.get_detailed().await;
    let detailed = detailed.ok_or_else(|| unavailable("the server is ending"))?;
    Ok(json(&sample(&detailed)))
}

async fn openapi_document(State(app): State<Arc<App>>) -> Response {
    json(&app.openapi)
}
