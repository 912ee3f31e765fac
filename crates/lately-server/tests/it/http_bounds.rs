//! The bounds of HTTP connections in number, size and time.

use std::io;

use axum::body::Body;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lately_server::Config;
use lately_server::limits::{
    FAIR_BYTES, FAIR_SHARE, HTTP_LEAST_BYTES, HTTP_LOOK_EVERY, HTTP_TIMEOUT, MAX_DUMPS, MAX_HTTP_HEAD_BYTES,
    MAX_HTTP_HEADERS, MAX_HTTP2_CONNECTIONS,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::common::{Running, Wire, config};
use crate::timeouts::{MOMENT, Served, is_closed, on_paused_time, on_paused_time_with, pass};

const REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: lately\r\nConnection: close\r\n\r\n";
const HALF: &str = "GET /healthz HTTP/1.1\r\nHost: ";

/// The same with a head that is too long for a place of the few for probes.
fn long_request() -> String {
    REQUEST.replace("Connection", &format!("X-Long: {}\r\nConnection", "x".repeat(2 << 10)))
}

/// The number of looks until the timeout of a client.
const LOOKS: u128 = HTTP_TIMEOUT.as_millis() / HTTP_LOOK_EVERY.as_millis();

/// The connections of a listener at a ceiling of [`LOW_BYTES`].
const CONNECTIONS: usize = 64;
const LOW_BYTES: u64 = 64 << 20;

fn with_few_connections<F: Future<Output = ()>>(test: impl FnOnce(Served) -> F) {
    on_paused_time_with(Config { ceiling_bytes: LOW_BYTES, ..config() }, test);
}

/// Advances the time by hand, because it does not pass while a thread of a dump or a restore waits.
async fn looks(server: &Served, looks: u128) {
    for _ in 0..looks {
        tokio::time::advance(HTTP_LOOK_EVERY).await;
        // Afterwards, everything that was sent before has arrived.
        ping(server).await;
    }
}

/// A connection on which `request` was sent, which may be incomplete.
async fn sent(server: &Served, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.http).await.expect("the server listens");
    client.write_all(request.as_bytes()).await.expect("the system takes it");
    client
}

/// Hits each of this many keys once.
async fn fill(server: &Served, keys: usize) {
    let fill = move |client: &mut Wire| {
        for first in (0..keys).step_by(500) {
            let keys: String = (first..first + 500).map(|number| format!(" key:{number:0>100} 1")).collect();
            client.ask(format!("MHIT{keys}\r\n"), format!("*500\r\n{}", ":1\r\n".repeat(500)));
        }
    };
    server.talk(fill).await;
}

/// When this returns, everything that was sent before has arrived.
async fn ping(server: &Served) {
    server.talk(|client| client.ask("PING\r\n", "+PONG\r\n")).await;
}

/// Reads an answer up to the end of the connection, and checks that it is good.
async fn check_answered(mut client: TcpStream) {
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer, and the end");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

/// Symptom: 64 silent clients held all connections, and `/healthz` waited 10 s. Cause: the next client waited until one of
/// them ended. Fix: the oldest of the silent clients is disconnected.
#[test]
fn silent_clients_do_not_block_others() {
    with_few_connections(|server| async move {
        let mut half = Vec::new();
        for _ in 1..CONNECTIONS {
            half.push(sent(&server, HALF).await);
        }
        check_answered(sent(&server, REQUEST).await).await;
        half.push(sent(&server, HALF).await);
        pass(MOMENT).await;
        assert!(half.iter().all(|client| !is_closed(client)));
        for gone in 1..=CONNECTIONS {
            let begun = Instant::now();
            check_answered(sent(&server, &long_request()).await).await;
            assert!(begun.elapsed() < MOMENT);
            // The oldest client is disconnected, and its place is free.
            assert_eq!(half.iter().filter(|client| is_closed(client)).count(), 1);
            assert!(is_closed(&half[0]), "{gone}");
            half.remove(0);
            half.push(sent(&server, HALF).await);
            pass(HTTP_LOOK_EVERY).await;
        }
    });
}

/// Symptom: 1,500 connections with 330 KB of unfinished requests each took 523 MiB and stayed for ever. Cause: HTTP had no
/// bounds. Fix: bounds on the number, the size and the time.
#[test]
fn many_half_requests_are_served_a_bounded_number_at_a_time() {
    const ROUNDS: usize = 4;
    with_few_connections(|server| async move {
        let request = format!("{HALF}{}", "x".repeat(MAX_HTTP_HEAD_BYTES - HALF.len() - 1));
        let mut clients = Vec::new();
        for _ in 0..ROUNDS * CONNECTIONS {
            clients.push(sent(&server, &request).await);
        }
        pass(MOMENT).await;
        // The others were disconnected to make room.
        let open = |clients: &[TcpStream]| clients.iter().filter(|client| !is_closed(client)).count();
        assert_eq!(open(&clients), CONNECTIONS);
        check_answered(sent(&server, REQUEST).await).await;
        pass(HTTP_TIMEOUT).await;
        assert_eq!(open(&clients), 0);
        check_answered(sent(&server, REQUEST).await).await;
    });
}

/// Clients of HTTP/2 may send bodies ahead, so they have fewer places. They take no place of others.
#[test]
fn clients_of_http_2_close_each_other_and_not_those_of_http_1() {
    on_paused_time(|server| async move {
        // The preface and empty settings.
        let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let mut kept = Vec::new();
        for _ in 0..MAX_HTTP2_CONNECTIONS + 10 {
            kept.push(sent(&server, "GET /healthz HTTP/1.1\r\nHost: lately\r\n\r\n").await);
        }
        let mut clients = Vec::new();
        for _ in 0..MAX_HTTP2_CONNECTIONS {
            clients.push(sent(&server, http2).await);
        }
        pass(MOMENT).await;
        let is_gone = |client: &TcpStream| loop {
            match client.try_read(&mut [0; 1_024]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        assert!(kept.iter().chain(&clients).all(|client| !is_gone(client)));
        for _ in 0..5 {
            clients.push(sent(&server, http2).await);
            pass(HTTP_LOOK_EVERY).await;
        }
        let gone: Vec<_> = (0..clients.len()).filter(|&number| is_gone(&clients[number])).collect();
        assert_eq!(gone, [0, 1, 2, 3, 4]);
        for mut client in kept {
            client.write_all(REQUEST.as_bytes()).await.expect("it is open");
            check_answered(client).await;
        }
    });
}

/// Clients that send their requests at once are all answered.
#[test]
fn a_burst_of_requests_is_answered() {
    with_few_connections(|server| async move {
        let mut clients = Vec::new();
        for _ in 0..5 * CONNECTIONS {
            clients.push(sent(&server, REQUEST).await);
        }
        for client in clients {
            check_answered(client).await;
        }
    });
}

/// Symptom: 64 slow or unwanted uploads held all connections. Fix: one restore at a time, with a minimum rate; the others
/// may be disconnected.
#[test]
fn slow_uploads_do_not_block_others() {
    const HEAD: &str =
        "POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nl\r\n";
    with_few_connections(|server| async move {
        let mut first = sent(&server, HEAD).await;
        looks(&server, 2).await;
        let mut uploads = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            uploads.push(sent(&server, HEAD).await);
        }
        for second in 0..LOOKS / 10 - 2 {
            let answered = async { check_answered(sent(&server, REQUEST).await).await };
            tokio::join!(answered, looks(&server, 10));
            for upload in &mut uploads {
                let _ = upload.write_all(b"1\r\nx\r\n").await;
            }
            // The head of a dump is longer, so the server waits for more.
            if second < 5 {
                first.write_all(b"1\r\nl\r\n").await.expect("the server reads");
            }
        }
        assert!(!is_closed(&first));
        // The upload is too slow. One look may be missed here, as after a stall.
        while !is_closed(&first) {
            looks(&server, 1).await;
        }
        // The next upload gets the place once the reading thread has ended.
        let request = "POST /v1/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nnone";
        let mut answer = String::new();
        while answer.is_empty() || answer.starts_with("HTTP/1.1 503 ") {
            answer.clear();
            let mut next = sent(&server, request).await;
            next.read_to_string(&mut answer).await.expect("an answer, and the end");
        }
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("it is no dump of lately"),
            "{answer}"
        );
    });
}

/// Symptom: the client of a slow upload was not able to go on. Cause: the error did not say how many lines had come. Fix: it does.
#[test]
fn the_error_of_slow_lines_says_how_many_were_counted() {
    const HEAD: &str = "POST /v1/hits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    on_paused_time(|server| async move {
        let lines = "{\"key\":\"a\"}\n".repeat(3) + "{\"key\":";
        let mut upload = sent(&server, &format!("{HEAD}{:x}\r\n{lines}\r\n", lines.len())).await;
        let mut answer = String::new();
        let (read, ()) = tokio::join!(upload.read_to_string(&mut answer), looks(&server, LOOKS + 10));
        read.expect("an answer, and the end");
        let why = "the server ended the upload: slower than 32000 B/s: 3 lines were counted before";
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains(why), "{answer}");
    });
}

/// A dump that is not read is abandoned, and its place is free again.
#[test]
fn an_unread_dump_is_abandoned() {
    const DUMP: &str = "GET /v1/dump HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    on_paused_time(|server| async move {
        // More than the sockets hold.
        fill(&server, 200_000).await;
        let mut deaf = Vec::new();
        for _ in 0..MAX_DUMPS {
            deaf.push(sent(&server, DUMP).await);
            looks(&server, 1).await;
        }
        let mut refused = sent(&server, DUMP).await;
        let mut answer = String::new();
        refused.read_to_string(&mut answer).await.expect("an answer, and the end");
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("other dumps are under way"),
            "{answer}"
        );
        // A client that reads the whole dump gets its end. The others lose their places meanwhile.
        let mut taking = deaf.pop().expect("a client");
        let take = async {
            let mut dump = Vec::new();
            taking.read_to_end(&mut dump).await.expect("a dump, and the end");
            assert!(dump.ends_with(b"0\r\n\r\n"), "it is whole");
        };
        tokio::join!(take, looks(&server, LOOKS));
        for _ in 0..MAX_DUMPS {
            let mut head = [0; 15];
            // Time passes quickly here, and a client is not charged for a dump that is not ready.
            while &head != b"HTTP/1.1 200 OK" {
                looks(&server, LOOKS / 10).await;
                let mut taking = sent(&server, DUMP).await;
                taking.read_exact(&mut head).await.expect("an answer");
                deaf.push(taking);
            }
        }
    });
}

/// During a stall the clock continues, and the server has not yet read the input that arrived.
#[test]
fn a_stall_of_the_server_does_not_time_out_clients() {
    on_paused_time(|server| async move {
        let mut client = sent(&server, HALF).await;
        pass(MOMENT).await;
        tokio::time::advance(2 * HTTP_TIMEOUT).await;
        assert!(!is_closed(&client));
        client.write_all(&REQUEST.as_bytes()[HALF.len()..]).await.expect("the server reads");
        check_answered(client).await;
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
    // A head that is a byte too long, without its last byte.
    let head = format!("{field}{}\r\n\r", "x".repeat(MAX_HTTP_HEAD_BYTES - field.len() - 3));
    assert_eq!(head.len(), MAX_HTTP_HEAD_BYTES);
    let mut client = Wire::connect(server.http);
    client.ask(head, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
    let rest = String::from_utf8(client.rest()).expect("text");
    assert!(rest.contains("content-type: application/problem+json\r\n"), "{rest}");
    assert!(rest.ends_with('}') && rest.contains("\"status\":431,"), "{rest}");
}

/// Symptom: `POST /v1/hit/a#b` counted a hit of `a`. Cause: the library cuts the fragment off the target. Fix: such a
/// target is refused.
#[test]
fn a_target_with_a_fragment_is_refused() {
    let server = Running::start();
    let post = |target: &str| format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut client = Wire::connect(server.http);
    client.ask(post("/v1/hit/a%23b"), "HTTP/1.1 200 OK\r\n");
    for target in ["/v1/hit/a#b", "/v1/hit/a?n=1#", "#"] {
        let mut client = Wire::connect(server.http);
        client.ask(post(target), "HTTP/1.1 400 Bad Request\r\n");
        let rest = String::from_utf8(client.rest()).expect("text");
        assert!(rest.contains("connection: close") && rest.contains("write %23 for one in a key"), "{rest}");
    }
    // The same on a connection that was used before.
    let mut client = Wire::connect(server.http);
    client.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    client.send(post("/v1/hit/a#b"));
    let rest = String::from_utf8(client.rest()).expect("text");
    assert!(rest.contains("HTTP/1.1 400 Bad Request\r\n"), "{rest}");
    let mut talk = server.connect();
    talk.ask("EXISTS a\r\nEXISTS a#b\r\n", ":0\r\n:1\r\n");
}

#[test]
fn the_most_http_headers() {
    let server = Running::start();
    for (headers, answer) in
        [(MAX_HTTP_HEADERS, "200 OK"), (MAX_HTTP_HEADERS + 1, "431 Request Header Fields Too Large")]
    {
        let others: String = (1..headers).map(|number| format!("a{number}: 1\r\n")).collect();
        let mut client = Wire::connect(server.http);
        client.ask(
            format!("GET /healthz HTTP/1.1\r\nHost: lately\r\n{others}\r\n"),
            format!("HTTP/1.1 {answer}\r\n"),
        );
    }
}

/// The server answers without waiting for a body, and does not read it.
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
fn an_http_connection_times_out() {
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

/// Symptom: one upload at 40 kB/s held the only place of a restore until its end, and got no answer when it was cut. Cause:
/// above the minimum rate a place was kept for ever. Fix: when another upload comes, one that was slow for its fair share of
/// time is cut and answered 408.
#[test]
fn a_slow_upload_keeps_its_place_for_a_fair_share_of_time() {
    const TARGET: &str = "POST /v1/restore?replace=true HTTP/1.1\r\nHost: localhost\r\n";
    /// Above the minimum rate, and below the fair one.
    const PIECE_BYTES: usize = 4_000;
    const { assert!(PIECE_BYTES as u64 * 10 > HTTP_LEAST_BYTES && PIECE_BYTES as u64 * 10 < FAIR_BYTES) };
    let answer = async |mut client: TcpStream| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer, and the end");
        answer
    };
    on_paused_time(|server| async move {
        fill(&server, 60_000).await;
        let mut dump = Vec::new();
        let mut whole = sent(&server, "GET /v1/dump HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
        whole.read_to_end(&mut dump).await.expect("a dump, and the end");
        let body = dump.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        let mut pieces = dump[body..].chunks(PIECE_BYTES);
        let mut slow = sent(&server, &format!("{TARGET}Content-Length: {}\r\n\r\n", dump.len() - body)).await;
        let other = format!("{TARGET}Content-Length: 4\r\n\r\nnone");
        let fair_looks = FAIR_SHARE.as_millis() / HTTP_LOOK_EVERY.as_millis();
        let mut passed_looks = 0;
        loop {
            for _ in 0..50 {
                slow.write_all(pieces.next().expect("it is cut before")).await.expect("the server reads");
                looks(&server, 1).await;
            }
            passed_looks += 50;
            let next = sent(&server, &other).await;
            let (next, ()) = tokio::join!(answer(next), looks(&server, 3));
            if !next.starts_with("HTTP/1.1 503 ") {
                assert!(
                    next.starts_with("HTTP/1.1 400 ") && next.contains("it is no dump of lately"),
                    "{next}"
                );
                break;
            }
            assert!(next.contains("another restore is under way"), "{next}");
            let seconds = next.split("retry-after: ").nth(1).and_then(|rest| rest.split('\r').next());
            let seconds: u64 = seconds.and_then(|seconds| seconds.parse().ok()).expect(&next);
            assert!((1..FAIR_SHARE.as_secs()).contains(&seconds), "{next}");
        }
        assert!(passed_looks >= fair_looks, "it had its share of time");
        let answer = answer(slow).await;
        let why = "slower than 1000000 B/s while another waited for its place: nothing was changed";
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n") && answer.contains(why), "{answer}");
        assert!(answer.contains("\r\ncontent-type: application/problem+json\r\n"), "{answer}");
    });
}

/// A client opens streams of HTTP/2 and resets each at once. That costs it nothing, and the server would make an answer for
/// each.
#[test]
fn a_flood_of_resets_ends_its_connection() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// `GET http://localhost/`, as RFC 7541 packs it.
    const HEADERS: &[u8] = b"\x82\x86\x84\x41\x09localhost";
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let server = Running::start();
    let mut client = std::net::TcpStream::connect(server.http).expect("the server listens");
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
    let mut flood = [PREFACE, &frame(4, 0, 0, &[])].concat();
    for stream in (1..20_000).step_by(2) {
        flood.extend(frame(1, 5, stream, HEADERS));
        flood.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    // An error says that the server ended the connection.
    let _ = std::io::Write::write_all(&mut client, &flood);
    let mut answers = Vec::new();
    if let Err(error) = std::io::Read::read_to_end(&mut client, &mut answers) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(answers.len() < 100_000, "{}", answers.len());
    let mut wire = Wire::connect(server.http);
    wire.send(REQUEST);
    wire.expect("HTTP/1.1 200 OK\r\n");
}

/// Symptom: a request over HTTP/2 could have 350 headers. Cause: the library bounds the number of headers of HTTP/1.1 only. Fix: the server
/// counts them.
#[test]
fn the_most_headers_over_http_2() {
    let server = Running::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = TcpStream::connect(server.http).await.expect("it listens");
        let builder = http2::Builder::new(TokioExecutor::new());
        let (mut client, connection) =
            builder.handshake::<_, Body>(TokioIo::new(socket)).await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        for (headers, status) in [(MAX_HTTP_HEADERS, 200), (MAX_HTTP_HEADERS + 1, 431)] {
            let request = Request::builder().uri("http://localhost/v1/hits/k");
            let request =
                (0..headers).fold(request, |request, number| request.header(format!("a{number}"), "1"));
            let request = request.body(Body::empty()).expect("a request");
            let answer = client.send_request(request).await.expect("an answer");
            assert_eq!(answer.status(), status, "{headers} headers");
        }
    });
}

/// A client cannot keep the place of a dump that it does not read by sending other requests on its connection.
#[test]
fn a_dump_over_http_2_that_is_not_read_ends() {
    on_paused_time(|server| async move {
        fill(&server, 5_000).await;
        let socket = TcpStream::connect(server.http).await.expect("it listens");
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(16 << 10);
        let (mut client, connection) =
            builder.handshake::<_, Body>(TokioIo::new(socket)).await.expect("it speaks HTTP/2");
        let connection = tokio::spawn(connection);
        let request = |method: &str, path: &str, body: Body| {
            let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
            request.header("content-type", "application/x-ndjson").body(body).expect("a request")
        };
        let dump = client.send_request(request("GET", "/v1/dump", Body::empty())).await.expect("an answer");
        assert_eq!(dump.status(), StatusCode::OK);
        let lines = "{\"key\":\"k\"}\n".repeat(2_000);
        let mut passed = 0;
        while passed < 2 * LOOKS {
            let hits = request("POST", "/v1/hits", Body::from(lines.clone()));
            let Ok(answer) = client.send_request(hits).await else { break };
            assert_eq!(answer.status(), StatusCode::OK);
            drop(answer);
            looks(&server, 1).await;
            passed += 1;
        }
        assert!((LOOKS - 2..=LOOKS + 2).contains(&passed), "{passed}");
        assert!(connection.await.expect("no panic").is_err());
        drop(dump);
    });
}
