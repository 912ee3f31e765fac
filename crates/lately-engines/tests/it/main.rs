//! Every engine passes the same tests; those of Redis and Valkey, in each way to run them, also when servers fail.

mod cluster;
mod faults;
#[cfg(feature = "kafka")]
mod kafka;
mod login;
mod node;
mod peers;
mod postgres;
mod retries;
mod sentinel;
mod single;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use lately::{Cell, LevelsId, Origin, Settings, Tally, Timestamp};
use lately_engines::{Block, Engine, KeyText, Known, List, Memory, OwnedBlock, Write};

/// 2100, so that no server drops what is written.
const LEVELS: LevelsId = LevelsId::new(7);
const START_MS: i64 = 4_102_444_800_000;

fn origin(number: usize) -> Origin {
    Origin::new(["eu-1", "eu-2", "us-1"][number], 1_764_000_000_000).expect("a name")
}

/// The longest that a test takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("it ends within two minutes") })
}

/// A count of an origin in a cell of a second.
fn known(by: usize, start_ms: i64, counted: u64) -> Known {
    let (origin, cell) = (origin(by), Cell::of(start_ms, 1_000));
    Known { origin, levels: LEVELS, cell, tally: Tally { counted, deleted: 0 }, removed: 0 }
}

/// The write of one count.
fn write<'w>(key: &'w [u8], known: &'w Known) -> Write<'w> {
    let keep_until = Timestamp::from_millis(START_MS + 1_000_000_000).expect("a time");
    Write { block: Block::of(key, known.levels, known.cell), keep_until, counts: vec![known] }
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
        let known = Known { origin: by.clone(), levels: LEVELS, cell, tally, removed: tally.deleted / 2 };
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
                    block: Block::of(keys[*key], known.levels, known.cell),
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
            .flat_map(|level| {
                Block::between(key, (LEVELS, level.width_ms), START_MS - 4_000_000, START_MS + 4_000_000)
            })
            .collect();
        let told = engine.read(&blocks).await.expect("it answers");
        assert_eq!(told.len(), blocks.len());
        for (block, told) in blocks.iter().zip(told) {
            for known in told {
                assert_eq!(Block::of(key, known.levels, known.cell), *block);
                found.insert((index, known.origin.clone(), known.cell), known);
            }
        }
    }
    assert_eq!(found, expected);
    check_names(
        &mut engine,
        &sent.iter().map(|(key, known)| Block::of(keys[*key], known.levels, known.cell)).collect::<Vec<_>>(),
    )
    .await;
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
        engine.set_text(List::Nodes, node, status, minute).await.expect("it takes it");
    }
    let mut nodes = engine.texts(List::Nodes).await.expect("it answers");
    nodes.sort();
    let expected = [("a", "4"), ("b", "two \r\n\"ä\"")];
    assert_eq!(nodes, expected.map(|(node, status)| (node.to_owned(), status.to_owned())));
    check_texts_of_keys(&mut engine).await;
    assert_eq!(engine.read(&[]).await.expect("nothing to do"), Vec::<lately_engines::Told>::new());
}

/// A text about a key replaces the one before of its name, and goes when it is removed.
async fn check_texts_of_keys(engine: &mut impl Engine) {
    if !engine.carries_key_texts() {
        return;
    }
    let keep_until = Timestamp::from_millis(START_MS + 10 * 365 * 86_400_000).expect("a time");
    let long = vec![b'k'; 1_024];
    let keys: [&[u8]; 4] = [b"a", b"{a}:}", b"\0\xff", &long];
    let text = |key: usize, name: &'static str, text: Option<&'static str>| KeyText {
        key: keys[key],
        name,
        text,
        keep_until,
    };
    let long_text: &'static str = "t".repeat(30_000).leak();
    let rounds = [
        vec![text(0, "a.1", Some("1")), text(1, "a.1", Some("2")), text(3, "a.1", Some(long_text))],
        vec![text(0, "b.2", Some("3")), text(0, "a.1", Some("4")), text(2, "b.2", None)],
        vec![text(1, "a.1", None)],
        Vec::new(),
    ];
    for texts in rounds {
        engine.set_key_texts(&texts).await.expect("it takes them");
    }
    let mut held = engine.key_texts(&keys).await.expect("it answers");
    held.iter_mut().for_each(|texts| texts.sort());
    let texts = |texts: &[(&str, &str)]| {
        texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<Vec<_>>()
    };
    let expected =
        [texts(&[("a.1", "4"), ("b.2", "3")]), texts(&[]), texts(&[]), texts(&[("a.1", long_text)])];
    assert_eq!(held, expected);
    assert_eq!(engine.key_texts(&[]).await.expect("nothing to do"), Vec::<lately_engines::NamedTexts>::new());
}

/// All blocks that were written are listed, and those that were noted are taken once. `written` has some several times.
async fn check_names(engine: &mut impl Engine, written: &[Block<'_>]) {
    let all: BTreeSet<OwnedBlock> = written.iter().map(|block| OwnedBlock::from(*block)).collect();
    for count in [1, 7, 10_000] {
        let (mut listed, mut place) = (BTreeSet::new(), None);
        loop {
            let (page, next) = engine.scan(place.as_ref(), count).await.expect("it answers");
            listed.extend(page);
            place = next;
            if place.is_none() {
                break;
            }
        }
        assert_eq!(listed, all);
    }
    assert_eq!(engine.changed().await.expect("it answers"), 0);
    assert_eq!(engine.take_changed(9).await.expect("it answers"), []);
    engine.note_changed(&[]).await.expect("nothing to do");
    for _ in 0..2 {
        engine.note_changed(written).await.expect("it takes them");
    }
    assert_eq!(engine.changed().await.expect("it answers"), all.len());
    let mut taken = Vec::new();
    for most in [1, 30].into_iter().chain(std::iter::repeat_n(1_000, 8)) {
        let before = taken.len();
        taken.extend(engine.take_changed(most).await.expect("it answers"));
        assert!(taken.len() - before <= most.next_multiple_of(8));
    }
    assert!(engine.changed().await.expect("it answers") == 0 && taken.len() == all.len());
    assert_eq!(BTreeSet::from_iter(taken), all);
}

#[test]
fn memory_conforms() {
    run(check(Memory::default()));
}
