//! The server reads the clock once for a batch, which has the requests of one read from the socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lately::{Clock, Timestamp};
use lately_server::Config;

use crate::common::{NOW_S, Running, Wire, config};

/// A clock that advances by a second each time it is read.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.0.fetch_add(1, Relaxed)).expect("in range")
    }
}

/// The seconds in a reply to `TIME`.
fn time(client: &mut Wire) -> u64 {
    client.expect("*2\r\n$10\r\n");
    let seconds = client.line().parse().expect("seconds");
    client.expect("$1\r\n0\r\n");
    seconds
}

#[test]
fn a_pipeline_reads_the_clock_once() {
    let server = Running::with(config(), Arc::new(Ticking(AtomicU64::new(NOW_S))));
    let mut client = server.connect();
    // Few enough for one turn of a connection.
    let requests = "TIME\r\n".repeat(50);
    let one_look = (0..1_000).any(|_| {
        client.send(&requests);
        let first = time(&mut client);
        // Loopback usually delivers the whole pipeline at once.
        let same = (1..50).filter(|_| time(&mut client) == first).count() == 49;
        client.send("TIME\r\n");
        // The sweep reads the clock too, a hundred times a second.
        time(&mut client) == first + 1 && same
    });
    assert!(one_look, "no pipeline of fifty requests was answered with one read of the clock");
}

/// A clock that panics while the flag is set.
#[derive(Default)]
struct Broken(AtomicBool);

impl Clock for Broken {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Relaxed), "the clock is broken");
        Timestamp::from_seconds(NOW_S).expect("in range")
    }
}

/// Whether a new client is answered.
fn is_served(server: &Running) -> bool {
    let mut reply = Vec::new();
    let mut socket = TcpStream::connect(server.resp).expect("the server listens");
    let end = socket.write_all(b"QUIT\r\n").and_then(|()| socket.read_to_end(&mut reply));
    end.is_ok() && reply == b"+OK\r\n"
}

#[test]
fn a_bug_ends_connections_and_not_the_server() {
    let clock = Arc::new(Broken::default());
    let server = Running::with(Config { loops: 2, ..config() }, Arc::clone(&clock) as _);
    let mut client = server.connect();
    client.ask("HIT k\r\n", ":1\r\n");
    clock.0.store(true, Relaxed);
    client.send("HIT k\r\n");
    client.expect_rest("");
    clock.0.store(false, Relaxed);
    // Each thread of the server serves again.
    while !(0..4).all(|_| is_served(&server)) {}
    server.connect().ask("HITS k\r\n", ":1\r\n");
    server.stopper.stop();
    server.ended();
}
