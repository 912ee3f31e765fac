//! The ids of counted hits, so that hits that are sent again count once.
//!
//! A shard has the ids of all its keys in one hash table. It grows and shrinks by a bucket at a time (linear hashing: Litwin,
//! "Linear hashing: a new tool for file and table addressing", 1980), so no hit waits while a large table is built anew. Ids
//! that are over are dropped when their bucket is full, and by the sweep.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};

use thin_vec::ThinVec;

use super::id_owner::Owner;
use super::memory::Memory;
use crate::allocation::allocated;
use crate::delta::CountedId;
use crate::leb128;
use crate::machine::prefetch;
use crate::time::Timestamp;

/// The mean number of ids in a bucket at which one more bucket is made.
const MEAN: usize = 8;
/// Below this mean number, a bucket is given up.
const LEAST_MEAN: usize = 2;
/// By how many ids a full bucket grows, and the most free places that a bucket keeps: allocating costs more than the rest of
/// a hit's id.
const MORE: usize = 4;
/// The length and the capacity of a bucket are before its ids.
const HEAD_BYTES: usize = 2 * size_of::<usize>();

/// The ids of a shard.
#[derive(Default, Debug)]
pub(super) struct Ids {
    buckets: Vec<ThinVec<Id>>,
    len: usize,
    /// The heap memory of all buckets, in bytes.
    bytes: usize,
    /// The next bucket to visit.
    next: usize,
    /// Ids that were dropped too early since [`Ids::take_forgotten`].
    forgotten: u64,
    /// The number of an owner and another owner whose ids are its own, too, sorted. Only a rollback makes some.
    joined: Vec<(u32, Owner)>,
}

/// An id in 24 bytes: the fingerprint; its time and half of its owner; until when it is kept and the other half.
#[derive(Clone, Copy, Debug)]
struct Id([u64; 3]);

/// Times have this many bits: until the year 9999.
const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;
const _: () = assert!(Timestamp::MAX.as_millis() < 1 << TIME_BITS, "every time fits");

impl Id {
    fn new(owner: Owner, id: CountedId) -> Id {
        let (at_ms, until_ms) = (id.at.as_millis().cast_unsigned(), id.until.as_millis().cast_unsigned());
        let (half, number) = (|half: u64| (half & 0xffff) << TIME_BITS, u64::from(owner.number));
        Id([id.fingerprint, at_ms | half(number), until_ms | half(number >> 16)])
    }

    fn at_ms(self) -> i64 {
        (self.0[1] & TIME).cast_signed()
    }

    fn until_ms(self) -> i64 {
        (self.0[2] & TIME).cast_signed()
    }

    /// The number of its owner.
    fn owner(self) -> u32 {
        u32::try_from(self.0[1] >> TIME_BITS | self.0[2] >> TIME_BITS << 16).expect("two halves")
    }
}

/// Which ids are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    now_ms: i64,
    /// Ids that would be kept until then or less were forgotten, because memory ran out.
    floor_ms: i64,
}

impl Known {
    fn has(self, id: Id) -> bool {
        id.until_ms() >= self.now_ms && id.until_ms() > self.floor_ms
    }
}

impl Ids {
    /// Whether an owner has a known id with this fingerprint, and a time that differs by less than the span.
    pub(super) fn has(
        &self,
        (owner, fingerprint): (Owner, u64),
        at: Timestamp,
        span_ms: i64,
        known: Known,
    ) -> bool {
        let Some(bucket) = self.buckets.get(self.bucket_of(fingerprint)) else { return false };
        let near_ms = span_ms.unsigned_abs();
        bucket.iter().any(|&id| {
            id.0[0] == fingerprint
                && id.owner() == owner.number
                && known.has(id)
                && id.at_ms().abs_diff(at.as_millis()) < near_ms
        })
    }

    /// Adds an id, unless it is there.
    pub(super) fn insert(&mut self, owner: Owner, id: CountedId, known: Known) {
        let new = Id::new(owner, id);
        let index = self.bucket_of(id.fingerprint);
        let mut bucket = self.buckets.get_mut(index).into_iter().flatten();
        let is_same = |id: &Id| id.0[..2] == new.0[..2] && id.owner() == new.owner();
        match bucket.find(|id| is_same(id)) {
            Some(same) if same.until_ms() < new.until_ms() => *same = new,
            Some(_) => {}
            None => self.insert_new(owner, id, known),
        }
    }

    /// Adds an id that [`Ids::has`] did not find. An id that is over may stay beside it.
    pub(super) fn insert_new(&mut self, owner: Owner, id: CountedId, known: Known) {
        let id = Id::new(owner, id);
        if self.buckets.is_empty() {
            self.buckets.push(ThinVec::new());
        }
        let index = self.bucket_of(id.0[0]);
        let bucket = &self.buckets[index];
        if bucket.len() == bucket.capacity() {
            self.make_room(index, known);
        }
        self.buckets[index].push(id);
        self.len += 1;
        if self.len > MEAN * self.buckets.len() {
            self.split();
        }
    }

    /// The others whose ids are those of an owner, too.
    pub(super) fn joined_to(&self, owner: Owner) -> impl Iterator<Item = Owner> + '_ {
        joined_to(owner, &self.joined)
    }

    /// Makes the ids of another owner, and of those joined to that, ids of an owner, too.
    pub(super) fn join(&mut self, owner: Owner, other: Owner) {
        let more = std::iter::once(other).chain(self.joined_to(other)).filter(|&more| more != owner);
        let more: Vec<_> = more.map(|more| (owner.number, more)).collect();
        for pair in more {
            if let Err(index) = self.joined.binary_search(&pair) {
                self.joined.insert(index, pair);
            }
        }
    }

    /// Drops the joined owners whose ids are all over.
    fn separate(&mut self, known: Known) {
        if self.joined.is_empty() {
            return;
        }
        let all = self.buckets.iter().flatten();
        let mut owners: Vec<_> = all.filter(|&&id| known.has(id)).map(|id| id.owner()).collect();
        owners.sort_unstable();
        self.joined.retain(|&(_, other)| owners.binary_search(&{ other.number }).is_ok());
        self.joined.shrink_to_fit();
    }

    /// Makes room for an id in a full bucket: drops those that are over, or allocates more.
    fn make_room(&mut self, index: usize, known: Known) {
        let (bucket, mut forgotten) = (&mut self.buckets[index], 0);
        let (bytes, len) = (bucket_bytes(bucket), bucket.len());
        bucket.retain(|id| {
            let is_known = known.has(*id);
            forgotten += u64::from(!is_known && id.until_ms() >= known.now_ms);
            is_known
        });
        if bucket.len() == len {
            bucket.reserve_exact(MORE);
        }
        self.len -= len - bucket.len();
        self.bytes = self.bytes + bucket_bytes(bucket) - bytes;
        self.forgotten += forgotten;
    }

    /// Prefetches the place of the bucket for a fingerprint.
    pub(super) fn prefetch(&self, fingerprint: u64) {
        if let Some(bucket) = self.buckets.get(self.bucket_of(fingerprint)) {
            prefetch(bucket);
        }
    }

    /// Prefetches the bucket for a fingerprint, from its head on.
    pub(super) fn prefetch_bucket(&self, fingerprint: u64) {
        if let Some(bucket) = self.buckets.get(self.bucket_of(fingerprint)) {
            let head = bucket.as_ptr().cast::<u8>().wrapping_sub(HEAD_BYTES);
            (0..MEAN * size_of::<Id>()).step_by(64).for_each(|at| prefetch(head.wrapping_add(at)));
        }
    }

    /// Removes an id, that of the newest owner with its salt.
    pub(super) fn remove(&mut self, id: CountedId) {
        let index = self.bucket_of(id.fingerprint);
        let is_same = |kept: &Id| kept.0[0] == id.fingerprint && kept.at_ms() == id.at.as_millis();
        let bucket = self.buckets.get(index).into_iter().flatten();
        let Some(owner) = bucket.filter(|kept| is_same(kept)).map(|kept| kept.owner()).max() else { return };
        self.retain(index, |kept| !is_same(kept) || kept.owner() != owner);
        self.shrink();
    }

    /// Drops the ids that are over from the next buckets in turn.
    pub(super) fn visit(&mut self, buckets: usize, known: Known) {
        for _ in 0..buckets.min(self.buckets.len()) {
            if self.next >= self.buckets.len() {
                self.next = 0;
                self.separate(known);
            }
            self.prune(self.next, known);
            self.next += 1;
        }
        self.shrink();
    }

    /// Drops the ids that are over. Returns how many there were.
    pub(super) fn prune_all(&mut self, known: Known) -> usize {
        let before = self.len;
        (0..self.buckets.len()).for_each(|index| self.prune(index, known));
        self.separate(known);
        self.shrink();
        before
    }

    /// Drops the ids of all owners but these, and those that were joined to them.
    pub(super) fn keep_owners(&mut self, mut live: Vec<u32>) {
        live.sort_unstable();
        self.joined.retain(|(of, _)| live.binary_search(of).is_ok());
        live.extend(self.joined.iter().map(|(_, other)| other.number));
        live.sort_unstable();
        for index in 0..self.buckets.len() {
            if self.buckets[index].iter().any(|id| live.binary_search(&id.owner()).is_err()) {
                self.retain(index, |id| live.binary_search(&id.owner()).is_ok());
            }
        }
        self.shrink();
    }

    /// The ids of each owner, by its number.
    pub(super) fn by_owner(&self, known: Known) -> ByOwner<'_> {
        let all = self.buckets.iter().flatten().copied().filter(|&id| known.has(id));
        let mut ids: Vec<_> = all.collect();
        ids.sort_unstable_by_key(|id| (id.owner(), id.0));
        ByOwner { ids, joined: &self.joined }
    }

    /// The ends of a sample of ids, about one of every `of`.
    pub(super) fn sample(&self, of: usize, ends_ms: &mut Vec<i64>) {
        let buckets = self.buckets.len().div_ceil(of);
        ends_ms.extend(self.buckets[..buckets].iter().flatten().map(|id| id.until_ms()));
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory of all ids, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let buckets = allocated(self.buckets.capacity() * size_of::<ThinVec<Id>>());
        self.bytes + buckets + allocated(self.joined.capacity() * size_of::<(u64, u64)>())
    }

    /// The number of ids, and their bytes.
    pub(super) fn account(&self) -> (usize, usize) {
        (self.len, self.bytes())
    }

    /// The number of ids that were dropped too early since the last call.
    pub(super) fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    pub(super) fn check_consistency(&self) {
        assert_eq!(self.buckets.iter().map(ThinVec::len).sum::<usize>(), self.len, "ids are counted");
        assert_eq!(self.buckets.iter().map(bucket_bytes).sum::<usize>(), self.bytes, "buckets are accounted");
        for (index, bucket) in self.buckets.iter().enumerate() {
            assert!(
                bucket.iter().all(|id| self.bucket_of(id.0[0]) == index),
                "an id is where it is looked up"
            );
        }
    }

    fn bucket_of(&self, fingerprint: u64) -> usize {
        let count = self.buckets.len();
        let mask = count.next_power_of_two() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
        let index = fingerprint as usize & mask;
        if index < count { index } else { index & mask >> 1 }
    }

    fn prune(&mut self, index: usize, known: Known) {
        let mut forgotten = 0;
        let is_over = |id: &Id| !known.has(*id);
        if !self.buckets[index].iter().any(is_over) {
            return;
        }
        self.retain(index, |id| {
            let is_known = known.has(*id);
            forgotten += u64::from(!is_known && id.until_ms() >= known.now_ms);
            is_known
        });
        self.forgotten += forgotten;
    }

    fn retain(&mut self, index: usize, keep: impl FnMut(&mut Id) -> bool) {
        let Some(bucket) = self.buckets.get_mut(index) else { return };
        let (bytes, len) = (bucket_bytes(bucket), bucket.len());
        bucket.retain_mut(keep);
        release(bucket);
        self.len -= len - bucket.len();
        self.bytes = self.bytes + bucket_bytes(bucket) - bytes;
    }

    /// The bucket that shares its ids with a later one.
    fn source_of(index: usize) -> usize {
        index - (1 << index.ilog2())
    }

    fn split(&mut self) {
        let added = self.buckets.len();
        self.buckets.push(ThinVec::new());
        let source = Ids::source_of(added);
        let mut ids = self.take_bucket(source);
        let is_moved = |id: &Id| self.bucket_of(id.0[0]) == added;
        let count = ids.iter().filter(|id| is_moved(id)).count();
        let mut moved = ThinVec::new();
        if count > 0 {
            moved.reserve_exact(count.next_multiple_of(MORE));
            moved.extend(ids.iter().copied().filter(is_moved));
            ids.retain(|id| !is_moved(id));
        }
        release(&mut ids);
        for (index, bucket) in [(source, ids), (added, moved)] {
            self.bytes += bucket_bytes(&bucket);
            self.buckets[index] = bucket;
        }
    }

    /// Gives up buckets while there are too many.
    fn shrink(&mut self) {
        while self.buckets.len() > 1 && self.len < LEAST_MEAN * self.buckets.len() {
            let last = self.buckets.len() - 1;
            let source = Ids::source_of(last);
            let mut ids = self.take_bucket(source);
            ids.append(&mut self.take_bucket(last));
            self.buckets.pop();
            self.put_bucket(source, &ids);
        }
        if self.len == 0 {
            (self.buckets, self.joined) = (Vec::new(), Vec::new());
        } else if self.buckets.capacity() > 4 * self.buckets.len() {
            self.buckets.shrink_to(2 * self.buckets.len());
        }
    }

    fn take_bucket(&mut self, index: usize) -> ThinVec<Id> {
        let bucket = std::mem::take(&mut self.buckets[index]);
        self.bytes -= bucket_bytes(&bucket);
        bucket
    }

    fn put_bucket(&mut self, index: usize, ids: &[Id]) {
        let mut bucket = ThinVec::new();
        bucket.reserve_exact(ids.len());
        bucket.extend_from_slice(ids);
        self.bytes += bucket_bytes(&bucket);
        self.buckets[index] = bucket;
    }
}

/// Frees memory that a bucket does not need.
fn release(bucket: &mut ThinVec<Id>) {
    if bucket.is_empty() {
        *bucket = ThinVec::new();
    } else if bucket.capacity() - bucket.len() > MORE {
        bucket.shrink_to_fit();
    }
}

/// The others that were joined to an owner, of sorted pairs.
fn joined_to(owner: Owner, joined: &[(u32, Owner)]) -> impl Iterator<Item = Owner> + '_ {
    let number = owner.number;
    let first = joined.partition_point(|&(of, _)| of < number);
    joined[first..].iter().take_while(move |&&(of, _)| of == number).map(|&(_, other)| other)
}

fn bucket_bytes(bucket: &ThinVec<Id>) -> usize {
    match bucket.capacity() {
        0 => 0,
        capacity => allocated(HEAD_BYTES + capacity * size_of::<Id>()),
    }
}

/// The ids of a shard by their key.
pub(super) struct ByOwner<'a> {
    ids: Vec<Id>,
    joined: &'a [(u32, Owner)],
}

/// In place of the time of an id: what stands before it is a salt, and the ids after it are of that.
const NEXT_SALT: u64 = u64::MAX;

impl ByOwner<'_> {
    fn of(&self, owner: Owner) -> impl Iterator<Item = Id> + '_ {
        let number = owner.number;
        let first = self.ids.partition_point(|id| id.owner() < number);
        self.ids[first..].iter().copied().take_while(move |id| id.owner() == number)
    }

    /// Appends the ids of an owner to `out`: the salt, and for each id its fingerprint, its time and how long
    /// after that it is kept. Ids of those that were joined to it follow. Nothing if there are none.
    pub(super) fn write(&self, owner: Owner, out: &mut Vec<u8>) {
        if owner == Owner::NONE {
            return;
        }
        for owner in std::iter::once(owner).chain(joined_to(owner, self.joined)) {
            let mut ids = self.of(owner).peekable();
            if ids.peek().is_none() {
                continue;
            }
            let is_first = out.is_empty();
            out.extend_from_slice(&{ owner.salt }.to_le_bytes());
            if !is_first {
                leb128::push(out, NEXT_SALT);
            }
            for id in ids {
                out.extend_from_slice(&id.0[0].to_le_bytes());
                leb128::push(out, id.at_ms().cast_unsigned());
                leb128::push(out, (id.until_ms() - id.at_ms()).max(0).cast_unsigned());
            }
        }
    }
}

/// Reads ids that [`ByOwner::write`] wrote. `None` if the bytes are none.
pub(super) fn read_saved(mut bytes: &[u8]) -> Option<Vec<CountedId>> {
    let mut ids = Vec::new();
    if bytes.is_empty() {
        return Some(ids);
    }
    let word = |bytes: &mut &[u8]| Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
    let bytes = &mut bytes;
    let mut salt = word(bytes).filter(|&salt| salt != 0)?;
    while !bytes.is_empty() {
        let (fingerprint, at_ms) = (word(bytes)?, leb128::take(bytes)?);
        if at_ms == NEXT_SALT {
            salt = Some(fingerprint).filter(|&salt| salt != 0)?;
            continue;
        }
        let at_ms = i64::try_from(at_ms).ok()?;
        let kept_ms = i64::try_from(leb128::take(bytes)?).ok()?;
        let at = Timestamp::from_millis(at_ms)?;
        let until = Timestamp::from_millis(at_ms.checked_add(kept_ms)?)?;
        ids.push(CountedId { salt, fingerprint, at, until });
    }
    Some(ids)
}

/// The memory of all ids of a store. Past a part of the ceiling, the ids that would be over next are forgotten.
#[derive(Debug)]
pub(super) struct IdMemory {
    count: AtomicU64,
    used_bytes: AtomicU64,
    /// See [`Known::floor_ms`].
    floor_ms: AtomicI64,
    /// Ids that were forgotten before their span was over.
    forgotten: AtomicU64,
    /// The shards that are still to be visited, counted from the last one: first each for ids that nothing has any more, and then,
    /// if that was not enough, each again for those below the floor.
    to_visit: AtomicUsize,
}

impl IdMemory {
    pub(super) fn new() -> IdMemory {
        IdMemory {
            count: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            floor_ms: AtomicI64::new(i64::MIN),
            forgotten: AtomicU64::new(0),
            to_visit: AtomicUsize::new(0),
        }
    }

    /// Which ids are known at a time.
    pub(super) fn known(&self, now: Timestamp) -> Known {
        Known { now_ms: now.as_millis(), floor_ms: self.floor_ms.load(Relaxed) }
    }

    /// Records a change of the number of ids and of their bytes, and that some were forgotten too early.
    pub(super) fn change(&self, before: (usize, usize), after: (usize, usize), forgotten: u64) {
        let add = |to: &AtomicU64, before: usize, after: usize| {
            if before != after {
                // Wrapping is correct: only the sum matters, and it is never negative.
                to.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
            }
        };
        add(&self.count, before.0, after.0);
        add(&self.used_bytes, before.1, after.1);
        if forgotten > 0 {
            self.forgotten.fetch_add(forgotten, Relaxed);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    /// Whether ids take more than their part of the memory that is there for keys and ids.
    pub(super) fn is_full(&self, memory: &Memory) -> bool {
        self.used_bytes() > memory.most_id_bytes()
    }

    pub(super) fn to_visit(&self) -> &AtomicUsize {
        &self.to_visit
    }

    /// Forgets all ids that would be kept until then or less.
    pub(super) fn raise_floor(&self, floor_ms: i64) {
        self.floor_ms.fetch_max(floor_ms, Relaxed);
    }
}
