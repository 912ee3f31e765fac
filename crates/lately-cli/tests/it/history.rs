//! History: the hits of closed panes in Prometheus, in VictoriaMetrics, and in a receiver that reads requests by its own definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{RedisServer, Rng};

use crate::common::{has, installed, lately};
use crate::running::{FREE, Running, becomes, serve_in, serve_with, start};
use crate::time_series::TimeSeries;

/// Waits for what takes several panes, and the pauses before a request is sent again.
fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    assert!(becomes(is_so), "{what}: it does not");
}

/// Waits until a database has all hits.
fn has_all(series: &TimeSeries, counted: &BTreeMap<String, f64>) {
    if !becomes(|| sums(series) == *counted) {
        assert_eq!(sums(series), *counted);
    }
}

/// A folder with a config file, and room for the data of servers.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new(config: &str) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("lately.toml"), config).expect("room");
        Stage { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }

    fn start(&self) -> Running {
        serve_in(Path::new(&self.path("data")), &["--config", &self.path("lately.toml")])
    }
}

/// A section of a config: panes of a second.
fn section(name: &str, url: &str, more: &str) -> String {
    format!(
        "[[history]]\nname = \"{name}\"\nurl = \"{url}\"\nmatch = \"k:*\"\ninterval = 1\ndelay = 2\n{more}\n"
    )
}

/// A metric of a history.
fn metric(server: &Running, metric: &str, history: &str) -> f64 {
    let metrics = server.get("/metrics");
    let start = format!("lately_history_{metric}{{history=\"{history}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start)).expect(&metrics);
    value.parse().expect("a number")
}

/// Sends hits on some keys, and adds those that were answered.
fn hit(server: &Running, rng: &mut Rng, counted: &mut BTreeMap<String, f64>) {
    let mut pipe = redis::pipe();
    let hits: Vec<(String, u64)> =
        (0..20).map(|_| (format!("k:{}", rng.below(10)), 1 + rng.below(5))).collect();
    for (key, hits) in &hits {
        pipe.cmd("HIT").arg(key).arg(*hits);
    }
    let _: Vec<u64> = pipe.query(&mut server.connect()).expect("replies");
    for (key, hits) in hits {
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let hits = hits as f64;
        *counted.entry(key).or_default() += hits;
    }
}

/// The sum of all samples of each key.
fn sums(series: &TimeSeries) -> BTreeMap<String, f64> {
    let rows = series.query("sum by (key) (sum_over_time(lately_hits[1h]))");
    let row = |row: &Value| {
        let sum = row["value"][1].as_str().expect("a value").parse().expect("a number");
        (row["metric"]["key"].as_str().expect("a key").to_owned(), sum)
    };
    rows.iter().map(row).collect()
}

/// Servers that are killed at any moment, and databases that are away for a while: each hit is in each database once.
#[test]
fn each_hit_is_in_the_history_once() {
    if !["curl", "prometheus", "victoria-metrics"].into_iter().all(has) {
        return;
    }
    let mut databases = [TimeSeries::prometheus("global: {}\n"), TimeSeries::victoria_metrics()];
    let names = ["prometheus", "victoria"];
    let config: String =
        names.iter().zip(&databases).map(|(name, database)| section(name, &database.url(), "")).collect();
    let stage = Stage::new(&config);
    let (mut rng, mut counted) = (Rng::new(40), BTreeMap::new());
    for round in 0..6 {
        // One of them is away in every other round.
        let away = Some(round / 2 % 2).filter(|_| round % 2 == 1);
        if let Some(away) = away {
            databases[away].stop();
        }
        let server = stage.start();
        for (index, name) in names.into_iter().enumerate() {
            eventually(&format!("{name} gets panes, or misses some"), || {
                hit(&server, &mut rng, &mut counted);
                if Some(index) == away {
                    metric(&server, "lag_seconds", name) > 4.0
                        && metric(&server, "failures_total", name) > 1.0
                } else {
                    metric(&server, "samples_total", name) > 20.0
                        && metric(&server, "lag_seconds", name) < 4.0
                }
            });
        }
        // SIGKILL.
        drop(server);
        if let Some(away) = away {
            databases[away].start_again();
        }
    }
    let server = stage.start();
    for (database, name) in databases.iter().zip(names) {
        has_all(database, &counted);
        // Not one sample more comes: each was sent once, or has replaced the same one.
        for number in ["refused_samples", "late_hits", "left_out_hits", "skipped_seconds", "skipped_panes"] {
            assert!(metric(&server, &format!("{number}_total"), name) == 0.0, "{name} {number}");
        }
        // The time of a sample is the last millisecond of its pane.
        for series in database.query("lately_hits[1h]") {
            let samples = series["values"].as_array().expect("samples");
            let times: BTreeSet<String> = samples.iter().map(|sample| sample[0].to_string()).collect();
            assert_eq!(times.len(), samples.len(), "{series}");
            assert!(times.iter().all(|time| time.ends_with(".999")), "{times:?}");
        }
    }
    assert!(sums(&databases[0]) == counted && sums(&databases[1]) == counted);
}

/// Each node sends its own hits. Their sums are those of the cluster.
#[test]
fn the_nodes_of_a_cluster_send_each_hit_once() {
    if !["curl", "prometheus", "redis-server"].into_iter().all(has) {
        return;
    }
    let (database, engine) = (TimeSeries::prometheus("global: {}\n"), RedisServer::start());
    let stage = Stage::new(&section("a", &database.url(), "labels = { site = \"north\" }"));
    let nodes = ["one", "two"].map(|node| {
        let (config, data) = (stage.path("lately.toml"), stage.path(node));
        let more = ["--config", &config, "--data", &data, "--node", node, "--cluster", &engine.url()];
        start(&[&FREE[..], &more].concat()).loaded()
    });
    let (mut rng, mut counted) = (Rng::new(41), BTreeMap::new());
    eventually("both send", || {
        for node in &nodes {
            hit(node, &mut rng, &mut counted);
            // So that each knows the hits of the other.
            node.ask::<u64>("HITS k:1");
        }
        nodes.iter().all(|node| metric(node, "samples_total", "a") > 30.0)
    });
    has_all(&database, &counted);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few")]
    let hits = counted["k:1"] as u64;
    eventually("the nodes count together", || {
        nodes.iter().all(|node| node.ask::<u64>("HITS k:1 1h") == hits)
    });
    let labels: BTreeSet<String> = database
        .query("count by (node, site) (lately_hits)")
        .iter()
        .map(|row| row["metric"].to_string())
        .collect();
    let expected = ["one", "two"].map(|node| json!({"node": node, "site": "north"}).to_string());
    assert_eq!(labels, expected.into());
}

/// The program of the tests that reads requests; killed when dropped.
struct Receiver {
    port: String,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Receiver {
    /// One that answers the first requests with these statuses.
    fn start(statuses: &[&str]) -> Option<Receiver> {
        let python = installed("LATELY_TEST_PYTHON")?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/history_receiver.py");
        let mut command = Command::new(python);
        command.arg(program).args(statuses).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut receiver = Receiver { port: String::new(), child, out };
        receiver.port = receiver.line();
        Some(receiver)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).expect("text") > 0, "the receiver ended");
        line.trim_end().to_owned()
    }

    fn request(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).expect(&line)
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Remote write 1.0 and 2.0 and OTLP carry the same samples, and what the config says.
#[test]
fn each_protocol_carries_the_same_samples() {
    const PROTOCOLS: [&str; 3] = ["remote-write", "remote-write-2", "otlp"];
    let mut receivers = Vec::new();
    for _ in PROTOCOLS {
        let Some(receiver) = Receiver::start(&["503"]) else { return };
        receivers.push(receiver);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").expect("room");
    let secret = secret.display();
    let logins = [
        format!("token_file = \"{secret}\""),
        format!("user = \"me\"\npassword_file = \"{secret}\""),
        String::new(),
    ];
    let config: String = PROTOCOLS
        .iter()
        .zip(&receivers)
        .zip(logins)
        .map(|((protocol, receiver), login)| {
            let more = format!(
                "protocol = \"{protocol}\"\nmetric = \"hits\"\nlabels = {{ zone = \"z\", env = \"e\" }}\n\
                 headers = {{ X-Scope-OrgID = \"team\" }}\n{login}"
            );
            section(protocol, &receiver.url("/push?x=1"), &more)
        })
        .collect();
    let stage = Stage::new(&config);
    let path = stage.path("lately.toml");
    let checked = lately(&["check", &path]).out;
    let line = format!(
        "history otlp: otlp {}, match k:*, interval 1s, delay 2s, max_keys 10000, catches up 6m\n",
        receivers[2].url("/push?x=1")
    );
    assert!(checked.contains(&line), "{checked}");
    let mut server = serve_with(&["--config", &path]);
    let keys: [&[u8]; 4] = [b"k:plain", "k:\u{e9} \"\n".as_bytes(), b"k:\xff", b"other"];
    let mut pipe = redis::pipe();
    keys.iter().zip(1..).for_each(|(key, hits)| _ = pipe.cmd("HIT").arg(*key).arg(hits));
    let _: Vec<u64> = pipe.query(&mut server.connect()).expect("replies");
    let mut sent = Vec::new();
    for ((protocol, receiver), login) in PROTOCOLS.iter().zip(&mut receivers).zip([
        json!("Bearer sesame"),
        json!("Basic bWU6c2VzYW1l"),
        json!(null),
    ]) {
        server.wait_for_message(": it is tried again");
        let first = receiver.request();
        let agent = format!("lately/{}", env!("CARGO_PKG_VERSION"));
        let headers = json!({"authorization": login, "x-scope-orgid": "team", "user-agent": agent});
        assert_eq!(
            (&first["protocol"], &first["path"], &first["status"]),
            (&json!(protocol), &json!("/push?x=1"), &json!(503))
        );
        assert_eq!(first["headers"], headers);
        let again = receiver.request();
        assert_eq!((&again["samples"], &again["status"]), (&first["samples"], &json!(200)));
        let mut samples = again["samples"].as_array().expect("samples").clone();
        // The pane after it, which ends the chart.
        let zeros = receiver.request()["samples"].as_array().expect("samples").clone();
        assert_eq!((zeros.len(), zeros[0]["value"].as_f64()), (3, Some(0.0)));
        let width = samples[0]["at"].as_i64().zip(zeros[0]["at"].as_i64()).map(|(one, next)| next - one);
        assert_eq!(width, Some(1_000));
        for sample in &mut samples {
            let width = sample.as_object_mut().expect("an object").remove("width");
            assert!(width.is_none_or(|width| width == 1_000), "{sample}");
        }
        samples.sort_by_key(|sample| sample["value"].as_f64().map(f64::to_bits));
        sent.push(samples);
    }
    assert_eq!((&sent[0], &sent[0]), (&sent[1], &sent[2]));
    let labels = |name: &str, key: &str| json!({"__name__": "hits", "env": "e", "zone": "z", name: key});
    let expected = [labels("key", "k:plain"), labels("key", "k:\u{e9} \"\n"), labels("key_b64", "azr/")];
    let found: Vec<&Value> = sent[0].iter().map(|sample| &sample["labels"]).collect();
    assert_eq!(found, expected.iter().collect::<Vec<_>>());
    let values: Vec<Option<f64>> = sent[0].iter().map(|sample| sample["value"].as_f64()).collect();
    assert_eq!(values, [Some(1.0), Some(2.0), Some(3.0)]);
    assert_eq!(sent[0][0]["at"].as_i64().map(|at| at % 1_000), Some(999));
}

/// The Prometheus of Debian knows remote write 1.0 only: it takes a request of 2.0 for an empty one. Nothing is lost: after the config
/// is corrected, it gets all.
#[test]
fn a_receiver_that_knows_only_remote_write_1_loses_nothing() {
    if !["curl", "prometheus"].into_iter().all(has) {
        return;
    }
    let database = TimeSeries::prometheus("global: {}\n");
    let of = |protocol: &str| section("a", &database.url(), &format!("protocol = \"{protocol}\""));
    let stage = Stage::new(&of("remote-write-2"));
    let mut server = stage.start();
    let (mut rng, mut counted) = (Rng::new(42), BTreeMap::new());
    hit(&server, &mut rng, &mut counted);
    server.wait_for_message(
        "it does not know remote write 2.0: give protocol = \"remote-write\": it is tried again",
    );
    assert!(metric(&server, "samples_total", "a") == 0.0 && sums(&database).is_empty());
    server.signal("TERM");
    assert_eq!(server.ended().code, Some(0));
    std::fs::write(stage.path("lately.toml"), of("remote-write")).expect("room");
    let server = stage.start();
    has_all(&database, &counted);
    assert!(metric(&server, "samples_total", "a") > 0.0);
}

/// A range of whole panes has the samples of its hits, and no other: at both ends.
#[test]
fn a_range_of_whole_panes_has_its_hits() {
    if !["curl", "prometheus", "victoria-metrics"].into_iter().all(has) {
        return;
    }
    let databases = [TimeSeries::prometheus("global: {}\n"), TimeSeries::victoria_metrics()];
    let config: String =
        databases.iter().zip(["p", "v"]).map(|(database, name)| section(name, &database.url(), "")).collect();
    let stage = Stage::new(&config);
    let server = stage.start();
    let (mut rng, mut counted) = (Rng::new(43), BTreeMap::new());
    eventually("a dozen panes are sent", || {
        hit(&server, &mut rng, &mut counted);
        databases.iter().all(|database| {
            let panes = database.query("count(count_over_time(sum(lately_hits)[1h:1s]) > 0)");
            let samples = database.query("max(count_over_time(lately_hits[1h]))");
            !panes.is_empty()
                && samples.iter().any(|row| {
                    row["value"][1]
                        .as_str()
                        .is_some_and(|text| text.parse::<f64>().is_ok_and(|count| count >= 12.0))
                })
        })
    });
    databases.iter().for_each(|database| has_all(database, &counted));
    // What the server says of each second, and of ten of them.
    let series = databases[0].query("lately_hits[1h]");
    let last = series.iter().flat_map(|series| series["values"].as_array().expect("samples").iter());
    let last = last.map(|sample| sample[0].as_f64().expect("a time")).fold(0.0, f64::max).ceil();
    for database in &databases {
        for (width, end) in [(1, last), (1, last - 3.0), (10, last), (10, last - 2.0), (60, last)] {
            let query = format!("query=sum(sum_over_time(lately_hits[{width}s]))");
            let time = format!("time={end}");
            let data =
                database.get("/api/v1/query", &["--data-urlencode", &query, "--data-urlencode", &time]);
            let found =
                data["result"][0]["value"][1].as_str().map_or(0.0, |text| text.parse().expect("a number"));
            let counts = counted.keys().map(|key| {
                // The window that ends before this second.
                let at = end - 1.0;
                server.ask::<u64>(&format!("HITS {key} {width} AT {at}"))
            });
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let expected = counts.sum::<u64>() as f64;
            assert!(found == expected, "{width} {end}: {found} {expected}");
        }
    }
}
