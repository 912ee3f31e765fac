//! Requests that are to stay within several limits, of one key or of more: all counted or none. The shards of all
//! keys are locked, in the order of their indices, until it is decided and done.

use super::batch::{JointRequest, Limit, Op, Outcome, STAGED};
use super::cell::LockedShard;
use super::context::{Context, Hit};
use super::limited::Asked;
use super::turn::Turn;
use super::{check_key, shard_of};
use crate::error::{HitError, LimitError};
use crate::limit::JointDecision;
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

    /// Finds the keys; those of which nothing is left are nowhere. Has what they have elsewhere fetched.
    fn find(&mut self, placed: &mut [Placed<'_>], context: &mut Context<'_>) {
        for Placed { limit, hash, place } in placed {
            let locked = self.of(*hash);
            *place =
                locked.place_near(*place, limit.key, *hash).and_then(|place| locked.alive(place, context));
            if let Some(place) = *place {
                locked.prefetch_heap(place);
            }
        }
    }

    /// Finds out whether so many hits of each key can be counted.
    fn make_room(&mut self, placed: &[Placed<'_>], cost: u64, context: &Context<'_>) -> Result<(), HitError> {
        for Placed { hash, place, .. } in placed {
            match (place, context.ceiling_bytes) {
                (Some(place), _) => self.of(*hash).make_room_for(*place, cost, context.classes)?,
                (None, Some(ceiling_bytes)) => return Err(HitError::OutOfMemory { ceiling_bytes }),
                (None, None) if cost > MAX_TOTAL => {
                    return Err(HitError::Overflow { total: 0, weight: cost });
                }
                (None, None) => {}
            }
        }
        Ok(())
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
}

/// Requests whose memory is fetched together.
const TOGETHER: usize = STAGED / 4;

impl<'a> Turn<'a> {
    /// Applies operations that are all requests with several limits.
    pub(super) fn apply_joint(&mut self, ops: &[Op<'_>], out: &mut Vec<Outcome>) {
        for ops in ops.chunks(TOGETHER) {
            let joint = ops.iter().filter_map(|op| match op {
                Op::LimitAll(request) => Some(&**request),
                _ => None,
            });
            let requests: Vec<&JointRequest<'_>> = joint.collect();
            let limits: Vec<&Limit<'_>> = requests.iter().flat_map(|request| &request.limits).collect();
            let mut placed = self.placed(&limits);
            let mut rest = &mut placed[..];
            for request in requests {
                let (its, others) = rest.split_at_mut(request.limits.len());
                rest = others;
                out.push(Outcome::LimitAll(self.limit_all(request, its)));
            }
        }
    }

    /// The limits with the hashes of their keys and where these most likely are; has their memory fetched.
    fn placed<'r>(&self, limits: &[&'r Limit<'r>]) -> Vec<Placed<'r>> {
        let mut placed = Vec::with_capacity(limits.len());
        for limits in limits.chunks(STAGED) {
            let (mut hashes, mut places) = ([0; STAGED], [None; STAGED]);
            for (hash, limit) in hashes.iter_mut().zip(limits) {
                *hash = self.store().hash(limit.key);
            }
            self.store().fetch_slots(&hashes[..limits.len()], &mut places[..limits.len()]);
            let each = limits.iter().zip(hashes).zip(places);
            placed.extend(each.map(|((limit, hash), place)| Placed { limit, hash, place }));
        }
        placed
    }

    /// Decides on a request, for each limit by itself; if all allow it its hits are counted, once for each key, if not
    /// those that were denied are, once for each key with a limit that denies it.
    fn limit_all(
        &mut self,
        request: &JointRequest<'_>,
        placed: &mut [Placed<'_>],
    ) -> Result<JointDecision, LimitError> {
        let &JointRequest { ref limits, cost, at, is_peek } = request;
        let counts = !is_peek && cost > 0;
        if limits.len() > MAX_LIMITS {
            return Err(LimitError::Limits { given: limits.len() });
        }
        limits.iter().try_for_each(|limit| check_key(limit.key))?;
        let first = limits.first().map_or(&b""[..], |limit| limit.key);
        let (mut locks, ceiling_bytes) = self.lock_all(placed, if counts { first } else { b"" });
        let context = &mut *self.context_mut();
        context.ceiling_bytes = ceiling_bytes;
        locks.find(placed, context);
        let mut verdicts = Vec::with_capacity(placed.len());
        for &Placed { limit, hash, place } in &*placed {
            let &Limit { key, max, window } = limit;
            let locked = locks.of(hash);
            let settings = locked.settings_to_decide((key, place), at, window, context)?;
            if let Some(place) = place.filter(|_| !is_peek) {
                locked.keep_moments(place, context.classes);
            }
            let asked = Asked { max, cost, at: at.unwrap_or(locked.now()), window };
            verdicts.push((locked.verdict(place, asked, settings), settings));
        }
        let is_allowed = verdicts.iter().all(|(verdict, _)| verdict.is_allowed());
        if is_allowed && counts {
            // Whatever may stand in the way of one key is found out before anything is counted.
            locks.make_room(placed, cost, context)?;
        }
        let names_before = |index: usize, is_it: &dyn Fn(usize) -> bool| {
            (0..index).any(|before| placed[before].limit.key == placed[index].limit.key && is_it(before))
        };
        let mut denied_hits = 0_u64;
        for (index, &Placed { limit: &Limit { key, .. }, hash, place }) in placed.iter().enumerate() {
            let hit = Hit { key, hash, weight: cost, at };
            let is_denied = |index: usize| !verdicts[index].0.is_allowed();
            let counts_here = is_allowed && counts && !names_before(index, &|_| true);
            let denies_here = !is_peek && is_denied(index) && !names_before(index, &is_denied);
            if counts_here || denies_here {
                let locked = locks.of(hash);
                // A new key that came before it may have moved the others of its shard.
                let place = locked.place_near(place, key, hash);
                if counts_here {
                    locked.hit_known(&hit, place, context);
                } else {
                    locked.deny(&hit, place, context);
                    denied_hits = denied_hits.saturating_add(cost);
                }
            }
        }
        let mut decisions = Vec::with_capacity(placed.len());
        for (&Placed { limit, hash, place }, (verdict, settings)) in placed.iter().zip(&verdicts) {
            let &Limit { key, max, window } = limit;
            let locked = locks.of(hash);
            let place = locked.place_near(place, key, hash);
            if !verdict.is_allowed() && !is_peek {
                locked.guard(place, (verdict.left(), max), window, context.classes);
            }
            decisions.push(if is_allowed && counts {
                locked.counted(place, verdict, (settings, context.classes))
            } else {
                locked.not_counted(place, verdict, settings)
            });
        }
        drop(locks);
        self.unlock();
        Ok(JointDecision { decisions, denied_hits })
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
