//! A client of HTTP/2 that sends short lines, each in a frame of its own, as fast as the server lets it.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::stream;
use hyper::client::conn::http2::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::common::Running;

/// Symptom: such a client could get GOAWAY `too_many_data_frames`. Cause: it could send ahead more short frames than the library
/// tolerates. Fix: the window of a stream is so small that it cannot.
#[test]
fn short_lines_may_come_each_in_a_frame() {
    const LINES: usize = 100_000;
    let server = Running::start();
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
