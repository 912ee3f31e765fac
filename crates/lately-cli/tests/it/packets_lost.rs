//! Nodes that count together while packets to Redis, or from it, are lost.
//!
//! The test runs itself again in a network of its own, where a packet filter drops packets on the loopback device.

use std::io::Write;
use std::process::{Command, Stdio};

use test_support::RedisServer;

use crate::common::has;
use crate::running::{Running, becomes, serve_with};

/// Keys that are hit.
const KEYS: u64 = 10;

/// Set while the test runs in a network of its own.
const INSIDE: &str = "LATELY_TEST_NETWORK";

/// Runs a test of this program again, in a network with only a loopback device.
fn run_inside(test: &str) {
    let mut again = Command::new("unshare");
    again.arg("--net").arg(std::env::current_exe().expect("a path"));
    let again = again.args(["--exact", test, "--nocapture"]).env(INSIDE, "yes").output().expect("it runs");
    let out = [again.stdout, again.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(again.status.success() && out.contains("1 passed"), "{out}");
}

fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("it runs");
    nft.stdin.take().expect("it is piped").write_all(rules.as_bytes()).expect("it reads");
    assert!(nft.wait().expect("it ends").success(), "{rules}");
}

/// Drops this percentage of the packets to a port, or with `sport` of those from it, instead of what was dropped before.
fn lose(direction: &str, port: u16, percentage: u8) {
    nft("flush chain inet test lost\n");
    let some = match percentage {
        0 => return,
        100 => String::new(),
        _ => format!("numgen random mod 100 < {percentage}"),
    };
    nft(&format!("add rule inet test lost tcp {direction} {port} {some} drop\n"));
}

#[test]
fn all_nodes_know_all_hits_though_packets_are_lost_one_way() {
    if !has("redis-server") || !has("nft") || !has("ip") {
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        run_inside("packets_lost::all_nodes_know_all_hits_though_packets_are_lost_one_way");
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("it runs").success());
    nft("add table inet test\nadd chain inet test lost { type filter hook input priority 0; }\n");
    let redis = RedisServer::start();
    let port = redis.address().port();
    let nodes = ["a", "b", "c"].map(|node| serve_with(&["--cluster", &redis.url(), "--node", node]));
    let mut sent = 0;
    let mut hit = |hits: u64| {
        for node in &nodes {
            for key in 0..KEYS {
                node.ask::<u64>(&format!("HIT k{key} {hits}"));
            }
        }
        sent += 3 * hits;
        sent
    };
    let all = |sent: u64| {
        let knows = |node: &Running, key| becomes(|| node.ask::<u64>(&format!("HITS k{key}")) == sent);
        nodes.iter().all(|node| (0..KEYS).all(|key| knows(node, key)))
    };
    for direction in ["dport", "sport"] {
        // A third: everything takes longer.
        lose(direction, port, 30);
        for hits in 1..10 {
            hit(hits);
        }
        assert!(all(hit(1)), "30 % lost, {direction}");
        // All: writes arrive without an answer, or do not arrive.
        lose(direction, port, 100);
        hit(100);
        assert!(
            nodes.iter().all(|node| becomes(|| node.info("lately_engine_ok") == "0")),
            "all lost, {direction}"
        );
        hit(1_000);
        lose(direction, port, 0);
        assert!(all(hit(1)), "none lost, {direction}");
        assert!(
            nodes
                .iter()
                .all(|node| becomes(|| node.infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]))
        );
    }
}
