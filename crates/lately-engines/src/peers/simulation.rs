//! Nodes of a mesh and what goes wrong between them, on virtual time. A run depends on its seed only.
//!
//! Answers are lost, repeated, late and in another order; nodes are cut off from each other, killed, and started again with nothing. In
//! every other play their clocks are up to ten minutes apart. Once all of that has ended, every node has everything that any node had by then.
//!
//! `LATELY_SIM_SEED` runs one seed, `LATELY_SIM_SEEDS` this number of them, `LATELY_SIM_SECONDS` new ones for this long.

use std::collections::BTreeMap;

use lately::{Cell, LevelsId, Origin, Tally, Timestamp};
use test_support::{ReportOnPanic, Rng, print_uncaptured, seeds};

use super::following::{Answered, Following, Question};
use super::page::Page;
use super::replica::Replica;
use crate::{Block, Known, OwnedBlock, Write};

const START_MS: i64 = 1_700_000_000_000;
const LEVELS: LevelsId = LevelsId::new(7);
const KEYS: [&[u8]; 3] = [b"login:alice", b"page", b"k"];
const SEEDS: u64 = 1_000;
const STEPS: usize = 300;
/// The same, of a mesh of a hundred nodes.
const LARGE_SEEDS: u64 = 2;
const LARGE_STEPS: usize = 2_000;
/// How far a clock may be ahead or behind.
const AHEAD_MS: i64 = 300_000;

/// All that a replica has.
pub(super) type State = BTreeMap<(OwnedBlock, Cell, Origin), (u64, u64, u64)>;

struct Node {
    origin: Origin,
    replica: Replica,
    /// How far it has followed each node, itself included, which it does not follow.
    followings: Vec<Following>,
}

/// An answer on its way.
#[derive(Clone)]
struct Answer {
    to: usize,
    /// The replica that asked. An answer to an earlier start of a node goes nowhere.
    to_life: u64,
    from: usize,
    question: Question,
    life: u64,
    after: u64,
    until: u64,
    is_all: bool,
    page: Vec<u8>,
}

/// How often something went wrong.
#[derive(Default, Debug)]
struct Wrongs {
    lost: usize,
    repeated: usize,
    late: usize,
    restarts: usize,
    /// Questions that a cut has stopped.
    cut_off: usize,
}

struct Mesh {
    rng: Rng,
    now_ms: i64,
    /// How far the clock of each node is ahead.
    ahead_ms: Vec<i64>,
    lives: u64,
    nodes: Vec<Node>,
    cuts: Vec<Vec<bool>>,
    on_their_way: Vec<Answer>,
    /// Counts that travelled because they were learned.
    passed_on: usize,
    wrongs: Wrongs,
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).expect("a time")
}

pub(super) fn state(replica: &Replica) -> State {
    let (blocks, _) = replica.scan(None, usize::MAX);
    let mut state = State::new();
    for block in blocks {
        for known in replica.read(&block.as_block()) {
            let Tally { counted, deleted } = known.tally;
            state.insert((block.clone(), known.cell, known.origin), (counted, deleted, known.removed));
        }
    }
    state
}

impl Mesh {
    fn new(seed: u64, count: usize) -> Mesh {
        let mut mesh = Mesh {
            rng: Rng::new(seed),
            now_ms: START_MS,
            ahead_ms: vec![0; count],
            lives: 0,
            nodes: Vec::new(),
            cuts: vec![vec![false; count]; count],
            on_their_way: Vec::new(),
            passed_on: 0,
            wrongs: Wrongs::default(),
        };
        if seed % 2 == 1 {
            let most = 2 * AHEAD_MS.unsigned_abs() + 1;
            mesh.ahead_ms = (0..count).map(|_| mesh.rng.below(most).cast_signed() - AHEAD_MS).collect();
        }
        mesh.nodes = (0..count).map(|number| mesh.node(number, count)).collect();
        mesh
    }

    fn node(&mut self, number: usize, count: usize) -> Node {
        self.lives += 1;
        Node {
            origin: Origin::new(&format!("n{number}"), self.lives).expect("a name"),
            replica: Replica::new(self.lives, usize::MAX),
            followings: vec![Following::default(); count],
        }
    }

    /// What the clock of a node shows.
    fn clock_ms(&self, number: usize) -> i64 {
        self.now_ms + self.ahead_ms[number]
    }

    /// A node counts hits, or deletes some that it knows.
    fn write(&mut self, number: usize) {
        let now_ms = self.clock_ms(number);
        let key = KEYS[self.rng.index(KEYS.len())];
        let width_ms = [1_000, 10_000, 3_600_000][self.rng.index(3)];
        let cell = Cell::of(now_ms - self.rng.below(5_000).cast_signed(), width_ms);
        let block = Block::of(key, LEVELS, cell);
        let node = &mut self.nodes[number];
        let told = node.replica.read(&block);
        let mut known = if self.rng.once_in(4) && !told.is_empty() {
            let mut known = told[self.rng.index(told.len())].clone();
            known.tally.deleted = known.tally.counted;
            known
        } else {
            let of_own = told.iter().find(|known| known.origin == node.origin && known.cell == cell);
            let mut known = of_own.cloned().unwrap_or_else(|| Known {
                origin: node.origin.clone(),
                levels: LEVELS,
                cell,
                tally: Tally::default(),
                removed: 0,
            });
            known.tally.counted += 1 + self.rng.below(3);
            known
        };
        if self.rng.once_in(8) {
            known.removed = known.tally.deleted;
        }
        let keep_until = at(block.end_ms() + 1_000_000_000);
        let write = Write { block, keep_until, counts: vec![&known] };
        node.replica.write(&[write], at(now_ms)).expect("there is room");
        if self.rng.once_in(10) {
            let name = ["a", "b"][self.rng.index(2)];
            let text = [None, Some("one"), Some("two"), Some("three")][self.rng.index(4)];
            node.replica.set_text((0, name), text, 1_000_000_000, at(now_ms)).expect("there is room");
            // It replaces one of a clock that is ahead, too.
            let mut texts = node.replica.texts((0, name.to_owned()), at(now_ms));
            assert_eq!(texts.next(), text.map(|text| (name, text)));
        }
    }

    /// A node asks another one, and gets an answer, sooner or later.
    fn ask(&mut self, to: usize, from: usize) -> Option<Answer> {
        if to == from {
            return None;
        }
        if self.cuts[to][from] {
            self.wrongs.cut_off += 1;
            return None;
        }
        let asking = &self.nodes[to];
        let following = &asking.followings[from];
        let question = following.next(self.clock_ms(to), 1_000);
        let (answering, now) = (&self.nodes[from].replica, at(self.clock_ms(from)));
        let life = answering.life();
        let after = if following.life() == life { following.after(question) } else { 0 };
        let (to_life, seen) = (asking.replica.life(), asking.replica.seen());
        let part = match question {
            Question::Own(_) => answering.own_after(after, now),
            Question::Learned => answering.learned_after(after, to_life, &seen, now),
            Question::All => answering.all_after(after, to_life, &seen, now),
        };
        if question == Question::Learned {
            self.passed_on += part.page.counts.iter().map(|(_, counts)| counts.len()).sum::<usize>();
        }
        let (until, is_all, page) = (part.until, part.is_all, part.page.write());
        Some(Answer { to, to_life, from, question, life, after, until, is_all, page })
    }

    fn take(&mut self, answer: &Answer) {
        let Answer { question, life, after, until, is_all, .. } = *answer;
        let now_ms = self.clock_ms(answer.to);
        let node = &mut self.nodes[answer.to];
        if node.replica.life() != answer.to_life {
            return;
        }
        let page = Page::read(&answer.page).expect("a node wrote it");
        node.replica.merge(&page, (life, until), at(now_ms)).expect("there is room");
        let following = &mut node.followings[answer.from];
        let answered = Answered { life, after, until, is_all, relays: false };
        if following.note(question, answered, Vec::new(), now_ms).is_some() {
            node.replica.note_followed(life, until);
        }
    }

    fn step(&mut self) {
        self.now_ms += 1 + self.rng.below(200).cast_signed();
        let count = self.nodes.len();
        let (one, other) = (self.rng.index(count), self.rng.index(count));
        match self.rng.below(40) {
            0..14 => self.write(one),
            14..34 => {
                let Some(answer) = self.ask(one, other) else { return };
                match self.rng.below(6) {
                    0 => self.wrongs.lost += 1,
                    1 => {
                        self.wrongs.late += 1;
                        self.on_their_way.push(answer);
                    }
                    2 => {
                        self.wrongs.repeated += 1;
                        self.take(&answer);
                        self.on_their_way.push(answer);
                    }
                    _ => self.take(&answer),
                }
            }
            34..37 => {
                if !self.on_their_way.is_empty() {
                    let index = self.rng.index(self.on_their_way.len());
                    let answer = self.on_their_way.swap_remove(index);
                    self.take(&answer);
                }
            }
            37 => {
                self.wrongs.restarts += 1;
                self.nodes[one] = self.node(one, count);
            }
            _ => self.cuts[one][other] = !self.cuts[one][other],
        }
    }

    /// After a while, every node asks every other one.
    fn round(&mut self, passed_ms: i64) {
        let count = self.nodes.len();
        self.now_ms += passed_ms;
        for (to, from) in (0..count).flat_map(|to| (0..count).map(move |from| (to, from))) {
            if let Some(answer) = self.ask(to, from) {
                self.take(&answer);
            }
        }
    }

    /// Nothing goes wrong any more.
    fn settle(&mut self) {
        let count = self.nodes.len();
        self.cuts = vec![vec![false; count]; count];
        for _ in 0..8 {
            self.round(1_500);
            self.round(1);
        }
    }

    /// Cuts the nodes into two halves, which do not reach each other.
    fn split(&mut self) {
        let halves: Vec<bool> = self.nodes.iter().map(|_| self.rng.once_in(2)).collect();
        let is_cut = |one: bool| halves.iter().map(|other| one != *other).collect();
        self.cuts = halves.iter().map(|one| is_cut(*one)).collect();
    }

    /// Things go wrong for some steps. Then nothing does, and all nodes have what any had by then. Returns the number of cells.
    fn play(&mut self, steps: usize, seed: u64) -> usize {
        for _ in 0..steps {
            self.step();
        }
        let union = self.union();
        self.settle();
        let texts = |number: usize| {
            let texts = self.nodes[number].replica.texts((0, String::new()), at(self.clock_ms(number)));
            texts.map(|(name, text)| format!("{name} {text}")).collect::<Vec<_>>()
        };
        for (number, node) in self.nodes.iter().enumerate() {
            assert!(state(&node.replica) == union, "seed {seed}, node {number}");
            assert_eq!(texts(number), texts(0), "seed {seed}, node {number}");
            let others = node.followings.iter().enumerate().filter(|(other, _)| *other != number);
            assert!(others.into_iter().all(|(_, following)| following.is_complete()));
        }
        union.len()
    }

    /// What any node has.
    fn union(&self) -> State {
        let mut union = State::new();
        for node in &self.nodes {
            for (place, (counted, deleted, removed)) in state(&node.replica) {
                let held = union.entry(place).or_default();
                *held = (held.0.max(counted), held.1.max(deleted), held.2.max(removed));
            }
        }
        union
    }
}

#[test]
fn nodes_of_a_mesh_agree_whatever_goes_wrong() {
    let (mut played, mut cells) = (0, 0);
    for seed in seeds(SEEDS) {
        let _report = ReportOnPanic(seed);
        let mut mesh = Mesh::new(seed, 2 + usize::try_from(seed % 4).expect("small"));
        for _ in 0..3 {
            cells += mesh.play(STEPS, seed);
        }
        played += 1;
    }
    print_uncaptured(&format!("{played} seeds, {cells} cells"));
}

/// What was learned is passed on only to those that lack it, and in a mesh where all reach all, nobody does.
#[test]
fn nothing_is_passed_on_while_all_nodes_reach_each_other() {
    let mut mesh = Mesh::new(1, 5);
    mesh.settle();
    mesh.passed_on = 0;
    for _ in 0..200 {
        for number in 0..5 {
            let (key, cell) = (KEYS[number % 3], Cell::of(mesh.now_ms, 1_000));
            let node = &mut mesh.nodes[number];
            let tally = Tally { counted: mesh.rng.below(100), deleted: 0 };
            let known = Known { origin: node.origin.clone(), levels: LEVELS, cell, tally, removed: 0 };
            let block = Block::of(key, LEVELS, cell);
            let write = Write { block, keep_until: at(mesh.now_ms + 1_000_000), counts: vec![&known] };
            node.replica.write(&[write], at(mesh.now_ms)).expect("there is room");
        }
        // Of what was published since, and then of what was learned.
        mesh.round(10);
        mesh.round(1_000);
    }
    assert_eq!(mesh.passed_on, 0);
    assert!(mesh.nodes.iter().all(|node| state(&node.replica) == mesh.union()));
}

/// Each part begins with a mesh in two halves, and late answers of a part come in the next one.
#[test]
fn a_hundred_nodes_agree() {
    for seed in seeds(LARGE_SEEDS) {
        let _report = ReportOnPanic(seed);
        let mut mesh = Mesh::new(seed, 100);
        for _ in 0..2 {
            mesh.split();
            let cells = mesh.play(LARGE_STEPS, seed);
            assert!(cells > 100, "{cells}");
        }
        let Wrongs { lost, repeated, late, restarts, cut_off } = mesh.wrongs;
        let wrongs = [lost, repeated, late, restarts, cut_off];
        assert!(wrongs.iter().all(|times| *times > 50), "seed {seed}: {:?}", mesh.wrongs);
    }
}
