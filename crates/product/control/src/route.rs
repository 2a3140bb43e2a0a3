//! A route, as the router and the OpenAPI document need it.

use std::sync::Arc;

use axum::routing::MethodRouter;
use longshore_api::access::Role;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::app::App;

/// The schema of a type.
pub(crate) type Of = fn(&mut SchemaGenerator) -> Schema;

/// The schema of `T`.
pub(crate) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a route answers with.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Json(Of),
    /// These media types, with the schemas of those that are JSON.
    Media(&'static [(&'static str, Option<Of>)]),
    Nothing,
}

/// A method of a path.
pub(crate) struct Route {
    pub method: &'static str,
    /// As clients see it: `/api/v1/volumes/{name}:resize`.
    pub path: &'static str,
    /// Unique among all routes.
    pub id: &'static str,
    pub summary: &'static str,
    pub needs: Option<Role>,
    /// Names of the query's options, and what they mean.
    pub query: &'static [(&'static str, &'static str)],
    pub body: Option<Of>,
    pub content: Content,
    /// Absent for actions (`:resize`), which the route of their mount answers.
    pub handler: Option<MethodRouter<Arc<App>>>,
}

impl Route {
    /// One without options and body.
    pub(crate) fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        needs: Option<Role>,
        content: Content,
        handler: impl Into<Option<MethodRouter<Arc<App>>>>,
    ) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            needs,
            query: &[],
            body: None,
            content,
            handler: handler.into(),
        }
    }
}

/// Options of all changes.
pub(crate) const CHANGE_QUERY: &[(&str, &str)] = &[
    ("dry-run", "Answer with the plan, and change nothing"),
    (
        "drain",
        "Remove also what sessions use, after what was accepted has ended",
    ),
    ("force", "The same, without waiting"),
    (
        "replace",
        "Put another volume under a number that hosts know",
    ),
];

/// Actions of objects, all of one route: its last part is `NAME:ACTION`.
pub(crate) struct Mount {
    pub path: &'static str,
    pub handler: MethodRouter<Arc<App>>,
}
