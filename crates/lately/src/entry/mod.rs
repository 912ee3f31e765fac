//! One key's hits, in the form that suits how many there are.
//!
//! A cold key holds a few moments inline; a warmer one a sorted list of moments and panes; a hot one
//! a dense ring over the exact span. Every form gives the same answers: what differs is size and
//! speed. This file is the only one that knows there are several.

mod dense;
mod list;
mod moments;

use crate::count::Count;
use crate::error::HitError;
use crate::limits::MAX_TOTAL;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

use dense::Dense;
use list::List;
use moments::Few;

/// The hits of one key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    form: Form,
    newest: Timestamp,
}

#[derive(Clone, Debug)]
enum Form {
    Few(Few),
    List(Box<List>),
    Dense(Box<Dense>),
}

impl Entry {
    /// An entry without hits.
    pub(crate) fn new() -> Entry {
        Entry { form: Form::Few(Few::default()), newest: Timestamp::MIN }
    }

    /// The time of the newest hit; the epoch before any.
    pub(crate) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// All hits held, those past the horizon and not yet dropped included.
    pub(crate) fn total(&self) -> u64 {
        match &self.form {
            Form::Few(few) => few.total(),
            Form::List(list) => list.total(),
            Form::Dense(dense) => dense.total(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Whether no window within the retention reaches the newest hit any more.
    pub(crate) fn expired(&self, settings: &Settings, now: Timestamp) -> bool {
        self.is_empty() || self.newest.as_millis() < settings.retention_edge_ms(now)
    }

    /// Counts `weight` hits at `at`, a time the caller has checked against the retention and the
    /// clock. `now` is at least every `now` this entry was given before.
    ///
    /// # Errors
    /// [`HitError::Overflow`] when the kept total would pass [`MAX_TOTAL`]; nothing changes.
    pub(crate) fn add(
        &mut self,
        at: Timestamp,
        weight: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<(), HitError> {
        if weight == 0 {
            return Ok(());
        }
        if !self.has_room(weight) {
            self.merge(settings, now);
            if !self.has_room(weight) {
                return Err(HitError::Overflow { total: self.total(), weight });
            }
        }
        self.newest = self.newest.max(at);
        self.add_to_form(at.as_millis(), weight, settings, now);
        Ok(())
    }

    fn has_room(&self, weight: u64) -> bool {
        self.total().checked_add(weight).is_some_and(|total| total <= MAX_TOTAL)
    }

    fn add_to_form(&mut self, at_ms: i64, weight: u64, settings: &Settings, now: Timestamp) {
        match &mut self.form {
            Form::Few(few) => {
                if !few.add(at_ms, weight) {
                    let mut list = List::from_moments(few.iter());
                    list.add(at_ms, weight, settings, now);
                    self.form = Form::List(Box::new(list));
                }
            }
            Form::List(list) => {
                if list.is_crowded(at_ms, settings, now) {
                    let (older, moments) = list.take_parts();
                    let mut dense = Dense::new(older, settings, now);
                    for moment in moments {
                        dense.add(moment.at_ms, moment.hits, settings, now);
                    }
                    dense.add(at_ms, weight, settings, now);
                    self.form = Form::Dense(Box::new(dense));
                } else {
                    list.add(at_ms, weight, settings, now);
                }
            }
            Form::Dense(dense) => {
                dense.advance(settings.pane_of(at_ms), settings, now);
                if dense.is_quiet() {
                    let mut list = List::from_panes(dense.take_older());
                    list.add(at_ms, weight, settings, now);
                    self.form = Form::List(Box::new(list));
                } else {
                    dense.add(at_ms, weight, settings, now);
                }
            }
        }
    }

    /// Hits in the window of length `span` ending with the pane of `at`, as seen from `now`.
    pub(crate) fn count(&self, at: Timestamp, span: Span, settings: &Settings, now: Timestamp) -> Count {
        let window = Window::ending_at(at, span, settings, now);
        if let Form::Dense(dense) = &self.form
            && let Some((from_ms, to_ms)) = window.exact_range_ms()
        {
            return window.exact_count(dense.exact_sum(from_ms, to_ms, settings));
        }
        window.count(|from_ms, to_ms| self.sum(from_ms, to_ms, settings))
    }

    /// Hits between two pane borders.
    pub(crate) fn sum(&self, from_ms: i64, to_ms: i64, settings: &Settings) -> u64 {
        if from_ms >= to_ms {
            return 0;
        }
        match &self.form {
            Form::Few(few) => few.sum(from_ms, to_ms),
            Form::List(list) => list.sum(from_ms, to_ms),
            Form::Dense(dense) => dense.sum(from_ms, to_ms, settings),
        }
    }

    /// Moves the running total of a hot key to `now`, so that reads until the next hit scan nothing.
    pub(crate) fn advance(&mut self, settings: &Settings, now: Timestamp) {
        if let Form::Dense(dense) = &mut self.form {
            dense.advance(settings.pane_of(now.as_millis()), settings, now);
        }
    }

    /// Drops what has left the retention and joins old panes. Changes no answer from `now` on.
    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        match &mut self.form {
            Form::Few(few) => few.expire(settings.horizon_ms(now)),
            Form::List(list) => list.merge(settings, now),
            Form::Dense(dense) => dense.merge(settings, now),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Few(_) => 0,
            Form::List(list) => size_of::<List>() + list.heap_bytes(),
            Form::Dense(dense) => size_of::<Dense>() + dense.heap_bytes(),
        }
    }

    /// Verifies the entry against its definition.
    ///
    /// # Panics
    /// When it does not hold: that is a bug of this crate.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        match &self.form {
            Form::Few(_) => {}
            Form::List(list) => list.check_consistency(settings, now),
            Form::Dense(dense) => dense.check_consistency(settings, now),
        }
        assert!(self.total() <= MAX_TOTAL, "total {}", self.total());
    }
}
