//! How long the server waits for its clients, on a time that passes when nobody has anything to do.

use std::future::Future;
use std::io;
use std::time::Duration;

use lately_server::limits::{DEFAULT_IDLE_TIMEOUT, DRAIN_TIMEOUT, WRITE_TIMEOUT};
use lately_server::{Server, ServerError, Stopper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::common::{config, standing_clock};

pub(crate) const MOMENT: Duration = Duration::from_secs(1);

pub(crate) struct Served {
    resp: std::net::SocketAddr,
    pub(crate) http: std::net::SocketAddr,
    pub(crate) stopper: Stopper,
    pub(crate) run: JoinHandle<Result<(), ServerError>>,
}

pub(crate) fn on_paused_time<F: Future<Output = ()>>(test: impl FnOnce(Served) -> F) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let server = Server::bind(config(), standing_clock()).await.expect("a free port");
        let (resp, http, stopper) = (server.resp_address(), server.http_address(), server.stopper());
        test(Served { resp, http, stopper, run: tokio::spawn(server.run()) }).await;
    });
}

pub(crate) async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

pub(crate) async fn connect(server: &Served) -> TcpStream {
    connect_by(TcpSocket::new_v4().expect("a socket"), server).await
}

async fn connect_by(socket: TcpSocket, server: &Served) -> TcpStream {
    let mut client = socket.connect(server.resp).await.expect("the server listens");
    client.write_all(b"PING\r\n").await.expect("the server reads");
    let mut reply = [0; 7];
    client.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
    client
}

/// A client that has asked for more than its socket holds.
async fn greedy(server: &Served) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Where a system has room for more as more comes, it takes replies for a while though the client does not.
    socket.set_recv_buffer_size(16 << 10).expect("a socket");
    let mut client = connect_by(socket, server).await;
    client.write_all(&b"SERIES k 1w 10s\r\n".repeat(40)).await.expect("the server reads");
    client
}

/// Whether the connection has come to its end: nothing is waited for.
pub(crate) fn is_closed(client: &TcpStream) -> bool {
    match client.try_read(&mut [0; 1]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

#[test]
fn the_silent_are_disconnected_after_an_hour() {
    on_paused_time(|server| async move {
        let client = connect(&server).await;
        pass(DEFAULT_IDLE_TIMEOUT - MOMENT).await;
        assert!(!is_closed(&client));
        pass(2 * MOMENT).await;
        assert!(is_closed(&client));
    });
}

/// The timer that looks for the silent is late then, and says when it should have come.
#[test]
fn who_comes_after_a_stall_is_not_taken_for_silent() {
    on_paused_time(|server| async move {
        tokio::time::advance(2 * DEFAULT_IDLE_TIMEOUT).await;
        let mut client = connect(&server).await;
        for _ in 0..5 {
            pass(MOMENT).await;
            assert!(!is_closed(&client));
        }
        client.write_all(b"PING\r\n").await.expect("the server reads");
        assert_eq!(client.read(&mut [0; 7]).await.expect("a reply"), 7);
    });
}

#[test]
fn who_takes_no_replies_is_disconnected() {
    on_paused_time(|server| async move {
        let mut greedy = greedy(&server).await;
        pass(WRITE_TIMEOUT - MOMENT).await;
        let mut other = connect(&server).await;
        let mut clients = async || {
            other.write_all(b"INFO clients\r\n").await.expect("the server reads");
            let mut reply = vec![0; 1_000];
            let bytes = other.read(&mut reply).await.expect("a reply");
            String::from_utf8_lossy(&reply[..bytes]).into_owned()
        };
        assert!(clients().await.contains("\r\nconnected_clients:2\r\n"));
        pass(2 * MOMENT).await;
        assert!(clients().await.contains("\r\nconnected_clients:1\r\n"));
        // What the socket held can still be read, and no more: the connection is cut.
        let mut taken = Vec::new();
        let _ = greedy.read_to_end(&mut taken).await;
        assert!(taken.len() < 40 * 60_480 * "*2\r\n:1700000000\r\n:0\r\n".len());
    });
}

#[test]
fn a_stop_waits_for_slow_clients_but_not_for_long() {
    on_paused_time(|server| async move {
        let _greedy = greedy(&server).await;
        let mut half = TcpStream::connect(server.http).await.expect("the server listens");
        half.write_all(b"GET /healthz HTT").await.expect("the server reads");
        pass(MOMENT).await;
        let stopped = Instant::now();
        server.stopper.stop();
        server.run.await.expect("the server does not panic").expect("it stops in order");
        let waited = stopped.elapsed();
        assert!((DRAIN_TIMEOUT..DRAIN_TIMEOUT + MOMENT).contains(&waited), "{waited:?}");
    });
}

#[test]
fn a_stop_does_not_wait_for_the_idle() {
    on_paused_time(|server| async move {
        let _idle = connect(&server).await;
        let silent = TcpStream::connect(server.http).await.expect("the server listens");
        pass(MOMENT).await;
        assert!(!is_closed(&silent));
        let stopped = Instant::now();
        server.stopper.stop();
        server.run.await.expect("the server does not panic").expect("it stops in order");
        assert!(stopped.elapsed() < MOMENT);
    });
}
