//! One key's hits, in the form that suits how many there are.
//!
//! A cold key holds a moment in the entry itself; a warmer one a sorted list of moments and panes on
//! the heap; a hot one a dense ring over the exact span. Every form gives the same answers: what
//! differs is size and speed. This file is the only one that knows there are several.

mod dense;
mod list;
mod moment;

use crate::count::Count;
use crate::error::HitError;
use crate::limits::MAX_TOTAL;
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::time::{Span, Timestamp};
use crate::window::Window;

use dense::Dense;
use list::List;
use moment::{Moment, PackedMoment};

/// The hits of one key, in 16 bytes and what is on the heap.
#[derive(Clone, Default, Debug)]
pub(crate) struct Entry {
    /// The only moment, while nothing is on the heap.
    moment: PackedMoment,
    heap: Option<Box<Heap>>,
}

#[derive(Clone, Debug)]
struct Heap {
    newest: Timestamp,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    List(List),
    Dense(Dense),
}

impl Entry {
    /// An entry without hits.
    pub(crate) fn new() -> Entry {
        Entry::default()
    }

    /// The time of the newest hit; the epoch before any.
    pub(crate) fn newest(&self) -> Timestamp {
        match &self.heap {
            Some(heap) => heap.newest,
            None => self
                .moment
                .get()
                .and_then(|moment| Timestamp::from_millis(moment.at_ms))
                .unwrap_or(Timestamp::MIN),
        }
    }

    /// All hits held, those past the horizon and not yet dropped included.
    pub(crate) fn total(&self) -> u64 {
        match &self.heap {
            Some(heap) => heap.form.total(),
            None => self.moment.get().map_or(0, |moment| moment.hits),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Whether no window within the retention reaches the newest hit any more.
    pub(crate) fn expired(&self, settings: &Settings, now: Timestamp) -> bool {
        self.is_empty() || self.newest().as_millis() < settings.retention_edge_ms(now)
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
        if !self.add_to_moment(at, weight) {
            let heap = self.heap();
            heap.newest = heap.newest.max(at);
            heap.form.add(at.as_millis(), weight, settings, now);
        }
        Ok(())
    }

    fn has_room(&self, weight: u64) -> bool {
        self.total().checked_add(weight).is_some_and(|total| total <= MAX_TOTAL)
    }

    /// Adds to the moment in the entry, when it is of that time, or none, and has room.
    fn add_to_moment(&mut self, at: Timestamp, weight: u64) -> bool {
        let at_ms = at.as_millis();
        let held = self.moment.get();
        if self.heap.is_some() || held.is_some_and(|moment| moment.at_ms != at_ms) {
            return false;
        }
        let hits = held.map_or(0, |moment| moment.hits) + weight;
        match PackedMoment::pack(Moment { at_ms, hits }) {
            Some(packed) => {
                self.moment = packed;
                true
            }
            None => false,
        }
    }

    /// The hits on the heap; what the entry held itself goes there first.
    fn heap(&mut self) -> &mut Heap {
        let newest = self.newest();
        let held = std::mem::take(&mut self.moment).get();
        self.heap.get_or_insert_with(|| Box::new(Heap { newest, form: Form::List(List::from_moment(held)) }))
    }

    /// Hits in the window of length `span` ending with the pane of `at`, as seen from `now`.
    pub(crate) fn count(&self, at: Timestamp, span: Span, settings: &Settings, now: Timestamp) -> Count {
        let window = Window::ending_at(at, span, settings, now);
        if let Some(Heap { form: Form::Dense(dense), .. }) = self.heap.as_deref()
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
        match self.heap.as_deref() {
            None => {
                let held = self.moment.get();
                held.filter(|moment| (from_ms..to_ms).contains(&moment.at_ms)).map_or(0, |moment| moment.hits)
            }
            Some(Heap { form: Form::List(list), .. }) => list.sum(from_ms, to_ms),
            Some(Heap { form: Form::Dense(dense), .. }) => dense.sum(from_ms, to_ms, settings),
        }
    }

    /// Moves the running total of a hot key to `now`, so that reads until the next hit scan nothing.
    pub(crate) fn advance(&mut self, settings: &Settings, now: Timestamp) {
        if let Some(Heap { form: Form::Dense(dense), .. }) = self.heap.as_deref_mut() {
            dense.advance(settings.pane_of(now.as_millis()), settings, now);
        }
    }

    /// Drops what has left the retention and joins old panes; a key that is hot no more gives its
    /// ring back. Changes no answer from `now` on.
    pub(crate) fn merge(&mut self, settings: &Settings, now: Timestamp) {
        match self.heap.as_deref_mut() {
            Some(heap) => heap.form.merge(settings, now),
            None => {
                let horizon_ms = settings.horizon_ms(now);
                if self.moment.get().is_some_and(|moment| moment.at_ms < horizon_ms) {
                    self.moment = PackedMoment::default();
                }
            }
        }
    }

    /// Has what is on the heap fetched.
    pub(crate) fn prefetch_heap(&self) {
        if let Some(heap) = self.heap.as_deref() {
            prefetch(heap);
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.as_ref().map_or(0, |heap| size_of::<Heap>() + heap.form.heap_bytes())
    }

    /// Verifies the entry against its definition.
    ///
    /// # Panics
    /// When it does not hold: that is a bug of this crate.
    pub(crate) fn check_consistency(&self, settings: &Settings, now: Timestamp) {
        match self.heap.as_deref() {
            None => {}
            Some(Heap { form: Form::List(list), .. }) => list.check_consistency(settings, now),
            Some(Heap { form: Form::Dense(dense), .. }) => dense.check_consistency(settings, now),
        }
        let beside = self.heap.is_some() && self.moment.get().is_some();
        assert!(!beside, "a moment in the entry and hits on the heap");
        assert!(self.total() <= MAX_TOTAL, "total {}", self.total());
    }
}

impl Form {
    fn total(&self) -> u64 {
        match self {
            Form::List(list) => list.total(),
            Form::Dense(dense) => dense.total(),
        }
    }

    fn add(&mut self, at_ms: i64, weight: u64, settings: &Settings, now: Timestamp) {
        match self {
            Form::List(list) if list.is_crowded(at_ms, settings, now) => {
                let (older, moments) = list.take_parts();
                let mut dense = Dense::new(older, settings, now);
                for moment in moments {
                    dense.add(moment.at_ms, moment.hits, settings, now);
                }
                dense.add(at_ms, weight, settings, now);
                *self = Form::Dense(dense);
            }
            Form::List(list) => list.add(at_ms, weight, settings, now),
            Form::Dense(dense) => {
                dense.advance(settings.pane_of(at_ms), settings, now);
                if dense.is_quiet() {
                    *self = Form::List(List::from_panes(dense.take_older()));
                    self.add(at_ms, weight, settings, now);
                } else {
                    dense.add(at_ms, weight, settings, now);
                }
            }
        }
    }

    fn merge(&mut self, settings: &Settings, now: Timestamp) {
        match self {
            Form::List(list) => list.merge(settings, now),
            Form::Dense(dense) => {
                dense.merge(settings, now);
                if dense.is_quiet() {
                    *self = Form::List(List::from_panes(dense.take_older()));
                }
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Form::List(list) => list.heap_bytes(),
            Form::Dense(dense) => dense.heap_bytes(),
        }
    }
}
