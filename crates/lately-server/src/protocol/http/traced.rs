//! Spans of requests. A span ends when the head of the answer is there.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tower::{Layer, Service as TowerService};

use super::listener::{Routes, Speaks};
use crate::service::Service;
use crate::service::tracer::{Span, TracedRequest};

/// The router. If spans are sent, its answers name their routes.
pub(in crate::protocol) fn naming_routes(router: Router, service: &Service) -> Router {
    if service.tracer.is_some() { router.layer(from_fn(name_route)) } else { router }
}

async fn name_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    route.into_iter().for_each(|route| _ = response.extensions_mut().insert(route));
    response
}

/// The routes with spans of their requests, if spans are sent.
pub(in crate::protocol) fn traced<S>(routes: S, service: Arc<Service>, speaks: Speaks) -> Routes
where
    S: TowerService<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    match service.tracer {
        None => Routes::new(routes),
        Some(_) => Routes::new(from_fn_with_state((service, speaks), trace).layer(routes)),
    }
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
    let method = name_of(request.method());
    let response = next.run(request).await;
    let route = response.extensions().get::<MatchedPath>().map(|path| Arc::from(path.as_str()));
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
