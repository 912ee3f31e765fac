//! Requests that must stay within several limits, of one key or more: all hits are counted, or none. The
//! shards of all keys stay locked, in the order of their indices, until the request is decided and applied.

use std::sync::Arc;

use super::cell::LockedShard;
use super::context::{Context, Hit};
use super::executor::{Executor, Numbers};
use super::key::{check_key, shard_of};
use super::memory::Full;
use super::operation::{JointRequest, Limit, Op, Outcome, STAGED};
use super::window_limit::{Asked, Change, Effect, decide};
use crate::entry::{Entry, Fetched};
use crate::error::{HitError, LimitError};
use crate::limit::{Decision, JointDecision, remaining_of};
use crate::limits::{MAX_LIMITS, MAX_TOTAL};
use crate::settings::Settings;

/// Shards that are locked together. Dropping it unlocks them.
struct Locks<'s, 'a> {
    shards: &'s mut Vec<LockedShard<'a>>,
}

impl Drop for Locks<'_, '_> {
    fn drop(&mut self) {
        self.shards.clear();
    }
}

impl<'a> Locks<'_, 'a> {
    /// The locked shard of a key.
    #[inline]
    fn of(&mut self, placed: &Placed<'_>) -> &mut LockedShard<'a> {
        &mut self.shards[placed.lock]
    }

    /// Finds the shard of each key.
    fn find_shards(&self, placed: &mut [Placed<'_>]) {
        for Placed { hash, lock, .. } in placed {
            let at = self.shards.binary_search_by_key(&shard_of(*hash), |shard| shard.index());
            *lock = at.expect("the shards of all keys are locked");
        }
    }

    /// Finds the place of each key. An expired key has none.
    fn find(&mut self, placed: &mut [Placed<'_>], context: &mut Context<'_>) {
        for placed in placed {
            let locked = self.of(placed);
            let found = locked.place_near(placed.place, placed.limit.key, placed.hash);
            placed.place = found.and_then(|place| locked.alive(place, context));
        }
    }

    /// The fast path: decides a request of now, and counts its hits, if each limit allows it on its own fast
    /// path, and the keys differ. Otherwise changes nothing.
    fn allow_all(
        &mut self,
        placed: &[Placed<'_>],
        cost: u64,
        context: &mut Context<'_>,
    ) -> Option<Vec<Decision>> {
        let mut decisions = Vec::with_capacity(placed.len());
        for (index, its @ &Placed { limit, place, .. }) in placed.iter().enumerate() {
            let &Limit { key, max, window } = limit;
            if placed[..index].iter().any(|before| before.is_of_key_of(its)) {
                return None;
            }
            decisions.push(self.of(its).fast_decision_of_several(
                place?,
                key,
                (max, cost, window),
                context,
            )?);
        }
        for its @ &Placed { limit: &Limit { key, window, .. }, hash, place, .. } in placed {
            let hit = Hit { key, hash, weight: cost, at: None, limit_window: Some(window) };
            self.of(its).hit(&hit, place, context).expect(HAS_ROOM);
        }
        Some(decisions)
    }

    /// Makes sure that `cost` hits of each key can be counted.
    fn make_room(
        &mut self,
        placed: &[Placed<'_>],
        cost: u64,
        context: &Context<'_>,
    ) -> Result<(), LimitError> {
        for (index, placed) in placed.iter().enumerate() {
            let room = match (placed.place, context.full) {
                (Some(place), _) => self.of(placed).make_room_for(place, cost, context.classes),
                (None, Some(full)) => return Err(HitError::from(full).into()),
                (None, None) if cost > MAX_TOTAL => Err(HitError::Overflow { total: 0, weight: cost }),
                (None, None) => Ok(()),
            };
            room.map_err(|error| of_limit(index, error.into()))?;
        }
        Ok(())
    }
}

const HAS_ROOM: &str = "it was found out before that the hits can be counted";

fn of_limit(index: usize, error: LimitError) -> LimitError {
    LimitError::Each { index, error: Box::new(error) }
}

/// Locks each index once, in ascending order. Threads that lock in this order, or one shard at a time, cannot
/// deadlock.
pub(crate) fn lock_in_order<G>(indices: &mut Vec<usize>, locked: &mut Vec<G>, lock: impl FnMut(usize) -> G) {
    indices.sort_unstable();
    indices.dedup();
    locked.extend(indices.drain(..).map(lock));
}

/// A limit, and the place of its key.
struct Placed<'r> {
    limit: &'r Limit<'r>,
    hash: u64,
    /// The position of the key's shard among the locked ones.
    lock: usize,
    place: Option<u32>,
}

impl Placed<'_> {
    fn is_of_key_of(&self, other: &Placed<'_>) -> bool {
        self.hash == other.hash && self.limit.key == other.limit.key
    }
}

/// Buffers that all requests of a batch share.
#[derive(Default)]
struct Scratch<'a> {
    indices: Vec<usize>,
    shards: Vec<LockedShard<'a>>,
    decided: Vec<(Decision, Effect, &'a Settings)>,
    others: Vec<Option<Arc<Entry>>>,
}

/// Requests that are prefetched together.
const TOGETHER: usize = STAGED / 4;

impl<'a> Executor<'a> {
    /// Applies operations that are all joint requests.
    pub(super) fn apply_joint(&mut self, ops: &[Op<'_>], out: &mut Vec<Outcome>) {
        let (mut placed, mut scratch) = (Vec::new(), Scratch::default());
        for ops in ops.chunks(TOGETHER) {
            let requests = || {
                ops.iter().filter_map(|op| match op {
                    Op::LimitAll(request) => Some(&**request),
                    _ => None,
                })
            };
            placed.clear();
            placed.reserve(requests().map(|request| request.limits.len()).sum());
            for request in requests() {
                for limit in &request.limits {
                    let hash = self.store().hash(limit.key);
                    placed.push(Placed { limit, hash, lock: 0, place: None });
                }
            }
            self.fetch(&mut placed);
            let mut rest = &mut placed[..];
            for request in requests() {
                let (its, others) = rest.split_at_mut(request.limits.len());
                rest = others;
                out.push(Outcome::LimitAll(self.limit_all(request, its, &mut scratch)));
            }
        }
    }

    /// Prefetches the memory of the keys and finds their places, which are still correct if no other thread
    /// moves them meanwhile.
    fn fetch(&mut self, placed: &mut [Placed<'_>]) {
        for placed in placed.chunks_mut(STAGED) {
            let (mut hashes, mut places) = ([0; STAGED], [None; STAGED]);
            for (hash, placed) in hashes.iter_mut().zip(&*placed) {
                *hash = placed.hash;
            }
            self.store().fetch_slots(&hashes[..placed.len()], &mut places[..placed.len()]);
            for (placed, place) in placed.iter_mut().zip(places) {
                placed.place = place;
            }
        }
        // Once the slots are in the cache, prefetch what they point to, so that no thread waits for memory
        // while it holds several locks.
        for placed in placed.chunks_mut(Numbers::BITS as usize) {
            let mut behind: Numbers = 0;
            for (number, placed) in placed.iter_mut().enumerate() {
                let locked = self.shard(placed.hash);
                placed.place = locked.place_near(placed.place, placed.limit.key, placed.hash);
                if let Some(place) = placed.place
                    && locked.prefetch_heap(place) == Fetched::First
                {
                    behind |= 1 << number;
                }
            }
            self.prefetch_behind(behind, |number| (placed[number].hash, placed[number].place));
        }
        self.unlock();
    }

    /// Decides a request by each of its limits. If all allow it, the hits are counted once for each key.
    /// Otherwise they are counted as denied, once for each key with a limit that denies them.
    fn limit_all(
        &mut self,
        request: &JointRequest<'_>,
        placed: &mut [Placed<'_>],
        scratch: &mut Scratch<'a>,
    ) -> Result<JointDecision, LimitError> {
        let &JointRequest { ref limits, cost, at, is_peek } = request;
        let counts = !is_peek && cost > 0;
        if limits.len() > MAX_LIMITS {
            return Err(LimitError::Limits { given: limits.len() });
        }
        for (index, limit) in limits.iter().enumerate() {
            check_key(limit.key).map_err(|error| of_limit(index, error.into()))?;
        }
        let first = limits.first().map_or(&b""[..], |limit| limit.key);
        let Scratch { indices, shards, decided, others } = scratch;
        others.clear();
        let (store, now) = (self.store(), self.now());
        others.extend(placed.iter().map(|placed| store.hits_of_others(placed.limit.key, placed.hash, now)));
        indices.extend(placed.iter().map(|placed| shard_of(placed.hash)));
        let full = self.lock_all((indices, shards), if counts { first } else { b"" });
        let mut locks = Locks { shards };
        let memory = &self.store().memory;
        let may_be_fast = !self.is_far_over();
        let context = &mut *self.context_mut();
        context.full = full;
        let is_far_over = counts && memory.is_far_over();
        locks.find_shards(placed);
        if at.is_none()
            && counts
            && !is_far_over
            && may_be_fast
            && others.iter().all(Option::is_none)
            && let Some(decisions) = locks.allow_all(placed, cost, context)
        {
            drop(locks);
            self.unlock();
            return Ok(JointDecision { decisions, denied_hits: 0 });
        }
        locks.find(placed, context);
        // A new key may move other keys of its shard.
        let has_new = placed.iter().any(|placed| placed.place.is_none());
        decided.clear();
        decided.reserve(placed.len());
        let asked = |limit: &Limit<'_>, now| {
            let &Limit { max, window, .. } = limit;
            Asked { at: at.unwrap_or(now), is_peek, ..Asked::now(max, cost, window, now) }
        };
        for (index, placed @ &Placed { limit, place, .. }) in placed.iter().enumerate() {
            let locked = locks.of(placed);
            let settings = locked.settings_to_decide((limit.key, place), at, limit.window, context);
            let settings = settings.map_err(|error| of_limit(index, error))?;
            if let Some(place) = place.filter(|_| !is_peek) {
                locked.keep_moments(place, context.classes);
            }
            let asked = asked(limit, locked.now());
            let state = locked.window_state(place, others[index].as_deref(), &asked, settings);
            let (decision, effect) = decide(&state, &asked);
            decided.push((decision, effect, settings));
        }
        let is_allowed = decided.iter().all(|(decision, ..)| decision.is_allowed());
        if is_allowed && counts {
            // Check for every error before anything is counted.
            if is_far_over {
                return Err(HitError::from(memory.full()).into());
            }
            locks.make_room(placed, cost, context)?;
        }
        let names_before = |index: usize, is_it: &dyn Fn(usize) -> bool| {
            (0..index).any(|before| placed[before].is_of_key_of(&placed[index]) && is_it(before))
        };
        let mut denied_hits = 0_u64;
        for (index, at_hand @ &Placed { limit: &Limit { key, window, .. }, hash, place, .. }) in
            placed.iter().enumerate()
        {
            let hit = Hit { key, hash, weight: cost, at, limit_window: Some(window) };
            let denies = |index: usize| decided[index].1.change == Change::Deny;
            let counts_here = is_allowed && counts && !names_before(index, &|_| true);
            let denies_here = denies(index) && !names_before(index, &denies);
            if counts_here || denies_here {
                let locked = locks.of(at_hand);
                let place = if has_new { locked.place_near(place, key, hash) } else { place };
                if counts_here {
                    locked.hit(&hit, place, context).expect(HAS_ROOM);
                } else {
                    locked.deny(&hit, place, context);
                    denied_hits = denied_hits.saturating_add(cost);
                }
            }
        }
        let mut decisions = Vec::with_capacity(placed.len());
        for (index, (placed @ &Placed { limit, hash, place, .. }, &(mut decision, effect, settings))) in
            placed.iter().zip(&*decided).enumerate()
        {
            let locked = locks.of(placed);
            let place = if has_new { locked.place_near(place, limit.key, hash) } else { place };
            let is_for_counting = effect.change == Change::Count;
            if is_for_counting && !is_allowed {
                // Another limit denied the request, so this key's hits are not counted either.
                decision.remaining += remaining_of(cost);
            } else if let Some(left) = effect.left {
                locked.guard_limit(place, (left, limit.max), limit.window, context);
            }
            if is_for_counting {
                let asked = asked(limit, locked.now());
                decision.reset_after = locked.reset_after(place, others[index].as_deref(), &asked, settings);
            }
            decisions.push(decision);
        }
        drop(locks);
        self.unlock();
        Ok(JointDecision { decisions, denied_hits })
    }

    /// Locks the shards of all keys. If new keys have no room, evicts others first, but not `keep`. Returns
    /// the ceiling if there still is no room.
    fn lock_all(
        &mut self,
        (indices, shards): (&mut Vec<usize>, &mut Vec<LockedShard<'a>>),
        keep: &[u8],
    ) -> Option<Full> {
        let has_room = self.is_full().is_none() || !keep.is_empty() && self.make_room(keep);
        self.unlock();
        let (store, now) = (self.store(), self.now());
        lock_in_order(indices, shards, |index| store.lock_at(index, now));
        (!has_room).then(|| store.memory.full())
    }
}
