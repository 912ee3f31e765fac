//! The edges of a class at one time, computed once for all hits of a batch.

use crate::error::HitError;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};

/// The edges of a class at `now`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) now: Timestamp,
    /// Hits before it are late. They show in no answer, unless a later hit of the key came.
    pub(crate) oldest_ms: i64,
    /// A key whose newest hit is before it has expired. None of its hits counts against a limit.
    pub(crate) kept_ms: i64,
    /// The first millisecond of the default window that ends now, and one past its last.
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    /// Whether both are on the grid. If so, the sum between them is the answer.
    pub(crate) is_exact: bool,
}

impl Frame {
    #[inline]
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> Frame {
        let edges = settings.edges(now);
        let from_ms = edges.window_ms.max(edges.oldest_ms);
        let is_exact = now.as_millis() - from_ms <= settings.exact().as_millis();
        Frame {
            now,
            oldest_ms: edges.oldest_ms,
            kept_ms: edges.kept_ms,
            from_ms,
            to_ms: edges.end_ms,
            is_exact,
        }
    }

    /// A frame with a limit's window, to the millisecond, instead of the default window.
    #[inline]
    pub(crate) fn of_limit(&self, window: Span) -> Frame {
        let to_ms = self.now.as_millis() + 1;
        Frame { from_ms: to_ms - window.as_millis(), to_ms, is_exact: true, ..*self }
    }

    /// Whether a hit at `at` may be counted.
    pub(crate) fn check(&self, at: Timestamp, settings: &Settings) -> Result<(), HitError> {
        if at.as_millis() < self.oldest_ms {
            return Err(HitError::Late { at, oldest: settings.oldest(self.now) });
        }
        let latest = self.now.saturating_add(settings.max_skew());
        if at > latest {
            return Err(HitError::Future { at, latest, max_skew: settings.max_skew() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{days, milliseconds, minutes, seconds};
    use crate::window::Window;

    #[test]
    fn a_frame_agrees_with_its_window() {
        let builders = [
            Settings::builder(),
            Settings::builder().retain(minutes(5)),
            Settings::builder().window(days(1)).exact(days(2)),
            Settings::builder().resolution(milliseconds(100)),
            Settings::builder().retain(seconds(90)).window(seconds(90)),
            Settings::builder().resolution(days(1)).retain(Span::MAX),
        ];
        for builder in builders {
            let settings = builder.build().expect("valid");
            for now_ms in [0, 1, 999, 1_000, 89_999, 300_000, 1_700_000_000_123, 253_402_300_799_999] {
                let now = Timestamp::from_millis(now_ms).expect("a time");
                let frame = Frame::new(&settings, now);
                let window = Window::ending_at(now, settings.window(), &settings, now);
                if frame.is_exact {
                    let range = Some((frame.from_ms, frame.to_ms));
                    assert_eq!(range, window.exact_range_ms(), "{settings:?} at {now}");
                }
                assert_eq!(
                    frame.to_ms,
                    Window::ending_at(now, Span::MIN, &settings, now).exact_range_ms().expect("a pane").1
                );
                assert_eq!(frame.oldest_ms.max(0), settings.oldest(now).as_millis());
            }
        }
    }
}
