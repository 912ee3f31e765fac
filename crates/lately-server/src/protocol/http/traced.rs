//! Spans of requests. A span ends when the head of the answer is there.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use super::listener::Speaks;
use crate::service::Service;
use crate::service::tracer::{Span, TracedRequest};

/// The router with spans of its requests, if spans are sent.
pub(in crate::protocol) fn traced(router: Router, service: Arc<Service>, speaks: Speaks) -> Router {
    if service.tracer.is_none() {
        return router;
    }
    router.layer(from_fn_with_state((service, speaks), trace))
}

async fn trace(
    State((service, speaks)): State<(Arc<Service>, Speaks)>,
    request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get("traceparent").map(HeaderValue::as_bytes);
    let Some((tracer, context)) =
        service.tracer.as_ref().and_then(|tracer| Some((tracer, tracer.begin(header)?)))
    else {
        return next.run(request).await;
    };
    let (start, begun) = (service.now(), (service.moment)());
    let route = request.extensions().get::<MatchedPath>().map(|path| Arc::from(path.as_str()));
    let method = name_of(request.method());
    let response = next.run(request).await;
    let request = match speaks {
        Speaks::Http => TracedRequest::Http { method, route, status: response.status().as_u16() },
        Speaks::Grpc => {
            let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
            TracedRequest::Grpc { path: route, status: status.and_then(|status| status.parse().ok()) }
        }
    };
    let took = (service.moment)().saturating_duration_since(begun);
    let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    tracer.end(Span { context, start, took_ns, request });
    response
}

/// The methods that the conventions of OpenTelemetry know. A client may send any other.
fn name_of(method: &Method) -> &'static str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    const NAMES: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    known.iter().position(|known| known == method).map_or("_OTHER", |index| NAMES[index])
}
