//! Several servers that count the records of a topic of Kafka: brokers of librdkafka in this process.

use std::path::Path;

use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::util::Timeout;
use tempfile::TempDir;
use test_support::{Rng, Tansu};

use crate::cluster::all_say;
use crate::common::command;
use crate::running::{FREE, Running, becomes, start};

/// Three brokers with a topic of hits, and what is needed to start servers.
struct Brokers {
    address: String,
    session: &'static str,
    producer: BaseProducer,
    folder: TempDir,
    _cluster: Option<MockCluster<'static, DefaultProducerContext>>,
    _tansu: Option<Tansu>,
}

impl Brokers {
    fn start(partitions: i32) -> Brokers {
        let cluster = MockCluster::new(3).expect("brokers");
        for (topic, partitions) in [("hits", partitions), ("hits-state", partitions), ("hits-dead", 1)] {
            cluster.create_topic(topic, partitions, 3).expect("a topic");
        }
        // Members join within 3 s here, and a shorter session ends before that.
        Brokers::at(cluster.bootstrap_servers(), "6s", (Some(cluster), None))
    }

    /// Tansu, where only the topic of hits is there. `None` if it is not installed.
    fn tansu(partitions: u32) -> Option<Brokers> {
        let tansu = Tansu::start()?;
        tansu.create_topic("hits", partitions);
        Some(Brokers::at(tansu.address().to_string(), "1s", (None, Some(tansu))))
    }

    fn at(
        address: String,
        session: &'static str,
        (cluster, tansu): (Option<MockCluster<'static, DefaultProducerContext>>, Option<Tansu>),
    ) -> Brokers {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &address)
            .set("linger.ms", "1")
            .set("enable.idempotence", "true")
            .create()
            .expect("a producer");
        let folder = tempfile::tempdir().expect("a folder");
        Brokers { address, session, producer, folder, _cluster: cluster, _tansu: tansu }
    }

    /// A server, with a data folder or in memory.
    fn node(&self, name: &str, more: &str, data: Option<&Path>) -> Running {
        let config = self.folder.path().join(format!("{name}.toml"));
        let (urls, session) = (format!("kafka://{}", self.address), self.session);
        let text = format!(
            "[cluster]\nengine = \"kafka\"\nnode = \"{name}\"\nurls = [\"{urls}\"]\ntopic = \"hits\"\nsession = \"{session}\"\nflush = \"100ms\"\n{more}"
        );
        std::fs::write(&config, text).expect("a file");
        let config = config.to_str().expect("text");
        match data {
            Some(data) => {
                start(&[&FREE, &["--config", config, "--data", data.to_str().expect("text")][..]].concat())
                    .loaded()
            }
            None => start(&[&FREE, &["--config", config, "--in-memory"][..]].concat()),
        }
    }

    fn hit(&self, key: &str, value: &str, partition: i32) {
        let record = BaseRecord::to("hits").key(key).payload(value).partition(partition);
        self.producer.send(record).map_err(|(error, _)| error).expect("it is taken");
        self.producer.poll(std::time::Duration::ZERO);
    }

    fn flush(&self) {
        self.producer.flush(Timeout::Never).expect("they are delivered");
    }
}

#[test]
fn servers_count_the_records_of_a_topic_and_their_own_hits() {
    let brokers = Brokers::start(4);
    let log = brokers.folder.path().join("access.log");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let line = |number: u64| format!("{{\"time\":{},\"ip\":\"10.0.0.{}\"}}\n", now - number % 50, number % 5);
    std::fs::write(&log, (0..1_000).map(line).collect::<String>()).expect("a file");
    let (one, two) = (brokers.node("a", "", None), brokers.node("b", "", None));
    let reader = brokers.node("c", "role = \"serve\"\n", None);
    let all = [&one, &two, &reader];
    let produce = [
        "produce",
        log.to_str().expect("text"),
        "--brokers",
        &brokers.address,
        "--topic",
        "hits",
        "--prefix",
        "ip:",
    ];
    let run = command(&produce).output().expect("it runs");
    let messages = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && messages.contains("produce: 1000 records written to hits"), "{messages}");
    for window in ["", " 10m", " 7d"] {
        assert!(all_say(&all, &format!("HITS ip:10.0.0.3{window}"), 200), "{window}");
    }
    // Hits of clients count, too, and a deletion is one of all.
    one.ask::<u64>("HIT ip:10.0.0.3 5");
    reader.ask::<u64>("HIT ip:10.0.0.3 7");
    assert!(all_say(&all, "HITS ip:10.0.0.3 1h", 212));
    assert_eq!(reader.ask::<u64>("DEL ip:10.0.0.3"), 1);
    assert!(all_say(&all, "HITS ip:10.0.0.3 1h", 0));
    brokers.hit("ip:10.0.0.3", "{\"n\":3}", 2);
    brokers.hit("ip:10.0.0.3", "three", 2);
    brokers.flush();
    assert!(all_say(&all, "HITS ip:10.0.0.3 1h", 3));
    let origins: Vec<(String, u64)> = reader.ask("HITS ip:10.0.0.3 1h BY ORIGIN");
    assert_eq!(origins, [("hits".to_owned(), 3)]);
    let dead = |node: &Running| node.get("/metrics").contains("lately_kafka_dead_letters_total 1");
    assert!(becomes(|| dead(&one) || dead(&two)));
    let has_lag = |node: &Running| node.get("/metrics").contains("lately_kafka_lag_records{partition=");
    assert!(becomes(|| has_lag(&one) && has_lag(&two)) && !has_lag(&reader));
    // The topics have everything.
    [one, two, reader].into_iter().for_each(drop);
    let next = brokers.node("d", "", None);
    assert!(all_say(&[&next], "HITS ip:10.0.0.3 1h", 3));
    assert!(all_say(&[&next], "HITS ip:10.0.0.2 7d", 200));
}

/// The hits that were sent, by key.
struct Sent {
    rng: Rng,
    hits: [u64; 5],
}

impl Sent {
    fn new(seed: u64) -> Sent {
        Sent { rng: Rng::new(seed), hits: [0; 5] }
    }

    fn send(&mut self, brokers: &Brokers, most: u64) {
        for _ in 0..1 + self.rng.below(most) {
            let (key, hits) = (self.rng.index(5), 1 + self.rng.below(3));
            let partition = i32::try_from(self.rng.below(3)).expect("small");
            brokers.hit(&format!("k{key}"), &format!("{{\"n\":{hits}}}"), partition);
            self.hits[key] += hits;
        }
        brokers.flush();
    }

    fn is_counted(&self, nodes: &[&Running]) {
        for (key, hits) in self.hits.iter().enumerate() {
            for window in ["1h", "7d", "10m"] {
                assert!(all_say(nodes, &format!("HITS k{key} {window}"), *hits), "k{key} {window} {hits}");
            }
        }
    }
}

/// Servers are killed 50 times while records come, most of them before the group has settled.
#[test]
fn each_record_counts_once_over_fifty_quick_kills() {
    let (brokers, mut sent) = (Brokers::start(3), Sent::new(40));
    let names = ["a", "b"];
    let mut nodes: Vec<Running> = names.iter().map(|name| brokers.node(name, "", None)).collect();
    for _ in 0..50 {
        let victim = sent.rng.index(2);
        sent.send(&brokers, 200);
        nodes[victim] = brokers.node(names[victim], "", None);
    }
    sent.send(&brokers, 200);
    sent.is_counted(&nodes.iter().collect::<Vec<_>>());
}

/// Servers are killed 50 times, each time while they count.
#[test]
fn each_record_counts_once_over_fifty_kills() {
    let Some(brokers) = Brokers::tansu(3) else { return };
    let (names, mut sent) = (["a", "b"], Sent::new(50));
    let mut nodes: Vec<Running> = names.iter().map(|name| brokers.node(name, "", None)).collect();
    for _ in 0..50 {
        // Who has partitions and counts is killed, at some moment of the next records.
        let before = nodes.iter().map(records).collect::<Vec<_>>();
        let mut victim = None;
        let counts = || {
            sent.send(&brokers, 50);
            let first = sent.rng.index(2);
            victim = [first, 1 - first].into_iter().find(|node| records(&nodes[*node]) > before[*node]);
            victim.is_some()
        };
        assert!(becomes(counts));
        let victim = victim.expect("one counts");
        sent.send(&brokers, 2_000);
        nodes[victim] = brokers.node(names[victim], "", None);
    }
    sent.send(&brokers, 200);
    sent.is_counted(&nodes.iter().collect::<Vec<_>>());
}

/// The records that a server has read.
fn records(node: &Running) -> u64 {
    let metrics = node.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("lately_kafka_records_total "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// A server is paused until its partitions have a new owner, and then wakes up.
#[test]
fn a_server_that_wakes_up_without_its_partitions_counts_nothing_twice() {
    let brokers = Brokers::start(2);
    let (one, two) = (brokers.node("a", "", None), brokers.node("b", "", None));
    let mut sent = 0_u64;
    for round in 0..2 {
        for number in 0..300 {
            brokers.hit("k", "", number % 2);
            sent += 1;
        }
        brokers.flush();
        let (asleep, awake) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        asleep.signal("STOP");
        for number in 0..300 {
            brokers.hit("k", "", number % 2);
            sent += 1;
        }
        brokers.flush();
        // It takes over what the other one had.
        assert!(all_say(&[awake], "HITS k 1h", sent), "{sent}");
        asleep.signal("CONT");
        assert!(all_say(&[&one, &two], "HITS k 1h", sent), "{sent}");
        assert!(all_say(&[&one, &two], "HITS k 10m", sent), "{sent}");
    }
    let third = brokers.node("c", "role = \"serve\"\n", None);
    for window in [" 10m", " 1h", " 7d"] {
        assert!(all_say(&[&third], &format!("HITS k{window}"), sent), "{window}");
    }
}
