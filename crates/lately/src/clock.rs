//! Clocks. Only this file reads the machine's clocks; everything else gets the time as an argument.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::limits::ADOPTED_AFTER;
use crate::machine;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// A source of the current time that never goes back.
pub trait Clock: Send + Sync {
    /// The current time. It is never earlier than in a previous call.
    fn now(&self) -> Timestamp;

    /// Milliseconds that the system clock was ahead of this clock at the last reading; negative when it was behind. It is
    /// near zero, except for a while after the system clock was set. Zero for a clock that follows no system clock.
    fn step_ms(&self) -> i64 {
        0
    }

    /// Moves the clock to `at`, if that is later: a time that another clock gave already. No effect on a clock that is
    /// set by hand.
    fn go_on_from(&self, _at: Timestamp) {}

    /// The sum of the jumps of this clock since its start, in milliseconds. It jumps when the system clock stays far
    /// ahead. Zero for a clock that follows no system clock.
    fn jumped_ms(&self) -> i64 {
        0
    }
}

/// A clock that never goes back. It advances with the time since the machine was booted, and slews towards the system
/// clock. On Linux, time during which the machine sleeps counts.
///
/// When the system clock stays ahead by more than `max_skew` for a minute, the clock jumps to it. When the system clock
/// was set back, the clock only slews.
#[derive(Debug)]
pub struct SystemClock {
    uptime: Uptime,
    max_skew_us: i64,
    state: Mutex<Slew>,
}

/// The time since a start.
#[derive(Debug)]
struct Uptime {
    /// From a clock that advances while the machine sleeps, where there is one.
    booted: Option<Duration>,
    /// Used elsewhere.
    instant: Instant,
}

impl Uptime {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    fn start() -> Uptime {
        Uptime { booted: machine::since_boot(), instant: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        match (self.booted, machine::since_boot()) {
            (Some(start), Some(now)) => now.saturating_sub(start),
            _ => self.instant.elapsed(),
        }
    }
}

/// Time may be moved towards the wall clock by one microsecond for each this many that pass.
const SLEW_EVERY_US: i64 = 20;

/// In microseconds: in milliseconds, two clocks that agree would sometimes seem to differ by one.
#[derive(Debug)]
struct Slew {
    monotonic_us: i64,
    now_us: i64,
    wall_us: i64,
    /// Time that has passed and was not yet used for slewing; below [`SLEW_EVERY_US`].
    credit_us: i64,
    /// Set while the wall clock is far ahead.
    lead: Option<Lead>,
    /// The sum of the jumps to the wall clock.
    jumped_us: i64,
}

/// A period during which the wall clock is far ahead.
#[derive(Debug)]
struct Lead {
    /// Its start, by the monotonic clock.
    since_us: i64,
    /// The smallest lead of all its readings.
    least_us: i64,
}

impl Slew {
    fn new(wall_us: i64) -> Slew {
        Slew { monotonic_us: 0, now_us: wall_us, wall_us, credit_us: 0, lead: None, jumped_us: 0 }
    }

    /// Advances to a reading of both clocks. Jumps if the wall clock was ahead by more than `max_skew_us` for
    /// [`ADOPTED_AFTER`].
    fn advance(&mut self, monotonic_us: i64, wall_us: i64, max_skew_us: i64) -> i64 {
        let passed_us = (monotonic_us - self.monotonic_us).max(0);
        self.monotonic_us += passed_us;
        self.wall_us = wall_us;
        self.credit_us += passed_us;
        let most_us = self.credit_us / SLEW_EVERY_US;
        self.credit_us %= SLEW_EVERY_US;
        let behind_us = wall_us - (self.now_us + passed_us);
        // Ahead of the wall clock, time runs a twentieth slower; behind it, a twentieth faster.
        self.now_us += passed_us + behind_us.clamp(-most_us, most_us);
        self.jump(max_skew_us);
        self.now_us
    }

    /// Jumps by the smallest lead of the wall clock, if it has been far ahead for long enough.
    fn jump(&mut self, max_skew_us: i64) {
        let ahead_us = self.wall_us - self.now_us;
        if ahead_us <= max_skew_us {
            self.lead = None;
            return;
        }
        let since_us = self.monotonic_us;
        let lead = self.lead.get_or_insert(Lead { since_us, least_us: ahead_us });
        lead.least_us = lead.least_us.min(ahead_us);
        if since_us - lead.since_us >= ADOPTED_AFTER.as_millis() * MICROS_PER_MILLI {
            self.now_us += lead.least_us;
            self.jumped_us += lead.least_us;
            self.lead = None;
        }
    }
}

impl SystemClock {
    /// A clock that starts at the time of the system clock, with the default `max_skew`.
    #[must_use]
    pub fn new() -> SystemClock {
        SystemClock::with_max_skew(Settings::default().max_skew())
    }

    /// A clock that starts at the time of the system clock. `max_skew` is how far ahead the system clock may be without a
    /// jump. Give the smallest `max_skew` of the store's classes: then hits with the time of the system clock are refused
    /// for at most a minute.
    #[must_use]
    pub fn with_max_skew(max_skew: Span) -> SystemClock {
        let max_skew_us = max_skew.as_millis().saturating_mul(MICROS_PER_MILLI);
        SystemClock { uptime: Uptime::start(), max_skew_us, state: Mutex::new(Slew::new(wall_us())) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slew> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut state = self.lock();
        let now_us = state.advance(micros_of(self.uptime.elapsed()), wall_us(), self.max_skew_us);
        Timestamp::from_millis(now_us / MICROS_PER_MILLI).unwrap_or(Timestamp::MAX)
    }

    fn step_ms(&self) -> i64 {
        let state = self.lock();
        (state.wall_us - state.now_us) / MICROS_PER_MILLI
    }

    fn go_on_from(&self, at: Timestamp) {
        let mut state = self.lock();
        state.now_us = state.now_us.max(at.as_millis() * MICROS_PER_MILLI);
    }

    fn jumped_ms(&self) -> i64 {
        self.lock().jumped_us / MICROS_PER_MILLI
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

/// A clock for tests, which only moves by hand.
#[derive(Debug)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// A clock at the time `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock(std::sync::atomic::AtomicI64::new(now.as_millis()))
    }

    /// Moves the clock forward to `now`. An earlier time has no effect.
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

    const SECOND_US: i64 = 1_000_000;
    const MAX_SKEW_US: i64 = 10 * SECOND_US;

    /// Reads the clocks once a second, with the wall clock `ahead_us` ahead of the monotonic one. Returns how
    /// far time is behind the wall clock at the end.
    fn run(slew: &mut Slew, seconds: std::ops::RangeInclusive<i64>, ahead_us: i64) -> i64 {
        for monotonic_us in seconds.map(|second| second * SECOND_US) {
            let before_us = slew.now_us;
            assert!(slew.advance(monotonic_us, monotonic_us + ahead_us, MAX_SKEW_US) >= before_us);
        }
        slew.wall_us - slew.now_us
    }

    #[test]
    fn a_system_clock_set_back_slows_time_but_never_reverses_it() {
        let mut slew = Slew::new(1_000_000_000);
        assert_eq!(slew.advance(100_000, 1_000_100_000, MAX_SKEW_US), 1_000_100_000);
        // The wall clock is set back by a minute and read every millisecond. Time runs a twentieth slower
        // until both agree, 20 minutes later.
        let mut now_us = slew.now_us;
        for tick_us in (1..=1_200_100).map(|tick| tick * 1_000) {
            let later_us = slew.advance(100_000 + tick_us, 940_100_000 + tick_us, MAX_SKEW_US);
            assert!(later_us >= now_us);
            now_us = later_us;
        }
        assert_eq!(now_us, 940_100_000 + 1_200_100_000);
        assert_eq!(slew.jumped_us, 0);
    }

    #[test]
    fn a_wall_clock_set_ahead_is_approached() {
        let mut slew = Slew::new(0);
        assert_eq!(slew.advance(1_000_000, 61_000_000, MAX_SKEW_US), 1_050_000);
        assert_eq!(slew.wall_us - slew.now_us, 59_950_000);
    }

    #[test]
    fn a_wall_clock_that_stays_far_ahead_for_a_minute_is_jumped_to() {
        let hour_us = 3_600 * SECOND_US;
        let mut slew = Slew::new(0);
        assert_eq!(run(&mut slew, 1..=60, hour_us), hour_us - 3 * SECOND_US);
        assert_eq!((run(&mut slew, 61..=61, hour_us), slew.jumped_us), (0, hour_us - 61 * SECOND_US / 20));
        // Set back again, time slews: an hour takes 20.
        assert_eq!(run(&mut slew, 62..=161, 0), -hour_us + 5 * SECOND_US);
        // Two readings far apart are enough.
        let mut slew = Slew::new(0);
        slew.advance(SECOND_US, hour_us, MAX_SKEW_US);
        slew.advance(61 * SECOND_US, hour_us + 60 * SECOND_US, MAX_SKEW_US);
        assert_eq!(slew.wall_us, slew.now_us);
    }

    #[test]
    fn a_wall_clock_that_is_ahead_for_less_than_a_minute_is_not_jumped_to() {
        let year_us = 365 * 86_400 * SECOND_US;
        let mut slew = Slew::new(0);
        run(&mut slew, 1..=60, year_us);
        assert_eq!((run(&mut slew, 61..=62, 0), slew.jumped_us), (-29 * SECOND_US / 10, 0));
        run(&mut slew, 63..=100, year_us);
        // It jumps by the smallest lead of the period.
        assert_eq!(run(&mut slew, 101..=124, 60 * SECOND_US), 0);
        assert!((50 * SECOND_US..60 * SECOND_US).contains(&slew.jumped_us), "{}", slew.jumped_us);
    }

    #[test]
    fn time_continues_from_another_clock() {
        let clock = SystemClock::new();
        let ahead = clock.now().saturating_add(crate::time::hours(1));
        clock.go_on_from(ahead);
        assert!(clock.now() >= ahead && clock.step_ms() < -3_590_000);
        clock.go_on_from(Timestamp::MIN);
        assert!(clock.now() >= ahead);
    }

    #[test]
    fn a_wall_clock_ahead_by_max_skew_is_slewed_to() {
        let mut slew = Slew::new(0);
        assert_eq!(run(&mut slew, 1..=300, MAX_SKEW_US), 0);
        assert_eq!(slew.jumped_us, 0);
    }

    #[test]
    fn an_undisturbed_system_clock_is_followed() {
        // It starts within a millisecond, and is read at odd moments.
        let mut slew = Slew::new(1_700_000_000_000_555);
        for monotonic_us in (0..1_000_000).step_by(333) {
            let wall_us = 1_700_000_000_000_555 + monotonic_us;
            assert_eq!(slew.advance(monotonic_us, wall_us, MAX_SKEW_US), wall_us);
        }
    }

    #[test]
    fn the_system_clock_does_not_go_back() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.step_ms().abs() < 1_000);
        assert_eq!(clock.jumped_ms(), 0);
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
