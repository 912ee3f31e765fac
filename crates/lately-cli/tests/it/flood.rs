//! A flood of new keys: memory stays below the ceiling, and a key in use is not evicted.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::running::{Running, becomes, serve_with_ceiling};

const CEILING_BYTES: u64 = 16 << 20;
/// The number of keys of the flood, several times as many as fit.
const KEYS: u64 = 1_000_000;
const BATCH: u64 = 1_000;
/// The memory of the process that is not accounted for: 16 MiB, without the 12 MiB that pages of its program may take. A
/// debug build has more of these.
const BASE_BYTES: u64 = 4 << 20;

/// A key of the flood. The multiplication makes each different.
fn key(n: u64) -> String {
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The hits of `BATCH` keys from `first` on.
fn batch(first: u64) -> String {
    (first..first + BATCH).map(|n| format!("HIT {}\r\n", key(n))).collect()
}

/// Sends the flood, with hits of the key `real` and calls of `after_some` between its batches. Returns the number of
/// hits of `real`, and the highest resident memory.
fn flood(server: &Running, after_some: impl Fn(u64)) -> (u64, u64) {
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
            assert_eq!(server.ask::<u64>("HIT real"), real, "a key in use keeps its count");
            most_bytes = most_bytes.max(server.own_bytes());
            after_some(first);
        }
    }
    (real, most_bytes)
}

#[test]
fn a_flood_of_keys_stays_below_the_ceiling_and_keeps_a_used_key() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let (real, most_bytes) = flood(&server, |_| ());
    assert_eq!(server.ask::<u64>("HITS real 1h"), real);
    assert!(most_bytes <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES, "{most_bytes} bytes resident");
    let evicted: u64 = server.info("evicted_keys").parse().expect("a number");
    let keys: u64 = server.ask("DBSIZE");
    assert_eq!(keys + evicted, KEYS + 1, "evicted keys are counted");
    assert!(keys * 80 > CEILING_BYTES, "{keys} keys: the ceiling is used");
}

#[test]
fn a_flood_with_clients_that_do_not_read_stays_below_the_ceiling() {
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
            // It does not matter if the server reads only a part, or disconnects.
            _ = socket.write(requests.as_bytes());
        }
    });
    assert_eq!(server.ask::<u64>("HITS real 1h"), real);
    assert!(most_bytes <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES, "{most_bytes} bytes resident");
}

/// Sends requests with one reply of one line each, and samples the resident memory. Returns the highest value.
pub(crate) fn pour(server: &Running, requests: impl Iterator<Item = String>) -> u64 {
    let mut socket = TcpStream::connect(&server.resp).expect("the server listens");
    let mut replies = BufReader::new(socket.try_clone().expect("a socket"));
    let (mut batch, mut line, mut most_bytes) = (String::new(), String::new(), 0);
    let mut requests = requests.peekable();
    for number in 0.. {
        let count = (&mut requests).take(500).map(|request| batch.push_str(&request)).count();
        socket.write_all(batch.as_bytes()).expect("sent");
        for _ in 0..count {
            line.clear();
            replies.read_line(&mut line).expect("a reply");
            assert!(line.starts_with(':'), "{line}");
        }
        batch.clear();
        let is_last = requests.peek().is_none();
        if number % 20 == 0 || is_last {
            most_bytes = most_bytes.max(server.own_bytes());
        }
        if is_last {
            break;
        }
    }
    most_bytes
}

/// Symptom: floods of long keys, then of shorter ones, took 1.8 times the ceiling. Cause: long keys left holes on the heap
/// in which pages of slots do not fit; half-empty tables and chunks of generations were counted too low. Fix: long keys are
/// compacted, allocations are counted, and the remaining fragmentation is charged.
#[test]
fn floods_of_keys_of_all_sizes_stay_below_the_ceiling() {
    const CEILING_BYTES: u64 = 32 << 20;
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let hits = |first: u64, bytes: usize, count: u64| {
        let width = bytes - 16;
        (0..count).map(move |n| format!("HIT {}{:x<width$}\r\n", key(first + n), ""))
    };
    // Each flood is several times the ceiling: long keys, short keys, and all lengths between.
    let sizes =
        [(1_000, 100_000), (16, 1_000_000), (1_000, 60_000), (250, 200_000), (24, 400_000), (16, 400_000)];
    for ((bytes, count), number) in sizes.into_iter().zip(1..) {
        let most_bytes = pour(&server, hits(number << 32, bytes, count));
        assert!(
            most_bytes <= CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES,
            "{most_bytes} bytes resident with keys of {bytes} bytes"
        );
    }
    let used_bytes: u64 = server.info("used_memory_keys").parse().expect("a number");
    // At most half is charged for fragmented memory.
    assert!(used_bytes > CEILING_BYTES / 2, "{used_bytes} bytes: the ceiling is used");
}

/// Keys with large heap blocks leave holes of all sizes.
#[test]
fn floods_of_keys_with_lists_and_limits_stay_below_the_ceiling() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let now: u64 = server.ask::<Vec<u64>>("TIME")[0];
    let lists = |first: u64, keys: u64, hits: u64| {
        let all = (0..keys).flat_map(move |n| (0..hits).map(move |hit| (first + n, hit)));
        all.map(move |(n, hit)| format!("HIT {} AT {}\r\n", key(n), now - (hits - hit) * 7))
    };
    let short = |first: u64| (0..400_000).map(move |n| format!("HIT {}\r\n", key(first + n)));
    let long = (0..50_000).map(|n| format!("HIT {:x<1000}\r\n", key((9 << 32) + n)));
    let few = (0..60_000_u64).map(|n| format!("HIT {} AT {}\r\n", key((8 << 32) + n / 6), now - n % 6));
    let limits = |server: &Running| {
        let mut socket = TcpStream::connect(&server.resp).expect("the server listens");
        let mut replies = BufReader::new(socket.try_clone().expect("a socket"));
        let mut line = String::new();
        for first in (0..50_000).step_by(500) {
            let batch: String = (first..first + 500)
                .map(|n| format!("LIMIT {0} 3 1h\r\nLIMIT {0} 3 1h\r\n", key((7 << 32) + n)))
                .collect();
            socket.write_all(batch.as_bytes()).expect("sent");
            for _ in 0..6 * 1_000 {
                line.clear();
                replies.read_line(&mut line).expect("a reply");
            }
        }
    };
    let mut most_bytes = Vec::new();
    most_bytes.push(pour(&server, lists(1 << 32, 10_000, 40)));
    most_bytes.push(pour(&server, short(2 << 32)));
    limits(&server);
    most_bytes.push(pour(&server, long));
    most_bytes.push(pour(&server, few));
    most_bytes.push(pour(&server, lists(3 << 32, 20_000, 12)));
    most_bytes.push(pour(&server, short(4 << 32)));
    let bound = CEILING_BYTES + CEILING_BYTES / 10 + BASE_BYTES;
    assert!(most_bytes.iter().all(|&bytes| bytes <= bound), "{most_bytes:?}: {bound} is the bound");
}

/// Much of the program is only used at its start.
#[test]
fn a_server_gives_back_what_only_its_start_needs() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let is_given_back = || {
        let (file_bytes, peak_bytes) = server.file_and_peak_bytes();
        file_bytes <= peak_bytes * 2 / 3
    };
    assert!(becomes(is_given_back), "{:?}", server.file_and_peak_bytes());
    assert_eq!(server.ask::<u64>("HIT k"), 1);
}

/// An attacker floods the server with keys, to make it evict the attacker's own keys with their limits.
#[test]
fn a_flood_evicts_no_limit_in_force() {
    let (server, _folder) = serve_with_ceiling(CEILING_BYTES);
    let limit = |line: &str| server.ask::<Vec<i64>>(line)[..3].to_vec();
    // Keys just below a limit, at a limit, locked out, and with a rate.
    for left in (1..10).rev() {
        assert_eq!(limit("LIMIT near 10 1h"), [1, 10, left]);
    }
    assert_eq!(limit("LIMIT full 2 1h COST 2"), [1, 2, 0]);
    assert_eq!(limit("LIMIT locked 1 1s LOCKOUT 1h COST 2"), [0, 1, 0]);
    assert_eq!(limit("CL.THROTTLE rate 4 1 86400 4"), [0, 5, 1]);
    let mut socket = TcpStream::connect(&server.resp).expect("the server listens");
    let mut replies = BufReader::new(socket.try_clone().expect("a socket"));
    let mut line = String::new();
    // Each key has several hits, and some have a limit that is far from reached.
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
    assert!(evicted > KEYS / 2, "{evicted} keys were evicted");
    assert_eq!(limit("LIMIT near 10 1h"), [1, 10, 0]);
    assert_eq!(limit("LIMIT near 10 1h"), [0, 10, 0]);
    assert_eq!(limit("LIMIT full 2 1h"), [0, 2, 0]);
    assert_eq!(limit("LIMIT locked 1 1s"), [0, 1, 0]);
    assert_eq!(limit("CL.THROTTLE rate 4 1 86400 2"), [1, 5, 1]);
    assert_eq!(server.ask::<u64>("HITS near 1h"), 10);
}
