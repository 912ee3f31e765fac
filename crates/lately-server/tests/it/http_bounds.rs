//! What HTTP connections may hold of the server, and for how long.

use lately_server::limits::{HTTP_TIMEOUT, MAX_HTTP_CONNECTIONS, MAX_HTTP_HEAD_BYTES};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Running, Wire};
use crate::timeouts::{MOMENT, Served, is_closed, on_paused_time, pass};

const REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: lately\r\n\r\n";
const HALF: &str = "GET /healthz HTTP/1.1\r\nHost: ";

/// A connection on which so much was sent.
async fn sent(server: &Served, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.http).await.expect("the server listens");
    client.write_all(request.as_bytes()).await.expect("the system takes it");
    client
}

/// Takes an answer, which must be a good one, and the end of the connection.
async fn check_answered(mut client: TcpStream) {
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer, and the end");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

/// A client that does not ask for it gets the end all the same.
#[test]
fn an_http_connection_has_one_answer() {
    let server = Running::start();
    for requests in [1, 2] {
        let mut client = Wire::connect(server.http);
        client.send(REQUEST.repeat(requests));
        client.expect("HTTP/1.1 200 OK\r\n");
        let mut lines = std::iter::repeat_with(|| client.line()).take_while(|line| !line.is_empty());
        assert!(lines.any(|line| line == "connection: close"));
        lines.for_each(drop);
        client.expect_rest("ok\n");
    }
}

#[test]
fn the_most_http_connections() {
    on_paused_time(|server| async move {
        let mut half = Vec::new();
        for _ in 1..MAX_HTTP_CONNECTIONS {
            half.push(sent(&server, HALF).await);
        }
        check_answered(sent(&server, REQUEST).await).await;
        half.push(sent(&server, HALF).await);
        let next = sent(&server, REQUEST).await;
        pass(MOMENT).await;
        // Nothing has come, and no end either.
        assert!(!is_closed(&next));
        let nothing = next.try_read(&mut [0; 1]).expect_err("nothing to read");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        half.pop();
        check_answered(next).await;
    });
}

/// Symptom: 1,500 connections with 330 KB of unfinished requests each took 523 MiB and stayed for ever.
/// Cause: HTTP had no bounds. Fix: a number, a size and a time.
#[test]
fn many_half_requests_are_served_a_bounded_number_at_a_time() {
    const ROUNDS: usize = 4;
    on_paused_time(|server| async move {
        let request = format!("{HALF}{}", "x".repeat(MAX_HTTP_HEAD_BYTES - HALF.len() - 1));
        let mut clients = Vec::new();
        for _ in 0..ROUNDS * MAX_HTTP_CONNECTIONS {
            clients.push(sent(&server, &request).await);
        }
        pass(MOMENT).await;
        // Those that are served end together, and are all that end.
        for round in 0..=ROUNDS {
            let closed = clients.iter().filter(|client| is_closed(client)).count();
            assert_eq!(closed, round * MAX_HTTP_CONNECTIONS);
            pass(HTTP_TIMEOUT).await;
        }
        check_answered(sent(&server, REQUEST).await).await;
    });
}

#[test]
fn the_longest_http_head() {
    let server = Running::start();
    let field = "GET /healthz HTTP/1.1\r\nHost: lately\r\nLong: ";
    let head = format!("{field}{}\r\n\r\n", "x".repeat(MAX_HTTP_HEAD_BYTES - field.len() - 4));
    assert_eq!(head.len(), MAX_HTTP_HEAD_BYTES);
    let mut client = Wire::connect(server.http);
    client.ask(head, "HTTP/1.1 200 OK\r\n");
    // All but the last byte of one that is a byte longer.
    let head = format!("{field}{}\r\n\r", "x".repeat(MAX_HTTP_HEAD_BYTES - field.len() - 3));
    assert_eq!(head.len(), MAX_HTTP_HEAD_BYTES);
    let mut client = Wire::connect(server.http);
    client.ask(head, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
    assert!(String::from_utf8(client.rest()).expect("text").ends_with("\r\n\r\n"));
}

/// An answer does not wait for a body, and none is read.
#[test]
fn bodies_are_not_read() {
    let server = Running::start();
    for (method, status) in [("GET", "200 OK"), ("POST", "405 Method Not Allowed")] {
        let mut client = Wire::connect(server.http);
        let head =
            format!("{method} /healthz HTTP/1.1\r\nHost: lately\r\nContent-Length: 1000000000\r\n\r\n");
        client.ask(head, format!("HTTP/1.1 {status}\r\n"));
        let rest = String::from_utf8(client.rest()).expect("text");
        assert!(rest.to_lowercase().contains("connection: close\r\n"), "{rest}");
    }
}

#[test]
fn a_stop_lets_http_requests_finish() {
    on_paused_time(|server| async move {
        let (begun, rest) = REQUEST.split_at(HALF.len());
        let mut client = sent(&server, begun).await;
        pass(MOMENT).await;
        server.stopper.stop();
        pass(MOMENT).await;
        client.write_all(rest.as_bytes()).await.expect("the server reads");
        check_answered(client).await;
        server.run.await.expect("the server does not panic").expect("it stops in order");
    });
}

#[test]
fn an_http_connection_has_a_time() {
    on_paused_time(|server| async move {
        let (silent, half) = (sent(&server, "").await, sent(&server, HALF).await);
        let mut slow = sent(&server, HALF).await;
        for _ in 1..HTTP_TIMEOUT.as_secs() {
            pass(MOMENT).await;
            slow.write_all(b"x").await.expect("the server reads");
            assert!([&silent, &half, &slow].iter().all(|client| !is_closed(client)));
        }
        pass(2 * MOMENT).await;
        assert!([&silent, &half, &slow].iter().all(|client| is_closed(client)));
    });
}
