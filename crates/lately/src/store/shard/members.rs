//! The distinct members of keys.

use super::super::context::{Context, Hit};
use super::Shard;
use crate::class::Classes;
use crate::count::Count;
use crate::delta::Delta;
use crate::error::HitError;
use crate::machine::prefetch;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::uniques::{Member, Uniques};

impl Shard {
    /// Checks that the class of a key counts distinct members. The key is at `place`, or does not exist.
    pub(in crate::store) fn check_unique(
        &self,
        key: &[u8],
        place: Option<u32>,
        context: &Context<'_>,
    ) -> Result<(), HitError> {
        let class = self.class_of(key, place, context);
        if context.classes.settings(class).unique() { Ok(()) } else { Err(HitError::NoMembers) }
    }

    /// Prefetches the members of the key at `place`, one level at a time: where they are, what holds them, and the recent ones.
    pub(in crate::store) fn prefetch_members(&self, place: u32, level: usize) {
        match level {
            0 => self.side.places.prefetch_uniques(place),
            1 => self.side.places.uniques(place).into_iter().for_each(|uniques| prefetch(uniques)),
            _ => self.side.places.uniques(place).into_iter().for_each(Uniques::prefetch),
        }
    }

    /// Adds the member of hits that were just counted. The key most likely is at `guess`.
    pub(in crate::store) fn add_member(
        &mut self,
        hit: &Hit<'_>,
        member: Member,
        guess: Option<u32>,
        context: &mut Context<'_>,
    ) {
        let place = self.place_near(guess, hit.key, hit.hash).expect("it was just hit");
        let at = hit.at.unwrap_or(self.now);
        self.change_members(place, context.classes, |members, settings, now| {
            members.add(member, at, settings, now);
        });
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::Member { key: hit.key, generation, at, member }
        });
    }

    /// The distinct members of a key in a window that ends now, with those that others have counted. The key is at `place`, or does not exist.
    pub(in crate::store) fn unique(
        &mut self,
        key: &[u8],
        place: Option<u32>,
        (window, others): (Option<Span>, Option<&Uniques>),
        context: &mut Context<'_>,
    ) -> Result<Count, HitError> {
        let place = place.and_then(|place| self.alive(place, context));
        self.check_unique(key, place, context)?;
        let settings = context.classes.settings(self.class_of(key, place, context));
        let (window, now) = (window.unwrap_or(settings.window()), self.now);
        let own = place.and_then(|place| self.side.places.uniques(place));
        Ok(match (own, others) {
            (Some(own), Some(others)) => {
                let mut all = own.clone();
                all.absorb(others.clone(), settings, now);
                all.count(window, settings, now)
            }
            (Some(members), None) | (None, Some(members)) => members.count(window, settings, now),
            (None, None) => Uniques::default().count(window, settings, now),
        })
    }

    /// The members of the key at `place`, encoded. Empty if it has none.
    pub(in crate::store) fn write_members(&self, place: u32, classes: &Classes) -> Vec<u8> {
        let mut out = Vec::new();
        if let (Some(members), Some(slot)) = (self.side.places.uniques(place), self.slot_at(place)) {
            members.write(classes.settings(slot.class), &mut out);
        }
        out
    }

    /// When the first of the members of the key at `place` was counted. The epoch if that is not known.
    pub(in crate::store) fn members_since(&self, place: u32) -> Timestamp {
        self.side.places.uniques(place).map_or(Timestamp::MIN, Uniques::since)
    }

    /// Removes the members of a key that were hit until a time.
    pub(in crate::store) fn drop_members(
        &mut self,
        (key, hash): (&[u8], u64),
        until: Timestamp,
        context: &mut Context<'_>,
    ) {
        let Some(place) = self.live_place(key, hash, context) else { return };
        if self.side.places.uniques(place).is_none() {
            return;
        }
        let classes = context.classes;
        self.change_members(place, classes, |members, _, _| members.drop_until(until));
        self.tidy_members(place, classes);
        self.record_change(context, |shard| {
            let generation = shard.generation_at(place);
            Delta::MembersDropped { key, generation, until }
        });
    }

    /// Replays a member of counted hits. It changes nothing if the key does not exist.
    pub(in crate::store) fn put_member_back(
        &mut self,
        (key, hash): (&[u8], u64),
        at: Timestamp,
        member: Member,
        context: &mut Context<'_>,
    ) {
        let Some(place) = self.live_place(key, hash, context) else { return };
        if self.check_unique(key, Some(place), context).is_ok() {
            self.change_members(place, context.classes, |members, settings, now| {
                members.add(member, at, settings, now);
            });
        }
    }

    /// Gives the key at `place` these members, beside those that it has.
    pub(super) fn give_members(&mut self, place: u32, given: Option<Box<Uniques>>, context: &Context<'_>) {
        let Some(mut given) = given else { return };
        let is_clock_repaired = context.is_clock_repaired;
        self.change_members(place, context.classes, |members, settings, now| {
            if is_clock_repaired {
                given.end_by(now, settings);
            }
            if members.is_empty() {
                *members = *given;
            } else {
                members.absorb(*given, settings, now);
            }
        });
        self.tidy_members(place, context.classes);
    }

    /// Drops the members of the key at `place` that are older than its retention.
    pub(super) fn tidy_members(&mut self, place: u32, classes: &Classes) {
        if self.side.places.uniques(place).is_none() {
            return;
        }
        let is_empty = self.change_members(place, classes, Uniques::tidy);
        if is_empty {
            self.remove_members(place);
        }
    }

    /// Removes all members of the key at `place`.
    pub(super) fn remove_members(&mut self, place: u32) {
        _ = self.side.places.take_uniques(place);
        self.account_side_tables();
    }

    /// Changes the members of the key at `place`, and updates the account.
    fn change_members<T>(
        &mut self,
        place: u32,
        classes: &Classes,
        change: impl FnOnce(&mut Uniques, &Settings, Timestamp) -> T,
    ) -> T {
        let (now, places) = (self.now, self.slots.places());
        let settings = classes.settings(self.slot_mut(place).class);
        let result = self.side.places.change_uniques(place, places, |members| change(members, settings, now));
        self.account_side_tables();
        result
    }
}
