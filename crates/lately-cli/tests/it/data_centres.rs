//! Two data centres of two nodes each: a Redis for each data centre, and one that all share.

use serde_json::Value;
use test_support::{RedisServer, until};

use crate::client_runs::{ask, words};
use crate::cluster::{check_members, check_top, with_members};
use crate::cluster_peers::Link;
use crate::common::{has, lately};
use crate::running::{Running, becomes, serve_in, serve_with};

/// The keys of a test, and how often each is hit in a round.
const KEYS: u64 = 40;

/// The engines of both data centres.
struct Site {
    global: RedisServer,
    local: [RedisServer; 2],
}

const NODES: [(usize, &str); 4] = [(0, "eu-1"), (0, "eu-2"), (1, "us-1"), (1, "us-2")];

impl Site {
    fn start() -> Site {
        Site { global: RedisServer::start(), local: [RedisServer::start(), RedisServer::start()] }
    }

    fn node(&self, centre: usize, name: &str) -> Running {
        self.node_with(centre, name, &[])
    }

    fn node_with(&self, centre: usize, name: &str, flags: &[String]) -> Running {
        let (local, global) = (self.local[centre].url(), self.global.url());
        let own = ["--cluster", &local, "--upstream", &global, "--node", name];
        let flags = own.into_iter().chain(flags.iter().map(String::as_str));
        serve_with(&flags.collect::<Vec<_>>())
    }

    /// Two nodes in each data centre.
    fn nodes(&self) -> [Running; 4] {
        NODES.map(|(centre, name)| self.node(centre, name))
    }
}

/// Whether a key has this many hits on each of the nodes, asked until it has.
pub(crate) fn all_say<'n>(nodes: impl IntoIterator<Item = &'n Running>, question: &str, hits: u64) -> bool {
    nodes.into_iter().all(|node| becomes(|| node.ask::<u64>(question) == hits))
}

/// Hits each key on a node: the first once, the second twice, and so on.
pub(crate) fn hit_all(node: &Running) {
    let pairs: Vec<String> = (0..KEYS).map(|key| format!("k{key} {}", key + 1)).collect();
    node.ask::<Vec<u64>>(&format!("MHIT {}", pairs.join(" ")));
}

/// Whether each node has the hits of this many rounds on every key, asked until it has.
pub(crate) fn all_have<'n>(nodes: impl IntoIterator<Item = &'n Running>, rounds: u64) -> bool {
    all_have_in(["5m", "7d"], nodes, rounds)
}

/// The same in other windows.
fn all_have_in<'n>(windows: [&str; 2], nodes: impl IntoIterator<Item = &'n Running>, rounds: u64) -> bool {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let expected: Vec<u64> = (1..=KEYS).map(|hits| hits * rounds).collect();
    let questions = windows.map(|window| format!("MHITS {window} {}", keys.join(" ")));
    nodes
        .into_iter()
        .all(|node| questions.iter().all(|question| becomes(|| node.ask::<Vec<u64>>(question) == expected)))
}

fn aggregator(node: &Running) -> String {
    node.info("lately_upstream_aggregator")
}

#[test]
fn members_of_all_data_centres_are_counted() {
    if !has("redis-server") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (site, config) = (Site::start(), with_members(folder.path()));
    let nodes = NODES.map(|(centre, name)| site.node_with(centre, name, &config));
    check_members(&nodes.each_ref());
    // A node that knew nothing waits for the answers of both engines.
    assert_eq!(site.node_with(1, "us-3", &config).ask::<u64>("UNIQ page 7d"), 1);
}

#[test]
fn top_names_the_keys_of_all_data_centres() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    check_top(&site.nodes().iter().collect::<Vec<_>>());
}

/// Symptom: hits of another data centre came back when the global Redis was emptied right after a `DEL`. Cause: their marks were lost, or were not made
/// because it had none of the hits any more. Fix: what was known is marked, and the last marks are sent again.
#[test]
fn deletions_outlive_a_loss_of_the_global_redis() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let nodes = site.nodes();
    let hit_all = |key: &str| {
        for (node, hits) in nodes.iter().zip([1, 20, 300, 4_000]) {
            node.ask::<u64>(&format!("HIT {key} {hits}"));
        }
    };
    for round in 0..4 {
        let (gone, stays) = (format!("gone-{round}"), format!("stays-{round}"));
        [&gone, &stays].into_iter().for_each(|key| hit_all(key));
        assert!(
            all_say(&nodes, &format!("HITS {gone}"), 4_321)
                && all_say(&nodes, &format!("HITS {stays}"), 4_321)
        );
        nodes[round].ask::<u64>(&format!("DEL {gone}"));
        if round % 2 == 1 {
            assert!(becomes(|| nodes[round].info("lately_unsent_deletions") == "0"));
        }
        assert_eq!(site.global.command("FLUSHALL"), "+OK\r\n");
        // It has all hits again.
        let names = |node: &Running| node.ask::<Vec<(String, u64)>>(&format!("HITS {stays} BY ORIGIN")).len();
        assert!(nodes.iter().all(|node| becomes(|| names(node) == 4)));
        assert!(becomes(|| site.global.command(&format!("KEYS lately:*:{{{stays}}}")) != "*0\r\n"));
        assert!(all_say(&nodes, &format!("HITS {gone}"), 0), "round {round}");
    }
    for node in &nodes {
        assert!(becomes(|| node.infos(["lately_reconciled", "lately_unsent_deletions"]) == ["1", "0"]));
    }
    for round in 0..4 {
        let (gone, stays) = (format!("HITS gone-{round} 1h"), format!("HITS stays-{round} 1h"));
        assert!(all_say(&nodes, &stays, 4_321) && all_say(&nodes, &gone, 0), "round {round}");
    }
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
    for question in ["HITS page", "HITS page 10m", "HITS page 7d"] {
        assert!(all_say(&nodes, question, 4_321), "{question}");
    }
    let rows = ["us-2", "us-1", "eu-2", "eu-1"].map(str::to_owned).into_iter().zip([4_000, 300, 20, 1]);
    let rows: Vec<(String, u64)> = rows.collect();
    for node in &nodes {
        assert!(becomes(|| node.ask::<Vec<(String, u64)>>("HITS page BY ORIGIN") == rows));
        let [hits, staleness_ms] = node.ask::<[i64; 2]>("HITS page STALENESS");
        assert!(hits == 4_321 && (0..60_000).contains(&staleness_ms), "{staleness_ms}");
        assert!(becomes(|| node.info("lately_upstream_ok") == "1"));
    }
    // A limit counts the hits of all data centres.
    assert!(becomes(|| nodes[0].ask::<Vec<i64>>("LIMIT page 4321 5m PEEK")[0] == 0));
    // A node that starts later knows them, too.
    let late = site.node(1, "us-3");
    assert!(all_say([&late], "HITS page 7d", 4_321));
    late.ask::<u64>("HIT page");
    assert!(all_say(&nodes, "HITS page", 4_322));
}

#[test]
fn a_deleted_key_is_deleted_in_all_data_centres() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let nodes = site.nodes();
    for round in 0..4 {
        nodes.iter().for_each(|node| _ = node.ask::<u64>("HIT k 5"));
        assert!(all_say(&nodes, "HITS k 7d", 20));
        assert_eq!(nodes[round].ask::<u64>("DEL k"), 1);
        assert!(all_say(&nodes, "HITS k 7d", 0), "round {round}");
    }
    // Hits that come later count. Nobody sends the deleted ones again.
    nodes[3].ask::<u64>("HIT k 2");
    assert!(all_say(&nodes, "HITS k 7d", 2));
    // Without the upstream engine, the hits of this data centre are deleted at once, and the others later.
    nodes[0].ask::<u64>("HIT k 2");
    assert!(all_say(&nodes, "HITS k", 4));
    site.global.signal("STOP");
    assert_eq!(nodes[0].ask::<u64>("DEL k"), 1);
    assert!(all_say(&nodes[..1], "HITS k", 0) && all_say(&nodes[1..2], "HITS k", 2));
    assert_eq!(nodes[3].ask::<u64>("HITS k"), 4);
    assert!(becomes(|| nodes[0].info("lately_upstream_ok") == "0"));
    site.global.signal("CONT");
    assert!(all_say(&nodes, "HITS k", 0));
}

#[test]
fn a_deletion_that_the_upstream_engine_refuses_is_sent_again() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let nodes = site.nodes();
    nodes.iter().for_each(|node| _ = node.ask::<u64>("HIT k 5"));
    assert!(all_say(&nodes, "HITS k", 20));
    site.global.succeed("CONFIG SET maxmemory 1");
    assert_eq!(nodes[0].ask::<u64>("DEL k"), 1);
    let state = || nodes[0].infos(["lately_upstream_ok", "lately_upstream_unsent_deletions"]);
    assert!(becomes(|| state() == ["0", "1"]), "{:?}", state());
    assert!(nodes[0].get("/readyz").ends_with("\r\n\r\nready\ndegraded: upstream engine\n"));
    assert!(nodes[0].get("/metrics").contains("\nlately_cluster_upstream_unsent_deletions 1\n"));
    site.global.succeed("CONFIG SET maxmemory 0");
    assert!(all_say(&nodes, "HITS k", 0));
    assert!(becomes(|| state() == ["1", "0"]), "{:?}", state());
}

/// Symptom: hits of other data centres on deleted keys stayed for good. Cause: when too many deletions waited for the upstream engine,
/// further ones were dropped, with a line in the log. Fix: they wait for room.
#[test]
fn deletions_wait_for_room_while_the_upstream_engine_is_away() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    let (local, global) = (site.local[0].url(), site.global.url());
    let config = format!(
        "[memory]\nceiling = \"8MiB\"\n[cluster]\nengine = \"redis\"\nnode = \"eu-1\"\nurls = [\"{local}\"]\nupstream = [\"{global}\"]\n"
    );
    std::fs::write(&path, config).expect("a file");
    let nodes = [serve_with(&["--config", path.to_str().expect("text")]), site.node(1, "us-1")];
    let keys: Vec<String> = (0..2_000).map(|key| format!("key{key}")).collect();
    // There is room for what is known of some of them at a time.
    let all_are = |node: &Running, hits: u64| {
        keys.chunks(250).all(|keys| {
            let question = format!("MHITS 5m {}", keys.join(" "));
            becomes(|| node.ask::<Vec<u64>>(&question) == vec![hits; keys.len()])
        })
    };
    let hits: Vec<String> = keys.iter().map(|key| format!("{key} 3")).collect();
    nodes.iter().for_each(|node| _ = node.ask::<Vec<u64>>(&format!("MHIT {}", hits.join(" "))));
    assert!(nodes.iter().all(|node| all_are(node, 6)));
    site.global.signal("STOP");
    assert_eq!(nodes[0].ask::<usize>(&format!("DEL {}", keys.join(" "))), keys.len());
    let waiting = || {
        let waiting = nodes[0].infos(["lately_unsent_deletions", "lately_upstream_unsent_deletions"]);
        waiting.map(|keys| keys.parse::<usize>().expect("a number"))
    };
    // There is not room for all.
    assert!(becomes(
        || waiting().iter().all(|waiting| *waiting > 0) && waiting().iter().sum::<usize>() >= keys.len()
    ));
    site.global.signal("CONT");
    assert!(nodes.iter().all(|node| all_are(node, 0)));
    assert!(becomes(|| waiting() == [0, 0]));
}

#[test]
fn data_centres_count_on_while_they_are_cut_off_and_while_their_aggregator_is_replaced() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let mut nodes: Vec<Running> = site.nodes().into();
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 4));
    let before = aggregator(&nodes[0]);
    let killed = NODES.iter().position(|(_, name)| *name == before).expect("a node");
    assert!(killed < 2 && aggregator(&nodes[1 - killed]) == before);
    site.global.signal("STOP");
    nodes.iter().for_each(hit_all);
    // Each data centre knows its own hits, and what it had read of the other.
    assert!(all_have(&nodes, 6));
    assert!(nodes.iter().all(|node| becomes(|| node.info("lately_upstream_ok") == "0")));
    // Its hits were sent: its neighbour has them.
    drop(nodes.remove(killed));
    hit_all(&nodes[0]);
    assert!(becomes(|| nodes[0].info("lately_upstream_waiting_blocks") != "0"));
    site.global.signal("CONT");
    assert!(all_have(&nodes, 9));
    let (centre, name) = NODES[1 - killed];
    assert!(becomes(|| aggregator(&nodes[0]) == name));
    // Killed while all are there.
    drop(nodes.remove(0));
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 11));
    let again = [site.node(centre, name), site.node(centre, &before)];
    assert!(all_have(again.iter().chain(&nodes), 11));
    again.iter().for_each(hit_all);
    assert!(all_have(again.iter().chain(&nodes), 13));
    for node in again.iter().chain(&nodes) {
        assert!(becomes(
            || node.infos(["lately_upstream_ok", "lately_upstream_waiting_blocks"]) == ["1", "0"]
        ));
    }
}

/// The ways of both data centres to the global Redis are cut. It is asked again and again how long that has lasted, and all
/// nodes count meanwhile.
#[test]
fn data_centres_that_are_cut_off_for_a_minute_decide_alone_and_agree_afterwards() {
    /// The most rounds of hits of a data centre in half of the cut.
    const MOST_ROUNDS: u64 = 100;
    if !has("redis-server") {
        return;
    }
    let (site, links) = (Site::start(), [Link::new(), Link::new()]);
    let start = |(centre, name): (usize, &str)| {
        let url = format!("redis://{}", links[centre].address);
        serve_with(&["--cluster", &site.local[centre].url(), "--upstream", &url, "--node", name])
    };
    let cut = |is_cut| links.iter().for_each(|link| link.set(|state| state.is_cut = is_cut));
    let to = site.global.address().to_string();
    links.iter().for_each(|link| link.set(|state| state.to = Some(to.clone())));
    let mut nodes: Vec<Running> = NODES.map(start).into();
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 4));
    let ask = |node: &Running, more: &str| node.ask::<Vec<i64>>(&format!("LIMIT shop 10 1h{more}"));
    assert!((0..4).all(|_| ask(&nodes[0], "")[0] == 1));
    assert!(nodes.iter().all(|node| becomes(|| ask(node, " PEEK")[2] == 6)));
    cut(true);
    // Each data centre knows the four hits of before, and allows the rest.
    for centre in nodes.chunks(2) {
        let allowed = (0..20).filter(|_| ask(&centre[0], "")[0] == 1);
        assert_eq!(allowed.count(), 6);
        assert!(becomes(|| ask(&centre[1], " PEEK")[0] == 0));
    }
    let windows = ["1h", "7d"];
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let questions = windows.map(|window| format!("MHITS {window} {}", keys.join(" ")));
    // What is known of others is forgotten when nobody asks for ten seconds.
    let read_all = |nodes: &[Running]| {
        for node in nodes {
            questions.iter().for_each(|question| _ = node.ask::<Vec<u64>>(question));
        }
    };
    let staleness_ms = |node: &Running| node.ask::<[i64; 2]>("HITS k0 STALENESS")[1];
    // How many rounds each data centre has counted since the cut.
    let mut rounds = [0, 0];
    let mut count_until = |nodes: &[Running], old: &[usize], least_ms: i64| {
        let most = rounds.map(|rounds| rounds + MOST_ROUNDS);
        until("the counts of the other data centre are old", || {
            for (node, (centre, _)) in nodes.iter().zip(NODES) {
                if rounds[centre] < most[centre] {
                    hit_all(node);
                    rounds[centre] += 1;
                }
            }
            read_all(nodes);
            old.iter().all(|number| staleness_ms(&nodes[*number]) >= least_ms)
        });
        rounds
    };
    let counted = count_until(&nodes, &[0, 1, 2, 3], 25_000);
    assert!(nodes.iter().all(|node| node.info("lately_upstream_ok") == "0"));
    for (centre, counted) in nodes.chunks(2).zip(counted) {
        assert!(all_have_in(windows, centre, 4 + counted));
    }
    // The aggregator is killed, its neighbour follows, and another server gets its name.
    let before = aggregator(&nodes[0]);
    let killed = NODES.iter().position(|(_, name)| *name == before).expect("a node");
    assert!(killed < 2 && aggregator(&nodes[1 - killed]) == before);
    drop(nodes.remove(killed));
    assert!(becomes(|| {
        read_all(&nodes);
        aggregator(&nodes[0]) == NODES[1 - killed].1
    }));
    nodes.insert(killed, start(NODES[killed]));
    // It has read the hits of its data centre, and never those of the other one.
    assert!(all_have_in(windows, &nodes[killed..=killed], 2 + counted[0]));
    assert_eq!(staleness_ms(&nodes[killed]), -1);
    let counted = count_until(&nodes, &[1 - killed, 2, 3], 60_000);
    assert!(all_have_in(windows, &nodes[1 - killed..2 - killed], 4 + counted[0]));
    assert!(all_have_in(windows, &nodes[2..], 4 + counted[1]));
    cut(false);
    assert!(all_have_in(windows, &nodes, 4 + counted[0] + counted[1]));
    assert!(all_say(&nodes, "HITS shop 1h", 16));
    for node in &nodes {
        assert!(becomes(|| ask(node, " PEEK")[0] == 0));
        assert!(becomes(|| (0..25_000).contains(&staleness_ms(node))));
        let state = || node.infos(["lately_upstream_ok", "lately_upstream_waiting_blocks"]);
        assert!(becomes(|| state() == ["1", "0"]));
    }
}

#[test]
fn counts_that_an_engine_loses_come_back() {
    if !has("redis-server") {
        return;
    }
    let mut site = Site::start();
    let nodes = site.nodes();
    nodes.iter().for_each(hit_all);
    assert!(all_have(&nodes, 4));
    site.global.succeed("FLUSHALL");
    nodes[2].ask::<u64>("HIT other");
    assert!(all_say(&nodes, "HITS other", 1));
    let late = site.node(0, "eu-3");
    assert!(all_have([&late], 4));
    site.local[1].succeed("FLUSHALL");
    nodes.iter().for_each(hit_all);
    assert!(all_have(nodes.iter().chain([&late]), 8));
    // Everything at once.
    site.global.kill();
    site.local.iter_mut().for_each(RedisServer::kill);
    nodes.iter().for_each(hit_all);
    site.local.iter_mut().for_each(RedisServer::restart);
    site.global.restart();
    assert!(all_have(nodes.iter().chain([&late]), 12));
}

#[test]
fn what_was_counted_last_is_copied_before_the_stop() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let (one, other) = (site.node(0, "eu-1"), site.node(1, "us-1"));
    assert!(becomes(|| aggregator(&one) == "eu-1"));
    one.ask::<u64>("HIT k 5");
    one.signal("TERM");
    let run = one.ended();
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(all_say([&other], "HITS k", 5));
    // The name is free again at once.
    let again = site.node(1, "eu-1");
    assert!(all_say([&again], "HITS k", 5));
}

#[test]
fn a_node_that_was_killed_has_its_hits_once_in_all_data_centres() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (local, global) = (site.local[0].url(), site.global.url());
    let other = site.node(1, "us-1");
    for round in 1..4 {
        let one = serve_in(folder.path(), &["--cluster", &local, "--upstream", &global, "--node", "eu-1"]);
        one.ask::<u64>("HIT k 10");
        other.ask::<u64>("HIT k 1");
        for question in ["HITS k", "HITS k 1h", "HITS k 7d"] {
            assert!(all_say([&one, &other], question, 11 * round), "{question}, round {round}");
        }
        if round == 2 {
            site.local[0].succeed("FLUSHALL");
        }
        // Killed.
        drop(one);
    }
}

#[test]
fn a_name_is_taken_in_all_data_centres() {
    if !has("redis-server") {
        return;
    }
    let site = Site::start();
    let first = site.node(0, "a");
    assert!(becomes(|| first.info("lately_upstream_ok") == "1"));
    let run = site.node(1, "a").ended();
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.contains("another server is node 'a' of the cluster\n"), "{}", run.err);
    assert_eq!(first.ask::<u64>("HIT k"), 1);
}

#[test]
fn nothing_waits_for_an_upstream_engine_that_is_away() {
    if !has("redis-server") {
        return;
    }
    let mut site = Site::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    let config = format!(
        "[cluster]\nengine = \"redis\"\nnode = \"eu-1\"\nurls = [\"{}\"]\nupstream = [\"{}\"]\nread_timeout = \"5s\"\n",
        site.local[0].url(),
        site.global.url()
    );
    std::fs::write(&path, config).expect("a file");
    let (patient, other) = (serve_with(&["--config", path.to_str().expect("text")]), site.node(1, "us-1"));
    other.ask::<u64>("HIT far 3");
    assert!(becomes(|| site.global.command("KEYS lately:*:{far}") != "*0\r\n"));
    // The first answer waits for both engines.
    assert_eq!(patient.ask::<u64>("HITS far"), 3);
    site.global.kill();
    assert!(becomes(|| patient.info("lately_upstream_ok") == "0"));
    // A thousand waits would take more than an hour. The local engine answers.
    let neighbour = serve_with(&["--cluster", &site.local[0].url(), "--node", "eu-2"]);
    for key in 0..1_000 {
        neighbour.ask::<u64>(&format!("HIT k{key}"));
        assert_eq!(patient.ask::<[i64; 2]>(&format!("HITS n{key} STALENESS")), [0, -1]);
    }
    assert!(all_say([&patient], "HITS k999", 1));
    assert_eq!(patient.info("lately_engine_ok"), "1");
}

/// What `lately cluster --json` prints of the upstream engine.
fn upstream(node: &Running) -> Value {
    let run = ask(&node.resp, &words("cluster --json"));
    assert_eq!((run.err.as_str(), run.code), ("", Some(0)));
    serde_json::from_str::<Value>(&run.out).expect("one object")["upstream"].clone()
}

#[test]
fn the_state_of_the_upstream_engine_is_shown() {
    if !has("redis-server") {
        return;
    }
    let mut site = Site::start();
    let nodes = site.nodes();
    let url = site.global.url();
    for node in &nodes {
        assert!(becomes(|| upstream(node)["degraded"].is_null()));
        let shown = upstream(node);
        assert_eq!((shown["engine"].as_str(), &shown["away_since"]), (Some(&*url), &Value::Null));
    }
    assert!(becomes(|| upstream(&nodes[0])["aggregator"] == upstream(&nodes[1])["aggregator"]));
    assert!(nodes[0].get("/readyz").ends_with("\r\n\r\nready\n"));
    site.global.kill();
    nodes[0].ask::<u64>("HIT k");
    let shows = |node: &Running| {
        let shown = upstream(node);
        shown["away_since"].is_f64()
            && shown["degraded"].is_string()
            && shown["waiting_blocks"].as_u64() > Some(0)
    };
    assert!(nodes[..2].iter().all(|node| becomes(|| shows(node))));
    assert!(nodes[0].get("/readyz").ends_with("\r\n\r\nready\ndegraded: upstream engine\n"));
    assert!(nodes[0].get("/metrics").contains("\nlately_cluster_upstream_failing 1\n"));
    let run = ask(&nodes[0].resp, &words("cluster"));
    let state = run.out.lines().find(|line| line.starts_with("  state ")).expect("a line");
    assert!(state.contains("degraded since 20"), "{}", run.out);
    site.global.restart();
    assert!(becomes(|| upstream(&nodes[0])["degraded"].is_null()));
    assert!(nodes[..2].iter().all(|node| becomes(|| upstream(node)["waiting_blocks"] == 0)));
    let run = ask(&nodes[0].resp, &words("cluster"));
    assert!(run.out.contains(&format!("\nupstream  {url}\n")), "{}", run.out);
    assert!(run.out.lines().any(|line| line.split_whitespace().eq(["state", "ok"])), "{}", run.out);
}

#[test]
fn an_upstream_engine_needs_one_of_the_data_centre() {
    let refused = |args: &str, expected: &str| {
        let run = lately(&args.split(' ').collect::<Vec<_>>());
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{args}");
        assert!(run.err.starts_with(expected), "{args}: {}", run.err);
    };
    refused(
        "serve --in-memory --upstream redis://h1",
        "lately: command line: the following required arguments were not provided: --node <NAME> --cluster <URL>",
    );
    refused(
        "serve --in-memory --node a --cluster redis://h1 --upstream redis://h1:6379",
        "lately: serve: upstream: h1:6379 is the engine of this data centre: give that of all data centres, or none\nhint: ",
    );
}

#[test]
fn a_permission_that_the_aggregator_lacks_is_named() {
    if !has("redis-server") {
        return;
    }
    let local = RedisServer::start_with(&["--user", "n", "on", ">pw", "~lately:*", "+@all", "-spop"]);
    let global = RedisServer::start();
    let url = local.url().replace("://", "://n:pw@");
    let mut node = serve_with(&["--cluster", &url, "--upstream", &global.url(), "--node", "a"]);
    node.wait_for_message(
        "the counts of this data centre are not copied to the upstream engine: user 'n' may not run SPOP on ",
    );
    assert!(becomes(|| node.infos(["lately_engine_ok", "lately_upstream_ok"]) == ["1", "0"]));
}
