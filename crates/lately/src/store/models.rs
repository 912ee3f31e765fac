//! Models of requests that lock several shards. Loom runs all orders in which threads can get the locks, with
//! a bounded number of preemptions. A deadlock fails the run.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::Store;
use super::key::shard_of;
use super::operation::{JointRequest, Limit};
use crate::time::{Timestamp, minutes};

/// The most preemptions in a run.
const PREEMPTIONS: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

fn now() -> Timestamp {
    Timestamp::from_seconds(1_700_000_000).expect("a time")
}

/// A store, and keys in different shards.
fn store() -> Arc<Store> {
    let store = Store::builder().seed(1).build().expect("valid");
    let shards = KEYS.map(|key| shard_of(store.hash(key)));
    assert!(shards[0] != shards[1] && shards[1] != shards[2] && shards[0] != shards[2], "{shards:?}");
    Arc::new(store)
}

const KEYS: [&[u8]; 3] = [b"ip:10.0.0.1", b"user:42", b"everybody"];
const MAX: u64 = 1;

/// Requests one hit of each of the keys, in this order. Returns whether it is allowed.
fn ask(store: &Store, keys: &[usize]) -> bool {
    let limit = |&key: &usize| Limit { key: KEYS[key], max: MAX, window: minutes(5) };
    let limits = keys.iter().map(limit).collect();
    let decisions = store.decide_all(JointRequest { limits, cost: 1, at: None, is_peek: false }, now());
    decisions.expect("decided").is_allowed()
}

fn counts(store: &Store) -> [u64; 3] {
    KEYS.map(|key| store.hits(key, minutes(5), now()).estimate)
}

/// Two requests share a key: one is allowed, and the other counts nothing.
#[test]
fn two_requests_share_keys() {
    model(|| {
        let store = store();
        let other = Arc::clone(&store);
        let thread = thread::spawn(move || ask(&other, &[1, 0]));
        let here = ask(&store, &[0, 1]);
        let there = thread.join().expect("it does not panic");
        assert!(here != there);
        assert_eq!(counts(&store), [1, 1, 0]);
    });
}

/// Three requests in a ring, each with a key of the one before. They would deadlock if they locked in the
/// order of their keys.
#[test]
fn three_requests_share_keys_in_a_ring() {
    model(|| {
        let store = store();
        let ask_apart = |keys: [usize; 2]| {
            let store = Arc::clone(&store);
            thread::spawn(move || ask(&store, &keys))
        };
        let threads = [ask_apart([0, 1]), ask_apart([1, 2])];
        let here = ask(&store, &[2, 0]);
        let there = threads.map(|thread| thread.join().expect("it does not panic"));
        let allowed = usize::from(here) + there.into_iter().filter(|&allowed| allowed).count();
        // Any two requests have a key in common.
        assert_eq!(allowed, 1);
        assert_eq!(counts(&store).iter().sum::<u64>(), 2);
    });
}

/// A joint request and a limit of a single key.
#[test]
fn a_single_limit_races_a_joint_request() {
    model(|| {
        let store = store();
        let other = Arc::clone(&store);
        let thread = thread::spawn(move || {
            other.limit(KEYS[1], MAX, minutes(5), 1, now()).expect("decided").is_allowed()
        });
        let here = ask(&store, &[0, 1]);
        let there = thread.join().expect("it does not panic");
        assert!(here != there);
        assert_eq!(counts(&store), if here { [1, 1, 0] } else { [0, 1, 0] });
    });
}
