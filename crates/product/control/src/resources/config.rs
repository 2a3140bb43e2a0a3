//! The configuration as a whole: documents, plans, revisions.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::routing::{get, post, put};
use longshore_api::access::Role;
use longshore_api::change::{Applied, Plan, Revision, RevisionInfo, Wish};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::{Document, Owner};
use longshore_api::problem::{Problem, ProblemCode};

use crate::answer::{Answer, Failure, at_revision, document, list};
use crate::app::App;
use crate::caller::Known;
use crate::change::change;
use crate::input::{Asked, Input, bad_request, query};
use crate::route::{CHANGE_QUERY, Content, Mount, Route, of};

pub(crate) fn routes() -> Vec<Route> {
    let (read, admin) = (App::READ, Some(Role::Admin));
    let the_document = Content::Json(of::<Versioned<Document>>);
    let applied = Content::Json(of::<Versioned<Applied>>);
    vec![
        Route {
            query: &[(
                "owner",
                "Only objects of this owner: file, command-line or api",
            )],
            ..Route::new(
                "GET",
                "/api/v1/config",
                "getConfig",
                "The configuration; secrets show as \"set\"",
                read,
                the_document,
                Some(get(config)),
            )
        },
        Route {
            query: CHANGE_QUERY,
            body: Some(of::<Document>),
            ..Route::new(
                "PUT",
                "/api/v1/config",
                "putConfig",
                "Replace all objects of the API",
                admin,
                applied,
                Some(put(replace)),
            )
        },
        Route {
            query: CHANGE_QUERY,
            body: Some(of::<Document>),
            ..Route::new(
                "POST",
                "/api/v1/config:plan",
                "planConfig",
                "The plan of a replacement of all objects of the API",
                admin,
                Content::Json(of::<Versioned<Plan>>),
                Some(post(plan)),
            )
        },
        Route {
            query: CHANGE_QUERY,
            ..Route::new(
                "POST",
                "/api/v1/config:reload",
                "reloadConfig",
                "Read the server's own file again, as SIGHUP does",
                admin,
                applied,
                Some(post(reload)),
            )
        },
        Route::new(
            "GET",
            "/api/v1/config/revisions",
            "listRevisions",
            "The revisions that are kept, the newest first",
            read,
            Content::Json(of::<Listing<RevisionInfo>>),
            Some(get(revisions)),
        ),
        Route::new(
            "GET",
            "/api/v1/config/revisions/{revision}",
            "getRevision",
            "The objects of the API at a revision",
            read,
            the_document,
            Some(get(revision)),
        ),
        Route {
            query: CHANGE_QUERY,
            ..Route::new(
                "POST",
                "/api/v1/config/revisions/{revision}:rollback",
                "rollbackConfig",
                "Restore the objects of the API at a revision",
                admin,
                applied,
                None,
            )
        },
    ]
}

pub(crate) fn mounts() -> Vec<Mount> {
    vec![Mount {
        path: "/api/v1/config/revisions/{revision}",
        handler: post(act),
    }]
}

async fn config(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Answer {
    let mut owner = None;
    for (name, value) in query(raw.as_deref().unwrap_or_default()) {
        match (name.as_str(), value.as_str()) {
            ("owner", "file") => owner = Some(Owner::File),
            ("owner", "command-line") => owner = Some(Owner::CommandLine),
            ("owner", "api") => owner = Some(Owner::Api),
            _ => return Err(bad_request("use ?owner=file, command-line or api")),
        }
    }
    let (revision, document) = app.read(move |app| app.plane.document(owner)).await?;
    Ok(at_revision(revision, document))
}

async fn replace(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    asked: Asked,
    Input(document): Input<Document>,
) -> Answer {
    change(&app, known, asked, Wish::Replace(document)).await
}

async fn plan(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    asked: Asked,
    Input(document): Input<Document>,
) -> Answer {
    let asked = Asked {
        dry_run: true,
        ..asked
    };
    change(&app, known, asked, Wish::Replace(document)).await
}

async fn reload(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    asked: Asked,
) -> Answer {
    change(&app, known, asked, Wish::ReadFile).await
}

async fn revisions(State(app): State<Arc<App>>) -> Answer {
    Ok(list(app.record(|app| app.plane.revisions()).await?))
}

fn number(text: &str) -> Result<Revision, Failure> {
    let number = text.parse().map(Revision);
    number.map_err(|_| bad_request(format!("`{text}` is not a revision")))
}

async fn revision(State(app): State<Arc<App>>, Path(revision): Path<String>) -> Answer {
    let revision = number(&revision)?;
    let found = app.record(move |app| app.plane.at_revision(revision));
    let found = found.await?.ok_or_else(|| {
        let problem = Problem::new(ProblemCode::NotFound, "this revision is not kept");
        problem.advise("list those that are: longshore config history")
    })?;
    Ok(document(found))
}

async fn act(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(place): Path<String>,
    asked: Asked,
) -> Answer {
    let Some((revision, "rollback")) = place.rsplit_once(':') else {
        let problem = Problem::new(ProblemCode::NotFound, "a revision has no such action");
        return Err(problem.advise("see /openapi.json for what there is").into());
    };
    let revision = number(revision)?;
    change(&app, known, asked, Wish::Rollback(revision)).await
}
