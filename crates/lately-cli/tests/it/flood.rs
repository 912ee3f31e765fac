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

/// A key of the flood. A multiplication spreads them: no two are alike.
fn key(n: u64) -> String {
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The hits of `BATCH` keys from `first` on.
fn batch(first: u64) -> String {
    (first..first + BATCH).map(|n| format!("HIT {}\r\n", key(n))).collect()
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

/// Whoever floods the server with keys wants it to forget what it knows of his own.
#[test]
fn a_flood_takes_no_limit_away() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let limit = |line: &str| server.ask::<Vec<i64>>(line)[..3].to_vec();
    // One short of its limit, one at its limit, one locked out, one that keeps to a rate.
    for left in (1..10).rev() {
        assert_eq!(limit("LIMIT near 10 1h"), [1, 10, left]);
    }
    assert_eq!(limit("LIMIT full 2 1h COST 2"), [1, 2, 0]);
    assert_eq!(limit("LIMIT locked 1 1s LOCKOUT 1h COST 2"), [0, 1, 0]);
    assert_eq!(limit("CL.THROTTLE rate 4 1 86400 4"), [0, 5, 1]);
    let mut socket = TcpStream::connect(&server.resp).expect("the server listens");
    let mut replies = BufReader::new(socket.try_clone().expect("a socket"));
    let mut line = String::new();
    // Each key has several hits, and some of them a limit of their own, far from being reached.
    let requests = |n: u64| match n % 3 {
        0 => format!("HIT {0}\r\nHIT {0}\r\n", key(n)),
        1 => format!("HIT {} 5\r\nPING\r\n", key(n)),
        _ => format!("CL.THROTTLE {} 15 30 60 2\r\n", key(n)),
    };
    for first in (0..KEYS / BATCH).map(|number| number * BATCH) {
        let batch: String = (first..first + BATCH).map(requests).collect();
        socket.write_all(batch.as_bytes()).expect("sent");
        let replies_of = |n: u64| if n % 3 == 2 { 6 } else { 2 };
        for _ in 0..(first..first + BATCH).map(replies_of).sum() {
            line.clear();
            replies.read_line(&mut line).expect("a reply");
            assert!(!line.starts_with('-'), "{line}");
        }
    }
    let evicted: u64 = server.info("evicted_keys").parse().expect("a number");
    assert!(evicted > KEYS / 2, "{evicted} keys went");
    assert_eq!(limit("LIMIT near 10 1h"), [1, 10, 0]);
    assert_eq!(limit("LIMIT near 10 1h"), [0, 10, 0]);
    assert_eq!(limit("LIMIT full 2 1h"), [0, 2, 0]);
    assert_eq!(limit("LIMIT locked 1 1s"), [0, 1, 0]);
    assert_eq!(limit("CL.THROTTLE rate 4 1 86400 2"), [1, 5, 1]);
    assert_eq!(server.ask::<u64>("HITS near 1h"), 10);
}
