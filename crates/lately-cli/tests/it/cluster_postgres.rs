//! Several servers that count together through a real PostgreSQL.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use test_support::{PostgresPrograms, PostgresServer};

use crate::client_runs::{ask, words};
use crate::cluster::{all_say, check_members, check_top, check_top_bound, with_members};
use crate::running::{Flow, Running, becomes, serve_in, serve_with, words as request};

fn node(url: &str, name: &str) -> Running {
    serve_with(&["--cluster", url, "--node", name])
}

#[test]
fn nodes_count_together_through_postgres() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut postgres = PostgresServer::start(&programs);
    let url = postgres.url();
    let nodes = ["eu-1", "eu-2", "us-1"].map(|name| node(&url, name));
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
    // An analyst needs no client of ours.
    assert!(becomes(
        || postgres.rows("SELECT sum(hits) FROM lately.hits_per_minute WHERE key = 'login'") == "5"
    ));
    let engine = format!("engine  postgres://…@{}/counts", postgres.address());
    let mut listed = String::new();
    let has_all = becomes(|| {
        listed = ask(&nodes[0].resp, &words("cluster")).out;
        listed.contains(&engine) && ["eu-1  ", "eu-2  ", "us-1  "].iter().all(|name| listed.contains(name))
    });
    assert!(has_all, "{listed}");
    // The engine is away, and nodes count on.
    postgres.kill();
    nodes[0].ask::<u64>("HIT page 5");
    nodes[1].ask::<u64>("HIT page 7");
    assert!(becomes(|| nodes[0].infos(["lately_engine_ok"]) == ["0"]));
    postgres.restart();
    assert!(all_say(&all, "HITS page 7d", 14));
    // Somebody drops everything.
    postgres.succeed("DROP SCHEMA lately CASCADE");
    let fourth = node(&url, "new");
    assert!(all_say(&[&fourth], "HITS login 7d", 5));
    assert!(all_say(&[&fourth, &nodes[0], &nodes[1], &nodes[2]], "HITS page 7d", 14));
}

/// A node with a journal is killed again and again; its successor counts under another origin.
#[test]
fn a_killed_node_has_its_hits_once_in_postgres() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let postgres = PostgresServer::start(&programs);
    let (url, folder) = (postgres.url(), tempfile::tempdir().expect("a folder"));
    let other = node(&url, "b");
    for round in 1..4 {
        let one = serve_in(folder.path(), &["--cluster", &url, "--node", "a"]);
        one.ask::<u64>("HIT k 10");
        other.ask::<u64>("HIT k 1");
        assert!(all_say(&[&one, &other], "HITS k", 11 * round));
        assert!(all_say(&[&one, &other], "HITS k 1h", 11 * round));
        // Killed.
        drop(one);
    }
}

/// Two nodes that know a server and its standby.
fn nodes_on(postgres: &PostgresServer, standby: &PostgresServer) -> [Running; 2] {
    let urls = [postgres.url(), standby.url()];
    ["a", "b"].map(|name| serve_with(&["--cluster", &urls[0], "--cluster", &urls[1], "--node", name]))
}

/// The replication is asynchronous, so the standby may lack what was acknowledged last.
#[test]
fn a_promoted_standby_has_all_hits_in_the_end() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut postgres = PostgresServer::start(&programs);
    let standby = postgres.standby();
    let nodes = nodes_on(&postgres, &standby);
    let all: Vec<&Running> = nodes.iter().collect();
    for number in 0..200 {
        nodes[number % 2].ask::<u64>(&format!("HIT key:{number} 3"));
    }
    assert!(all_say(&all, "HITS key:199", 3));
    // The standby stands still, and what comes now is lost with the server.
    standby.signal("STOP");
    for number in 0..200 {
        nodes[number % 2].ask::<u64>(&format!("HIT key:{number} 4"));
    }
    assert!(all_say(&all, "HITS key:199", 7));
    postgres.kill();
    standby.signal("CONT");
    standby.promote();
    nodes[0].ask::<u64>("HIT key:0");
    assert!(all_say(&all, "HITS key:0", 8));
    for number in 1..200 {
        assert!(all_say(&all, &format!("HITS key:{number} 7d"), 7), "{number}");
    }
    // So has a node that knew nothing before.
    let third = node(&standby.url(), "c");
    assert!(all_say(&[&third], "HITS key:100 7d", 7));
}

/// All hits that a server has.
fn hits_in(server: &PostgresServer) -> u64 {
    server.rows("SELECT coalesce(sum(hits), 0) FROM lately.hits_per_minute").parse().expect("a number")
}

/// Hits flow on both nodes all the time: while the standby gets nothing, while there is no server, and while it is promoted.
#[test]
fn hits_that_flow_while_a_standby_is_promoted_count_once() {
    const KEYS: usize = 50;
    let Some(programs) = PostgresPrograms::find() else { return };
    let mut postgres = PostgresServer::start(&programs);
    let standby = postgres.standby();
    let nodes = nodes_on(&postgres, &standby);
    let all: Vec<&Running> = nodes.iter().collect();
    let sent = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        let mut flow = Flow::new();
        for (node, sent) in nodes.iter().zip(&sent) {
            let (mut connection, pieces) = (node.connect(), flow.pieces());
            scope.spawn(move || {
                for number in pieces.iter().flat_map(|()| 0..10).zip(0..).map(|(_, number)| number) {
                    let hit = request(&format!("HIT key:{}", number % KEYS));
                    hit.query::<u64>(&mut connection).expect("it counts");
                    sent.store(number + 1, Relaxed);
                }
            });
        }
        let flows = || {
            let before = sent.each_ref().map(|sent| sent.load(Relaxed));
            let has_more = || sent.iter().zip(before).all(|(sent, before)| sent.load(Relaxed) > before + 500);
            assert!(flow.becomes(has_more), "{sent:?}");
        };
        let has_schema = || standby.rows("SELECT to_regclass('lately.hits_per_minute') IS NOT NULL") == "t";
        assert!(flow.becomes(has_schema));
        flows();
        // The standby gets nothing any more: what comes now is lost with the server.
        standby.succeed("ALTER SYSTEM SET primary_conninfo = ''");
        standby.succeed("SELECT pg_reload_conf()");
        assert!(flow.becomes(|| standby.rows("SELECT count(*) FROM pg_stat_wal_receiver") == "0"));
        flows();
        assert!(flow.becomes(|| hits_in(&postgres) > hits_in(&standby)));
        postgres.kill();
        assert!(flow.becomes(|| nodes[0].infos(["lately_engine_ok"]) == ["0"]));
        flows();
        standby.promote();
        assert!(flow.becomes(|| all.iter().all(|node| node.infos(["lately_engine_ok"]) == ["1"])));
        flows();
    });
    let sent = sent.map(AtomicUsize::into_inner);
    let third = node(&standby.url(), "c");
    for key in 0..KEYS {
        let hits = sent.iter().map(|sent| (sent + KEYS - 1 - key) / KEYS).sum::<usize>() as u64;
        assert!(
            all_say(&[&nodes[0], &nodes[1], &third], &format!("HITS key:{key} 7d"), hits),
            "{key}: {hits}"
        );
    }
    // No node has more than the server.
    let total = sent.iter().sum::<usize>() as u64;
    assert!(becomes(|| hits_in(&standby) == total), "{} of {total}", hits_in(&standby));
}

/// A data centre on PostgreSQL and one on Redis, below one PostgreSQL.
#[test]
fn data_centres_may_have_different_engines() {
    let Some(programs) = PostgresPrograms::find() else { return };
    if !test_support::has("redis-server") {
        return;
    }
    let (global, local) = (PostgresServer::start(&programs), PostgresServer::start(&programs));
    let redis = test_support::RedisServer::start();
    let below =
        |url: &str, name: &str| serve_with(&["--cluster", url, "--upstream", &global.url(), "--node", name]);
    let (eu, us) = (below(&local.url(), "eu-1"), below(&redis.url(), "us-1"));
    eu.ask::<u64>("HIT k 5");
    us.ask::<u64>("HIT k 7");
    assert!(all_say(&[&eu, &us], "HITS k 1h", 12));
    assert_eq!(us.ask::<u64>("DEL k"), 1);
    assert!(all_say(&[&eu, &us], "HITS k 1h", 0));
    eu.ask::<u64>("HIT k 2");
    assert!(all_say(&[&eu, &us], "HITS k 1h", 2));
}

#[test]
fn top_names_the_keys_of_all_nodes_through_postgres() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let postgres = PostgresServer::start(&programs);
    let nodes = ["a", "b"].map(|name| serve_with(&["--cluster", &postgres.url(), "--node", name]));
    check_top(&nodes.each_ref());
    check_top_bound(&nodes.each_ref());
}

#[test]
fn members_of_all_nodes_are_counted_through_postgres() {
    let Some(programs) = PostgresPrograms::find() else { return };
    let postgres = PostgresServer::start(&programs);
    let folder = tempfile::tempdir().expect("a folder");
    let config = with_members(folder.path());
    let start =
        |name: &str| serve_with(&["--cluster", &postgres.url(), "--node", name, &config[0], &config[1]]);
    let nodes = ["a", "b", "c"].map(start);
    check_members(&nodes.each_ref());
    postgres.succeed("DROP SCHEMA lately CASCADE");
    assert!(all_say(&[&start("d")], "UNIQ page 7d", 1));
}
