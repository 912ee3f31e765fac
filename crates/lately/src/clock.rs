//! Where time comes from. This file alone reads the machine's clocks; everything else is told.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

/// A source of the current time that never goes back.
pub trait Clock: Send + Sync {
    /// The current time; at least what an earlier call gave.
    fn now(&self) -> Timestamp;

    /// Milliseconds the wall clock is ahead of this one, as of the last reading; negative when it
    /// is behind. Not near zero only for a while after somebody set the wall clock; always zero for
    /// a clock that follows none.
    fn step_ms(&self) -> i64 {
        0
    }
}

/// The machine's clock: it advances with the monotonic clock and slews towards the wall clock, so
/// that a wall clock that is set back never makes a count drop.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    state: Mutex<Slew>,
}

/// Time may be moved towards the wall clock by a millisecond for each of these that pass.
const SLEW_EVERY_MS: i64 = 20;

#[derive(Debug)]
struct Slew {
    monotonic_ms: i64,
    now_ms: i64,
    wall_ms: i64,
    /// Milliseconds that passed and were not yet used for moving time; below [`SLEW_EVERY_MS`].
    credit_ms: i64,
}

impl Slew {
    /// Moves on to a reading of both clocks, in milliseconds.
    fn advance(&mut self, monotonic_ms: i64, wall_ms: i64) -> i64 {
        let passed_ms = (monotonic_ms - self.monotonic_ms).max(0);
        self.monotonic_ms += passed_ms;
        self.wall_ms = wall_ms;
        self.credit_ms += passed_ms;
        let most_ms = self.credit_ms / SLEW_EVERY_MS;
        self.credit_ms %= SLEW_EVERY_MS;
        let behind_ms = wall_ms - (self.now_ms + passed_ms);
        // Ahead of the wall clock time runs a twentieth slower, behind it a twentieth faster.
        self.now_ms += passed_ms + behind_ms.clamp(-most_ms, most_ms);
        self.now_ms
    }
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub fn new() -> SystemClock {
        let wall_ms = wall_ms();
        let state = Mutex::new(Slew { monotonic_ms: 0, now_ms: wall_ms, wall_ms, credit_ms: 0 });
        SystemClock { start: Instant::now(), state }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slew> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let monotonic_ms = millis_of(self.start.elapsed());
        let now_ms = state.advance(monotonic_ms, wall_ms());
        Timestamp::from_millis(now_ms).unwrap_or(Timestamp::MAX)
    }

    fn step_ms(&self) -> i64 {
        let state = self.lock();
        state.wall_ms - state.now_ms
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis_of)
}

fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_millis())
}

/// A clock for tests: it stands until it is moved.
#[derive(Debug)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock(std::sync::atomic::AtomicI64::new(now.as_millis()))
    }

    /// Moves the clock forward to `now`; an earlier time leaves it where it is.
    pub fn set(&self, now: Timestamp) {
        self.0.fetch_max(now.as_millis(), std::sync::atomic::Ordering::Relaxed);
    }

    /// Moves the clock forward by `span`.
    pub fn advance(&self, span: crate::time::Span) {
        self.set(self.now().saturating_add(span));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let now_ms = self.0.load(std::sync::atomic::Ordering::Relaxed);
        Timestamp::from_millis(now_ms).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds;

    #[test]
    fn a_wall_clock_set_back_slows_time_but_never_turns_it_back() {
        let mut slew = Slew { monotonic_ms: 0, now_ms: 1_000_000, wall_ms: 1_000_000, credit_ms: 0 };
        assert_eq!(slew.advance(100, 1_000_100), 1_000_100);
        // Set back by a minute and read every millisecond: time runs a twentieth slower until both
        // agree again, 20 minutes later.
        let mut now_ms = slew.now_ms;
        for tick in 1..=1_200_100 {
            let later_ms = slew.advance(100 + tick, 940_100 + tick);
            assert!(later_ms >= now_ms);
            now_ms = later_ms;
        }
        assert_eq!(now_ms, 940_100 + 1_200_100);
    }

    #[test]
    fn a_wall_clock_set_ahead_is_approached() {
        let mut slew = Slew { monotonic_ms: 0, now_ms: 0, wall_ms: 0, credit_ms: 0 };
        assert_eq!(slew.advance(1_000, 61_000), 1_050);
        assert_eq!(slew.wall_ms - slew.now_ms, 59_950);
    }

    #[test]
    fn the_system_clock_does_not_go_back() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.step_ms().abs() < 1_000);
    }

    #[test]
    fn a_manual_clock_stands_until_it_is_moved() {
        let clock = ManualClock::new(Timestamp::MIN);
        assert_eq!(clock.now(), Timestamp::MIN);
        clock.advance(seconds(5));
        clock.set(Timestamp::MIN);
        assert_eq!(clock.now().as_millis(), 5_000);
    }
}
