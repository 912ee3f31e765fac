//! Requests that a shard decides on by a short way, most of them: those of now, on keys that have few moments, or that
//! were denied the same just before.

use super::super::context::{Context, Hit, Quick};
use super::super::guard::Guard;
use super::super::record::Fetched;
use super::super::slot::Slot;
use super::Shard;
use crate::gcra::{self, Rate};
use crate::limit::{Decision, Retry};
use crate::time::Span;

impl Shard {
    /// The slot of the key, if that is at `place`, and nothing on the heap is to be waited for, unless it `may_wait`:
    /// that is fetched.
    #[inline(always)]
    fn fetched(&mut self, place: u32, key: &[u8], may_wait: bool) -> Result<&mut Slot, Quick<Decision>> {
        let slot = self.slots.get_mut(place).filter(|slot| slot.is(key, &self.beside.long_keys));
        let slot = slot.ok_or(Quick::Elsewhere)?;
        match if may_wait { Fetched::Nothing } else { slot.record.prefetch() } {
            Fetched::Nothing => Ok(slot),
            fetched => Err(Quick::At(place, fetched)),
        }
    }

    /// Decides on a request of now, for a limit of so many hits in a window, if its key is at `place` and lives, and
    /// what was counted and denied is known without a long look; if not it changes nothing. Where there is something
    /// on the heap to be waited for, that is fetched, unless it `may_wait`.
    #[inline(never)]
    pub(in crate::store) fn quick_limit(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        (max, window): (u64, Span),
        may_wait: bool,
        context: &mut Context<'_>,
    ) -> Quick<Decision> {
        let now = self.now;
        let Slot { class, record, .. } = match self.fetched(place, hit.key, may_wait) {
            Ok(slot) => slot,
            Err(quick) => return quick,
        };
        let (frame, settings) = context.frame(*class, now);
        if window > settings.retain() || hit.weight == 0 {
            return Quick::At(place, Fetched::All);
        }
        let locked_until = record.limited_until().filter(|&until| until > now);
        let denial = record.denial().filter(|_| locked_until.is_none() && hit.weight == 1);
        if let Some(decision) = denial.and_then(|denial| denial.again(max, window, now)) {
            if let Some(guard) = Guard::next(record.guard(), (0, max), window, now) {
                record.set_guard(guard);
            }
            if !record.deny_again(settings.pane_start(now), 1) {
                self.add_denied(place, now, 1, context).expect("one is not too many");
            }
            self.write_down_denied(place, hit, context);
            return Quick::Done(decision);
        }
        let of_limit = frame.of_limit(window);
        let (entry, watched) = record.hits_and_beside();
        let most = max.checked_sub(hit.weight);
        let used = entry.used_now(&of_limit, settings).filter(|&used| most.is_some_and(|most| used <= most));
        let Some(used) = used.filter(|_| locked_until.is_none()) else {
            return Quick::At(place, Fetched::All);
        };
        let remaining = max - used - hit.weight;
        let known = watched.as_ref().and_then(|watched| watched.guard());
        let next = Guard::next(known, (remaining, max), window, now);
        if next.is_some() && watched.is_none() {
            return Quick::At(place, Fetched::All);
        }
        let before = entry.heap_bytes();
        let Some(reset_after) = entry.hit_within(hit.weight, &of_limit, settings) else {
            return Quick::At(place, Fetched::All);
        };
        let after = entry.heap_bytes();
        if let (Some(watched), Some(_)) = (watched, next) {
            watched.set_guard(next);
        }
        self.bytes = self.bytes + after - before;
        self.write_down_hit(place, hit, context);
        Quick::Done(Decision { max, remaining, retry: Retry::Now, reset_after: Some(reset_after) })
    }

    /// As `quick_limit`, for a rate.
    #[inline(never)]
    pub(in crate::store) fn quick_throttle(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        rate: Rate,
        may_wait: bool,
        context: &mut Context<'_>,
    ) -> Quick<Decision> {
        let now = self.now;
        let Slot { class, record, .. } = match self.fetched(place, hit.key, may_wait) {
            Ok(slot) => slot,
            Err(quick) => return quick,
        };
        let (decision, arrival) = gcra::decide(rate, record.arrival(), 1, now);
        if !decision.is_allowed() {
            return Quick::At(place, Fetched::All);
        }
        let (left, burst_ends) = (decision.remaining, decision.reset_after.unwrap_or(Span::MIN));
        let next = Guard::next(record.guard(), (left, decision.max), burst_ends, now);
        let frame = context.frame(*class, now).0;
        let before = record.heap_bytes();
        let (entry, Some(watched)) = record.hits_and_beside() else { return Quick::At(place, Fetched::All) };
        if entry.short_hit(1, frame).is_none() {
            return Quick::At(place, Fetched::All);
        }
        watched.set_arrival(arrival);
        if next.is_some() {
            watched.set_guard(next);
        }
        let after = record.heap_bytes();
        self.bytes = self.bytes + after - before;
        self.write_down_hit(place, hit, context);
        self.write_down_arrival(hit.key, place, arrival, context);
        Quick::Done(decision)
    }
}
