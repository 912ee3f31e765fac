//! A client that requests much and reads nothing does not delay other clients.
//!
//! The requests of that client contain hits, whose count shows how many were executed.

use crate::common::{Running, Wire};

/// Requests whose replies are far larger than socket buffers: each round has a hit, and a reply of over a megabyte.
const ROUNDS: u64 = 40;
const ROUND: &str = "HIT rounds\r\nSERIES k 1w 10s\r\n";
const POINTS: usize = 60_480;

fn ask_for_much(server: &Running, before: &str, after: &str) -> Wire {
    let mut greedy = server.connect();
    greedy.send(format!("{before}{}{after}", ROUND.repeat(usize::try_from(ROUNDS).expect("small"))));
    greedy
}

/// Polls until the server makes no progress for a while. Returns the number of executed rounds.
fn standstill(other: &mut Wire) -> u64 {
    let (mut rounds, mut same) = (0, 0);
    while same < 3_000 && rounds < ROUNDS {
        let now = other.number("HITS rounds\r\n");
        same = if now == rounds && now > 0 { same + 1 } else { 0 };
        rounds = now;
    }
    rounds
}

fn skip_series(client: &mut Wire) {
    // An unaligned week overlaps one step more.
    let head = client.line();
    assert!(head == format!("*{POINTS}") || head == format!("*{}", POINTS + 1), "{head}");
    let points: usize = head[1..].parse().expect("a length");
    for _ in 0..points {
        client.expect("*2\r\n:1");
        client.line();
        client.expect(":0\r\n");
    }
}

#[test]
fn replies_wait_for_a_client_that_does_not_read() {
    let server = Running::start();
    let mut greedy = ask_for_much(&server, "", "");
    let mut other = server.connect();
    let rounds = standstill(&mut other);
    assert!(rounds < ROUNDS, "the server made all replies although none was read");
    greedy.expect(":1\r\n");
    skip_series(&mut greedy);
    greedy.expect(":2\r\n");
}

#[test]
fn replies_of_exec_wait_for_a_client_that_does_not_read() {
    let server = Running::start();
    let mut greedy = ask_for_much(&server, "MULTI\r\n", "EXEC\r\nPING\r\n");
    let mut other = server.connect();
    assert!(standstill(&mut other) < ROUNDS, "the server made all replies although none was read");
    greedy.expect("+OK\r\n");
    (0..2 * ROUNDS).for_each(|_| greedy.expect("+QUEUED\r\n"));
    greedy.expect(format!("*{}\r\n:1\r\n", 2 * ROUNDS));
    skip_series(&mut greedy);
    // The client leaves halfway, and its transaction still runs to the end.
    drop(greedy);
    while other.number("HITS rounds\r\n") < ROUNDS {}
    other.ask("HITS rounds\r\n", format!(":{ROUNDS}\r\n"));
}
