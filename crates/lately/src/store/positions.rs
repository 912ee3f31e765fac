//! How far a store has read the sources of its hits. Each source has a position, which changes in one commit
//! with the counts. All positions are in one shard, so their changes are in one order.

use super::Store;
use super::key::SHARDS;
use super::mark::Before;
use super::sources::Source;
use crate::delta::{Delta, DeltaBatch};
use crate::limits::SOURCES_PART_OF_CEILING;
use crate::time::Timestamp;

/// The shard that holds the sources.
pub(super) const SOURCES_SHARD: usize = Store::SOURCES_PART as usize;
const _: () = assert!(SOURCES_SHARD < SHARDS, "there is such a shard");

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
    /// kept or neither. Above [`MAX_SOURCES`](crate::limits::MAX_SOURCES), or above the part [`SOURCES_PART_OF_CEILING`] of the ceiling, the least
    /// recently changed source of the owner with the most is forgotten. [`Store::flush`] keeps the positions, so that nothing is read twice.
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
        let most_bytes = self.most_source_bytes();
        let before =
            shard.set_position((name, position), most_bytes, &mut self.context(deltas.as_deref_mut()));
        self.memory.note_other(bytes, shard.sources().bytes());
        if let Some(deltas) = deltas {
            deltas.moved.push(before);
        }
    }

    /// Restores a position of another store, or one that is in the journal already.
    pub(super) fn put_position_back(&self, name: &[u8], position: u64) {
        let (mut shard, mut context) = (self.lock(SOURCES_SHARD, Timestamp::MIN), self.context(None));
        let bytes = shard.sources().bytes();
        shard.set_position((name, position), self.most_source_bytes(), &mut context);
        self.memory.note_other(bytes, shard.sources().bytes());
    }

    /// All positions, the least recently changed first.
    #[must_use]
    pub fn positions(&self) -> Vec<(Box<[u8]>, u64)> {
        let shard = self.lock(SOURCES_SHARD, Timestamp::MIN);
        shard.sources().in_order().into_iter().map(|(name, position)| (name.into(), position)).collect()
    }

    /// The most bytes that sources take.
    fn most_source_bytes(&self) -> usize {
        let part =
            self.memory.ceiling().map_or(u64::MAX, |ceiling_bytes| ceiling_bytes / SOURCES_PART_OF_CEILING);
        usize::try_from(part).unwrap_or(usize::MAX)
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
    use crate::limits::{MAX_SOURCE_BYTES, MAX_SOURCES};

    /// Symptom: 10,000 sources at a ceiling of 1 MiB evicted every key without a limit, and each new key was refused. Cause:
    /// sources counted towards the ceiling, but it did not bound them. Fix: they take a part of it at most.
    #[test]
    fn sources_leave_most_of_the_ceiling_to_keys() {
        const CEILING: u64 = 1 << 20;
        let store = || Store::builder().memory_ceiling(CEILING).build().expect("valid");
        let long = |number: usize| {
            [format!("source:{number}").as_bytes(), &[b'x'; MAX_SOURCE_BYTES]].concat()[..MAX_SOURCE_BYTES]
                .to_vec()
        };
        let fill = |store: &Store, deltas: &mut DeltaBatch| {
            for number in 0..MAX_SOURCES {
                let name = long(number);
                let source = Source::new(&name).expect("a name");
                store.set_position(source, 1, Timestamp::MIN, Some(&mut *deltas));
            }
        };
        let (full, empty) = (store(), store().memory().used_bytes);
        (0..500_u32).for_each(|key| _ = full.hit(&key.to_le_bytes(), Timestamp::MIN).expect("counted"));
        let mut deltas = DeltaBatch::default();
        fill(&full, &mut deltas);
        let (count, newest) = (full.source_count(), long(MAX_SOURCES - 1));
        let sources = CEILING / SOURCES_PART_OF_CEILING;
        assert_eq!((full.len(), full.memory().evicted_keys), (500, 0));
        assert!((100..sources as usize / MAX_SOURCE_BYTES).contains(&count), "{count}");
        assert_eq!(full.position(Source::new(&newest).expect("a name")), Some(1));
        assert_eq!(full.position(Source::new(&long(MAX_SOURCES - 1 - count)).expect("a name")), None);
        full.hit(b"new", Timestamp::MIN).expect("there is room");
        full.check_consistency();
        // All of them are taken back, and with them those that were forgotten.
        let before = full.positions();
        let mut deltas = DeltaBatch::default();
        full.set_position(Source::new(b"one more").expect("a name"), 1, Timestamp::MIN, Some(&mut deltas));
        assert_ne!(full.positions(), before);
        full.roll_back(&mut deltas);
        assert_eq!(full.positions(), before);
        // The bound holds with a part, too, that was written at a higher ceiling.
        let (large, mut part) = (Store::builder().build().expect("valid"), Vec::new());
        fill(&large, &mut DeltaBatch::default());
        large.write_part(u16::try_from(SOURCES_SHARD).expect("small"), Timestamp::MIN, &mut part);
        let small = store();
        small.read_part(&part, Timestamp::MIN).expect("a part");
        assert_eq!((small.source_count(), small.positions()), (count, full.positions()));
        assert!(small.memory().used_bytes - empty <= sources);
        // One always has room.
        let tiny = Store::builder().memory_ceiling(1_000).build().expect("valid");
        fill(&tiny, &mut DeltaBatch::default());
        assert_eq!(tiny.source_count(), 1);
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
