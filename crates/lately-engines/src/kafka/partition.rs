//! What a node knows of a partition of the hits topic, and how it counts its records. Pure: it does no I/O, and time is passed in.
//!
//! The count of a cell is a function of the records before an offset. Whoever counts them gets the same. So three things are said in the
//! state topic, and each stays true forever:
//!
//! 1. *Hits*: in this block, the records before this offset have these hits. More hits go with a greater offset, so of two such records
//!    the greater numbers are right, whoever wrote them.
//! 2. *Complete*: for all blocks, the topic has the hits of the records before this offset. It is written once these hits are
//!    acknowledged.
//! 3. Between the two, some blocks may be *ahead*: their hits are in the topic up to a later offset, because their writer was
//!    killed before the rest was written, or is still at work.
//!
//! The next owner goes on from the greatest offset that is complete. It leaves out what is in a block that is ahead already. So
//! a record that is read again, a writer that is killed anywhere, and one that wakes up after it has lost the partition change nothing.
//!
//! The same holds for the ids of hits (`ids.rs`): these are in the topic before the record that says it is complete. Members may be written later
//! (`record_members.rs`): the same record says of which records they are there.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use lately::{Cell, Level, Levels, Timestamp};

use super::counts::{Addition, BlockId, Counts, NoRoom, OriginNumber};
use super::gathered::{Gather, Gathered};
use super::ids::{CountedId, HitId, Ids};
use super::state_record::StateRecord;
use crate::OwnedBlock;
use crate::limits::KAFKA_SLACK_MS;

/// A partition of the hits topic.
pub(super) struct Partition {
    number: i32,
    /// It is an origin of its own.
    origin: OriginNumber,
    /// The greatest offset up to which the state topic is complete, as far as it was read.
    complete: i64,
    /// All records before this offset are in the counts of this node.
    next: i64,
    /// The greatest offset before which the members of all records are in the state topic, as far as it was read.
    members_complete: i64,
    /// While this node counts: it has read the members of all records before this offset, or they are in the state topic.
    members_read: i64,
    ahead: Ahead,
    /// Blocks with hits that this node has not written yet.
    unwritten: HashMap<Box<[u8]>, Vec<BlockId>>,
    ids: Ids,
    /// The hits of records from `next` on, and the offset behind the last of them.
    gathered: Gathered,
    gathered_until: i64,
    /// Whether this node counts it.
    is_owned: bool,
}

/// Blocks of keys that have hits of later records: the first offset that they do not have, by a hash of key and block. While
/// the topic is read for the first time, these may be all of its blocks.
#[derive(Default)]
struct Ahead {
    until: HashMap<u64, i64>,
    hasher: RandomState,
}

/// What a block takes there, at most: a hash table is at least 7/16 full.
pub(super) const AHEAD_BYTES: usize = (size_of::<(u64, i64)>() + 1) * 16 / 7;

impl Ahead {
    fn hash(&self, key: &[u8], id: BlockId) -> u64 {
        self.hasher.hash_one((key, id))
    }

    fn get(&self, key: &[u8], id: BlockId) -> Option<i64> {
        // Most of the time there are none.
        if self.until.is_empty() { None } else { self.until.get(&self.hash(key, id)).copied() }
    }

    fn note(&mut self, key: &[u8], id: BlockId, until: i64) {
        let held = self.until.entry(self.hash(key, id)).or_insert(until);
        *held = until.max(*held);
    }

    /// Drops those that have no hits of records from an offset on.
    fn drop_before(&mut self, base: i64) {
        self.until.retain(|_, until| *until > base);
        // After a start it may have had most of the topic.
        if self.until.len() < self.until.capacity() / 4 {
            self.until.shrink_to_fit();
        }
    }
}

/// Hits of a record that are to be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'t> {
    pub(super) key: &'t [u8],
    pub(super) at: Timestamp,
    pub(super) hits: u64,
    pub(super) id: Option<HitId>,
    /// The keys that count these hits, too, each with its part of them.
    pub(super) totals: &'t [(Box<[u8]>, u64)],
}

/// How far a partition is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete {
    writer: u64,
    pub(super) number: i32,
    pub(super) until: i64,
    pub(super) members_until: i64,
}

impl Complete {
    /// The record of the state topic.
    pub(super) fn record(self) -> StateRecord {
        let Complete { writer, number: partition, until, members_until } = self;
        StateRecord::Complete { writer, partition, until, members_until }
    }
}

/// Calls back with the levels of a key.
pub(super) type LevelsOf<'l> = dyn Fn(&[u8], &mut dyn FnMut(&Levels)) + 'l;

/// The cell of a hit in each level: the block, the place in it, and until when the block is kept.
fn cells_of(levels: &Levels, at: Timestamp) -> impl Iterator<Item = (BlockId, u8, i64)> + '_ {
    let all = levels.as_slice();
    all.iter().enumerate().map(move |(index, level)| {
        let Level { width_ms, until_age_ms, .. } = *level;
        let (id, place) = BlockId::of(levels.id(), Cell::of(at.as_millis(), width_ms));
        // The next level takes over where one of its cells begins.
        let next_width_ms = all.get(index + 1).map_or(width_ms, |next| next.width_ms);
        let kept_ms = until_age_ms + next_width_ms + KAFKA_SLACK_MS;
        (id, place, id.end_ms().saturating_add(kept_ms))
    })
}

impl Partition {
    /// A partition of which nothing is known.
    pub(super) fn new(number: i32, origin: OriginNumber) -> Partition {
        Partition {
            number,
            origin,
            complete: 0,
            next: 0,
            members_complete: 0,
            members_read: 0,
            ahead: Ahead::default(),
            unwritten: HashMap::new(),
            ids: Ids::default(),
            gathered: Gathered::default(),
            gathered_until: 0,
            is_owned: false,
        }
    }

    /// Its origin, if this node counts it.
    pub(super) fn owned_origin(&self) -> Option<OriginNumber> {
        self.is_owned.then_some(self.origin)
    }

    /// The first offset of which it matters whether a block has it.
    fn base(&self) -> i64 {
        // While this node counts, it may not have read all that is complete.
        if self.is_owned { self.next } else { self.next.max(self.complete) }
    }

    fn drop_ahead(&mut self) {
        self.ahead.drop_before(self.base());
    }

    /// A block has the hits of all records before an offset. They are merged into the counts.
    pub(super) fn note_hits(&mut self, key: &[u8], id: BlockId, until: i64) {
        if until <= self.base() {
            return;
        }
        self.ahead.note(key, id, until);
    }

    /// The state topic has a record of ids between two offsets.
    pub(super) fn note_ids(&mut self, range: (i64, i64), ids: Option<&[CountedId]>) {
        self.ids.note(range, ids);
    }

    /// The state topic is complete up to an offset, with the members of records up to another one.
    pub(super) fn note_complete(&mut self, until: i64, members_until: i64) {
        self.members_complete = self.members_complete.max(members_until);
        if until > self.complete {
            self.complete = until;
            self.drop_ahead();
        }
    }

    /// This node is to count the records, and has read the state topic up to a time since it got the partition. Returns the offset of the
    /// first one to read. Of those that are counted already, only the members may be missing.
    pub(super) fn begin(&mut self) -> i64 {
        self.is_owned = true;
        if self.complete > self.next {
            self.next = self.complete;
            self.drop_ahead();
            // Others have written all that this node had, but for blocks that are ahead: this node may be the one that is.
            let ahead = &self.ahead;
            self.unwritten.retain(|key, blocks| {
                blocks.retain(|id| ahead.get(key, *id).is_some());
                !blocks.is_empty()
            });
        }
        (self.gathered_until, self.gathered) = (self.next, Gathered::default());
        self.ids.go_to(self.next, self.complete);
        self.drop_ahead();
        self.members_read = self.members_complete.min(self.next);
        self.members_read
    }

    /// This node is not to count the records any more.
    pub(super) fn end(&mut self) {
        if !self.is_owned {
            return;
        }
        self.gathered.clear();
        self.gathered_until = self.next;
        self.is_owned = false;
        self.drop_ahead();
    }

    /// Takes the hits of the next record, or none if it is no hit. A record that was taken before changes nothing. Returns whether the hits
    /// count: those that were sent again do not.
    pub(super) fn take(&mut self, offset: i64, hit: Option<Taken<'_>>, now: Timestamp) -> bool {
        self.members_read = self.members_read.max(offset + 1);
        if offset < self.gathered_until {
            return false;
        }
        self.gathered_until = offset + 1;
        let Some(Taken { key, at, hits, id, totals }) = hit else { return false };
        let counts = id.is_none_or(|id| self.ids.take(offset, at, &id, now));
        if counts {
            self.gathered.add(key, Gather { offset, at, hits });
            for (total, hits) in totals {
                self.gathered.add(total, Gather { offset, at, hits: *hits });
            }
        }
        counts
    }

    /// Whether the hits of a record that was taken before count, as far as is known.
    pub(super) fn has_taken(&self, offset: i64, id: Option<&HitId>) -> bool {
        offset < self.gathered_until && id.is_none_or(|id| self.ids.has(id.fingerprint, offset))
    }

    /// Whether records were taken that are not counted yet.
    #[cfg(test)]
    pub(super) fn has_more(&self) -> bool {
        self.gathered_until > self.next
    }

    /// Whether there is something to write. `are_members_written`: the members of all records that were read are in the state topic once this is.
    pub(super) fn is_unwritten(&self, are_members_written: bool) -> bool {
        self.next > self.complete || self.members_until(are_members_written) > self.members_complete
    }

    /// The offset before which the members of all records are in the state topic.
    fn members_until(&self, are_members_written: bool) -> i64 {
        if are_members_written { self.next.min(self.members_read) } else { self.members_complete }
    }

    /// The offset of the first record that is not counted.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// The offset of the first record that was not taken.
    pub(super) fn gathered_until(&self) -> i64 {
        self.gathered_until
    }

    /// The offset of the first record that was not read, for its hits or for its member.
    pub(super) fn unread_from(&self) -> i64 {
        self.members_read.min(self.gathered_until)
    }

    /// Counts the hits that were taken. `levels` calls back with the levels of a key.
    ///
    /// # Errors
    /// [`NoRoom`]: some of the keys are not counted yet. Try again.
    pub(super) fn count(
        &mut self,
        counts: &mut Counts,
        levels: &LevelsOf<'_>,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        let Partition { ahead, unwritten, gathered, origin, .. } = self;
        let mut additions: Vec<Addition> = Vec::new();
        let (taken, done) = gathered.take(|key, hits| {
            additions.clear();
            levels(key, &mut |levels| {
                for Gather { offset, at, hits } in hits {
                    for (id, place, keep_until_ms) in cells_of(levels, *at) {
                        let has_it = ahead.get(key, id).is_some_and(|until| until > *offset);
                        if has_it || keep_until_ms < now.as_millis() {
                            continue;
                        }
                        let is_same = |addition: &&mut Addition| addition.id == id && addition.place == place;
                        match additions.iter_mut().rev().take(GATHERED_CELLS).find(is_same) {
                            Some(addition) => addition.hits = addition.hits.saturating_add(*hits),
                            None => additions.push(Addition { id, place, keep_until_ms, hits: *hits }),
                        }
                    }
                }
            });
            if additions.is_empty() {
                return Ok(());
            }
            counts.add(key, *origin, &additions)?;
            let blocks = match unwritten.get_mut(key) {
                Some(blocks) => blocks,
                None => unwritten.entry(key.into()).or_default(),
            };
            for addition in &additions {
                if !blocks.contains(&addition.id) {
                    blocks.push(addition.id);
                }
            }
            Ok(())
        });
        if done.is_err() {
            // These have the hits of all records that were taken. The others do not.
            for key in taken {
                let blocks = self.unwritten.get(&key).cloned().unwrap_or_default();
                blocks.into_iter().for_each(|id| self.note_hits(&key, id, self.gathered_until));
            }
            return done;
        }
        self.next = self.gathered_until;
        self.drop_ahead();
        Ok(())
    }

    /// What is to be written, before [`Partition::complete`]. Only when all hits that were taken are counted.
    pub(super) fn records(&self, counts: &Counts, writer: u64) -> Vec<StateRecord> {
        let all = self.unwritten.iter().flat_map(|(key, blocks)| blocks.iter().map(move |id| (&**key, *id)));
        let record = |(key, id): (&[u8], BlockId)| {
            let (held, keep_until_ms) = counts.of_origin(&id.of_key(key), self.origin)?;
            let counted = held.iter().filter(|count| count.tally.counted > 0);
            Some(StateRecord::Hits {
                writer,
                partition: self.number,
                block: OwnedBlock::from(id.of_key(key)),
                // The counts have what others have written of later records.
                until: self.ahead.get(key, id).unwrap_or(self.next),
                keep_until_ms,
                counts: counted.map(|count| (count.place, count.tally.counted)).collect(),
            })
        };
        all.filter_map(record).chain(self.ids.records(self.number)).collect()
    }

    /// What is to be written once all of [`Partition::records`] are acknowledged, and the members of all records that were read if they are said to be
    /// written.
    pub(super) fn complete(&self, writer: u64, are_members_written: bool) -> Complete {
        let (number, until) = (self.number, self.next);
        Complete { writer, number, until, members_until: self.members_until(are_members_written).min(until) }
    }

    /// All of [`Partition::records`] are acknowledged.
    pub(super) fn written(&mut self) {
        self.unwritten.clear();
        self.ids.written();
    }

    /// Takes what may be removed from the state topic, once [`Partition::complete`] is acknowledged.
    pub(super) fn take_expired(&mut self) -> Vec<StateRecord> {
        // Whoever reads members again asks which of their hits count.
        self.ids.take_expired(self.number, self.complete.min(self.members_complete))
    }

    /// The ids of counted hits.
    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Forgets all ids that would be over by then. Returns how many are not over yet.
    pub(super) fn forget_ids(&mut self, until_ms: i64) -> usize {
        self.ids.forget(until_ms)
    }

    /// Drops ids that are over, of one part in `of`.
    pub(super) fn tidy_ids(&mut self, of: usize) {
        // While this node counts, the topic may lack what it has not written, or be ahead of it.
        let from = if self.is_owned { self.next.min(self.complete) } else { self.base() };
        self.ids.tidy(from.min(self.members_complete), self.ids.len().div_ceil(of));
    }
}

/// The last cells of a key that hits are summed up in. A hit has one of each level.
const GATHERED_CELLS: usize = 16;
