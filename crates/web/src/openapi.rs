//! The interface as OpenAPI 3.1, made from the table of its requests.

use crate::routes::{ROUTES, Route, Shape};
use crate::submission;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// Schemas of jobs, and of what verbs print: the reference has them, and tests check that `tutti`
/// keeps to them.
const JOBS: &str = include_str!("../../../docs/reference/jobs.schema.json");
const VERBS: &str = include_str!("../../../docs/reference/verbs.schema.json");

/// Where schemas are in this description.
const PLACE: &str = "#/components/schemas/";

/// The description, as JSON.
pub(crate) fn description() -> String {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| make().to_string()).clone()
}

fn make() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tutti",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Jobs, nodes and the matrix, with the rights of one user",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": crate::auth::COOKIE },
            },
        },
        "security": [{ "session": [] }],
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = route
        .params
        .iter()
        .map(|param| {
            json!({
                "name": param.name, "in": "query", "required": false,
                "description": param.help, "schema": { "type": param.kind },
            })
        })
        .collect();
    if route.path.contains("{id}") {
        parameters.insert(
            0,
            json!({
                "name": "id", "in": "path", "required": true,
                "description": "Number of the job.", "schema": { "type": "integer", "minimum": 1 },
            }),
        );
    }
    let content = |kind: &str, schema: Value| json!({ kind: { "schema": schema } });
    let good = match &route.shape {
        Shape::Schema(name) => content("application/json", reference(name)),
        Shape::Element(name) => content("application/json", reference(&format!("{name}/items"))),
        Shape::Verb(name) => content("application/json", of_verbs()[*name].clone()),
        Shape::Other(kind) => content(kind, json!({})),
    };
    let error = content("application/json", reference("error"));
    let mut operation = json!({
        "summary": route.help,
        "parameters": parameters,
        "responses": {
            "200": { "description": "Done.", "content": good },
            "default": { "description": "Why not, with a code for `tutti explain`.", "content": error },
        },
    });
    if let Some(name) = route.body {
        let content = content("application/json", reference(name));
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{PLACE}{name}") })
}

/// The schemas of a file of the reference, which refer to each other at their place here.
fn of_file(text: &str) -> Value {
    let text = text.replace("jobs.schema.json#/$defs/", PLACE).replace("#/$defs/", PLACE);
    let mut file: Value = serde_json::from_str(&text).unwrap_or_default();
    file["$defs"].take()
}

/// What verbs print, by their names, and what that consists of.
fn of_verbs() -> &'static Value {
    static SCHEMAS: OnceLock<Value> = OnceLock::new();
    SCHEMAS.get_or_init(|| of_file(VERBS))
}

/// Adds to `schemas` those of verbs to which a value refers, and so on.
fn add_referred(value: &Value, schemas: &mut Value) {
    match value {
        Value::Object(fields) => {
            let referred = value["$ref"].as_str().and_then(|it| it.strip_prefix(PLACE));
            if let Some(name) = referred.filter(|name| schemas.get(name).is_none())
                && let Some(schema) = of_verbs().get(name)
            {
                schemas[name] = schema.clone();
                add_referred(schema, schemas);
            }
            fields.values().for_each(|value| add_referred(value, schemas));
        }
        Value::Array(items) => items.iter().for_each(|item| add_referred(item, schemas)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schemas of the reference at their place here, and that of errors.
fn schemas() -> Value {
    let mut schemas = of_file(JOBS);
    for route in ROUTES {
        if let Shape::Verb(name) = route.shape {
            add_referred(&of_verbs()[name], &mut schemas);
        }
    }
    schemas["submission"] = submission::schema();
    schemas["accepted"] = json!({
        "type": "object",
        "properties": { "job": { "type": "integer", "description": "Number of the job." } },
        "required": ["job"],
    });
    schemas["error"] = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "error": { "type": "string" },
            "explain": { "type": "string" },
        },
        "required": ["code", "error", "explain"],
    });
    schemas
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
    use super::*;

    /// All references of a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                Some(text) if name == "$ref" => found.push(text.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn each_route_is_described_and_each_reference_leads_to_a_schema() {
        let all: Value = serde_json::from_str(&description()).unwrap();
        for route in ROUTES {
            let method = route.method.as_str().to_lowercase();
            assert!(
                all["paths"][route.path][method]["responses"]["200"].is_object(),
                "{}",
                route.path
            );
        }
        let mut found = Vec::new();
        references(&all, &mut found);
        assert!(found.len() > 20);
        let schemas = all["components"]["schemas"].as_object().unwrap();
        // As OpenAPI names its components.
        let is_proper =
            |name: &String| name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        assert!(schemas.keys().all(is_proper), "{:?}", schemas.keys());
        for route in ROUTES {
            if let Shape::Verb(name) = route.shape {
                assert!(of_verbs()[name].is_object(), "verbs.schema.json has no {name}");
            }
        }
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(all.pointer(pointer).is_some_and(Value::is_object), "{reference}");
        }
    }
}
