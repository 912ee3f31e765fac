//! How far a store has read the sources of its hits. Each source has a position, which changes in one commit
//! with the counts. All positions are in one shard, so their changes are in one order.

use std::collections::BTreeMap;

use super::{SHARDS, Store};
use crate::allocation::allocated;
use crate::delta::{Delta, DeltaBatch};
use crate::limits::{MAX_SOURCE_BYTES, MAX_SOURCES};
use crate::time::Timestamp;

/// The name of a source: a file, a partition of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// A source of this name; `None` if it is empty or longer than [`MAX_SOURCE_BYTES`].
    #[must_use]
    pub fn new(name: &'a [u8]) -> Option<Source<'a>> {
        (1..=MAX_SOURCE_BYTES).contains(&name.len()).then_some(Source(name))
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'a [u8] {
        self.0
    }
}

/// The shard that holds the sources.
pub(super) const SOURCES_SHARD: usize = 0;
const _: () = assert!(SOURCES_SHARD < SHARDS, "there is such a shard");

/// The memory of a source besides its name: its part of a tree node, which is at least half full.
const SOURCE_BYTES: usize = 2 * size_of::<(Box<[u8]>, Mark)>();

/// Positions by the name of the source.
#[derive(Default, Debug)]
pub(super) struct Sources {
    marks: BTreeMap<Box<[u8]>, Mark>,
    /// The number of position changes so far.
    heard: u64,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    position: u64,
    /// The value of [`Sources::heard`] when the source last changed.
    heard: u64,
}

/// What a new position replaced.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Before {
    mark: Option<Mark>,
    /// The source that was forgotten to make room.
    forgotten: Option<(Box<[u8]>, Mark)>,
}

fn bytes_of(name: &[u8]) -> usize {
    allocated(name.len()) + SOURCE_BYTES
}

impl Sources {
    fn insert(&mut self, name: Box<[u8]>, mark: Mark) -> Option<Mark> {
        let bytes = bytes_of(&name);
        let before = self.marks.insert(name, mark);
        self.bytes += if before.is_none() { bytes } else { 0 };
        before
    }

    fn remove(&mut self, name: &[u8]) -> Option<(Box<[u8]>, Mark)> {
        let removed = self.marks.remove_entry(name)?;
        self.bytes -= bytes_of(name);
        Some(removed)
    }

    /// Sets a position. The same calls in the same order forget the same sources.
    pub(super) fn set(&mut self, name: &[u8], position: u64) -> Before {
        self.heard += 1;
        let mark = self.insert(name.into(), Mark { position, heard: self.heard });
        let oldest = (self.marks.len() > MAX_SOURCES)
            .then(|| self.marks.iter().min_by_key(|(_, mark)| mark.heard))
            .flatten()
            .map(|(name, _)| name.clone());
        Before { mark, forgotten: oldest.and_then(|name| self.remove(&name)) }
    }

    /// Rolls a position back.
    pub(super) fn roll_back(&mut self, name: &[u8], before: Before) {
        match before.mark {
            Some(mark) => _ = self.insert(name.into(), mark),
            None => _ = self.remove(name),
        }
        if let Some((name, mark)) = before.forgotten {
            self.insert(name, mark);
        }
    }

    /// All sources, the least recently changed first.
    pub(super) fn in_order(&self) -> Vec<(&[u8], u64)> {
        let mut marks: Vec<_> = self.marks.iter().collect();
        marks.sort_unstable_by_key(|(_, mark)| mark.heard);
        marks.into_iter().map(|(name, mark)| (&**name, mark.position)).collect()
    }

    /// The memory of all sources, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Store {
    /// How far a source was read; `None` when the store knows nothing of it.
    #[must_use]
    pub fn position(&self, source: Source<'_>) -> Option<u64> {
        let shard = self.lock(SOURCES_SHARD, Timestamp::MIN);
        shard.sources().marks.get(source.name()).map(|mark| mark.position)
    }

    /// How many sources have a position.
    #[must_use]
    pub fn source_count(&self) -> usize {
        self.lock(SOURCES_SHARD, Timestamp::MIN).sources().marks.len()
    }

    /// Sets how far a source was read. If the hits of that part are in the same batch of `deltas`, both are
    /// kept or neither. Above [`MAX_SOURCES`] the least recently changed source is forgotten.
    /// [`Store::flush`] keeps the positions, so that nothing is read twice.
    pub fn set_position(
        &self,
        source: Source<'_>,
        position: u64,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) {
        if let Some(deltas) = &mut deltas {
            deltas.advance(now);
        }
        self.move_source(source.name(), position, now, deltas.as_deref_mut());
        self.settle(b"", now, deltas);
    }

    pub(super) fn move_source(
        &self,
        name: &[u8],
        position: u64,
        now: Timestamp,
        mut deltas: Option<&mut DeltaBatch>,
    ) {
        let mut shard = self.lock(SOURCES_SHARD, now);
        let bytes = shard.sources().bytes();
        let before = shard.set_position(name, position, &mut self.context(deltas.as_deref_mut()));
        self.memory.note_other(bytes, shard.sources().bytes());
        if let Some(deltas) = deltas {
            deltas.moved.push(before);
        }
    }

    /// Restores a position of another store, or one that is in the journal already.
    pub(super) fn put_position_back(&self, name: &[u8], position: u64) {
        let (mut shard, mut context) = (self.lock(SOURCES_SHARD, Timestamp::MIN), self.context(None));
        let bytes = shard.sources().bytes();
        shard.set_position(name, position, &mut context);
        self.memory.note_other(bytes, shard.sources().bytes());
    }

    /// Rolls back the change of a position.
    pub(super) fn take_position_back(&self, delta: &Delta<'_>, moved: &mut Vec<Before>) {
        if let &Delta::Position { source, .. } = delta
            && let Some(before) = moved.pop()
        {
            let mut shard = self.lock(SOURCES_SHARD, Timestamp::MIN);
            let bytes = shard.sources().bytes();
            shard.take_position_back(source, before);
            self.memory.note_other(bytes, shard.sources().bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Vec<u8> {
        format!("source:{number}").into_bytes()
    }

    #[test]
    fn the_source_not_heard_of_for_longest_is_forgotten() {
        let mut sources = Sources::default();
        (0..MAX_SOURCES).for_each(|number| _ = sources.set(&name(number), 1));
        sources.set(&name(0), 2);
        let (bytes, full) = (sources.bytes(), sources.in_order().len());
        let before = sources.set(b"another", 7);
        assert_eq!((full, sources.in_order().len()), (MAX_SOURCES, MAX_SOURCES));
        let has = |sources: &Sources, name: &[u8]| sources.marks.contains_key(name);
        assert!(has(&sources, &name(0)) && !has(&sources, &name(1)) && has(&sources, b"another"));
        assert_eq!(sources.in_order().last(), Some(&(&b"another"[..], 7)));
        sources.roll_back(b"another", before);
        assert!(has(&sources, &name(1)) && !has(&sources, b"another"));
        assert_eq!((sources.bytes(), sources.in_order()[0]), (bytes, (&name(1)[..], 1)));
        let before = sources.set(&name(5), 9);
        sources.roll_back(&name(5), before);
        assert_eq!(sources.marks[&name(5)[..]].position, 1);
    }

    #[test]
    fn a_name_has_a_bound() {
        for (len, is_one) in [(0, false), (1, true), (MAX_SOURCE_BYTES, true), (MAX_SOURCE_BYTES + 1, false)]
        {
            assert_eq!(Source::new(&vec![b's'; len]).is_some(), is_one, "{len}");
        }
    }

    #[test]
    fn sources_count_towards_the_ceiling() {
        let store = Store::builder().build().expect("valid");
        let empty = store.memory().used_bytes;
        let source = Source::new(b"access.log").expect("a name");
        store.set_position(source, 10, Timestamp::MIN, None);
        let one = store.memory().used_bytes;
        assert!(one > empty);
        store.set_position(source, 20, Timestamp::MIN, None);
        assert_eq!(store.memory().used_bytes, one);
        store.flush();
        assert_eq!((store.position(source), store.memory().used_bytes), (Some(20), one));
        store.check_consistency();
    }
}
