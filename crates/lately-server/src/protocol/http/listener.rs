//! The HTTP listeners. Each bounds its connections and the time of a request.
//!
//! Slow clients do not keep others out: when there are too many connections, the oldest that the server is waiting for
//! is closed, except for dumps and restores, which have a bound of their own.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service as HyperService;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use super::arrivals::{Arrival, Arrivals, Ways};
use super::heads::{Checked, Refusal, Start};
use super::http2_places::Http2Places;
use super::http2_requests::{Http2Connection, Http2Requests};
use super::pace::{Pace, TooSlow, Upload};
use super::problem::raw_problem;
use super::requests::{most_calls, most_requests};
use super::stream::Stream;
use crate::config::Config;
use crate::limits::{
    CONNECTIONS_SHARE, DRAIN_TIMEOUT, GRPC_CONNECTION_BYTES, GRPC_PING_EVERY, GRPC_PING_TIMEOUT,
    GRPC_STREAM_BYTES, GRPC_STREAM_SHARE, GRPC_UNARY_PART, HTTP_ANSWER_BYTES, HTTP_CONNECTION_BYTES,
    HTTP_LOOK_EVERY, HTTP_SEND_BYTES, HTTP_TIMEOUT, HTTP2_BODIES_SHARE, HTTP2_CONNECTION_BYTES,
    HTTP2_SEND_BYTES, HTTP2_STREAM_SHARE, HTTP2_STREAMS_SHARE, LEAST_HTTP_CONNECTIONS, LINGER, MAX_ARRIVALS,
    MAX_EVENT_STREAMS, MAX_GRPC_CONNECTIONS, MAX_HTTP_CONNECTIONS, MAX_HTTP_HEAD_BYTES, MAX_HTTP_HEADERS,
    MAX_HTTP2_CONNECTIONS, MAX_HTTP2_ERRORS, MAX_HTTP2_RESETS, MAX_HTTP2_STREAMS, MAX_PROBES, MOST_ENDED,
    TLS_BYTES,
};
use crate::pause::pause;
use crate::service::access::Principal;
use crate::service::caller::Caller;
use crate::service::sessions::Token;
use crate::service::{ChargedHttp, Service};
use crate::stopper::Stopper;
use crate::tls::CurrentTls;

/// What is spoken on a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaks {
    /// HTTP/1.1 and 2.
    Http,
    /// gRPC, over HTTP/2. Connections may be silent.
    Grpc,
}

impl Speaks {
    /// The connections of a listener at once.
    pub(super) fn most_connections(self, ceiling_bytes: u64) -> usize {
        let fit = match self {
            Speaks::Http => ceiling_bytes / CONNECTIONS_SHARE / HTTP_ANSWER_BYTES as u64,
            Speaks::Grpc => 0,
        };
        let fit = usize::try_from(fit).unwrap_or(MAX_HTTP_CONNECTIONS).min(MAX_HTTP_CONNECTIONS);
        fit.max(self.most_of_http2(ceiling_bytes))
    }

    /// Streams of events at once. Others have at least half of the places for connections, also of those for HTTP/2.
    pub(super) fn most_events(self, config: &Config) -> usize {
        let fit = self.most_connections(config.ceiling_bytes).min(config.max_http_connections);
        MAX_EVENT_STREAMS.min(fit.min(self.most_of_http2(config.ceiling_bytes)) / 2).max(1)
    }

    /// Those among them that may speak HTTP/2.
    fn most_of_http2(self, ceiling_bytes: u64) -> usize {
        let most = match self {
            Speaks::Http => MAX_HTTP2_CONNECTIONS,
            Speaks::Grpc => MAX_GRPC_CONNECTIONS,
        };
        let (bounds, share) = self.sent_ahead();
        let fit = ceiling_bytes / share / u64::from(*bounds.start());
        usize::try_from(fit).unwrap_or(most).clamp(LEAST_HTTP_CONNECTIONS, most)
    }

    /// Bytes that a client of HTTP/2 may send ahead on a connection, and the share of the ceiling that all of them have.
    fn sent_ahead(self) -> (RangeInclusive<u32>, u64) {
        match self {
            Speaks::Http => (HTTP2_CONNECTION_BYTES, HTTP2_BODIES_SHARE),
            Speaks::Grpc => (GRPC_CONNECTION_BYTES, CONNECTIONS_SHARE),
        }
    }

    /// What a connection is charged to the ceiling.
    fn connection_bytes(self, ceiling_bytes: u64, has_tls: bool) -> usize {
        let part = ceiling_bytes / CONNECTIONS_SHARE / self.most_connections(ceiling_bytes) as u64;
        let bytes = HTTP_CONNECTION_BYTES + if has_tls { TLS_BYTES } else { 0 };
        usize::try_from(part).unwrap_or(bytes).min(bytes)
    }

    fn pace(self) -> Pace {
        match self {
            Speaks::Http => Pace::default(),
            Speaks::Grpc => Pace::silent(),
        }
    }

    /// TLS with the protocols that clients may agree on. Those of gRPC insist on HTTP/2.
    fn tls(self, tls: &ServerConfig) -> Arc<ServerConfig> {
        let protocols: &[&[u8]] = match self {
            Speaks::Http => &[b"h2", b"http/1.1"],
            Speaks::Grpc => &[b"h2"],
        };
        let mut tls = tls.clone();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(tls)
    }
}

/// The connection of a request, for its handler.
#[derive(Clone)]
pub(in crate::protocol) struct Link {
    pub(in crate::protocol) pace: Arc<Pace>,
    pub(in crate::protocol) peer: IpAddr,
    /// The address of this machine that the peer connected to.
    pub(in crate::protocol) local: IpAddr,
    /// The connection, for logins.
    pub(in crate::protocol) caller: Arc<Caller>,
    /// What the client may do as its request begins. Where there are users, it is set for each request.
    pub(in crate::protocol) principal: Principal,
    /// The version of the users that this is of.
    pub(in crate::protocol) users_version: u64,
    /// The session that the request showed, instead of a password.
    pub(in crate::protocol) session: Option<Token>,
}

impl Link {
    pub(in crate::protocol) fn new(peer: SocketAddr, local: SocketAddr, speaks: Speaks) -> Link {
        let [peer, local] = [peer, local].map(|address| address.ip().to_canonical());
        let (pace, caller) = (Arc::new(speaks.pace()), Caller::new(peer));
        Link { pace, peer, local, caller, principal: Principal::Anyone, users_version: 0, session: None }
    }

    /// What the client may do now. The users may have been replaced since its request began.
    pub(in crate::protocol) fn standing(&self, service: &Service) -> Cow<'_, Principal> {
        service.users.current(&self.principal, self.users_version)
    }

    /// Whether the peer is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.peer.is_loopback() || self.peer == self.local
    }
}

/// The routes of a listener, and the steps before them. Each step is around all routes together: `Router::layer` would put it around
/// each route, and each layer of a route copies those inside it for each request.
pub(crate) type Routes = BoxCloneSyncService<Request, Response, Infallible>;

/// The routes, for the requests of one connection.
#[derive(Clone)]
struct Linked {
    routes: Routes,
    link: Link,
}

impl HyperService<Request<Incoming>> for Linked {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, mut request: Request<Incoming>) -> Answering {
        request.extensions_mut().insert(self.link.clone());
        let pace = Arc::clone(&self.link.pace);
        let (has_body, is_http2) = (!request.body().is_end_stream(), request.version() == Version::HTTP_2);
        if !has_body && !is_http2 {
            // Its client waits for the answer, and keeps its connection until then.
            pace.is_at_us();
        }
        // Routes are always ready.
        Answering { answer: self.routes.clone().call(request.map(Body::new)), pace, has_body, is_http2 }
    }
}

/// The answer to a request. A client that was answered has all its time again for its next request. One of HTTP/1 that sent a
/// body has no next request on this connection: most of what it sends may still be to come. Neither has one whose place another
/// waits for.
struct Answering {
    answer: <Routes as tower::Service<Request>>::Future,
    pace: Arc<Pace>,
    has_body: bool,
    is_http2: bool,
}

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(mut response) = ready!(self.answer.as_mut().poll(context));
        if !self.has_body && !self.is_http2 {
            self.pace.is_at_the_client();
        }
        if (!self.pace.renew() || self.has_body) && !self.is_http2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response))
    }
}

/// Serves until the stop, then finishes the requests under way.
pub(crate) async fn serve(
    (listener, speaks, service): (TcpListener, Speaks, Arc<Service>),
    routes: Routes,
    tls: Option<Arc<CurrentTls>>,
    stopper: Stopper,
) {
    let ceiling_bytes = service.config.ceiling_bytes;
    let fit = speaks.most_connections(ceiling_bytes);
    // They are fewer where the system has few files.
    let most_http = service.config.max_http_connections;
    let most = if speaks == Speaks::Http { fit.min(most_http) } else { fit };
    let waiting = MAX_ARRIVALS.min(most_http);
    let http2 = Http2::new(speaks, ceiling_bytes);
    let connection_bytes = speaks.connection_bytes(ceiling_bytes, tls.is_some());
    let serving = |most, is_for_probes| Serving {
        connections: Connections::new(most, http2.clone()),
        left: Arc::default(),
        is_for_probes,
        connection_bytes,
        service: Arc::clone(&service),
        routes: routes.clone(),
        tls: tls.clone(),
        stopper: stopper.clone(),
    };
    let (others, probes) = (serving(most, false), serving(MAX_PROBES, true));
    let (to_others, for_others) = mpsc::channel(waiting);
    let (to_probes, for_probes) = mpsc::channel(MAX_PROBES);
    let ways = Ways { others: to_others, probes: to_probes, left: Arc::clone(&others.left) };
    let arrivals = Arrivals::new(Arc::clone(&service), waiting, speaks == Speaks::Http && tls.is_none());
    tokio::join!(
        arrivals.run(listener, ways, stopper.clone()),
        others.run(speaks, for_others),
        probes.run(speaks, for_probes),
    );
}

/// Connections with a place, and what is needed to serve them.
struct Serving {
    connections: Connections,
    /// How many places are left.
    left: Arc<AtomicUsize>,
    is_for_probes: bool,
    /// What each is charged to the memory ceiling.
    connection_bytes: usize,
    service: Arc<Service>,
    routes: Routes,
    tls: Option<Arc<CurrentTls>>,
    stopper: Stopper,
}

impl Serving {
    /// Serves the connections that arrive until the stop, then finishes the requests under way.
    async fn run(mut self, speaks: Speaks, mut arrived: mpsc::Receiver<Arrival>) {
        let stopper = self.stopper.clone();
        loop {
            self.left.store(self.connections.left(), Relaxed);
            let arrival = tokio::select! {
                arrival = arrived.recv() => arrival,
                Some(_) = self.connections.running.join_next() => {
                    self.connections.forget_ended();
                    continue;
                }
                () = stopper.stopped() => break,
            };
            let Some(arrival) = arrival else { break };
            tokio::select! {
                () = self.connections.make_room() => self.add(arrival, speaks),
                () = stopper.stopped() => {
                    arrival.refuse(&self.service);
                    break;
                }
            }
        }
        arrived.close();
        while let Ok(arrival) = arrived.try_recv() {
            arrival.refuse(&self.service);
        }
        let drained = async { while self.connections.running.join_next().await.is_some() {} };
        let _ = timeout(DRAIN_TIMEOUT, drained).await;
    }

    fn add(&mut self, Arrival { socket, peer, .. }: Arrival, speaks: Speaks) {
        let Ok(local) = socket.local_addr() else { return };
        let link = Link::new(peer, local, speaks);
        if self.is_for_probes {
            link.pace.set_probe();
        }
        // If this fails, slow clients are only noticed later.
        let _ = socket2::SockRef::from(&socket).set_send_buffer_size(HTTP_SEND_BYTES);
        let stream = Stream::accept(socket, self.tls.as_ref().map(|tls| speaks.tls(&tls.get())));
        let charged = self.service.charge_http(self.connection_bytes);
        self.connections.add((link, charged), stream, &self.routes, &self.stopper);
    }
}

/// What connections of HTTP/2 need.
#[derive(Clone)]
struct Http2 {
    speaks: Speaks,
    ceiling_bytes: u64,
    places: Arc<Http2Places>,
}

impl Http2 {
    fn new(speaks: Speaks, ceiling_bytes: u64) -> Http2 {
        Http2 { speaks, ceiling_bytes, places: Http2Places::new(speaks.most_of_http2(ceiling_bytes)) }
    }

    /// The settings of a connection with these requests.
    fn builder(&self, requests: Http2Requests) -> http2::Builder<Http2Requests> {
        let mut builder = http2::Builder::new(requests);
        let (bounds, share) = self.speaks.sent_ahead();
        let part_bytes = self.ceiling_bytes / share / self.speaks.most_of_http2(self.ceiling_bytes) as u64;
        let connection_bytes =
            u32::try_from(part_bytes).unwrap_or(u32::MAX).clamp(*bounds.start(), *bounds.end());
        let (requests, stream_bytes) = match self.speaks {
            Speaks::Http => (most_requests(self.ceiling_bytes), connection_bytes / HTTP2_STREAM_SHARE),
            Speaks::Grpc => {
                builder
                    .timer(TokioTimer::new())
                    .keep_alive_interval(GRPC_PING_EVERY)
                    .keep_alive_timeout(GRPC_PING_TIMEOUT);
                let stream_bytes = (connection_bytes / GRPC_STREAM_SHARE).max(GRPC_STREAM_BYTES);
                (most_calls(self.ceiling_bytes) / GRPC_UNARY_PART, stream_bytes)
            }
        };
        let streams =
            u32::try_from(requests / HTTP2_STREAMS_SHARE).unwrap_or(u32::MAX).min(MAX_HTTP2_STREAMS);
        builder
            .max_header_list_size(u32::try_from(MAX_HTTP_HEAD_BYTES).expect("it is small"))
            .max_concurrent_streams(streams)
            .max_pending_accept_reset_streams(MAX_HTTP2_RESETS)
            .max_local_error_reset_streams(MAX_HTTP2_ERRORS)
            .initial_stream_window_size(stream_bytes)
            .initial_connection_window_size(connection_bytes)
            .max_send_buf_size(HTTP2_SEND_BYTES);
        builder
    }
}

/// The connections of a listener.
struct Connections {
    most: usize,
    http2: Http2,
    running: JoinSet<()>,
    /// The same connections, oldest first, without those that were closed for another. Some may have ended.
    oldest: VecDeque<(AbortHandle, Arc<Pace>)>,
}

impl Connections {
    fn new(most: usize, http2: Http2) -> Connections {
        Connections { most, http2, running: JoinSet::new(), oldest: VecDeque::new() }
    }

    /// How many may still come.
    fn left(&self) -> usize {
        self.most.saturating_sub(self.running.len())
    }

    /// Waits until there is room for another connection. Closes the oldest that the server is waiting for.
    async fn make_room(&mut self) {
        loop {
            // A connection that has ended keeps its memory until it is joined.
            while self.running.try_join_next().is_some() {}
            self.forget_ended();
            if self.left() > 0 {
                return;
            }
            self.oldest.retain(|(connection, _)| !connection.is_finished());
            let is_one_ending = self.oldest.len() < self.running.len();
            if !is_one_ending {
                if let Some(index) = self.oldest.iter().position(|(_, pace)| pace.may_go()) {
                    // A stall of the process may have left requests in the sockets: whoever has sent one has its turn first.
                    tokio::task::yield_now().await;
                    if !self.oldest[index].1.may_go() {
                        continue;
                    }
                    self.oldest.remove(index).iter().for_each(|(connection, _)| connection.abort());
                } else {
                    // All are at work for their clients: of those that would go on with another request, the oldest does not.
                    let _ = self.oldest.iter().any(|(_, pace)| pace.want());
                }
            }
            tokio::select! {
                _ = self.running.join_next() => {}
                () = pause(HTTP_LOOK_EVERY) => {}
            }
        }
    }

    /// Frees the memory of connections that have ended, once they are more than the open ones. A look at each end would be slow.
    fn forget_ended(&mut self) {
        if self.oldest.len() > 2 * self.running.len() + MOST_ENDED {
            self.oldest.retain(|(connection, _)| !connection.is_finished());
        }
    }

    fn add(
        &mut self,
        (link, charged): (Link, ChargedHttp),
        stream: impl Future<Output = io::Result<Stream>> + Send + 'static,
        routes: &Routes,
        stopper: &Stopper,
    ) {
        let pace = Arc::clone(&link.pace);
        let service = Linked { routes: routes.clone(), link };
        let client = (Arc::clone(&pace), self.http2.clone(), charged);
        let connection = self.running.spawn(serve_one(client, stream, service, stopper.clone()));
        self.oldest.push_back((connection, pace));
    }
}

/// Serves a client until it is too slow. A slow upload gets an error, and so does a target that is none.
async fn serve_one(
    (pace, http2, _charged): (Arc<Pace>, Http2, ChargedHttp),
    stream: impl Future<Output = io::Result<Stream>>,
    service: Linked,
    stopper: Stopper,
) {
    // At a stop, a handshake in progress is dropped. An error is the client's. A handshake counts as waiting for the client,
    // so that another connection can take its place.
    let mut accepted = None;
    let shaken = tokio::select! {
        shaken = while_it_keeps_up(&pace, async { accepted = stream.await.ok() }) => shaken,
        () = stopper.stopped() => return,
    };
    let (Ok(()), Some(mut socket)) = (shaken, accepted) else { return };
    let refusal = Mutex::new(None);
    let answer = answer((&mut socket, http2), service, stopper, &refusal);
    let answered = tokio::select! {
        answered = while_it_keeps_up(&pace, answer) => answered,
        () = pace.ended() => return,
    };
    let problem = match answered {
        Err((too_slow, Some(became))) => {
            let detail = format!("the server ended the upload: {too_slow}: {became}");
            raw_problem(StatusCode::REQUEST_TIMEOUT, "too slow", &detail)
        }
        Ok(()) => match refusal.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(refusal) => refusal.problem(),
            None => return,
        },
        Err((_, None)) => return,
    };
    // The server does not wait for a slow client.
    let _ = timeout(LINGER, async { socket.write_all(&problem).await.and(socket.shutdown().await) }).await;
    // Closing with unread input would reset the connection, and the client might lose the answer.
    let _ =
        timeout(LINGER, async { while socket.read(&mut [0; 4 << 10]).await.is_ok_and(|count| count > 0) {} })
            .await;
}

/// Waits for `answered` until the client is too slow.
///
/// # Errors
/// The client is too slow. If it can still get an error, what became of its upload.
async fn while_it_keeps_up(
    pace: &Pace,
    answered: impl Future<Output = ()>,
) -> Result<(), (TooSlow, Option<Upload>)> {
    let mut answered = pin!(answered);
    while timeout(HTTP_LOOK_EVERY, answered.as_mut()).await.is_err() {
        pace.look().map_err(|too_slow| (too_slow, pace.upload()))?;
    }
    Ok(())
}

/// Answers requests until the client ends. At a stop, it does not wait for a client that has sent nothing.
async fn answer(
    (socket, http2): (&mut Stream, Http2),
    service: Linked,
    stopper: Stopper,
    refusal: &Mutex<Option<Refusal>>,
) {
    let start = tokio::select! {
        start = timeout(HTTP_TIMEOUT, Start::read(socket)) => start,
        () = stopper.stopped() => return,
    };
    // An error is the client's: it has gone.
    let Ok(Ok(start)) = start else { return };
    let place = if start.is_http2 {
        tokio::select! {
            place = http2.places.take(&service.link.pace) => Some(place),
            () = stopper.stopped() => return,
        }
    } else {
        None
    };
    let io = TokioIo::new(Checked::new(socket, start, refusal));
    // An error is the client's: it has gone, or was answered.
    if place.is_some() {
        let requests = Http2Requests::default();
        let connection = http2.builder(requests.clone()).serve_connection(io, service);
        let mut connection = Http2Connection::new(connection, requests);
        tokio::select! {
            _ = &mut connection => return,
            () = stopper.stopped() => connection.inner().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let mut connection = pin!(http1_builder().serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stopper.stopped() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A client may close its sending half after the request, and still read the answer.
        .half_close(true)
        .max_header_size(MAX_HTTP_HEAD_BYTES)
        .max_buf_size(MAX_HTTP_HEAD_BYTES)
        .max_headers(MAX_HTTP_HEADERS);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fixture::{engine_of, service};
    use std::future::pending;

    /// Symptom: each connection that had ended took 9 KiB, without end: a server with a ceiling of 64 MiB took 209 MiB after 20,000
    /// of them. Cause: they were forgotten only once the listener had no room for another. Fix: they are forgotten as they end.
    #[test]
    fn connections_that_have_ended_are_forgotten() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (service, stopper) = (service(), Stopper::new());
            let routes = Routes::new(axum::Router::new());
            let http2 = Http2::new(Speaks::Http, service.config.ceiling_bytes);
            let mut connections = Connections::new(64, http2);
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            for _ in 0..200 {
                connections.make_room().await;
                let link = Link::new(address, address, Speaks::Http);
                let gone = async { Err(io::ErrorKind::ConnectionReset.into()) };
                connections.add((link, service.charge_http(1_000)), gone, &routes, &stopper);
                while connections.running.join_next().await.is_some() {}
                assert!(connections.oldest.len() <= MOST_ENDED + 1, "{}", connections.oldest.len());
            }
            // As many as were there at once.
            for _ in 0..60 {
                connections.make_room().await;
                let link = Link::new(address, address, Speaks::Http);
                connections.add((link, service.charge_http(1_000)), pending(), &routes, &stopper);
            }
            connections.running.abort_all();
            while connections.running.join_next().await.is_some() {
                connections.forget_ended();
            }
            assert!(connections.oldest.len() <= MOST_ENDED, "{}", connections.oldest.len());
        });
    }

    /// Symptom: clients that connected again and again took 10 MiB more than the ceiling allows. Cause: connections that had ended, or
    /// were closed for another, kept their memory until the listener had time for them. Fix: they leave before another comes.
    #[test]
    fn a_connection_comes_when_the_one_before_it_has_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (service, stopper) = (service(), Stopper::new());
            let routes = Routes::new(axum::Router::new());
            let http2 = Http2::new(Speaks::Http, service.config.ceiling_bytes);
            let mut connections = Connections::new(2, http2);
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            for count in 1..100 {
                connections.make_room().await;
                let link = Link::new(address, address, Speaks::Grpc);
                connections.add((link, service.charge_http(1_000)), pending(), &routes, &stopper);
                assert_eq!(connections.running.len(), count.min(2));
                assert_eq!(service.connection_bytes(), 1_000 * count.min(2) as u64);
            }
        });
    }

    /// Symptom: after a stall of two seconds, clients of kept connections that had sent a request were cut. Cause: new clients took
    /// their places before the server had looked at its sockets. Fix: who has sent something is served first.
    #[test]
    fn who_sent_a_request_during_a_stall_keeps_the_connection() {
        use std::io::{Read, Write};
        use std::net::TcpStream;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Time advances by the test alone, which is never idle.
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            // With it a listener has 64 connections.
            let low = Config { ceiling_bytes: 32 << 20, ..Config::default() };
            let (service, stopper) = (engine_of(low), Stopper::new());
            let most = Speaks::Http.most_connections(service.config.ceiling_bytes);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let router = axum::Router::new().route("/", axum::routing::get(async || "here"));
            let server = serve((listener, Speaks::Http, service), Routes::new(router), None, stopper);
            let server = tokio::spawn(server);
            let connect = || TcpStream::connect(address).expect("it listens");
            let ask = |client: &mut TcpStream| {
                client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the system takes it");
            };
            // Runs the server, with a look at each connection in each round. Returns how many clients have got an answer.
            let answered = async |clients: &mut [TcpStream]| {
                let mut answers = vec![String::new(); clients.len()];
                for _ in 0..50 {
                    tokio::time::advance(HTTP_LOOK_EVERY).await;
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                    for (client, answer) in clients.iter_mut().zip(&mut answers) {
                        client.set_nonblocking(true).expect("a socket");
                        // It would block, or the connection is closed.
                        _ = client.read_to_string(answer);
                    }
                }
                answers.iter().filter(|answer| answer.ends_with("here")).count()
            };
            let mut kept: Vec<TcpStream> = (0..most).map(|_| connect()).collect();
            kept.iter_mut().for_each(ask);
            assert_eq!(answered(&mut kept).await, most);
            // The server has a stall: it does nothing meanwhile.
            let mut new: Vec<TcpStream> = (0..most / 2).map(|_| connect()).collect();
            new.iter_mut().for_each(ask);
            kept.iter_mut().for_each(ask);
            assert_eq!(answered(&mut kept).await, most, "of those that were there before");
            assert_eq!(answered(&mut new).await, most / 2);
            server.abort();
        });
    }

    /// Symptom: clients that connected again and again kept `/healthz` waiting for seconds. Cause: a probe waited for a connection behind all of
    /// them. Fix: once all places are taken, the first bytes of a client show whether it gets one of those for probes.
    #[test]
    fn a_probe_is_answered_while_all_places_are_taken() {
        use std::io::{Read, Write};
        use std::net::TcpStream;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Time stands still: nobody loses a place.
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let few = Config { max_http_connections: 4, ..Config::default() };
            let (service, stopper) = (engine_of(few), Stopper::new());
            let served = Arc::clone(&service);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let here = || axum::routing::get(async || "here");
            let router = axum::Router::new().route("/", here()).route("/healthz", here());
            let server = serve((listener, Speaks::Http, service), Routes::new(router), None, stopper);
            let server = tokio::spawn(server);
            // What a client has got once the server has nothing more to do.
            let read = async |client: &mut TcpStream| {
                // The system may be late with what was sent.
                for _ in 0..20 {
                    std::thread::yield_now();
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                }
                let mut answer = String::new();
                client.set_nonblocking(true).expect("a socket");
                let is_open = client.read_to_string(&mut answer).is_err();
                (answer, is_open)
            };
            let send = async |text: &str| {
                let mut client = TcpStream::connect(address).expect("it listens");
                client.write_all(text.as_bytes()).expect("the system takes it");
                let answer = read(&mut client).await;
                (client, answer)
            };
            // Those that have sent nothing have no place, and time to send something. Then others come.
            let mut silent = Vec::new();
            for _ in 0..5 {
                silent.push(send("").await.0);
            }
            assert_eq!(read(&mut silent[0]).await, (String::new(), true));
            tokio::time::advance(HTTP_LOOK_EVERY).await;
            assert_eq!(read(&mut silent[0]).await, (String::new(), false), "the oldest of them is closed");
            assert_eq!(read(&mut silent[1]).await, (String::new(), true));
            drop(silent);
            let whole = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let (_kept, (answer, is_open)) = send(&whole("/")).await;
            assert!(answer.ends_with("here") && is_open, "{answer}");
            // Three more take the other places, and five wait: one of them is next.
            let mut others = Vec::new();
            for _ in 0..8 {
                let (client, answer) = send("GET / HTTP/1.1\r\n").await;
                assert_eq!(answer, (String::new(), true));
                others.push(client);
            }
            for path in ["/healthz"; 20] {
                let (_, (answer, is_open)) = send(&whole(path)).await;
                assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("here"), "{answer}");
                assert!(answer.contains("connection: close") && !is_open, "{answer}");
            }
            assert_eq!(served.stats.refused_http.load(Relaxed), 0);
            let (_, (answer, is_open)) = send(&whole("/")).await;
            assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
            assert!(answer.contains("too many connections") && !is_open, "{answer}");
            assert_eq!(served.stats.refused_http.load(Relaxed), 1);
            server.abort();
        });
    }

    #[test]
    fn connections_are_charged_within_a_share_of_the_ceiling() {
        let check = |speaks: Speaks, ceiling_mib: u64, has_tls, expected| {
            let bytes = speaks.connection_bytes(ceiling_mib << 20, has_tls);
            assert_eq!(bytes, expected, "{speaks:?} {ceiling_mib}");
            let all_bytes = (bytes * speaks.most_connections(ceiling_mib << 20)) as u64;
            assert!(all_bytes <= (ceiling_mib << 20) / CONNECTIONS_SHARE);
        };
        check(Speaks::Http, 1, false, 5_461);
        check(Speaks::Http, 8, true, 43_690);
        check(Speaks::Http, 16, false, HTTP_CONNECTION_BYTES);
        check(Speaks::Http, 1_024, true, HTTP_CONNECTION_BYTES + TLS_BYTES);
        check(Speaks::Grpc, 1, false, 5_461);
        check(Speaks::Grpc, 1_024, false, HTTP_CONNECTION_BYTES);
    }
}
