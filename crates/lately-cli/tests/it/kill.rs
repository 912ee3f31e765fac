//! `kill -9` at any moment: acknowledged hits are kept, none counts twice, and each batch is kept whole or not at all.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};

use crate::common::command;
use crate::ledger::{Change, Client, Counts, Request, counted, is_shared};
use crate::running::{FREE, Running, serve_in};
use crate::wire::Wire;
use test_support::Rng;

const ROUNDS: u64 = 100;
const CLIENTS: u64 = 4;
/// The most requests sent at once, in a normal and in a long pipeline.
const PIPELINES: [u64; 2] = [40, 200];
/// One pipeline in this many is a long one.
const LONG_EVERY: u64 = 10;
/// The kill comes at the latest after this many replies.
const REPLIES: u64 = 2_500;
/// After this many more replies, clients stop and wait for the kill.
const MORE: u64 = 1_000;
/// The most times that the folder of a starting server is listed before the server is killed.
const LOOKS: u64 = 3_000;
/// All keys are checked and deleted once in this many rounds.
const FLUSHED_EVERY: u64 = 10;

/// The requests of a client in a round.
#[derive(Default)]
struct Sent {
    requests: Vec<Request>,
    /// The number of requests with a reply.
    acknowledged: usize,
}

/// Runs a client until the server is gone, or `replied` returns false.
fn run(client: &mut Client, address: &str, save: bool, mut replied: impl FnMut() -> bool) -> Sent {
    let mut sent = Sent::default();
    let Ok(mut wire) = Wire::connect(address) else { return sent };
    let mut goes_on = true;
    while goes_on {
        let is_long = client.rng.once_in(LONG_EVERY);
        let mut requests = client.requests(PIPELINES[usize::from(is_long)]);
        if save && sent.requests.is_empty() {
            requests.push(Request::idle("BGSAVE"));
        }
        let lines: String = requests.iter().map(|request| request.text.as_str()).collect();
        let replies: Vec<usize> = requests.iter().map(|request| request.before + 1).collect();
        let first = sent.requests.len();
        sent.requests.extend(requests);
        if wire.send(&lines).is_err() {
            return sent;
        }
        for (request, replies) in sent.requests[first..].iter().zip(replies) {
            for _ in 0..replies {
                let Ok(reply) = wire.reply() else { return sent };
                assert_eq!(request.refusal(&reply), None, "{request:?}");
                goes_on = replied();
            }
            sent.acknowledged += 1;
        }
    }
    sent
}

/// Runs clients, and kills the server after this many replies.
fn load(server: Running, clients: &mut [Client], save: bool, kill_at: u64) -> Vec<Sent> {
    let (address, replies) = (server.resp.clone(), AtomicU64::new(0));
    let (address, replies) = (&address, &replies);
    let (kill, kill_received) = channel();
    std::thread::scope(|scope| {
        let start = |(index, client)| {
            let kill: Sender<()> = kill.clone();
            let replied = move || {
                let number = replies.fetch_add(1, Relaxed);
                if number == kill_at {
                    _ = kill.send(());
                }
                number < kill_at + MORE
            };
            scope.spawn(move || run(client, address, save && index == 0, replied))
        };
        let threads: Vec<_> = clients.iter_mut().enumerate().map(start).collect();
        drop(kill);
        kill_received.recv().expect("a reply to each request");
        drop(server);
        threads.into_iter().map(|thread| thread.join().expect("nothing is refused")).collect()
    })
}

/// Starts a server and kills it before it is ready, or soon after.
fn start_and_kill(folder: &Path, looks: u64) {
    let mut command = command(&FREE);
    command.args(["--data", folder.to_str().expect("text")]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    (0..looks).for_each(|_| drop(std::fs::read_dir(folder)));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// The requests of a client must have been executed up to some request, including all acknowledged ones, and none after
/// it. Adds them to the expected counts. Returns the possible numbers of executed requests.
fn settle(sent: &Sent, found: &Counts, expected: &mut Counts, when: &str) -> RangeInclusive<usize> {
    let own = || sent.requests.iter().map(|request| request.changes.iter().filter(|it| !is_shared(it.key())));
    let wrong = |key: &str, expected: &Counts| expected.get(key) != found.get(key);
    let keys: BTreeSet<&str> = own().flatten().map(Change::key).collect();
    let mut all_wrong: BTreeSet<&str> = keys.into_iter().filter(|key| wrong(key, expected)).collect();
    let (mut first, mut last, mut wrong_then) = (None, 0, Vec::new());
    let mut changes = own();
    for happened in 0..=sent.requests.len() {
        if happened == sent.acknowledged {
            let row = |key: &&str| (key.to_string(), found.get(*key).copied(), expected.get(*key).copied());
            wrong_then = all_wrong.iter().map(row).collect();
        }
        if all_wrong.is_empty() && happened >= sent.acknowledged {
            first.get_or_insert(happened);
            last = happened;
        }
        for change in changes.next().into_iter().flatten() {
            change.apply(expected);
            if wrong(change.key(), expected) {
                all_wrong.insert(change.key());
            } else {
                all_wrong.remove(change.key());
            }
        }
    }
    let first = first.unwrap_or_else(|| {
        panic!(
            "{when}: of {} requests {} were acknowledged; key, found, expected then: {wrong_then:?}",
            sent.requests.len(),
            sent.acknowledged
        )
    });
    for key in own().flatten().map(Change::key) {
        match found.get(key) {
            Some(hits) => _ = expected.insert(key.to_owned(), *hits),
            None => _ = expected.remove(key),
        }
    }
    first..=last
}

/// Hits of a shared key in requests.
fn hits_of(key: &str, requests: &[Request]) -> u64 {
    let changes = requests.iter().flat_map(|request| &request.changes);
    let hits = changes.map(|change| match change {
        Change::Hits(changed, hits) if changed == key => *hits,
        _ => 0,
    });
    hits.sum()
}

/// Compares the counts with their lower and upper bounds, and updates the expected counts.
fn check(server: &Running, sent: &[Sent], expected: &mut Counts, when: &str) {
    let changes = || sent.iter().flat_map(|sent| &sent.requests).flat_map(|request| &request.changes);
    let keys: BTreeSet<&str> = changes().map(Change::key).collect();
    let found = counted(server, keys.iter().copied());
    let happened: Vec<_> = sent.iter().map(|sent| settle(sent, &found, expected, when)).collect();
    for key in keys.into_iter().filter(|key| is_shared(key)) {
        let before = expected.get(key).copied().unwrap_or(0);
        let sum = |end: fn(&RangeInclusive<usize>) -> usize| {
            let hits = sent.iter().zip(&happened).map(|(sent, all)| hits_of(key, &sent.requests[..end(all)]));
            before + hits.sum::<u64>()
        };
        let (least, most) = (sum(|all| *all.start()), sum(|all| *all.end()));
        let hits = found.get(key).copied().unwrap_or(0);
        assert!((least..=most).contains(&hits), "{when}: {key}: {hits}, not {least} to {most}");
        if hits > 0 {
            expected.insert(key.to_owned(), hits);
        }
    }
    assert_eq!(server.ask::<usize>("DBSIZE"), expected.len(), "{when}: keys");
}

/// Whether a checkpoint was being written.
fn has_part(folder: &Path) -> bool {
    let mut names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a name").path());
    names.any(|path| path.extension().is_some_and(|extension| extension == "part"))
}

fn kill_again_and_again(durability: &str, seed: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = Rng::new(seed);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|name| Client::new(name, &mut rng)).collect();
    let mut expected = Counts::new();
    let mut in_checkpoints = 0;
    let start = |threads| serve_in(folder.path(), &["--durability", durability, "--threads", threads]);
    let mut server = start("1");
    for round in 0..ROUNDS {
        let when = format!("{durability}, seed {seed:#x}, round {round}");
        clients.iter_mut().for_each(|client| client.look_at_the_clock(&server));
        let sent = load(server, &mut clients, rng.once_in(2), rng.below(REPLIES));
        in_checkpoints += u32::from(has_part(folder.path()));
        if rng.once_in(4) {
            start_and_kill(folder.path(), rng.below(LOOKS));
        }
        server = start(["1", "2"][usize::from(rng.once_in(2))]);
        check(&server, &sent, &mut expected, &when);
        if round % FLUSHED_EVERY == FLUSHED_EVERY - 1 {
            assert!(counted(&server, expected.keys().map(String::as_str)) == expected, "{when}: all keys");
            assert_eq!(server.ask::<String>("FLUSHALL"), "OK");
            expected.clear();
        }
    }
    assert!(in_checkpoints > 0, "{durability}, seed {seed:#x}: no kill came during a checkpoint");
}

#[test]
fn every_acknowledged_hit_survives_a_kill() {
    kill_again_and_again("interval", 0x1a7e_1e55);
}

#[test]
fn every_acknowledged_hit_survives_a_kill_where_replies_wait_for_the_disk() {
    kill_again_and_again("always", 0xa1_1e55);
}
