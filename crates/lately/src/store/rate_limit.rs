//! Limits by a rate. `gcra::decide` is the rule; this file applies it under the key's lock.

use super::context::Hit;
use super::executor::Executor;
use super::key::check_key;
use crate::error::LimitError;
use crate::gcra::{self, Throttle};
use crate::limit::Decision;

impl Executor<'_> {
    /// Decides a request for a key of the locked shard. The key is at `place`, or does not exist. Counts the
    /// hits of an allowed request as hits, and those of a denied one as denied.
    #[inline(never)]
    pub(super) fn throttle(
        &mut self,
        request: &Throttle<'_>,
        hash: u64,
        place: Option<u32>,
    ) -> Result<Decision, LimitError> {
        let &Throttle { key, rate, quantity } = request;
        check_key(key)?;
        let (locked, context) = self.parts();
        let mut place = place.and_then(|place| locked.alive(place, context));
        let weight = u64::try_from(quantity).unwrap_or(0);
        let mut has_room = true;
        if place.is_none() && weight > 0 && weight <= rate.limit() {
            (has_room, place) = self.room_for((key, hash), None);
        }
        let (locked, _) = self.parts();
        let mut before = locked.arrival_at(place);
        let (mut decision, mut after) = gcra::decide(rate, before, quantity, locked.now());
        if decision.is_allowed() && weight > 0 && self.is_far_over() {
            // Eviction unlocks the shard, so another thread may use the key meanwhile.
            self.may_grow(key, hash)?;
            place = self.shard(hash).place_near(place, key, hash);
            let (locked, _) = self.parts();
            before = locked.arrival_at(place);
            (decision, after) = gcra::decide(rate, before, quantity, locked.now());
        }
        let hit = Hit { key, hash, weight, at: None, limit_window: None };
        if !decision.is_allowed() {
            place = self.deny(&hit, place);
        } else if weight > 0 {
            self.count_hit(has_room, &hit, place)?;
            let (locked, _) = self.parts();
            // An existing key has not moved.
            place = place.or_else(|| locked.place_of(key, hash));
        }
        let (locked, context) = self.parts();
        if let Some(place) = place.filter(|_| after != before && quantity != 0) {
            locked.set_arrival(key, place, after, context);
        }
        locked.guard_rate(place, (decision.left(), decision.max), rate, context);
        Ok(decision)
    }
}
