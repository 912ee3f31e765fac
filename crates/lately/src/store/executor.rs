//! The executor: applies operations one after the other, at one time.
//!
//! It holds one shard's lock at a time, and keeps it while the next operation is in the same shard: the hits
//! of a hot key in a batch lock its shard once. Each operation is located, prefetched, and tried on the fast
//! path. If the fast path does not apply, the general path (`apply_at`) does.

use std::borrow::Cow;
use std::mem;

use super::Store;
use super::cell::LockedShard;
use super::context::{Context, FastPath, Hit};
use super::key::shard_of;
use super::memory::Full;
use super::operation::{HitOnce, MemberHit, Op, Outcome, Question, Request, STAGED};
use super::shard::Shard;
use crate::count::Count;
use crate::delta::DeltaBatch;
use crate::entry::{Entry, Fetched};
use crate::error::HitError;
use crate::frame::Frame;
use crate::gcra::Throttle;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::uniques::Member;
use crate::window::Window;

/// Applies operations on one thread.
pub(super) struct Executor<'a> {
    store: &'a Store,
    now: Timestamp,
    context: Context<'a>,
    locked: Option<LockedShard<'a>>,
    /// Whether the store was far above its ceiling, at the start or since. If so, all operations take the general path,
    /// which checks whether a key may grow.
    is_far_over: bool,
    /// Whether other nodes have counted hits. If so, limits take the general path, and their hits are added
    /// to answers.
    has_others: bool,
    /// Whether hits with ids were counted. If so, ids may take too much memory.
    has_new_ids: bool,
}

impl<'a> Executor<'a> {
    pub(super) fn new(store: &'a Store, now: Timestamp, deltas: Option<&'a mut DeltaBatch>) -> Executor<'a> {
        let is_far_over = store.memory.is_far_over();
        let now = store.advance(now);
        store.begin_busy_epochs(now);
        let context = store.context(deltas);
        let has_others = store.others.get().is_some();
        Executor { store, now, context, locked: None, is_far_over, has_others, has_new_ids: false }
    }

    /// An executor that never takes the fast path.
    #[cfg(test)]
    pub(super) fn general(store: &'a Store, now: Timestamp, deltas: &'a mut DeltaBatch) -> Executor<'a> {
        deltas.advance(now);
        Executor { is_far_over: true, ..Executor::new(store, now, Some(deltas)) }
    }

    /// Applies two to [`STAGED`] operations on keys that most likely are at `places`. Operations on keys with
    /// heap memory are deferred: the first pass prefetches that memory, and they are applied after it.
    /// Operations on the same key keep their order.
    pub(super) fn apply(
        &mut self,
        ops: &[Op<'_>],
        hashes: &[u64],
        places: &mut [Option<u32>],
        out: &mut Vec<Outcome>,
    ) {
        let start = out.len();
        self.apply_own(ops, hashes, places, out);
        if self.has_others {
            for ((op, &hash), outcome) in ops.iter().zip(hashes).zip(&mut out[start..]) {
                self.add_others(op, hash, outcome);
            }
        }
    }

    /// Applies the operations to the counts of this node only.
    #[inline(always)]
    fn apply_own(
        &mut self,
        ops: &[Op<'_>],
        hashes: &[u64],
        places: &mut [Option<u32>],
        out: &mut Vec<Outcome>,
    ) {
        let start = out.len();
        let mut deferred = Deferred::default();
        for (index, ((op, &hash), place)) in ops.iter().zip(hashes).zip(&mut *places).enumerate() {
            if deferred.has(hash, hashes) {
                deferred.push(index, hash, Fetched::All);
                out.push(Outcome::Hit(Ok(0)));
                continue;
            }
            self.enter(hash);
            let fetched = match self.fast(op, hash, *place, false, |outcome| out.push(outcome)) {
                FastPath::Done(()) => continue,
                FastPath::At(_, fetched) => fetched,
                FastPath::Elsewhere => self.find(op, hash, place),
            };
            let is_once = self.prefetch_owner(op, *place);
            let has_member = self.prefetch_members(op, *place);
            if fetched == Fetched::Nothing && !is_once && !has_member {
                out.push(self.apply_at(op, hash, *place));
                continue;
            }
            deferred.push(index, hash, fetched);
            deferred.once |= Numbers::from(is_once) << index;
            deferred.of_members |= Numbers::from(has_member) << index;
            out.push(Outcome::Hit(Ok(0)));
        }
        if deferred.all > 0 {
            self.apply_deferred(&deferred, ops, (hashes, places), &mut out[start..]);
        }
    }

    /// Finds the key of an operation, records its place, and prefetches its heap memory.
    #[inline(never)]
    fn find(&mut self, op: &Op<'_>, hash: u64, place: &mut Option<u32>) -> Fetched {
        let locked = self.shard(hash);
        *place = locked.place_near(*place, op.key(), hash);
        place.map_or(Fetched::Nothing, |place| locked.prefetch_heap(place))
    }

    /// Applies the deferred operations.
    #[inline(never)]
    fn apply_deferred(
        &mut self,
        deferred: &Deferred,
        ops: &[Op<'_>],
        (hashes, places): (&[u64], &[Option<u32>]),
        answers: &mut [Outcome],
    ) {
        self.prefetch_behind(deferred.behind, |index| (hashes[index], places[index]));
        if deferred.once != 0 {
            self.prefetch_ids(deferred.once, ops, (hashes, places));
        }
        for level in 1..=2 {
            for index in indexes(deferred.of_members) {
                if let Some(place) = places[index] {
                    self.shard(hashes[index]).prefetch_members(place, level);
                }
            }
        }
        for index in indexes(deferred.all) {
            let (op, hash, answer) = (&ops[index], hashes[index], &mut answers[index]);
            self.enter(hash);
            let fast = self.fast(op, hash, places[index], true, |outcome| *answer = outcome);
            if !matches!(fast, FastPath::Done(())) {
                *answer = self.apply_after(&fast, op, hash, places[index]);
            }
        }
    }

    /// Prefetches the owner of the ids of a key whose operation has an id. Returns whether it has.
    fn prefetch_owner(&mut self, op: &Op<'_>, place: Option<u32>) -> bool {
        let (Op::HitOnce { .. } | Op::HitOnceAt(_), Some(place)) = (op, place) else { return false };
        self.parts().0.prefetch_owner(place);
        true
    }

    /// Prefetches where the members of a key are whose operation has one. Returns whether it has.
    fn prefetch_members(&mut self, op: &Op<'_>, place: Option<u32>) -> bool {
        let (Op::HitMember(_), Some(place)) = (op, place) else { return false };
        self.parts().0.prefetch_members(place, 0);
        true
    }

    /// Prefetches what the ids of these operations are compared with, in two passes so that cache misses overlap.
    fn prefetch_ids(&mut self, numbers: Numbers, ops: &[Op<'_>], (hashes, places): (&[u64], &[Option<u32>])) {
        let mut fingerprints = [None; STAGED];
        for index in indexes(numbers) {
            if let (Some(hit), Some(place)) = (ops[index].as_once(), places[index]) {
                fingerprints[index] = self.shard(hashes[index]).prefetch_id(place, hit.id);
            }
        }
        for index in indexes(numbers) {
            if let Some(fingerprint) = fingerprints[index] {
                self.shard(hashes[index]).ids().prefetch_bucket(fingerprint);
            }
        }
    }

    /// Prefetches the deeper heap memory of the keys with these numbers, one level at a time. `at` returns
    /// the hash and the place of a key.
    #[inline]
    pub(super) fn prefetch_behind(&mut self, mut numbers: Numbers, at: impl Fn(usize) -> (u64, Option<u32>)) {
        for level in 1..=FURTHEST {
            for number in indexes(numbers) {
                let (hash, place) = at(number);
                let fetched = place.map(|place| self.shard(hash).prefetch_behind(level, place));
                if fetched != Some(Fetched::First) {
                    numbers &= !(1 << number);
                }
            }
        }
    }

    /// Applies one operation.
    pub(super) fn apply_one(&mut self, op: &Op<'_>, hash: u64) -> Outcome {
        let guess = self.shard(hash).guess(hash);
        let mut answer = None;
        let fast = self.fast(op, hash, guess, true, |outcome| answer = Some(outcome));
        let mut answer = answer.unwrap_or_else(|| self.apply_after(&fast, op, hash, guess));
        if self.has_others {
            self.add_others(op, hash, &mut answer);
        }
        answer
    }

    /// Applies an operation that the fast path has not applied. The key most likely is at `guess`.
    #[inline(never)]
    fn apply_after(&mut self, fast: &FastPath<()>, op: &Op<'_>, hash: u64, guess: Option<u32>) -> Outcome {
        // Operations before this one may have taken much memory.
        self.is_far_over |= self.store.memory.is_far_over();
        let place = match *fast {
            FastPath::At(place, _) => Some(place),
            _ => self.shard(hash).place_near(guess, op.key(), hash),
        };
        self.apply_at(op, hash, place)
    }

    /// The fast path: a hit, limit or throttle of now, on a key at `place` whose hits are in the slot, or in
    /// a list if `may_wait`. Otherwise it changes nothing and does not call `give`. The shard of the hash
    /// must be locked.
    #[inline(always)]
    fn fast(
        &mut self,
        op: &Op<'_>,
        hash: u64,
        place: Option<u32>,
        may_wait: bool,
        give: impl FnOnce(Outcome),
    ) -> FastPath<()> {
        let (Some(place), Some(locked)) = (place, &mut self.locked) else { return FastPath::Elsewhere };
        if self.is_far_over || self.has_others && !matches!(op, Op::Hit { .. }) {
            return FastPath::Elsewhere;
        }
        let context = &mut self.context;
        match *op {
            Op::Hit { key, weight, at: None } => {
                let fast =
                    locked.fast_hit(place, (key, weight), may_wait, |class, now| context.frame(class, now).0);
                fast.give(|hits| {
                    if context.deltas.is_some() || context.is_tracked {
                        locked.record_hit(
                            place,
                            &Hit { key, hash, weight, at: None, limit_window: None },
                            context,
                        );
                    }
                    context.note_hits(key, hash, hits);
                    give(Outcome::Hit(Ok(hits)));
                })
            }
            Op::Limit { .. } | Op::Throttle { .. }
                if !may_wait
                    && let fetched = locked.prefetch_heap(place)
                    && fetched != Fetched::Nothing =>
            {
                FastPath::At(place, fetched)
            }
            Op::Limit { key, max, window, cost } => {
                let hit = Hit { key, hash, weight: cost, at: None, limit_window: Some(window) };
                let fast = locked.fast_limit(place, &hit, (max, window), context);
                fast.give(|decision| give(Outcome::Limit(Ok(decision))))
            }
            Op::Throttle { key, rate } => {
                let hit = Hit { key, hash, weight: 1, at: None, limit_window: None };
                let fast = locked.fast_throttle(place, &hit, rate, context);
                fast.give(|decision| give(Outcome::Limit(Ok(decision))))
            }
            _ => FastPath::Elsewhere,
        }
    }

    /// The general path. The key is at `place`, or does not exist. Its shard must be locked.
    #[inline(never)]
    fn apply_at(&mut self, op: &Op<'_>, hash: u64, place: Option<u32>) -> Outcome {
        match *op {
            Op::Hit { key, weight, at } => {
                Outcome::Hit(self.hit(&Hit { key, hash, weight, at, limit_window: None }, None, place))
            }
            Op::HitOnce { key, weight, id } => {
                self.hit_once(&HitOnce { key, weight, at: None, id }, hash, place)
            }
            Op::HitOnceAt(ref hit) => self.hit_once(hit, hash, place),
            Op::HitMember(ref hit) => match self.hit_member(hit, hash, place) {
                Ok(hits) if self.context.is_repeated => Outcome::Repeated(hits),
                counted => Outcome::Hit(counted),
            },
            Op::Hits { key, window, at } => {
                Outcome::Hits(self.count((key, place), window, at, |locked, place, _| {
                    locked.entry_at(Some(place)).map(Cow::Borrowed)
                }))
            }
            Op::Unique { key, window } => {
                let others =
                    if self.has_others { self.store.members_of_others(key, hash, self.now) } else { None };
                let (locked, context) = self.parts();
                Outcome::Unique(locked.unique(key, place, (window, others.as_deref()), context))
            }
            Op::Denied(ref question) => {
                let Question { key, window, at } = **question;
                Outcome::Hits(self.count((key, place), window, at, Shard::denied_at))
            }
            Op::Limit { key, max, window, cost } => {
                Outcome::Limit(self.limit(&Request::new(key, max, window, cost), hash, place))
            }
            Op::Decide(ref request) => Outcome::Limit(self.limit(request, hash, place)),
            Op::Refund(ref request) => Outcome::Limit(self.refund(request, hash, place)),
            Op::Throttle { key, rate } => {
                Outcome::Limit(self.throttle(&Throttle { key, rate, quantity: 1 }, hash, place))
            }
            Op::ThrottleBy(ref request) => Outcome::Limit(self.throttle(request, hash, place)),
            Op::LimitAll(_) => {
                let mut outcomes = Vec::new();
                self.apply_joint(std::slice::from_ref(op), &mut outcomes);
                outcomes.pop().expect("an outcome for each")
            }
        }
    }

    /// Counts hits with an id. The key is at `place`, or does not exist.
    fn hit_once(&mut self, once: &HitOnce<'_>, hash: u64, place: Option<u32>) -> Outcome {
        let &HitOnce { key, weight, at, id } = once;
        let hit = Hit { key, hash, weight, at, limit_window: None };
        self.context.is_repeated = false;
        let counted = self.hit(&hit, Some(id), place);
        self.has_new_ids |= counted.is_ok();
        match counted {
            Ok(hits) if self.context.is_repeated => Outcome::Repeated(hits),
            counted => Outcome::Hit(counted),
        }
    }

    pub(super) fn store(&self) -> &'a Store {
        self.store
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn context_mut(&mut self) -> &mut Context<'a> {
        &mut self.context
    }

    /// Why the store is full, if it is.
    pub(super) fn is_full(&self) -> Option<Full> {
        let memory = &self.store.memory;
        memory.is_full().then(|| memory.full())
    }

    /// The locked shard and the context of changes.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut LockedShard<'a>, &mut Context<'a>) {
        (self.locked.as_mut().expect("the shard of the key is locked"), &mut self.context)
    }

    /// Evicts other keys if the store is full. Returns whether there is room, and the new place of the key:
    /// eviction unlocks the shard, so another thread may create or move the key meanwhile.
    pub(super) fn room_for(&mut self, (key, hash): (&[u8], u64), place: Option<u32>) -> (bool, Option<u32>) {
        if !self.store.memory.is_full() {
            return (true, place);
        }
        let has_room = self.make_room(key);
        let place = self.shard(hash).place_near(place, key, hash);
        let (locked, context) = self.parts();
        (has_room, place.and_then(|place| locked.alive(place, context)))
    }

    /// Adds the hits of other nodes to an outcome, unless it is of a limit, which includes them already.
    #[inline(never)]
    pub(super) fn add_others(&self, op: &Op<'_>, hash: u64, outcome: &mut Outcome) {
        let of_others = |window, at| self.store.count_of_others((op.key(), hash), window, at, self.now);
        match (op, outcome) {
            (&Op::Hit { at, .. }, Outcome::Hit(Ok(hits))) => {
                *hits = hits.saturating_add(of_others(None, at).map_or(0, |count| count.estimate));
            }
            (Op::HitOnce { .. } | Op::HitOnceAt(_), Outcome::Hit(Ok(hits)) | Outcome::Repeated(hits)) => {
                let at = op.as_once().and_then(|hit| hit.at);
                *hits = hits.saturating_add(of_others(None, at).map_or(0, |count| count.estimate));
            }
            (Op::HitMember(hit), Outcome::Hit(Ok(hits)) | Outcome::Repeated(hits)) => {
                *hits = hits.saturating_add(of_others(None, hit.at).map_or(0, |count| count.estimate));
            }
            (&Op::Hits { window, at, .. }, Outcome::Hits(count)) => {
                *count = of_others(window, at).map_or(*count, |others| count.plus(others));
            }
            _ => {}
        }
    }

    /// Ends the batch: unlocks, and evicts other keys than `keep` if existing keys grew past the ceiling.
    #[inline]
    pub(super) fn end(mut self, keep: &[u8]) {
        self.unlock();
        if !self.context.noted.is_empty() {
            self.store.add_busy(mem::take(&mut self.context.noted), self.now);
        }
        if self.has_new_ids {
            self.store.keep_ids_to_ceiling(self.now);
        }
        self.store.settle(keep, self.now, self.context.deltas);
    }

    /// Locks the shard of a hash and returns it.
    pub(super) fn shard(&mut self, hash: u64) -> &mut LockedShard<'a> {
        self.enter(hash);
        self.parts().0
    }

    /// Locks the shard of a hash, if it is not locked yet.
    #[inline(always)]
    fn enter(&mut self, hash: u64) {
        let index = shard_of(hash);
        if self.locked.as_ref().is_none_or(|locked| locked.index() != index) {
            // Unlock the old shard first: a thread never holds two locks.
            self.unlock();
            let nothing = self.locked.replace(self.store.lock_at(index, self.now));
            // Dropping this `None` would cost a call, twice or more for each operation.
            mem::forget(nothing);
        }
    }

    /// Unlocks the shard. Other threads may see it now, so later hits get change records of their own.
    #[inline]
    pub(super) fn unlock(&mut self) {
        self.locked = None;
        if let Some(deltas) = &mut self.context.deltas {
            deltas.close();
        }
    }

    /// Counts hits without a limit, with an id or without. The key is at `place`, or does not exist.
    #[inline]
    fn hit(&mut self, hit: &Hit<'_>, id: Option<&[u8]>, mut place: Option<u32>) -> Result<u64, HitError> {
        if self.is_far_over && hit.weight > 0 && place.is_some() {
            self.may_grow(hit.key, hit.hash)?;
            place = self.shard(hit.hash).place_near(place, hit.key, hit.hash);
        }
        let has_room = !self.store.memory.is_full();
        match self.count_new(has_room, hit, id, place) {
            Err(HitError::OutOfMemory { .. }) => self.hit_evicting(hit, id),
            counted => counted,
        }
    }

    /// Counts hits with a member.
    #[inline(never)]
    fn hit_member(&mut self, hit: &MemberHit<'_>, hash: u64, place: Option<u32>) -> Result<u64, HitError> {
        let &MemberHit { key, weight, at, id, member } = hit;
        MemberHit::check_member(member)?;
        let hit = Hit { key, hash, weight, at, limit_window: None };
        let (locked, context) = self.parts();
        locked.check_unique(key, place, context)?;
        context.is_repeated = false;
        let mut fast = None;
        if let (None, None) = (id, at) {
            _ = self.fast(&Op::Hit { key, weight, at }, hash, place, true, |outcome| fast = Some(outcome));
        }
        let hits = match fast {
            Some(outcome) => outcome.into_hit()?,
            None => self.hit(&hit, id, place)?,
        };
        self.has_new_ids |= id.is_some();
        if weight > 0 && !self.context.is_repeated {
            let (locked, context) = self.parts();
            locked.add_member(&hit, Member::new(member), place, context);
        }
        Ok(hits)
    }

    /// Counts hits of a new key in a full store. It evicts only now, when the hits are known to be valid.
    #[cold]
    fn hit_evicting(&mut self, hit: &Hit<'_>, id: Option<&[u8]>) -> Result<u64, HitError> {
        let has_room = self.make_room(hit.key);
        let place = self.shard(hit.hash).place_near(None, hit.key, hit.hash);
        self.count_new(has_room, hit, id, place)
    }

    /// Counts hits, unless they have an id that is known.
    #[inline]
    fn count_new(
        &mut self,
        has_room: bool,
        hit: &Hit<'_>,
        id: Option<&[u8]>,
        place: Option<u32>,
    ) -> Result<u64, HitError> {
        let Some(id) = id else { return self.count_hit(has_room, hit, place) };
        self.context.full = (!has_room).then(|| self.store.memory.full());
        let (locked, context) = self.parts();
        locked.hit_once(hit, id, place, context)
    }

    /// Counts hits of a key at `place`. If the key does not exist, it is created only if there is room.
    pub(super) fn count_hit(
        &mut self,
        has_room: bool,
        hit: &Hit<'_>,
        place: Option<u32>,
    ) -> Result<u64, HitError> {
        self.context.full = (!has_room).then(|| self.store.memory.full());
        let (locked, context) = self.parts();
        locked.hit(hit, place, context)
    }

    /// Counts denied hits of a key that is at `place` or does not exist. Returns its place afterwards. In a
    /// full store no key is created.
    pub(super) fn deny(&mut self, hit: &Hit<'_>, mut place: Option<u32>) -> Option<u32> {
        self.context.full = self.is_full();
        if self.context.full.is_some() && place.is_some() {
            // The key may grow, so evict others if possible.
            let has_room;
            (has_room, place) = self.room_for((hit.key, hit.hash), place);
            self.context.full = self.context.full.filter(|_| !has_room);
        }
        let (locked, context) = self.parts();
        locked.deny(hit, place, context)
    }

    /// Whether the store was far above its ceiling, at the start or since.
    pub(super) fn is_far_over(&self) -> bool {
        self.is_far_over
    }

    /// Whether an existing key may grow. The ceiling alone does not stop it; a store that stays far above the
    /// ceiling after eviction does.
    pub(super) fn may_grow(&mut self, key: &[u8], hash: u64) -> Result<(), HitError> {
        if !self.store.memory.is_far_over()
            || self.room_for((key, hash), None).0
            || !self.store.memory.is_far_over()
        {
            return Ok(());
        }
        Err(self.store.memory.full().into())
    }

    /// Evicts until there is room. This unlocks the shard.
    pub(super) fn make_room(&mut self, keep: &[u8]) -> bool {
        self.unlock();
        self.store.make_room(keep, self.now, self.context.deltas.as_deref_mut())
    }

    /// Counts the hits in a window. `of` returns the entry to read, for a key that exists.
    fn count(
        &mut self,
        (key, place): (&[u8], Option<u32>),
        window: Option<Span>,
        at: Option<Timestamp>,
        of: impl for<'s> FnOnce(&'s Shard, u32, &Settings) -> Option<Cow<'s, Entry>>,
    ) -> Count {
        let (locked, context) = self.parts();
        let now = locked.now();
        let place = place.filter(|&place| locked.live_at(place, context).is_some());
        let (&Frame { kept_ms, .. }, settings) = context.frame(locked.class_of(key, place, context), now);
        let (at, window) = (at.unwrap_or(now), window.unwrap_or(settings.window()));
        match place.and_then(|place| of(locked, place, settings)) {
            Some(entry) if !entry.expired(kept_ms) => entry.count(at, window, settings, now),
            _ => Window::ending_at(at, window, settings, now).count(|_, _| 0),
        }
    }
}

/// A set of operations or keys, a bit for each.
pub(super) type Numbers = u32;

/// The deferred operations of a batch. Their keys have heap memory, which is being prefetched.
#[derive(Default)]
struct Deferred {
    all: Numbers,
    /// The operations whose keys have deeper heap memory.
    behind: Numbers,
    /// The operations with an id.
    once: Numbers,
    /// The operations with a member.
    of_members: Numbers,
    /// A filter: one bit for each sixty-fourth of the hashes with a deferred operation.
    families: u64,
}

const _: () = assert!(STAGED <= Numbers::BITS as usize);

/// The depth of pointers in the heap memory of a key with many hits, a limit and denials, after the first
/// pointer.
const FURTHEST: usize = 3;

impl Deferred {
    /// Whether an operation on the same key is deferred. A later one must then be deferred, too.
    #[inline]
    fn has(&self, hash: u64, hashes: &[u64]) -> bool {
        self.families & family(hash) != 0 && indexes(self.all).any(|index| hashes[index] == hash)
    }

    fn push(&mut self, index: usize, hash: u64, fetched: Fetched) {
        self.families |= family(hash);
        self.all |= 1 << index;
        self.behind |= Numbers::from(fetched == Fetched::First) << index;
    }
}

fn family(hash: u64) -> u64 {
    1 << (hash >> 42 & 63)
}

/// The indices of the set bits, lowest first.
fn indexes(mut bits: Numbers) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operations_on_the_same_key_are_deferred_with_it() {
        let hashes = [1 << 42, 2 << 42, 1 << 42 | 1, 1 << 42];
        let mut deferred = Deferred::default();
        deferred.push(0, hashes[0], Fetched::First);
        assert_eq!(hashes.map(|hash| deferred.has(hash, &hashes)), [true, false, false, true]);
        deferred.push(2, hashes[2], Fetched::All);
        assert_eq!(hashes.map(|hash| deferred.has(hash, &hashes)), [true, false, true, true]);
        assert_eq!((deferred.all, deferred.behind), (0b101, 0b001));
    }
}
