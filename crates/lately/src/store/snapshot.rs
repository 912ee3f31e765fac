//! Snapshots: the store as bytes, a part at a time. Checkpoints and dumps consist of them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::clock_repair::ClockShift;
use super::ids::read_saved;
use super::key::{SHARD_BITS, SHARDS, shard_of};
use super::operation::STAGED;
use super::saved_key::{Content, Item, Mark, SavedKey};
use crate::delta::{DeltaBatch, Generation, Sequence};
use crate::entry::Entry;
use crate::error::{Malformed, Unreadable};
use crate::time::Timestamp;
use crate::uniques::Uniques;

/// The result of [`Store::write_part`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The last change that the part includes.
    pub sequence: Sequence,
    /// The number of keys and hits.
    pub content: Content,
    /// The time of the part when it was written.
    pub now: Timestamp,
}

impl Store {
    /// The number of parts. Each has its own keys, and numbers its changes with [`Sequence`].
    pub const PARTS: u16 = 1 << SHARD_BITS;

    /// The part that has the positions of sources.
    pub const SOURCES_PART: u16 = 0;

    /// Appends the keys of a part with their hits to `out`, as of one moment. Expired keys are left out. Hits on keys of
    /// the part wait meanwhile.
    pub fn write_part(&self, part: u16, now: Timestamp, out: &mut Vec<u8>) -> Part {
        let mut shard = self.lock(usize::from(part), now);
        let content = shard.write(&self.classes, &self.ids, out);
        Part { sequence: shard.sequence(), content, now: shard.now() }
    }

    /// Checks bytes of [`Store::write_part`] without changing a store.
    ///
    /// # Errors
    /// [`Unreadable`] names the first key that [`Store::read_part`] could not read. Its key is empty when the bytes are
    /// no key at all.
    pub fn check_part(mut bytes: &[u8]) -> Result<Content, Unreadable> {
        let mut content = Content::default();
        let unreadable = |key: &[u8], why| Unreadable { key: key.into(), why };
        while !bytes.is_empty() {
            let keyed = match Item::take(&mut bytes).map_err(|why| unreadable(b"", why))? {
                Item::Key(keyed) => keyed,
                Item::Source(mark) => {
                    content.add_source(mark.position);
                    continue;
                }
            };
            let hits = Entry::read_total(keyed.entry).map_err(|why| unreadable(keyed.key, why))?;
            if !keyed.limits.denied.is_empty() {
                Entry::read_total(keyed.limits.denied).map_err(|why| unreadable(keyed.key, why))?;
            }
            let has_members = !keyed.limits.members.is_empty();
            if read_saved(keyed.limits.ids).is_none()
                || has_members && Uniques::read(keyed.limits.members).is_none()
            {
                return Err(unreadable(keyed.key, Malformed::Entry));
            }
            content.add(hits);
        }
        Ok(content)
    }

    /// Loads keys that [`Store::write_part`] wrote at `now`, in place of keys with the same names. Returns the keys that
    /// cannot be read. Beyond the ceiling, keys are evicted. The store's time does not change, because later changes may
    /// have to be replayed: set it with [`Store::set_now`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no key. The keys before it are loaded.
    pub fn read_part(&self, mut bytes: &[u8], now: Timestamp) -> Result<Vec<Unreadable>, Malformed> {
        let (now, shift) = self.repaired(now);
        let mut unreadable = Vec::new();
        let mut staged = Vec::with_capacity(STAGED);
        while !bytes.is_empty() {
            let next = Item::take(&mut bytes);
            match next {
                Ok(Item::Key(keyed)) => staged.push((keyed, self.hash(keyed.key))),
                Ok(Item::Source(Mark { source, position })) => self.put_position_back(source, position),
                Err(_) => {}
            }
            if staged.len() == STAGED || bytes.is_empty() || next.is_err() {
                self.restore(&mut staged, (now, shift), &mut unreadable);
            }
            next?;
        }
        self.keep_loaded_ids_to_ceiling();
        self.forget_busy();
        // Other keys expire as of the time of their own part.
        self.settle(b"", Timestamp::MIN, None);
        Ok(unreadable)
    }

    /// Loads the keys of another store while this store counts hits. They start a generation here. Positions of
    /// sources are skipped: set them when all keys are there. The changes are appended to `deltas`.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no key. The keys before it are loaded, and in `deltas`.
    pub fn bring_part(
        &self,
        mut bytes: &[u8],
        now: Timestamp,
        deltas: &mut DeltaBatch,
    ) -> Result<usize, Malformed> {
        deltas.advance(now);
        let mut keys = 0;
        while !bytes.is_empty() {
            let keyed = match Item::take(&mut bytes)? {
                Item::Key(keyed) => keyed,
                Item::Source(_) => continue,
            };
            let hash = self.hash(keyed.key);
            let (mut shard, _, mut context) = self.lock_for(hash, now, Some(deltas));
            keys += usize::from(shard.bring(&keyed, hash, &mut context)?);
        }
        self.keep_loaded_ids_to_ceiling();
        self.forget_busy();
        self.settle(b"", now, Some(deltas));
        Ok(keys)
    }

    /// Restores keys, with their memory prefetched together.
    fn restore(
        &self,
        staged: &mut Vec<(SavedKey<'_>, u64)>,
        (now, shift): (Timestamp, Option<ClockShift>),
        unreadable: &mut Vec<Unreadable>,
    ) {
        let mut hashes = [0; STAGED];
        for (hash, staged) in hashes.iter_mut().zip(&*staged) {
            *hash = staged.1;
        }
        self.fetch_slots(&hashes[..staged.len()], &mut [None; STAGED]);
        for (mut saved, hash) in staged.drain(..) {
            saved.limits = shift.map_or(saved.limits, |shift| shift.limits(saved.limits));
            self.generation.fetch_max(saved.generation.0, Relaxed);
            let (mut shard, mut context) = (self.lock_as_of(shard_of(hash), now), self.context(None));
            let generation = AtomicU64::new(saved.generation.0);
            context.generation = &generation;
            context.is_clock_repaired = shift.is_some();
            if let Err(why) = shard.restore((&saved, hash), &mut context) {
                unreadable.push(Unreadable { key: saved.key.into(), why });
            }
        }
    }

    /// Allocates room for this many keys in an empty store.
    pub fn reserve(&self, keys: usize) {
        // A lower ceiling than before may not have room for all keys.
        let keys = keys.min(self.memory.most_keys());
        let most = keys / SHARDS + 2 * (keys / SHARDS).isqrt();
        for index in 0..SHARDS {
            self.lock(index, Timestamp::MIN).reserve(most);
        }
    }

    /// The store's time: the latest `now` that it was given.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.advance(Timestamp::MIN)
    }

    /// Advances the store's time to `now`, unless it is later already.
    pub fn set_now(&self, now: Timestamp) {
        self.advance(self.repaired(now).0);
    }

    /// The generation of new keys.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Relaxed))
    }

    /// Continues from another store: new keys get at least this generation, and all changes get higher numbers.
    pub fn start_after(&self, generation: Generation, number: u64) {
        self.generation.fetch_max(generation.0, Relaxed);
        for index in 0..SHARDS {
            self.lock(index, Timestamp::MIN).start_after(number);
        }
    }

    /// Continues the numbers of all parts from the highest number of any, and returns it. Nothing else may change the
    /// store meanwhile.
    pub fn level_numbers(&self) -> u64 {
        let numbers = (0..SHARDS).map(|index| self.lock(index, Timestamp::MIN).sequence().number);
        let number = numbers.max().unwrap_or(0);
        self.start_after(Generation::default(), number);
        number
    }
}
