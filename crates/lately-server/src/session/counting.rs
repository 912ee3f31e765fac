//! Counting and asking: `HIT MHIT HITS MHITS RATE SERIES`.

use lately::{HitError, Span, Timestamp};
use lately_resp::Encoder;
use lately_resp::command::Windows;

use super::{Session, integer};

impl Session {
    pub(super) fn hit(
        &mut self,
        key: &[u8],
        weight: u64,
        at: Option<Timestamp>,
        now: Timestamp,
        reply: &mut Encoder<'_>,
    ) {
        match self.engine.store.hit_n(key, weight, at, now) {
            Ok(hits) => {
                self.tally.hits += weight;
                reply.integer(integer(hits));
            }
            Err(error) => {
                self.tally.refused_hits = self.tally.refused_hits.saturating_add(weight);
                reply.error(refusal(&error));
            }
        }
    }

    pub(super) fn hits(
        &self,
        key: &[u8],
        windows: Windows<'_>,
        at: Option<Timestamp>,
        now: Timestamp,
        reply: &mut Encoder<'_>,
    ) {
        if windows.len() <= 1 {
            reply.integer(self.estimate(key, windows.first(), at, now));
            return;
        }
        reply.array(windows.len());
        for window in windows.iter() {
            reply.integer(self.estimate(key, Some(window), at, now));
        }
    }

    pub(super) fn bounds(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
        reply: &mut Encoder<'_>,
    ) {
        let count = self.count(key, window, at, now);
        reply.array(4);
        reply.integer(integer(count.estimate));
        reply.integer(integer(count.lower));
        reply.integer(count.upper.map_or(-1, integer));
        reply.integer(count.cell.as_millis());
    }

    /// Hits per second of the panes the window covers: a window is whole panes.
    #[expect(clippy::cast_precision_loss, reason = "a rate is a fraction")]
    pub(super) fn rate(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> f64 {
        let settings = self.engine.store.settings_of(key);
        let panes = settings.whole_panes(window.unwrap_or(settings.window()));
        self.count(key, window, at, now).estimate as f64 / panes.as_seconds_f64()
    }

    pub(super) fn series(
        &self,
        key: &[u8],
        (window, step): (Span, Span),
        at: Option<Timestamp>,
        now: Timestamp,
        reply: &mut Encoder<'_>,
    ) {
        let points = match self.engine.store.series(key, window, step, at, now) {
            Ok(points) => points,
            Err(error) => return reply.error(format_args!("ERR {error}")),
        };
        // One type for the starts of a series: whole seconds, unless a step is no whole second.
        let whole_seconds = step.as_millis() % 1_000 == 0;
        reply.array(points.len());
        for point in points {
            reply.array(2);
            if whole_seconds {
                reply.integer(point.start.as_millis() / 1_000);
            } else {
                #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
                reply.double(point.start.as_millis() as f64 / 1_000.0);
            }
            reply.integer(integer(point.hits));
        }
    }

    pub(super) fn estimate(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> i64 {
        integer(self.count(key, window, at, now).estimate)
    }

    fn count(
        &self,
        key: &[u8],
        window: Option<Span>,
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> lately::Count {
        self.engine.store.count(key, window, at, now)
    }
}

/// A refused hit as an error reply.
fn refusal(error: &HitError) -> String {
    let kind = match error {
        HitError::Late { .. } => "LATE",
        HitError::Future { .. } => "FUTURE",
        HitError::OutOfMemory { .. } => "OOM",
        _ => "ERR",
    };
    format!("{kind} {error}")
}
