//! Clients that read a dump slowly while the server is hit: the memory for them is bounded, and they are disconnected.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::{Running, serve_with_ceiling};

const CEILING_BYTES: u64 = 32 << 20;
/// The most memory of the process, including the part that is not accounted for.
const MOST_BYTES: u64 = CEILING_BYTES + CEILING_BYTES / 10 + (16 << 20);
/// The number of keys, few enough to stay below the ceiling, so that the memory for dumps is measured.
const KEYS: u64 = 30_000;
const BATCH: u64 = 1_000;

/// A client that has requested a dump, and the first bytes of the answer.
fn request_dump(server: &Running) -> (TcpStream, [u8; 15]) {
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

/// Symptom: at a ceiling of 32 MiB four clients that read a dump at 500 B/s made the server take 301 MiB for an unlimited
/// time, and no other client got a dump. Cause: later changes were held for each of them and not accounted for, and a byte in
/// 10 s was enough to stay. Fix: the changes are held once, within the ceiling, and there is a minimum rate.
#[test]
fn slow_readers_of_dumps_are_bounded_and_disconnected() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let mut hitting = TcpStream::connect(&server.resp).expect("it listens");
    (0..3).for_each(|_| hit_all(&mut hitting));
    let mut slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let (client, head) = request_dump(&server);
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            client.set_nonblocking(true).expect("a socket");
            client
        })
        .collect();
    assert_eq!(&request_dump(&server).1, b"HTTP/1.1 503 Se", "the number of dumps at a time is bounded");
    // Repeat until the slow clients are disconnected.
    let mut head = [0; 15];
    while &head != b"HTTP/1.1 200 OK" {
        hit_all(&mut hitting);
        let resident: u64 = server.info("used_memory_rss").parse().expect("a number");
        assert!(resident <= MOST_BYTES, "{resident} bytes resident");
        for client in &mut slow {
            // A disconnected client gets no more bytes.
            _ = client.read(&mut [0; 500]);
        }
        head = request_dump(&server).1;
    }
    let held = || {
        let metrics = server.get("/metrics");
        metrics.lines().find_map(|line| line.strip_prefix("lately_memory_dumps_bytes ")?.parse::<u64>().ok())
    };
    while held().expect("there is such a figure") > 0 {}
}
