//! What a clock that was ahead wrote, brought back to another: nobody is locked out for years, and no key is kept for
//! years, because a clock was wrong once.
//!
//! When the hits came is not known. They count as of now, so that no limit admits more than it should. What was to
//! end a while after it was written ends as long after now.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::guard::Guard;
use crate::delta::{Beside, Delta};
use crate::gcra::Arrival;
use crate::time::Timestamp;

/// Where times that are too late are turned back to.
#[derive(Debug)]
pub(super) struct Latest {
    latest_ms: AtomicI64,
    now_ms: AtomicI64,
}

impl Default for Latest {
    fn default() -> Latest {
        Latest { latest_ms: AtomicI64::new(i64::MAX), now_ms: AtomicI64::new(0) }
    }
}

/// By how much times are turned back, and to when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    by_ms: i64,
    now: Timestamp,
}

impl Store {
    /// Repairs data of a clock that was ahead. `turn` is `(latest, now)`: from here on, times of data that is loaded and
    /// was written after `latest` are shifted back to `now`. `None` ends that.
    pub fn turn_back(&self, turn: Option<(Timestamp, Timestamp)>) {
        let (latest_ms, now_ms) =
            turn.map_or((i64::MAX, 0), |(latest, now)| (latest.as_millis(), now.as_millis()));
        self.latest.now_ms.store(now_ms, Relaxed);
        self.latest.latest_ms.store(latest_ms, Relaxed);
    }

    /// The time that takes the place of one at which something was written, and by how much others are turned back.
    pub(super) fn turned(&self, written: Timestamp) -> (Timestamp, Option<Turn>) {
        if written.as_millis() <= self.latest.latest_ms.load(Relaxed) {
            return (written, None);
        }
        let now = Timestamp::from_millis(self.latest.now_ms.load(Relaxed)).unwrap_or(Timestamp::MIN);
        (now, Some(Turn { by_ms: written.as_millis() - now.as_millis(), now }))
    }
}

impl Turn {
    /// A time that was in the past.
    fn past(self, at: Timestamp) -> Timestamp {
        at.min(self.now)
    }

    /// A time that was in the future. One that was in the past is one that is over by now.
    fn future(self, until: Timestamp) -> Timestamp {
        Timestamp::from_millis((until.as_millis() - self.by_ms).max(0)).unwrap_or(Timestamp::MIN)
    }

    fn arrival(self, arrival: Arrival) -> Arrival {
        let (millis, ticks) = arrival.to_parts();
        match millis.checked_sub(self.by_ms.unsigned_abs()) {
            Some(millis) => Arrival::from_parts(millis, ticks),
            None => Arrival::default(),
        }
    }

    fn guard(self, guard: Guard) -> Guard {
        Guard { until: self.future(guard.until), ..guard }
    }

    pub(super) fn beside(self, beside: Beside<'_>) -> Beside<'_> {
        Beside {
            limited_until: beside.limited_until.map(|until| self.future(until)),
            arrival: self.arrival(beside.arrival),
            guard: beside.guard.map(|guard| self.guard(guard)),
            denied: beside.denied,
        }
    }

    /// A change, but for the entries of keys that are restored.
    pub(super) fn delta(self, delta: Delta<'_>) -> Delta<'_> {
        match delta {
            Delta::Hits { key, generation, at, hits } => {
                Delta::Hits { key, generation, at: self.past(at), hits }
            }
            Delta::Denied { key, generation, at, hits } => {
                Delta::Denied { key, generation, at: self.past(at), hits }
            }
            Delta::Limited { key, generation, until } => {
                Delta::Limited { key, generation, until: self.future(until) }
            }
            Delta::Arrival { key, generation, arrival } => {
                Delta::Arrival { key, generation, arrival: self.arrival(arrival) }
            }
            Delta::Guarded { key, generation, guard } => {
                Delta::Guarded { key, generation, guard: self.guard(guard) }
            }
            Delta::Restored { key, generation, beside, entry } => {
                Delta::Restored { key, generation, beside: self.beside(beside), entry }
            }
            Delta::Forget { .. } | Delta::Flush { .. } | Delta::Position { .. } | Delta::Void => delta,
        }
    }
}
