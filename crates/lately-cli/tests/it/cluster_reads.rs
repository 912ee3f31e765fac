//! Reads on servers that count together through a real Redis: what they wait for, how often Redis is asked, and how old answers are.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use tempfile::TempDir;
use test_support::RedisServer;

use crate::common::has;
use crate::running::{PATIENCE, Running, becomes, serve_with};

/// A node that waits for as long as a node may, so that a slow machine fails no test; with more lines in its section.
fn patient(redis: &RedisServer, name: &str, more: &str) -> (Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    let config = format!(
        "[cluster]\nengine = \"redis\"\nnode = \"{name}\"\nurls = [\"{}\"]\nread_timeout = \"5s\"\n{more}\n",
        redis.url()
    );
    std::fs::write(&path, config).expect("a file");
    (serve_with(&["--config", path.to_str().expect("text")]), folder)
}

fn node(redis: &RedisServer, name: &str) -> Running {
    serve_with(&["--cluster", &redis.url(), "--node", name])
}

/// What a node answers over HTTP.
pub(crate) fn get(node: &Running, path: &str) -> String {
    let mut socket = TcpStream::connect(&node.http).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Waits until Redis has counts of a key.
fn is_sent(redis: &RedisServer, key: &str) -> bool {
    becomes(|| redis.command(&format!("KEYS lately:*:{{{key}}}")) != "*0\r\n")
}

/// How many `ZRANGE` Redis has answered.
fn zranges(redis: &RedisServer) -> u64 {
    let stats = redis.command("INFO commandstats");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zrange:calls="));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

/// Stops the process of a Redis server, or lets it go on.
fn signal(redis: &RedisServer, name: &str, process: &mut Option<String>) {
    let find = || {
        let info = redis.command("INFO server");
        info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a process").to_owned()
    };
    let process = process.get_or_insert_with(find);
    let kill = format!("kill -{name} {process}");
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
}

/// A connection by lines.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn connect(node: &Running) -> Lines {
        let socket = TcpStream::connect(&node.resp).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Lines(BufReader::new(socket))
    }

    fn send(&mut self, lines: &str) {
        self.0.get_mut().write_all(lines.replace('\n', "\r\n").as_bytes()).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// Whether nothing has been answered by now.
    fn is_silent(&self) -> bool {
        let socket = self.0.get_ref();
        socket.set_nonblocking(true).expect("a socket");
        let peeked = socket.peek(&mut [0]);
        socket.set_nonblocking(false).expect("a socket");
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn a_read_waits_for_a_key_that_is_not_known() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let one = node(&redis, "a");
    let (other, _folder) = patient(&redis, "b", "");
    let pairs: Vec<String> = (0..10).map(|key| format!("k{key} 5")).collect();
    one.ask::<Vec<u64>>(&format!("MHIT {}", pairs.join(" ")));
    assert!((0..10).all(|key| is_sent(&redis, &format!("k{key}"))));
    // The first question about each key is answered with the hits of all.
    assert_eq!(other.ask::<u64>("HITS k0"), 5);
    assert_eq!(other.ask::<Vec<u64>>("HITS k1 5m BOUNDS"), [5, 5, 5, 1_000]);
    assert_eq!(other.ask::<Vec<u64>>("MHITS 5m k2 k3 none"), [5, 5, 0]);
    assert!((other.ask::<f64>("RATE k4 5m") - 5.0 / 300.0).abs() < 1e-9);
    let [hits, staleness_ms] = other.ask::<[i64; 2]>("HITS k5 STALENESS");
    assert!(hits == 5 && (0..60_000).contains(&staleness_ms), "{staleness_ms}");
    assert_eq!(other.ask::<Vec<(String, u64)>>("HITS k6 BY ORIGIN"), [("a".to_owned(), 5)]);
    let points = other.ask::<Vec<(i64, u64)>>("SERIES k7 5m 1m");
    assert_eq!(points.iter().map(|(_, hits)| hits).sum::<u64>(), 5);
    assert_eq!(other.ask::<Vec<(String, u64)>>("COOLEST 1 k8"), [("k8".to_owned(), 5)]);
    let answer = get(&other, "/v1/hits/k9?window=5m&origins=true");
    assert!(
        answer.contains(r#""hits":5,"#) && answer.contains(r#""origins":[{"origin":"a","hits":5}]"#),
        "{answer}"
    );
    assert!(answer.contains(r#""staleness_ms":"#) && !answer.contains("null"), "{answer}");
    // In a transaction nothing waits, and what was not read has no age.
    let mut client = other.connect();
    let (replies,): (Vec<i64>,) = redis::pipe()
        .atomic()
        .cmd("HITS")
        .arg("new")
        .arg("STALENESS")
        .query(&mut client)
        .expect("two integers");
    assert_eq!(replies, [0, -1]);
}

/// Symptom: after Redis was emptied, hits that another node had counted were missing until that one sent them again, and a `DEL` meanwhile
/// left them. Cause: what is read replaces what was known. Fix: of an engine that has lost counts, it does not.
#[test]
fn hits_that_were_read_are_deleted_after_a_loss() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (one, other) = (node(&redis, "a"), node(&redis, "b"));
    let keys = (0..20).map(|key| format!("k{key}")).collect::<Vec<_>>().join(" ");
    let ask = |node: &Running| node.ask::<Vec<u64>>(&format!("MHITS 1h {keys} stays"));
    let hits: Vec<u64> = (0..20).map(|key| 1 + key % 5).chain([5]).collect();
    let pairs: Vec<String> = keys.split(' ').zip(&hits).map(|(key, hits)| format!("{key} {hits}")).collect();
    other.ask::<Vec<u64>>(&format!("MHIT {} stays 5", pairs.join(" ")));
    assert!(becomes(|| ask(&one) == hits));
    assert_eq!(redis.command("FLUSHALL"), "+OK\r\n");
    for _ in 0..20 {
        assert_eq!(ask(&one), hits);
    }
    one.ask::<u64>(&format!("DEL {keys}"));
    // The other node has noticed the loss, and has sent its hits again.
    assert!(is_sent(&redis, "stays"));
    let expected: Vec<u64> = [0; 20].into_iter().chain([5]).collect();
    for node in [&one, &other] {
        assert!(becomes(|| ask(node) == expected), "{:?}", ask(node));
    }
    // Nor do they come back.
    assert!(becomes(|| [&one, &other]
        .iter()
        .all(|node| node.infos(["lately_reconciled", "lately_unsent_keys"]) == ["1", "0"])));
    assert_eq!((ask(&one), ask(&other)), (expected.clone(), expected));
}

/// Symptom: `HITS key 10m AT` of an hour ago had the hits of this node alone. Cause: what was read ended now. Repair: what is read
/// reaches back to the start of the window.
#[test]
fn a_window_of_the_past_has_the_hits_of_other_nodes() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let one = node(&redis, "a");
    let (other, _folder) = patient(&redis, "b", "");
    let [seconds, _] = one.ask::<[i64; 2]>("TIME");
    one.ask::<u64>(&format!("HIT k 5 AT {}", seconds - 3_600));
    let at = seconds - 3_500;
    assert!(becomes(|| other.ask::<u64>(&format!("HITS k 10m AT {at}")) == 5));
    assert_eq!(
        other.ask::<Vec<(String, u64)>>(&format!("HITS k 10m BY ORIGIN AT {at}")),
        [("a".to_owned(), 5)]
    );
    assert_eq!(other.ask::<u64>(&format!("HITS k 10m AT {}", at - 600)), 0);
}

#[test]
fn a_waiting_read_holds_up_its_own_connection_only() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (node, _folder) = patient(&redis, "b", "");
    assert!(becomes(|| node.info("lately_engine_ok") == "1"));
    let (mut waiting, mut other) = (Lines::connect(&node), Lines::connect(&node));
    waiting.send("PING\n");
    assert_eq!(waiting.line(), "+PONG");
    let mut process = None;
    signal(&redis, "STOP", &mut process);
    waiting.send("HIT own 3\nHITS unknown\nHIT own 2\nHITS own\n");
    // What came before is answered.
    assert_eq!(waiting.line(), ":3");
    // HIT and LIMIT never wait, nor does what is in a transaction.
    other.send("HIT x\nLIMIT y 5 1m\nMULTI\nHITS z\nEXEC\n");
    let replies: Vec<String> = (0..11).map(|_| other.line()).collect();
    assert_eq!(replies, [":1", "*5", ":1", ":5", ":4", ":0", ":60000", "+OK", "+QUEUED", "*1", ":0"]);
    assert!(waiting.is_silent());
    signal(&redis, "CONT", &mut process);
    // What comes behind waited, and is answered in order.
    assert_eq!([(); 3].map(|()| waiting.line()), [":0", ":5", ":5"]);
}

#[test]
fn a_read_gives_up_after_its_timeout_and_does_not_wait_for_an_engine_that_is_away() {
    if !has("redis-server") {
        return;
    }
    let mut redis = RedisServer::start();
    let hurried = node(&redis, "a");
    let (patient, _folder) = patient(&redis, "b", "");
    assert!([&hurried, &patient].iter().all(|node| becomes(|| node.info("lately_engine_ok") == "1")));
    let mut process = None;
    signal(&redis, "STOP", &mut process);
    hurried.ask::<u64>("HIT k 4");
    assert_eq!(hurried.ask::<u64>("HITS k"), 4);
    assert!(get(&hurried, "/v1/hits/other?window=1h").contains(r#""staleness_ms":null"#));
    signal(&redis, "CONT", &mut process);
    redis.kill();
    assert!(becomes(|| patient.info("lately_engine_ok") == "0"));
    // A thousand waits would take more than an hour.
    for key in 0..1_000 {
        assert_eq!(patient.ask::<[i64; 2]>(&format!("HITS k{key} STALENESS")), [0, -1]);
    }
}

#[test]
fn a_thousand_reads_of_a_key_ask_the_engine_once() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let one = node(&redis, "a");
    let (other, _folder) = patient(&redis, "b", "flush = \"1m\"");
    one.ask::<Vec<u64>>("MHIT once 5 often 7");
    assert!(is_sent(&redis, "once") && is_sent(&redis, "often"));
    assert_eq!(other.ask::<u64>("HITS once"), 5);
    let of_one_reading = zranges(&redis);
    assert!(of_one_reading > 0);
    let mut lines = Lines::connect(&other);
    lines.send(&"HITS often\n".repeat(500));
    assert!((0..500).all(|_| lines.line() == ":7"));
    for _ in 0..250 {
        assert_eq!(other.ask::<Vec<u64>>("MHITS 5m often often"), [7, 7]);
    }
    // A window of a minute less may begin in another sorted set.
    let of_thousand = zranges(&redis) - of_one_reading;
    assert!((1..=of_one_reading + 1).contains(&of_thousand), "{of_thousand}, one reading {of_one_reading}");
}

#[test]
fn a_key_is_not_read_again_when_nobody_asks() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (one, _folder) = patient(&redis, "a", "");
    assert_eq!(one.ask::<u64>("HITS k"), 0);
    let before = zranges(&redis);
    // Each of these is sent in a flush of its own.
    for number in 0..5 {
        let key = format!("n{number}");
        one.ask::<u64>(&format!("HIT {key}"));
        assert!(is_sent(&redis, &key));
    }
    assert_eq!(zranges(&redis), before);
    assert_eq!(one.ask::<u64>("HITS k"), 0);
    assert!(becomes(|| zranges(&redis) > before));
}

#[test]
fn a_limited_key_is_kept_fresh() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let (one, other) = (node(&redis, "a"), node(&redis, "b"));
    assert_eq!(one.ask::<Vec<i64>>("LIMIT login 10 1m")[0], 1);
    other.ask::<u64>("HIT login 6");
    // HIT itself asks for nothing.
    assert!(becomes(|| one.ask::<u64>("HIT login 0") == 7));
    other.ask::<u64>("HIT login 3");
    assert!(becomes(|| one.ask::<u64>("HIT login 0") == 10));
    assert_eq!(one.ask::<Vec<i64>>("LIMIT login 10 1m")[0], 0);
}

#[test]
fn hits_by_origin_add_up_on_every_node() {
    if !has("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let nodes = ["eu-1", "eu-2", "us-1"].map(|name| node(&redis, name));
    let [seconds] = nodes[0].ask::<[i64; 2]>("TIME").first_chunk().copied().expect("seconds");
    // Also where hits are estimated.
    for (node, hits) in nodes.iter().zip([1, 20, 300]) {
        for ago_s in [0, 1_000, 5_003, 90_007] {
            node.ask::<u64>(&format!("HIT page {hits} AT {}", seconds - ago_s));
        }
    }
    let rows = |hits: [u64; 3]| -> Vec<(String, u64)> {
        ["us-1", "eu-2", "eu-1"].map(str::to_owned).into_iter().zip(hits).collect()
    };
    for node in &nodes {
        assert!(becomes(|| node.ask::<Vec<(String, u64)>>("HITS page BY ORIGIN") == rows([300, 20, 1])));
        assert!(becomes(|| node.ask::<Vec<(String, u64)>>("HITS page 7d BY ORIGIN") == rows([1_200, 80, 4])));
        for window in ["1h", "1500", "85m", "1d", "26h"] {
            let mut client = node.connect();
            let ask = |form: &[&str]| {
                let mut command = redis::cmd("HITS");
                command.arg("page").arg(window).arg(form);
                command
            };
            let (hits, by_origin): (u64, Vec<(String, u64)>) = redis::pipe()
                .atomic()
                .add_command(ask(&[]))
                .add_command(ask(&["BY", "ORIGIN"]))
                .query(&mut client)
                .expect("two replies");
            assert_eq!(by_origin.iter().map(|(_, hits)| hits).sum::<u64>(), hits, "{window}: {by_origin:?}");
            assert!(by_origin.is_sorted_by_key(|(_, hits)| std::cmp::Reverse(*hits)), "{by_origin:?}");
        }
    }
    // The incarnations of a node are one.
    let [first, second, _third] = nodes;
    drop(first);
    let again = node(&redis, "eu-1");
    again.ask::<u64>("HIT page 2");
    for node in [&again, &second] {
        assert!(becomes(|| node.ask::<Vec<(String, u64)>>("HITS page BY ORIGIN") == rows([300, 20, 3])));
    }
}
