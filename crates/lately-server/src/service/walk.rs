//! Slow requests, run in slices: series, and walks over all keys. Between two slices other clients are served.

use std::collections::{BinaryHeap, HashSet};

use lately::limits::MAX_SCAN_SLOTS;
use lately::{Cursor, Pattern, Point, QueryError, SeriesReader, Span, Timestamp};

use crate::limits::{
    COOLEST_STEP, SCAN_BYTES, SCAN_STEP, SCAN_STEP_PATTERN_BYTES, SCAN_WORK, SERIES_STEP, WALK_STEP,
};
use crate::service::Service;
use crate::service::alerts::is_total;

/// A series: the hits of a key in each step of a window.
pub(crate) struct SeriesWalk {
    key: Box<[u8]>,
    reader: SeriesReader,
    step: Span,
}

impl SeriesWalk {
    /// A series over the window that ends at `at`.
    ///
    /// # Errors
    /// The step does not fit the class of the key, or there are too many points.
    pub(crate) fn new(
        service: &Service,
        key: &[u8],
        (window, step): (Span, Span),
        at: Timestamp,
    ) -> Result<SeriesWalk, QueryError> {
        let reader = service.store.series_reader(key, window, step, at)?;
        Ok(SeriesWalk { key: key.into(), reader, step })
    }

    /// The number of points left.
    pub(crate) fn left(&self) -> usize {
        self.reader.left()
    }

    /// Whether one slice finishes it.
    pub(crate) fn is_short(&self) -> bool {
        self.left() <= SERIES_STEP
    }

    /// Whether each point starts at a whole second.
    pub(crate) fn has_whole_seconds(&self) -> bool {
        self.step.as_millis() % 1_000 == 0
    }

    /// Reads the points of the next slice.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> Vec<Point> {
        service.store.read_series(&self.key, &mut self.reader, SERIES_STEP, now)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.key.len()
    }
}

/// A page of keys.
pub(crate) struct ScanWalk {
    pattern: Option<Pattern>,
    /// Whether any key can match. With another `TYPE` than `hits` none does.
    wanted: bool,
    /// Slots left to visit, and slots per slice.
    places: usize,
    step: usize,
    cursor: Cursor,
    keys: Vec<Box<[u8]>>,
    key_bytes: usize,
    work: u64,
}

impl ScanWalk {
    /// A page from a cursor on, of about `places` slots.
    pub(crate) fn new(cursor: u64, places: u64, pattern: Option<&[u8]>, wanted: bool) -> ScanWalk {
        let pattern_bytes = pattern.map_or(0, <[u8]>::len);
        ScanWalk {
            pattern: pattern.map(Pattern::new),
            wanted,
            places: usize::try_from(places).unwrap_or(usize::MAX).min(MAX_SCAN_SLOTS),
            step: SCAN_STEP * SCAN_STEP_PATTERN_BYTES / pattern_bytes.max(SCAN_STEP_PATTERN_BYTES),
            cursor: Cursor::from_number(cursor),
            keys: Vec::new(),
            key_bytes: 0,
            work: 0,
        }
    }

    /// Whether one slice finishes it.
    pub(crate) fn is_short(&self) -> bool {
        self.places <= self.step
    }

    /// Runs a slice. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> bool {
        let step = self.places.min(self.step);
        let mut page = service.store.scan(self.cursor, self.pattern.as_ref(), step, now);
        page.keys.retain(|key| !is_total(key));
        self.work += page.work;
        if self.wanted {
            self.key_bytes += page.keys.iter().map(|key| key.len()).sum::<usize>();
            self.keys.extend(page.keys);
        }
        (self.cursor, self.places) = (page.next, self.places - step);
        self.cursor == Cursor::START
            || self.places == 0
            || self.key_bytes >= SCAN_BYTES
            || self.work >= SCAN_WORK
    }

    /// The cursor of the next page, and the keys of this one.
    pub(crate) fn page(&self) -> (u64, &[Box<[u8]>]) {
        (self.cursor.number(), &self.keys)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.key_bytes + self.keys.capacity() * size_of::<Box<[u8]>>()
    }
}

/// The least-hit keys that begin with a prefix.
pub(crate) struct CoolestWalk {
    prefix: Box<[u8]>,
    count: usize,
    window: Option<Span>,
    below: Option<u64>,
    cursor: Cursor,
    /// A max-heap: the most-hit key found so far is on top, and is dropped when there are too many.
    rows: BinaryHeap<(u64, Box<[u8]>)>,
    key_bytes: usize,
}

impl CoolestWalk {
    /// At most `count` keys, only those with fewer than `below` hits in the window.
    pub(crate) fn new(prefix: &[u8], count: usize, window: Option<Span>, below: Option<u64>) -> CoolestWalk {
        let (cursor, rows) = (Cursor::START, BinaryHeap::new());
        CoolestWalk { prefix: prefix.into(), count, window, below, cursor, rows, key_bytes: 0 }
    }

    /// Runs a slice. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> bool {
        let mut page = service.store.scan(self.cursor, None, WALK_STEP, now);
        page.keys.retain(|key| key.starts_with(&self.prefix) && !is_total(key));
        let keys: Vec<&[u8]> = page.keys.iter().map(|key| &**key).collect();
        let counts: Vec<u64> = service.hits_of(&keys, self.window, now).collect();
        let is_below = |hits: u64| self.below.is_none_or(|below| hits < below);
        for row in counts.into_iter().zip(page.keys).filter(|&(hits, _)| is_below(hits)) {
            self.key_bytes += row.1.len();
            self.rows.push(row);
            if self.rows.len() > self.count
                && let Some((_, key)) = self.rows.pop()
            {
                self.key_bytes -= key.len();
            }
        }
        self.cursor = page.next;
        self.cursor == Cursor::START
    }

    /// The keys with their hits, least first.
    pub(crate) fn into_rows(self) -> Vec<(u64, Box<[u8]>)> {
        self.rows.into_sorted_vec()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.prefix.len() + self.key_bytes + self.rows.capacity() * size_of::<(u64, Box<[u8]>)>()
    }
}

/// The least-hit of the named keys, least first. Keys with equal hits keep their order.
pub(crate) struct NamedWalk {
    /// Each once.
    keys: Vec<Box<[u8]>>,
    /// The hits of the first keys.
    hits: Vec<u64>,
    key_bytes: usize,
    count: usize,
    window: Option<Span>,
    below: Option<u64>,
}

impl NamedWalk {
    /// At most `count` of the keys, only those with fewer than `below` hits in the window.
    pub(crate) fn new<'k>(
        keys: impl Iterator<Item = &'k [u8]>,
        (count, window, below): (usize, Option<Span>, Option<u64>),
    ) -> NamedWalk {
        let mut seen = HashSet::new();
        let keys: Vec<Box<[u8]>> = keys.filter(|key| seen.insert(*key)).map(Box::from).collect();
        let key_bytes = keys.iter().map(|key| key.len()).sum();
        NamedWalk { hits: Vec::with_capacity(keys.len()), keys, key_bytes, count, window, below }
    }

    /// Whether one slice finishes it.
    pub(crate) fn is_short(&self) -> bool {
        self.keys.len() <= COOLEST_STEP
    }

    /// Counts the next keys. True at the end.
    pub(crate) fn step(&mut self, service: &Service, now: Timestamp) -> bool {
        let next: Vec<&[u8]> =
            self.keys[self.hits.len()..].iter().take(COOLEST_STEP).map(|key| &**key).collect();
        self.hits.extend(service.hits_of(&next, self.window, now));
        self.hits.len() == self.keys.len()
    }

    /// The keys with their hits, least first.
    pub(crate) fn into_rows(self) -> Vec<(u64, Box<[u8]>)> {
        let mut rows: Vec<_> = self.hits.into_iter().zip(self.keys).collect();
        rows.retain(|&(hits, _)| self.below.is_none_or(|below| hits < below));
        rows.sort_by_key(|&(hits, _)| hits);
        rows.truncate(self.count);
        rows
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.key_bytes
            + self.keys.capacity() * size_of::<Box<[u8]>>()
            + self.hits.capacity() * size_of::<u64>()
    }
}
