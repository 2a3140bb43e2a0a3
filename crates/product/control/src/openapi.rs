//! The OpenAPI 3.1 document, made from the table of routes and the types of the API.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use longshore_api::VERSION;
use longshore_api::problem::Problem;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, ReplaceBoolSchemas};
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
    // Generators of clients take objects for schemas, not `true`.
    let mut objects = ReplaceBoolSchemas::default();
    objects.skip_additional_properties = true;
    let settings = settings
        .with_transform(objects)
        .with_transform(RecursiveTransform(list_constants));
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
            "description": "Volumes, targets, subsystems, settings, access, sessions, metrics and events of a running server.",
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
            "name": "If-None-Match", "in": "header", "schema": { "type": "string" },
            "description": "`*`: refuse (409, exists) to change an object that is there and has other keys",
        }));
    }
    parameters
}

/// Makes one list of strings of alternatives that are strings, for generators of clients. Their descriptions stay, in that
/// of the whole.
fn list_constants(schema: &mut Schema) {
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    let Some(alternatives) = alternatives.and_then(|it| it.iter().map(constants).collect()) else {
        return;
    };
    let alternatives: Vec<(Vec<Value>, Option<&str>)> = alternatives;
    let mut description = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    for (names, meaning) in &alternatives {
        let [name] = &**names else { continue };
        if let (Some(name), Some(meaning)) = (name.as_str(), meaning) {
            let _ = write!(description, "\n\n`{name}`: {meaning}");
        }
    }
    let names: Vec<Value> = alternatives.into_iter().flat_map(|(it, _)| it).collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), names.into());
    schema.insert("description".to_owned(), description.trim_start().into());
}

/// The strings that a schema allows, if these are all, and what it says of them.
fn constants(schema: &Value) -> Option<(Vec<Value>, Option<&str>)> {
    if schema["type"] != "string" {
        return None;
    }
    let one = schema.get("const").map(|it| vec![it.clone()]);
    let names = one.or_else(|| schema.get("enum")?.as_array().cloned())?;
    Some((names, schema["description"].as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All schemas within a value, itself included.
    fn within(value: &Value, found: &mut Vec<Value>) {
        found.push(value.clone());
        match value {
            Value::Object(fields) => fields.values().for_each(|it| within(it, found)),
            Value::Array(values) => values.iter().for_each(|it| within(it, found)),
            _ => {}
        }
    }

    #[test]
    fn kinds_of_problems_are_one_list_that_says_what_each_is() {
        let code = &value()["components"]["schemas"]["ProblemCode"];
        assert_eq!(code["type"], "string");
        assert!(code.get("oneOf").is_none(), "{code}");
        let names = code["enum"].as_array().unwrap();
        assert!(names.contains(&"revision-changed".into()), "{names:?}");
        let text = code["description"].as_str().unwrap();
        assert!(text.contains("`no-space`: 507"), "{text}");
    }

    #[test]
    fn no_schema_is_a_truth_value() {
        let document = value();
        let mut found = Vec::new();
        within(&document, &mut found);
        let properties = found
            .iter()
            .filter_map(|it| it.get("properties")?.as_object());
        let mut seen = 0;
        for (name, schema) in properties.flatten() {
            assert!(schema.is_object(), "{name}: {schema}");
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
        for content in found.iter().filter_map(|it| it.get("schema")) {
            assert!(content.is_object(), "{content}");
        }
    }
}
