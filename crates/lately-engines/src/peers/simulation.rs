//! Nodes of a mesh and what goes wrong between them, on virtual time. A run depends on its seed only.
//!
//! Answers are lost, repeated, late and in another order; nodes are cut off from each other, killed, and started again with nothing. Once
//! all of that has ended, every node has everything that any node had by then.
//!
//! `LATELY_SIM_SEED` runs one seed, `LATELY_SIM_SEEDS` this number of them.

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

struct Mesh {
    rng: Rng,
    now_ms: i64,
    lives: u64,
    nodes: Vec<Node>,
    cuts: Vec<Vec<bool>>,
    on_their_way: Vec<Answer>,
    /// Counts that travelled because they were learned.
    passed_on: usize,
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
            lives: 0,
            nodes: Vec::new(),
            cuts: vec![vec![false; count]; count],
            on_their_way: Vec::new(),
            passed_on: 0,
        };
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

    /// A node counts hits, or deletes some that it knows.
    fn write(&mut self, number: usize) {
        let key = KEYS[self.rng.index(KEYS.len())];
        let width_ms = [1_000, 10_000, 3_600_000][self.rng.index(3)];
        let cell = Cell::of(self.now_ms - self.rng.below(5_000).cast_signed(), width_ms);
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
        node.replica.write(&[write], at(self.now_ms)).expect("there is room");
        if self.rng.once_in(10) {
            let name = ["a", "b"][self.rng.index(2)];
            let text = if self.rng.once_in(4) { None } else { Some("text") };
            node.replica.set_text((0, name), text, 1_000_000_000, at(self.now_ms)).expect("there is room");
        }
    }

    /// A node asks another one, and gets an answer, sooner or later.
    fn ask(&mut self, to: usize, from: usize) -> Option<Answer> {
        if to == from || self.cuts[to][from] {
            return None;
        }
        let now = at(self.now_ms);
        let asking = &self.nodes[to];
        let following = &asking.followings[from];
        let question = following.next(self.now_ms, 1_000);
        let answering = &self.nodes[from].replica;
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
        let node = &mut self.nodes[answer.to];
        if node.replica.life() != answer.to_life {
            return;
        }
        let page = Page::read(&answer.page).expect("a node wrote it");
        node.replica.merge(&page, (life, until), at(self.now_ms)).expect("there is room");
        let following = &mut node.followings[answer.from];
        let answered = Answered { life, after, until, is_all, relays: false };
        if following.note(question, answered, Vec::new(), self.now_ms).is_some() {
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
                    0 => {}
                    1 => self.on_their_way.push(answer),
                    2 => {
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
            37 => self.nodes[one] = self.node(one, count),
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
            for _ in 0..STEPS {
                mesh.step();
            }
            let union = mesh.union();
            mesh.settle();
            for (number, node) in mesh.nodes.iter().enumerate() {
                assert!(state(&node.replica) == union, "seed {seed}, node {number}");
                let texts = |node: &Node| {
                    let texts = node.replica.texts((0, String::new()), at(mesh.now_ms));
                    texts.map(|(name, text)| format!("{name} {text}")).collect::<Vec<_>>()
                };
                assert_eq!(texts(node), texts(&mesh.nodes[0]), "seed {seed}, node {number}");
                let others = node.followings.iter().enumerate().filter(|(other, _)| *other != number);
                assert!(others.into_iter().all(|(_, following)| following.is_complete()));
            }
            cells += union.len();
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

#[test]
fn a_hundred_nodes_agree() {
    let mut mesh = Mesh::new(1, 100);
    for _ in 0..2_000 {
        mesh.step();
    }
    let union = mesh.union();
    mesh.settle();
    assert!(union.len() > 100, "{}", union.len());
    assert!(mesh.nodes.iter().all(|node| state(&node.replica) == union));
}
