//! Nodes that count a partition of a topic, and what goes wrong with them. A run depends on its seed only.
//!
//! Records of hits come all the time. Each node follows the state topic at its own pace. The partition is given to one node after the other, and
//! the one before may go on for a while, or be paused and wake up. Nodes are killed anywhere, also when a part of what they write has
//! arrived. The state topic is compacted at any time. Most records have an id that others have, too, and some a member. At the end, the counts and
//! the members are those of a plain list of all records.
//!
//! `LATELY_SIM_SEED` plays one seed, `LATELY_SIM_SEEDS` this number of them, `LATELY_SIM_SECONDS` new ones for this long.

use std::collections::{HashMap, HashSet};

use lately::{Cell, Levels, SentMembers, Settings, Span, Store, Tier, Timestamp};
use test_support::{ReportOnPanic, Rng, print_uncaptured, seeds};

use crate::MemberText;
use crate::limits::KAFKA_PARTS;

use super::config::Classes;
use super::counts::{BlockId, Counts};
use super::ids::{Fingerprint, HitId};
use super::partition::Taken;
use super::record_members::MemberOf;
use super::state::State;
use super::state_record::StateRecord;

const TOPIC: &str = "hits";
const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"login:alice", b"total"];
/// The last key counts the hits of every other one, and has no records itself.
const TOTAL: usize = KEYS.len() - 1;
const IDS: [&[u8]; 6] = [b"0", b"1", b"2", b"3", b"4", b"5"];
/// Members of hits. More of them in a key would be estimated.
const MEMBERS: usize = 40;
const NOW_MS: i64 = 1_700_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

/// A record of the hits topic: none is poison.
#[derive(Clone, Copy)]
struct Hit {
    key: usize,
    at_ms: i64,
    hits: u64,
    /// The time of the record.
    came_ms: i64,
    id: Option<usize>,
    member: Option<u8>,
}

impl Hit {
    fn taken(&self, span_ms: i64) -> Taken<'static> {
        let Hit { key, at_ms, hits, came_ms, id, member: _ } = *self;
        let key = KEYS[key];
        let fingerprint = |id: usize| Fingerprint::of(key, IDS[id]);
        let known = |fingerprint| HitId { fingerprint, came_ms, span_ms, known_ms: span_ms };
        Taken { key, at: at(at_ms), hits, id: id.map(fingerprint).map(known), totals: &[] }
    }
}

fn is_in_total(hit: &Hit) -> bool {
    hit.key.is_multiple_of(2)
}

struct Node {
    writer: u64,
    state: State,
    /// Where it reads the state topic.
    place: u64,
    /// Where it reads the records.
    reading: usize,
    role: Role,
}

impl Node {
    fn take(&mut self, number: usize, hit: &Hit, (span_ms, class): (i64, &Settings)) {
        let offset = i64::try_from(number).expect("small");
        let totals = [(Box::from(KEYS[TOTAL]), hit.hits)];
        let taken = Taken { totals: &totals[..usize::from(is_in_total(hit))], ..hit.taken(span_ms) };
        let (partition, _) = self.state.partition(0).expect("there is room");
        let is_again = offset < partition.gathered_until();
        let counts = if is_again {
            partition.take(offset, None, at(NOW_MS));
            partition.has_taken(offset, taken.id.as_ref())
        } else {
            partition.take(offset, Some(taken), at(NOW_MS))
        };
        if let Some(member) = hit.member.filter(|_| counts) {
            let member = MemberOf { key: taken.key, member: &[member], at: taken.at, is_again };
            self.state.add_member(member, class, at(NOW_MS));
        }
    }
}

/// All keys have one class.
struct One<'s>(&'s Settings);

impl Classes for One<'_> {
    fn with(&self, _: &[u8], call: &mut dyn FnMut(&Settings)) {
        call(self.0);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Follows,
    /// It has got the partition, and reads the state topic up to its own record.
    CatchesUp {
        until: u64,
        nonce: u64,
    },
    Counts,
}

struct World {
    rng: Rng,
    settings: Settings,
    hits: Vec<Hit>,
    /// The state topic: the records that are there, by their place.
    state: Vec<(u64, Vec<u8>, Option<Vec<u8>>)>,
    next_place: u64,
    nodes: Vec<Node>,
    writers: u64,
    nonces: u64,
    /// Whether counts have no room now and then.
    is_tight: bool,
    /// How long an id counts once.
    span_ms: i64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let is_tight = rng.below(4) == 0;
        let span_ms = if rng.below(2) == 0 { 20_000 } else { 120_000 };
        let mut world = World {
            rng,
            settings: Settings::builder().unique(true).build().expect("valid"),
            hits: Vec::new(),
            state: Vec::new(),
            next_place: 1,
            nodes: Vec::new(),
            writers: 0,
            nonces: NOW_MS.unsigned_abs(),
            is_tight,
            span_ms,
        };
        for _ in 0..3 {
            let node = world.node();
            world.nodes.push(node);
        }
        world
    }

    /// A node. Some keep only the counts of the partition, and only while they have it.
    fn node(&mut self) -> Node {
        self.writers += 1;
        let mut state = State::new(TOPIC, 1 << 30);
        if self.below(3) == 0 {
            state.keep_some_only();
        }
        state.add_writer(self.writers);
        Node { writer: self.writers, state, place: 0, reading: 0, role: Role::Follows }
    }

    fn below(&mut self, below: usize) -> usize {
        usize::try_from(self.rng.below(below as u64)).expect("small")
    }

    fn append(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        self.state.push((place, key, value));
        place
    }

    /// A node reads some records of the state topic.
    fn read(&mut self, node: usize, most: usize) {
        let node = &mut self.nodes[node];
        let unread = self.state.partition_point(|(place, ..)| *place <= node.place);
        for (place, key, value) in self.state[unread..].iter().take(most) {
            node.state.merge(0, (key, value.as_deref()), at(NOW_MS)).expect("there is room");
            node.place = *place;
        }
        if self.rng.below(8) == 0 {
            node.state.tidy(KAFKA_PARTS, at(NOW_MS));
        }
        if let Role::CatchesUp { nonce, .. } = node.role
            && node.state.nonce(0) >= nonce
        {
            let reading = node.state.partition(0).expect("there is room").0.begin();
            node.reading = usize::try_from(reading).expect("small");
            node.role = Role::Counts;
        }
    }

    /// A node gets the partition. Those that had it may not know yet.
    fn assign(&mut self, node: usize) {
        if self.nodes[node].role != Role::Follows {
            return;
        }
        self.nonces += 1;
        let nonce = self.nonces;
        let writer = self.nodes[node].writer;
        let record = StateRecord::Nonce { writer, nonce };
        let until = self.append(record.key(), record.value());
        let node = &mut self.nodes[node];
        if node.state.keeps_some_only() {
            node.state.keep(0);
            node.state.reread(0);
            node.place = 0;
        }
        node.role = Role::CatchesUp { until, nonce };
    }

    fn revoke(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if node.role == Role::Counts {
            node.state.partition(0).expect("there is room").0.end();
        }
        if node.role != Role::Follows {
            node.state.drop_partition(0);
        }
        node.role = Role::Follows;
    }

    /// A node that counts takes some records, counts them, and writes. It may be killed anywhere.
    fn count(&mut self, number: usize) {
        if self.nodes[number].role != Role::Counts {
            return;
        }
        let most = 1 + self.below(8);
        let dies = self.below(12) == 0;
        let fails = self.below(6) == 0;
        let is_short = self.is_tight && self.below(3) == 0;
        let (is_eager, writes_members) = (self.below(3) == 0, self.below(3) == 0);
        let node = &mut self.nodes[number];
        let are_written = node.state.members.are_written();
        let (partition, _) = node.state.partition(0).expect("there is room");
        if !partition.is_unwritten(are_written) || partition.has_more() || is_eager {
            // Some are read again.
            let (first, end) = (node.reading.saturating_sub(2), (node.reading + most).min(self.hits.len()));
            for (offset, hit) in self.hits[..end].iter().enumerate().skip(first) {
                node.take(offset, hit, (self.span_ms, &self.settings));
            }
            node.reading = end.max(node.reading);
        }
        let (partition, counts) = node.state.partition(0).expect("there is room");
        counts.limit(if is_short { counts.held_bytes() + 150 } else { 1 << 30 });
        let settings = &self.settings;
        let levels = |_: &[u8], with: &mut dyn FnMut(&Levels)| with(settings.levels());
        let counted = partition.count(counts, &levels, at(NOW_MS));
        counts.limit(1 << 30);
        if counted.is_err() {
            return;
        }
        let writer = node.writer;
        let member_texts = match writes_members {
            true => node.state.member_texts(writer, &One(settings), at(NOW_MS)),
            false => Vec::new(),
        };
        let are_all_written = writes_members || node.state.members.are_written();
        let is_unwritten = node.state.partition(0).expect("there is room").0.is_unwritten(are_all_written);
        if !is_unwritten && member_texts.is_empty() {
            return;
        }
        let (partition, counts) = node.state.partition(0).expect("there is room");
        let mut records = partition.records(counts, writer);
        records.extend(member_texts.iter().cloned().map(StateRecord::KeyText));
        let done = partition.complete(writer, are_all_written);
        let complete = done.record();
        // In any order; some may arrive and be reported as failed.
        for index in (1..records.len()).rev() {
            let other = self.below(index + 1);
            records.swap(index, other);
        }
        let arriving = if dies || fails { self.below(records.len() + 1) } else { records.len() };
        for record in &records[..arriving] {
            self.append(record.key(), record.value());
        }
        if dies {
            if arriving == records.len() && self.below(2) == 0 {
                self.append(complete.key(), complete.value());
            }
            self.nodes[number] = self.node();
            return;
        }
        if arriving < records.len() || fails {
            return;
        }
        let state = &mut self.nodes[number].state;
        state.partition(0).expect("there is room").0.written();
        if writes_members {
            state.members.written(member_texts.iter().map(|text| &*text.key), 1, at(NOW_MS));
        }
        if self.below(8) == 0 {
            return;
        }
        self.append(complete.key(), complete.value());
        let partition = self.nodes[number].state.partition(0).expect("there is room").0;
        partition.note_complete(done.until, done.members_until);
        for record in partition.take_expired() {
            if self.below(8) > 0 {
                self.append(record.key(), record.value());
            }
        }
    }

    /// Drops records that a later one of the same key replaces. Records that came after a node has begun to catch up are left alone, as the
    /// lag of the compaction makes sure.
    fn compact(&mut self) {
        let unread = self.nodes.iter().filter_map(|node| match node.role {
            Role::CatchesUp { until, .. } => Some(until),
            _ => None,
        });
        let cutoff = unread.min().unwrap_or(u64::MAX);
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut kept: Vec<_> = self.state.drain(..).rev().collect();
        let mut is_last = |key: &Vec<u8>| seen.insert(key.clone());
        // A record without a value removes its key, and is removed itself some time later.
        let rng = &mut self.rng;
        kept.retain(|(place, key, value)| {
            *place >= cutoff || is_last(key) && (value.is_some() || rng.below(2) > 0)
        });
        kept.reverse();
        self.state = kept;
    }

    fn step(&mut self) {
        let node = self.below(self.nodes.len());
        match self.below(20) {
            0..4 => {
                // Times of records are about in order, and some hits are late.
                let records = i64::try_from(self.hits.len()).expect("small");
                let mut before = |ms| i64::try_from(self.rng.below(ms)).expect("small");
                let came_ms = NOW_MS - 600_000 + (5_000 * records).min(600_000) - before(60_000);
                let at_ms = if before(4) == 0 { came_ms - before(240_000) } else { came_ms };
                let id = Some(self.below(2 * IDS.len())).filter(|id| *id < IDS.len());
                let (key, hits) = (self.below(TOTAL), 1 + self.rng.below(3));
                let member = u8::try_from(self.below(2 * MEMBERS))
                    .ok()
                    .filter(|member| usize::from(*member) < MEMBERS);
                self.hits.push(Hit { key, at_ms, hits, came_ms, id, member });
            }
            4..9 => {
                let most = 1 + self.below(30);
                self.read(node, most);
            }
            9..11 => self.assign(node),
            11 => self.revoke(node),
            12 => self.compact(),
            13 if self.below(5) == 0 => self.nodes[node] = self.node(),
            _ => self.count(node),
        }
    }

    /// Those of the first records that were not sent again.
    fn counted(&self, first: usize) -> Vec<Hit> {
        let mut counted: Vec<Hit> = Vec::new();
        let mut once: Vec<Hit> = Vec::new();
        for hit in &self.hits[..first] {
            let latest_ms = once.iter().map(|hit| hit.came_ms).max().unwrap_or(0);
            // The time of the partition when it comes.
            let came = Hit { came_ms: hit.came_ms.max(latest_ms), ..*hit };
            let is_same = |other: &Hit| {
                (other.key, other.id) == (came.key, came.id)
                    && (other.at_ms - came.at_ms).abs() < self.span_ms
                    && came.came_ms - other.came_ms < self.span_ms
            };
            if hit.id.is_none() {
                counted.push(*hit);
            } else if !once.iter().any(is_same) {
                counted.push(*hit);
                once.push(came);
            }
        }
        counted
    }

    /// What [`members`] is to be once all is known.
    fn true_members(&self) -> Vec<Option<u64>> {
        let hits = self.counted(self.hits.len());
        let start_ms = |minutes: i64| NOW_MS - 120_000 * minutes;
        let of_key = |key: usize| {
            let hits = &hits;
            (1..=10).map(move |minutes| {
                let in_window =
                    hits.iter().filter(|hit| hit.key == key && hit.at_ms >= start_ms(minutes) + 1_000);
                let all: HashSet<u8> = in_window.filter_map(|hit| hit.member).collect();
                Some(all.len() as u64)
            })
        };
        (0..KEYS.len()).flat_map(of_key).collect()
    }

    /// The counts of the first records.
    fn truth(&self, first: usize) -> HashMap<(usize, BlockId, u8), u64> {
        let mut truth = HashMap::new();
        for hit in self.counted(first) {
            for level in self.settings.levels().as_slice() {
                let (id, place) =
                    BlockId::of(self.settings.levels().id(), Cell::of(hit.at_ms, level.width_ms));
                for key in [Some(hit.key), is_in_total(&hit).then_some(TOTAL)].into_iter().flatten() {
                    *truth.entry((key, id, place)).or_default() += hit.hits;
                }
            }
        }
        truth
    }
}

/// Checks what a node that counts all records says of their keys.
fn check_records(state: &State, hits: &[Hit], levels: &Levels) {
    for window in [lately::seconds(30), lately::minutes(2), lately::minutes(10), lately::days(1)] {
        let window_ms = window.as_millis();
        let level = levels.as_slice().iter().find(|level| level.until_age_ms >= window_ms).expect("a level");
        let mut seen = HashSet::new();
        let mut visit = |key: &[u8], hits_in: &dyn Fn(Span, Timestamp) -> u64| {
            let number = KEYS.iter().position(|other| *other == key).expect("a key");
            let sum = |wider_ms: i64| {
                let within = |hit: &&Hit| {
                    let is_of_key = hit.key == number || (number == TOTAL && is_in_total(hit));
                    let from_ms = NOW_MS - window_ms - wider_ms;
                    is_of_key && (from_ms..NOW_MS + wider_ms).contains(&(hit.at_ms - 1))
                };
                hits.iter().filter(within).map(|hit| hit.hits).sum::<u64>()
            };
            let found = hits_in(window, at(NOW_MS));
            assert!(
                (sum(0)..=sum(level.width_ms)).contains(&found),
                "{number} {window}: {found}, not {}",
                sum(0)
            );
            assert!(seen.insert(number), "{number} was visited twice");
        };
        let pages = (0..).take_while(|page| state.visit_records(*page, &mut visit)).count();
        assert_eq!(pages, if seen.is_empty() { 0 } else { KAFKA_PARTS - 1 });
        let keys = hits.iter().flat_map(|hit| [Some(hit.key), is_in_total(hit).then_some(TOTAL)]);
        assert_eq!(seen, keys.flatten().collect());
    }
}

/// The distinct members of each key that the node knows in each window.
fn members(state: &State) -> Vec<Option<u64>> {
    let store = Store::builder().settings(Settings::builder().unique(true)).build().expect("valid");
    let windows = || (1..=10).map(|minutes| lately::minutes(2 * minutes));
    let of_key = |key: &'static [u8]| {
        let texts = state.key_texts.of_key(key, at(NOW_MS));
        let texts: Vec<_> =
            texts.iter().map(|(_, text)| MemberText::read(text).expect("a text of a node")).collect();
        let sent = texts.iter().map(|text| SentMembers { bytes: &text.members, deleted_until: None });
        store.learn_members(key, Tier::Local, sent, at(NOW_MS));
        let store = &store;
        windows().map(move |window| {
            let count = store.unique(key, Some(window), at(NOW_MS)).expect("its class counts members");
            count.upper.filter(|upper| *upper == count.lower)
        })
    };
    KEYS.into_iter().flat_map(of_key).collect()
}

/// All counts that are held.
fn held(counts: &Counts) -> HashMap<(usize, BlockId, u8), u64> {
    let mut held = HashMap::new();
    for block in counts.scan(0, usize::MAX).0 {
        let key = KEYS.iter().position(|key| *key == &block.key[..]).expect("a key");
        for known in counts.read(&block.as_block()) {
            let (id, place) = BlockId::of(known.levels, known.cell);
            *held.entry((key, id, place)).or_default() += known.tally.counted;
        }
    }
    held
}

/// Plays a seed. Returns the number of records.
fn play(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..400 {
        world.step();
    }
    // No node has ever more than there is.
    let truth = world.truth(world.hits.len());
    for node in &world.nodes {
        for (place, hits) in held(&node.state.counts) {
            assert!(truth.get(&place).is_some_and(|all| *all >= hits), "seed {seed}: {place:?} {hits}");
        }
    }
    // A new node takes over, in the midst of all that, and counts the rest.
    let node = world.node();
    world.nodes.push(node);
    let last = world.nodes.len() - 1;
    world.assign(last);
    world.read(last, usize::MAX);
    assert!(world.nodes[last].role == Role::Counts, "seed {seed}");
    world.is_tight = false;
    let hits = world.hits.len();
    let next = |world: &mut World| {
        let Node { state, reading, .. } = &mut world.nodes[last];
        let are_written = state.members.are_written();
        let partition = state.partition(0).expect("there is room").0;
        let is_unwritten = !are_written || partition.is_unwritten(true);
        let next = usize::try_from(partition.next()).expect("small");
        (next.min(*reading), is_unwritten)
    };
    while next(&mut world) != (hits, false) {
        // It may be killed, too.
        if world.nodes[last].role != Role::Counts {
            world.assign(last);
            world.read(last, usize::MAX);
        }
        world.count(last);
    }
    assert_eq!(held(&world.nodes[last].state.counts), truth, "seed {seed}");
    check_records(&world.nodes[last].state, &world.counted(hits), world.settings.levels());
    // So do all others, once they have read everything.
    let mut are_members_checked = false;
    for node in 0..world.nodes.len() {
        world.compact();
        world.read(node, usize::MAX);
        let Node { state, role, .. } = &world.nodes[node];
        if state.keeps_some_only() && *role == Role::Follows {
            assert!(
                held(&state.counts).is_empty() && state.counts.held_bytes() == 0,
                "seed {seed}: node {node}"
            );
            continue;
        }
        assert_eq!(held(&state.counts), truth, "seed {seed}: node {node}");
        // All know the same texts. To make a store of them takes a while.
        if !state.keeps_some_only() && !std::mem::replace(&mut are_members_checked, true) {
            assert_eq!(members(state), world.true_members(), "seed {seed}: node {node}");
        }
    }
    hits
}

#[test]
fn each_record_counts_once_whatever_happens_to_the_nodes() {
    let (mut played, mut records) = (0, 0);
    for seed in seeds(3_000) {
        let _report = ReportOnPanic(seed);
        records += play(seed);
        played += 1;
    }
    print_uncaptured(&format!("{played} seeds, {records} records"));
}
