//! Fixed windows, as built with `INCR` and `EXPIRE`: the count restarts at 0 in each window.

use lately::{Span, Timestamp};

/// Where windows begin.
#[derive(Clone, Copy)]
pub(crate) enum Begin {
    /// At multiples of their length: the name of the key contains the number of the window.
    OnTheClock,
    /// At the first request after the last window has ended: it finds no key, and sets the time to live.
    WithTheFirstRequest,
}

/// The requests of the current window, and its start.
pub(crate) struct FixedWindow {
    max: u64,
    length: Span,
    begin: Begin,
    began: Option<Timestamp>,
    count: u64,
}

impl FixedWindow {
    pub(crate) fn new(max: u64, length: Span, begin: Begin) -> FixedWindow {
        FixedWindow { max, length, begin, began: None, count: 0 }
    }

    /// Counts a request, admitted or not, and returns whether it is admitted.
    pub(crate) fn admits(&mut self, now: Timestamp) -> bool {
        if self.began.is_none_or(|began| began.saturating_add(self.length) <= now) {
            self.began = Some(self.beginning_at(now));
            self.count = 0;
        }
        self.count += 1;
        self.count <= self.max
    }

    fn beginning_at(&self, now: Timestamp) -> Timestamp {
        match self.begin {
            Begin::WithTheFirstRequest => now,
            Begin::OnTheClock => {
                let into_ms = now.as_millis().rem_euclid(self.length.as_millis());
                Timestamp::from_millis(now.as_millis() - into_ms).expect("it is not before the epoch")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::seconds;

    use super::*;

    #[test]
    fn a_window_begins_at_the_clock_or_the_first_request() {
        let check = |begin, expected: [(i64, bool); 6]| {
            let mut window = FixedWindow::new(2, seconds(10), begin);
            for (at_ms, admitted) in expected {
                let now = Timestamp::from_millis(at_ms).expect("a time");
                assert_eq!(window.admits(now), admitted, "{at_ms}");
            }
        };
        let on_the_clock =
            [(9_000, true), (9_998, true), (9_999, false), (10_000, true), (11_000, true), (19_999, false)];
        check(Begin::OnTheClock, on_the_clock);
        let with_the_first =
            [(9_000, true), (9_998, true), (10_000, false), (18_999, false), (19_000, true), (28_999, true)];
        check(Begin::WithTheFirstRequest, with_the_first);
    }
}
