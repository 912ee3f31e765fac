//! Requests that are to stay within several limits, of one key or of more: all counted or none. The shards of all
//! keys are locked, in the order of their indices, until it is decided and done.

use super::batch::{JointRequest, Limit, STAGED};
use super::cell::LockedShard;
use super::context::Hit;
use super::limited::Asked;
use super::turn::Turn;
use super::{check_key, shard_of};
use crate::error::{HitError, LimitError};
use crate::limit::Decision;
use crate::limits::{MAX_LIMITS, MAX_TOTAL};

/// Shards that are locked together.
struct Locks<'a> {
    shards: Vec<LockedShard<'a>>,
}

impl<'a> Locks<'a> {
    fn of(&mut self, hash: u64) -> &mut LockedShard<'a> {
        let index = shard_of(hash);
        let at = self.shards.binary_search_by_key(&index, LockedShard::index);
        &mut self.shards[at.expect("the shards of all keys are locked")]
    }
}

/// Locks what the indices stand for, each once, in their order. Two that lock so, or one at a time, never wait for
/// each other in a circle.
pub(crate) fn lock_in_order<G>(mut indices: Vec<usize>, lock: impl FnMut(usize) -> G) -> Vec<G> {
    indices.sort_unstable();
    indices.dedup();
    indices.into_iter().map(lock).collect()
}

/// A limit, and where its key is.
struct Placed<'r> {
    limit: &'r Limit<'r>,
    hash: u64,
    place: Option<u32>,
    /// Whether it is the first that names the key.
    is_first: bool,
}

impl<'a> Turn<'a> {
    /// Decides on a request, for each limit by itself; if all allow it its hits are counted, once for each key, if not
    /// those that were denied are, for each key with a limit that denies it.
    pub(super) fn limit_all(&mut self, request: &JointRequest<'_>) -> Result<Vec<Decision>, LimitError> {
        let JointRequest { limits, cost, at, is_peek } = request;
        let (cost, at, counts) = (*cost, *at, !is_peek && *cost > 0);
        if limits.len() > MAX_LIMITS {
            return Err(LimitError::Limits { given: limits.len() });
        }
        limits.iter().try_for_each(|limit| check_key(limit.key))?;
        let mut placed = self.placed(limits);
        let first = limits.first().map_or(&b""[..], |limit| limit.key);
        let (mut locks, ceiling_bytes) = self.lock_all(&placed, if counts { first } else { b"" });
        let context = &mut *self.context_mut();
        context.ceiling_bytes = ceiling_bytes;
        let mut verdicts = Vec::with_capacity(placed.len());
        for Placed { limit, hash, place, .. } in &mut placed {
            let &mut &Limit { key, max, window } = limit;
            let locked = locks.of(*hash);
            *place = locked.place_near(*place, key, *hash).and_then(|place| locked.alive(place, context));
            let class = locked.class_of(key, *place, context);
            let (frame, settings) = context.frame(class, locked.now());
            if let Some(at) = at {
                frame.check(at, settings)?;
            }
            if window > settings.retain() {
                return Err(LimitError::Window { window, retain: settings.retain() });
            }
            if let Some(place) = place.filter(|_| !is_peek) {
                locked.keep_moments(place, context.classes);
            }
            let asked = Asked { max, cost, at: at.unwrap_or(locked.now()), window };
            verdicts.push((locked.verdict(*place, asked, settings), settings));
        }
        let is_allowed = verdicts.iter().all(|(verdict, _)| verdict.is_allowed());
        if is_allowed && counts {
            // Whatever may stand in the way of one key is found out before anything is counted.
            for Placed { hash, place, .. } in &placed {
                match (place, ceiling_bytes) {
                    (Some(place), _) => locks.of(*hash).make_room_for(*place, cost, context.classes)?,
                    (None, Some(ceiling_bytes)) => Err(HitError::OutOfMemory { ceiling_bytes })?,
                    (None, None) if cost > MAX_TOTAL => {
                        Err(HitError::Overflow { total: 0, weight: cost })?;
                    }
                    (None, None) => {}
                }
            }
            for Placed { limit, hash, place, .. } in placed.iter_mut().filter(|placed| placed.is_first) {
                let hit = Hit { key: limit.key, hash: *hash, weight: cost, at };
                locks.of(*hash).hit(&hit, *place, context).expect("it was found out that it can be counted");
            }
        }
        let mut decisions = Vec::with_capacity(placed.len());
        let mut denied: Vec<&[u8]> = Vec::new();
        for (Placed { limit, hash, place, .. }, (verdict, settings)) in placed.iter_mut().zip(&verdicts) {
            let &mut &Limit { key, max, window } = limit;
            let locked = locks.of(*hash);
            *place = locked.place_near(*place, key, *hash);
            if is_allowed && counts {
                decisions.push(locked.counted(*place, verdict, settings));
                continue;
            }
            if !verdict.is_allowed() && !is_peek {
                if !denied.contains(&key) {
                    denied.push(key);
                    *place = locked.deny(&Hit { key, hash: *hash, weight: cost, at }, *place, context);
                }
                locked.guard(*place, (verdict.left(), max), window);
            }
            decisions.push(locked.not_counted(*place, verdict, settings));
        }
        drop(locks);
        self.unlock();
        Ok(decisions)
    }

    /// The limits with the hashes of their keys and where these most likely are.
    fn placed<'r>(&self, limits: &'r [Limit<'r>]) -> Vec<Placed<'r>> {
        let mut placed: Vec<Placed<'r>> = Vec::with_capacity(limits.len());
        for limits in limits.chunks(STAGED) {
            let (mut hashes, mut places) = ([0; STAGED], [None; STAGED]);
            for (hash, limit) in hashes.iter_mut().zip(limits) {
                *hash = self.store().hash(limit.key);
            }
            self.store().fetch_slots(&hashes[..limits.len()], &mut places[..limits.len()]);
            for ((limit, hash), place) in limits.iter().zip(hashes).zip(places) {
                let is_first =
                    placed.iter().all(|before| before.hash != hash || before.limit.key != limit.key);
                placed.push(Placed { limit, hash, place, is_first });
            }
        }
        placed
    }

    /// Locks the shards of all keys; before that, others are evicted if new keys have no room, but not `keep`. Gives
    /// the ceiling where there is none then.
    fn lock_all(&mut self, placed: &[Placed<'_>], keep: &[u8]) -> (Locks<'a>, Option<u64>) {
        let has_room = self.is_full().is_none() || !keep.is_empty() && self.make_room(keep);
        self.unlock();
        let indices = placed.iter().map(|placed| shard_of(placed.hash)).collect();
        let (store, now) = (self.store(), self.now());
        let shards = lock_in_order(indices, |index| store.lock_at(index, now));
        (Locks { shards }, (!has_room).then(|| store.memory.ceiling_bytes()))
    }
}
