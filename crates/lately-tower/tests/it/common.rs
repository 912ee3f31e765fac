//! A web service with limits on a real socket, and a client that shows what it gets.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use lately::{Clock, ManualClock, Timestamp};
use lately_tower::{Limits, LimitsBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time of the clock, until it is moved.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_seconds(1_700_000_040).expect("in range")
}

/// A clock that stands until it is moved.
pub(crate) fn standing_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(now()))
}

/// Limits on a standing clock.
pub(crate) fn build(builder: LimitsBuilder) -> Limits {
    build_at(builder, &standing_clock())
}

pub(crate) fn build_at(builder: LimitsBuilder, clock: &Arc<ManualClock>) -> Limits {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    builder.clock(clock).build().expect("valid limits")
}

/// A service that answers `hello`, behind limits.
pub(crate) async fn serve(limits: &Limits) -> Web {
    Web::start(Router::new().route("/", get(|| async { "hello" })).layer(limits.layer())).await
}

/// A running service. It ends with the test.
#[derive(Clone, Copy)]
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
}

impl Web {
    pub(crate) async fn start(app: Router) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Web { address }
    }

    /// A service that does not know its peers.
    pub(crate) async fn start_without_peers(app: Router) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Web { address }
    }

    /// The answer to a request with these lines in its head.
    pub(crate) async fn get(&self, headers: &str) -> Answer {
        self.get_path("/", headers).await
    }

    pub(crate) async fn get_path(&self, path: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(head(path, headers).as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        Answer { head: head.to_lowercase(), body: body.to_owned() }
    }

    /// The statuses of requests that are sent at once, on one connection.
    pub(crate) async fn pipeline(&self, count: usize) -> Vec<u16> {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let open = "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(count - 1);
        stream.write_all((open + &head("/", "")).as_bytes()).await.expect("it reads");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.expect("it answers");
        answers.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().expect("a status")).collect()
    }

    /// The statuses of several requests, one after the other.
    pub(crate) async fn statuses(&self, requests: &[&str]) -> Vec<u16> {
        let mut statuses = Vec::new();
        for headers in requests {
            statuses.push(self.get(headers).await.status());
        }
        statuses
    }
}

/// The head of a request. The headers have newlines between them.
pub(crate) fn head(path: &str, headers: &str) -> String {
    let headers = headers.lines().map(|line| format!("{line}\r\n")).collect::<String>();
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n")
}

/// An answer, its head in lower case.
pub(crate) struct Answer {
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// All values of a header, with ` + ` between them.
    pub(crate) fn header(&self, name: &str) -> String {
        let lines = self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.collect::<Vec<_>>().join(" + ")
    }

    /// The status and what the client reads about limits.
    pub(crate) fn about_limits(&self) -> (u16, String, String, String) {
        let [policy, left, retry] = ["ratelimit-policy", "ratelimit", "retry-after"].map(|h| self.header(h));
        (self.status(), policy, left, retry)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}
