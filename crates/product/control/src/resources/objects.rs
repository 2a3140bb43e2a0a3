//! Volumes, targets, subsystems and settings.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use longshore_api::access::Role;
use longshore_api::change::{Applied, Wish};
use longshore_api::envelope::{Listing, Versioned};
use longshore_api::object::{Keys, Object, ObjectId, ObjectKind};
use longshore_api::operation::Operation;
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::Value;

use crate::answer::{Answer, Failure, at_revision, document, list, with_revision};
use crate::app::App;
use crate::caller::Known;
use crate::change::change;
use crate::input::{Asked, Body, Input, bad_request};
use crate::route::{CHANGE_QUERY, Content, Mount, Route, of};

/// Paths and names of a kind.
struct Names {
    kind: ObjectKind,
    list: &'static str,
    one: &'static str,
    ids: [&'static str; 5],
    /// Actions: path, id, summary.
    actions: &'static [(&'static str, &'static str, &'static str)],
}

const NAMES: [Names; 4] = [
    Names {
        kind: ObjectKind::Volume,
        list: "/api/v1/volumes",
        one: "/api/v1/volumes/{name}",
        ids: [
            "listVolumes",
            "getVolume",
            "putVolume",
            "patchVolume",
            "deleteVolume",
        ],
        actions: &[
            (
                "/api/v1/volumes/{name}:resize",
                "resizeVolume",
                "Change the size of a volume: `{\"size\": \"20G\"}`",
            ),
            (
                "/api/v1/volumes/{name}:disable",
                "disableVolume",
                "Stop serving a volume, and keep its definition",
            ),
            (
                "/api/v1/volumes/{name}:enable",
                "enableVolume",
                "Serve a volume again",
            ),
        ],
    },
    Names {
        kind: ObjectKind::Target,
        list: "/api/v1/targets",
        one: "/api/v1/targets/{name}",
        ids: [
            "listTargets",
            "getTarget",
            "putTarget",
            "patchTarget",
            "deleteTarget",
        ],
        actions: &[
            (
                "/api/v1/targets/{name}:disable",
                "disableTarget",
                "Keep an iSCSI target, and do not serve it",
            ),
            (
                "/api/v1/targets/{name}:enable",
                "enableTarget",
                "Serve an iSCSI target again",
            ),
        ],
    },
    Names {
        kind: ObjectKind::Subsystem,
        list: "/api/v1/subsystems",
        one: "/api/v1/subsystems/{name}",
        ids: [
            "listSubsystems",
            "getSubsystem",
            "putSubsystem",
            "patchSubsystem",
            "deleteSubsystem",
        ],
        actions: &[
            (
                "/api/v1/subsystems/{name}:disable",
                "disableSubsystem",
                "Keep an NVMe subsystem, and do not serve it",
            ),
            (
                "/api/v1/subsystems/{name}:enable",
                "enableSubsystem",
                "Serve an NVMe subsystem again",
            ),
        ],
    },
    Names {
        kind: ObjectKind::Setting,
        list: "/api/v1/settings",
        one: "/api/v1/settings/{name}",
        ids: [
            "listSettings",
            "getSetting",
            "putSetting",
            "patchSetting",
            "deleteSetting",
        ],
        actions: &[],
    },
];

pub(crate) fn routes() -> Vec<Route> {
    let mut routes: Vec<Route> = NAMES.iter().flat_map(of_kind).collect();
    routes.push(Route::new(
        "GET",
        "/api/v1/operations/{id}",
        "getOperation",
        "Progress of a change whose volumes drain",
        App::READ,
        Content::Json(of::<Versioned<Operation>>),
        get(operation),
    ));
    routes
}

fn of_kind(names: &Names) -> Vec<Route> {
    let kind = names.kind;
    let [list_id, get_id, put_id, patch_id, delete_id] = names.ids;
    let reads = |path, id, summary, content, handler: MethodRouter<Arc<App>>| {
        Route::new("GET", path, id, summary, App::READ, content, handler)
    };
    let changes = |method, id, summary, handler| Route {
        method,
        needs: Some(Role::Admin),
        query: CHANGE_QUERY,
        ..reads(
            names.one,
            id,
            summary,
            Content::Json(of::<Versioned<Applied>>),
            handler,
        )
    };
    let mut routes = vec![
        reads(
            names.list,
            list_id,
            "All of them, by name",
            Content::Json(of::<Listing<Object>>),
            get(move |state| objects(state, kind)),
        ),
        reads(
            names.one,
            get_id,
            "One of them with its state",
            Content::Json(of::<Versioned<Object>>),
            get(move |state, name| object(state, kind, name)),
        ),
        Route {
            body: Some(of::<Keys>),
            ..changes(
                "PUT",
                put_id,
                "Give it these keys; it comes if it is not there. Equal keys change nothing",
                put(move |state, known, name, asked, body| {
                    put_object(state, known, kind, name, asked, body)
                }),
            )
        },
        Route {
            body: Some(of::<Keys>),
            ..changes(
                "PATCH",
                patch_id,
                "Change some keys (JSON merge patch, RFC 7396)",
                patch(move |state, known, name, asked, body| {
                    patch_object(state, known, kind, name, asked, body)
                }),
            )
        },
        changes(
            "DELETE",
            delete_id,
            "Remove it. Data are never deleted",
            delete(move |state, known, name, asked| delete_object(state, known, kind, name, asked)),
        ),
    ];
    for (path, id, summary) in names.actions {
        routes.push(Route {
            method: "POST",
            path,
            id,
            summary,
            needs: Some(Role::Admin),
            query: CHANGE_QUERY,
            body: id.starts_with("resize").then_some(of::<Keys>),
            content: Content::Json(of::<Versioned<Applied>>),
            handler: None,
        });
    }
    routes
}

pub(crate) fn mounts() -> Vec<Mount> {
    let mount = |names: &Names| {
        let kind = names.kind;
        Mount {
            path: names.one,
            handler: post(move |state, known, name, asked, body: Body| {
                act(state, known, kind, name, asked, body)
            }),
        }
    };
    NAMES.iter().map(mount).collect()
}

type KnownCaller = Extension<Known>;

async fn objects(State(app): State<Arc<App>>, kind: ObjectKind) -> Answer {
    let (objects, revision) = app
        .read(move |app| {
            let revision = app.plane.revision();
            (app.plane.objects(kind), revision)
        })
        .await?;
    Ok(with_revision(list(objects), revision))
}

/// Whether it is the object of that name. iSCSI names are the same in capitals.
fn is_named(object: &Object, name: &str) -> bool {
    match object.id.kind {
        ObjectKind::Target => object.id.name.eq_ignore_ascii_case(name),
        ObjectKind::Volume | ObjectKind::Subsystem | ObjectKind::Setting => object.id.name == name,
    }
}

/// One object as it is now.
pub(crate) fn find(app: &App, kind: ObjectKind, name: &str) -> Result<Object, Failure> {
    let objects = app.plane.objects(kind);
    let found = objects.into_iter().find(|object| is_named(object, name));
    found.ok_or_else(|| {
        let title = format!("there is no {kind} of this name");
        let problem = Problem::new(ProblemCode::NotFound, title);
        let advice = match kind {
            ObjectKind::Volume => "list the volumes: longshore volume list",
            ObjectKind::Setting => "list the settings that are made: longshore setting list",
            _ => "list the targets and subsystems: longshore target list",
        };
        problem
            .about(format_args!("{kind} {name}"))
            .advise(advice)
            .into()
    })
}

async fn object(State(app): State<Arc<App>>, kind: ObjectKind, Path(name): Path<String>) -> Answer {
    let (object, revision) = app
        .read(move |app| {
            let revision = app.plane.revision();
            (find(app, kind, &name), revision)
        })
        .await?;
    Ok(at_revision(revision, object?))
}

async fn put_object(
    State(app): State<Arc<App>>,
    Extension(known): KnownCaller,
    kind: ObjectKind,
    Path(name): Path<String>,
    asked: Asked,
    Input(keys): Input<Keys>,
) -> Answer {
    let id = ObjectId { kind, name };
    change(&app, known, asked, Wish::Put { id, keys }).await
}

async fn patch_object(
    State(app): State<Arc<App>>,
    Extension(known): KnownCaller,
    kind: ObjectKind,
    Path(name): Path<String>,
    asked: Asked,
    Input(patch): Input<Keys>,
) -> Answer {
    let id = ObjectId { kind, name };
    change(&app, known, asked, Wish::Patch { id, patch }).await
}

async fn delete_object(
    State(app): State<Arc<App>>,
    Extension(known): KnownCaller,
    kind: ObjectKind,
    Path(name): Path<String>,
    asked: Asked,
) -> Answer {
    let id = ObjectId { kind, name };
    change(&app, known, asked, Wish::Remove { id }).await
}

/// `NAME:ACTION`; names hold colons too.
async fn act(
    State(app): State<Arc<App>>,
    Extension(known): KnownCaller,
    kind: ObjectKind,
    Path(name): Path<String>,
    asked: Asked,
    Body(body): Body,
) -> Answer {
    let (name, action) = name.rsplit_once(':').unwrap_or((&name, ""));
    let id = ObjectId {
        kind,
        name: name.to_owned(),
    };
    let wish = match (kind, action) {
        (_, "disable") => Wish::Enable { id, enabled: false },
        (_, "enable") => Wish::Enable { id, enabled: true },
        (ObjectKind::Volume, "resize") => {
            let body: Keys = serde_json::from_slice(&body).unwrap_or_default();
            let Some(size @ (Value::String(_) | Value::Number(_))) = body.get("size") else {
                return Err(bad_request("give the new size: {\"size\": \"20G\"}"));
            };
            let patch = Keys::from_iter([("size".to_owned(), size.clone())]);
            Wish::Patch { id, patch }
        }
        _ => return Err(no_action(kind)),
    };
    change(&app, known, asked, wish).await
}

fn no_action(kind: ObjectKind) -> Failure {
    let title = format!("a {kind} has no such action");
    let problem = Problem::new(ProblemCode::NotFound, title);
    problem.advise("see /openapi.json for what there is").into()
}

async fn operation(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer {
    let found = app
        .read(move |app| app.operations.get(&id, app.plane.as_ref()))
        .await?;
    let operation = found.ok_or_else(|| {
        let title = "there is no such operation; those before the last start are forgotten";
        Problem::new(ProblemCode::NotFound, title)
    })?;
    Ok(document(operation))
}
