//! The OpenAPI 3.1 document, made from the table of routes and the types of the API.

use std::collections::BTreeMap;

use longshore_api::VERSION;
use longshore_api::problem::Problem;
use schemars::generate::SchemaSettings;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::route::{CHANGE_QUERY, Content, Of, Route, of};
use crate::routes::routes;

pub(crate) fn document() -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&value())
}

/// The document as a value.
#[must_use]
pub fn value() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let problem = of::<Problem>(&mut generator);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes() {
        let mut operation = json!({
            "operationId": route.id,
            "summary": route.summary,
            "parameters": parameters(&route),
            "responses": {
                "default": {
                    "description": "Why not",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
        });
        let (code, response) = match route.content {
            Content::Json(schema) => {
                let schema = schema(&mut generator);
                (
                    "200",
                    json!({ "description": "Done", "content": { "application/json": { "schema": schema } } }),
                )
            }
            Content::Media(types) => {
                let media = |(name, schema): &(&str, Option<Of>)| {
                    let schema = schema.map(|schema| schema(&mut generator));
                    let content = schema.map_or_else(|| json!({}), |it| json!({ "schema": it }));
                    ((*name).to_owned(), content)
                };
                let content: Map<String, Value> = types.iter().map(media).collect();
                ("200", json!({ "description": "Done", "content": content }))
            }
            Content::Nothing => ("204", json!({ "description": "Done" })),
        };
        operation["responses"][code] = response;
        if route.query.iter().any(|(name, _)| *name == "drain") {
            operation["responses"]["202"] = json!({
                "description": "Done; volumes still drain, see Location",
                "content": operation["responses"]["200"]["content"],
            });
        }
        if let Some(body) = route.body {
            let schema = body(&mut generator);
            operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        match route.needs {
            Some(role) => {
                operation["security"] = json!([{ "token": [] }]);
                operation["x-longshore-role"] = json!(role.name());
            }
            None => operation["security"] = json!([]),
        }
        let methods = paths.entry(route.path).or_default();
        methods.insert(route.method.to_lowercase(), operation);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Longshore control API",
            "version": format!("{VERSION}"),
            "description": "Volumes, targets, subsystems, access, sessions, metrics and events of a running server.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters: Vec<Value> = Vec::new();
    for part in route.path.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or_default();
        let schema = json!({ "type": "string" });
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    for (name, meaning) in route.query {
        let kind = if CHANGE_QUERY.iter().any(|(it, _)| it == name) {
            "boolean"
        } else {
            "string"
        };
        parameters.push(json!({
            "name": name, "in": "query", "description": meaning, "schema": { "type": kind },
        }));
    }
    if route.query.iter().any(|(name, _)| *name == "dry-run") {
        parameters.push(json!({
            "name": "If-Match", "in": "header", "schema": { "type": "string" },
            "description": "Refuse if the revision is another one by now (the ETag of an earlier answer)",
        }));
    }
    if route.method == "PUT" && route.path.ends_with("{name}") {
        parameters.push(json!({
            "name": "If-None-Match", "in": "header", "schema": { "type": "string", "const": "*" },
            "description": "Refuse (409, exists) to change an object that is there and has other keys",
        }));
    }
    parameters
}
