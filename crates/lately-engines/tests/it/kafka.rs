//! Nodes that count the records of a topic of Kafka: brokers of librdkafka in this process.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lately::{Clock, Origin, Settings, SystemClock};
use lately_engines::{
    Block, Classes, Engine, GroupProtocol, HitGate, Kafka, KafkaConfig, KafkaRole, KafkaStats, KafkaTopic,
};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use test_support::Tansu;

use crate::{PATIENCE, START_MS, check, known, run, write};

/// The default class.
struct Default(Settings);

impl Classes for Default {
    fn with(&self, _key: &[u8], call: &mut dyn FnMut(&Settings)) {
        call(&self.0);
    }
}

/// Three brokers with a topic of hits of some partitions.
struct Brokers {
    address: String,
    producer: BaseProducer,
    cluster: Option<MockCluster<'static, DefaultProducerContext>>,
    _tansu: Option<Tansu>,
}

impl Brokers {
    fn start(partitions: i32) -> Brokers {
        let cluster = MockCluster::new(3).expect("brokers");
        for (topic, partitions) in [("hits", partitions), ("hits-state", partitions), ("hits-dead", 1)] {
            cluster.create_topic(topic, partitions, 3).expect("a topic");
        }
        Brokers::at(cluster.bootstrap_servers(), Some(cluster), None)
    }

    /// Tansu, where only the topic of hits is there. `None` if it is not installed.
    fn tansu(partitions: u32) -> Option<Brokers> {
        let tansu = Tansu::start()?;
        tansu.create_topic("hits", partitions);
        Some(Brokers::at(tansu.address().to_string(), None, Some(tansu)))
    }

    fn at(
        address: String,
        cluster: Option<MockCluster<'static, DefaultProducerContext>>,
        tansu: Option<Tansu>,
    ) -> Brokers {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &address)
            .set("linger.ms", "1")
            .create()
            .expect("a producer");
        Brokers { address, producer, cluster, _tansu: tansu }
    }

    fn node(&self, role: KafkaRole, protocol: GroupProtocol) -> (Kafka, Arc<KafkaStats>) {
        let stats = Arc::new(KafkaStats::default());
        let config = KafkaConfig {
            urls: vec![format!("kafka://{}", self.address)],
            topic: KafkaTopic {
                topic: "hits".to_owned(),
                group: "lately".to_owned(),
                role,
                protocol,
                session: Duration::from_secs(6),
            },
            flush: Duration::from_millis(50),
            keep: Duration::from_secs(1_000_000),
            most_bytes: 1 << 30,
            held_bytes: Arc::<AtomicUsize>::default(),
            stats: Arc::clone(&stats),
            gate: Arc::<HitGate>::default(),
            classes: Arc::new(Default(Settings::default())),
            clock: Arc::new(SystemClock::new()),
        };
        (Kafka::new(config).expect("addresses"), stats)
    }

    fn hit(&self, key: &str, value: &str, partition: i32) {
        let record = BaseRecord::to("hits").key(key).payload(value).partition(partition);
        self.producer.send(record).map_err(|(error, _)| error).expect("it is taken");
    }

    /// Reads the dead letters.
    fn dead_letters(&self) -> BaseConsumer {
        let reader: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .set("group.id", "test")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("hits-dead", 0, Offset::Beginning).expect("a partition");
        reader.assign(&list).expect("it is there");
        reader
    }

    fn flush(&self) {
        self.producer.flush(PATIENCE).expect("they are delivered or refused");
    }

    /// The offsets of the first record of the hits and of the next one, in a partition.
    fn ends(&self, partition: i32) -> (i64, i64) {
        self.producer.client().fetch_watermarks("hits", partition, PATIENCE).expect("the brokers answer")
    }
}

/// The hits of a key, of all origins, in the cells of this width.
async fn hits(node: &mut Kafka, key: &str, width_ms: i64) -> u64 {
    let settings = Settings::default();
    let levels = settings.levels().id();
    let now_ms = SystemClock::new().now().as_millis();
    let blocks: Vec<_> =
        Block::between(key.as_bytes(), (levels, width_ms), now_ms - 600_000, now_ms + 60_000).collect();
    match node.read(&blocks).await {
        Ok(told) => told.iter().flatten().map(|known| known.tally.hits()).sum(),
        Err(_) => 0,
    }
}

async fn becomes(node: &mut Kafka, key: &str, expected: u64) {
    for width_ms in [1_000, 10_000, 60_000, 600_000, 3_600_000] {
        for tries in 0.. {
            let found = hits(node, key, width_ms).await;
            if found == expected {
                break;
            }
            let problem = node.problem();
            assert!(
                found < expected && tries < 1_500,
                "{key}: {found} of {expected}, by {width_ms} ms: {problem:?}"
            );
            let _ = tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
        }
    }
}

async fn ready(node: &mut Kafka) {
    while node
        .read(&[Block { key: b"k", levels: lately::LevelsId::new(0), width_ms: 1, number: 0 }])
        .await
        .is_err()
    {
        let _ = tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
    }
}

#[test]
fn kafka_conforms() {
    let brokers = Brokers::start(3);
    run(async {
        let (mut node, _) = brokers.node(KafkaRole::Serve, GroupProtocol::Classic);
        ready(&mut node).await;
        check(node).await;
    });
}

#[test]
fn records_are_counted_and_known_to_all_nodes_also_after_a_start() {
    counts_and_goes_on(&Brokers::start(4));
}

/// The nodes make the topics that are missing. The end of a topic that this broker reports is too low.
#[test]
fn another_broker_serves_too() {
    if let Some(brokers) = Brokers::tansu(4) {
        counts_and_goes_on(&brokers);
    }
}

fn counts_and_goes_on(brokers: &Brokers) {
    for number in 0..400 {
        brokers.hit(&format!("k{}", number % 3), if number % 2 == 0 { "" } else { "{\"n\":2}" }, number % 4);
    }
    brokers.hit("k0", "no hit", 0);
    brokers.hit("", "", 1);
    brokers.hit("k0", "{\"n\":100}", 0);
    brokers.flush();
    let expected = |key: i32| -> u64 {
        let hits =
            (0..400).filter(|number| number % 3 == key).map(|number| if number % 2 == 0 { 1 } else { 2 });
        hits.sum::<u64>() + if key == 0 { 100 } else { 0 }
    };
    run(async {
        let (mut one, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        let (mut other, _) = brokers.node(KafkaRole::Serve, GroupProtocol::Classic);
        for key in 0..3 {
            becomes(&mut one, &format!("k{key}"), expected(key)).await;
            becomes(&mut other, &format!("k{key}"), expected(key)).await;
        }
        assert_eq!((stats.records(), stats.dead_letters(), stats.lost()), (403, 2, 0));
        one.close().await;
        let origin = Origin::new("hits", 2).expect("a name");
        let levels = Settings::default().levels().id();
        let now_ms = SystemClock::new().now().as_millis();
        let blocks: Vec<_> = Block::between(b"k1", (levels, 3_600_000), now_ms - 600_000, now_ms).collect();
        let told = other.read(&blocks).await.expect("it answers");
        assert!(told.iter().flatten().any(|known| known.origin == origin), "{told:?}");
        // The next one goes on where it was, and counts nothing twice.
        brokers.hit("k1", "{\"n\":1000}", 2);
        brokers.flush();
        let (mut next, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        becomes(&mut next, "k1", expected(1) + 1_000).await;
        becomes(&mut other, "k1", expected(1) + 1_000).await;
        becomes(&mut next, "k0", expected(0)).await;
        assert_eq!(stats.records(), 1);
        next.close().await;
    });
}

#[test]
fn both_group_protocols_count_each_record_once() {
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let brokers = Brokers::start(4);
        run(async {
            let (mut one, _) = brokers.node(KafkaRole::Both, protocol);
            ready(&mut one).await;
            let mut sent = 0;
            let mut send = |count: i32| {
                for number in 0..count {
                    brokers.hit("k", "", number % 4);
                    sent += 1;
                }
                brokers.flush();
                sent
            };
            let expected = send(100);
            becomes(&mut one, "k", expected).await;
            // Members join and leave.
            let (mut two, stats) = brokers.node(KafkaRole::Both, protocol);
            ready(&mut two).await;
            while stats.lags().len() != 2 {
                let expected = send(4);
                becomes(&mut two, "k", expected).await;
            }
            one.close().await;
            while stats.lags().len() != 4 {
                let expected = send(4);
                becomes(&mut two, "k", expected).await;
            }
            let expected = send(100);
            becomes(&mut two, "k", expected).await;
            two.close().await;
        });
    }
}

#[test]
fn a_poison_record_is_a_dead_letter_with_its_reason() {
    let brokers = Brokers::start(1);
    brokers.hit("k", "{\"count\":1}", 0);
    brokers.hit("k", "", 0);
    brokers.flush();
    run(async {
        let (mut node, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        ready(&mut node).await;
        becomes(&mut node, "k", 1).await;
        assert_eq!(stats.dead_letters(), 1);
        let reader = brokers.dead_letters();
        let letter = reader.poll(PATIENCE).expect("a message").expect("a record").detach();
        assert_eq!((letter.key(), letter.payload()), (Some(&b"k"[..]), Some(&b"{\"count\":1}"[..])));
        let headers = letter.headers().expect("headers");
        let header = |name: &str| {
            let value = headers.iter().find(|header| header.key == name).expect(name).value.expect(name);
            String::from_utf8_lossy(value).into_owned()
        };
        assert!(header("lately-reason").contains("unknown field `count`"), "{}", header("lately-reason"));
        let place = ["lately-topic", "lately-partition", "lately-offset"].map(header);
        assert_eq!(place, ["hits", "0", "0"]);
        node.close().await;
    });
}

/// Symptom: after a record of nearly 1 MB that was no hit, nothing was counted any more. Cause: its dead letter, with headers, was longer
/// than a record may be. Fix: it is cut.
#[test]
fn records_behind_a_long_poison_record_are_counted() {
    let brokers = Brokers::start(1);
    brokers.hit("k", &"x".repeat(999_900), 0);
    brokers.hit("k", "", 0);
    brokers.flush();
    run(async {
        let (mut node, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        ready(&mut node).await;
        becomes(&mut node, "k", 1).await;
        assert_eq!((stats.dead_letters(), node.problem()), (1, None));
        node.close().await;
    });
}

/// Symptom: nothing was counted any more once the brokers refused a dead letter for what was in it. Fix: it is written again without that.
#[test]
fn a_dead_letter_that_the_brokers_refuse_is_cut_to_its_headers() {
    let brokers = Brokers::start(1);
    run(async {
        let (mut node, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        ready(&mut node).await;
        let cluster = brokers.cluster.as_ref().expect("it is in this process");
        brokers.hit("k", "", 0);
        brokers.flush();
        becomes(&mut node, "k", 1).await;
        let letters = brokers.dead_letters();
        let mut written = 0;
        loop {
            let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
            let none = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
            // The record is taken. The letter is not, the first two times; unless the node writes something else meanwhile.
            let (_, end) = brokers.ends(0);
            cluster.request_errors(RDKafkaApiKey::Produce, &[none, error, error]);
            brokers.hit("k", "no hit", 0);
            brokers.flush();
            let is_cut = brokers.ends(0).1 > end && {
                written += 1;
                letters.poll(PATIENCE).expect("a message").expect("a record").payload().is_none()
            };
            cluster.clear_request_errors(RDKafkaApiKey::Produce);
            assert_eq!(stats.dead_letters(), written);
            if is_cut {
                break;
            }
        }
        brokers.hit("k", "", 0);
        brokers.flush();
        becomes(&mut node, "k", 2).await;
        node.close().await;
    });
}

/// The broker in this process keeps 5 MiB of a partition.
#[test]
fn counting_goes_on_behind_records_that_were_deleted() {
    let brokers = Brokers::start(2);
    brokers.hit("k", "{\"n\":7}", 0);
    brokers.flush();
    run(async {
        let (mut node, _) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        ready(&mut node).await;
        becomes(&mut node, "k", 7).await;
        node.close().await;
        for _ in 0..3_000 {
            brokers.hit("k", &format!("{:4000}", "{\"n\":1}"), 0);
        }
        brokers.flush();
        let (first, end) = brokers.ends(0);
        assert!((2..end).contains(&first), "{first} {end}");
        let (mut node, stats) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        ready(&mut node).await;
        becomes(&mut node, "k", 7 + (end - first).unsigned_abs()).await;
        assert_eq!(stats.lost(), (first - 1).unsigned_abs());
        // The other partition is read on, too.
        brokers.hit("other", "", 1);
        brokers.flush();
        becomes(&mut node, "other", 1).await;
        assert_eq!(node.problem(), None);
        node.close().await;
    });
}

/// Symptom: after a broker had been slow for some seconds, a node wrote nothing any more. Cause: the brokers took nothing more from its
/// producer. Fix: it is replaced.
#[test]
fn a_producer_that_the_brokers_refuse_is_replaced() {
    let brokers = Brokers::start(2);
    let cluster = brokers.cluster.as_ref().expect("it is in this process");
    run(async {
        let (mut node, _) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        let (mut other, _) = brokers.node(KafkaRole::Serve, GroupProtocol::Classic);
        ready(&mut node).await;
        let mut sent = 0;
        for error in [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        ] {
            // Those that are left would meet the producer of this test.
            cluster.clear_request_errors(RDKafkaApiKey::Produce);
            for number in 0..10 {
                brokers.hit("k", "", number % 2);
                sent += 1;
            }
            brokers.flush();
            cluster.request_errors(RDKafkaApiKey::Produce, &[error; 3]);
            becomes(&mut node, "k", sent).await;
            becomes(&mut other, "k", sent).await;
        }
        cluster.clear_request_errors(RDKafkaApiKey::Produce);
        let hits = known(0, START_MS, 7);
        while node.send(&[write(b"own", &hits)]).await.is_err() {}
        node.close().await;
    });
}

#[test]
fn a_node_that_only_counts_has_its_own_partitions_in_memory() {
    let brokers = Brokers::start(4);
    run(async {
        let (mut one, stats) = brokers.node(KafkaRole::Ingest, GroupProtocol::Classic);
        let (mut reader, _) = brokers.node(KafkaRole::Serve, GroupProtocol::Classic);
        ready(&mut one).await;
        let mut sent = 0;
        let mut send = || {
            for number in 0..400 {
                brokers.hit(&format!("k{}", number % 100), "", number % 4);
                sent += 1;
            }
            brokers.flush();
            sent / 100
        };
        let each = send();
        becomes(&mut reader, "k1", each).await;
        becomes(&mut one, "k1", each).await;
        // Half of it goes to another node.
        let (mut two, of_two) = brokers.node(KafkaRole::Ingest, GroupProtocol::Classic);
        ready(&mut two).await;
        while (stats.lags().len(), of_two.lags().len()) != (2, 2) {
            let each = send();
            becomes(&mut reader, "k1", each).await;
        }
        let each = send();
        for key in 0..100 {
            becomes(&mut reader, &format!("k{key}"), each).await;
        }
        let mut known = Vec::new();
        for node in [&mut one, &mut two] {
            let mut keys = 0;
            for key in 0..100 {
                let hits = hits(node, &format!("k{key}"), 3_600_000).await;
                assert!(hits == 0 || hits == each, "k{key}: {hits}");
                keys += u64::from(hits > 0);
            }
            known.push(keys);
        }
        // The keys of a partition are known to the node that has it.
        assert_eq!(known, [50, 50]);
        two.close().await;
        while stats.lags().len() != 4 {
            let each = send();
            becomes(&mut reader, "k2", each).await;
        }
        let each = send();
        for key in 0..100 {
            becomes(&mut one, &format!("k{key}"), each).await;
        }
        one.close().await;
    });
}

#[test]
fn a_state_topic_that_is_not_compacted_is_refused() {
    let Some(brokers) = Brokers::tansu(2) else { return };
    run(async {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &brokers.address).create().expect("a client");
        let topic =
            NewTopic::new("hits-state", 2, TopicReplication::Fixed(1)).set("cleanup.policy", "delete");
        let made = admin.create_topics([&topic], &AdminOptions::new()).await.expect("an answer");
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        let (mut node, _) = brokers.node(KafkaRole::Both, GroupProtocol::Classic);
        let block = [Block { key: b"k", levels: lately::LevelsId::new(0), width_ms: 1, number: 0 }];
        let why = loop {
            let why = node.read(&block).await.expect_err("it must not count").to_string();
            if why.contains("cleanup.policy") {
                break why;
            }
        };
        assert!(
            why.contains("'hits-state' has cleanup.policy=delete")
                && why.contains("--add-config cleanup.policy=[compact,delete]"),
            "{why}"
        );
        node.close().await;
    });
}
