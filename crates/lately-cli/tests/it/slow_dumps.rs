//! Clients that take a dump slowly while the server is hit: what is held for them is bounded, and they are given up.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::{Running, serve_with_ceiling};

const CEILING_BYTES: u64 = 32 << 20;
/// Memory that the process may take without accounting for it.
const MOST_BYTES: u64 = CEILING_BYTES + CEILING_BYTES / 10 + (16 << 20);
/// Few enough for them to stay below the ceiling: what is held for dumps is what is looked at.
const KEYS: u64 = 30_000;
const BATCH: u64 = 1_000;

/// A client that asks for a dump, and the first of what it is answered.
fn asking(server: &Running) -> (TcpStream, [u8; 15]) {
    let mut client = TcpStream::connect(&server.http).expect("it listens");
    client.write_all(b"GET /v1/dump HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut head = [0; 15];
    client.read_exact(&mut head).expect("an answer");
    (client, head)
}

/// Hits each of the keys once.
fn hit_all(socket: &mut TcpStream) {
    for first in (0..KEYS).step_by(usize::try_from(BATCH).expect("little")) {
        let hits: String =
            (first..first + BATCH).map(|number| format!("HIT key:{number:0>50}\r\n")).collect();
        socket.write_all(hits.as_bytes()).expect("sent");
        let (mut lines, mut replies) = (0, [0; 16 << 10]);
        while lines < BATCH {
            let count = socket.read(&mut replies).expect("replies");
            lines += replies[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

/// Symptom: at a ceiling of 32 MiB four clients that read a dump at 500 B/s had the server take 301 MiB, for as long as they
/// liked, and nobody else got a dump. Cause: what happened meanwhile was held for each of them, and counted nowhere; and who
/// took a byte in 10 s was waited for. Fix: it is held once, as a part of the ceiling, and there is a least rate.
#[test]
fn slow_readers_of_dumps_are_bounded_and_given_up() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let mut hitting = TcpStream::connect(&server.resp).expect("it listens");
    (0..3).for_each(|_| hit_all(&mut hitting));
    let mut slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let (client, head) = asking(&server);
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            client.set_nonblocking(true).expect("a socket");
            client
        })
        .collect();
    assert_eq!(&asking(&server).1, b"HTTP/1.1 503 Se", "there are no more at once");
    // As long as they are waited for.
    let mut head = [0; 15];
    while &head != b"HTTP/1.1 200 OK" {
        hit_all(&mut hitting);
        let resident: u64 = server.info("used_memory_rss").parse().expect("a number");
        assert!(resident <= MOST_BYTES, "{resident} bytes resident");
        for client in &mut slow {
            // One that was given up has no more.
            _ = client.read(&mut [0; 500]);
        }
        head = asking(&server).1;
    }
    let held = || {
        let metrics = server.get("/metrics");
        metrics.lines().find_map(|line| line.strip_prefix("lately_memory_dumps_bytes ")?.parse::<u64>().ok())
    };
    while held().expect("there is such a figure") > 0 {}
}
