//! Limits of one window. [`decide`] is the rule. `LIMIT`, `MLIMIT` and named limits call it, on the fast path
//! and on the general path. The rest of this file reads the state that it needs, and applies its effect under
//! the key's lock.

use super::cached_denial::CachedDenial;
use super::context::{Context, Hit};
use super::executor::Executor;
use super::key::check_key;
use super::operation::Request;
use super::shard::Shard;
use crate::entry::{Entry, LimitWindow, until_at_most_of};
use crate::error::{HitError, LimitError};
use crate::limit::{Admission, Decision, Retry, remaining_of};
use crate::lockout::{Lockout, PastLockout, StartedLockout};
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// A request for one limit: `cost` hits at `at`, of at most `max` hits in the window that ends there.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) max: u64,
    pub(super) cost: u64,
    pub(super) at: Timestamp,
    pub(super) window: Span,
    pub(super) is_peek: bool,
    pub(super) is_shadow: bool,
    pub(super) lockout: Option<Lockout>,
    pub(super) admission: Admission,
}

impl Asked {
    /// A request of now that counts its hits if it is allowed.
    #[inline]
    pub(super) fn now(max: u64, cost: u64, window: Span, now: Timestamp) -> Asked {
        let admission = Admission::Whole;
        Asked { max, cost, at: now, window, is_peek: false, is_shadow: false, lockout: None, admission }
    }
}

/// What a limit of one window needs to know of a key.
#[derive(Clone, Copy)]
pub(super) struct WindowState<'a> {
    /// The hits, to compute how long a denied request must wait. `None` if there are none, and on the fast
    /// path, which leaves denials to the general path.
    pub(super) entry: Option<&'a Entry>,
    /// The hits of other nodes on the key, if there are any.
    pub(super) others: Option<&'a Entry>,
    pub(super) settings: &'a Settings,
    /// The hits that count in the window.
    pub(super) used: u64,
    /// The end of the key's lockout.
    pub(super) locked_until: Option<Timestamp>,
    /// The key's last lockout. Only requests that start lockouts need it.
    pub(super) past: Option<PastLockout>,
    pub(super) now: Timestamp,
}

/// What happens to the hits of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Nothing,
    Count,
    Deny,
}

/// The changes of a key that a decision causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Effect {
    pub(super) change: Change,
    /// The hits that the limit still allows afterwards; the eviction guard depends on it. `None` leaves the
    /// guard as it is.
    pub(super) left: Option<u64>,
    /// The lockout that starts now.
    pub(super) lockout: Option<StartedLockout>,
    /// The denial to cache. It is valid until hits are counted.
    pub(super) denial: Option<CachedDenial>,
}

/// Decides a request. A pure function.
///
/// If hits must be counted, `reset_after` is `None`: the caller computes it after counting, with
/// [`reset_after`].
#[inline(always)]
pub(super) fn decide(state: &WindowState<'_>, asked: &Asked) -> (Decision, Effect) {
    let &Asked { max, cost, at, window, is_peek, is_shadow, lockout, admission } = asked;
    let is_exempt = admission == Admission::Exempt;
    let needed = admission.needs(cost);
    // A request with a time ahead of the clock cannot be after a lockout that is still in force.
    let locked_until = state.locked_until.filter(|&until| until > at.min(state.now) && needed.is_some());
    // The limit that an exempt key exceeds denies nothing, so it does not protect the key from eviction.
    let left = |used: u64| (!is_exempt).then_some(max.saturating_sub(used));
    let nothing = Effect {
        change: Change::Nothing,
        left: left(state.used).filter(|_| is_peek),
        lockout: None,
        denial: None,
    };
    let retry = match needed.map(|needed| max.checked_sub(needed)) {
        None => Retry::Now,
        Some(None) => Retry::Never,
        Some(Some(most)) if state.used <= most => Retry::Now,
        Some(Some(most)) => Retry::After(until_at_most(state, most, asked).unwrap_or(window)),
    };
    if retry == Retry::Now && locked_until.is_none() {
        if is_peek || cost == 0 {
            let reset_after = reset_after(state, asked);
            return (Decision { max, remaining: remaining(state, asked), retry, reset_after }, nothing);
        }
        let used = state.used.saturating_add(cost);
        let effect = Effect { change: Change::Count, left: left(used), ..nothing };
        let remaining = remaining(&WindowState { used, ..*state }, asked);
        return (Decision { max, remaining, retry, reset_after: None }, effect);
    }
    let (remaining, reset_after) = (remaining(state, asked), reset_after(state, asked));
    let denied = Decision { max, remaining, retry, reset_after };
    let denies = !is_peek && !is_shadow;
    // A lockout is not extended by a request during it.
    let lockout = lockout.filter(|_| denies && locked_until.is_none());
    let lockout = lockout.map(|lockout| lockout.start(at, state.past));
    let effect = if denies {
        // The hits of other nodes may change at any time, so a denial by them is not cached.
        let is_cached = state.others.is_none()
            && cost == 1
            && admission == Admission::Whole
            && at == state.now
            && locked_until.is_none()
            && lockout.is_none();
        let denial = if is_cached { CachedDenial::of(&denied, window, at) } else { None };
        Effect { change: Change::Deny, left: left(state.used), lockout, denial }
    } else {
        nothing
    };
    match locked_until.or(lockout.map(|lockout| lockout.until)) {
        Some(until) => (locked_out(denied, at.min(state.now), until), effect),
        None => (denied, effect),
    }
}

/// The remaining hits of a limit.
#[inline(always)]
fn remaining(state: &WindowState<'_>, asked: &Asked) -> i64 {
    match asked.max.checked_sub(state.used) {
        Some(left) => remaining_of(left),
        None if matches!(asked.admission, Admission::Overdraft | Admission::Spent) => {
            -remaining_of(state.used - asked.max)
        }
        None => 0,
    }
}

/// The time from the request until at most `most` hits of its window count.
fn until_at_most(state: &WindowState<'_>, most: u64, asked: &Asked) -> Option<Span> {
    let window = LimitWindow::ending_at(asked.at, asked.window, state.now);
    let (Some(own), Some(others)) = (state.entry, state.others) else {
        return state.entry.or(state.others)?.until_at_most(most, state.used, window, state.settings);
    };
    until_at_most_of([own, others], most, window, state.settings)
}

/// The time from the request until no hit counts. `None` if none counts now.
fn reset_after(state: &WindowState<'_>, asked: &Asked) -> Option<Span> {
    let window = LimitWindow::ending_at(asked.at, asked.window, state.now);
    let until_none = |entry: &Entry| entry.until_none(window, state.settings);
    state.entry.and_then(until_none).max(state.others.and_then(until_none))
}

impl Shard {
    /// The settings of a key. An error if a limit with this time and window cannot be decided.
    pub(super) fn settings_to_decide<'a>(
        &self,
        (key, place): (&[u8], Option<u32>),
        at: Option<Timestamp>,
        window: Span,
        context: &mut Context<'a>,
    ) -> Result<&'a Settings, LimitError> {
        let class = self.class_of(key, place, context);
        let (frame, settings) = context.frame(class, self.now());
        if let Some(at) = at {
            frame.check(at, settings)?;
        }
        if window > settings.retain() {
            return Err(LimitError::Window { window, retain: settings.retain() });
        }
        if let Some(at) = at {
            // Hits before that window may have left the retention.
            let most_ms = settings.retain().as_millis() - (self.now().as_millis() - at.as_millis());
            if window.as_millis() > most_ms {
                return Err(LimitError::WindowThen { window, at, most: Span::from_millis(most_ms) });
            }
        }
        Ok(settings)
    }

    /// What a limit needs to know of a key. The key is at `place`, or does not exist.
    pub(super) fn window_state<'a>(
        &'a self,
        place: Option<u32>,
        others: Option<&'a Entry>,
        asked: &Asked,
        settings: &'a Settings,
    ) -> WindowState<'a> {
        let entry = self.entry_at(place);
        let window = LimitWindow::ending_at(asked.at, asked.window, self.now());
        let used = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.used(window, settings));
        WindowState {
            entry,
            others,
            settings,
            used: used(entry).saturating_add(used(others)),
            locked_until: place.and_then(|place| self.limit_at(place)),
            past: place.and_then(|place| self.past_lockout_at(place)),
            now: self.now(),
        }
    }

    /// The time until none of the current hits counts.
    pub(super) fn reset_after(
        &self,
        place: Option<u32>,
        others: Option<&Entry>,
        asked: &Asked,
        settings: &Settings,
    ) -> Option<Span> {
        reset_after(&self.window_state(place, others, asked, settings), asked)
    }
}

impl Executor<'_> {
    /// Decides a request for a key of the locked shard. The key is at `place`, or does not exist. Counts the
    /// hits of an allowed request as hits, and those of a denied one as denied.
    #[inline(never)]
    pub(super) fn limit(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        place: Option<u32>,
    ) -> Result<Decision, LimitError> {
        let &Request { key, max, window, cost, at, is_peek, is_shadow, lockout, admission } = request;
        check_key(key)?;
        let (locked, context) = self.parts();
        let mut place = place.and_then(|place| locked.alive(place, context));
        let settings = locked.settings_to_decide((key, place), at, window, context)?;
        let counts = !is_peek && cost > 0;
        let mut has_room = true;
        let may_fit = admission.needs(cost).is_none_or(|needed| needed <= max);
        if place.is_none() && counts && (may_fit || lockout.is_some()) {
            // Evict before the decision: eviction unlocks the shard, and another thread may hit the key
            // meanwhile.
            (has_room, place) = self.room_for((key, hash), None);
        }
        let hit = Hit { key, hash, weight: cost, at, limit_window: Some(window) };
        let others = self.store().hits_of_others(key, hash, self.now());
        let others = others.as_deref();
        let (locked, context) = self.parts();
        if let Some(place) = place.filter(|_| !is_peek) {
            locked.keep_moments(place, context.classes);
        }
        let at = at.unwrap_or(locked.now());
        let asked = Asked { max, cost, at, window, is_peek, is_shadow, lockout, admission };
        let (mut decision, mut effect) =
            decide(&locked.window_state(place, others, &asked, settings), &asked);
        if effect.change == Change::Count && self.is_far_over() {
            // This unlocks the shard, and another thread may hit the key meanwhile.
            self.may_grow(key, hash)?;
            place = self.shard(hash).place_near(place, key, hash);
            (decision, effect) =
                decide(&self.parts().0.window_state(place, others, &asked, settings), &asked);
        }
        match effect.change {
            Change::Nothing => {}
            Change::Count => {
                self.count_hit(has_room, &hit, place)?;
                // An existing key has not moved.
                place = place.or_else(|| self.parts().0.place_of(key, hash));
                decision.reset_after = self.parts().0.reset_after(place, others, &asked, settings);
            }
            Change::Deny => place = self.deny(&hit, place),
        }
        let (locked, context) = self.parts();
        if let Some(left) = effect.left {
            locked.guard_limit(place, (left, max), window, context);
        }
        if let Some(lockout) = effect.lockout {
            // A key that has no room cannot be locked out, so the request fails.
            if let (None, Some(full)) = (place, context.full) {
                return Err(HitError::from(full).into());
            }
            locked.lock_out(key, hash, lockout, context);
        }
        if let (Some(place), Some(denial)) = (place, effect.denial)
            && (context.full.is_none() || locked.is_limited_at(place))
        {
            locked.set_denial(place, denial, context.classes);
        }
        Ok(decision)
    }

    /// Gives hits of a key of the locked shard back. The key is at `place`, or does not exist.
    #[inline(never)]
    pub(super) fn refund(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        place: Option<u32>,
    ) -> Result<Decision, LimitError> {
        let &Request { key, max, window, cost, at, is_peek, admission, .. } = request;
        check_key(key)?;
        let (locked, context) = self.parts();
        let mut place = place.and_then(|place| locked.alive(place, context));
        let settings = locked.settings_to_decide((key, place), at, window, context)?;
        let now = locked.now();
        let at = at.unwrap_or(now);
        let limit_window = LimitWindow::ending_at(at, window, now);
        if let Some(given_at) = place.filter(|_| !is_peek) {
            place = locked.give_back(key, given_at, (limit_window, cost), context);
        }
        let others = self.store().hits_of_others(key, hash, now);
        let asked = Asked { at, admission, ..Asked::now(max, 0, window, now) };
        let state = self.parts().0.window_state(place, others.as_deref(), &asked, settings);
        let remaining = remaining(&state, &asked);
        Ok(Decision { max, remaining, retry: Retry::Now, reset_after: reset_after(&state, &asked) })
    }
}

/// The decision for a key that is locked out until `until`. `from` is the time of the request, at most now, and before
/// `until`.
fn locked_out(decision: Decision, from: Timestamp, until: Timestamp) -> Decision {
    // The lockout may be longer than the longest span.
    let left = Span::from_millis(until.as_millis() - from.as_millis()).unwrap_or(Span::MAX);
    let retry = match decision.retry {
        Retry::Never => Retry::Never,
        Retry::After(wait) => Retry::After(left.max(wait)),
        Retry::Now => Retry::After(left),
    };
    let remaining = decision.remaining.min(0);
    Decision { remaining, retry, reset_after: Some(left).max(decision.reset_after), ..decision }
}
