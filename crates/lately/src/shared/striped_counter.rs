//! The counter for the hot spot: threads on different cores write to different cache lines.

use std::thread::available_parallelism;

use crate::error::{HitError, SettingsError};
use crate::limits::MAX_STRIPES;
use crate::settings::DEFAULT_WINDOW;
use crate::thread_number::thread_number;
use crate::time::{Span, Timestamp, seconds};

use super::rings::{Rings, Shape};

/// An [`AtomicCounter`](crate::AtomicCounter) and a ring for each core.
///
/// Living threads have different numbers. Those with low ones hit rings of their own, the stripes, without
/// an atomic addition; threads beyond share one, as those of an `AtomicCounter` do. A read adds all up.
///
/// What a concurrent reader may see is the same as of an `AtomicCounter`: every hit that was acknowledged
/// before the read began, none that was sent after it ended, none twice. The stripes are read one
/// after the other: of two hits that other threads make meanwhile, the read may see the later and not
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
    /// Panes of 1 s, a default window of 5 min, 6 min kept; 4 KiB for each core and 4 KiB for threads beyond.
    #[must_use]
    pub fn new() -> StripedCounter {
        let cores = available_parallelism().map_or(1, usize::from);
        let counter = StripedCounter::with_stripes(seconds(1), DEFAULT_WINDOW, cores.min(MAX_STRIPES));
        counter.expect("the default settings hold")
    }

    /// As [`AtomicCounter::with_window`](crate::AtomicCounter::with_window), with `stripes` rings
    /// for threads of their own.
    ///
    /// # Errors
    /// As there; and when `stripes` is not 1 to [`MAX_STRIPES`].
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
    /// As [`StripedCounter::hit_n`].
    #[inline]
    pub fn hit(&self, at: Timestamp) -> Result<(), HitError> {
        self.hit_n(1, at)
    }

    /// Counts `weight` hits at `at`.
    ///
    /// # Errors
    /// [`HitError::Late`] when `at` is older than what is kept, [`HitError::PaneFull`] when the pane
    /// cannot count so many in this thread's ring. Nothing changes then.
    #[inline]
    pub fn hit_n(&self, weight: u64, at: Timestamp) -> Result<(), HitError> {
        let own = thread_number();
        if own < self.stripes() {
            return self.rings.add_own(own, at, weight);
        }
        self.rings.add(at, weight)
    }

    /// Hits in the window of length `window` that ends with the pane of `at`. A window longer than
    /// what is kept answers what is kept.
    #[must_use]
    #[inline]
    pub fn hits(&self, window: Span, at: Timestamp) -> u64 {
        self.rings.hits(window, at)
    }

    /// The window whose reads are quick.
    #[must_use]
    pub fn window(&self) -> Span {
        self.rings.window()
    }

    /// When the newest pane with hits begins, if there was a hit.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.rings.newest()
    }

    /// How many threads can hit without sharing a line.
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
