//! Requests that a shard decides on by a short way, most of them: those of now, on keys that have few moments, or that
//! were denied the same just before.

use super::super::context::{Context, Hit, Quick};
use super::super::guard::Guard;
use super::super::record::Fetched;
use super::super::slot::Slot;
use super::Shard;
use crate::entry::Whereabouts;
use crate::gcra::{self, Rate};
use crate::limit::{Decision, Retry};
use crate::time::Span;

impl Shard {
    /// Has what the key at `place` has on the heap fetched; `None` when there is nothing to be waited for.
    #[inline(always)]
    pub(in crate::store) fn fetch_first(&mut self, place: u32, key: &[u8]) -> Option<Quick<()>> {
        let Some(slot) = self.slot_of(place, key) else { return Some(Quick::Elsewhere) };
        match slot.prefetch() {
            Fetched::Nothing => None,
            fetched => Some(Quick::At(place, fetched)),
        }
    }

    /// Decides on a request of now, for a limit of so many hits in a window, if its key is at `place` and lives, and
    /// what was counted and denied is known without a long look; if not it changes nothing.
    #[inline(never)]
    pub(in crate::store) fn quick_limit(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        (max, window): (u64, Span),
        context: &mut Context<'_>,
    ) -> Quick<Decision> {
        let now = self.now;
        let Some(slot) = self.slot_of(place, hit.key) else { return Quick::Elsewhere };
        let Slot { class, record, .. } = slot;
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
        let (reset_after, before, after) = match entry.short_hit_weighed(hit.weight, &of_limit) {
            // These are the newest.
            Some((_, more)) => (Some(window), 0, more),
            None => {
                let before = entry.heap_bytes();
                (entry.hit_large(hit.weight, &of_limit, settings), before, entry.heap_bytes())
            }
        };
        if reset_after.is_none() {
            return Quick::At(place, Fetched::All);
        }
        if let Some(watched) = watched {
            if next.is_some() {
                watched.set_guard(next);
            }
            let list = Whereabouts::of(entry);
            slot.note_list(list);
        }
        self.bytes = self.bytes + after - before;
        self.write_down_hit(place, hit, context);
        Quick::Done(Decision { max, remaining, retry: Retry::Now, reset_after })
    }

    /// As `quick_limit`, for a rate.
    #[inline(never)]
    pub(in crate::store) fn quick_throttle(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        rate: Rate,
        context: &mut Context<'_>,
    ) -> Quick<Decision> {
        let now = self.now;
        let Some(slot) = self.slot_of(place, hit.key) else { return Quick::Elsewhere };
        let here = slot.arrival_here();
        let Slot { class, record, .. } = slot;
        let (entry, watched) = record.hits_and_beside();
        let Some(before) = watched.as_ref().map_or(here, |watched| Some(watched.arrival())) else {
            return Quick::At(place, Fetched::All);
        };
        let (decision, arrival) = gcra::decide(rate, before, 1, now);
        let (left, burst_ends) = (decision.remaining, decision.reset_after.unwrap_or(Span::MIN));
        let known = watched.as_ref().and_then(|watched| watched.guard());
        let next = Guard::next(known, (left, decision.max), burst_ends, now);
        let fits = watched.is_some() || next.is_none() && arrival.to_bytes().is_some();
        if !decision.is_allowed() || !fits {
            return Quick::At(place, Fetched::All);
        }
        let frame = context.frame(*class, now).0;
        let Some((_, more)) = entry.short_hit_weighed(1, frame) else {
            return Quick::At(place, Fetched::All);
        };
        if let Some(watched) = watched {
            watched.set_arrival(arrival);
            if next.is_some() {
                watched.set_guard(next);
            }
            let list = Whereabouts::of(entry);
            slot.note_list(list);
        } else {
            slot.set_arrival_here(arrival);
        }
        self.bytes += more;
        self.write_down_hit(place, hit, context);
        self.write_down_arrival(hit.key, place, arrival, context);
        Quick::Done(decision)
    }
}
