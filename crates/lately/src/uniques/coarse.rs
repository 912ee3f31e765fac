//! Times that are known less well than the class of today has them: from an earlier class with wider panes, or far ahead of the clock.

use crate::leb128;

use super::take_ms;

/// Hits in panes that begin before `until_ms` may be up to `width_ms` later than their pane begins.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Coarse {
    until_ms: i64,
    width_ms: i64,
}

impl Coarse {
    /// Panes of this width begin before a time.
    pub(super) fn until(until_ms: i64, width_ms: i64) -> Coarse {
        Coarse { until_ms, width_ms }
    }

    /// Both are so.
    pub(super) fn note(&mut self, Coarse { until_ms, width_ms }: Coarse) {
        *self = Coarse { until_ms: self.until_ms.max(until_ms), width_ms: self.width_ms.max(width_ms) };
    }

    /// Whether the panes around a time may be wider.
    pub(super) fn has(self, at_ms: i64) -> bool {
        at_ms < self.until_ms
    }

    /// Whether all of these panes lie inside of panes of a width.
    pub(super) fn divides(self, pane_ms: i64) -> bool {
        self.width_ms > 0 && pane_ms % self.width_ms == 0
    }

    /// The width of these panes.
    pub(super) fn width_ms(self) -> i64 {
        self.width_ms
    }

    /// A pane that begins at this time or later may have hits of `at_ms` or later.
    pub(super) fn earliest_ms(self, at_ms: i64) -> i64 {
        if self.has(at_ms) { at_ms - self.width_ms + 1 } else { at_ms }
    }

    /// Later times become this one.
    pub(super) fn end_by(&mut self, latest_ms: i64) {
        self.until_ms = self.until_ms.min(latest_ms + self.width_ms);
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        leb128::push(out, self.until_ms.cast_unsigned());
        leb128::push(out, self.width_ms.cast_unsigned());
    }

    pub(super) fn read(bytes: &mut &[u8]) -> Option<Coarse> {
        Some(Coarse { until_ms: take_ms(bytes)?, width_ms: take_ms(bytes)? })
    }
}
