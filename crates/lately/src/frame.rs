//! What a class's settings say at one time: worked out once, used for all hits of a batch.

use crate::error::HitError;
use crate::settings::Settings;
use crate::time::Timestamp;
use crate::window::Window;

/// The edges of a class at `now`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) now: Timestamp,
    /// Hits before it are late; a key whose newest hit is before it has expired.
    oldest: Timestamp,
    /// Hits after it are from the future.
    latest: Timestamp,
    /// The default window that ends now.
    pub(crate) window: Window,
}

impl Frame {
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> Frame {
        Frame {
            now,
            oldest: settings.oldest(now),
            latest: now.saturating_add(settings.max_skew()),
            window: Window::ending_at(now, settings.window(), settings, now),
        }
    }

    /// Whether a hit at `at` may be counted.
    pub(crate) fn check(&self, at: Timestamp) -> Result<(), HitError> {
        let Frame { oldest, latest, .. } = *self;
        if at < oldest {
            return Err(HitError::Late { at, oldest });
        }
        if at > latest {
            return Err(HitError::Future { at, latest });
        }
        Ok(())
    }

    /// Whether no window within the retention reaches a newest hit any more.
    pub(crate) fn has_expired(&self, newest: Timestamp) -> bool {
        newest < self.oldest
    }
}
