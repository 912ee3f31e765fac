//! The hits of the last hour or more by key, and the busiest keys of a window that ends now.
//!
//! The hits are in a [`Store`]: it takes late lines, answers any window, drops hits older than the longest window, and has
//! a memory ceiling.

use std::cmp::{Ordering, Reverse};

use lately::limits::MAX_SCAN_SLOTS;
use lately::{Cursor, HitError, SettingsError, Span, Store, Timestamp, minutes, seconds};

use crate::limits::{LINE_SKEW, PEAK_SPAN, TOP_MEMORY_BYTES};
use crate::table::printable;

/// The span of the column for the latest hits.
pub(crate) const LATEST: Span = seconds(10);

/// The width of a pane.
const SECOND: Span = seconds(1);

pub(crate) struct Hits {
    store: Store,
    longest: Span,
    newest: Option<Timestamp>,
    ahead: u64,
    refused: u64,
    swept: Cursor,
}

/// The order of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Hits,
    Latest,
    Key,
}

/// The keys to rank.
pub(crate) struct Question<'a> {
    pub(crate) window: Span,
    pub(crate) sort: Sort,
    /// A text that the printed key must contain, ignoring case.
    pub(crate) filter: &'a str,
    pub(crate) rows: usize,
    /// The most steps of each curve.
    pub(crate) steps: usize,
}

/// The first keys, and the sums over all keys that match the filter and have hits in the window.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Ranked {
    pub(crate) rows: Vec<Row>,
    pub(crate) keys: usize,
    pub(crate) hits: u64,
}

/// The numbers of one key.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) key: Box<[u8]>,
    /// Hits in the window.
    pub(crate) hits: u64,
    /// Hits in [`LATEST`].
    pub(crate) latest: u64,
    /// The most hits in any window of that length in the last hour, if that is known.
    pub(crate) peak: Option<u64>,
    /// Hits that limits denied in the window. 0 for logs.
    pub(crate) denied: u64,
    /// The window in steps, oldest first.
    pub(crate) curve: Vec<u64>,
}

impl Hits {
    /// A store for windows up to `longest`. Windows up to an hour are exact.
    pub(crate) fn new(longest: Span) -> Result<Hits, SettingsError> {
        Hits::with_memory(longest, TOP_MEMORY_BYTES)
    }

    fn with_memory(longest: Span, ceiling_bytes: u64) -> Result<Hits, SettingsError> {
        let longest = longest.max(PEAK_SPAN);
        let exact = PEAK_SPAN.as_millis() + minutes(1).as_millis();
        let store = Store::builder()
            .resolution(SECOND)
            // The shortest default window, because the result of a hit is not used.
            .window(SECOND)
            .exact(Span::from_millis(exact.min(longest.as_millis())).unwrap_or(longest))
            .retain(longest)
            .max_skew(LINE_SKEW)
            .memory_ceiling(ceiling_bytes)
            .build()?;
        Ok(Hits { store, longest, newest: None, ahead: 0, refused: 0, swept: Cursor::START })
    }

    /// Counts a line. Lines older than the longest window are ignored.
    pub(crate) fn hit(&mut self, key: &[u8], at: Timestamp, now: Timestamp) {
        let is_old = now.as_millis() - at.as_millis() > self.longest.as_millis();
        match if is_old { Ok(0) } else { self.store.hit_at(key, at, now) } {
            Ok(_) | Err(HitError::Late { .. }) => self.newest = self.newest.max(Some(at)),
            Err(HitError::Future { .. }) => self.ahead += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Time of the newest line.
    pub(crate) fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The number of lines that are too far ahead of the clock to be counted.
    pub(crate) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// The number of keys that were evicted and lines that were refused because of the memory ceiling.
    pub(crate) fn forgotten(&self) -> u64 {
        self.store.memory().evicted_keys + self.refused
    }

    /// Removes some of the keys whose hits are older than the longest window.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.swept = self.store.sweep(self.swept, MAX_SCAN_SLOTS, now);
    }

    /// The first keys of the window that ends now.
    pub(crate) fn rank(&self, question: &Question<'_>, now: Timestamp) -> Ranked {
        let mut ranked = Ranked::default();
        let filter = question.filter.to_lowercase();
        let mut found = Vec::new();
        let mut cursor = Cursor::START;
        loop {
            let page = self.store.scan(cursor, None, MAX_SCAN_SLOTS, now);
            for key in page.keys {
                let hits = self.store.hits(&key, question.window, now).estimate;
                if hits == 0 || !(filter.is_empty() || printable(&key).to_lowercase().contains(&filter)) {
                    continue;
                }
                ranked.keys += 1;
                ranked.hits += hits;
                let latest = match question.sort {
                    Sort::Latest => self.store.hits(&key, LATEST, now).estimate,
                    _ => 0,
                };
                found.push((hits, latest, key));
            }
            cursor = page.next;
            if cursor == Cursor::START {
                break;
            }
        }
        let order = |a: &(u64, u64, Box<[u8]>), b: &(u64, u64, Box<[u8]>)| -> Ordering {
            let numbers = |of: &(u64, u64, Box<[u8]>)| match question.sort {
                Sort::Hits => Reverse((of.0, 0)),
                Sort::Latest => Reverse((of.1, of.0)),
                Sort::Key => Reverse((0, 0)),
            };
            numbers(a).cmp(&numbers(b)).then_with(|| a.2.cmp(&b.2))
        };
        if question.rows < found.len() {
            found.select_nth_unstable_by(question.rows, order);
            found.truncate(question.rows);
        }
        found.sort_unstable_by(order);
        ranked.rows = found.into_iter().map(|(hits, _, key)| self.row(key, hits, question, now)).collect();
        ranked
    }

    fn row(&self, key: Box<[u8]>, hits: u64, question: &Question<'_>, now: Timestamp) -> Row {
        let latest = self.store.hits(&key, LATEST, now).estimate;
        let (peak, curve) = if question.window <= PEAK_SPAN {
            let seconds = self.points(&key, PEAK_SPAN, SECOND, now);
            let window =
                usize::try_from(question.window.as_millis() / SECOND.as_millis()).unwrap_or(usize::MAX);
            (
                peak(&seconds, window),
                in_steps(&seconds[seconds.len().saturating_sub(window)..], question.steps),
            )
        } else {
            let steps = i64::try_from(question.steps.max(1)).unwrap_or(i64::MAX);
            let second_ms = SECOND.as_millis();
            let step_ms = (question.window.as_millis() / second_ms / steps + 1) * second_ms;
            let step = Span::from_millis(step_ms).unwrap_or(question.window);
            let points = self.points(&key, question.window, step, now);
            (hits, points[points.len().saturating_sub(question.steps)..].to_vec())
        };
        Row { key, hits, latest, peak: Some(peak), denied: 0, curve }
    }

    fn points(&self, key: &[u8], window: Span, step: Span, now: Timestamp) -> Vec<u64> {
        // The steps are whole panes, and fewer than a series may have.
        let points = self.store.series(key, window, step, None, now).unwrap_or_default();
        points.into_iter().map(|point| point.hits).collect()
    }
}

/// The most hits in any `window` of these consecutive seconds.
fn peak(seconds: &[u64], window: usize) -> u64 {
    let (mut sum, mut peak) = (0, 0);
    for (second, hits) in seconds.iter().enumerate() {
        sum += hits;
        if let Some(left) = second.checked_sub(window) {
            sum -= seconds[left];
        }
        peak = peak.max(sum);
    }
    peak
}

/// The sums of at most `steps` parts of nearly the same length.
fn in_steps(seconds: &[u64], steps: usize) -> Vec<u64> {
    let steps = steps.min(seconds.len());
    let from = |step: usize| seconds.len() * step / steps;
    (0..steps).map(|step| seconds[from(step)..from(step + 1)].iter().sum()).collect()
}

#[cfg(test)]
mod tests {
    use lately::{days, hours, milliseconds};

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_seconds(1_710_230_000 + second).expect("a time")
    }

    fn hits(lines: &[(&str, u64)], now: Timestamp) -> Hits {
        let mut hits = Hits::new(hours(1)).expect("settings that hold");
        lines.iter().for_each(|(key, second)| hits.hit(key.as_bytes(), at(*second), now));
        hits
    }

    const QUESTION: Question<'_> =
        Question { window: minutes(1), sort: Sort::Hits, filter: "", rows: 10, steps: 6 };

    fn keys(ranked: &Ranked) -> Vec<&str> {
        ranked.rows.iter().map(|row| std::str::from_utf8(&row.key).expect("text")).collect()
    }

    #[test]
    fn the_busiest_keys_of_the_window_come_first() {
        let lines =
            [("b", 99), ("a", 100), ("c", 41), ("c", 41), ("c", 100), ("d", 40), ("late", 60), ("c", 40)];
        let hits = hits(&lines, at(100));
        let ranked = hits.rank(&QUESTION, at(100));
        assert_eq!((keys(&ranked), ranked.keys, ranked.hits), (vec!["c", "a", "b", "late"], 4, 6));
        let row = &ranked.rows[0];
        assert_eq!((row.hits, row.latest, row.peak), (3, 1, Some(3)));
        assert_eq!(row.curve, [2, 0, 0, 0, 0, 1]);
        let ranked = hits.rank(&Question { rows: 2, ..QUESTION }, at(100));
        assert_eq!((keys(&ranked), ranked.keys, ranked.hits), (vec!["c", "a"], 4, 6));
        let ranked = hits.rank(&Question { sort: Sort::Latest, ..QUESTION }, at(100));
        assert_eq!(keys(&ranked), ["c", "a", "b", "late"]);
        let ranked = hits.rank(&Question { sort: Sort::Latest, ..QUESTION }, at(109));
        assert_eq!(
            keys(&ranked),
            ["a", "c", "b", "late"],
            "the hits of a and c nine seconds ago are still in the window"
        );
        let ranked = hits.rank(&Question { sort: Sort::Key, rows: 3, ..QUESTION }, at(100));
        assert_eq!(keys(&ranked), ["a", "b", "c"]);
        // A second later the first second of the window has left.
        let ranked = hits.rank(&QUESTION, at(101));
        assert_eq!((keys(&ranked), ranked.hits), (vec!["a", "b", "c", "late"], 4));
        assert_eq!(ranked.rows[2].peak, Some(3), "the peak of the window that ended a second ago");
        assert!(hits.rank(&QUESTION, at(160)).rows.is_empty());
    }

    #[test]
    fn the_peak_is_that_of_the_last_hour() {
        let lines = [("a", 0), ("a", 59), ("a", 60), ("a", 3_000)];
        let check = |now: u64, window: Span, expected: Option<(u64, u64)>| {
            let ranked = hits(&lines, at(3_000)).rank(&Question { window, ..QUESTION }, at(now));
            assert_eq!(
                ranked.rows.first().map(|row| (row.hits, row.peak.expect("known"))),
                expected,
                "{now} {window}"
            );
        };
        check(3_000, minutes(1), Some((1, 2)));
        check(3_000, seconds(61), Some((1, 3)));
        check(3_000, hours(1), Some((4, 4)));
        check(3_000, seconds(1), Some((1, 1)));
        check(3_001, seconds(1), None);
        check(3_659, hours(1), Some((2, 2)));
    }

    #[test]
    fn windows_beyond_an_hour_have_a_curve() {
        let now = at(2 * 86_400);
        let mut hits = Hits::new(days(1)).expect("settings that hold");
        for second in [80_000, 90_000, 90_001, 100_000, 172_800] {
            hits.hit(b"a", at(second), now);
        }
        let ranked = hits.rank(&Question { window: days(1), ..QUESTION }, now);
        let row = &ranked.rows[0];
        assert_eq!((row.hits, row.peak), (4, Some(4)));
        assert!(row.curve.len() <= 6 && row.curve.iter().sum::<u64>() <= 4 && row.curve.last() == Some(&1));
    }

    #[test]
    fn keys_are_filtered_by_their_printed_form() {
        let hits = hits(&[("GET /Login", 1), ("a\x1bb", 1), ("get /", 1)], at(1));
        let check = |filter: &str, expected: &[&str]| {
            let ranked = hits.rank(&Question { filter, ..QUESTION }, at(1));
            assert_eq!(keys(&ranked), expected, "{filter}");
            assert_eq!((ranked.keys, ranked.hits), (expected.len(), expected.len() as u64));
        };
        check("login", &["GET /Login"]);
        check("get /", &["GET /Login", "get /"]);
        check("u{1B}", &["a\x1bb"]);
        check("x", &[]);
    }

    #[test]
    fn lines_ahead_of_the_clock_wait_or_are_reported() {
        let now = at(100);
        let mut hits = hits(&[("a", 110)], now);
        assert_eq!(hits.rank(&QUESTION, now).keys, 0);
        assert_eq!(hits.rank(&QUESTION, at(110)).keys, 1);
        assert_eq!((hits.ahead(), hits.newest()), (0, Some(at(110))));
        let now = at(110);
        hits.hit(b"b", now.saturating_add(LINE_SKEW).saturating_add(milliseconds(1)), now);
        assert_eq!((hits.ahead(), hits.newest()), (1, Some(at(110))));
    }

    #[test]
    fn hits_older_than_the_longest_window_are_dropped() {
        let mut hits = hits(&[("old", 0), ("edge", 1), ("new", 3_600)], at(3_600));
        assert_eq!(hits.newest(), Some(at(3_600)));
        assert_eq!(hits.rank(&Question { window: hours(1), ..QUESTION }, at(3_600)).keys, 2);
        hits.sweep(at(9_000));
        assert_eq!((hits.store.len(), hits.forgotten()), (0, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let ceiling_bytes = 4 << 20;
        let mut hits = Hits::with_memory(hours(1), ceiling_bytes).expect("settings that hold");
        let now = at(0);
        let mut key = [b'k'; lately::limits::MAX_KEY_BYTES];
        for number in 0..2 * ceiling_bytes / key.len() as u64 {
            key[..8].copy_from_slice(&number.to_be_bytes());
            hits.hit(&key, now, now);
        }
        assert!(hits.store.memory().used_bytes <= ceiling_bytes);
        assert!(hits.forgotten() > 0);
    }
}
