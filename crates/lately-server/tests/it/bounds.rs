//! Each bound of a connection, at the bound and one past it.

use lately_resp::limits::{MAX_ARGUMENTS, MAX_BULK_BYTES, MAX_LINE_BYTES, MAX_REQUEST_BYTES};
use lately_resp::write_request;
use lately_server::Config;
use lately_server::limits::CONNECTION_BYTES;

use crate::common::{Running, config, standing_clock};

#[test]
fn the_longest_argument() {
    let server = Running::start();
    let message = "x".repeat(MAX_BULK_BYTES);
    let (mut client, mut request) = (server.connect(), Vec::new());
    write_request(&mut request, &[b"ECHO", message.as_bytes()]);
    client.ask(request, format!("${MAX_BULK_BYTES}\r\n{message}\r\n"));
    client.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", MAX_BULK_BYTES + 1));
    client.expect_rest(
        "-ERR Protocol error: invalid bulk length 1048577: a bulk string has at most 1048576 bytes\r\n",
    );
}

#[test]
fn the_most_arguments() {
    let server = Running::start();
    let mut request = Vec::new();
    let mut args: Vec<&[u8]> = vec![b"k"; MAX_ARGUMENTS];
    args[0] = b"EXISTS";
    write_request(&mut request, &args);
    let mut client = server.connect();
    client.ask(request, ":0\r\n");
    client.send(format!("*{}\r\n", MAX_ARGUMENTS + 1));
    client.expect_rest("-ERR Protocol error: invalid multibulk length\r\n");
}

/// Symptom: a request of 7 MB had a reply of 1.7 GB, held twice before it was accounted for. Fix: a bound on the names.
#[test]
fn command_docs_has_a_bound_on_names() {
    let server = Running::start();
    let mut args: Vec<&[u8]> = vec![b"client"; 580_000];
    for query in ["DOCS", "INFO"] {
        (args[0], args[1]) = (b"COMMAND", query.as_bytes());
        let (mut client, mut request) = (server.connect(), Vec::new());
        write_request(&mut request, &args);
        client.ask(request, format!("-ERR COMMAND {query} takes at most 128 names\r\n"));
        client.ask("PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn the_longest_request() {
    let server = Running::start();
    // 63 of the longest arguments, and one that fills the rest of the request.
    let mut words = b"$4\r\nPING\r\n".to_vec();
    for _ in 0..63 {
        words.extend_from_slice(format!("${MAX_BULK_BYTES}\r\n").as_bytes());
        words.resize(words.len() + MAX_BULK_BYTES, b'x');
        words.extend_from_slice(b"\r\n");
    }
    let left = MAX_REQUEST_BYTES - words.len() - "*65\r\n".len() - "$1000000\r\n\r\n".len();
    words.extend_from_slice(format!("${left}\r\n{}\r\n", "x".repeat(left)).as_bytes());
    assert_eq!("*65\r\n".len() + words.len(), MAX_REQUEST_BYTES);
    let mut client = server.connect();
    client.send("*65\r\n");
    client.ask(&words, "-ERR wrong number of arguments for 'ping' command\r\n");
    client.send("*66\r\n");
    client.send(&words);
    client.send("$0\r\n");
    client.expect_rest("-ERR Protocol error: too big request, a request has at most 67108864 bytes\r\n");
}

#[test]
fn the_longest_line() {
    let server = Running::start();
    let message = "x".repeat(MAX_LINE_BYTES - "ECHO ".len());
    let mut client = server.connect();
    client.ask(format!("ECHO {message}\n"), format!("${}\r\n{message}\r\n", message.len()));
    client.send(format!("ECHO {message}x"));
    client.expect_rest("-ERR Protocol error: too big inline request\r\n");
}

/// Symptom: idle clients evicted all keys. Cause: only `max_clients` bounded their number. Fix: the number is also bounded
/// by a sixteenth of the ceiling.
#[test]
fn the_most_clients_for_a_ceiling() {
    let ceiling_bytes = 72 * 16 * CONNECTION_BYTES as u64;
    let server = Running::with(Config { ceiling_bytes, ..config() }, standing_clock());
    let mut clients: Vec<_> = (0..72).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("PING\r\n", "+PONG\r\n"));
    server.connect().expect_rest("-ERR max number of clients reached\r\n");
    clients[0].send("INFO\r\n");
    let lines: Vec<String> = (0..60).map(|_| clients[0].line()).collect();
    for line in ["maxclients:72", "rejected_connections:1", "evicted_keys:0"] {
        assert!(lines.iter().any(|it| it == line), "{line} {lines:?}");
    }
}

#[test]
fn the_most_clients() {
    let server = Running::with(Config { max_clients: 2, ..config() }, standing_clock());
    let (mut one, mut two) = (server.connect(), server.connect());
    one.ask("PING\r\n", "+PONG\r\n");
    two.ask("PING\r\n", "+PONG\r\n");
    server.connect().expect_rest("-ERR max number of clients reached\r\n");
    one.send("INFO\r\n");
    let mut lines = (0..60).map(|_| one.line());
    assert!(lines.any(|line| line == "rejected_connections:1"));
    // One client leaves. There is room again once the server has noticed.
    drop(two);
    let found_room = (0..10_000).any(|_| {
        let mut next = server.connect();
        next.send("PING\r\n");
        next.line() == "+PONG"
    });
    assert!(found_room);
}
