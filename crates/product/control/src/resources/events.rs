//! Events: a stream (server-sent events), or a list of those that are kept.
//!
//! A stream begins with the next event. It resumes after `Last-Event-ID`, or after `?after`, from the ring of the last
//! events; what is not there any more shows as one event with the topic `gap`. The topics `sample` (the statistics) and
//! `rates` (what happened since the sample before) come once a second, for those who name them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{Stream, unfold};
use longshore_api::VERSION;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::{Event, EventList};
use serde_json::json as object;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::answer::{Answer, Failure, json};
use crate::app::{App, STREAMS_MAX};
use crate::caller::{Grant, Known};
use crate::clock;
use crate::collection::Collected;
use crate::events::{Events, Next};
use crate::guard::may_still_read;
use crate::input::{bad_request, query};
use crate::resources::health::{note, sample};
use crate::route::{Content, Route, of};

const HEARTBEAT: Duration = Duration::from_secs(15);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// So soon a stream ends whose reader has lost the right to it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Vec<Route> {
    let stream = Route {
        method: "GET",
        path: "/api/v1/events",
        id: "getEvents",
        summary: "Follow events (server-sent events). With Accept: application/json, the list of kept events",
        needs: App::READ,
        query: &[
            (
                "topics",
                "Only these topics, with commas between; `sample` and `rates` come only if they are named",
            ),
            (
                "after",
                "Begin after the event of this id (as Last-Event-ID); 0: with the oldest that is kept",
            ),
        ],
        body: None,
        content: Content::Media(&[
            ("text/event-stream", None),
            ("application/json", Some(of::<EventList>)),
        ]),
        handler: Some(get(events)),
    };
    vec![stream]
}

async fn events(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let text = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let mut topics = None;
    let mut after = text("last-event-id").map(str::to_owned);
    for (name, value) in query(raw.as_deref().unwrap_or_default()) {
        match name.as_str() {
            "topics" => topics = Some(value.split(',').map(str::to_owned).collect::<Vec<_>>()),
            "after" => after = after.or(Some(value)),
            _ => return Err(bad_request("use ?topics and ?after")),
        }
    }
    let is_list = text(header::ACCEPT.as_str()).is_some_and(|it| it.contains("application/json"));
    if is_list {
        after.get_or_insert_with(|| "0".to_owned());
    }
    let start = Start::new(&app.events, after.as_deref())?;
    let wanted = |event: &Event| {
        let topics = topics.as_ref();
        topics.is_none_or(|topics| topics.contains(&event.topic))
    };
    if is_list {
        let is_kept = |next: &Next| !matches!(next, Next::Gap { .. });
        // Who asks for all that is kept misses nothing.
        let gap = start.gap || (start.seen > 0 && !is_kept(&app.events.after(start.seen)));
        return Ok(json(&EventList {
            version: VERSION,
            epoch: app.events.epoch(),
            gap,
            items: kept(&app.events, start.seen).filter(wanted).collect(),
        }));
    }
    let permit = Arc::clone(&app.streams).try_acquire_owned();
    let permit = permit.map_err(|_| too_many())?;
    let names = |topic: &str| {
        let topics = topics.as_ref();
        topics.is_some_and(|it| it.iter().any(|it| it == topic))
    };
    let (samples, rates) = (names("sample"), names("rates"));
    let follower = Follower {
        watch: app.events.watch(),
        seen: start.seen,
        gap: start.gap,
        next_sample: (samples || rates).then(Instant::now),
        samples,
        rates,
        pending: None,
        topics,
        grant: known.grant,
        _permit: permit,
        app,
    };
    Ok(stream(follower))
}

fn too_many() -> Failure {
    let title = format!("there are {STREAMS_MAX} streams of events already");
    let problem = Problem::new(ProblemCode::Unavailable, title);
    problem.advise("close some of them").into()
}

/// The events in the ring after some number.
fn kept(events: &Events, mut seen: u64) -> impl Iterator<Item = Event> {
    std::iter::from_fn(move || {
        let (Next::Event(event) | Next::Gap { event, .. }) = events.after(seen) else {
            return None;
        };
        seen = event.sequence;
        Some(*event)
    })
}

/// Where a reader begins.
struct Start {
    seen: u64,
    /// It has seen events of another process: some may be missing.
    gap: bool,
}

impl Start {
    /// From `EPOCH-SEQUENCE`, or a sequence alone; without one, with the next event.
    fn new(events: &Events, after: Option<&str>) -> Result<Self, Failure> {
        let Some(after) = after else {
            return Ok(Self {
                seen: events.newest(),
                gap: false,
            });
        };
        let malformed = || bad_request("Last-Event-ID is not the id of an event");
        let (epoch, sequence) = match after.split_once('-') {
            Some((epoch, sequence)) => (Some(epoch), sequence),
            None => (None, after),
        };
        let sequence: u64 = sequence.parse().map_err(|_| malformed())?;
        let epoch = epoch.map(str::parse).transpose().map_err(|_| malformed())?;
        let same = epoch.is_none_or(|epoch: u64| epoch == events.epoch());
        Ok(if same && sequence <= events.newest() {
            Self {
                seen: sequence,
                gap: false,
            }
        } else {
            Self { seen: 0, gap: true }
        })
    }
}

/// A reader of the stream.
struct Follower {
    app: Arc<App>,
    watch: watch::Receiver<u64>,
    seen: u64,
    gap: bool,
    topics: Option<Vec<String>>,
    next_sample: Option<Instant>,
    samples: bool,
    rates: bool,
    /// Of the moment of the last sample.
    pending: Option<sse::Event>,
    /// By what its reader may read. It may be gone before the next event.
    grant: Grant,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next event that is wanted; it may take any time. `None`: the stream ends.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if !may_still_read(&self.app, &self.grant) {
                return None;
            }
            if let Some(pending) = self.pending.take() {
                return Some(pending);
            }
            if std::mem::take(&mut self.gap) {
                return self.gap_event("the server was started anew");
            }
            match self.app.events.after(self.seen) {
                Next::Gap { missing, event } => {
                    self.seen = event.sequence - 1;
                    self.app.events.missed(missing);
                    return self.gap_event(&format!("{missing} events are not kept any more"));
                }
                Next::Event(event) => {
                    self.seen = event.sequence;
                    let topics = self.topics.as_ref();
                    if topics.is_none_or(|topics| topics.contains(&event.topic)) {
                        return self.event(&event);
                    }
                }
                Next::None => {
                    if let Some(sample) = self.wait().await? {
                        return Some(sample);
                    }
                }
            }
        }
    }

    /// Waits for an event, or for the time of a sample or a check. `None`: the server is ending.
    async fn wait(&mut self) -> Option<Option<sse::Event>> {
        let check = Instant::now() + CHECK_INTERVAL;
        let at = self.next_sample.unwrap_or(check);
        tokio::select! {
            changed = self.watch.changed() => changed.ok().map(|()| None),
            () = tokio::time::sleep_until(at) => {
                if self.next_sample.is_none() {
                    return Some(None);
                }
                self.next_sample = Some(Instant::now() + SAMPLE_INTERVAL);
                let collected = self.app.collection.get().await?;
                if self.rates {
                    self.pending = self.rates_event(&collected).await;
                }
                if !self.samples {
                    return Some(self.pending.take());
                }
                // Not in the ring: it has no number to resume from.
                let event = sse::Event::default().event("sample");
                Some(event.json_data(sample(&collected)).ok())
            }
        }
    }

    /// What happened since the sample before. `None`: there was none.
    async fn rates_event(&self, collected: &Arc<Collected>) -> Option<sse::Event> {
        let rates = note(&self.app, collected).await.ok()??;
        let event = sse::Event::default().event("rates");
        event.json_data(&*rates).ok()
    }

    fn event(&self, event: &Event) -> Option<sse::Event> {
        let id = format!("{}-{}", self.app.events.epoch(), event.sequence);
        let named = sse::Event::default().event(&event.topic).id(id);
        named.json_data(event).ok()
    }

    fn gap_event(&self, reason: &str) -> Option<sse::Event> {
        self.event(&Event {
            sequence: self.seen,
            time_ms: clock::now_ms(),
            monotonic_ns: clock::monotonic_ns(),
            topic: "gap".to_owned(),
            message: format!("events are missing: {reason}"),
            data: object!({}),
        })
    }
}

fn events_of(follower: Follower) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    })
}

fn stream(follower: Follower) -> Response {
    let keep_alive = KeepAlive::new().interval(HEARTBEAT);
    let mut response = Sse::new(events_of(follower))
        .keep_alive(keep_alive)
        .into_response();
    let headers = response.headers_mut();
    // Proxies are not to collect events before they pass them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
