//! Requests that are to stay within a limit: decided and counted under one lock.

use super::batch::Request;
use super::check_key;
use super::context::Hit;
use super::turn::Turn;
use crate::entry::{Entry, LimitWindow};
use crate::error::LimitError;
use crate::limit::{Decision, Retry};
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

impl Turn<'_> {
    /// Decides on a request for a key of the shard that is locked, and is at `place` or nowhere; if it is
    /// allowed its hits are counted.
    #[inline(never)]
    pub(super) fn limit(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        place: Option<u32>,
    ) -> Result<Decision, LimitError> {
        let &Request { key, max, window, cost, at, is_peek, lockout } = request;
        check_key(key)?;
        let (locked, context) = self.parts();
        let mut place = place.and_then(|place| locked.alive(place, context));
        let class = locked.class_of(key, place, context);
        let (frame, settings) = context.frame(class, locked.now());
        if let Some(at) = at {
            frame.check(at, settings)?;
        }
        if window > settings.retain() {
            return Err(LimitError::Window { window, retain: settings.retain() });
        }
        let counts = !is_peek && cost > 0;
        let mut has_room = true;
        if place.is_none() && counts && cost <= max {
            // Before it is decided: others go without the lock, and somebody may hit the key meanwhile.
            (has_room, place) = self.room_for(key, hash);
        }
        let (locked, context) = self.parts();
        let now = locked.now();
        let at = at.unwrap_or(now);
        if let Some(place) = place.filter(|_| !is_peek) {
            locked.keep_moments(place, context.classes);
        }
        let locked_until = place.and_then(|_| locked.limited_until(key, hash)).filter(|&until| until > at);
        let window = LimitWindow::ending_at(at, window, settings, now);
        let decision = decide(request, locked.entry_at(place), window, settings);
        if let Some(until) = locked_until {
            return Ok(locked_out(decision, at, until));
        }
        if let (Retry::After(_), Some(lockout), false) = (decision.retry, lockout, is_peek) {
            let until = at.saturating_add(lockout);
            locked.limit_until(key, hash, until, context);
            return Ok(locked_out(decision, at, until));
        }
        if !counts || !decision.is_allowed() {
            return Ok(decision);
        }
        self.hit_when(has_room, &Hit { key, hash, weight: cost, at: request.at }, place)?;
        let (locked, _) = self.parts();
        let place = locked.place_near(place, key, hash);
        let reset_after = locked.entry_at(place).and_then(|entry| entry.until_at_most(0, window, settings));
        Ok(Decision { remaining: decision.remaining - cost, reset_after, ..decision })
    }
}

/// Decides on a request for a key with these hits, if it has any.
fn decide(
    request: &Request<'_>,
    entry: Option<&Entry>,
    window: LimitWindow,
    settings: &Settings,
) -> Decision {
    let &Request { max, cost, .. } = request;
    let used = entry.map_or(0, |entry| entry.used(window, settings));
    let until_at_most = |most| entry.and_then(|entry| entry.until_at_most(most, window, settings));
    let retry = match max.checked_sub(cost) {
        None => Retry::Never,
        Some(most) if used <= most => Retry::Now,
        Some(most) => until_at_most(most).map_or(Retry::Now, Retry::After),
    };
    Decision { max, remaining: max.saturating_sub(used), retry, reset_after: until_at_most(0) }
}

/// What a decision becomes when the key is locked out: nothing is left before `until`.
fn locked_out(decision: Decision, at: Timestamp, until: Timestamp) -> Decision {
    let left = Span::from_millis(until.as_millis() - at.as_millis());
    let retry = match decision.retry {
        Retry::Never => Retry::Never,
        Retry::After(wait) => Retry::After(left.map_or(wait, |left| left.max(wait))),
        Retry::Now => left.map_or(Retry::Now, Retry::After),
    };
    Decision { remaining: 0, retry, reset_after: left.max(decision.reset_after), ..decision }
}
