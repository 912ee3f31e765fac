//! Requests and replies over a socket: their order, cuts at any byte, and the end of a connection.

use std::io::Write;
use std::time::Duration;

use lately_resp::write_request;
use lately_server::Config;

use crate::common::{Lots, Running, config, standing_clock};

const COMMANDS: usize = 1_000;

/// A thousand commands of many kinds and sizes, and their replies.
fn pipeline(key: &str) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies, mut hits) = (Vec::new(), Vec::new(), 0);
    for number in 0..COMMANDS {
        match number % 4 {
            0 => {
                hits += 1;
                write_request(&mut requests, &[b"HIT", key.as_bytes()]);
                write!(replies, ":{hits}\r\n").expect("memory");
            }
            1 => {
                let message = format!("{number}\r\n").repeat(number % 50);
                write_request(&mut requests, &[b"ECHO", message.as_bytes()]);
                write!(replies, "${}\r\n{message}\r\n", message.len()).expect("memory");
            }
            2 => {
                write!(requests, "ping {number}\r\n").expect("memory");
                let text = number.to_string();
                write!(replies, "${}\r\n{text}\r\n", text.len()).expect("memory");
            }
            _ => {
                write_request(&mut requests, &[b"NOSUCH"]);
                replies.extend_from_slice(b"-ERR unknown command 'NOSUCH', with args beginning with: \r\n");
            }
        }
    }
    (requests, replies)
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let server = Running::start();
    for seed in 0..20 {
        let (requests, replies) = pipeline(&format!("key:{seed}"));
        let (mut client, mut lots) = (server.connect(), Lots::from_seed(seed));
        let longest = [1, 3, 100, 10_000][usize::try_from(seed).expect("small") % 4];
        let mut left = &requests[..];
        // Only the start is sent in the shortest pieces, because each is a packet of its own.
        for _ in 0..2_000 {
            let (piece, after) = left.split_at((1 + lots.below(longest)).min(left.len()));
            client.send(piece);
            left = after;
        }
        client.send(left);
        client.expect(replies);
    }
}

#[test]
fn a_request_cut_inside_its_line_ends() {
    let server = Running::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    for piece in ["*1\r", "\n$4\r", "\nPI", "NG\r", "\nPING\r", "\n"] {
        client.send(piece);
        // When the other client has its answer, the server has most likely read this piece.
        other.ask("PING\r\n", "+PONG\r\n");
    }
    client.expect("+PONG\r\n+PONG\r\n");
}

#[test]
fn inline_commands_are_answered() {
    let server = Running::start();
    let mut client = server.connect();
    client.ask("PING\r\n\r\n\n  HIT  'a key' 2\nHITS \"a key\"\r\n", "+PONG\r\n:2\r\n:2\r\n");
}

#[test]
fn all_connections_count_together() {
    let server = Running::start();
    let mut one = server.connect();
    one.ask("CLIENT ID\r\n", ":1\r\n");
    let mut two = server.connect();
    two.ask("CLIENT ID\r\n", ":2\r\n");
    for hits in 1..100 {
        let client = if hits % 2 == 0 { &mut one } else { &mut two };
        client.ask("HIT k\r\n", format!(":{hits}\r\n"));
    }
}

#[test]
fn a_half_closed_client_gets_every_reply() {
    let server = Running::start();
    let (requests, replies) = pipeline("k");
    let mut client = server.connect();
    client.send(requests);
    client.finish();
    client.expect_rest(replies);
    let mut client = server.connect();
    client.send("PING\r\nPI");
    client.finish();
    client.expect_rest("+PONG\r\n");
}

#[test]
fn quit_is_the_last_reply() {
    let server = Running::start();
    let mut client = server.connect();
    client.send("PING\r\nQUIT\r\nPING\r\n");
    client.expect_rest("+PONG\r\n+OK\r\n");
}

#[test]
fn a_broken_frame_ends_the_connection_after_the_replies_before_it() {
    let server = Running::start();
    let check = |broken: &str, error: &str| {
        let mut client = server.connect();
        client.send(format!("HELLO 3\r\nPING\r\n{broken}"));
        let replies = String::from_utf8(client.rest()).expect("text");
        let expected = format!("*0\r\n+PONG\r\n-ERR Protocol error: {error}\r\n");
        assert!(replies.ends_with(&expected), "{broken}: {replies}");
    };
    check("*x\r\n", "invalid multibulk length");
    check("*1\r\n:1\r\n", "expected '$', got ':'");
    check("*1\r\n$-1\r\n", "invalid bulk length");
    check("*1\r\n$4\r\nPINGPONG\r\n", "expected CRLF after bulk string");
    check("PING \"a\r\n", "unbalanced quotes in request");
    check("*2\r\n$4\r\nECHO\r\n$x\r\nPING\r\n", "invalid bulk length");
    server.connect().ask("HIT k\r\n", ":1\r\n");
    let no_tls = "this port speaks the Redis protocol without TLS";
    check("\x16\x03\x01 \r\nFLUSHALL\r\n", &format!("TLS handshake: {no_tls}"));
    check("\x03\0\nDEL k\r\n", &format!("NUL in inline request: {no_tls}"));
    server.connect().ask("EXISTS k\r\n", ":1\r\n");
}

#[test]
fn idle_clients_are_disconnected() {
    let idle_timeout = Some(Duration::from_millis(20));
    let server = Running::with(Config { idle_timeout, ..config() }, standing_clock());
    server.connect().expect_rest("");
    let mut client = server.connect();
    client.ask("PING\r\nPI", "+PONG\r\n");
    client.expect_rest("");
}

/// Symptom: a request with a byte of urgent data was not answered until more input came. Cause: a read ends at such a byte,
/// and a read that does not fill the buffer was taken for the last. Fix: the socket is then read until it is empty.
#[cfg(target_os = "linux")]
#[test]
fn urgent_data_does_not_hold_up_a_request() {
    let server = Running::start();
    let mut wire = server.connect();
    for _ in 0..200 {
        wire.send("PI");
        wire.send_urgent();
        wire.send("NG\r\nPING\r\n");
        wire.expect("+PONG\r\n+PONG\r\n");
    }
}
