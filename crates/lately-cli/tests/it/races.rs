//! Threads of a server change the same keys. A start replays their changes in the right order.

use std::fmt::Write;

use crate::running::{Running, serve_in};
use crate::wire::{Reply, Wire};
use test_support::Rng;

const THREADS: u64 = 6;
const ROUNDS: u64 = 40;
/// Requests of one pipeline.
const PIPELINE: u64 = 100;
/// The number of keys of a round, few enough that hits and deletions of one key race.
const KEYS: u64 = 30;

/// Sends requests in one write. None of them may fail.
fn send(wire: &mut Wire, lines: &str) {
    wire.send(lines).expect("the server reads");
    for line in lines.lines() {
        let reply = wire.reply().expect("a reply");
        assert!(reply.leaves().iter().all(|leaf| !matches!(leaf, Reply::Error(_))), "{line}: {reply:?}");
    }
}

fn counts(server: &Running) -> Vec<u64> {
    let ask = |round| {
        let keys: String = (0..KEYS).map(|key| format!(" {round}:{key}")).collect();
        server.ask::<Vec<u64>>(&format!("MHITS 1d{keys}"))
    };
    (0..ROUNDS).flat_map(ask).collect()
}

fn check_races(durability: &str, share: impl Fn(&mut Rng, &str) -> String + Sync) {
    let root = tempfile::tempdir().expect("a folder");
    let args = ["--threads", "4", "--durability", durability];
    let server = serve_in(root.path(), &args);
    std::thread::scope(|scope| {
        for client in 0..THREADS {
            let (server, share) = (&server, &share);
            scope.spawn(move || {
                let (mut wire, mut rng) =
                    (Wire::connect(&server.resp).expect("it listens"), Rng::new(client));
                for round in 0..ROUNDS {
                    let mut lines = String::new();
                    for _ in 0..PIPELINE {
                        let key = format!("{round}:{}", rng.below(KEYS));
                        writeln!(lines, "{}\r", share(&mut rng, &key)).expect("text");
                    }
                    send(&mut wire, &lines);
                }
            });
        }
    });
    let wanted = counts(&server);
    server.signal("KILL");
    drop(server);
    let found = counts(&serve_in(root.path(), &args));
    assert_eq!(found, wanted, "{durability}");
}

#[test]
fn keys_deleted_by_threads_stay_deleted() {
    for durability in ["interval", "always"] {
        check_races(durability, |rng, key| format!("{} {key}", if rng.once_in(3) { "DEL" } else { "HIT" }));
    }
}

#[test]
fn keys_flushed_by_threads_stay_flushed() {
    let share = |rng: &mut Rng, key: &str| match rng.below(60) {
        0 => "FLUSHALL".to_owned(),
        1..10 => format!("DEL {key}"),
        _ => format!("HIT {key}"),
    };
    check_races("interval", share);
}

/// Symptom: after hits and FLUSHALL in one pipeline, a start brought the hits back. Cause: the flush was written before the
/// hits.
#[test]
fn a_flush_after_hits_of_its_pipeline_is_final() {
    let root = tempfile::tempdir().expect("a folder");
    let server = serve_in(root.path(), &[]);
    let mut wire = Wire::connect(&server.resp).expect("it listens");
    send(&mut wire, "HIT gone\r\nHIT gone\r\nFLUSHALL\r\nHIT here\r\n");
    send(&mut wire, "MULTI\r\nHIT gone\r\nFLUSHALL\r\nHIT here\r\nEXEC\r\n");
    for signal in ["KILL", "TERM"] {
        let server = serve_in(&root.path().join(signal), &[]);
        let mut wire = Wire::connect(&server.resp).expect("it listens");
        send(&mut wire, "HIT gone\r\nHIT gone\r\nFLUSHALL\r\nHIT here\r\n");
        server.signal(signal);
        server.ended();
        let server = serve_in(&root.path().join(signal), &[]);
        assert_eq!(server.ask::<Vec<u64>>("MHITS 1d gone here"), [0, 1], "{signal}");
    }
    server.signal("KILL");
    server.ended();
    assert_eq!(serve_in(root.path(), &[]).ask::<Vec<u64>>("MHITS 1d gone here"), [0, 1]);
}
