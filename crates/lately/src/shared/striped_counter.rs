//! The counter for the hot spot: threads on different cores write to different cache lines.

use std::thread::available_parallelism;

use crate::error::{HitError, SettingsError};
use crate::limits::MAX_STRIPES;
use crate::settings::DEFAULT_WINDOW;
use crate::thread_number::thread_number;
use crate::time::{Span, Timestamp, seconds};

use super::rings::{Rings, Shape};

/// Counts hits of one thing from any thread, with a stripe of memory for each core, so that hits are faster and reads
/// slower than with an [`AtomicCounter`](crate::AtomicCounter).
///
/// Each of the first threads hits a stripe of its own, without an atomic addition. Threads beyond the number of stripes
/// share one. A read sums all stripes.
///
/// A read sees every hit that was acknowledged before it began, none that was sent after it ended, and none twice. It
/// reads the stripes one after the other: of two hits that other threads make meanwhile, it may see the later and miss
/// the earlier.
///
/// ```
/// use lately::{StripedCounter, Timestamp, minutes};
///
/// let counter = StripedCounter::new();
/// let now = Timestamp::from_seconds(1_700_000_000).expect("before the year 10000");
/// counter.hit(now).expect("not late");
/// assert_eq!(counter.hits(minutes(5), now), 1);
/// ```
#[derive(Debug)]
pub struct StripedCounter {
    rings: Rings,
}

impl StripedCounter {
    /// A counter with panes of 1 s and a default window of 5 min. It keeps 6 min, in 4 KiB for each core and 4 KiB that
    /// other threads share.
    #[must_use]
    pub fn new() -> StripedCounter {
        let cores = available_parallelism().map_or(1, usize::from);
        let counter = StripedCounter::with_stripes(seconds(1), DEFAULT_WINDOW, cores.min(MAX_STRIPES));
        counter.expect("the default settings hold")
    }

    /// A counter with `stripes` stripes. Resolution and window are those of
    /// [`AtomicCounter::with_window`](crate::AtomicCounter::with_window).
    ///
    /// # Errors
    /// [`SettingsError`] when the resolution is no rung of the ladder up to 1 d, the window has too many panes, or
    /// `stripes` is not 1 to [`MAX_STRIPES`].
    pub fn with_stripes(
        resolution: Span,
        window: Span,
        stripes: usize,
    ) -> Result<StripedCounter, SettingsError> {
        if stripes == 0 || stripes > MAX_STRIPES {
            return Err(SettingsError::Stripes { given: stripes, most: MAX_STRIPES });
        }
        let shape = Shape::new(resolution, window, stripes)?;
        Ok(StripedCounter { rings: Rings::new(shape, window) })
    }

    /// Counts a hit at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is older than the kept span, [`HitError::PaneFull`] when its pane is full. Nothing
    /// changes then.
    #[inline]
    pub fn hit(&self, at: Timestamp) -> Result<(), HitError> {
        self.hit_n(1, at)
    }

    /// Counts `weight` hits at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is older than the kept span, [`HitError::PaneFull`] when its pane is full in this
    /// thread's stripe. Nothing changes then.
    #[inline]
    pub fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError> {
        let own = thread_number();
        if own < self.stripes() {
            return self.rings.add_own(own, at, weight);
        }
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

    /// The number of stripes: how many threads can hit without sharing a cache line.
    #[must_use]
    pub fn stripes(&self) -> usize {
        self.rings.heads.len()
    }
}

impl Default for StripedCounter {
    fn default() -> StripedCounter {
        StripedCounter::new()
    }
}
