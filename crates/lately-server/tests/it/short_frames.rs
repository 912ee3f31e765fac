//! A client of HTTP/2: short lines, each in a frame of its own, as fast as the server lets it; a dump and a restore.

use std::convert::Infallible;
use std::io::{Read, Write};

use axum::body::{Body, Bytes};
use futures_util::stream;
use hyper::client::conn::http2::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lately_server::Config;
use tokio::net::TcpStream;

use crate::common::{Running, config, standing_clock};

/// Symptom: such a client could get GOAWAY `too_many_data_frames`. Cause: it could send ahead more short frames than the library
/// tolerates. Fix: the window of a stream is so small that it cannot.
#[test]
fn short_lines_may_come_each_in_a_frame() {
    [config().ceiling_bytes, 64 << 20, 16 << 20].into_iter().for_each(short_lines_come);
}

fn short_lines_come(ceiling_bytes: u64) {
    const LINES: usize = 100_000;
    let server = Running::with(Config { ceiling_bytes, ..config() }, standing_clock());
    let answer = server.block_on(async {
        let socket = TcpStream::connect(server.http).await.expect("it listens");
        let (mut client, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(socket)).await.expect("it speaks HTTP/2");
        let asked = async {
            let request = |method: &str, path: &str, body: Body| {
                Request::builder().method(method).uri(format!("http://localhost{path}")).body(body)
            };
            // The answer to this comes after the settings of the server.
            let first = request("GET", "/healthz", Body::empty()).expect("a request");
            assert_eq!(client.send_request(first).await.expect("an answer").status(), StatusCode::OK);
            let lines = (0..LINES).map(|_| Ok::<_, Infallible>(Bytes::from_static(b"{\"key\":\"k\"}\n")));
            let body = Body::from_stream(stream::iter(lines));
            let request = request("POST", "/v1/hits", body).expect("a request");
            let answer = client.send_request(request).await.expect("the connection is not closed");
            assert_eq!(answer.status(), StatusCode::OK);
            axum::body::to_bytes(Body::new(answer.into_body()), 1_000).await.expect("an answer")
        };
        tokio::select! {
            answer = asked => answer,
            ended = connection => panic!("{ended:?}"),
        }
    });
    assert_eq!(
        &answer[..],
        format!("{{\"accepted\":{LINES},\"rejected_lines\":0,\"rejected\":[]}}").as_bytes()
    );
}

/// Symptom: httpx failed with `Cannot send … bytes, flow control window is -21845`. Cause: the server let a client send less on a
/// stream than it may before it knows the settings of the server. So its window was below 0. Fix: at the default ceiling it may send
/// that much.
#[test]
fn a_client_may_send_as_much_as_before_it_knows_the_settings() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    for ceiling_bytes in [config().ceiling_bytes, 4 << 30] {
        let server = Running::with(Config { ceiling_bytes, ..config() }, standing_clock());
        let mut socket = std::net::TcpStream::connect(server.http).expect("it listens");
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it reads");
        let mut head = [0; 9];
        socket.read_exact(&mut head).expect("a frame");
        assert_eq!(head[3], 4, "the first frame has the settings");
        let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        socket.read_exact(&mut settings).expect("settings");
        let window = settings.chunks_exact(6).find(|of| of[..2] == INITIAL_WINDOW_SIZE.to_be_bytes());
        let window = window.map_or(65_535, |of| u32::from_be_bytes([of[2], of[3], of[4], of[5]]));
        assert!(window >= 65_535, "{window}");
    }
}

/// Over one connection, and beside other requests on it.
#[test]
fn a_dump_and_a_restore_go_over_http_2() {
    let server = Running::start();
    let mut wire = server.connect();
    for first in (0..20_000).step_by(500) {
        let keys: String = (first..first + 500).map(|number| format!(" key:{number:0>50} 1")).collect();
        wire.ask(format!("MHIT{keys}\r\n"), format!("*500\r\n{}", ":1\r\n".repeat(500)));
    }
    let restored = server.block_on(async {
        let socket = TcpStream::connect(server.http).await.expect("it listens");
        let (mut client, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(socket)).await.expect("it speaks HTTP/2");
        let asked = async {
            let mut ask = |method: &str, path: &str, body: Body| {
                let request =
                    Request::builder().method(method).uri(format!("http://localhost{path}")).body(body);
                client.send_request(request.expect("a request"))
            };
            let [one, other] = [(); 2].map(|()| ask("GET", "/v1/dump", Body::empty()));
            let health = ask("GET", "/healthz", Body::empty());
            let (one, other, health) = tokio::join!(one, other, health);
            assert_eq!(health.expect("an answer").status(), StatusCode::OK);
            let whole = |answer: hyper::Response<hyper::body::Incoming>| {
                axum::body::to_bytes(Body::new(answer.into_body()), 100 << 20)
            };
            let (one, other) = (one.expect("an answer"), other.expect("an answer"));
            let (one, other) = tokio::join!(whole(one), whole(other));
            let dump = one.expect("a dump");
            assert_eq!(other.expect("a dump").len(), dump.len());
            let refused = ask("POST", "/v1/restore", Body::from(dump.clone())).await.expect("an answer");
            assert_eq!(refused.status(), StatusCode::CONFLICT);
            let restored =
                ask("POST", "/v1/restore?replace=true", Body::from(dump)).await.expect("an answer");
            whole(restored).await.expect("an answer")
        };
        tokio::select! {
            restored = asked => restored,
            ended = connection => panic!("{ended:?}"),
        }
    });
    assert!(restored.starts_with(b"{\"keys\":20000,"), "{restored:?}");
}
