//! `SERIES`: the hits of a window, step by step.

use lately::{Span, Timestamp};
use lately_resp::{CommandError, Encoder};

use super::{Session, integer};

impl Session {
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
            Err(error) => return reply.error(CommandError::about_argument(error, "series")),
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
}
