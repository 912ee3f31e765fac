//! The requests in progress of a listener. Each holds memory until its client has taken the answer, so their number is
//! bounded.
//!
//! When all places are taken, the connection is closed whose client keeps a request waiting and is the furthest behind the
//! least rate. HTTP/2 has many requests on a connection, so each request has a rate of its own here.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::dumps::discard;
use super::listener::{Link, Speaks};
use super::pace::{BYTES_A_LOOK, Pace};
use super::problem::problem;
use super::routes::HEALTH;
use crate::limits::{
    CONNECTIONS_SHARE, GRPC_CALLS_SHARE, HTTP_ANSWER_BYTES, HTTP_LOOK_EVERY, LEAST_GRPC_CALLS,
    MAX_GRPC_CONNECTIONS, MAX_HTTP_HEADERS, MAX_HTTP2_CONNECTIONS, MAX_HTTP2_STREAMS, MAX_WAITING_REQUESTS,
    PLACE_LOOKS, REQUEST_BYTES,
};
use crate::service::{Held, Service};

/// The requests of one kind that are in progress.
pub(in crate::protocol) struct Requests {
    speaks: Speaks,
    service: Arc<Service>,
    places: Arc<Semaphore>,
    /// Places for requests that wait for a place.
    waiting: Semaphore,
    open: Mutex<Vec<Arc<Progress>>>,
}

/// Marks a response whose body waits for something to happen, and not for its client.
#[derive(Clone, Copy)]
pub(super) struct MayBeSilent;

/// The number of requests over HTTP that may be in progress at once on a listener.
pub(super) fn most_requests(ceiling_bytes: u64) -> usize {
    let fit = ceiling_bytes / CONNECTIONS_SHARE / HTTP_ANSWER_BYTES as u64;
    let most = MAX_HTTP2_CONNECTIONS * MAX_HTTP2_STREAMS as usize;
    usize::try_from(fit).unwrap_or(most).clamp(Speaks::Http.most_connections(ceiling_bytes), most)
}

/// The number of calls over gRPC that may be in progress at once.
pub(in crate::protocol) fn most_calls(ceiling_bytes: u64) -> usize {
    let fit = ceiling_bytes / GRPC_CALLS_SHARE / REQUEST_BYTES as u64;
    let most = MAX_GRPC_CONNECTIONS * MAX_HTTP2_STREAMS as usize;
    usize::try_from(fit).unwrap_or(most).clamp(LEAST_GRPC_CALLS, most)
}

impl Requests {
    /// The requests of an HTTP listener.
    pub(super) fn of_http(service: &Arc<Service>) -> Arc<Requests> {
        Requests::new(Speaks::Http, most_requests(service.config.ceiling_bytes), service)
    }

    pub(in crate::protocol) fn new(speaks: Speaks, most: usize, service: &Arc<Service>) -> Arc<Requests> {
        Arc::new(Requests {
            speaks,
            service: Arc::clone(service),
            places: Arc::new(Semaphore::new(most)),
            waiting: Semaphore::new(MAX_WAITING_REQUESTS),
            open: Mutex::default(),
        })
    }

    /// Runs a request in a place of its own.
    ///
    /// # Errors
    /// There is none. The request is given back.
    pub(in crate::protocol) async fn run(
        self: &Arc<Requests>,
        pace: &Arc<Pace>,
        request: Request,
        next: impl AsyncFnOnce(Request) -> Response,
    ) -> Result<Response, Request> {
        let Some(open) = self.take(pace, request.version()).await else { return Err(request) };
        let open = Arc::new(open);
        let request = if request.body().is_end_stream() {
            request
        } else {
            let (way, open) = (Way::Arriving, Arc::clone(&open));
            request.map(|body| Body::new(Moving { body, way, open, _held: None }))
        };
        let mut response = next(request).await;
        if response.body().is_end_stream() {
            return Ok(response);
        }
        open.progress.is_at_the_client();
        let may_be_silent =
            self.speaks == Speaks::Grpc || response.extensions().get::<MayBeSilent>().is_some();
        let way = Way::Leaving { given_bytes: 0, may_be_silent };
        let _held = response.extensions_mut().remove();
        Ok(response.map(|body| Body::new(Moving { body, way, open, _held })))
    }

    async fn take(self: &Arc<Requests>, pace: &Arc<Pace>, version: Version) -> Option<OpenRequest> {
        let places = Arc::clone(&self.places);
        let place = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let has_ended_one = self.end_slowest();
                // Each connection of HTTP/1 has one request, and connections are bounded.
                let waiting = (version == Version::HTTP_2).then(|| self.waiting.try_acquire()).transpose();
                let may_wait = waiting.is_ok() && (has_ended_one || self.speaks == Speaks::Http);
                let mut place = pin!(places.acquire_owned());
                let mut looks = 0..if may_wait { PLACE_LOOKS } else { 0 };
                loop {
                    looks.next()?;
                    if let Ok(taken) = timeout(HTTP_LOOK_EVERY, place.as_mut()).await {
                        break taken.expect("the places are never closed");
                    }
                    self.end_slowest();
                }
            }
        };
        let progress = Arc::new(Progress { pace: Arc::clone(pace), state: Mutex::default() });
        progress.state().changed_look = pace.looks();
        self.open().push(Arc::clone(&progress));
        self.service.charge(0, REQUEST_BYTES);
        Some(OpenRequest { requests: Arc::clone(self), progress, _place: place })
    }

    /// Closes the connection whose client is the furthest behind. Returns whether there is one, or one is being closed.
    fn end_slowest(&self) -> bool {
        let open = self.open();
        if open.iter().any(|request| request.pace.is_ended()) {
            return true;
        }
        let behind = open.iter().map(|request| (request.behind_bytes(), request));
        // One that came within the last look may still catch up.
        match behind.max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > BYTES_A_LOOK) {
            Some((_, slowest)) => {
                slowest.pace.end();
                true
            }
            None => false,
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Progress>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a request over HTTP in a place of its own, or answers that there is none. What a monitor asks needs none: slow requests
/// never make a server look dead.
pub(super) async fn in_a_place(
    requests: &Arc<Requests>,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if request.headers().len() > MAX_HTTP_HEADERS {
        // The library only bounds those of HTTP/1.1 by their number.
        let detail = format!("the request has more than {MAX_HTTP_HEADERS} headers");
        return problem(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers", &detail);
    }
    let needs_none = HEALTH.contains(&request.uri().path()) && request.body().is_end_stream();
    let pace = request.extensions().get::<Link>().map(|link| Arc::clone(&link.pace));
    let Some(pace) = pace.filter(|pace| !needs_none && !pace.is_probe()) else { return next(request).await };
    let refused = match requests.run(&pace, request, next).await {
        Ok(response) => return response,
        Err(refused) => refused,
    };
    let (head, body) = refused.into_parts();
    discard(&head.headers, body).await;
    let mut response = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "busy",
        &"too many requests are in progress: try again later",
    );
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A request in progress, until it is dropped.
struct OpenRequest {
    requests: Arc<Requests>,
    progress: Arc<Progress>,
    _place: OwnedSemaphorePermit,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut open = self.requests.open();
        let index = open.iter().rposition(|request| Arc::ptr_eq(request, &self.progress));
        index.into_iter().for_each(|index| _ = open.swap_remove(index));
        drop(open);
        self.requests.service.charge(REQUEST_BYTES, 0);
    }
}

/// How far a request is.
struct Progress {
    pace: Arc<Pace>,
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    /// The server waits for the client.
    is_at_the_client: bool,
    /// The look in which this changed, or in which the client caught up.
    changed_look: u64,
    /// Bytes that the client moved since.
    moved_bytes: u64,
    /// How far the client was behind before.
    behind_bytes: u64,
}

impl ProgressState {
    fn behind_bytes(&self, look: u64) -> u64 {
        let due_bytes = if self.is_at_the_client { (look - self.changed_look) * BYTES_A_LOOK } else { 0 };
        (self.behind_bytes + due_bytes).saturating_sub(self.moved_bytes)
    }
}

impl Progress {
    fn is_at_the_client(&self) {
        self.note(true, 0);
    }

    fn is_at_us(&self) {
        self.note(false, 0);
    }

    /// The client has moved bytes, and the server goes on.
    fn moved(&self, bytes: usize) {
        self.note(false, bytes as u64);
    }

    fn note(&self, is_at_the_client: bool, moved_bytes: u64) {
        let look = self.pace.looks();
        let mut state = self.state();
        state.moved_bytes += moved_bytes;
        let behind_bytes = state.behind_bytes(look);
        *state = ProgressState { is_at_the_client, changed_look: look, moved_bytes: 0, behind_bytes };
    }

    /// By how much the client is behind the least rate, while the server waits for it.
    fn behind_bytes(&self) -> u64 {
        let state = self.state();
        if state.is_at_the_client && !self.pace.has_transfer() {
            state.behind_bytes(self.pace.looks())
        } else {
            0
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a request or of its response. The request keeps its place until the client has taken all of the response.
struct Moving {
    body: Body,
    way: Way,
    open: Arc<OpenRequest>,
    /// The charge for the answer.
    _held: Option<Arc<Held>>,
}

enum Way {
    /// The client sends it.
    Arriving,
    Leaving {
        /// Bytes of the last piece, which the client takes before more is asked for.
        given_bytes: usize,
        /// A stream of gRPC, or of events: when it gives nothing, it has nothing to send.
        may_be_silent: bool,
    },
}

impl HttpBody for Moving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Moving { body, way, open, .. } = &mut *self;
        let polled = Pin::new(body).poll_frame(cx);
        let progress = &open.progress;
        match (way, polled) {
            (Way::Arriving, polled) => {
                match &polled {
                    Poll::Pending => progress.is_at_the_client(),
                    Poll::Ready(Some(Ok(frame))) => progress.moved(frame.data_ref().map_or(0, Bytes::len)),
                    Poll::Ready(_) => progress.is_at_us(),
                }
                polled
            }
            (Way::Leaving { given_bytes, .. }, Poll::Ready(Some(Ok(frame)))) => {
                progress.moved(*given_bytes);
                progress.is_at_the_client();
                let _open = Arc::clone(open);
                let frame = frame.map_data(|bytes| Bytes::from_owner(Piece { bytes, _open }));
                *given_bytes = frame.data_ref().map_or(0, Bytes::len);
                Poll::Ready(Some(Ok(frame)))
            }
            // A stream has nothing to send. A long body of HTTP waits until the client has taken the last piece.
            (Way::Leaving { given_bytes, may_be_silent: true }, Poll::Pending) => {
                progress.moved(std::mem::take(given_bytes));
                Poll::Pending
            }
            (Way::Leaving { .. }, polled) => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A piece of a response, until the socket has taken it.
struct Piece {
    bytes: Bytes,
    _open: Arc<OpenRequest>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fixture::service;

    /// Runs a test on paused time, which advances when nothing else can run.
    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime").block_on(test);
    }

    fn charged_bytes(service: &Service) -> u64 {
        service.stats.connection_bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[test]
    fn a_request_waits_for_a_place() {
        run(async {
            let (service, pace) = (service(), Arc::<Pace>::default());
            let requests = Requests::new(Speaks::Http, 1, &service);
            let first = requests.take(&pace, Version::HTTP_2).await.expect("a place");
            assert_eq!(charged_bytes(&service), REQUEST_BYTES as u64);
            let (next, ()) = tokio::join!(requests.take(&pace, Version::HTTP_2), async { drop(first) });
            let _next = next.expect("its place is free");
            // The server works on that request for longer than another waits.
            assert!(requests.take(&pace, Version::HTTP_2).await.is_none());
            assert!(!pace.is_ended());
            let begun = tokio::time::Instant::now();
            let waiting = (0..MAX_WAITING_REQUESTS + 1).map(|_| requests.take(&pace, Version::HTTP_2));
            let waits = futures_util::future::select_all(waiting.map(Box::pin));
            let (refused, _, others) = waits.await;
            assert!(refused.is_none() && begun.elapsed() < HTTP_LOOK_EVERY, "one more than may wait");
            // The connections of HTTP/1 are bounded already.
            let over_http1 = requests.take(&pace, Version::HTTP_11);
            let (over_http1, others) = tokio::join!(over_http1, futures_util::future::join_all(others));
            assert!(over_http1.is_none() && others.iter().all(Option::is_none));
            let waited_looks = begun.elapsed().as_millis() / HTTP_LOOK_EVERY.as_millis();
            assert_eq!(waited_looks, PLACE_LOOKS as u128);
            assert_eq!(charged_bytes(&service), REQUEST_BYTES as u64);
        });
    }

    #[test]
    fn the_client_that_is_furthest_behind_gives_way() {
        run(async {
            let service = service();
            let requests = Requests::new(Speaks::Grpc, 3, &service);
            let paces = [(); 3].map(|()| Arc::<Pace>::default());
            let mut open = Vec::new();
            for pace in &paces {
                open.push(requests.take(pace, Version::HTTP_2).await.expect("a place"));
            }
            let look = |bytes: [Option<usize>; 3]| {
                for (request, bytes) in open.iter().zip(bytes) {
                    assert_eq!(request.progress.pace.look(), Ok(()));
                    bytes.iter().for_each(|bytes| request.progress.moved(*bytes));
                    request.progress.is_at_the_client();
                }
            };
            let fast = usize::try_from(BYTES_A_LOOK).expect("little");
            look([None, None, None]);
            for _ in 0..5 {
                look([Some(fast), Some(fast / 2), Some(fast - 1)]);
            }
            let behind = open.iter().map(|request| request.progress.behind_bytes() / BYTES_A_LOOK);
            assert_eq!(behind.collect::<Vec<_>>(), [0, 2, 0]);
            let next = async { requests.take(&paces[0], Version::HTTP_2).await };
            let (next, ()) = tokio::join!(next, async {
                assert_eq!(paces.each_ref().map(|pace| pace.is_ended()), [false, true, false]);
                drop(open.remove(1));
            });
            let _next = next.expect("a place");
            // Nobody is far behind: a call is refused at once.
            let begun = tokio::time::Instant::now();
            assert!(requests.take(&paces[0], Version::HTTP_2).await.is_none());
            assert!(begun.elapsed() < HTTP_LOOK_EVERY);
            // A client that the server works for is not behind, whatever the time.
            open[0].progress.is_at_us();
            (0..9).for_each(|_| assert_eq!(paces[0].look(), Ok(())));
            assert_eq!(open[0].progress.behind_bytes(), 0);
        });
    }
}
