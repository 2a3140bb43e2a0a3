//! Sessions of initiators, and controllers of hosts.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get};
use longshore_api::access::Role;
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::Session;

use crate::answer::{Answer, document, list};
use crate::app::App;
use crate::caller::Known;
use crate::route::{Content, Route, of};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            "GET",
            "/api/v1/sessions",
            "listSessions",
            "iSCSI sessions and NVMe controllers",
            App::READ,
            Content::Json(of::<Listing<Session>>),
            get(sessions),
        ),
        Route::new(
            "GET",
            "/api/v1/sessions/{id}",
            "getSession",
            "One of them",
            App::READ,
            Content::Json(of::<Versioned<Session>>),
            get(session),
        ),
        Route::new(
            "DELETE",
            "/api/v1/sessions/{id}",
            "closeSession",
            "Ask its peer to log out, then drop it. The peer may log in again",
            Some(Role::Operate),
            Content::Nothing,
            delete(close),
        ),
    ]
}

async fn sessions(State(app): State<Arc<App>>) -> Answer {
    Ok(list(app.read(|app| app.plane.sessions()).await?))
}

async fn session(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer {
    let sessions = app.read(|app| app.plane.sessions()).await?;
    let found = sessions.into_iter().find(|session| session.id == id);
    let found = found.ok_or_else(|| {
        let problem = Problem::new(ProblemCode::NotFound, "there is no such session");
        let problem = problem.about(format_args!("session {id}"));
        problem.advise("list the sessions: longshore session list")
    })?;
    Ok(document(found))
}

async fn close(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(id): Path<String>,
) -> Answer {
    app.record(move |app| {
        let step = format!("close session {id}");
        app.audited(&known.caller, &step, || {
            app.plane.close_session(&id, &known.caller)
        })
    })
    .await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
