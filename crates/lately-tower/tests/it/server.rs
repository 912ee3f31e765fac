//! A real Lately server that decides for several processes, and what happens without it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lately::{ManualClock, SystemClock, days, minutes};
use lately_server::{Config, Server, ServerError as ServerFailure, Stopper};
use lately_tower::limits::SERVER_PAUSE;
use lately_tower::{Away, DecideError, Limits, LimitsBuilder, ServerError, by_client_address, by_header};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::common::{Web, build, build_at, serve, standing_clock};

/// A running Lately server.
struct Lately {
    address: SocketAddr,
    stopper: Stopper,
    run: JoinHandle<Result<(), ServerFailure>>,
}

impl Lately {
    async fn start() -> Lately {
        Lately::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    async fn start_at(resp: SocketAddr) -> Lately {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { resp, http: free, grpc: free, ..Config::default() };
        let server = Server::bind(config, Arc::new(SystemClock::new())).await.expect("a free port");
        let (address, stopper) = (server.resp_address(), server.stopper());
        Lately { address, stopper, run: tokio::spawn(server.run()) }
    }

    /// A connection that connects again.
    async fn connect(&self) -> ConnectionManager {
        let client = redis::Client::open(format!("redis://{}", self.address)).expect("a URL");
        let config = ConnectionManagerConfig::new().set_max_delay(Duration::from_millis(20));
        client.get_connection_manager_with_config(config).await.expect("it listens")
    }

    /// Ends it. Its connections are closed, and its counts are lost.
    async fn end(self) {
        self.stopper.stop();
        self.run.await.expect("it does not panic").expect("it stops in order");
    }
}

fn limit_of_three() -> LimitsBuilder {
    Limits::builder().limit("ip", by_client_address(), 3, minutes(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_limits_of_a_server() {
    let lately = Lately::start().await;
    let builder = limit_of_three().limit("key", by_header("x-api-key"), 1, days(1));
    let one = serve(&build(builder.server(lately.connect().await, Away::Deny))).await;
    let builder = limit_of_three().limit("key", by_header("x-api-key"), 1, days(1));
    let builder = builder.shadow("strict", by_client_address(), 1, minutes(1));
    let limits = build(builder.server(lately.connect().await, Away::Deny));
    let two = serve(&limits).await;

    let first = one.get("x-api-key: a").await;
    assert_eq!(first.header("ratelimit-policy"), "\"ip\";q=3;w=60, \"key\";q=1;w=86400");
    assert_eq!(first.header("ratelimit"), "\"ip\";r=2, \"key\";r=0");
    // All or nothing, also there.
    let denied = two.get("x-api-key: a").await;
    assert_eq!((denied.status(), denied.header("retry-after").as_str()), (429, "86400"));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["key"]));
    assert_eq!(two.statuses(&["", "", ""]).await, [200, 200, 429]);
    assert_eq!(one.get("").await.status(), 429);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 1), ("key", 1), ("strict", 1)]);
    lately.end().await;
}

/// Lockouts are kept by the server, so that all processes know them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_lockouts() {
    let lately = Lately::start().await;
    let mut webs = Vec::new();
    for _ in 0..2 {
        let builder = limit_of_three().limit("key", by_header("x-api-key"), 1, minutes(1));
        let builder = builder.lockout("key", minutes(10)).exempt("ip", ["ip:no*"]);
        webs.push(serve(&build(builder.server(lately.connect().await, Away::Deny))).await);
    }
    assert_eq!(webs[0].statuses(&["x-api-key: a"]).await, [200]);
    for web in &webs {
        let denied = web.get("x-api-key: a").await;
        assert_eq!((denied.status(), denied.header("retry-after").as_str()), (429, "600"));
    }
    // Neither the lockout nor the denial counts for the other limit.
    assert_eq!(webs[1].statuses(&["", "", ""]).await, [200, 200, 429]);
    lately.end().await;
}

/// A service whose server ends after two of three requests, and how many errors were reported.
async fn without_server(away: Away) -> (Web, Limits, Arc<ManualClock>, SocketAddr, Arc<AtomicU64>) {
    let lately = Lately::start().await;
    let (errors, clock) = (Arc::new(AtomicU64::new(0)), standing_clock());
    let counted = Arc::clone(&errors);
    let builder = limit_of_three().server(lately.connect().await, away).on_error(move |error| {
        assert!(matches!(error, DecideError::Server(_)), "{error}");
        counted.fetch_add(1, Relaxed);
    });
    let limits = build_at(builder, &clock);
    let web = serve(&limits).await;
    assert_eq!(web.statuses(&["", ""]).await, [200, 200]);
    let address = lately.address;
    lately.end().await;
    (web, limits, clock, address, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_let_through_when_the_server_is_away() {
    let (web, _, _, _, errors) = without_server(Away::Allow).await;
    for _ in 0..5 {
        assert_eq!(web.get("").await.about_limits(), (200, String::new(), String::new(), String::new()));
    }
    // It is asked once a second, and the clock stands.
    assert_eq!(errors.load(Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused_when_the_server_is_away() {
    let (web, limits, _, _, errors) = without_server(Away::Deny).await;
    for _ in 0..5 {
        let refused = web.get("").await;
        assert_eq!((refused.status(), refused.header("retry-after").as_str()), (503, "1"));
        assert_eq!(refused.json()["title"], "service unavailable");
    }
    assert_eq!(errors.load(Relaxed), 1);
    // No limit denied them.
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_decides_when_the_server_is_away() {
    let (web, _, _, _, errors) = without_server(Away::Local).await;
    // The two that the server had allowed count.
    let third = web.get("").await;
    assert_eq!((third.status(), third.header("ratelimit").as_str()), (200, "\"ip\";r=0;t=60"));
    assert_eq!(web.statuses(&["", ""]).await, [429, 429]);
    assert_eq!(errors.load(Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_returns_decides_again() {
    let (web, _, clock, address, _) = without_server(Away::Deny).await;
    assert_eq!(web.get("").await.status(), 503);
    let lately = Lately::start_at(address).await;
    // It is not asked before the pause is over.
    assert_eq!(web.get("").await.status(), 503);
    let mut status = 503;
    while status == 503 {
        clock.advance(SERVER_PAUSE);
        status = web.get("").await.status();
    }
    assert_eq!(status, 200);
    // It had lost its counts.
    assert_eq!(web.statuses(&["", "", ""]).await, [200, 200, 429]);
    lately.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let client = redis::Client::open(format!("redis://{address}")).expect("a URL");
    // What stands in for it answers the handshake only.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connect = client.get_multiplexed_async_connection_with_config(&config);
    let timeouts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&timeouts);
    let answers = tokio::spawn(answer_handshake(listener));
    let connection = connect.await.expect("it accepts");
    let builder = limit_of_three().server(connection, Away::Allow).server_timeout(Duration::from_millis(20));
    let limits = build(builder.on_error(move |error| {
        assert!(matches!(error, DecideError::Server(ServerError::Timeout)), "{error}");
        counted.fetch_add(1, Relaxed);
    }));
    assert_eq!(serve(&limits).await.statuses(&["", "", "", ""]).await, [200; 4]);
    assert_eq!(timeouts.load(Relaxed), 1);
    answers.abort();
}

/// Answers what a client sends when it connects, and nothing else.
async fn answer_handshake(listener: TcpListener) {
    let (mut socket, _) = listener.accept().await.expect("a client");
    let mut bytes = [0; 4_096];
    loop {
        let read = socket.read(&mut bytes).await.expect("bytes");
        let sent = String::from_utf8_lossy(&bytes[..read]);
        if read == 0 {
            return;
        }
        for _ in 0..sent.matches("CLIENT").count() {
            socket.write_all(b"+OK\r\n").await.expect("it reads");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_is_asked_again_at_once() {
    let lately = Lately::start().await;
    let errors = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&errors);
    // The server keeps hits for a week.
    let builder = Limits::builder().limit("ip", by_client_address(), 3, days(8));
    let limits = build(builder.server(lately.connect().await, Away::Local).on_error(move |error| {
        assert!(error.to_string().contains("invalid window 8d"), "{error}");
        counted.fetch_add(1, Relaxed);
    }));
    assert_eq!(serve(&limits).await.statuses(&["", "", "", ""]).await, [200, 200, 200, 429]);
    assert_eq!(errors.load(Relaxed), 4);
    lately.end().await;
}
