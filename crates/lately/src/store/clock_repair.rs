//! Repair of data that was written while the clock was ahead. Without it one wrong clock would lock clients
//! out, and keep keys, for years.
//!
//! The true times of the hits are unknown. They count as of now, so that no limit allows too much. Anything
//! with an end keeps its remaining time, counted from now.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::eviction_guard::{EvictionGuard, RateGuard};
use crate::delta::{CountedId, Delta, LimitState};
use crate::gcra::Arrival;
use crate::lockout::PastLockout;
use crate::time::Timestamp;

/// Times later than the latest plausible time are shifted to now.
#[derive(Debug)]
pub(super) struct ClockRepair {
    latest_ms: AtomicI64,
    now_ms: AtomicI64,
}

impl Default for ClockRepair {
    fn default() -> ClockRepair {
        ClockRepair { latest_ms: AtomicI64::new(i64::MAX), now_ms: AtomicI64::new(0) }
    }
}

/// The amount of the shift, and the time it leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockShift {
    by_ms: i64,
    now: Timestamp,
}

impl Store {
    /// From now on, replayed data and [`Store::set_now`] are shifted to `now` if they are later than
    /// `latest`. `None` ends that.
    pub fn repair_clock(&self, shift: Option<(Timestamp, Timestamp)>) {
        let (latest_ms, now_ms) =
            shift.map_or((i64::MAX, 0), |(latest, now)| (latest.as_millis(), now.as_millis()));
        self.clock_repair.now_ms.store(now_ms, Relaxed);
        self.clock_repair.latest_ms.store(latest_ms, Relaxed);
    }

    /// The corrected time of data written at `written`, and the shift for the times in it.
    pub(super) fn repaired(&self, written: Timestamp) -> (Timestamp, Option<ClockShift>) {
        if written.as_millis() <= self.clock_repair.latest_ms.load(Relaxed) {
            return (written, None);
        }
        let now = Timestamp::from_millis(self.clock_repair.now_ms.load(Relaxed)).unwrap_or(Timestamp::MIN);
        (now, Some(ClockShift { by_ms: written.as_millis() - now.as_millis(), now }))
    }
}

impl ClockShift {
    /// A time that was in the past when it was written.
    fn past(self, at: Timestamp) -> Timestamp {
        at.min(self.now)
    }

    /// A time ahead of the wrong clock, moved back by the clock's error. A time that had passed stays passed.
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

    fn guard(self, guard: EvictionGuard) -> EvictionGuard {
        let rate = guard.rate.map(|rate| match rate {
            RateGuard::Until { until, is_full } => RateGuard::Until { until: self.future(until), is_full },
            RateGuard::Burst { .. } => rate,
        });
        EvictionGuard { rate, ..guard }
    }

    fn past_lockout(self, past: PastLockout) -> PastLockout {
        PastLockout { forgotten_at: self.future(past.forgotten_at), ..past }
    }

    pub(super) fn limits(self, limits: LimitState<'_>) -> LimitState<'_> {
        LimitState {
            limited_until: limits.limited_until.map(|until| self.future(until)),
            past: limits.past.map(|past| self.past_lockout(past)),
            arrival: self.arrival(limits.arrival),
            guard: self.guard(limits.guard),
            denied: limits.denied,
            ids: limits.ids,
            members: limits.members,
        }
    }

    /// A shifted change. Does not shift the entries of restored keys.
    pub(super) fn delta(self, delta: Delta<'_>) -> Delta<'_> {
        match delta {
            Delta::Hits { key, generation, at, hits } => {
                Delta::Hits { key, generation, at: self.past(at), hits }
            }
            Delta::Denied { key, generation, at, hits } => {
                Delta::Denied { key, generation, at: self.past(at), hits }
            }
            Delta::GivenBack { key, generation, from, hits, ends_ids } => {
                Delta::GivenBack { key, generation, from: self.past(from), hits, ends_ids }
            }
            Delta::TakenBack { key, generation, from, to, hits } => {
                Delta::TakenBack { key, generation, from: self.past(from), to: self.past(to), hits }
            }
            Delta::Limited { key, generation, until, past } => {
                let past = past.map(|past| self.past_lockout(past));
                Delta::Limited { key, generation, until: self.future(until), past }
            }
            Delta::Arrival { key, generation, arrival } => {
                Delta::Arrival { key, generation, arrival: self.arrival(arrival) }
            }
            Delta::Guarded { key, generation, guard } => {
                Delta::Guarded { key, generation, guard: self.guard(guard) }
            }
            Delta::Id { key, generation, id } => {
                let (at, until) = (self.past(id.at), self.future(id.until));
                Delta::Id { key, generation, id: CountedId { at, until, ..id } }
            }
            Delta::Member { key, generation, at, member } => {
                Delta::Member { key, generation, at: self.past(at), member }
            }
            Delta::MembersDropped { key, generation, until } => {
                Delta::MembersDropped { key, generation, until: self.past(until) }
            }
            Delta::Restored { key, generation, limits, entry } => {
                Delta::Restored { key, generation, limits: self.limits(limits), entry }
            }
            Delta::Forget { .. } | Delta::Flush { .. } | Delta::Position { .. } | Delta::Void => delta,
        }
    }
}
