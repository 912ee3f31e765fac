//! A node that counts while servers fail, and sends again what may be lost.

use std::collections::BTreeSet;

use lately_engines::{Block, Engine, Known, Redis};

use crate::{START_MS, known, write};

/// The keys of a node.
pub(crate) const KEYS: usize = 60;

/// What a node has counted, and what others may not have yet.
pub(crate) struct Node {
    pub(crate) engine: Redis,
    counts: Vec<(String, Known)>,
    unsent: BTreeSet<usize>,
    life: u64,
    /// Writes that the engine has acknowledged.
    pub(crate) writes: usize,
}

impl Node {
    pub(crate) fn new(urls: &[String]) -> Node {
        Node::with_keys(urls, KEYS)
    }

    /// A node with another number of keys.
    pub(crate) fn with_keys(urls: &[String], keys: usize) -> Node {
        let counts = (0..keys).map(|key| (format!("key{key}"), known(0, START_MS, 0))).collect();
        let engine = Redis::new(urls).expect("URLs");
        Node { engine, counts, unsent: BTreeSet::new(), life: 0, writes: 0 }
    }

    /// Counts a hit of some keys, and tries once to send what is not sent. Whether nothing is left.
    pub(crate) async fn hit(&mut self, keys: impl Iterator<Item = usize>) -> bool {
        for key in keys {
            self.counts[key].1.tally.counted += 1;
            self.unsent.insert(key);
        }
        self.send().await
    }

    /// Tries once to send what is not sent. Whether nothing is left.
    pub(crate) async fn send(&mut self) -> bool {
        let unsent = self.unsent.iter().map(|&key| &self.counts[key]);
        let writes: Vec<_> = unsent.map(|(key, known)| write(key.as_bytes(), known)).collect();
        if self.engine.send(&writes).await.is_err() {
            return false;
        }
        self.writes += writes.len();
        self.unsent.clear();
        if self.engine.life() != self.life {
            self.life = self.engine.life();
            self.unsent =
                (0..self.counts.len()).filter(|&key| self.counts[key].1.tally.counted > 0).collect();
        }
        self.unsent.is_empty()
    }

    /// Checks that another node finds exactly what this one has counted.
    pub(crate) async fn check(&self, urls: &[String]) {
        let mut other = Redis::new(urls).expect("URLs");
        let blocks: Vec<_> = self
            .counts
            .iter()
            .map(|(key, known)| Block::of(key.as_bytes(), known.levels, known.cell))
            .collect();
        let told = other.read(&blocks).await.expect("it answers");
        for ((key, known), told) in self.counts.iter().zip(told) {
            assert_eq!(told, std::slice::from_ref(known), "{key}");
        }
    }
}
