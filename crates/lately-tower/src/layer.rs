//! The limits, their layer, and the service that the layer makes of another.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use lately::Store;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::LimitBody;
use crate::builder::LimitsBuilder;
use crate::decider::{Decider, Verdict};

/// Limits of a service. Clones, and all layers made of them, share the counts.
#[derive(Clone)]
pub struct Limits {
    decider: Arc<Decider>,
}

impl Limits {
    /// A builder without limits.
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder::new()
    }

    pub(crate) fn new(decider: Decider) -> Limits {
        Limits { decider: Arc::new(decider) }
    }

    /// The layer, for `Router::layer`, `ServiceBuilder::layer` and the like.
    #[must_use]
    pub fn layer(&self) -> LimitLayer {
        LimitLayer { limits: self.clone() }
    }

    /// The name of each limit, and how many requests it has denied in this process. For a limit in shadow, how many it would
    /// have denied.
    pub fn denials(&self) -> impl Iterator<Item = (&str, u64)> {
        self.decider.rules.iter().map(|rule| (rule.name.as_str(), rule.denials.load(Relaxed)))
    }

    /// The store with the counts of this process. A key is the name of a limit, a colon, and the key of a request.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.decider.store
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("rules", &self.decider.rules).finish_non_exhaustive()
    }
}

/// A layer that lets requests through while they stay within the limits. See [`Limits::layer`].
#[derive(Clone, Debug)]
pub struct LimitLayer {
    limits: Limits,
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> LimitService<S> {
        LimitService { inner, limits: self.limits.clone() }
    }
}

/// A service with limits before it.
#[derive(Clone, Debug)]
pub struct LimitService<S> {
    inner: S,
    limits: Limits,
}

impl<S, B, R> Service<Request<B>> for LimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<LimitBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<LimitBody<R>>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that is ready is called; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let decider = Arc::clone(&self.limits.decider);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            match decider.decide(&parts).await {
                Verdict::Allow(fields) => {
                    let response = inner.call(Request::from_parts(parts, body)).await?;
                    let mut response = response.map(LimitBody::inner);
                    if let Some(fields) = fields {
                        fields.add_to(response.headers_mut());
                    }
                    Ok(response)
                }
                Verdict::Refuse(refusal) => {
                    let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
                    let is_grpc = content_type.is_some_and(|kind| kind.starts_with(b"application/grpc"));
                    Ok(refusal.into_response(is_grpc))
                }
            }
        })
    }
}
