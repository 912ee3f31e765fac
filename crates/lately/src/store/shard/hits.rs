//! How hits enter a shard: by the fast path or the general path.

use std::borrow::Borrow;
use std::hash::BuildHasher;

use super::super::busy::Note;
use super::super::context::{Context, FastPath, Hit};
use super::super::id_owner::Owner;
use super::super::key::check_key;
use super::super::operation::HitOnce;
use super::Shard;
use crate::class::ClassId;
use crate::delta::{CountedId, Delta, DeltaBatch};
use crate::entry::Fetched;
use crate::error::HitError;
use crate::fingerprint::fingerprint;
use crate::frame::Frame;
use crate::machine::prefetch;
use crate::time::{Span, Timestamp};
use crate::window::Window;

impl Shard {
    /// The fast path: counts hits of now if the key is at `place`, lives, and has its hits in the slot or in
    /// a list. Otherwise changes nothing. Without `may_wait`, a key with heap memory is only prefetched. The
    /// caller records the hits.
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
        if !may_wait && slot.state.has_heap() {
            // The caller compares the key later, when its memory has arrived.
            return FastPath::At(place, slot.prefetch());
        }
        if !slot.is(key, &self.side.long_keys) {
            return FastPath::Elsewhere;
        }
        match slot.fast_hit(weight, frame(slot.class, now).borrow()) {
            Some((hits, more)) => {
                self.bytes += more;
                FastPath::Done(hits)
            }
            None => FastPath::At(place, Fetched::Nothing),
        }
    }

    /// The place where the key with this hash most likely is.
    #[inline(always)]
    pub(in crate::store) fn guess(&mut self, hash: u64) -> Option<u32> {
        self.slots.near(hash).map(|(place, _)| place)
    }

    /// The place of the key. `None` if it does not exist, or its slot must be moved first.
    #[inline(never)]
    pub(in crate::store) fn place_of_moved(&self, key: &[u8], hash: u64) -> Option<u32> {
        self.slots.find_moved(hash, |slot| slot.is(key, &self.side.long_keys))
    }

    /// The general path: counts hits of a key that is at `found`, or creates the key if it does not exist. A
    /// weight of 0 creates no key, nor does a full store.
    pub(in crate::store) fn hit(
        &mut self,
        hit: &Hit<'_>,
        found: Option<u32>,
        context: &mut Context<'_>,
    ) -> Result<u64, HitError> {
        let found = found.and_then(|place| self.alive(place, context));
        if found.is_none() {
            check_key(hit.key)?;
        }
        let class = self.class_of(hit.key, found, context);
        if let Some(at) = hit.at {
            let (frame, settings) = context.frame(class, self.now);
            frame.check(at, settings)?;
        }
        let place = match found {
            Some(place) => place,
            None if hit.weight == 0 => return Ok(0),
            None => match context.full {
                Some(full) => return Err(full.into()),
                None => self.add_slot(hit.key, hit.hash, class, context),
            },
        };
        let slot = self.slots.get_mut(place).expect("the key is there by now");
        let (frame, settings) = context.frame(class, self.now);
        let counted = slot.count(hit, frame, settings, &mut self.bytes);
        match &counted {
            Ok(_) if hit.weight > 0 => {
                self.record_hit(place, hit, context);
                self.note_busy(place, hit, context);
            }
            Err(_) if found.is_none() => self.remove(place),
            _ => {}
        }
        counted
    }

    /// Counts hits with an id like [`Shard::hit`], unless hits of the key with this id are known whose time differs by less
    /// than the span of the class. Then they count nothing.
    pub(in crate::store) fn hit_once(
        &mut self,
        hit: &Hit<'_>,
        id: &[u8],
        found: Option<u32>,
        context: &mut Context<'_>,
    ) -> Result<u64, HitError> {
        HitOnce::check_id(id)?;
        let found = found.and_then(|place| self.alive(place, context));
        let class = self.class_of(hit.key, found, context);
        let dedupe = context.frame(class, self.now).1.dedupe();
        let span = dedupe.ok_or(HitError::NoDedupe)?;
        let at = hit.at.unwrap_or(self.now);
        let print = found.and_then(|place| self.print_of(place, id));
        let is_known = found
            .zip(print)
            .is_some_and(|(place, print)| self.has_print(place, (id, print), (at, span), context));
        let weight = if is_known { 0 } else { hit.weight };
        context.is_repeated = is_known;
        let counted = self.hit(&Hit { weight, ..*hit }, found, context)?;
        if is_known && hit.weight > 0 {
            // So that the answer waits until the hits that it repeats are written.
            self.record_change(context, |_| Delta::Void);
        }
        if weight > 0 {
            let place = self.place_near(found, hit.key, hit.hash).expect("it was just hit");
            let owner = self.owner_at(place);
            let fingerprint = print.unwrap_or_else(|| fingerprint(owner.salt, id));
            let kept_from = at.max(self.now);
            let until_ms = kept_from.as_millis() + span.as_millis() - 1;
            let until = Timestamp::from_millis(until_ms).unwrap_or(Timestamp::MAX);
            let id = CountedId { salt: owner.salt, fingerprint, at, until };
            self.change_ids(context.ids, |ids, known| ids.insert_new(owner, id, known));
            self.record_change(context, |shard| {
                let generation = shard.generation_at(place);
                Delta::Id { key: hit.key, generation, id }
            });
        }
        Ok(counted)
    }

    /// Whether hits of the key at `place` with this id are known whose time differs by less than the span.
    pub(in crate::store) fn has_id(
        &self,
        place: u32,
        id: &[u8],
        (at, span): (Timestamp, Span),
        context: &Context<'_>,
    ) -> bool {
        self.print_of(place, id).is_some_and(|print| self.has_print(place, (id, print), (at, span), context))
    }

    /// Like [`Shard::has_id`], with the fingerprint of the id.
    fn has_print(
        &self,
        place: u32,
        (id, print): (&[u8], u64),
        (at, span): (Timestamp, Span),
        context: &Context<'_>,
    ) -> bool {
        let (ids, known) = (&self.side.ids, context.ids.known(self.now));
        let has = |owner, print| ids.has((owner, print), at, span.as_millis(), known);
        let owner = self.side.places.owner(place);
        has(owner, print) || ids.joined_to(owner).any(|other| has(other, fingerprint(other.salt, id)))
    }

    /// The fingerprint of an id of the key at `place`, if the key has ids.
    fn print_of(&self, place: u32, id: &[u8]) -> Option<u64> {
        let owner = Some(self.side.places.owner(place)).filter(|&owner| owner != Owner::NONE)?;
        Some(fingerprint(owner.salt, id))
    }

    /// The owner of the ids of the key at `place`. Its first id makes it.
    fn owner_at(&mut self, place: u32) -> Owner {
        let known = self.side.places.owner(place);
        if known != Owner::NONE {
            return known;
        }
        // Nobody sees the salt, nor a hash of it that could be compared.
        let salt = self.side.hasher.hash_one((self.part, self.side.owners)).max(1);
        let owner = self.new_owner(salt);
        self.set_owner(place, owner);
        owner
    }

    /// An owner without ids.
    pub(super) fn new_owner(&mut self, salt: u64) -> Owner {
        self.side.owners = self.side.owners.wrapping_add(1).max(1);
        Owner { number: self.side.owners, salt }
    }

    /// Sets the owner of the ids of the key at `place`.
    pub(super) fn set_owner(&mut self, place: u32, owner: Owner) {
        let places = self.slots.places();
        if owner == Owner::NONE {
            self.side.places.set_owner(place, owner);
        } else {
            self.side.places.set_first_owner(place, owner, places);
            self.account_side_tables();
        }
    }

    /// Prefetches the owner of the ids of the key at `place`, and where the buckets of ids are.
    pub(in crate::store) fn prefetch_owner(&self, place: u32) {
        prefetch(&raw const self.side.ids);
        self.side.places.prefetch_owner(place);
    }

    /// The fingerprint of an id of the key at `place`, if the key has ids. Prefetches where its bucket is.
    pub(in crate::store) fn prefetch_id(&self, place: u32, id: &[u8]) -> Option<u64> {
        let fingerprint = self.print_of(place, id)?;
        self.side.ids.prefetch(fingerprint);
        Some(fingerprint)
    }

    /// Appends the counted hits to the change record, if there is one, and marks the key as unsent, if such keys are marked.
    #[inline(always)]
    pub(in crate::store) fn record_hit(&mut self, place: u32, hit: &Hit<'_>, context: &mut Context<'_>) {
        if context.is_tracked {
            self.note_unsent(place, hit.at);
        }
        if let Some(batch) = context.deltas.as_deref_mut() {
            self.push_hits(place, hit, batch);
        }
    }

    /// Notes the key of counted hits as busy, if it may be.
    #[inline]
    pub(super) fn note_busy(&self, place: u32, hit: &Hit<'_>, context: &mut Context<'_>) {
        if context.busy.is_some() {
            self.note_if_busy(place, hit, context);
        }
    }

    fn note_if_busy(&self, place: u32, hit: &Hit<'_>, context: &mut Context<'_>) {
        let Some(slot) = self.slots.get(place) else { return };
        let (class, entry, now) = (slot.class, slot.state.hits(), self.now);
        let (from, at) = (context.busy_from(class, now), hit.at.unwrap_or(now));
        let Some(busy) = context.busy.filter(|_| from < u64::MAX) else { return };
        let settings = context.classes.settings(class);
        let (width_ms, panes) = (settings.resolution().as_millis(), settings.panes_in(settings.window()));
        let pane = settings.pane_of(at.as_millis());
        let is_of_now = pane.div_euclid(panes) == settings.pane_of(now.as_millis()).div_euclid(panes);
        if from > 0 && is_of_now {
            if entry.total() < from || busy.is_marked(class, hit.hash, now, settings) {
                return;
            }
            // Every window that the hit is in is in this one.
            let first_ms = ((pane - panes + 1) * width_ms).max(settings.retention_edge_ms(now));
            let around = Window::between(first_ms, (pane + panes) * width_ms, settings, now);
            if entry.count_window(&around, settings).upper.is_some_and(|most| most < from) {
                return;
            }
        }
        // Hits of other epochs are looked at later, among those of their own.
        context.noted.push(Note::new(hit.key, class, at));
    }

    fn push_hits(&mut self, place: u32, hit: &Hit<'_>, batch: &mut DeltaBatch) {
        let (next, at) = (self.next_sequence(), hit.at.unwrap_or(self.now));
        let number = batch.push_hits(next, hit.key, self.generation_at(place), at, hit.weight);
        self.number = self.number.max(number);
    }
}
