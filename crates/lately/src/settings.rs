//! The settings of a class of keys: how finely and for how long hits are kept.

use crate::divisor::Divisor;
use crate::error::SettingsError;
use crate::ladder::{Ladder, MAX_RESOLUTION_MS, PRECISION_UNIT, RUNGS_MS, unique_pane_ms};
use crate::limits::{MAX_EXACT_PANES, PRECISION_RANGE};
use crate::merge::{Levels, PaneWidths};
use crate::time::{Span, Timestamp, ceil_div, days, milliseconds, minutes, seconds};

/// The default window, unless the settings set one.
pub const DEFAULT_WINDOW: Span = minutes(5);
/// Panes of the default exact span: the default window and a fifth more.
const DEFAULT_EXACT_PANES: i64 = 360;
/// Panes of the exact span besides the default window, for late hits and reads in the past.
const EXACT_SLACK_PANES: i64 = 60;

/// The settings of a class, checked against each other. Built by [`SettingsBuilder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    resolution: Span,
    window: Span,
    exact: Span,
    retain: Span,
    max_skew: Span,
    precision_ppm: i64,
    dedupe: Option<Span>,
    top: bool,
    hidden: bool,
    unique: bool,
    /// The narrowest panes of sketches of members.
    unique_pane_ms: i64,
    ladder: Ladder,
    levels: Levels,
    pane_bound: usize,
    /// The resolution as a divisor of times.
    divisor: Divisor,
    /// The default window in panes. The window and the retention in milliseconds, rounded up to whole panes.
    window_panes: i64,
    window_ms: i64,
    retain_ms: i64,
    /// The grid of the edges of panes at the end of the retention.
    oldest_grid_ms: i64,
}

/// Borders of panes at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edges {
    /// The first millisecond of a window of the retention's length.
    pub(crate) oldest_ms: i64,
    /// The same for limits, whose windows start at any millisecond. Nothing before it is needed.
    pub(crate) kept_ms: i64,
    /// The first millisecond of the default window.
    pub(crate) window_ms: i64,
    /// One past the last millisecond of both.
    pub(crate) end_ms: i64,
}

/// Builds [`Settings`]. Each has a default.
#[derive(Clone, PartialEq, Debug, Default)]
#[must_use]
pub struct SettingsBuilder {
    resolution: Option<Span>,
    window: Option<Span>,
    exact: Option<Span>,
    retain: Option<Span>,
    max_skew: Option<Span>,
    precision: Option<f64>,
    dedupe: Option<Span>,
    top: bool,
    hidden: bool,
    unique: bool,
}

impl Settings {
    /// Starts from the defaults: panes of 1 s for 6 minutes, a retention of 7 days, a precision of 1 %.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// Settings for moving hits of any class between stores: panes are not merged, new hits keep their millisecond, and
    /// nothing expires.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn to_carry() -> Settings {
        let resolution = milliseconds(1);
        let builder = Settings::builder().resolution(resolution).window(resolution);
        let settings = builder.retain(Span::MAX).unique(true).build();
        let settings = settings.expect("they agree with each other");
        let ladder = Ladder::of_one_width(resolution.as_millis());
        let pane_bound = ladder.pane_bound(settings.retain, settings.max_skew);
        Settings { ladder, pane_bound, unique_pane_ms: seconds(1).as_millis(), ..settings }
    }

    /// The width of the newest panes.
    #[must_use]
    pub fn resolution(&self) -> Span {
        self.resolution
    }

    /// The default window: that of a read that names none.
    #[must_use]
    pub fn window(&self) -> Span {
        self.window
    }

    /// How far back panes keep the resolution.
    #[must_use]
    pub fn exact(&self) -> Span {
        self.exact
    }

    /// How far back anything is kept.
    #[must_use]
    pub fn retain(&self) -> Span {
        self.retain
    }

    /// How far ahead of the clock a hit may be.
    #[must_use]
    pub fn max_skew(&self) -> Span {
        self.max_skew
    }

    /// The precision: the most that an older pane may span, as a share of its age.
    #[must_use]
    pub fn precision(&self) -> f64 {
        // Both fit in 53 bits, so this is exact.
        self.precision_ppm as f64 / PRECISION_UNIT as f64
    }

    /// How long the id of a hit counts once. `None` if hits have no ids.
    #[must_use]
    pub fn dedupe(&self) -> Option<Span> {
        self.dedupe
    }

    /// Whether the busy keys of the class are kept at hand: see [`Store::busy_keys`](crate::Store::busy_keys).
    #[must_use]
    pub fn top(&self) -> bool {
        self.top
    }

    /// Whether the keys of the class are left out of [`Store::busy_keys`](crate::Store::busy_keys).
    #[must_use]
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether hits have members, of which the distinct ones are counted.
    #[must_use]
    pub fn unique(&self) -> bool {
        self.unique
    }

    pub(crate) fn unique_pane_ms(&self) -> i64 {
        self.unique_pane_ms
    }

    /// The widths panes may have at each age.
    #[must_use]
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The widths of the cells in which nodes exchange their counts.
    #[must_use]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The most panes of a key after merging.
    pub(crate) fn pane_bound(&self) -> usize {
        self.pane_bound
    }

    /// The number of the pane of the resolution's width that holds the millisecond `time_ms`.
    pub(crate) fn pane_of(&self, time_ms: i64) -> i64 {
        time_ms.div_euclid(self.resolution.as_millis())
    }

    /// The start of the pane of the resolution that contains a time.
    #[inline]
    pub(crate) fn pane_start(&self, at: Timestamp) -> Timestamp {
        let pane = self.divisor.quotient(at.as_millis());
        Timestamp::from_millis(pane * self.resolution.as_millis()).unwrap_or(Timestamp::MIN)
    }

    /// `span` in panes of the resolution, rounded up.
    pub(crate) fn panes_in(&self, span: Span) -> i64 {
        // The most frequent span: its result is cached.
        if span == self.window {
            return self.window_panes;
        }
        ceil_div(span.as_millis(), self.resolution.as_millis())
    }

    /// The start of the retention that ends at `now`. A hit before it is late.
    #[must_use]
    pub fn oldest(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(self.retention_edge_ms(now)).unwrap_or(Timestamp::MIN)
    }

    /// `span` rounded up to whole panes: the time that a window of that length covers.
    #[must_use]
    pub fn whole_panes(&self, span: Span) -> Span {
        Span::from_millis(self.panes_in(span) * self.resolution.as_millis()).unwrap_or(Span::MAX)
    }

    /// The first millisecond of a window of the retention's length that ends at `now`.
    pub(crate) fn retention_edge_ms(&self, now: Timestamp) -> i64 {
        self.edges(now).oldest_ms
    }

    /// The starts and the end of the windows that end at `now`.
    #[inline]
    pub(crate) fn edges(&self, now: Timestamp) -> Edges {
        let pane = self.divisor.quotient(now.as_millis());
        let end_ms = (pane + 1) * self.resolution.as_millis();
        let oldest_ms = end_ms - self.retain_ms;
        let kept_ms = oldest_ms - self.resolution.as_millis();
        Edges { oldest_ms, kept_ms, window_ms: end_ms - self.window_ms, end_ms }
    }

    /// Hits that end at or before this millisecond cannot show in an answer from `now` on.
    pub(crate) fn horizon_ms(&self, now: Timestamp) -> i64 {
        self.edges(now).kept_ms.div_euclid(self.oldest_grid_ms) * self.oldest_grid_ms
    }
}

impl Default for Settings {
    fn default() -> Settings {
        SettingsBuilder::default().build().expect("the defaults agree with each other")
    }
}

impl SettingsBuilder {
    /// Sets the width of the newest panes, one of [`RUNGS_MS`](crate::RUNGS_MS) from 1 ms to 1 d. Default: 1 s.
    pub fn resolution(mut self, resolution: Span) -> SettingsBuilder {
        self.resolution = Some(resolution);
        self
    }

    /// Sets the default window. Default: 5 min.
    pub fn window(mut self, window: Span) -> SettingsBuilder {
        self.window = Some(window);
        self
    }

    /// Sets the exact span: how far back panes keep the resolution. Default: the window and 60 panes or a minute more, and
    /// at least 6 min (360 panes below 1 s).
    pub fn exact(mut self, exact: Span) -> SettingsBuilder {
        self.exact = Some(exact);
        self
    }

    /// Sets the retention: how far back hits are kept. It is rounded up to whole panes, and down where that would exceed
    /// [`Span::MAX`]. Default: 7 d.
    pub fn retain(mut self, retain: Span) -> SettingsBuilder {
        self.retain = Some(retain);
        self
    }

    /// Sets how far ahead of the clock a hit may be. Default: 10 s.
    pub fn max_skew(mut self, max_skew: Span) -> SettingsBuilder {
        self.max_skew = Some(max_skew);
        self
    }

    /// Sets the precision: the most that an older pane may span, as a share of its age. For a window that ends now, the
    /// pane at its far edge spans at most this share of the window. 0.0001 to 1, in steps of a millionth. Default: 0.01.
    pub fn precision(mut self, precision: f64) -> SettingsBuilder {
        self.precision = Some(precision);
        self
    }

    /// Sets how long the id of a hit counts once. At most the retention. Default: hits have no ids.
    pub fn dedupe(mut self, span: Span) -> SettingsBuilder {
        self.dedupe = Some(span);
        self
    }

    /// Sets whether the busy keys of the class are kept at hand, so that the keys with the most hits are found without a walk
    /// over all keys. Default: no. A class with a default window below a second has none.
    pub fn top(mut self, top: bool) -> SettingsBuilder {
        self.top = top;
        self
    }

    /// Sets whether the keys of the class are left out of [`Store::busy_keys`](crate::Store::busy_keys): a program counts
    /// something for itself in them. Default: no.
    pub fn hidden(mut self, hidden: bool) -> SettingsBuilder {
        self.hidden = hidden;
        self
    }

    /// Sets whether hits have members, of which the distinct ones are counted. Default: they have none.
    pub fn unique(mut self, unique: bool) -> SettingsBuilder {
        self.unique = unique;
        self
    }

    /// Checks the settings against each other and fills in the defaults.
    ///
    /// # Errors
    /// [`SettingsError`] names the first invalid setting, and valid values.
    pub fn build(self) -> Result<Settings, SettingsError> {
        let resolution = self.resolution.unwrap_or(seconds(1));
        let resolution_ms = resolution.as_millis();
        if !RUNGS_MS.contains(&resolution_ms) || resolution_ms > MAX_RESOLUTION_MS {
            return Err(SettingsError::Resolution { given: resolution });
        }
        let precision = self.precision.unwrap_or(0.01);
        if !PRECISION_RANGE.contains(&precision) {
            return Err(SettingsError::Precision { given: precision });
        }
        #[expect(clippy::cast_possible_truncation, reason = "in 100..=1_000_000 by the check above")]
        let precision_ppm = (precision * PRECISION_UNIT as f64).round() as i64;

        let retain = self.retain.unwrap_or(days(7).max(resolution));
        let at_most_retain = |span: Span| span.min(retain);
        let window = self.window.unwrap_or(at_most_retain(DEFAULT_WINDOW));
        let exact = self.exact.unwrap_or(at_most_retain(self.default_exact(resolution_ms)));
        let dedupe = self.dedupe.unwrap_or(Span::MIN);
        let spans = [("resolution", resolution), ("window", window), ("exact", exact), ("dedupe", dedupe)];
        for (what, least) in spans {
            if retain < least {
                return Err(SettingsError::RetainTooShort { retain, what, least });
            }
        }
        let least_exact = at_most_retain(with_slack(window, resolution_ms));
        let window_matters = self.window.is_some() || resolution_ms >= seconds(1).as_millis();
        if self.exact.is_some() && window_matters && exact < least_exact {
            return Err(SettingsError::ExactTooShort { exact, least: least_exact });
        }
        if ceil_div(exact.as_millis(), resolution_ms) > MAX_EXACT_PANES {
            let most = Span::from_millis(resolution_ms * MAX_EXACT_PANES).unwrap_or(Span::MAX);
            return Err(SettingsError::ExactTooLong { exact, most });
        }
        // A retention of whole panes: its edge is then never older than the retention itself.
        let whole_ms = ceil_div(retain.as_millis(), resolution_ms) * resolution_ms;
        let longest_ms = Span::MAX.as_millis() / resolution_ms * resolution_ms;
        let retain_ms = whole_ms.min(longest_ms);
        let retain = Span::from_millis(retain_ms).unwrap_or(retain);
        let max_skew = self.max_skew.unwrap_or(seconds(10));
        let ladder = Ladder::new(resolution_ms, exact, precision_ppm);
        // Limits need one more pane.
        let kept = Span::from_millis(retain_ms + resolution_ms).unwrap_or(Span::MAX);
        let pane_bound = ladder.pane_bound(kept, max_skew);
        let pane_widths = PaneWidths { exact_ms: exact.as_millis(), precision_ppm };
        let levels = Levels::new(ladder.clone(), (resolution_ms, retain_ms), pane_widths);
        let window_panes = ceil_div(window.as_millis(), resolution_ms);
        Ok(Settings {
            resolution,
            window,
            exact,
            retain,
            max_skew,
            precision_ppm,
            dedupe: self.dedupe,
            top: self.top,
            hidden: self.hidden,
            unique: self.unique,
            unique_pane_ms: unique_pane_ms(resolution_ms, retain_ms),
            oldest_grid_ms: ladder.edge_grid_ms(retain_ms, exact),
            ladder,
            levels,
            pane_bound,
            divisor: Divisor::new(resolution_ms),
            window_panes,
            window_ms: window_panes * resolution_ms,
            retain_ms,
        })
    }

    fn default_exact(&self, resolution_ms: i64) -> Span {
        let panes = Span::from_millis(DEFAULT_EXACT_PANES * resolution_ms).unwrap_or(Span::MAX);
        let least = panes.min(minutes(6));
        match self.window {
            Some(window) => least.max(with_slack(window, resolution_ms)),
            None => least,
        }
    }
}

/// The window and 60 panes more, but at most a minute more, for late hits and reads in the past.
fn with_slack(window: Span, resolution_ms: i64) -> Span {
    let slack_ms = (EXACT_SLACK_PANES * resolution_ms).min(minutes(1).as_millis());
    Span::from_millis(window.as_millis() + slack_ms).unwrap_or(Span::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::hours;

    #[test]
    fn the_defaults_agree_with_each_other() {
        let settings = Settings::default();
        assert_eq!((settings.resolution(), settings.window()), (seconds(1), minutes(5)));
        assert_eq!((settings.exact(), settings.retain()), (minutes(6), days(7)));
    }

    #[test]
    fn the_retention_is_whole_panes() {
        let settings = Settings::builder().retain(milliseconds(90_500)).build().expect("valid");
        assert_eq!(settings.retain(), seconds(91));
    }

    #[test]
    fn defaults_follow_the_given_settings() {
        let exact_of = |builder: SettingsBuilder| builder.build().map(|settings| settings.exact());
        assert_eq!(exact_of(Settings::builder().window(minutes(10))), Ok(minutes(11)));
        assert_eq!(exact_of(Settings::builder().resolution(milliseconds(100))), Ok(seconds(36)));
        assert_eq!(exact_of(Settings::builder().retain(seconds(30))), Ok(seconds(30)));
        let fine = Settings::builder().resolution(milliseconds(10)).window(seconds(10));
        assert_eq!(exact_of(fine), Ok(milliseconds(10_600)));
        assert_eq!(exact_of(Settings::builder().resolution(hours(1))), Ok(minutes(6)));
    }

    #[test]
    fn contradictions_are_refused() {
        let check = |builder: SettingsBuilder, expected: &str| {
            let error = builder.build().expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(Settings::builder().resolution(seconds(3)), "resolution 3s is none of");
        check(Settings::builder().resolution(days(10)), "resolution 10d is none of");
        check(Settings::builder().precision(0.0), "precision 0 is out of range");
        check(Settings::builder().precision(1.001), "precision 1.001 is out of range");
        check(Settings::builder().precision(f64::NAN), "out of range");
        check(Settings::builder().window(minutes(5)).exact(minutes(5)), "give at least 6m");
        check(Settings::builder().window(days(8)), "shorter than window");
        check(Settings::builder().dedupe(days(8)), "shorter than dedupe");
        check(Settings::builder().retain(milliseconds(1)), "shorter than resolution");
        check(Settings::builder().exact(days(8)), "shorter than exact");
        check(Settings::builder().resolution(milliseconds(1)).exact(hours(1)), "more than 1048576 panes");
    }

    #[test]
    fn bounds_hold_at_the_bound_and_one_past_it() {
        let exact = |panes: i64| {
            let span = Span::from_millis(panes).expect("a span");
            Settings::builder().resolution(milliseconds(1)).exact(span).build()
        };
        assert!(exact(MAX_EXACT_PANES).is_ok());
        assert!(exact(MAX_EXACT_PANES + 1).is_err());
        assert!(Settings::builder().precision(0.0001).build().is_ok());
        assert!(Settings::builder().precision(0.00009).build().is_err());
        assert!(Settings::builder().precision(1.0).build().is_ok());
    }
}
