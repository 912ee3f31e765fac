//! Servers in a tree: edges, the middles above them, and a root. A child reaches its parent through a link that tests can cut, and nobody has the
//! address of a child. And servers that find each other by a name.

use std::net::TcpListener;
use std::path::Path;

use test_support::Certificates;

use crate::cluster::{all_say, check_top, check_top_bound};
use crate::cluster_peers::Link;
use crate::common::lately;
use crate::running::{Running, becomes, serve_in, serve_with};

/// The flags of a node, which has these parents.
fn flags(name: &str, parents: &[&Link]) -> Vec<String> {
    let parents = parents.iter().flat_map(|link| ["--parent".to_owned(), format!("peer://{}", link.address)]);
    let own = ["--peer", "127.0.0.1:0", "--node", name].map(str::to_owned);
    parents.chain(own).collect()
}

fn start(name: &str, parents: &[&Link], folder: Option<&Path>) -> Running {
    let flags = flags(name, parents);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    match folder {
        Some(folder) => serve_in(folder, &flags),
        None => serve_with(&flags),
    }
}

/// Children reach this node through this link from now on.
fn lead(link: &Link, node: &mut Running) {
    let address = node.address("peer ");
    link.set(|state| (state.to, state.is_cut) = (Some(address), false));
}

#[test]
fn top_names_the_keys_of_a_tree() {
    let (to_root, to_eu) = (Link::new(), Link::new());
    let mut root = start("root", &[], None);
    lead(&to_root, &mut root);
    let mut eu = start("eu", &[&to_root], None);
    lead(&to_eu, &mut eu);
    let (us, edge) = (start("us", &[&to_root], None), start("eu-1", &[&to_eu], None));
    let nodes = [&root, &eu, &us, &edge];
    check_top(&nodes);
    check_top_bound(&nodes);
}

/// Three levels. The middle is killed, and another server takes its place, which knows nothing.
#[test]
fn a_tree_counts_together_and_survives_a_dead_middle() {
    let (to_root, to_eu, to_us) = (Link::new(), Link::new(), Link::new());
    let mut root = start("root", &[], None);
    lead(&to_root, &mut root);
    let [mut eu, mut us] = ["eu", "us"].map(|name| start(name, &[&to_root], None));
    lead(&to_eu, &mut eu);
    lead(&to_us, &mut us);
    let edges = [("eu-1", &to_eu), ("eu-2", &to_eu), ("us-1", &to_us)];
    let [one, other, far] = edges.map(|(name, parent)| start(name, &[parent], None));
    for (node, hits) in
        [&root, &eu, &us, &one, &other, &far].into_iter().zip([1, 10, 100, 1_000, 10_000, 100_000])
    {
        node.ask::<u64>(&format!("HIT page {hits}"));
    }
    for window in ["", " 7d"] {
        assert!(
            all_say(&[&root, &eu, &us, &one, &other, &far], &format!("HITS page{window}"), 111_111),
            "{window}"
        );
    }
    for node in [&root, &eu, &one] {
        assert!(becomes(|| node.infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]));
    }
    let metrics = eu.get("/metrics");
    for line in [
        "lately_peer_connected{neighbour=\"root\",role=\"parent\"} 1\n",
        "lately_peer_connected{neighbour=\"eu-1\",role=\"child\"} 1\n",
        "lately_peer_resyncs_total{neighbour=\"eu-2\",role=\"child\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(
        !metrics.contains("lately_peer_changes_received_total{neighbour=\"root\",role=\"parent\"} 0\n"),
        "{metrics}"
    );

    // The middle is killed: those below it count on, and the rest goes on without them.
    to_eu.set(|state| (state.to, state.is_cut) = (None, true));
    drop(eu);
    for (node, hits) in [&one, &other, &far, &root].into_iter().zip([2_000, 20_000, 200_000, 2]) {
        node.ask::<u64>(&format!("HIT page {hits}"));
    }
    assert!(all_say(&[&root, &us, &far], "HITS page", 111_111 + 200_002));
    assert!(all_say(&[&one], "HITS page", 111_111 + 2_000));
    for (node, is_ok) in [(&one, "0"), (&root, "1"), (&far, "1")] {
        assert!(becomes(|| node.infos(["lately_engine_ok"]) == [is_ok]));
    }
    let mut again = start("eu", &[&to_root], None);
    lead(&to_eu, &mut again);
    again.ask::<u64>("HIT page 20");
    let all = [&root, &again, &us, &one, &other, &far];
    for window in ["", " 7d"] {
        assert!(all_say(&all, &format!("HITS page{window}"), 111_111 + 222_022), "{window}");
    }
    assert!(becomes(|| one.infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]));
    // A deletion at an edge is one on all.
    assert_eq!(far.ask::<u64>("DEL page"), 1);
    assert!(all_say(&all, "HITS page 7d", 0));
}

/// Each level is killed again and again, and has its hits once. What it had sent may be with its children only.
#[test]
fn a_killed_node_has_its_hits_once_in_a_tree() {
    let (to_root, to_eu) = (Link::new(), Link::new());
    let folders = [(), (), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let other = start("eu-2", &[&to_eu], None);
    let mut hits = 0;
    for _ in 0..2 {
        let mut root = start("root", &[], Some(folders[0].path()));
        lead(&to_root, &mut root);
        let mut eu = start("eu", &[&to_root], Some(folders[1].path()));
        lead(&to_eu, &mut eu);
        let edge = start("eu-1", &[&to_eu], Some(folders[2].path()));
        for node in [&root, &eu, &edge, &other] {
            node.ask::<u64>("HIT k 10");
            hits += 10;
        }
        for window in ["", " 1h"] {
            assert!(all_say(&[&root, &eu, &edge, &other], &format!("HITS k{window}"), hits), "{window}");
        }
        // The root is cut off, and the middle is killed: what that counted last is below it only.
        to_root.set(|state| state.is_cut = true);
        eu.ask::<u64>("HIT k 5");
        hits += 5;
        assert!(all_say(&[&edge, &other], "HITS k", hits));
        drop(eu);
        to_root.set(|state| state.is_cut = false);
        let mut eu = start("eu", &[&to_root], Some(folders[1].path()));
        lead(&to_eu, &mut eu);
        for window in ["", " 1h"] {
            assert!(all_say(&[&root, &eu, &edge, &other], &format!("HITS k{window}"), hits), "{window}");
        }
        assert!(becomes(|| eu.infos(["lately_reconciled"]) == ["1"]));
        assert_eq!([&root, &eu, &edge, &other].map(|node| node.ask::<u64>("HITS k 1h")), [hits; 4]);
    }
}

#[test]
fn a_parent_keeps_the_names_of_its_children_until_they_stop() {
    let (to_root, folder) = (Link::new(), tempfile::tempdir().expect("a folder"));
    let mut root = start("root", &[], Some(folder.path()));
    lead(&to_root, &mut root);
    let children = || std::fs::read_to_string(folder.path().join("children")).unwrap_or_default();
    let [one, other] = ["one", "other"].map(|name| start(name, &[&to_root], None));
    assert!(becomes(|| children().contains("one ") && children().contains("other ")), "{}", children());
    one.ask::<u64>("HIT k 5");
    one.signal("TERM");
    assert_eq!(one.ended().code, Some(0));
    assert!(all_say(&[&root, &other], "HITS k", 5));
    assert!(becomes(|| !children().contains("one ") && children().contains("other ")), "{}", children());
}

#[test]
fn parents_in_a_loop_are_named() {
    let (to_one, to_other) = (Link::new(), Link::new());
    let mut one = start("one", &[&to_other], None);
    let mut other = start("other", &[&to_one], None);
    lead(&to_one, &mut one);
    lead(&to_other, &mut other);
    one.ask::<u64>("HIT k 3");
    assert!(all_say(&[&one, &other], "HITS k", 3));
    one.wait_for_message("this node, 'one', is above it: the parents are in a loop");
    assert!(becomes(|| other.infos(["lately_engine_ok"]) == ["0"]));
}

#[test]
fn a_child_without_a_certificate_gets_and_gives_nothing() {
    if !test_support::has("openssl") {
        return;
    }
    let (to_root, folder) = (Link::new(), tempfile::tempdir().expect("a folder"));
    let certificates = Certificates::make();
    ["root", "edge"].iter().for_each(|name| certificates.sign(name, 9));
    let config = |name: &str, has_tls: bool| {
        let parent =
            if name == "root" { String::new() } else { format!("parent = \"{}\"\n", to_root.address) };
        let file = |end: &str| certificates.file(&format!("{name}{end}.pem")).display().to_string();
        let (ca, cert, key) = (certificates.file("ca.pem"), file(""), file("-key"));
        let tls = format!("tls = {{ ca = \"{}\", cert = \"{cert}\", key = \"{key}\" }}\n", ca.display());
        let tls = if has_tls { tls } else { String::new() };
        format!("[cluster]\nengine = \"peers\"\nnode = \"{name}\"\npeer = \"127.0.0.1:0\"\n{parent}{tls}")
    };
    let start = |name: &str, has_tls: bool| {
        let path = folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, config(name, has_tls)).expect("room");
        serve_with(&["--config", path.to_str().expect("text")])
    };
    let mut root = start("root", true);
    lead(&to_root, &mut root);
    let (edge, plain) = (start("edge", true), start("plain", false));
    for node in [&root, &edge, &plain] {
        node.ask::<u64>("HIT k 5");
    }
    assert!(all_say(&[&root, &edge], "HITS k", 10));
    assert!(becomes(|| plain.infos(["lately_engine_ok"]) == ["0"]));
    assert_eq!([&root, &edge, &plain].map(|node| node.ask::<u64>("HITS k")), [10, 10, 5]);
}

/// Ports that are free, or were a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

/// All nodes have the same config: names that have the addresses of all of them, their own included.
#[test]
fn nodes_find_each_other_by_a_name() {
    let ports = free_ports();
    let urls = ports.map(|port| format!("dns://localhost:{port}"));
    let nodes = ["a", "b"].map(|name| {
        let peer = format!("127.0.0.1:{}", ports[usize::from(name == "b")]);
        serve_with(&["--cluster", &urls[0], "--cluster", &urls[1], "--peer", &peer, "--node", name])
    });
    for (node, hits) in nodes.iter().zip([1, 20]) {
        node.ask::<u64>(&format!("HIT k {hits}"));
    }
    assert!(all_say(&[&nodes[0], &nodes[1]], "HITS k", 21));
    for node in &nodes {
        assert!(becomes(|| node.infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]));
    }
    let metrics = nodes[0].get("/metrics");
    assert!(metrics.contains("lately_peer_connected{neighbour=\"b\",role=\"peer\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("neighbour=\"localhost"), "{metrics}");
}

#[test]
fn a_name_that_has_no_address_is_said() {
    let node = serve_with(&["--cluster", "dns://nowhere.invalid", "--peer", "127.0.0.1:0", "--node", "a"]);
    node.ask::<u64>("HIT k 5");
    let mut node = node;
    node.wait_for_message("dns://nowhere.invalid:7382 cannot be resolved: ");
    assert_eq!(node.ask::<u64>("HITS k"), 5);
}

/// What is wrong with the addresses of a tree is said before the start.
#[test]
fn addresses_of_a_tree_are_checked() {
    let check = |args: &[&str], expected: &str| {
        let run = lately(&[&["serve", "--in-memory", "--node", "a"], args].concat());
        assert!(run.code == Some(2) && run.err.contains(expected), "{}", run.err);
    };
    check(&[], "the node 'a' has no other nodes: add --cluster URL, or");
    let own = ["--parent", "127.0.0.1:7392", "--peer", "127.0.0.1:7392"];
    check(
        &own,
        "parent: 127.0.0.1:7392 is this server itself: give the address of a node that is nearer to the root",
    );
    check(
        &["--parent", "redis://h"],
        "parent: invalid URL 'redis://h': the addresses of other nodes begin with",
    );
    check(
        &["--parent", "h", "--cluster", "redis://h"],
        "--parent is for nodes that reach each other directly, and the engine is redis",
    );
    check(&["--parent", "h", "--cluster", "peer://h"], "parent: h:7382 is in urls, too: give a node once");
    check(&["--parent", "h", "--parent", "peer://H"], "is there twice");
}
