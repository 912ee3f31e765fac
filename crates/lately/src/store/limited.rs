//! Requests that are to stay within a limit: decided and counted under one lock.

use super::batch::Request;
use super::check_key;
use super::context::Hit;
use super::turn::Turn;
use crate::entry::LimitWindow;
use crate::error::LimitError;
use crate::limit::{Decision, Retry};
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
        let locked_until = place.and_then(|place| locked.limit_at(place)).filter(|&until| until > at);
        let limit_window = LimitWindow::ending_at(at, window, settings, now);
        let entry = locked.entry_at(place);
        let used = entry.map_or(0, |entry| entry.used(limit_window, settings));
        let until_at_most =
            |most| entry.and_then(|entry| entry.until_at_most(most, used, limit_window, settings));
        let retry = match max.checked_sub(cost) {
            None => Retry::Never,
            Some(most) if used <= most => Retry::Now,
            // Denied in any case: more counts than may.
            Some(most) => Retry::After(until_at_most(most).unwrap_or(window)),
        };
        if retry == Retry::Now && counts && locked_until.is_none() {
            self.hit_when(has_room, &Hit { key, hash, weight: cost, at: request.at }, place)?;
            let (locked, _) = self.parts();
            let place = locked.place_near(place, key, hash);
            let entry = locked.entry_at(place);
            let reset_after = entry.and_then(|entry| {
                entry.until_at_most(0, entry.used(limit_window, settings), limit_window, settings)
            });
            return Ok(Decision { max, remaining: max - used - cost, retry, reset_after });
        }
        let decision =
            Decision { max, remaining: max.saturating_sub(used), retry, reset_after: until_at_most(0) };
        match (locked_until, lockout, retry) {
            (Some(until), ..) => Ok(locked_out(decision, at, until)),
            (None, Some(lockout), Retry::After(_)) if !is_peek => {
                let until = at.saturating_add(lockout);
                locked.limit_until(key, hash, until, context);
                Ok(locked_out(decision, at, until))
            }
            _ => Ok(decision),
        }
    }
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
