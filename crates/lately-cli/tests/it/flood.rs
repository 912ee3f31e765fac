//! A flood of keys nobody knows: memory stays below the ceiling, and a key that is used stays known.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::running::{Running, serve_with_ceiling};

const CEILING_BYTES: u64 = 16 << 20;
/// Keys of the flood: several times what fits.
const KEYS: u64 = 1_000_000;
const BATCH: u64 = 1_000;
/// What the process takes beside what it accounts for.
const BASE_BYTES: u64 = 24 << 20;

/// The hits of `BATCH` keys from `first` on. A multiplication spreads them: no two are alike.
fn batch(first: u64) -> String {
    (first..first + BATCH)
        .map(|n| format!("HIT {:016x}\r\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect()
}

/// Sends the flood; between its batches a hit of the key `real`. Gives how many those were, and the
/// most memory that was resident.
fn flood(server: &Running, beside: impl Fn(u64)) -> (u64, u64) {
    let mut socket = TcpStream::connect(&server.resp).expect("the server listens");
    let mut replies = BufReader::new(socket.try_clone().expect("a socket"));
    let (mut real, mut most_bytes) = (0, 0);
    let mut line = String::new();
    for first in (0..KEYS / BATCH).map(|number| number * BATCH) {
        socket.write_all(batch(first).as_bytes()).expect("sent");
        for _ in 0..BATCH {
            line.clear();
            replies.read_line(&mut line).expect("a reply");
            assert_eq!(line, ":1\r\n");
        }
        if first % (20 * BATCH) == 0 {
            real += 1;
            assert_eq!(server.ask::<u64>("HIT real"), real, "the key that is used keeps its count");
            most_bytes = most_bytes.max(server.info("used_memory_rss").parse().expect("a number"));
            beside(first);
        }
    }
    (real, most_bytes)
}

#[test]
fn a_flood_of_keys_stays_below_the_ceiling_and_evicts_itself() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let (real, most_bytes) = flood(&server, |_| ());
    assert_eq!(server.ask::<u64>("HITS real 1h"), real);
    assert!(most_bytes <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES, "{most_bytes} bytes resident");
    let evicted: u64 = server.info("evicted_keys").parse().expect("a number");
    let keys: u64 = server.ask("DBSIZE");
    assert_eq!(keys + evicted, KEYS + 1, "what went is counted");
    assert!(keys * 80 > CEILING_BYTES, "{keys} keys: the ceiling is made use of");
}

#[test]
fn a_flood_beside_clients_that_do_not_read_stays_below_the_ceiling() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let deaf: Vec<TcpStream> = (0..50)
        .map(|_| {
            let socket = TcpStream::connect(&server.resp).expect("the server listens");
            socket.set_nonblocking(true).expect("a socket");
            socket
        })
        .collect();
    let requests = "SERIES real 1h 1s\r\n".repeat(20);
    let (real, most_bytes) = flood(&server, |_| {
        for mut socket in &deaf {
            // What the server does not take, or takes no more, is of no interest.
            _ = socket.write(requests.as_bytes());
        }
    });
    assert_eq!(server.ask::<u64>("HITS real 1h"), real);
    assert!(most_bytes <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES, "{most_bytes} bytes resident");
}
