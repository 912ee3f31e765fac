//! The store as bytes, a part at a time: what a checkpoint and a dump keep.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::STAGED;
use super::clock_repair::ClockShift;
use super::saved_key::{Content, SavedKey};
use super::{SHARDS, Store, shard_of};
use crate::delta::{DeltaBatch, Generation, Sequence};
use crate::entry::Entry;
use crate::error::{Malformed, Unreadable};
use crate::time::Timestamp;

/// What [`Store::write_part`] wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The last change that is in it.
    pub sequence: Sequence,
    /// How many keys, with how many hits.
    pub content: Content,
    /// The time of the part when it was written.
    pub now: Timestamp,
}

impl Store {
    /// How many parts there are. Each has keys of its own, and changes of its own by [`Sequence`].
    pub const PARTS: u16 = 1 << super::SHARD_BITS;

    /// Appends the keys of a part with their hits, as they are at one moment. Those whose hits have left the
    /// retention are left out. Hits on keys of the part wait meanwhile.
    pub fn write_part(&self, part: u16, now: Timestamp, out: &mut Vec<u8>) -> Part {
        let mut shard = self.lock(usize::from(part), now);
        let content = shard.write(&self.classes, out);
        Part { sequence: shard.sequence(), content, now: shard.now() }
    }

    /// What [`Store::write_part`] wrote, read again without a change to any store.
    ///
    /// # Errors
    /// [`Unreadable`] names the first key that [`Store::read_part`] would not read; one without a name when what
    /// follows is no key.
    pub fn check_part(mut bytes: &[u8]) -> Result<Content, Unreadable> {
        let mut content = Content::default();
        let unreadable = |key: &[u8], why| Unreadable { key: key.into(), why };
        while !bytes.is_empty() {
            let saved = SavedKey::take(&mut bytes).map_err(|why| unreadable(b"", why))?;
            let hits = Entry::read_total(saved.entry).map_err(|why| unreadable(saved.key, why))?;
            if !saved.limits.denied.is_empty() {
                Entry::read_total(saved.limits.denied).map_err(|why| unreadable(saved.key, why))?;
            }
            content.add(hits);
        }
        Ok(content)
    }

    /// Puts back keys that [`Store::write_part`] wrote at `now`, in place of those of the same names; gives those
    /// that it cannot. If that is more than the ceiling allows, keys are evicted. The store's time stays as it is, see
    /// [`Store::set_now`]: what happened to the keys later is still to be put back.
    ///
    /// # Errors
    /// [`Malformed`] when what follows is no key; those before it are put back.
    pub fn read_part(&self, mut bytes: &[u8], now: Timestamp) -> Result<Vec<Unreadable>, Malformed> {
        let (now, shift) = self.repaired(now);
        let mut unreadable = Vec::new();
        let mut staged = Vec::with_capacity(STAGED);
        while !bytes.is_empty() {
            let next = SavedKey::take(&mut bytes);
            staged.extend(next.map(|saved| (saved, self.hash(saved.key))));
            if staged.len() == STAGED || bytes.is_empty() || next.is_err() {
                self.restore(&mut staged, (now, shift), &mut unreadable);
            }
            next?;
        }
        // Other keys are looked at as of their own time.
        self.settle(b"", Timestamp::MIN, None);
        Ok(unreadable)
    }

    /// As [`Store::read_part`], of keys of another store that come while this one counts: they begin a
    /// generation here. What happened is added to `deltas`.
    ///
    /// # Errors
    /// [`Malformed`] when they are no keys with hits; those before it are here, and in `deltas`.
    pub fn bring_part(
        &self,
        mut bytes: &[u8],
        now: Timestamp,
        deltas: &mut DeltaBatch,
    ) -> Result<usize, Malformed> {
        deltas.advance(now);
        let mut keys = 0;
        while !bytes.is_empty() {
            let saved = SavedKey::take(&mut bytes)?;
            let hash = self.hash(saved.key);
            let (mut shard, _, mut context) = self.lock_for(hash, now, Some(deltas));
            keys += usize::from(shard.bring(&saved, hash, &mut context)?);
        }
        self.settle(b"", now, Some(deltas));
        Ok(keys)
    }

    /// Puts back keys, whose memory is fetched together.
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

    /// Makes room for so many keys, where there are none yet: so they come without moving others.
    pub fn reserve(&self, keys: usize) {
        // A lower ceiling than before has no room for all of them.
        let keys = keys.min(self.memory.most_keys());
        let most = keys / SHARDS + 2 * (keys / SHARDS).isqrt();
        for index in 0..SHARDS {
            self.lock(index, Timestamp::MIN).reserve(most);
        }
    }

    /// The store's time: the latest it was given.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.advance(Timestamp::MIN)
    }

    /// Brings the store's time up to `now`, if it is not there yet.
    pub fn set_now(&self, now: Timestamp) {
        self.advance(self.repaired(now).0);
    }

    /// The generation of keys that come now.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Relaxed))
    }

    /// Goes on from where another store ended: keys that come have at least this generation, and all
    /// changes have higher numbers.
    pub fn start_after(&self, generation: Generation, number: u64) {
        self.generation.fetch_max(generation.0, Relaxed);
        for index in 0..SHARDS {
            self.lock(index, Timestamp::MIN).start_after(number);
        }
    }

    /// Has the changes of all parts go on behind the highest number of any, and gives that. Nobody is to change
    /// anything meanwhile.
    pub fn level_numbers(&self) -> u64 {
        let numbers = (0..SHARDS).map(|index| self.lock(index, Timestamp::MIN).sequence().number);
        let number = numbers.max().unwrap_or(0);
        self.start_after(Generation::default(), number);
        number
    }
}
