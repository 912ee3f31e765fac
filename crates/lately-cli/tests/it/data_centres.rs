//! Two data centres of two nodes each: a Redis for each data centre, and one that all share.

use serde_json::Value;
use test_support::RedisServer;

use crate::client_runs::{ask, words};
use crate::common::has;
use crate::running::{Running, becomes, serve_with};

/// The servers of both data centres.
struct Site {
    global: RedisServer,
    local: [RedisServer; 2],
}

impl Site {
    fn start() -> Site {
        Site { global: RedisServer::start(), local: [RedisServer::start(), RedisServer::start()] }
    }

    fn node(&self, centre: usize, name: &str) -> Running {
        let (local, global) = (self.local[centre].url(), self.global.url());
        serve_with(&["--cluster", &local, "--upstream", &global, "--node", name])
    }

    /// Two nodes in each data centre.
    fn nodes(&self) -> [Running; 4] {
        [(0, "eu-1"), (0, "eu-2"), (1, "us-1"), (1, "us-2")].map(|(centre, name)| self.node(centre, name))
    }
}

/// Whether a key has this many hits on each of the nodes, asked until it has.
fn all_say(nodes: &[Running], question: &str, hits: u64) -> bool {
    nodes.iter().all(|node| becomes(|| node.ask::<u64>(question) == hits))
}

#[test]
fn every_node_answers_for_all_data_centres() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let nodes = site.nodes();
    for (node, hits) in nodes.iter().zip([1, 20, 300, 4_000]) {
        assert!(node.ask::<u64>(&format!("HIT page {hits}")) >= hits);
    }
    for question in ["HITS page", "HITS page 10s", "HITS page 7d"] {
        assert!(all_say(&nodes, question, 4_321), "{question}");
    }
}
