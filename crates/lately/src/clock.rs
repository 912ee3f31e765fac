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

/// Time may be moved towards the wall clock by a microsecond for each of these that pass.
const SLEW_EVERY_US: i64 = 20;

/// In microseconds: in milliseconds, two clocks that agree seem to be a millisecond apart, now and then.
#[derive(Debug)]
struct Slew {
    monotonic_us: i64,
    now_us: i64,
    wall_us: i64,
    /// Time that passed and was not yet used for moving time; below [`SLEW_EVERY_US`].
    credit_us: i64,
}

impl Slew {
    /// Moves on to a reading of both clocks.
    fn advance(&mut self, monotonic_us: i64, wall_us: i64) -> i64 {
        let passed_us = (monotonic_us - self.monotonic_us).max(0);
        self.monotonic_us += passed_us;
        self.wall_us = wall_us;
        self.credit_us += passed_us;
        let most_us = self.credit_us / SLEW_EVERY_US;
        self.credit_us %= SLEW_EVERY_US;
        let behind_us = wall_us - (self.now_us + passed_us);
        // Ahead of the wall clock time runs a twentieth slower, behind it a twentieth faster.
        self.now_us += passed_us + behind_us.clamp(-most_us, most_us);
        self.now_us
    }
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub fn new() -> SystemClock {
        let wall_us = wall_us();
        let state = Mutex::new(Slew { monotonic_us: 0, now_us: wall_us, wall_us, credit_us: 0 });
        SystemClock { start: Instant::now(), state }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slew> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let now_us = state.advance(micros_of(self.start.elapsed()), wall_us());
        Timestamp::from_millis(now_us / MICROS_PER_MILLI).unwrap_or(Timestamp::MAX)
    }

    fn step_ms(&self) -> i64 {
        let state = self.lock();
        (state.wall_us - state.now_us) / MICROS_PER_MILLI
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros_of)
}

fn micros_of(duration: Duration) -> i64 {
    let last_us = Timestamp::MAX.as_millis() * MICROS_PER_MILLI;
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(last_us)
}

const MICROS_PER_MILLI: i64 = 1_000;

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

    fn slew(at_us: i64) -> Slew {
        Slew { monotonic_us: 0, now_us: at_us, wall_us: at_us, credit_us: 0 }
    }

    #[test]
    fn a_wall_clock_set_back_slows_time_but_never_turns_it_back() {
        let mut slew = slew(1_000_000_000);
        assert_eq!(slew.advance(100_000, 1_000_100_000), 1_000_100_000);
        // Set back by a minute and read every millisecond: time runs a twentieth slower until both
        // agree again, 20 minutes later.
        let mut now_us = slew.now_us;
        for tick_us in (1..=1_200_100).map(|tick| tick * 1_000) {
            let later_us = slew.advance(100_000 + tick_us, 940_100_000 + tick_us);
            assert!(later_us >= now_us);
            now_us = later_us;
        }
        assert_eq!(now_us, 940_100_000 + 1_200_100_000);
    }

    #[test]
    fn a_wall_clock_set_ahead_is_approached() {
        let mut slew = slew(0);
        assert_eq!(slew.advance(1_000_000, 61_000_000), 1_050_000);
        assert_eq!(slew.wall_us - slew.now_us, 59_950_000);
    }

    #[test]
    fn a_wall_clock_that_nobody_touches_is_followed() {
        // It started in the middle of a millisecond, and is read at any moment.
        let mut slew = slew(1_700_000_000_000_555);
        for monotonic_us in (0..1_000_000).step_by(333) {
            let wall_us = 1_700_000_000_000_555 + monotonic_us;
            assert_eq!(slew.advance(monotonic_us, wall_us), wall_us);
        }
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
