//! The pages of the dashboard: log-in, and what the API answers as HTML.
//!
//! A browser over TCP shows the cookie of its log-in; over the socket, where somebody forwards a port to it, the kernel
//! tells who it is. Pages have a strict content security policy, and are not kept by browsers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use longshore_api::access::Role;
use longshore_api::change::Caller;
use longshore_api::object::{Object, ObjectId, ObjectKind, Owner};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::Status;
use longshore_dashboard::{
    Activity, CONTENT_SECURITY_POLICY, Configuration, Frame, Happenings, Overview, Targets, Theme,
    Viewer, assets,
};

use crate::answer::{Failure, bytes, unavailable};
use crate::app::App;
use crate::caller::{Grant, Known, Peer};
use crate::collection::Collected;
use crate::events::RING_EVENTS;
use crate::input::{Body, pairs, query};
use crate::logins::{LoginKey, SESSION_LIFETIME};
use crate::resources::health::{as_read, note};
use crate::resources::objects::find;
use crate::{clock, cookies, guard};

/// Time between two samples where nobody has looked before.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// The cookie in which the script keeps the colours.
const THEME: &str = "longshore_theme";
/// The form of a log-in. Anybody may send one.
const CODE_BYTES_MAX: usize = 1024;
/// Events of the overview.
const LATEST: usize = 16;

type Mount = (&'static str, &'static str, MethodRouter<Arc<App>>);

/// Method, path and handler of all pages.
pub(crate) fn routes() -> Vec<Mount> {
    vec![
        ("GET", "/", get(overview)),
        ("GET", "/ui/volumes", get(volumes)),
        ("GET", "/ui/volumes/{name}", get(volume)),
        ("GET", "/ui/targets", get(targets)),
        ("GET", "/ui/targets/{name}", get(target)),
        ("GET", "/ui/subsystems/{name}", get(subsystem)),
        ("GET", "/ui/sessions", get(sessions)),
        ("GET", "/ui/cores", get(cores)),
        ("GET", "/ui/pipeline", get(pipeline)),
        ("GET", "/ui/events", get(events)),
        ("GET", "/ui/configuration", get(configuration)),
        ("GET", "/ui/assets/{hash}/{file}", get(asset)),
        ("GET", "/login", get(log_in)),
        (
            "POST",
            "/login",
            post(begin).layer(DefaultBodyLimit::max(CODE_BYTES_MAX)),
        ),
        ("POST", "/logout", post(log_out)),
    ]
}

fn theme_of(headers: &HeaderMap) -> Theme {
    Theme::of_name(cookies::value(headers, THEME).unwrap_or_default())
}

fn html(text: String) -> Response {
    let mut response = bytes("text/html; charset=utf-8", text);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        // Without any referrer, browsers send forms with the Origin `null`.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn redirect(place: &'static str) -> Response {
    let place = [
        (header::LOCATION, place),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::SEE_OTHER, place).into_response()
}

fn failed(theme: Theme, problem: &Problem) -> Response {
    let mut response = html(longshore_dashboard::failure(theme, problem));
    let status = StatusCode::from_u16(problem.code.status());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Who looks at a page, and what the address says beyond its path.
struct Visit {
    viewer: Viewer,
    query: Vec<(String, String)>,
}

impl FromRequestParts<Arc<App>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        let theme = theme_of(&parts.headers);
        let Some(peer) = parts.extensions.get::<Peer>() else {
            return Err(unavailable("the connection is not known").into_response());
        };
        let known = match guard::known(app, peer, &parts.method, &parts.headers) {
            Ok(known) => known,
            Err(failure) if failure.code() == ProblemCode::Unauthenticated => {
                return Err(redirect("/login"));
            }
            Err(failure) => return Err(failed(theme, failure.problem())),
        };
        let Known {
            caller,
            role,
            grant,
        } = known;
        if !role.allows(Role::Read) {
            let title = format!("the dashboard needs the role read, and this is {role}");
            return Err(failed(theme, &Problem::new(ProblemCode::Forbidden, title)));
        }
        Ok(Self {
            viewer: Viewer {
                name: caller.name.trim_end_matches(", browser").to_owned(),
                role,
                theme,
                can_log_out: matches!(grant, Grant::Login(_)),
            },
            query: query(parts.uri.query().unwrap_or_default()),
        })
    }
}

impl Visit {
    fn asked(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value)
    }

    /// The page of a list that is asked for, from 1.
    fn page(&self) -> usize {
        self.asked("page").parse().unwrap_or(1)
    }

    fn frame<'a>(&'a self, status: &'a Status) -> Frame<'a> {
        Frame {
            viewer: &self.viewer,
            status,
            time_ms: clock::now_ms(),
        }
    }

    fn show(&self, page: Result<String, Failure>) -> Response {
        match page {
            Ok(page) => html(page),
            Err(failure) => failed(self.viewer.theme, failure.problem()),
        }
    }
}

fn away() -> Failure {
    unavailable("the server is ending, or does not answer")
}

/// What the server does, in the last second or in all the time that is kept.
async fn activity(app: &Arc<App>, is_long: bool) -> Result<Activity, Failure> {
    let collect = async || -> Result<Arc<Collected>, Failure> {
        let collected = if is_long {
            app.collection.get_detailed().await
        } else {
            app.collection.get().await
        };
        collected.ok_or_else(away)
    };
    let mut collected = collect().await?;
    let first = Arc::clone(&collected);
    let is_warm = app
        .read(move |app| app.history.is_warm(&as_read(&first)))
        .await?;
    note(app, &collected).await?;
    if !is_warm {
        tokio::time::sleep(FIRST_LOOK).await;
        collected = app.collection.get_detailed().await.ok_or_else(away)?;
        note(app, &collected).await?;
    }
    app.read(move |app| app.history.activity(&as_read(&collected), is_long))
        .await
}

/// The status with the health of the last second.
async fn status(app: &Arc<App>) -> Result<Status, Failure> {
    let collected = app.collection.get().await.ok_or_else(away)?;
    let status = app.read(|app| app.plane.status()).await?;
    Ok(Status {
        health: collected.status.health.clone(),
        ..status
    })
}

async fn objects<const N: usize>(
    app: &Arc<App>,
    kinds: [ObjectKind; N],
) -> Result<[Vec<Object>; N], Failure> {
    app.read(move |app| kinds.map(|kind| app.plane.objects(kind)))
        .await
}

async fn overview(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let activity = activity(&app, false).await?;
        let [volumes, targets, subsystems] = objects(&app, ObjectKind::SERVED).await?;
        let targets = [targets, subsystems].concat();
        Ok(longshore_dashboard::overview(
            &visit.frame(&status(&app).await?),
            &Overview {
                volumes: &volumes,
                targets: &targets,
                events: &app.events.last(LATEST),
                activity: &activity,
            },
        ))
    };
    visit.show(page.await)
}

async fn volumes(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let activity = activity(&app, false).await?;
        let [volumes] = objects(&app, [ObjectKind::Volume]).await?;
        Ok(longshore_dashboard::volumes(
            &visit.frame(&status(&app).await?),
            &volumes,
            &activity,
            visit.asked("filter"),
            visit.page(),
        ))
    };
    visit.show(page.await)
}

async fn volume(app: State<Arc<App>>, visit: Visit, name: Path<String>) -> Response {
    object(app, visit, ObjectKind::Volume, name).await
}

async fn target(app: State<Arc<App>>, visit: Visit, name: Path<String>) -> Response {
    object(app, visit, ObjectKind::Target, name).await
}

async fn subsystem(app: State<Arc<App>>, visit: Visit, name: Path<String>) -> Response {
    object(app, visit, ObjectKind::Subsystem, name).await
}

async fn object(
    State(app): State<Arc<App>>,
    visit: Visit,
    kind: ObjectKind,
    Path(name): Path<String>,
) -> Response {
    let page = async {
        let activity = activity(&app, false).await?;
        let (object, others, sessions) = app
            .read(move |app| {
                let others = match kind {
                    ObjectKind::Volume => [ObjectKind::Target, ObjectKind::Subsystem]
                        .map(|kind| app.plane.objects(kind))
                        .concat(),
                    _ => app.plane.objects(ObjectKind::Volume),
                };
                (find(app, kind, &name), others, app.plane.sessions())
            })
            .await?;
        let object = object?;
        let ObjectId { name, .. } = &object.id;
        let uses = |session: &longshore_api::state::Session| match kind {
            ObjectKind::Volume => session.volumes.contains(name),
            _ => session.target == *name,
        };
        let sessions: Vec<_> = sessions.into_iter().filter(uses).collect();
        Ok(longshore_dashboard::object(
            &visit.frame(&status(&app).await?),
            &object,
            &others,
            &sessions,
            &activity,
        ))
    };
    visit.show(page.await)
}

async fn targets(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let kinds = [ObjectKind::Target, ObjectKind::Subsystem];
        let [targets, subsystems] = objects(&app, kinds).await?;
        Ok(longshore_dashboard::targets(
            &visit.frame(&status(&app).await?),
            &Targets {
                targets: &targets,
                subsystems: &subsystems,
                filter: visit.asked("filter"),
                page: visit.page(),
            },
        ))
    };
    visit.show(page.await)
}

async fn sessions(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let activity = activity(&app, false).await?;
        let sessions = app.read(|app| app.plane.sessions()).await?;
        Ok(longshore_dashboard::sessions(
            &visit.frame(&status(&app).await?),
            &sessions,
            &activity,
            visit.asked("filter"),
            visit.page(),
        ))
    };
    visit.show(page.await)
}

async fn cores(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let activity = activity(&app, false).await?;
        let frame = status(&app).await?;
        Ok(longshore_dashboard::cores(&visit.frame(&frame), &activity))
    };
    visit.show(page.await)
}

async fn pipeline(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let activity = activity(&app, true).await?;
        let frame = status(&app).await?;
        Ok(longshore_dashboard::pipeline(
            &visit.frame(&frame),
            &activity,
        ))
    };
    visit.show(page.await)
}

async fn events(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let revisions = app.record(|app| app.plane.revisions()).await?;
        Ok(longshore_dashboard::events(
            &visit.frame(&status(&app).await?),
            &Happenings {
                events: &app.events.last(RING_EVENTS),
                revisions: &revisions,
                topic: visit.asked("topic"),
            },
        ))
    };
    visit.show(page.await)
}

async fn configuration(State(app): State<Arc<App>>, visit: Visit) -> Response {
    let page = async {
        let revisions = app.record(|app| app.plane.revisions()).await?;
        let read = |app: &App| {
            (
                app.plane.document(None).1,
                app.plane.document(Some(Owner::Api)).1,
            )
        };
        let (all, of_api) = app.read(read).await?;
        Ok(longshore_dashboard::configuration(
            &visit.frame(&status(&app).await?),
            &Configuration {
                all: &all,
                of_api: &of_api,
                revisions: &revisions,
            },
        ))
    };
    visit.show(page.await)
}

async fn asset(Path((hash, file)): Path<(String, String)>) -> Response {
    let path = format!("{}/{hash}/{file}", assets::FOLDER);
    let Some(asset) = assets::find(&path) else {
        let title = format!("there is nothing at {path}");
        return Failure::from(Problem::new(ProblemCode::NotFound, title)).into_response();
    };
    let mut response = bytes(asset.content_type, asset.bytes);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, forever);
    response
}

async fn log_in(headers: HeaderMap) -> Response {
    html(longshore_dashboard::log_in(theme_of(&headers), None))
}

/// The secret of a session for a code. The audit log tells who logged in from where.
fn take(app: &App, code: &str, peer: &Peer) -> Result<Option<String>, Box<Problem>> {
    // What is no code is not worth a line.
    let Some(holder) = app.logins.who_asked(code, Instant::now()) else {
        return Ok(None);
    };
    let caller = Caller {
        name: holder.name,
        from: peer.from(),
    };
    app.audited(&caller, "log in", || {
        Ok(app.logins.begin(code, Instant::now()))
    })
}

/// Takes a code, and gives the cookie of a session.
async fn begin(State(app): State<Arc<App>>, headers: HeaderMap, request: Request) -> Response {
    let theme = theme_of(&headers);
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return unavailable("the connection is not known").into_response();
    };
    let Body(body) = match Body::from_request(request, &()).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    let body = String::from_utf8_lossy(&body);
    let code = pairs(&body).find(|(name, _)| name == "code");
    let code = code.map(|(_, code)| code.trim().trim_start_matches('#').to_owned());
    let secret = app
        .record(move |app| take(app, &code.unwrap_or_default(), &peer))
        .await;
    let secret = match secret {
        Ok(Ok(secret)) => secret,
        Ok(Err(problem)) => return failed(theme, &problem),
        Err(failure) => return failed(theme, failure.problem()),
    };
    let cookie = app.tcp.zip(secret).and_then(|(tcp, secret)| {
        let seconds = SESSION_LIFETIME.as_secs();
        cookies::set_session(&secret, tcp.address.port(), tcp.is_encrypted, seconds)
    });
    let Some(cookie) = cookie else {
        let refusal = "This code is not valid: it was used before, or is older than two minutes. Ask for another one.";
        let mut response = html(longshore_dashboard::log_in(theme, Some(refusal)));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    };
    let mut response = redirect("/");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

async fn log_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let mut response = redirect("/login");
    if let Some(tcp) = app.tcp {
        let port = tcp.address.port();
        if let Some(secret) = cookies::session(&headers, port, tcp.is_encrypted) {
            app.logins.end(LoginKey::of(secret), Instant::now());
        }
        if let Some(cookie) = cookies::set_session("", port, tcp.is_encrypted, 0) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
    }
    response
}
