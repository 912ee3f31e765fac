//! A web service on axum, with the layer of `lately-tower` and without.
//!
//! The service has one thread, and its processor time is measured: a client on another thread does not count. Of the crates
//! that limit by a Tower layer, `tower_governor` is not compared here: it needs older versions of `thiserror` and `rand`. In a
//! program of its own, with this load, version 0.8 with headers had 0.90 where this layer had 0.82.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::Router;
use axum::routing::get;
use lately_tower::{Limits, by_client_address, minutes};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::scale::Scale;
use crate::clock::nanos_of;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::table::number;

/// Connections, which are kept. Each has one request at a time.
const CONNECTIONS: usize = 50;

/// Addresses of clients, which a proxy names.
const CLIENTS: usize = 1 << 16;

/// No client comes near it: every request is let through.
const MAX: u64 = 1_000_000;

/// The body of a response, at the end of its bytes.
const BODY: &str = "hello";

pub(super) fn rows(scale: &Scale) -> Vec<Row> {
    let requests = scale.ops / 4;
    let limits = Limits::builder()
        .limit("ip", by_client_address(), MAX, minutes(1))
        .trusted_proxies(["127.0.0.1"])
        .build()
        .expect("valid limits");
    let bare = || Router::new().route("/", get(|| async { BODY }));
    let limited = bare().layer(limits.layer());
    let bare = bare();
    let contenders = &mut [
        Contender::new("with", || nanos_a_request(limited.clone(), requests)),
        Contender::new("without", || nanos_a_request(bare.clone(), requests)),
    ];
    let figures = interleave(contenders, scale.rounds);
    // Requests a second of processor time are the inverse of the time of a request.
    let ratio = median_ratio(&figures[1], &figures[0]);
    let name = "requests a second of an axum handler with the layer ÷ without";
    let [with, without] = [0, 1].map(|index| number(median(&figures[index]) / 1e3));
    let note = format!("processor time {with} µs a request, {without} µs without");
    vec![Row::new("library", name, ratio, "×", Must::AtLeast(0.95, 0.97)).note(note)]
}

/// The processor time of the service for each request, in nanoseconds.
fn nanos_a_request(app: Router, requests: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (end, ended) = oneshot::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            load(address, requests);
            end.send(()).expect("the service runs");
        });
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let nanos = nanos_of(|| {
            runtime.block_on(async {
                tokio::spawn(async { axum::serve(listener, service).await });
                ended.await.expect("the client does not panic");
            });
        });
        nanos / requests as f64
    })
}

/// Sends requests, and reads all responses.
fn load(address: SocketAddr, requests: usize) {
    let connect = |_| {
        let socket = TcpStream::connect(address).expect("the service listens");
        socket.set_nodelay(true).expect("a socket");
        socket
    };
    let mut sockets: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    let mut response = [0; 1_024];
    for first in (0..requests).step_by(CONNECTIONS) {
        let round = &mut sockets[..CONNECTIONS.min(requests - first)];
        for (index, socket) in round.iter_mut().enumerate() {
            // Not in the order of their numbers.
            let client = (first + index).wrapping_mul(40_503) % CLIENTS;
            let (high, low) = (client >> 8, client & 255);
            let request =
                format!("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 198.18.{high}.{low}\r\n\r\n");
            socket.write_all(request.as_bytes()).expect("the service reads");
        }
        for socket in round {
            let mut filled = 0;
            while !response[..filled].ends_with(BODY.as_bytes()) {
                let read = socket.read(&mut response[filled..]).expect("the service answers");
                assert!(read > 0, "the service closed a connection");
                filled += read;
            }
            assert!(response.starts_with(b"HTTP/1.1 200 "), "the service denied a request");
        }
    }
}
