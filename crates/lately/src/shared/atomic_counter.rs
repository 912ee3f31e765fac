//! The lock-free counter for one thing that many threads hit, with one word per pane.

use crate::error::{HitError, SettingsError};
use crate::settings::DEFAULT_WINDOW;
use crate::time::{Span, Timestamp, seconds};

use super::rings::{Rings, Shape};

/// Counts hits of one thing from any thread, exactly, over windows up to six minutes.
///
/// No thread waits for another. A hit is one atomic addition to the word of its pane, and a compare-and-exchange when the
/// pane is new. A read of the default window is a few loads; the first read after a new pane sums the window up.
///
/// A hit counts in a window that ends at t when 0 ≤ pane(t) − pane(hit) < ceil(w / r), with w the length of the window and
/// r the resolution. The newest hit is the clock: hits that are older than the kept span before it are refused. A read
/// sees all hits that were acknowledged before it began, and none that were sent after it ended.
///
/// ```
/// use lately::{AtomicCounter, Timestamp, minutes, seconds};
///
/// let counter = AtomicCounter::new();
/// let now = Timestamp::from_seconds(1_700_000_000).expect("before the year 10000");
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| counter.hit(now));
///     }
/// });
/// assert_eq!(counter.hits(minutes(5), now), 4);
/// assert_eq!(counter.hits(seconds(1), now.saturating_add(seconds(1))), 0);
/// ```
#[derive(Debug)]
pub struct AtomicCounter {
    rings: Rings,
}

impl AtomicCounter {
    /// A counter with panes of 1 s and a default window of 5 min. It keeps 6 min, in 4 KiB.
    #[must_use]
    pub fn new() -> AtomicCounter {
        AtomicCounter::with_window(seconds(1), DEFAULT_WINDOW).expect("the default settings hold")
    }

    /// A counter with panes of `resolution`, which reads `window` fastest. It keeps the window and a minute or 60 panes
    /// more, and at least six minutes or 360 panes. Memory is 8 bytes per pane; the number of panes is rounded up to a
    /// power of two.
    ///
    /// # Errors
    /// [`SettingsError`] when the resolution is no rung of the ladder up to 1 d, or the window has too
    /// many panes.
    pub fn with_window(resolution: Span, window: Span) -> Result<AtomicCounter, SettingsError> {
        let shape = Shape::new(resolution, window, 0)?;
        Ok(AtomicCounter { rings: Rings::new(shape, window) })
    }

    /// Counts a hit at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is older than the kept span, [`HitError::PaneFull`] when its pane is full. Nothing
    /// changes then.
    #[inline]
    pub fn hit(&self, at: Timestamp) -> Result<(), HitError> {
        self.rings.add(at, 1)
    }

    /// Counts `weight` hits at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is older than the kept span, [`HitError::PaneFull`] when its pane would exceed 2^33
    /// hits (2^22 with panes of 1 ms). Nothing changes then.
    #[inline]
    pub fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError> {
        self.rings.add(at, weight)
    }

    /// The hits in the window of length `window` that ends with the pane of `at`. A window longer than the kept span
    /// counts the kept span.
    #[must_use]
    #[inline]
    pub fn hits(&self, window: Span, at: Timestamp) -> u64 {
        self.rings.hits(window, at)
    }

    /// The window that is read fastest.
    #[must_use]
    pub fn window(&self) -> Span {
        self.rings.window()
    }

    /// The start of the newest pane with hits, if there was a hit.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.rings.newest()
    }
}

impl Default for AtomicCounter {
    fn default() -> AtomicCounter {
        AtomicCounter::new()
    }
}
