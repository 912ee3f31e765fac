//! Every engine passes the same tests.

use std::collections::HashMap;
use std::time::Duration;

use lately::{Cell, Origin, Settings, Tally, Timestamp};
use lately_engines::{Block, Engine, EngineError, Known, Memory, Redis, Write};
use test_support::{RedisServer, has};

/// 2100, so that no server drops what is written.
const START_MS: i64 = 4_102_444_800_000;

fn origin(number: usize) -> Origin {
    Origin::new(["eu-1", "eu-2", "us-1"][number], 1_764_000_000_000).expect("a name")
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Numbers that look random and are the same in each run (Marsaglia, Xorshift RNGs, 2003).
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Writes come in any order and more than once; then reads give the greatest count of each origin and cell.
async fn check(mut engine: impl Engine) {
    let keys: [&[u8]; 4] = [b"login:alice", b"{odd}}key{", b"\x00\xff\r\n", b"a"];
    let settings = Settings::default();
    let levels = settings.levels();
    let mut number = numbers(42);
    let mut expected: HashMap<(usize, Origin, Cell), Known> = HashMap::new();
    let mut sent: Vec<(usize, Known)> = Vec::new();
    for _ in 0..2_000 {
        let index = |below: u64| usize::try_from(below).expect("small");
        let (key, by) = (index(number(4)), origin(index(number(3))));
        let level = levels.as_slice()[index(number(levels.as_slice().len() as u64))];
        let at_ms = START_MS - i64::try_from(number(200_000)).expect("small");
        let cell = level.cell(Timestamp::from_millis(at_ms).expect("a time"));
        let tally = match number(20) {
            0 => Tally { counted: 1 << 50, deleted: 0 },
            1 => Tally { counted: 0, deleted: 1 + number(10) },
            _ => Tally { counted: 1 + number(1_000), deleted: 0 },
        };
        let known = Known { origin: by.clone(), cell, tally, removed: tally.deleted / 2 };
        let merged = expected.entry((key, by, cell)).or_insert_with(|| known.clone());
        merged.merge(&known);
        sent.push((key, known));
    }
    for round in 0..3 {
        for batch in sent.chunks(700) {
            let writes: Vec<Write<'_>> = batch
                .iter()
                .rev()
                .skip(round * 7)
                .chain(batch)
                .map(|(key, known)| Write {
                    block: Block::of(keys[*key], known.cell),
                    keep_until: Timestamp::from_millis(START_MS + 1_000_000_000).expect("a time"),
                    counts: vec![known],
                })
                .collect();
            engine.send(&writes).await.expect("it takes them");
        }
    }
    let mut found: HashMap<(usize, Origin, Cell), Known> = HashMap::new();
    for (index, key) in keys.into_iter().enumerate() {
        let ranges = levels.as_slice().iter();
        let blocks: Vec<_> = ranges
            .flat_map(|level| Block::between(key, *level, START_MS - 4_000_000, START_MS + 4_000_000))
            .collect();
        let told = engine.read(&blocks).await.expect("it answers");
        assert_eq!(told.len(), blocks.len());
        for (block, told) in blocks.iter().zip(told) {
            for known in told {
                assert_eq!(Block::of(key, known.cell), *block);
                found.insert((index, known.origin.clone(), known.cell), known);
            }
        }
    }
    assert_eq!(found, expected);
    let minute = Duration::from_secs(60);
    for (holder, node, expected) in
        [("one", "a", None), ("one", "a", None), ("two", "a", Some("one")), ("two", "b", None)]
    {
        let held = engine.claim(node, holder, &|_| false, minute).await.expect("it answers");
        assert_eq!(held.as_deref(), expected, "{holder} claims {node}");
    }
    // A status replaces the one before, and goes when it is removed.
    for (node, status) in [
        ("a", Some("1")),
        ("b", Some("two \r\n\"ä\"")),
        ("c", Some("3")),
        ("a", Some("4")),
        ("c", None),
        ("d", None),
    ] {
        engine.report(node, status, minute).await.expect("it takes it");
    }
    let mut nodes = engine.nodes().await.expect("it answers");
    nodes.sort();
    let expected = [("a", "4"), ("b", "two \r\n\"ä\"")];
    assert_eq!(nodes, expected.map(|(node, status)| (node.to_owned(), status.to_owned())));
    assert_eq!(engine.read(&[]).await.expect("nothing to do"), Vec::<lately_engines::Told>::new());
}

#[test]
fn memory_conforms() {
    run(check(Memory::default()));
}

#[test]
fn redis_conforms() {
    if !has("redis-server") {
        return;
    }
    let server = RedisServer::start();
    run(check(Redis::new(&server.url()).expect("a URL")));
}

#[test]
fn a_claim_ends_unless_it_is_renewed() {
    if !has("redis-server") {
        return;
    }
    let server = RedisServer::start();
    let mut engine = Redis::new(&server.url()).expect("a URL");
    run(async {
        assert_eq!(
            engine.claim("a", "one", &|_| false, Duration::from_secs(60)).await.expect("it answers"),
            None
        );
        assert!(server.command("PEXPIRE lately:node:a 1").starts_with(":1"));
        while engine
            .claim("a", "two", &|_| false, Duration::from_secs(60))
            .await
            .expect("it answers")
            .is_some()
        {}
        let held = engine.claim("a", "one", &|_| false, Duration::from_secs(60)).await.expect("it answers");
        assert_eq!(held.as_deref(), Some("two"));
    });
}

#[test]
fn the_list_of_nodes_ends_unless_it_is_renewed() {
    if !has("redis-server") {
        return;
    }
    let server = RedisServer::start();
    let mut engine = Redis::new(&server.url()).expect("a URL");
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    run(async {
        assert_eq!(engine.nodes().await.expect("it answers"), []);
        engine.report("a", Some("1"), hour).await.expect("it takes it");
        engine.report("b", Some("2"), minute).await.expect("it takes it");
        let left_ms: u64 = server.command("PTTL lately:nodes").trim()[1..].parse().expect("a number");
        assert!((1..=60_000).contains(&left_ms), "{left_ms}");
        engine.report("a", None, minute).await.expect("it takes it");
        engine.report("b", None, minute).await.expect("it takes it");
        assert!(server.command("EXISTS lately:nodes").starts_with(":0"));
    });
}

#[test]
fn a_server_that_is_back_is_used_again() {
    if !has("redis-server") {
        return;
    }
    let mut server = RedisServer::start();
    let mut engine = Redis::new(&server.url()).expect("a URL");
    let (by, cell) = (origin(0), Cell::of(START_MS, 1_000));
    let known = Known { origin: by, cell, tally: Tally { counted: 3, deleted: 0 }, removed: 0 };
    let write = Write {
        block: Block::of(b"k", cell),
        keep_until: Timestamp::from_millis(START_MS + 1_000_000).expect("a time"),
        counts: vec![&known],
    };
    run(async {
        engine.send(std::slice::from_ref(&write)).await.expect("it is there");
        server.kill();
        let failed = engine.send(std::slice::from_ref(&write)).await.expect_err("it is gone");
        assert!(matches!(failed, EngineError::Away(_)), "{failed}");
        // Nothing is tried again behind our back: a second call fails as well, at once.
        assert!(engine.read(&[write.block]).await.is_err());
        server.restart();
        assert_eq!(engine.read(&[write.block]).await.expect("it is back"), [vec![]]);
        engine.send(std::slice::from_ref(&write)).await.expect("it is back");
        assert_eq!(engine.read(&[write.block]).await.expect("it is back")[0].len(), 1);
    });
}

#[test]
fn what_no_node_wrote_is_named() {
    if !has("redis-server") {
        return;
    }
    let server = RedisServer::start();
    let mut engine = Redis::new(&server.url()).expect("a URL");
    let block = Block { key: b"k", width_ms: 1_000, number: 1 };
    run(async {
        assert!(server.command("ZADD lately:1000:1:{k} 1.5 abc").starts_with(":1"));
        let error = engine.read(&[block]).await.expect_err("it is not ours").to_string();
        assert_eq!(error, "'lately:1000:1:{k}' holds what no node wrote: abc with a score of 1.5");
        assert!(server.command("DEL lately:1000:1:{k}").starts_with(":1"));
        assert!(server.command("SET lately:1000:1:{k} x").starts_with("+OK"));
        let error = engine.read(&[block]).await.expect_err("it is not ours").to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    });
}

#[test]
fn a_bad_url_is_named_without_its_password() {
    let error = Redis::new("http://user:secret@127.0.0.1").expect_err("no URL of Redis").to_string();
    assert!(error.starts_with("invalid URL 'http://…@127.0.0.1': "), "{error}");
}
