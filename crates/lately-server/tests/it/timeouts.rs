//! Timeouts of HTTP clients, on paused time, which advances when the runtime is idle. RESP clients are served by threads in
//! real time; the unit tests of the event loop have their timeouts.

use std::future::Future;
use std::io;
use std::time::Duration;

use lately_server::limits::{DRAIN_TIMEOUT, HTTP_TIMEOUT};
use lately_server::{Config, Server, ServerError, Stopper};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::common::{Wire, config, standing_clock};

pub(crate) const MOMENT: Duration = Duration::from_secs(1);

pub(crate) struct Served {
    resp: std::net::SocketAddr,
    pub(crate) http: std::net::SocketAddr,
    pub(crate) stopper: Stopper,
    pub(crate) run: JoinHandle<Result<(), ServerError>>,
}

pub(crate) fn on_paused_time<F: Future<Output = ()>>(test: impl FnOnce(Served) -> F) {
    on_paused_time_with(config(), test);
}

pub(crate) fn on_paused_time_with<F: Future<Output = ()>>(config: Config, test: impl FnOnce(Served) -> F) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let server = Server::bind(config, standing_clock()).await.expect("a free port");
        let (resp, http, stopper) = (server.resp_address(), server.http_address(), server.stopper());
        test(Served { resp, http, stopper, run: tokio::spawn(server.run()) }).await;
    });
}

pub(crate) async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

impl Served {
    /// Runs a RESP client while time stands still. The runtime accepts the client, so everything that was sent to the server
    /// before has arrived at the end.
    pub(crate) async fn talk(&self, talk: impl FnOnce(&mut Wire) + Send + 'static) {
        let resp = self.resp;
        let talked = tokio::task::spawn_blocking(move || talk(&mut Wire::connect(resp))).await;
        talked.expect("no panic");
    }
}

/// Whether the connection is closed now. Does not wait.
pub(crate) fn is_closed(client: &TcpStream) -> bool {
    match client.try_read(&mut [0; 1]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

#[test]
fn a_stop_waits_for_half_a_request_but_not_for_long() {
    on_paused_time(|server| async move {
        let mut half = TcpStream::connect(server.http).await.expect("the server listens");
        half.write_all(b"GET /healthz HTT").await.expect("the server reads");
        pass(MOMENT).await;
        let stopped = Instant::now();
        server.stopper.stop();
        server.run.await.expect("the server does not panic").expect("it stops in order");
        let waited = stopped.elapsed();
        let most = DRAIN_TIMEOUT.min(HTTP_TIMEOUT);
        assert!((most - 2 * MOMENT..most + MOMENT).contains(&waited), "{waited:?}");
    });
}

#[test]
fn a_stop_does_not_wait_for_silent_http_clients() {
    on_paused_time(|server| async move {
        let silent = TcpStream::connect(server.http).await.expect("the server listens");
        pass(MOMENT).await;
        assert!(!is_closed(&silent));
        let stopped = Instant::now();
        server.stopper.stop();
        server.run.await.expect("the server does not panic").expect("it stops in order");
        assert!(stopped.elapsed() < MOMENT);
    });
}
