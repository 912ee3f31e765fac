//! The end of a server: what had been sent is answered, then everything closes.

use std::net::TcpStream;

use crate::common::{Running, Wire};

/// A client the server has taken.
fn taken(server: &Running) -> Wire {
    let mut client = server.connect();
    client.ask("PING\r\n", "+PONG\r\n");
    client
}

/// Symptom: now and then a client got no reply to what it had sent just before the stop. Cause: the
/// runtime had not yet heard of the bytes, so there seemed to be nothing to read. Fix: it listens once more.
#[test]
fn what_was_sent_before_the_stop_is_answered() {
    for round in 0..50 {
        let server = Running::start();
        let mut clients: Vec<Wire> = (0..4).map(|_| taken(&server)).collect();
        let requests = [1, 1_000][round % 2];
        for client in &mut clients {
            client.send("HIT k\r\n".repeat(requests));
        }
        server.stopper.stop();
        let mut replies: Vec<usize> = Vec::new();
        for client in clients {
            let rest = String::from_utf8(client.rest()).expect("text");
            let hits = rest.split_terminator("\r\n").map(|line| line[1..].parse::<usize>().expect(line));
            replies.extend(hits);
        }
        replies.sort_unstable();
        assert_eq!(replies, (1..=4 * requests).collect::<Vec<_>>());
        server.ended();
    }
}

#[test]
fn after_the_stop_nobody_is_taken() {
    let server = Running::start();
    let (resp, http) = (server.resp, server.http);
    let idle = taken(&server);
    server.stopper.stop();
    idle.expect_rest("");
    server.ended();
    for address in [resp, http] {
        assert_eq!(
            TcpStream::connect(address).map_err(|error| error.kind()).err(),
            Some(std::io::ErrorKind::ConnectionRefused)
        );
    }
}

#[test]
fn shutdown_ends_the_server() {
    let server = Running::start();
    let idle = taken(&server);
    let mut client = taken(&server);
    client.send("PING\r\nSHUTDOWN NOSAVE\r\nPING\r\n");
    client.expect_rest("+PONG\r\n");
    idle.expect_rest("");
    server.ended();
}

#[test]
fn an_open_transaction_does_not_run_at_the_stop() {
    let server = Running::start();
    let mut client = taken(&server);
    client.ask("MULTI\r\nHIT k\r\n", "+OK\r\n+QUEUED\r\n");
    server.stopper.stop();
    client.expect_rest("");
    server.ended();
}
