//! Hits that come to a shard: by a fast path, most of them; else by one that can do all.

use std::borrow::Borrow;

use super::super::context::{Context, FastPath, Hit};
use super::Shard;
use crate::class::ClassId;
use crate::delta::DeltaBatch;
use crate::entry::{Entry, Fetched};
use crate::error::HitError;
use crate::frame::Frame;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

impl Shard {
    /// Counts hits now of the key, if it is at `place`, lives, and has all its hits in its slot; or, if `may_wait`, in a
    /// list: else what it has on the heap is fetched. Changes nothing if not. What happened is to be recorded.
    #[inline(always)]
    pub(in crate::store) fn fast_hit<F: Borrow<Frame>>(
        &mut self,
        place: u32,
        (key, weight): (&[u8], u64),
        may_wait: bool,
        frame: impl FnOnce(ClassId, Timestamp) -> F,
    ) -> FastPath<u64> {
        let now = self.now;
        let Some(slot) = self.slots.get_mut(place) else { return FastPath::Elsewhere };
        // Whose it is is looked at when that is there.
        if !may_wait && slot.state.has_heap() {
            return FastPath::At(place, slot.prefetch());
        }
        if !slot.is(key, &self.side.long_keys) {
            return FastPath::Elsewhere;
        }
        let frame = frame(slot.class, now);
        if !may_wait {
            return slot.fast_hit(place, weight, frame.borrow());
        }
        match slot.short_hit(weight, frame.borrow()) {
            Some((hits, more)) => {
                self.bytes += more;
                FastPath::Done(hits)
            }
            None => FastPath::At(place, Fetched::All),
        }
    }

    /// As `fast_hit`, of the key with this hash, if it is where the search for it begins.
    #[inline(always)]
    pub(in crate::store) fn fast_hit_near(
        &mut self,
        (hash, key): (u64, &[u8]),
        weight: u64,
        frame: impl FnOnce(ClassId, Timestamp) -> Frame,
    ) -> FastPath<u64> {
        let now = self.now;
        match self.slots.near(hash) {
            Some((place, slot)) if slot.is(key, &self.side.long_keys) => {
                slot.fast_hit(place, weight, &frame(slot.class, now))
            }
            _ => FastPath::Elsewhere,
        }
    }

    /// Where the key with this hash most likely is.
    #[inline]
    pub(in crate::store) fn guess(&mut self, hash: u64) -> Option<u32> {
        self.slots.near(hash).map(|(place, _)| place)
    }

    /// As `place_of`, when the key has not yet to move.
    #[inline(never)]
    pub(in crate::store) fn place_of_moved(&self, key: &[u8], hash: u64) -> Option<u32> {
        self.slots.find_moved(hash, |slot| slot.is(key, &self.side.long_keys))
    }

    /// Counts hits now of the key at `place`, if it lives and they are in its slot or in a list. Changes nothing if not.
    #[inline]
    pub(in crate::store) fn short_hit(&mut self, place: u32, weight: u64, frame: &Frame) -> Option<u64> {
        let (hits, more) = self.slots.get_mut(place)?.short_hit(weight, frame)?;
        self.bytes += more;
        Some(hits)
    }

    /// Counts hits of the key at `place`; `None`, and nothing changes, when all it had have left the
    /// retention.
    pub(in crate::store) fn hit_at(
        &mut self,
        place: u32,
        hit: &Hit<'_>,
        context: &mut Context<'_>,
    ) -> Option<Result<u64, HitError>> {
        let slot = self.slots.get_mut(place)?;
        let (frame, settings) = context.frame(slot.class, self.now);
        if slot.state.hits().expired(frame.kept_ms) {
            return None;
        }
        if let Some(at) = hit.at
            && let Err(error) = frame.check(at, settings)
        {
            return Some(Err(error));
        }
        let counted = slot.count(hit, frame, settings, &mut self.bytes);
        if counted.is_ok() && hit.weight > 0 {
            self.record_hit(place, hit, context);
        }
        Some(counted)
    }

    /// Counts hits of a key that is at `found` or nowhere. No hits make no key, nor do others when there
    /// is no room.
    pub(in crate::store) fn hit(
        &mut self,
        hit: &Hit<'_>,
        found: Option<u32>,
        context: &mut Context<'_>,
    ) -> Result<u64, HitError> {
        let found = found.and_then(|place| self.alive(place, context));
        let class = self.class_of(hit.key, found, context);
        if let Some(at) = hit.at {
            let (frame, settings) = context.frame(class, self.now);
            frame.check(at, settings)?;
        }
        let place = match found {
            Some(place) => place,
            None if hit.weight == 0 => return Ok(0),
            None => match context.ceiling_bytes {
                Some(ceiling_bytes) => return Err(HitError::OutOfMemory { ceiling_bytes }),
                None => self.add_slot(hit.key, hit.hash, class, context),
            },
        };
        let slot = self.slots.get_mut(place).expect("the key is there by now");
        let (frame, settings) = context.frame(class, self.now);
        let counted = slot.count(hit, frame, settings, &mut self.bytes);
        match &counted {
            Ok(_) if hit.weight > 0 => self.record_hit(place, hit, context),
            Err(_) if found.is_none() => self.remove(place),
            _ => {}
        }
        counted
    }

    /// Counts hits that are known to be good, of a key that lives at `place` or is nowhere, and will be asked for its hits
    /// in such a window.
    pub(in crate::store) fn hit_known(
        &mut self,
        hit: &Hit<'_>,
        place: Option<u32>,
        window: Span,
        context: &mut Context<'_>,
    ) {
        const KNOWN: &str = "it was found out before that they can be counted";
        let Some(place) = place else {
            self.hit(hit, None, context).expect(KNOWN);
            return;
        };
        let class = self.slot_mut(place).class;
        let frame = context.frame(class, self.now).0.of_limit(window);
        if hit.at.is_some() || self.short_hit(place, hit.weight, &frame).is_none() {
            let add = |entry: &mut Entry, settings: &Settings, now| {
                entry.add(hit.at.unwrap_or(now), hit.weight, settings, now)
            };
            self.change(place, context.classes, add).expect(KNOWN);
        }
        self.record_hit(place, hit, context);
    }

    /// Records that hits were counted, just now.
    #[inline(always)]
    pub(in crate::store) fn record_hit(&mut self, place: u32, hit: &Hit<'_>, context: &mut Context<'_>) {
        if let Some(batch) = context.deltas.as_deref_mut() {
            self.push_hits(place, hit, batch);
        }
    }

    fn push_hits(&mut self, place: u32, hit: &Hit<'_>, batch: &mut DeltaBatch) {
        let (next, at) = (self.next_sequence(), hit.at.unwrap_or(self.now));
        let number = batch.push_hits(next, hit.key, self.generation_at(place), at, hit.weight);
        self.number = self.number.max(number);
    }
}
