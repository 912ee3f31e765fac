//! The fast path of limits, for requests of now on existing keys. The hits must be in a form that it can
//! count in, or the denial must be cached. The test `the_fast_path_agrees_with_the_general_path` compares it with the
//! general path.

use super::super::context::{Context, FastPath, Hit};
use super::super::eviction_guard::{EvictionGuard, LimitGuard, RateGuard};
use super::super::slot::Slot;
use super::super::window_limit::{Asked, Change, WindowState, decide};
use super::Shard;
use crate::entry::Fetched;
use crate::frame::Frame;
use crate::gcra::{self, Rate};
use crate::limit::Decision;
use crate::settings::Settings;
use crate::time::Span;

/// An allowed request.
struct Allowed {
    decision: Decision,
    /// The new eviction guard of the key, if it changes.
    guard: Option<LimitGuard>,
}

impl Shard {
    /// Decides a request of now by a limit. Applies if the key is at `place` and lives, and the request is
    /// allowed or has a cached denial. Counts the hits. Otherwise changes nothing.
    #[inline(never)]
    pub(in crate::store) fn fast_limit(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        (max, window): (u64, Span),
        context: &mut Context<'_>,
    ) -> FastPath<Decision> {
        let now = self.now;
        let Some(slot) = self.slot_of(place, hit.key) else { return FastPath::Elsewhere };
        if let Some(repeated) = slot.state.deny_as_before(hit.weight, (max, window), now) {
            if !repeated.is_counted {
                self.add_denied(place, now, 1, context).expect("one is not too many");
            }
            self.record_denied(place, hit, context);
            if repeated.guard.is_some() {
                self.record_guard(place, EvictionGuard { limit: repeated.guard, rate: None }, context);
            }
            return FastPath::Done(repeated.decision);
        }
        let (frame, settings) = context.frame(slot.class, now);
        let of_limit = frame.of_limit(window);
        let asked = Asked::now(max, hit.weight, window, now);
        let Some(Allowed { mut decision, guard }) = allow(slot, &asked, &of_limit, settings) else {
            return FastPath::At(place, Fetched::All);
        };
        let entry = slot.state.hits_mut();
        let more = if let Some((_, more)) = entry.fast_hit(hit.weight, &of_limit) {
            // The new hits are the newest, so they leave last.
            decision.reset_after = Some(window);
            more.cast_signed()
        } else {
            let before = entry.heap_bytes();
            let Some(reset_after) = entry.hit_large(hit.weight, &of_limit, settings) else {
                return FastPath::At(place, Fetched::All);
            };
            decision.reset_after = Some(reset_after);
            entry.heap_bytes().cast_signed() - before.cast_signed()
        };
        let guard = EvictionGuard { limit: guard, rate: None };
        slot.state.put_guard(guard, now);
        slot.note_hits();
        self.bytes = self.bytes.wrapping_add_signed(more);
        self.record_hit(place, hit, context);
        self.note_busy(place, hit, context);
        if !guard.is_none() {
            self.record_guard(place, guard, context);
        }
        FastPath::Done(decision)
    }

    /// The decision of one of several limits, if it allows a request of now, and its hits are then certain to
    /// be counted: the key lives at `place`, has no hits in the future, and keeps its guard.
    #[inline]
    pub(in crate::store) fn fast_decision_of_several(
        &mut self,
        place: u32,
        key: &[u8],
        (max, cost, window): (u64, u64, Span),
        context: &mut Context<'_>,
    ) -> Option<Decision> {
        let now = self.now;
        let slot = self.slot_of(place, key)?;
        let (frame, settings) = context.frame(slot.class, now);
        let entry = slot.state.hits();
        let is_now = (frame.oldest_ms..=now.as_millis()).contains(&entry.newest_ms());
        if !is_now || !entry.has_room(cost) {
            return None;
        }
        let allowed = allow(slot, &Asked::now(max, cost, window, now), &frame.of_limit(window), settings)?;
        // The new hits are the newest, so they leave last.
        allowed.guard.is_none().then_some(Decision { reset_after: Some(window), ..allowed.decision })
    }

    /// Decides a request for one hit by a rate. Applies if the key is at `place` and lives, and the request
    /// is allowed. Counts the hit. Otherwise changes nothing.
    #[inline(never)]
    pub(in crate::store) fn fast_throttle(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        rate: Rate,
        context: &mut Context<'_>,
    ) -> FastPath<Decision> {
        let now = self.now;
        let Some(slot) = self.slot_of(place, hit.key) else { return FastPath::Elsewhere };
        let (decision, arrival) = gcra::decide(rate, slot.arrival(), 1, now);
        let left_of_max = (decision.left(), decision.max);
        let guard = RateGuard::next(slot.state.guard().rate, left_of_max, rate, now);
        let is_in_place = slot.state.is_watched() || guard.is_none() && slot.has_room_for(arrival);
        if !decision.is_allowed() || !is_in_place {
            return FastPath::At(place, Fetched::All);
        }
        let frame = context.frame(slot.class, now).0;
        let Some((_, more)) = slot.state.hits_mut().fast_hit(1, frame) else {
            return FastPath::At(place, Fetched::All);
        };
        if !slot.set_arrival_here(arrival) {
            slot.state.set_arrival(arrival);
        }
        let guard = EvictionGuard { limit: None, rate: guard };
        slot.state.put_guard(guard, now);
        slot.note_hits();
        self.bytes += more;
        self.record_hit(place, hit, context);
        self.note_busy(place, hit, context);
        self.record_arrival(hit.key, place, arrival, context);
        if !guard.is_none() {
            self.record_guard(place, guard, context);
        }
        FastPath::Done(decision)
    }
}

/// Decides a request of now. `None` if it is not allowed, or if counting it would change the form of the
/// key's state. From now on the key keeps the exact times of its newest hits.
#[inline(always)]
fn allow(slot: &mut Slot, asked: &Asked, of_limit: &Frame, settings: &Settings) -> Option<Allowed> {
    if asked.window > settings.retain() {
        return None;
    }
    let locked_until = slot.state.limited_until();
    let (entry, watch) = slot.state.hits_and_watch();
    let used = entry.used_now(of_limit, settings)?;
    let state =
        WindowState { entry: None, others: None, settings, used, locked_until, past: None, now: asked.at };
    let (decision, effect) = decide(&state, asked);
    if effect.change != Change::Count {
        return None;
    }
    let known = watch.as_ref().and_then(|watch| watch.limit_guard());
    let guard = LimitGuard::next(known, (decision.left(), asked.max), asked.window);
    (guard.is_none() || watch.is_some()).then_some(Allowed { decision, guard })
}
