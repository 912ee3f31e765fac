//! A stop: requests that were already sent are answered, then everything closes.

use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use lately_server::Config;

use crate::common::{Running, Wire, config, standing_clock};

/// An accepted client.
fn taken(server: &Running) -> Wire {
    let mut client = server.connect();
    client.ask("PING\r\n", "+PONG\r\n");
    client
}

/// Symptom: sometimes a client got no reply to a request sent just before the stop. Cause: the runtime had not yet
/// reported the bytes, so there seemed to be nothing to read. Fix: the server polls once more.
#[test]
fn requests_sent_before_the_stop_are_answered() {
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

/// Symptom: a reset instead of replies. Cause: a socket that is closed with unread input is reset, and replies that are
/// still under way are lost.
#[test]
fn a_client_that_keeps_sending_gets_the_replies_from_before_the_stop() {
    let server = Running::start();
    let all_began = std::sync::Barrier::new(5);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let sent = AtomicUsize::new(0);
                let (mut client, all_began, server) = (taken(&server), &all_began, &server);
                scope.spawn(move || {
                    let mut sender = client.other();
                    thread::scope(|scope| {
                        let sending = scope.spawn(|| {
                            // Until the server stops reading: it discards input that comes too late.
                            while sender.try_send("HIT k\r\n".repeat(500)) {
                                sent.fetch_add(500, SeqCst);
                            }
                        });
                        assert!(client.line().starts_with(':'));
                        let before = sent.load(SeqCst);
                        // The first client stops the server for all.
                        all_began.wait();
                        server.stopper.stop();
                        let replies = client.take_rest().iter().filter(|&&byte| byte == b'\n').count();
                        assert!(replies + 1 >= before, "{replies} of {before}");
                        client.close();
                        sending.join().expect("no panic");
                    });
                })
            })
            .collect();
        all_began.wait();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
    });
    server.ended();
}

#[test]
fn no_hit_of_clients_of_two_loops_is_lost_at_a_stop() {
    for _ in 0..10 {
        let server = Running::with(Config { loops: 2, ..config() }, standing_clock());
        let clients: Vec<Wire> = (0..4).map(|_| taken(&server)).collect();
        let mut watching = taken(&server);
        let mut replies: Vec<usize> = thread::scope(|scope| {
            let taking: Vec<_> = clients
                .into_iter()
                .map(|mut client| {
                    let mut sender = client.other();
                    // Until the server stops reading.
                    scope.spawn(move || while sender.try_send("HIT k\r\n".repeat(64)) {});
                    scope.spawn(move || {
                        let replies = client.take_rest();
                        client.close();
                        String::from_utf8(replies).expect("text")
                    })
                })
                .collect();
            while watching.number("HITS k 5m\r\n") < 20_000 {}
            server.stopper.stop();
            let replies: Vec<String> =
                taking.into_iter().map(|client| client.join().expect("no panic")).collect();
            let numbers = replies.iter().flat_map(|replies| replies.split_terminator("\r\n"));
            numbers.map(|line| line[1..].parse().expect(line)).collect()
        });
        replies.sort_unstable();
        assert_eq!(replies, (1..=replies.len()).collect::<Vec<_>>());
        server.ended();
    }
}

#[test]
fn a_client_that_sends_after_quit_gets_its_replies() {
    // More than the buffer of the client holds, and less than both buffers hold.
    const REPLIES: usize = 20_000;
    let server = Running::start();
    let mut other = taken(&server);
    for (marker, end, reply) in [("a", "QUIT\r\n", "+OK\r\n"), ("b", "*1\r\n!\r\n", "-ERR Protocol error")] {
        let mut client = taken(&server);
        let echo = format!("ECHO {}\r\n", "x".repeat(30)).repeat(REPLIES);
        client.send(format!("{echo}HIT {marker}\r\n{end}{}", "x".repeat(1 << 20)));
        while other.number(&format!("HITS {marker} 5m\r\n")) == 0 {}
        // The requests after the end are in the same batch or in the next one.
        (0..10).for_each(|_| other.ask("PING\r\n", "+PONG\r\n"));
        let replies = String::from_utf8(client.take_rest()).expect("text");
        assert_eq!(replies.matches("$30\r\n").count(), REPLIES);
        assert!(replies.contains(reply), "{reply}");
    }
    server.stopper.stop();
    server.ended();
}

#[test]
fn no_client_is_accepted_after_the_stop() {
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
