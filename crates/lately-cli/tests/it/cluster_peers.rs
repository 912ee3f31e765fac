//! Several servers that count together without another system. Between any two of them is a link that tests can cut.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use test_support::Certificates;

use crate::client_runs::{ask, words};
use crate::cluster::{all_say, check_members, check_top, check_top_bound, with_members};
use crate::common::lately;
use crate::running::{Running, becomes, serve_in, serve_with};

/// A way to a node for one other node. The node may get another address, and the way may be cut.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<LinkState>>,
}

#[derive(Default)]
pub(crate) struct LinkState {
    pub(crate) to: Option<String>,
    pub(crate) is_cut: bool,
    open: Vec<TcpStream>,
}

impl Link {
    pub(crate) fn new() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<Mutex<LinkState>>::default();
        let ours = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A refused connection is closed.
                let _ = pass_on(stream, &ours);
            }
        });
        Link { address, state }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut LinkState)) {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(state);
        if state.is_cut {
            for stream in state.open.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn pass_on(from: TcpStream, state: &Mutex<LinkState>) -> io::Result<()> {
    let state = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
    let to = state.to.as_ref().filter(|_| !state.is_cut).ok_or_else(|| io::Error::other("cut"))?;
    let to = TcpStream::connect(to)?;
    for stream in [&from, &to] {
        stream.set_nodelay(true)?;
        state.open.push(stream.try_clone()?);
    }
    for (mut from, mut to) in [(from.try_clone()?, to.try_clone()?), (to, from)] {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

/// The links of a mesh: `links[from][to]` is the way of a node to another one.
struct Links(Vec<Vec<Link>>);

impl Links {
    fn new(count: usize) -> Links {
        Links((0..count).map(|_| (0..count).map(|_| Link::new()).collect()).collect())
    }

    /// The flags of a node: the addresses of the others.
    fn flags(&self, number: usize) -> Vec<String> {
        let others = self.0[number].iter().enumerate().filter(|(other, _)| *other != number);
        let urls = others.flat_map(|(_, link)| ["--cluster".to_owned(), format!("peer://{}", link.address)]);
        let own = ["--peer", "127.0.0.1:0", "--node", ["a", "b", "c", "d"][number]].map(str::to_owned);
        urls.chain(own).collect()
    }

    /// A node is reached here from now on.
    fn lead_to(&self, number: usize, node: &mut Running) {
        let address = node.address("peer ");
        for from in &self.0 {
            from[number].set(|state| state.to = Some(address.clone()));
        }
    }

    fn start(&self, number: usize) -> Running {
        let flags = self.flags(number);
        let mut node = serve_with(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        self.lead_to(number, &mut node);
        node
    }

    fn start_in(&self, number: usize, folder: &Path) -> Running {
        let flags = self.flags(number);
        let mut node = serve_in(folder, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        self.lead_to(number, &mut node);
        node
    }

    /// Cuts a node off from another one, in both directions, or joins them again.
    fn cut(&self, one: usize, other: usize, is_cut: bool) {
        for (from, to) in [(one, other), (other, one)] {
            self.0[from][to].set(|state| state.is_cut = is_cut);
        }
    }
}

#[test]
fn nodes_count_together_without_another_system() {
    let links = Links::new(3);
    let nodes = [0, 1, 2].map(|number| links.start(number));
    let all: Vec<&Running> = nodes.iter().collect();
    for (node, hits) in nodes.iter().zip([1, 20, 300]) {
        node.ask::<u64>(&format!("HIT page {hits}"));
    }
    for window in ["", " 10m", " 7d"] {
        assert!(all_say(&all, &format!("HITS page{window}"), 321), "{window}");
    }
    // A limit counts the hits of all, and a deletion is one on all.
    for _ in 0..3 {
        assert_eq!(nodes[0].ask::<Vec<i64>>("LIMIT login 5 1h")[0], 1);
    }
    assert!(all_say(&all, "HITS login 1h", 3));
    let allowed = (0..4).filter(|_| nodes[1].ask::<Vec<i64>>("LIMIT login 5 1h")[0] == 1).count();
    assert_eq!(allowed, 2);
    assert_eq!(nodes[2].ask::<u64>("DEL page"), 1);
    assert!(all_say(&all, "HITS page 7d", 0));
    nodes[0].ask::<u64>("HIT page 2");
    assert!(all_say(&all, "HITS page 7d", 2));
    let mut listed = String::new();
    let has_all = becomes(|| {
        listed = ask(&nodes[0].resp, &words("cluster")).out;
        listed.contains("engine  peer://127.0.0.1:")
            && ["a  ", "b  ", "c  "].iter().all(|name| listed.contains(name))
    });
    assert!(has_all, "{listed}");
}

#[test]
fn members_of_all_nodes_are_counted_without_another_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let (links, config) = (Links::new(3), with_members(folder.path()));
    let nodes = [0, 1, 2].map(|number| {
        let flags = [&links.flags(number)[..], &config].concat();
        let mut node = serve_with(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        links.lead_to(number, &mut node);
        node
    });
    check_members(&nodes.each_ref());
}

#[test]
fn top_names_the_keys_of_all_nodes_without_another_system() {
    let links = Links::new(3);
    let nodes = [0, 1, 2].map(|number| links.start(number));
    check_top(&nodes.each_ref());
    check_top_bound(&nodes.each_ref());
}

/// A node is gone, and one that was cut off from it gets its hits from the third.
#[test]
fn hits_of_a_node_that_is_gone_are_passed_on() {
    let links = Links::new(3);
    let nodes = [0, 1, 2].map(|number| links.start(number));
    let all: Vec<&Running> = nodes.iter().collect();
    nodes[0].ask::<u64>("HIT k 1");
    assert!(all_say(&all, "HITS k", 1));
    links.cut(0, 2, true);
    links.cut(1, 2, true);
    nodes[0].ask::<u64>("HIT k 10");
    nodes[2].ask::<u64>("HIT k 100");
    assert!(all_say(&all[..2], "HITS k", 11));
    assert!(becomes(|| nodes[2].infos(["lately_engine_ok"]) == ["0"]));
    let [first, second, third] = nodes;
    // Killed.
    drop(first);
    links.cut(1, 2, false);
    assert!(all_say(&[&second, &third], "HITS k", 111));
    assert!(all_say(&[&second, &third], "HITS k 7d", 111));
    // A new server takes its place, and knows nothing.
    let again = links.start(0);
    links.cut(0, 2, false);
    again.ask::<u64>("HIT k 1000");
    assert!(all_say(&[&again, &second, &third], "HITS k 7d", 1_111));
}

#[test]
fn nodes_count_on_while_they_are_apart_and_agree_later() {
    let links = Links::new(3);
    let nodes = [0, 1, 2].map(|number| links.start(number));
    let all: Vec<&Running> = nodes.iter().collect();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        links.cut(one, other, true);
    }
    for (number, node) in nodes.iter().enumerate() {
        for key in 0..100 {
            node.ask::<u64>(&format!("HIT key:{key} {}", number + 1));
        }
    }
    for node in &nodes {
        assert!(becomes(|| node.infos(["lately_engine_ok", "lately_unsent_keys"]) == ["0", "100"]));
    }
    for (one, other) in [(0, 1), (1, 2)] {
        links.cut(one, other, false);
    }
    // The first and the last know each other through the one in the middle.
    for key in [0, 7, 99] {
        assert!(all_say(&all, &format!("HITS key:{key} 7d"), 6), "{key}");
    }
    assert!(becomes(|| nodes[1].infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]));
    links.cut(0, 2, false);
    assert!(becomes(|| nodes[0].infos(["lately_engine_ok", "lately_unsent_keys"]) == ["1", "0"]));
}

/// Symptom: hits of another node outlived a `DEL` on a node that was cut off from it. Cause: the node marked what it knew, and looked no
/// more. Fix: while nodes are away it remembers which keys it deleted, and marks what comes from before.
#[test]
fn hits_that_a_node_did_not_know_of_are_deleted_when_it_is_back() {
    let links = Links::new(3);
    let nodes = [0, 1, 2].map(|number| links.start(number));
    let all: Vec<&Running> = nodes.iter().collect();
    for key in 0..20 {
        nodes[2].ask::<u64>(&format!("HIT key:{key}"));
    }
    assert!(all_say(&all, "HITS key:19", 1));
    [0, 1].iter().for_each(|other| links.cut(*other, 2, true));
    assert!(becomes(|| nodes[2].infos(["lately_engine_ok"]) == ["0"]));
    for key in 0..20 {
        nodes[0].ask::<u64>(&format!("HIT key:{key} 100"));
    }
    assert!(all_say(&[&nodes[1]], "HITS key:19", 101));
    for key in 0..20 {
        assert_eq!(nodes[2].ask::<u64>(&format!("DEL key:{key}")), 1);
    }
    [0, 1].iter().for_each(|other| links.cut(*other, 2, false));
    for key in 0..20 {
        for window in ["", " 1h", " 7d"] {
            assert!(all_say(&all, &format!("HITS key:{key}{window}"), 0), "{key}{window}");
        }
    }
}

/// A node with a journal is killed again and again; its successor counts under another origin. It compares what it has only when it knows
/// what the others have.
#[test]
fn a_killed_node_has_its_hits_once_in_a_mesh() {
    let links = Links::new(3);
    let folder = tempfile::tempdir().expect("a folder");
    let others = [1, 2].map(|number| links.start(number));
    for round in 1..4 {
        let one = links.start_in(0, folder.path());
        one.ask::<u64>("HIT k 10");
        others[0].ask::<u64>("HIT k 1");
        let all = [&one, &others[0], &others[1]];
        assert!(all_say(&all, "HITS k", 11 * round), "{round}");
        assert!(all_say(&all, "HITS k 1h", 11 * round), "{round}");
        // Killed.
        drop(one);
    }
}

#[test]
fn what_was_counted_last_is_with_the_others_after_a_stop() {
    let links = Links::new(3);
    let [one, other, third] = [0, 1, 2].map(|number| links.start(number));
    assert!(all_say(&[&one, &other, &third], "HITS k", 0));
    one.ask::<u64>("HIT k 5");
    one.signal("TERM");
    let run = one.ended();
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(all_say(&[&other, &third], "HITS k", 5));
    // The name is free again at once.
    let again = links.start(0);
    assert!(all_say(&[&again], "HITS k", 5));
}

/// The config of a node whose certificate is `cert` of these.
fn config(links: &Links, number: usize, (of, cert): (&Certificates, &str)) -> String {
    let others = links.0[number].iter().enumerate().filter(|(other, _)| *other != number);
    let urls: Vec<String> = others.map(|(_, link)| format!("\"peer://{}\"", link.address)).collect();
    let (ca, cert, key) =
        (of.file("ca.pem"), of.file(&format!("{cert}.pem")), of.file(&format!("{cert}-key.pem")));
    format!(
        "[cluster]\nengine = \"peers\"\nnode = \"{}\"\nurls = [{}]\npeer = \"127.0.0.1:0\"\ntls = {{ ca = \"{}\", cert = \"{}\", key = \"{}\" }}\n",
        ["a", "b", "c", "d"][number],
        urls.join(", "),
        ca.display(),
        cert.display(),
        key.display(),
    )
}

#[test]
fn nodes_with_certificates_count_together_and_others_are_refused() {
    if !test_support::has("openssl") {
        return;
    }
    let (links, folder) = (Links::new(4), tempfile::tempdir().expect("a folder"));
    let (certificates, foreign) = (Certificates::make(), Certificates::make());
    certificates.sign("a", 9);
    certificates.sign("b", 9);
    certificates.sign("old", -1);
    foreign.sign("c", 9);
    let start = |number: usize, of: &Certificates, cert: &str| {
        let path = folder.path().join(format!("{number}.toml"));
        std::fs::write(&path, config(&links, number, (of, cert))).expect("room");
        let mut node = serve_with(&["--config", path.to_str().expect("text")]);
        links.lead_to(number, &mut node);
        node
    };
    let (a, b) = (start(0, &certificates, "a"), start(1, &certificates, "b"));
    // The authority of one is not that of the others, and the certificate of the other is over.
    let (c, d) = (start(2, &foreign, "c"), start(3, &certificates, "old"));
    for node in [&a, &b, &c, &d] {
        node.ask::<u64>("HIT k 5");
    }
    assert!(all_say(&[&a, &b], "HITS k", 10));
    for node in [&c, &d] {
        assert!(becomes(|| node.infos(["lately_engine_ok"]) == ["0"]));
        assert_eq!(node.ask::<u64>("HITS k"), 5);
    }
    assert_eq!([a.ask::<u64>("HITS k"), b.ask::<u64>("HITS k")], [10, 10]);
    // Without a certificate at all, too.
    let path = folder.path().join("plain.toml");
    let plain = config(&links, 3, (&certificates, "a"));
    let plain: String =
        plain.lines().filter(|line| !line.starts_with("tls")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, plain.replace("\"d\"", "\"e\"")).expect("room");
    let plain = serve_with(&["--config", path.to_str().expect("text")]);
    plain.ask::<u64>("HIT k 5");
    assert!(becomes(|| plain.infos(["lately_engine_ok"]) == ["0"]));
    assert_eq!([a.ask::<u64>("HITS k"), b.ask::<u64>("HITS k"), plain.ask::<u64>("HITS k")], [10, 10, 5]);
}

#[test]
fn a_second_server_with_the_name_of_a_node_ends() {
    let links = Links::new(3);
    let nodes = [0, 1].map(|number| links.start(number));
    let all: Vec<&Running> = nodes.iter().collect();
    nodes[0].ask::<u64>("HIT k");
    assert!(all_say(&all, "HITS k", 1));
    let mut flags = links.flags(2);
    *flags.last_mut().expect("the name") = "a".to_owned();
    let mut second = serve_with(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    links.lead_to(2, &mut second);
    let run = second.ended();
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.contains("another server is node 'a' of the cluster"), "{}", run.err);
    nodes[0].ask::<u64>("HIT k");
    assert!(all_say(&all, "HITS k", 2));
}

/// What is wrong with the addresses of a mesh is said before the start.
#[test]
fn addresses_of_a_mesh_are_checked() {
    let check = |args: &[&str], expected: &str| {
        let run = lately(&[&["serve", "--in-memory", "--node", "a"], args].concat());
        assert!(run.code == Some(2) && run.err.contains(expected), "{}", run.err);
    };
    check(&["--cluster", "peer://127.0.0.1:7382"], "127.0.0.1:7382 is this server itself");
    check(&["--cluster", "peer://127.0.0.1:1", "--peer", "127.0.0.1:1"], "is this server itself");
    check(
        &["--cluster", "peer://h", "--cluster", "peer://h:7382", "--peer", "127.0.0.1:1"],
        "is there twice",
    );
    check(&["--cluster", "redis://h", "--peer", "127.0.0.1:1"], "the engine is redis: leave it out");
    check(
        &["--cluster", "peer://h", "--peer", "0.0.0.0:0"],
        "refusing to listen on 0.0.0.0:0 for other nodes: there is no TLS between nodes",
    );
}
