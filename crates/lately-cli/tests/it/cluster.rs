//! Several servers that count together through a real Redis.

use test_support::RedisServer;

use crate::common::has;
use crate::running::{Running, becomes, serve_with};

fn node(redis: &RedisServer, name: &str) -> Running {
    serve_with(&["--cluster", &redis.url(), "--node", name])
}

/// Whether a key has this many hits on each of the nodes, asked until it has.
fn all_say(nodes: &[&Running], question: &str, hits: u64) -> bool {
    nodes.iter().all(|node| becomes(|| node.ask::<u64>(question) == hits))
}

#[test]
fn hits_on_one_node_show_on_all() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let nodes = ["eu-1", "eu-2", "us-1"].map(|name| node(&redis, name));
    let all: Vec<&Running> = nodes.iter().collect();
    for (node, hits) in nodes.iter().zip([1, 20, 300]) {
        assert!(node.ask::<u64>(&format!("HIT page {hits}")) >= hits);
    }
    assert!(all_say(&all, "HITS page", 321));
    assert!(all_say(&all, "HITS page 10s", 321));
    assert!(all_say(&all, "HITS page 7d", 321));
    // What is known of the others is in the answer to a hit.
    assert_eq!(nodes[0].ask::<u64>("HIT page"), 322);
    assert!(all_say(&all, "HITS page", 322));
    // The hits of a node that is gone stay.
    let [first, second, third] = nodes;
    drop(first);
    assert!(all_say(&[&second, &third], "HITS page", 322));
    let again = node(&redis, "eu-1");
    assert!(all_say(&[&again], "HITS page", 322));
    again.ask::<u64>("HIT page");
    assert!(all_say(&[&again, &second, &third], "HITS page", 323));
}

#[test]
fn a_limit_counts_the_hits_of_all_nodes() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (one, other) = (node(&redis, "a"), node(&redis, "b"));
    for _ in 0..3 {
        assert_eq!(one.ask::<Vec<i64>>("LIMIT login 5 1m")[0], 1);
    }
    assert!(all_say(&[&other], "HITS login 1m", 3));
    let allowed = (0..4).filter(|_| other.ask::<Vec<i64>>("LIMIT login 5 1m")[0] == 1).count();
    assert_eq!(allowed, 2);
    assert!(becomes(|| one.ask::<Vec<i64>>("LIMIT login 5 1m PEEK")[0] == 0));
}

#[test]
fn nodes_count_on_while_the_engine_is_away_and_send_it_later() {
    if !has("redis-server") {
        return;
    }
    let mut redis = RedisServer::start();
    let (one, other) = (node(&redis, "a"), node(&redis, "b"));
    one.ask::<u64>("HIT k 10");
    assert!(all_say(&[&other], "HITS k", 10));
    redis.kill();
    one.ask::<u64>("HIT k 5");
    other.ask::<u64>("HIT k 7");
    assert!(all_say(&[&one], "HITS k", 15));
    // It comes back empty.
    redis.restart();
    assert!(all_say(&[&one, &other], "HITS k", 22));
}
