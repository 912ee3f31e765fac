//! Requests that are to stay within a limit: decided and counted under one lock.

use super::batch::Request;
use super::cached_denial::CachedDenial;
use super::check_key;
use super::context::{Context, Hit};
use super::executor::Executor;
use super::shard::Shard;
use crate::entry::LimitWindow;
use crate::error::{HitError, LimitError};
use crate::limit::{Decision, Retry};
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// What a limit asks of a key: at most so many hits in the window, with so many more.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) max: u64,
    pub(super) cost: u64,
    pub(super) at: Timestamp,
    pub(super) window: Span,
}

/// What a limit says as long as nothing is counted.
pub(super) struct Verdict {
    asked: Asked,
    window: LimitWindow,
    used: u64,
    retry: Retry,
    locked_until: Option<Timestamp>,
}

impl Verdict {
    pub(super) fn is_allowed(&self) -> bool {
        self.retry == Retry::Now && self.locked_until.is_none()
    }

    /// What it says of a hit now, and from now on as long as none is counted, if it denies one.
    fn denial(&self, decision: &Decision, now: Timestamp) -> Option<CachedDenial> {
        let Asked { max, cost, at, window } = self.asked;
        let Retry::After(wait) = decision.retry else { return None };
        let until = at.saturating_add(wait);
        let none_from = at.saturating_add(decision.reset_after?);
        let denial = CachedDenial::new(max, window, until, none_from)?;
        (cost == 1 && at == now && self.locked_until.is_none()).then_some(denial)
    }

    /// What is left before anything is counted.
    pub(super) fn left(&self) -> u64 {
        self.asked.max.saturating_sub(self.used)
    }
}

impl Shard {
    /// The settings of a key, which is at a place or nowhere, if a request of this time and window can be decided.
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
            // What came before that may be gone by now.
            let most_ms = settings.retain().as_millis() - (self.now().as_millis() - at.as_millis());
            if window.as_millis() > most_ms {
                return Err(LimitError::WindowThen { window, at, most: Span::from_millis(most_ms) });
            }
        }
        Ok(settings)
    }

    /// What a limit says to a request for the key at a place, or nowhere.
    pub(super) fn verdict(&self, place: Option<u32>, asked: Asked, settings: &Settings) -> Verdict {
        let Asked { max, cost, at, window: span } = asked;
        let window = LimitWindow::ending_at(at, span, self.now());
        let entry = self.entry_at(place);
        let used = entry.map_or(0, |entry| entry.used(window, settings));
        let retry = match max.checked_sub(cost) {
            None => Retry::Never,
            Some(most) if used <= most => Retry::Now,
            // Denied in any case: more counts than may.
            Some(most) => {
                let wait = entry.and_then(|entry| entry.until_at_most(most, used, window, settings));
                Retry::After(wait.unwrap_or(span))
            }
        };
        let locked_until = place.and_then(|place| self.limit_at(place)).filter(|&until| until > at);
        Verdict { asked, window, used, retry, locked_until }
    }

    /// The decision where nothing was counted.
    pub(super) fn not_counted(&self, place: Option<u32>, verdict: &Verdict, settings: &Settings) -> Decision {
        let decision = Decision {
            max: verdict.asked.max,
            remaining: verdict.left(),
            retry: verdict.retry,
            reset_after: self.reset_after(place, verdict, settings),
        };
        match verdict.locked_until {
            Some(until) => locked_out(decision, verdict.asked.at, until),
            None => decision,
        }
    }

    /// The decision where what was asked for was counted.
    pub(super) fn counted(
        &mut self,
        place: Option<u32>,
        verdict: &Verdict,
        settings: &Settings,
        context: &mut Context<'_>,
    ) -> Decision {
        let Asked { max, cost, window, .. } = verdict.asked;
        let remaining = verdict.left() - cost;
        self.guard(place, (remaining, max), window, context);
        let reset_after = self.reset_after(place, verdict, settings);
        Decision { max, remaining, retry: Retry::Now, reset_after }
    }

    fn reset_after(&self, place: Option<u32>, verdict: &Verdict, settings: &Settings) -> Option<Span> {
        self.entry_at(place).and_then(|entry| entry.until_none(verdict.window, settings))
    }
}

impl Executor<'_> {
    /// Decides on a request for a key of the shard that is locked, and is at `place` or nowhere; if it is
    /// allowed its hits are counted, if not those that were denied are.
    #[inline(never)]
    pub(super) fn limit(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        place: Option<u32>,
    ) -> Result<Decision, LimitError> {
        let &Request { key, max, window, cost, at, is_peek, is_shadow, lockout } = request;
        check_key(key)?;
        let (locked, context) = self.parts();
        let mut place = place.and_then(|place| locked.alive(place, context));
        let settings = locked.settings_to_decide((key, place), at, window, context)?;
        let counts = !is_peek && cost > 0;
        let mut has_room = true;
        if place.is_none() && counts && (cost <= max || lockout.is_some()) {
            // Before it is decided: others go without the lock, and somebody may hit the key meanwhile.
            (has_room, place) = self.room_for((key, hash), None);
        }
        let hit = Hit { key, hash, weight: cost, at };
        let (locked, context) = self.parts();
        if let Some(place) = place.filter(|_| !is_peek) {
            locked.keep_moments(place, context.classes);
        }
        let asked = Asked { max, cost, at: at.unwrap_or(locked.now()), window };
        let mut verdict = locked.verdict(place, asked, settings);
        if verdict.is_allowed() && counts && self.is_far_over() {
            // Others go without the lock: somebody may hit the key meanwhile.
            self.may_grow(key, hash)?;
            place = self.shard(hash).place_near(place, key, hash);
            verdict = self.parts().0.verdict(place, asked, settings);
        }
        if verdict.is_allowed() && counts {
            self.count_hit(has_room, &hit, place)?;
            let (locked, context) = self.parts();
            // Where it was it is.
            let place = place.or_else(|| locked.place_of(key, hash));
            return Ok(locked.counted(place, &verdict, settings, context));
        }
        if is_peek {
            // Who only asks and counts by itself relies on the limit, too.
            let (locked, context) = self.parts();
            locked.guard(place, (verdict.left(), max), window, context);
        }
        let denies = !verdict.is_allowed() && !is_peek && !is_shadow;
        if denies {
            place = self.deny(&hit, place);
            let (locked, context) = self.parts();
            locked.guard(place, (verdict.left(), max), window, context);
            if let (None, Some(lockout)) = (verdict.locked_until, lockout) {
                // Without room for the key it cannot be locked out: it is denied all the same.
                if let (None, Some(ceiling_bytes)) = (place, context.ceiling_bytes) {
                    return Err(HitError::OutOfMemory { ceiling_bytes }.into());
                }
                let until = asked.at.saturating_add(lockout);
                locked.limit_until(key, hash, until, context);
                verdict.locked_until = Some(until);
            }
        }
        let (locked, context) = self.parts();
        let decision = locked.not_counted(place, &verdict, settings);
        if let (Some(place), true) = (place, denies)
            && (context.ceiling_bytes.is_none() || locked.is_limited_at(place))
            && let Some(denial) = verdict.denial(&decision, locked.now())
        {
            locked.set_denial(place, denial, context.classes);
        }
        Ok(decision)
    }
}

/// What a decision becomes when the key is locked out: nothing is left before `until`, which is later than `at`.
fn locked_out(decision: Decision, at: Timestamp, until: Timestamp) -> Decision {
    // It may be longer than any span.
    let left = Span::from_millis(until.as_millis() - at.as_millis()).unwrap_or(Span::MAX);
    let retry = match decision.retry {
        Retry::Never => Retry::Never,
        Retry::After(wait) => Retry::After(left.max(wait)),
        Retry::Now => Retry::After(left),
    };
    Decision { remaining: 0, retry, reset_after: Some(left).max(decision.reset_after), ..decision }
}
