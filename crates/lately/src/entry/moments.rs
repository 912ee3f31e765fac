//! A handful of moments kept inline: the form of a cold key.

use crate::panes::Pane;

/// Moments an entry holds without memory of its own.
const INLINE_MOMENTS: usize = 3;

/// Hits of one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    pub(crate) hits: u64,
}

impl Moment {
    pub(crate) fn pane(self) -> Pane {
        Pane { start_ms: self.at_ms, width_ms: 1, hits: self.hits }
    }
}

/// Up to three moments, in order of time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Few {
    moments: [Moment; INLINE_MOMENTS],
    len: u8,
}

impl Few {
    fn slice(&self) -> &[Moment] {
        &self.moments[..usize::from(self.len)]
    }

    pub(crate) fn total(&self) -> u64 {
        self.slice().iter().map(|moment| moment.hits).sum()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Pane> + '_ {
        self.slice().iter().map(|moment| moment.pane())
    }

    /// Adds `hits`; false, and nothing added, when that takes one moment too many.
    pub(crate) fn add(&mut self, at_ms: i64, hits: u64) -> bool {
        let place = self.slice().partition_point(|moment| moment.at_ms < at_ms);
        let len = usize::from(self.len);
        if place < len && self.moments[place].at_ms == at_ms {
            self.moments[place].hits += hits;
            return true;
        }
        if len == INLINE_MOMENTS {
            return false;
        }
        self.moments.copy_within(place..len, place + 1);
        self.moments[place] = Moment { at_ms, hits };
        self.len += 1;
        true
    }

    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64) -> u64 {
        let inside = |moment: &&Moment| (from_ms..to_ms).contains(&moment.at_ms);
        self.slice().iter().filter(inside).map(|moment| moment.hits).sum()
    }

    /// Drops the moments before `horizon_ms`.
    pub(crate) fn expire(&mut self, horizon_ms: i64) {
        let len = usize::from(self.len);
        let expired = self.slice().partition_point(|moment| moment.at_ms < horizon_ms);
        self.moments.copy_within(expired..len, 0);
        self.len -= u8::try_from(expired).unwrap_or(self.len);
    }
}
