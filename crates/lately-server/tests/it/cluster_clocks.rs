//! Nodes that count together, and whose clocks differ by minutes.

use std::sync::Arc;

use lately::{ManualClock, Timestamp, milliseconds, seconds};
use lately_server::{ClusterConfig, Config};
use test_support::{RedisServer, has, until};

use crate::common::{NOW_S, Running, config};

const AHEAD_S: u64 = 300;

struct Node {
    clock: Arc<ManualClock>,
    server: Running,
}

impl Node {
    fn start(redis: &RedisServer, name: &str, at_s: u64) -> Node {
        let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(at_s).expect("in range")));
        let cluster = ClusterConfig::new(name, &[redis.url()]).expect("valid");
        let config = Config { cluster: Some(cluster), ..config() };
        Node { server: Running::with(config, Arc::<ManualClock>::clone(&clock)), clock }
    }

    fn ask(&self, request: &str) -> u64 {
        let mut wire = self.server.connect();
        wire.send(format!("{request}\r\n"));
        let line = wire.line();
        line.strip_prefix(':').and_then(|number| number.parse().ok()).expect(&line)
    }

    /// Asks until the answer is this, while time passes on the clock.
    fn becomes(&self, request: &str, expected: u64) {
        until(&format!("{request} is {expected}"), || {
            self.clock.advance(milliseconds(10));
            self.ask(request) == expected
        });
    }
}

/// A hit is in the second of the clock that counted it, and is counted once whoever asks.
#[test]
fn a_clock_that_is_minutes_ahead_doubles_and_loses_no_hit() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (right, ahead) = (Node::start(&redis, "a", NOW_S), Node::start(&redis, "b", NOW_S + AHEAD_S));
    right.ask("HIT k 3");
    ahead.ask("HIT k 40");
    ahead.becomes("HITS k 1h", 43);
    // To the clock that is right, these hits are yet to come.
    assert_eq!(right.ask("HITS k 1h"), 3);
    right.clock.advance(seconds(AHEAD_S + 60));
    ahead.clock.advance(seconds(60));
    right.becomes("HITS k 1h", 43);
    ahead.becomes("HITS k 1h", 43);
    right.ask("HIT k 500");
    right.becomes("HITS k 1h", 543);
    ahead.becomes("HITS k 1h", 543);
    // A third node, which learns all of it from the engine.
    let third = Node::start(&redis, "c", NOW_S + AHEAD_S + 120);
    third.becomes("HITS k 1h", 543);
}
