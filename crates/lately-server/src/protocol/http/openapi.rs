//! `GET /openapi.json`: the description of all routes, from their code.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::problem::Document;
use super::{
    alerts, cluster, counts, decisions, dumps, events, keys, named_limits, ndjson, routes, series, session,
    status, top,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Lately", description = "Counts hits in sliding windows, and decides rate limits.", license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")),
    paths(
        counts::hit,
        counts::hits,
        counts::unique,
        ndjson::hits,
        series::series,
        top::top,
        alerts::alerts,
        decisions::limit,
        decisions::auth,
        keys::delete,
        keys::state,
        named_limits::limits,
        session::who,
        session::begin,
        session::end,
        cluster::nodes,
        status::status,
        events::events,
        dumps::dump,
        dumps::restore,
        routes::health,
        routes::ready,
        routes::metrics,
        document,
    ),
    components(schemas(Document)),
    modifiers(&Errors),
)]
struct Description;

static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| Description::openapi().to_json().expect("it has no maps with other keys than text"));

/// Errors that every route below `/v1/` may answer.
const ERRORS: [(&str, &str); 5] = [
    ("400", "A parameter is wrong or unknown."),
    ("401", "There are users, and the client has to log in."),
    ("403", "The client may not do that, or another site may have sent the request."),
    ("421", "The host is not this server."),
    ("503", "The server is loading its counts, the disk fails, or too many requests are in progress."),
];

struct Errors;

impl Modify for Errors {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            if !path.starts_with("/v1/") {
                continue;
            }
            let operations = [&mut item.get, &mut item.post, &mut item.delete];
            operations.into_iter().flatten().for_each(add_errors);
        }
    }
}

fn add_errors(operation: &mut Operation) {
    for (status, description) in ERRORS {
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(description);
        let response = response.content("application/problem+json", content).build();
        operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
    }
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "server",
    responses((status = 200, description = "The description.", content_type = "application/json", body = Object)),
)]
pub(super) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The methods and paths that are described.
    pub(in super::super) fn described() -> Vec<(String, String)> {
        let document: serde_json::Value = serde_json::from_str(&DOCUMENT).expect("it is JSON");
        let paths = document["paths"].as_object().expect("it has paths");
        let methods = |(path, item): (&String, &serde_json::Value)| {
            let methods = item.as_object().expect("an object").keys();
            methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        };
        paths.iter().flat_map(methods).collect()
    }
}
