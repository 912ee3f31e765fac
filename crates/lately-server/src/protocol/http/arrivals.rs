//! Connections that a listener has accepted and that have no place yet.
//!
//! A connection gets a place once its client has sent something: one that says nothing keeps none from another. When all places are taken,
//! those who ask for health or metrics get one of a few others, so that a busy server never looks dead. The rest wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, ready};

use axum::http::StatusCode;
use tokio::io::ReadBuf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::{Instant, timeout};

use super::problem::raw_problem;
use super::routes::{HEALTH, METRICS};
use crate::limits::{ACCEPT_RETRY, ARRIVAL_BYTES, HTTP_LOOK_EVERY, HTTP_TIMEOUT};
use crate::pause::pause;
use crate::service::{ChargedHttp, Service};
use crate::stopper::Stopper;

/// Bytes of the head of a probe. A longer one waits with the others.
const PROBE_HEAD_BYTES: usize = 2 << 10;

/// Connections that are handed on in one turn. The queue behind has room for more: 64 at least.
const HANDED_ON_AT_ONCE: usize = 32;

/// A connection without a place.
pub(super) struct Arrival {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    first: First,
    _charged: ChargedHttp,
}

/// What a client sends first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    /// A whole request for health or metrics, over HTTP/1.
    Probe,
    /// Something else over HTTP/1.
    Http1,
    /// HTTP/2 or gRPC, or the server cannot read it yet: it is TLS.
    Other,
}

impl First {
    fn of(bytes: &[u8], is_http: bool) -> First {
        match is_http && !bytes.starts_with(b"PRI ") {
            true if is_probe(bytes) => First::Probe,
            true => First::Http1,
            false => First::Other,
        }
    }
}

impl Arrival {
    /// Answers that there is no place, and closes the connection.
    pub(super) fn refuse(self, service: &Service) {
        service.stats.refused_http.fetch_add(1, Relaxed);
        if self.first != First::Other {
            // Unread input would reset the connection, and the client might lose the answer. If any of this fails, it does.
            let mut bytes = [0; 4 << 10];
            let _ = (0..16).all(|_| self.socket.try_read(&mut bytes).is_ok_and(|count| count == bytes.len()));
            let detail = "too many connections: try again later";
            let _ = self.socket.try_write(&raw_problem(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail));
        }
    }
}

/// Where connections go on from here. Each way has room for some.
pub(super) struct Ways {
    pub(super) others: mpsc::Sender<Arrival>,
    pub(super) probes: mpsc::Sender<Arrival>,
    /// How many places others have left.
    pub(super) left: Arc<AtomicUsize>,
}

/// The connections of a listener that have sent nothing yet.
pub(super) struct Arrivals {
    service: Arc<Service>,
    /// Whether clients speak HTTP without TLS, so that the server can read what they send first.
    is_http: bool,
    most: usize,
    silent: JoinSet<Option<Arrival>>,
    /// The same connections, and when they came, oldest first, without those that were closed for another. Some may have ended.
    oldest: VecDeque<(Instant, AbortHandle)>,
}

impl Arrivals {
    pub(super) fn new(service: Arc<Service>, most: usize, is_http: bool) -> Arrivals {
        Arrivals { service, most, is_http, silent: JoinSet::new(), oldest: VecDeque::new() }
    }

    /// Accepts connections until the stop, and hands on those that have sent something.
    pub(super) async fn run(mut self, listener: TcpListener, ways: Ways, stopper: Stopper) {
        // The system had no file for a connection, or the client was gone. The end of a connection frees a file.
        let mut retry_at = Instant::now();
        let mut handed_on = 0_usize;
        loop {
            let mut has_room = self.has_room();
            if has_room && self.oldest.len() >= self.most {
                // A stall of the process may have left requests in the sockets: whoever has sent one has its turn first.
                yield_now().await;
                has_room = self.has_room();
            }
            let wait = retry_at.saturating_duration_since(Instant::now());
            let may_accept = has_room && wait.is_zero();
            tokio::select! {
                biased;
                () = stopper.stopped() => return,
                Some(arrived) = self.silent.join_next() => {
                    if let Ok(Some(arrival)) = arrived {
                        self.hand_on(arrival, &ways);
                        handed_on += 1;
                        // Else those that have places would not get to take them, and the ways would be full.
                        if handed_on.is_multiple_of(HANDED_ON_AT_ONCE) {
                            yield_now().await;
                        }
                    }
                }
                accepted = listener.accept(), if may_accept => match accepted {
                    Ok((socket, peer)) => self.add(socket, peer),
                    Err(_) => retry_at = Instant::now() + ACCEPT_RETRY,
                },
                () = pause(wait.max(HTTP_LOOK_EVERY)), if !may_accept => {}
            }
        }
    }

    /// Whether another connection may come. Those that came a moment ago have time to send something: the system keeps the others.
    fn has_room(&mut self) -> bool {
        if self.oldest.len() < self.most {
            return true;
        }
        self.oldest.retain(|(_, connection)| !connection.is_finished());
        let oldest = self.oldest.front().filter(|_| self.oldest.len() >= self.most);
        oldest.is_none_or(|(came, _)| came.elapsed() >= HTTP_LOOK_EVERY)
    }

    /// Waits for the first bytes of a client. Closes the connection that has sent nothing for the longest, if there are too many.
    fn add(&mut self, socket: TcpStream, peer: SocketAddr) {
        if self.oldest.len() >= self.most {
            self.oldest.pop_front().iter().for_each(|(_, connection)| connection.abort());
        }
        let charged = self.service.charge_http(ARRIVAL_BYTES);
        let is_http = self.is_http;
        let arrives = async move {
            let shows = poll_fn(|context| {
                let mut bytes = [0; PROBE_HEAD_BYTES];
                let mut first = ReadBuf::new(&mut bytes);
                let count = ready!(socket.poll_peek(context, &mut first));
                // An error, or nothing: the client has gone.
                let has_some = count.is_ok_and(|count| count > 0);
                Poll::Ready(has_some.then(|| First::of(first.filled(), is_http)))
            });
            let first = timeout(HTTP_TIMEOUT, shows).await.ok()??;
            Some(Arrival { socket, peer, first, _charged: charged })
        };
        self.oldest.push_back((Instant::now(), self.silent.spawn(arrives)));
    }

    fn hand_on(&self, arrival: Arrival, ways: &Ways) {
        let waiting = ways.others.max_capacity() - ways.others.capacity();
        let is_urgent = arrival.first == First::Probe && waiting >= ways.left.load(Relaxed);
        let way = if is_urgent && ways.probes.capacity() > 0 { &ways.probes } else { &ways.others };
        if let Err(mpsc::error::TrySendError::Full(arrival)) = way.try_send(arrival) {
            arrival.refuse(&self.service);
        }
    }
}

/// Whether these bytes are a whole request for health or metrics.
fn is_probe(first: &[u8]) -> bool {
    if !first.ends_with(b"\r\n\r\n") {
        return false;
    }
    let target = first.strip_prefix(b"GET ").or_else(|| first.strip_prefix(b"HEAD "));
    target.is_some_and(|target| {
        HEALTH.iter().chain([&METRICS]).any(|path| {
            let after = target.strip_prefix(path.as_bytes());
            after.is_some_and(|after| matches!(after.first(), Some(b' ' | b'?')))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_requests_for_health_and_metrics_are_probes() {
        for probe in [
            "GET /healthz HTTP/1.1",
            "GET /readyz HTTP/1.0",
            "HEAD /healthz HTTP/1.1",
            "GET /metrics?x=1 HTTP/1.1",
        ] {
            assert!(is_probe(format!("{probe}\r\nHost: a\r\n\r\n").as_bytes()), "{probe}");
            assert!(!is_probe(format!("{probe}\r\nHost: a\r\n").as_bytes()), "{probe}");
        }
        for other in
            ["GET /health", "GET /metricsx ", "POST /healthz ", "G", "", "GET / HTTP/1.1", "\u{16}\u{3}\u{1}"]
        {
            assert!(!is_probe(format!("{other}\r\n\r\n").as_bytes()), "{other}");
        }
    }
}
