//! The limits, their layer, and the service that the layer makes of another.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use lately::Store;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{Fields, Refusal};
use crate::body::LimitBody;
use crate::builder::LimitsBuilder;
use crate::decider::{Decider, Verdict};

/// Limits of a service. Clones, and all layers made of them, share the counts.
#[derive(Clone)]
pub struct Limits {
    decider: Arc<Decider>,
    is_immediate: bool,
}

impl Limits {
    /// A builder without limits.
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder::new()
    }

    pub(crate) fn new(decider: Decider) -> Limits {
        Limits { is_immediate: decider.is_immediate(), decider: Arc::new(decider) }
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

    /// The store with the counts of this process. A key is the name of a limit, a colon, and the key of a request. If the
    /// limit has alternatives ([`Key::or`](crate::Key::or)), the number of the one that was used, from 1, and a colon stand
    /// before the key of the request.
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
    type Future = LimitFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if self.limits.is_immediate {
            let decided = {
                let deciding = pin!(self.limits.decider.decide(&parts));
                deciding.poll(&mut Context::from_waker(Waker::noop()))
            };
            let Poll::Ready(verdict) = decided else { unreachable!("nothing is waited for") };
            return LimitFuture { state: call(&mut self.inner, verdict, parts, body) };
        }
        // The service that is ready is called; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let decider = Arc::clone(&self.limits.decider);
        let waiting = Box::pin(async move {
            let verdict = decider.decide(&parts).await;
            LimitFuture { state: call(&mut inner, verdict, parts, body) }.await
        });
        LimitFuture { state: State::Waiting { waiting } }
    }
}

/// Lets a request through to the inner service, or answers it.
fn call<S, B, R>(inner: &mut S, verdict: Verdict, parts: Parts, body: B) -> State<S::Future, R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    match verdict {
        Verdict::Allow(fields) => {
            State::Called { response: inner.call(Request::from_parts(parts, body)), fields }
        }
        Verdict::Refuse(refusal) => {
            let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let is_grpc = content_type.is_some_and(|kind| kind.starts_with(b"application/grpc"));
            State::Refused { refusal: Some(refusal), is_grpc }
        }
    }
}

/// A response with its limits.
type Outcome<R, E> = Result<Response<LimitBody<R>>, E>;

pin_project! {
    /// The response of a [`LimitService`].
    pub struct LimitFuture<F, R, E> {
        #[pin]
        state: State<F, R, E>,
    }
}

pin_project! {
    #[project = StatePinned]
    enum State<F, R, E> {
        /// Keys are computed, or the server is asked.
        Waiting { waiting: Pin<Box<dyn Future<Output = Outcome<R, E>> + Send>> },
        /// The request is with the inner service.
        Called { #[pin] response: F, fields: Option<Fields> },
        /// It is not let through.
        Refused { refusal: Option<Refusal>, is_grpc: bool },
    }
}

impl<F, R, E> Future for LimitFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Outcome<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<R, E>> {
        match self.project().state.project() {
            StatePinned::Waiting { waiting } => waiting.as_mut().poll(cx),
            StatePinned::Called { response, fields } => response.poll(cx).map_ok(|response| {
                let mut response = response.map(LimitBody::inner);
                if let Some(fields) = fields.take() {
                    fields.add_to(response.headers_mut());
                }
                response
            }),
            StatePinned::Refused { refusal, is_grpc } => {
                let refusal = refusal.take().expect("a future is not polled after it is ready");
                Poll::Ready(Ok(refusal.into_response(*is_grpc)))
            }
        }
    }
}
