//! Requests that a shard decides on by a fast path, most of them: those of now, on keys that have few moments, or that
//! were denied the same just before.

use super::super::context::{Context, FastPath, Hit};
use super::super::eviction_guard::EvictionGuard;
use super::super::key_state::KeyState;
use super::super::slot::Slot;
use super::Shard;
use crate::entry::{Entry, Fetched};
use crate::frame::Frame;
use crate::gcra::{self, Rate};
use crate::limit::{Decision, Retry};
use crate::settings::Settings;
use crate::time::Span;

impl Shard {
    /// Decides on a request of now, for a limit of so many hits in a window, if its key is at `place` and lives, and
    /// what was counted and denied is known without a long look; if not it changes nothing.
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
        if let Some((decision, is_counted)) = slot.state.deny_as_before(hit.weight, (max, window), now) {
            if !is_counted {
                self.add_denied(place, now, 1, context).expect("one is not too many");
            }
            self.record_denied(place, hit, context);
            return FastPath::Done(decision);
        }
        let (frame, settings) = context.frame(slot.class, now);
        if window > settings.retain() || hit.weight == 0 {
            return FastPath::At(place, Fetched::All);
        }
        let KeyState::Hits(entry) = &mut slot.state else {
            return self.fast_limit_watched(place, hit, (max, window), context);
        };
        let of_limit = frame.of_limit(window);
        let is_unguarded =
            |remaining| EvictionGuard::next(None, (remaining, max), window, now).is_none().then_some(());
        let Some((decision, more, ())) =
            allow(entry, hit.weight, max, (&of_limit, settings, window), is_unguarded)
        else {
            return FastPath::At(place, Fetched::All);
        };
        self.bytes = self.bytes.wrapping_add_signed(more);
        self.record_hit(place, hit, context);
        FastPath::Done(decision)
    }

    /// As `fast_limit`, of a key that is at `place` and watched, and a window that is kept; nothing was said that holds.
    #[inline(never)]
    fn fast_limit_watched(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        (max, window): (u64, Span),
        context: &mut Context<'_>,
    ) -> FastPath<Decision> {
        let now = self.now;
        let slot = self.slot_mut(place);
        let Slot { class, state, .. } = slot;
        let (frame, settings) = context.frame(*class, now);
        if state.limited_until().is_some_and(|until| until > now) {
            return FastPath::At(place, Fetched::All);
        }
        let of_limit = frame.of_limit(window);
        let (entry, Some(watched)) = state.hits_and_watch() else {
            return FastPath::At(place, Fetched::All);
        };
        let known = watched.guard();
        let next = |remaining| Some(EvictionGuard::next(known, (remaining, max), window, now));
        let Some((decision, more, next)) = allow(entry, hit.weight, max, (&of_limit, settings, window), next)
        else {
            return FastPath::At(place, Fetched::All);
        };
        if next.is_some() {
            watched.set_guard(next);
        }
        slot.note_hits();
        self.bytes = self.bytes.wrapping_add_signed(more);
        self.record_hit(place, hit, context);
        if let Some(guard) = next {
            self.record_guard(place, guard, context);
        }
        FastPath::Done(decision)
    }

    /// What a limit would leave if it allowed hits now, if its key is at `place` and lives, has none later than now, is
    /// not watched and need not be then, has room for them, and that is known without a long look.
    #[inline]
    pub(in crate::store) fn fast_remaining(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        (max, window): (u64, Span),
        context: &mut Context<'_>,
    ) -> Option<u64> {
        let now = self.now;
        let slot = self.slot_of(place, hit.key)?;
        let (frame, settings) = context.frame(slot.class, now);
        let KeyState::Hits(entry) = &mut slot.state else { return None };
        let is_now = (frame.oldest_ms..=now.as_millis()).contains(&entry.newest_ms());
        if window > settings.retain() || !is_now || !entry.has_room(hit.weight) {
            return None;
        }
        let most = max.checked_sub(hit.weight)?;
        let used = entry.used_in_list(&frame.of_limit(window)).filter(|&used| used <= most)?;
        let remaining = most - used;
        EvictionGuard::next(None, (remaining, max), window, now).is_none().then_some(remaining)
    }

    /// As `fast_limit`, for a rate.
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
        let Some(before) = slot.arrival_here() else {
            return self.fast_throttle_watched(place, hit, rate, context);
        };
        let Some((decision, arrival)) = gcra::allow_one(rate, before, now) else {
            return FastPath::At(place, Fetched::All);
        };
        let Decision { max, remaining, reset_after, .. } = decision;
        if EvictionGuard::next(None, (remaining, max), reset_after.unwrap_or(Span::MIN), now).is_some() {
            return FastPath::At(place, Fetched::All);
        }
        let frame = context.frame(slot.class, now).0;
        let Some((_, more)) = slot.state.hits_mut().short_hit_weighed(1, frame) else {
            return FastPath::At(place, Fetched::All);
        };
        slot.set_arrival_here(arrival);
        self.bytes += more;
        self.record_hit(place, hit, context);
        self.record_arrival(hit.key, place, arrival, context);
        FastPath::Done(decision)
    }

    /// As `fast_throttle`, of a key that is at `place` and may be watched.
    #[inline(never)]
    fn fast_throttle_watched(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        rate: Rate,
        context: &mut Context<'_>,
    ) -> FastPath<Decision> {
        let now = self.now;
        let slot = self.slot_mut(place);
        let (entry, Some(watched)) = slot.state.hits_and_watch() else {
            return FastPath::At(place, Fetched::All);
        };
        let (decision, arrival) = gcra::decide(rate, watched.arrival(), 1, now);
        if !decision.is_allowed() {
            return FastPath::At(place, Fetched::All);
        }
        let (left, burst_ends) = (decision.remaining, decision.reset_after.unwrap_or(Span::MIN));
        let next = EvictionGuard::next(watched.guard(), (left, decision.max), burst_ends, now);
        let frame = context.frame(slot.class, now).0;
        let Some((_, more)) = entry.short_hit_weighed(1, frame) else {
            return FastPath::At(place, Fetched::All);
        };
        watched.set_arrival(arrival);
        if next.is_some() {
            watched.set_guard(next);
        }
        slot.note_hits();
        self.bytes += more;
        self.record_hit(place, hit, context);
        self.record_arrival(hit.key, place, arrival, context);
        if let Some(guard) = next {
            self.record_guard(place, guard, context);
        }
        FastPath::Done(decision)
    }
}

/// Counts hits of a key if a limit of so many allows it, and so does who is asked about what would remain: gives what
/// the limit says, how many bytes more that took, and the answer. `None`, and nothing changes, if that takes a long look.
#[inline(always)]
fn allow<T>(
    entry: &mut Entry,
    weight: u64,
    max: u64,
    (of_limit, settings, window): (&Frame, &Settings, Span),
    ask: impl FnOnce(u64) -> Option<T>,
) -> Option<(Decision, isize, T)> {
    let most = max.checked_sub(weight)?;
    let used = entry.used_now(of_limit, settings).filter(|&used| used <= most)?;
    let remaining = most - used;
    let answer = ask(remaining)?;
    let (reset_after, more) = match entry.short_hit_weighed(weight, of_limit) {
        // These are the newest.
        Some((_, more)) => (Some(window), more.cast_signed()),
        None => {
            let before = entry.heap_bytes();
            let reset_after = entry.hit_large(weight, of_limit, settings)?;
            (Some(reset_after), entry.heap_bytes().cast_signed() - before.cast_signed())
        }
    };
    Some((Decision { max, remaining, retry: Retry::Now, reset_after }, more, answer))
}
