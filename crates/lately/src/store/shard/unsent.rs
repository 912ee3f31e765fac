//! The marks of keys of a shard that have hits which were not sent.

use super::super::unsent::{
    FINEST, LATE, NOW, OLD, Since, Taken, Times, Unsent, UnsentKey, Visit, WIDE_LATE,
};
use super::Shard;
use crate::class::Classes;
use crate::limits::WIDE_CELLS_EVERY_MS;
use crate::time::Timestamp;

impl Shard {
    /// Marks a key with hits that are to be sent.
    #[inline]
    pub(in super::super) fn note_unsent(&mut self, place: u32, at: Option<Timestamp>) {
        let now = self.now();
        if let Some(unsent) = self.places_mut().unsent_mut() {
            unsent.note(place, at, now);
        }
    }

    pub(in super::super) fn track_unsent(&mut self) {
        self.move_all();
        let unsent = Unsent::new(self.places(), self.now());
        self.places_mut().track_unsent(unsent);
        self.publish_again();
        self.account_side_tables();
    }

    pub(in super::super) fn unsent_keys(&self) -> usize {
        self.side_places().unsent().map_or(0, |unsent| unsent.marked)
    }

    pub(in super::super) fn take_unsent(
        &mut self,
        most: usize,
        with_wider: bool,
        classes: &Classes,
        mut visit: impl FnMut(UnsentKey<'_>),
    ) -> Option<Taken> {
        self.move_all();
        let now = self.now();
        let unsent = self.places_mut().unsent_mut()?;
        let since = unsent.since;
        let is_due = now.as_millis() - since.wider_ms >= WIDE_CELLS_EVERY_MS;
        let begun = Visit { begun_ms: now.as_millis(), has_wider: is_due || with_wider, next: 0 };
        let mut under_way = unsent.visit.unwrap_or(begun);
        if with_wider && !under_way.has_wider {
            under_way = Visit { has_wider: true, next: 0, ..under_way };
        }
        unsent.late_before_ms = under_way.begun_ms;
        let taken = if under_way.has_wider { FINEST | WIDE_LATE } else { FINEST };
        let mut keys = 0;
        while keys < most {
            let unsent = self.places_mut().unsent_mut()?;
            let Some(place) = unsent.next_marked(under_way.next, taken) else {
                unsent.since.finest_ms = under_way.begun_ms;
                if under_way.has_wider {
                    unsent.since.wider_ms = under_way.begun_ms;
                }
                unsent.visit = None;
                return Some(Taken { keys, is_done: true, since });
            };
            under_way.next = place + 1;
            let mut marks = unsent.take(place, taken) & taken;
            keys += 1;
            let Some(class) = self.slot_at(place).map(|slot| slot.class) else { continue };
            let settings = classes.settings(class);
            let mut times = Times { since, marks, now };
            if settings.levels().has_urgent_wider_cells() {
                // They are sent with each visit, so with those of the finest level.
                marks |= self.places_mut().unsent_mut()?.take(place, WIDE_LATE) & WIDE_LATE;
                times = Times { since: Since { wider_ms: since.finest_ms, ..since }, marks, now };
            }
            let (Some(key), Some(slot)) = (self.key_at(place), self.slot_at(place)) else { continue };
            let (cells, has_older) = times.cells(slot.state.hits(), settings);
            visit(UnsentKey { key, levels: settings.levels().id(), cells, has_older });
        }
        self.places_mut().unsent_mut()?.visit = Some(under_way);
        Some(Taken { keys, is_done: false, since })
    }

    /// Marks keys that were hit since a time.
    pub(in super::super) fn mark_unsent_since(&mut self, since_ms: i64) {
        self.move_all();
        let mut place = 0;
        while place < self.places() {
            if self.slot_at(place).is_some_and(|slot| slot.state.hits().newest_ms() >= since_ms) {
                self.put_back_unsent(place, false, Since { finest_ms: since_ms, wider_ms: since_ms });
            }
            place += 1;
        }
    }

    pub(in super::super) fn put_back_unsent(&mut self, place: u32, has_older: bool, since: Since) {
        if let Some(unsent) = self.places_mut().unsent_mut() {
            unsent.mark(place, NOW | LATE | WIDE_LATE | if has_older { OLD } else { 0 });
            unsent.since.finest_ms = unsent.since.finest_ms.min(since.finest_ms);
            unsent.since.wider_ms = unsent.since.wider_ms.min(since.wider_ms);
            // A visit that is under way comes to it once more.
            if let Some(visit) = &mut unsent.visit {
                visit.next = 0;
            }
        }
    }

    /// Marks a key whose hits may all be unsent.
    pub(in super::super) fn mark_all_unsent(&mut self, key: &[u8], hash: u64) {
        if self.side_places().unsent().is_some()
            && let Some(place) = self.place_of(key, hash)
            && let Some(unsent) = self.places_mut().unsent_mut()
        {
            unsent.mark(place, OLD | LATE | WIDE_LATE);
        }
    }

    pub(in super::super) fn check_unsent(&self) {
        if let Some(unsent) = self.side_places().unsent() {
            unsent.check_consistency();
        }
    }
}
