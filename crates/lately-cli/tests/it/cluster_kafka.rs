//! Several servers that count the records of a topic of Kafka: brokers of librdkafka in this process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use redis::{FromRedisValue, RedisError, RedisResult};
use tempfile::TempDir;
use test_support::{Rng, Tansu};

use crate::cluster::{all_say, check_members, check_top};
use crate::common::command;
use crate::running::{FREE, Running, becomes, start, words};

/// Three brokers with a topic of hits, and what is needed to start servers.
struct Brokers {
    address: String,
    session: &'static str,
    producer: BaseProducer,
    folder: TempDir,
    cluster: Option<MockCluster<'static, DefaultProducerContext>>,
    tansu: Option<Tansu>,
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
        Some(Brokers::at_tansu(Tansu::start()?, partitions))
    }

    /// The same; it can be started again.
    fn tansu_with_objects(partitions: u32) -> Option<Brokers> {
        Some(Brokers::at_tansu(Tansu::with_objects()?, partitions))
    }

    fn at_tansu(tansu: Tansu, partitions: u32) -> Brokers {
        tansu.create_topic("hits", partitions);
        Brokers::at(tansu.address().to_string(), "1s", (None, Some(tansu)))
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
            .set("partitioner", "murmur2_random")
            .create()
            .expect("a producer");
        let folder = tempfile::tempdir().expect("a folder");
        Brokers { address, session, producer, folder, cluster, tansu }
    }

    /// A server, with a data folder or in memory. Keys that begin with `once:` may have ids.
    fn node(&self, name: &str, more: &str, data: Option<&Path>) -> Running {
        let config = self.folder.path().join(format!("{name}.toml"));
        let (urls, session) = (format!("kafka://{}", self.address), self.session);
        let text = format!(
            "[cluster]\nengine = \"kafka\"\nnode = \"{name}\"\nurls = [\"{urls}\"]\ntopic = \"hits\"\nsession = \"{session}\"\nflush = \"100ms\"\n{more}\n[[class]]\nmatch = \"once:*\"\ndedupe = \"10m\"\n[[class]]\nmatch = \"page\"\nunique = true\n[[class]]\nmatch = \"big\"\nunique = true\n"
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
        self.producer.poll(Duration::ZERO);
    }

    fn flush(&self) {
        self.producer.flush(Duration::from_secs(60)).expect("they are delivered");
    }

    /// The hits of `k0`, `k1` and so on in the topic, and how many records each of its first partitions has.
    fn hits_of_topic(&self) -> ([u64; 5], [u64; 3]) {
        let reader: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .set("group.id", "a look at the topic")
            .create()
            .expect("a consumer");
        let mut partitions = TopicPartitionList::new();
        for partition in 0..3 {
            partitions.add_partition_offset("hits", partition, Offset::Beginning).expect("an offset");
        }
        reader.assign(&partitions).expect("partitions");
        let (mut hits, mut records) = ([0; 5], [0; 3]);
        while let Some(Ok(record)) = reader.poll(Duration::from_secs(5)) {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            let key: usize = text(record.key()).trim_start_matches('k').parse().expect("a number");
            let n: u64 =
                text(record.payload()).trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("hits");
            hits[key] += n;
            records[usize::try_from(record.partition()).expect("small")] += 1;
        }
        (hits, records)
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

#[test]
fn members_of_all_nodes_are_counted_over_kafka() {
    let brokers = Brokers::start(4);
    let (one, two) = (brokers.node("a", "", None), brokers.node("b", "", None));
    let reader = brokers.node("c", "role = \"serve\"\n", None);
    check_members(&[&one, &two, &reader]);
    // The topic has them.
    [one, two, reader].into_iter().for_each(drop);
    assert!(all_say(&[&brokers.node("d", "", None)], "UNIQ page 7d", 1));
}

#[test]
fn top_names_the_keys_of_clients_over_kafka() {
    let brokers = Brokers::start(4);
    check_top(&[&brokers.node("a", "", None), &brokers.node("b", "", None)]);
}

/// All know these: nodes that count the records, one that only counts, one that only answers, and one that takes over.
#[test]
fn top_and_alerts_know_the_hits_of_records() {
    let brokers = Brokers::start(4);
    let more = "[[alert]]\nname = \"busy\"\nmatch = \"page*\"\nabove = 500\nwindow = \"10m\"\n\
                [[alert]]\nname = \"silent\"\nmatch = \"beat\"\nbelow = 1\nwindow = \"5s\"\n";
    let start = |name: &str, role: &str| brokers.node(name, &format!("role = \"{role}\"\n{more}"), None);
    let (one, counting) = (start("a", "both"), start("b", "ingest"));
    let reader = start("c", "serve");
    let beat = |times: usize| (0..times).for_each(|_| brokers.hit("beat", "", 1));
    beat(1);
    for number in 0..40 {
        brokers.hit(&format!("filler{number}"), "{\"n\":9}", number % 4);
    }
    for partition in 0..4 {
        brokers.hit(&format!("page{partition}"), &format!("{{\"n\":{}}}", 100 + partition), partition);
        brokers.hit("pages", "{\"n\":20}", partition);
    }
    brokers.flush();
    let top = |node: &Running, question: &str| node.ask::<Vec<(String, u64)>>(question);
    let page = |number: u64, hits| (format!("page{number}"), hits);
    let mut expected = vec![page(3, 103), page(2, 102), page(1, 101), page(0, 100), ("pages".to_owned(), 80)];
    for node in [&one, &reader] {
        for window in ["10m", "7d"] {
            let question = format!("TOP 5 {window}");
            assert!(becomes(|| top(node, &question) == expected), "{:?}", top(node, &question));
        }
    }
    // Their sum is that of the total, which has no other hits.
    let alerts = |node: &Running| {
        let answer = http(node, "GET", "/v1/alerts", "");
        (answer.contains("\"name\":\"busy\",\"state\":\"firing\""), answer)
    };
    let hits = |answer: &str| answer.contains("\"hits\":486,");
    for node in [&one, &reader] {
        assert!(becomes(|| hits(&alerts(node).1)), "{}", alerts(node).1);
        assert!(!alerts(node).0, "486 are not more than 500");
    }
    // Clients count, too.
    reader.ask::<u64>("HIT page0 20");
    expected[3] = page(0, 120);
    expected.sort_by(|(one, more), (other, hits)| hits.cmp(more).then(one.cmp(other)));
    for node in [&one, &reader] {
        assert!(becomes(|| alerts(node).0), "{}", alerts(node).1);
        assert!(becomes(|| top(node, "TOP 5 10m") == expected), "{:?}", top(node, "TOP 5 10m"));
    }
    // A total is no key for records.
    brokers.hit("\0alert:page*", "{\"n\":1000}", 0);
    brokers.flush();
    let dead = |node: &Running| node.get("/metrics").contains("lately_kafka_dead_letters_total 1");
    assert!(becomes(|| dead(&one) || dead(&counting)));
    assert!(alerts(&reader).1.contains("\"hits\":506,"), "{}", alerts(&reader).1);
    // Whoever counts the partitions next goes on with totals and lists.
    [one, counting].into_iter().for_each(drop);
    let next = start("d", "both");
    brokers.hit("page0", "{\"n\":30}", 0);
    brokers.flush();
    expected[0] = page(0, 150);
    for node in [&next, &reader] {
        assert!(becomes(|| alerts(node).1.contains("\"hits\":536,")), "{}", alerts(node).1);
        assert!(becomes(|| top(node, "TOP 5 10m") == expected), "{:?}", top(node, "TOP 5 10m"));
    }
    // A heartbeat that is in the topic is heard.
    let is_silent = |node: &Running| alerts(node).1.contains("\"name\":\"silent\",\"state\":\"firing\"");
    assert!(becomes(|| is_silent(&next)));
    assert!(becomes(|| {
        beat(1);
        brokers.flush();
        !is_silent(&next)
    }));
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

    fn is_counted(&self, brokers: &Brokers, nodes: &[&Running]) {
        for (key, hits) in self.hits.iter().enumerate() {
            for window in ["1h", "7d", "10m"] {
                let line = format!("HITS k{key} {window}");
                if !all_say(nodes, &line, *hits) {
                    let answers: Vec<u64> = nodes.iter().map(|node| node.ask(&line)).collect();
                    let fresh = brokers.node("fresh", "role = \"serve\"\n", None);
                    let has_it = all_say(&[&fresh], &line, *hits);
                    let states: Vec<String> = nodes.iter().map(|node| state(node)).collect();
                    let (sent, topic) = (self.hits, brokers.hits_of_topic());
                    panic!(
                        "{line}: the servers say {answers:?}, a new one is right: {has_it}; sent were {sent:?}; the topic has {topic:?}\n{}",
                        states.join("\n")
                    );
                }
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
    sent.is_counted(&brokers, &nodes.iter().collect::<Vec<_>>());
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
    sent.is_counted(&brokers, &nodes.iter().collect::<Vec<_>>());
}

/// The broker is killed and started again while servers count, and records are written meanwhile.
#[test]
fn each_record_counts_once_over_restarts_of_the_broker() {
    let Some(mut brokers) = Brokers::tansu_with_objects(3) else { return };
    let mut sent = Sent::new(70);
    let mut nodes = vec![brokers.node("a", "", None), brokers.node("b", "", None)];
    sent.send(&brokers, 500);
    sent.is_counted(&brokers, &nodes.iter().collect::<Vec<_>>());
    for round in 0..4 {
        let before: u64 = nodes.iter().map(records).sum();
        sent.send(&brokers, 2_000);
        // It is killed while the servers count, and may lack what they were writing.
        assert!(becomes(|| nodes.iter().map(records).sum::<u64>() > before));
        brokers.tansu.as_mut().expect("it is one").kill();
        // A server is killed as well, and comes back before the broker or after it.
        if round == 1 {
            drop(nodes.remove(0));
            nodes.insert(0, brokers.node("a", "", None));
        }
        brokers.tansu.as_mut().expect("it is one").restart();
        if round == 2 {
            drop(nodes.remove(1));
            nodes.push(brokers.node("b", "", None));
        }
        sent.send(&brokers, 200);
        sent.is_counted(&brokers, &nodes.iter().collect::<Vec<_>>());
    }
    // A new server has it all from the topics.
    let next = brokers.node("c", "role = \"serve\"\n", None);
    sent.is_counted(&brokers, &[&next]);
}

/// What a server says of Kafka.
fn state(node: &Running) -> String {
    let metrics = node.get("/metrics");
    let lines =
        metrics.lines().filter(|line| line.starts_with("lately_kafka") || line.starts_with("lately_engine"));
    format!("{}\n{}", node.get("/readyz"), lines.collect::<Vec<_>>().join("\n"))
}

/// The records that a server has read.
fn records(node: &Running) -> u64 {
    metric(node, "lately_kafka_records_total")
}

/// The value of a metric without labels.
fn metric(node: &Running, name: &str) -> u64 {
    let metrics = node.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
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

const EDGE: &str = "role = \"produce\"\n";

/// A server that writes the hits of its clients to the topic. It has found it.
fn edge(brokers: &Brokers, name: &str) -> Running {
    let edge = brokers.node(name, EDGE, None);
    let is_open = || ask::<u64>(&edge, "HIT of:the:start").is_ok();
    assert!(becomes(is_open));
    edge
}

fn ask<T: FromRedisValue>(node: &Running, line: &str) -> RedisResult<T> {
    words(line).query(&mut node.connect())
}

fn refused(node: &Running, line: &str) -> String {
    let answer: Result<redis::Value, RedisError> = ask(node, line);
    answer.expect_err(line).to_string()
}

/// Sends a request over HTTP.
fn http(node: &Running, method: &str, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(&node.http).expect("it listens");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn hits_of_an_edge_are_records_and_count_once() {
    let brokers = Brokers::start(4);
    let (one, two) = (brokers.node("a", "", None), edge(&brokers, "edge"));
    let all = [&one, &two];
    assert_eq!(two.ask::<u64>("HIT k 5"), 5);
    assert_eq!(two.ask::<u64>("HIT k 0"), 0);
    assert_eq!(two.ask::<Vec<u64>>("MHIT k 2 l 3"), [2, 3]);
    let (first, second): (u64, u64) = redis::pipe()
        .atomic()
        .cmd("HIT")
        .arg("k")
        .cmd("HIT")
        .arg("l")
        .arg(4)
        .query(&mut two.connect())
        .expect("both");
    assert_eq!((first, second), (1, 4));
    let answer = two.post("/v1/hit/k?n=10");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let lines = "{\"key\":\"k\"}\n{\"key\":\"l\",\"n\":20}\n{\"key\":\"l\",\"member\":\"a\"}\n";
    let answer = http(&two, "POST", "/v1/hits", lines);
    assert!(
        answer.contains("\"accepted\":2") && answer.contains("hits of this key have no members"),
        "{answer}"
    );
    for window in ["", " 1h", " 7d"] {
        assert!(all_say(&all, &format!("HITS k{window}"), 19), "{window}");
        assert!(all_say(&all, &format!("HITS l{window}"), 27), "{window}");
    }
    // Now this one knows the key.
    assert_eq!(two.ask::<u64>("HIT k"), 20);
    assert!(all_say(&all, "HITS k", 20));
    for node in all {
        let origins: Vec<(String, u64)> = node.ask("HITS k 1h BY ORIGIN");
        assert_eq!(origins, [("hits".to_owned(), 20)]);
    }
    assert!(two.get("/metrics").contains("lately_hits_total 48\n"), "{}", two.get("/metrics"));
    assert!(!two.get("/metrics").contains("lately_kafka_lag_records{partition="));
    // Times.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    two.ask::<u64>(&format!("HIT m AT {}", now - 7_200));
    assert!(all_say(&all, "HITS m 1d", 1) && all_say(&all, "HITS m 1h", 0));
    let late = refused(&two, "HIT m AT 5");
    assert!(late.contains("LATE"), "{late}");
    let future = refused(&two, &format!("HIT m AT {}", now + 3_600));
    assert!(future.contains("FUTURE"), "{future}");
    // What a record cannot say, and what needs counts of now.
    for (line, expected) in [
        ("HIT k ID a", "its class has no `dedupe`"),
        ("HIT once:k 4294967297 ID a", "a count of at most 4294967296"),
        ("HIT k MEMBER a", "hits of this key have no members"),
        ("HIT k 4294967297", "a count of at most 4294967296"),
        ("LIMIT k 5 1m", "decides no limits (role = \"produce\"): use a node with the role both or serve"),
        ("CL.THROTTLE k 15 30 60", "decides no limits"),
        ("MLIMIT k 5 1m", "decides no limits"),
        ("INGEST log 0 100 k 1 1700000000", "keeps no positions of sources"),
    ] {
        let why = refused(&two, line);
        assert!(why.contains(expected), "{line}: {why}");
    }
    let answer = two.post("/v1/limit/k?max=5&window=1m");
    assert!(answer.starts_with("HTTP/1.0 422") && answer.contains("decides no limits"), "{answer}");
    assert!(all_say(&all, "HITS k", 20));
    two.ask::<u64>("DEL k");
    assert!(all_say(&all, "HITS k 1h", 0));
    two.ask::<u64>("HIT k 3");
    assert!(all_say(&all, "HITS k 1h", 3));
    // The topic has everything.
    [one, two].into_iter().for_each(drop);
    let next = brokers.node("d", "", None);
    assert!(all_say(&[&next], "HITS k 1h", 3) && all_say(&[&next], "HITS l 7d", 27));
}

/// Records with ids and hits with ids of an edge are sent again and again, while the servers that count are killed.
#[test]
fn ids_count_once_over_kills_and_takeovers() {
    let (brokers, mut rng) = (Brokers::start(3), Rng::new(70));
    let names = ["a", "b"];
    let mut nodes: Vec<Running> = names.iter().map(|name| brokers.node(name, "", None)).collect();
    let edge = edge(&brokers, "edge");
    // A key is in one partition, the one that the edge chooses, too.
    let (keys, mut sent) = (["once:0", "once:1", "once:2", "once:3"], [0_u64; 4]);
    let record = |key: &str, value: &str| {
        let record = BaseRecord::to("hits").key(key).payload(value);
        brokers.producer.send(record).map_err(|(error, _)| error).expect("it is taken");
    };
    for _ in 0..12 {
        for _ in 0..1 + rng.below(40) {
            let (key, id) = (rng.index(4), rng.below(sent.iter().max().unwrap_or(&0) + 1));
            let id = id.min(sent[key]);
            record(keys[key], &format!("{{\"id\":\"{id}\",\"n\":2}}"));
            sent[key] += u64::from(id == sent[key]);
        }
        brokers.flush();
        let key = rng.index(4);
        edge.ask::<u64>(&format!("HIT {} 2 ID {}", keys[key], sent[key]));
        let line = format!("{{\"key\":\"{}\",\"n\":2,\"id\":\"{}\"}}\n", keys[key], sent[key]);
        let answer = http(&edge, "POST", "/v1/hits", &line);
        assert!(answer.contains("\"accepted\":1"), "{answer}");
        sent[key] += 1;
        let victim = rng.index(2);
        nodes[victim] = brokers.node(names[victim], "", None);
    }
    let all = [&nodes[0], &nodes[1], &edge];
    let are_counted = |nodes: &[&Running]| {
        for (key, ids) in keys.iter().zip(sent) {
            for window in ["10m", "1h", "7d"] {
                assert!(all_say(nodes, &format!("HITS {key} {window}"), 2 * ids), "{key} {window} {ids}");
            }
        }
    };
    are_counted(&all);
    // All of it once more, for another owner that knows the ids from the topic.
    nodes.clear();
    let next = brokers.node("c", "", None);
    for (key, ids) in keys.iter().zip(sent) {
        (0..ids).for_each(|id| record(key, &format!("{{\"id\":\"{id}\"}}")));
        record(key, "{\"id\":\"a\",\"member\":\"b\"}");
    }
    record("other", "{\"id\":\"a\"}");
    record("other", "");
    brokers.flush();
    // A record that is read again is in these numbers again.
    let has = |name, least| becomes(|| metric(&next, name) >= least);
    assert!(has("lately_kafka_dead_letters_total", 5), "{}", next.get("/metrics"));
    let ids = sent.iter().sum::<u64>();
    assert!(has("lately_kafka_repeated_hits_total", ids), "{}", next.get("/metrics"));
    assert!(all_say(&[&next], "HITS other 1h", 1));
    are_counted(&[&next, &edge]);
}

/// Records with members, and hits with members of an edge, come while the servers that count are killed. Some have ids, and are sent again.
#[test]
fn members_of_records_are_counted_over_kills_and_takeovers() {
    let (brokers, mut rng) = (Brokers::start(3), Rng::new(71));
    let names = ["a", "b"];
    let mut nodes: Vec<Running> = names.iter().map(|name| brokers.node(name, "", None)).collect();
    let (edge, reader) = (edge(&brokers, "edge"), brokers.node("r", "role = \"serve\"\n", None));
    let mut members = 0;
    for round in 0..4 {
        for _ in 0..3 + rng.below(5) {
            let (again, partition) = (rng.below(members + 1), i32::try_from(rng.index(3)).expect("small"));
            for member in [members, again] {
                brokers.hit("page", &format!("{{\"n\":2,\"member\":\"m{member}\"}}"), partition);
            }
            members += 1;
        }
        brokers.flush();
        edge.ask::<u64>(&format!("HIT page 3 MEMBER m{members}"));
        let line = format!("{{\"key\":\"page\",\"member\":\"m{}\"}}\n", members + 1);
        let answer = http(&edge, "POST", "/v1/hits", &line);
        assert!(answer.contains("\"accepted\":1"), "{answer}");
        members += 2;
        if round % 2 == 1 {
            let all = [&nodes[0], &nodes[1], &edge, &reader];
            assert!(all_say(&all, "UNIQ page 10m", members), "round {round}: {members}");
        }
        let victim = rng.index(2);
        nodes[victim] = brokers.node(names[victim], "", None);
    }
    assert!(all_say(&[&nodes[0], &nodes[1], &edge, &reader], "UNIQ page 1h", members), "{members}");
    // Another node deletes them. Those of later records count.
    reader.ask::<u64>("DEL page");
    let all = [&nodes[0], &nodes[1], &edge, &reader];
    assert!(all_say(&all, "UNIQ page 1h", 0));
    // In a later second than the deletion.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    brokers.hit("page", &format!("{{\"member\":\"m1\",\"at\":{}}}", now + 2), 0);
    brokers.hit("page", "{\"member\":\"\"}", 0);
    brokers.flush();
    assert!(all_say(&all, "UNIQ page 1h", 1) && all_say(&all, "HITS page 1h", 1));
    assert!(becomes(|| nodes.iter().any(|node| metric(node, "lately_kafka_dead_letters_total") > 0)));
    // The topic has them.
    drop((nodes, edge, reader));
    assert!(all_say(&[&brokers.node("d", "", None)], "UNIQ page 7d", 1));
}

#[test]
fn hits_from_before_and_after_a_node_was_an_edge_stay() {
    let brokers = Brokers::start(2);
    let data = brokers.folder.path().join("data");
    let counting = brokers.node("a", "", None);
    let serve = || brokers.node("n", "role = \"serve\"\n", Some(&data));
    let node = serve();
    node.ask::<u64>("HIT k 5");
    assert!(all_say(&[&node, &counting], "HITS k 1h", 5));
    drop(node);
    let node = brokers.node("n", EDGE, Some(&data));
    assert!(becomes(|| ask::<u64>(&node, "HIT k 3").is_ok()));
    assert!(all_say(&[&node, &counting], "HITS k 1h", 8));
    assert_eq!(node.ask::<u64>("DEL k"), 1);
    assert!(all_say(&[&node, &counting], "HITS k 1h", 0));
    node.ask::<u64>("HIT k 2");
    assert!(all_say(&[&node, &counting], "HITS k 1h", 2));
    drop(node);
    let node = serve();
    node.ask::<u64>("HIT k 4");
    assert!(all_say(&[&node, &counting], "HITS k 1h", 6));
    assert!(all_say(&[&node, &counting], "HITS k 7d", 6));
}

/// The keys of hits that were sent to an edge, each with one hit, by what it replied.
#[derive(Default)]
struct Replied {
    counted: Vec<String>,
    unknown: Vec<String>,
}

impl Replied {
    /// Sends some together.
    fn send(&mut self, connection: &mut redis::Connection, number: &AtomicUsize) -> bool {
        let keys: Vec<String> = (0..20).map(|_| format!("k{}", number.fetch_add(1, Relaxed))).collect();
        let mut pipe = redis::pipe();
        keys.iter().for_each(|key| _ = pipe.cmd("HIT").arg(key).arg("1"));
        let replied: RedisResult<Vec<u64>> = pipe.query(connection);
        let is_counted = replied.is_ok_and(|hits| hits.len() == keys.len());
        (if is_counted { &mut self.counted } else { &mut self.unknown }).extend(keys);
        is_counted
    }

    fn is_counted_once(&self, node: &Running) {
        let count = |keys: &[String]| {
            let hits = |keys: &[String]| node.ask::<Vec<u64>>(&format!("MHITS 1h {}", keys.join(" ")));
            keys.chunks(100).flat_map(hits).collect::<Vec<u64>>()
        };
        assert!(becomes(|| count(&self.counted).iter().all(|hits| *hits == 1)), "{:?}", count(&self.counted));
        let unknown = count(&self.unknown);
        assert!(unknown.iter().all(|hits| *hits <= 1), "{unknown:?}");
    }
}

/// Edges are killed 20 times while hits come.
#[test]
fn a_hit_that_a_killed_edge_had_acknowledged_counts_once() {
    let brokers = Brokers::start(3);
    let counting = brokers.node("a", "", None);
    let (mut all, number, mut rng) = (Replied::default(), AtomicUsize::new(0), Rng::new(60));
    for _ in 0..20 {
        let edge = edge(&brokers, "edge");
        let acknowledged = AtomicUsize::new(0);
        let enough = usize::try_from(1 + rng.below(40)).expect("small");
        let replied = std::thread::scope(|scope| {
            // Both are connected before it may be killed.
            let clients = [edge.connect(), edge.connect()].map(|mut connection| {
                let (acknowledged, number) = (&acknowledged, &number);
                scope.spawn(move || {
                    let mut replied = Replied::default();
                    while replied.send(&mut connection, number) {
                        acknowledged.fetch_add(1, Relaxed);
                    }
                    replied
                })
            });
            assert!(becomes(|| acknowledged.load(Relaxed) >= enough));
            edge.signal("KILL");
            clients.map(|client| client.join().expect("it ends"))
        });
        for Replied { counted, unknown } in replied {
            all.counted.extend(counted);
            all.unknown.extend(unknown);
        }
    }
    assert!(all.counted.len() >= 400 && !all.unknown.is_empty());
    all.is_counted_once(&counting);
}

#[test]
fn an_edge_waits_for_the_brokers_and_says_when_a_hit_may_not_count() {
    let brokers = Brokers::start(2);
    let cluster = brokers.cluster.as_ref().expect("it is in this process");
    let (counting, edge) = (brokers.node("a", "", None), edge(&brokers, "edge"));
    let mut replied = Replied::default();
    let number = AtomicUsize::new(0);
    // Brokers that come back soon take the hit.
    (1..=3).for_each(|broker| cluster.broker_down(broker).expect("it is there"));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| replied.send(&mut edge.connect(), &number));
        assert!(becomes(|| edge.get("/metrics").contains("lately_kafka_written_records_total 21\n")));
        assert!(!client.is_finished());
        (1..=3).for_each(|broker| cluster.broker_up(broker).expect("it is there"));
        assert!(client.join().expect("it ends"));
    });
    // Brokers that refuse for good.
    for error in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    ] {
        // The counting node may write meanwhile and meet them instead.
        let meets = || {
            cluster.request_errors(RDKafkaApiKey::Produce, &[error; 3]);
            !replied.send(&mut edge.connect(), &number)
        };
        assert!(becomes(meets));
        cluster.clear_request_errors(RDKafkaApiKey::Produce);
        assert!(becomes(|| replied.send(&mut edge.connect(), &number)));
    }
    replied.is_counted_once(&counting);
    // Brokers that stay away.
    (1..=3).for_each(|broker| cluster.broker_down(broker).expect("it is there"));
    let why = refused(&edge, "HIT lost");
    assert!(why.contains("did not acknowledge the hit, and it may count or not"), "{why}");
    (1..=3).for_each(|broker| cluster.broker_up(broker).expect("it is there"));
    assert!(becomes(|| ask::<u64>(&edge, "HIT found").is_ok()));
    assert!(becomes(|| counting.ask::<u64>("HITS found") > 0));
    assert!(counting.ask::<u64>("HITS lost") <= 1);
}

/// Servers that only count, of which one is killed now and then.
#[test]
fn servers_that_only_count_take_over_from_each_other() {
    let (brokers, mut sent) = (Brokers::start(3), Sent::new(70));
    let role = "role = \"ingest\"\n";
    let names = ["a", "b"];
    let mut counting: Vec<Running> = names.iter().map(|name| brokers.node(name, role, None)).collect();
    let reader = brokers.node("c", "role = \"serve\"\n", None);
    sent.send(&brokers, 500);
    sent.is_counted(&brokers, &[&reader]);
    for round in 0..6 {
        sent.send(&brokers, 200);
        if round % 2 == 0 {
            sent.is_counted(&brokers, &[&reader]);
        }
        counting[round % 2] = brokers.node(names[round % 2], role, None);
    }
    sent.send(&brokers, 200);
    sent.is_counted(&brokers, &[&reader]);
    let one = &counting[0];
    for line in ["HIT k0", "HITS k0", "LIMIT k0 5 1m", "DEL k0", "TOP 5", "MHITS 1h k0", "DBSIZE"] {
        let why = refused(one, line);
        assert!(why.contains("use a node with the role both, serve or produce"), "{line}: {why}");
    }
    for path in ["/v1/hits/k0", "/v1/top"] {
        let answer = http(one, "GET", path, "");
        assert!(answer.starts_with("HTTP/1.0 422") && answer.contains("role both, serve"), "{answer}");
    }
    // A server that was killed keeps its name for five seconds.
    for path in ["/metrics", "/v1/cluster", "/v1/status", "/readyz"] {
        assert!(becomes(|| http(one, "GET", path, "").starts_with("HTTP/1.0 200")), "{path}");
    }
    // One that counted only knows all once it has another role.
    let both = brokers.node("d", "", None);
    counting.into_iter().for_each(drop);
    sent.send(&brokers, 200);
    sent.is_counted(&brokers, &[&reader, &both]);
}
