//! Each change of form, in both directions, and the size of each form.

use super::*;
use crate::time::{days, minutes, seconds};

const START_MS: i64 = 1_700_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms).expect("a time")
}

fn form(entry: &Entry) -> &'static str {
    match entry {
        Entry::Inline(_) => "inline",
        Entry::List { .. } => "list",
        Entry::Large { large, .. } => large.form(),
    }
}

/// An entry, its settings, and a check after each hit.
struct Key {
    entry: Entry,
    settings: Settings,
    hits: u64,
}

impl Key {
    fn new() -> Key {
        Key { entry: Entry::new(), settings: Settings::default(), hits: 0 }
    }

    fn hit(&mut self, ms: i64, weight: u64, now_ms: i64) {
        self.entry.add(at(ms), weight, &self.settings, at(now_ms)).expect("counted");
        self.entry.check_consistency(&self.settings, at(now_ms));
        self.hits += weight;
        assert_eq!(self.entry.total(), self.hits);
    }

    /// A hit every `step_ms` from `from_ms` on. Returns the time of the last.
    fn hits(&mut self, from_ms: i64, step_ms: i64, count: i64) -> i64 {
        (0..count).for_each(|n| self.hit(from_ms + n * step_ms, 1, from_ms + n * step_ms));
        from_ms + (count - 1) * step_ms
    }

    fn merge(&mut self, now_ms: i64) -> &'static str {
        self.entry.merge(&self.settings, at(now_ms));
        self.entry.check_consistency(&self.settings, at(now_ms));
        form(&self.entry)
    }

    fn form(&self) -> &'static str {
        form(&self.entry)
    }
}

#[test]
fn an_entry_has_sixteen_bytes() {
    assert_eq!(size_of::<Entry>(), 16);
}

#[test]
fn a_few_hits_turn_into_a_list_and_back() {
    let mut key = Key::new();
    key.hits(0, 10_000, 3);
    assert_eq!(key.form(), "inline");
    let newest_ms = key.hits(30_000, 10_000, 10);
    assert_eq!(key.form(), "list");
    // All hits but the newest leave the retention.
    let week_ms = days(7).as_millis();
    assert_eq!(key.merge(newest_ms - 1), "list");
    key.hit(newest_ms + week_ms, 1, newest_ms + week_ms);
    assert_eq!((key.merge(newest_ms + week_ms + 3_600_000), key.entry.total()), ("inline", 1));
}

#[test]
fn a_list_turns_into_a_ring_when_hits_are_many() {
    let mut key = Key::new();
    key.hits(0, 100, 264);
    assert_eq!(key.form(), "list");
    key.hits(26_400, 100, 1);
    assert_eq!(key.form(), "ring");
    assert_eq!(key.entry.count(at(26_400), minutes(5), &key.settings, at(26_400)).estimate, 265);
}

#[test]
fn a_slow_list_hands_its_oldest_to_panes() {
    let kept = |key: &Key| {
        let Entry::Large { large, .. } = &key.entry else { panic!("there are panes") };
        let panes: u64 = large.panes().map(|pane| pane.hits).sum();
        (large.list().map_or(0, List::len), panes)
    };
    // Moments that come quickly leave eight at a time.
    let mut key = Key::new();
    let newest_ms = key.hits(0, 9_000, 264 + 43);
    assert_eq!(key.form(), "list and panes");
    assert_eq!(kept(&key), (259, 48));
    key.hits(newest_ms + 9_000, 9_000, 5);
    assert_eq!(kept(&key), (264, 48));
    key.hits(newest_ms + 6 * 9_000, 9_000, 1);
    assert_eq!(kept(&key), (257, 56));
    // Other moments leave one by one.
    let mut key = Key::new();
    let newest_ms = key.hits(0, 60_000, 300);
    assert_eq!(key.form(), "list and panes");
    assert_eq!(kept(&key), (257, 43));
    let exact = key.entry.sum(START_MS + 60_000 * 43, START_MS + newest_ms + 1, &key.settings);
    assert_eq!(exact, 257, "the newest 257 are kept to the millisecond");
    let week_ms = days(7).as_millis();
    assert_eq!(key.merge(newest_ms + week_ms - 3_600_000), "list", "the panes have left the retention");
    assert_eq!(key.merge(newest_ms + week_ms + 3_600_000), "inline");
    assert!(key.entry.is_empty());
}

#[test]
fn a_quiet_ring_gives_its_memory_back() {
    let mut key = Key::new();
    let newest_ms = key.hits(0, 100, 1_000);
    assert_eq!(key.form(), "ring");
    let bytes = key.entry.heap_bytes();
    assert_eq!(key.merge(newest_ms + 300_000), "ring");
    assert_eq!(key.merge(newest_ms + 400_000), "list and panes");
    key.merge(newest_ms + 40_000_000);
    assert!(key.entry.heap_bytes() < bytes, "{} bytes, {bytes} before", key.entry.heap_bytes());
    key.hits(newest_ms + 50_000_000, 1_000, 3);
    assert_eq!(key.form(), "list and panes");
}

#[test]
fn a_hit_after_a_quiet_ring_starts_a_list() {
    let mut key = Key::new();
    let newest_ms = key.hits(0, 100, 1_000);
    key.hit(newest_ms + 400_000, 1, newest_ms + 400_000);
    assert_eq!(key.form(), "list and panes");
}

#[test]
fn panes_leave_a_ring_together() {
    let mut key = Key::new();
    key.hits(0, 1_000, 265);
    assert_eq!(key.form(), "ring");
    let older = |key: &Key| {
        let Entry::Large { large, .. } = &key.entry else { panic!("the key is hot") };
        large.panes().map(|pane| pane.hits).sum::<u64>()
    };
    // Of 361 panes with room for 45 more, 46 leave.
    let mut left = vec![0];
    for second in 265..600 {
        key.hits(second * 1_000, 1_000, 1);
        let now = older(&key);
        if left.last() != Some(&now) {
            left.push(now);
        }
    }
    assert_eq!(left, [0, 42, 88, 134, 180, 226]);
    // A late hit to a pane that is still in the ring, and one to a pane that has left it.
    key.hit(226_000, 1, 599_000);
    assert_eq!(older(&key), 226);
    key.hit(225_000, 1, 599_000);
    assert_eq!(older(&key), 227);
    let all = key.entry.count(at(599_000), days(7), &key.settings, at(599_000));
    assert_eq!(all.estimate, key.hits);
}

#[test]
fn cells_widen_with_the_hits_of_a_second_and_narrow_again() {
    let mut key = Key::new();
    let newest_ms = key.hits(0, 100, 300);
    let bytes = key.entry.heap_bytes();
    key.hit(newest_ms, 1 << 40, newest_ms);
    assert!(key.entry.heap_bytes() > bytes + 2_000);
    key.hits(newest_ms + 100_000, 1_000, 10);
    assert_eq!(key.merge(newest_ms + 500_000), "list and panes");
    let mut key = Key::new();
    key.hits(0, 1, 300);
    let wide = key.entry.heap_bytes();
    key.hits(200_000, 1_000, 100);
    assert_eq!(key.merge(400_000), "ring");
    assert!(key.entry.heap_bytes() < wide, "{} bytes, {wide} before", key.entry.heap_bytes());
}

#[test]
fn the_largest_totals_do_not_stay_in_a_list() {
    let mut key = Key::new();
    key.hits(0, 10_000, 20);
    key.hit(190_000, list::MAX_TOTAL - 20, 190_000);
    assert_eq!(key.form(), "list");
    key.hit(190_000, 1, 190_000);
    assert_eq!(key.form(), "ring");
    let mut key = Key::new();
    key.hit(5_000, MAX_TOTAL, 0);
    assert_eq!(key.form(), "ring");
}

#[test]
fn every_form_takes_hits_out_of_order() {
    for count in [3, 20, 256, 300] {
        for step_ms in [10, 1_000, 90_000] {
            let mut key = Key::new();
            let newest_ms = key.hits(0, step_ms, count);
            for late_ms in [1, step_ms / 2, 400_000, 5_000_000] {
                key.hit((newest_ms - late_ms).max(0), 2, newest_ms);
            }
            key.hit(newest_ms + 9_000, 3, newest_ms);
            let all = key.entry.count(at(newest_ms + 9_000), days(7), &key.settings, at(newest_ms));
            assert_eq!(all.estimate, key.hits, "{count} hits every {step_ms} ms");
        }
    }
}

#[test]
fn reads_between_hits_move_the_cursor_only_forward() {
    let mut key = Key::new();
    key.hits(0, 7_000, 100);
    let end_ms = 99 * 7_000;
    let count = |entry: &Entry, ms: i64, span: Span| {
        entry.count(at(ms), span, &Settings::default(), at(end_ms + 300_000)).estimate
    };
    for ms in [end_ms, end_ms + 50_000, end_ms - 20_000, end_ms + 290_000, end_ms] {
        let from_ms = START_MS + ms - 299_000;
        let naive = |span_ms: i64| {
            let to = (START_MS + ms).div_euclid(1_000) + 1;
            let from = to - span_ms / 1_000;
            let seconds = (0..100).map(|n| (START_MS + n * 7_000).div_euclid(1_000));
            seconds.filter(|second| (from..to).contains(second)).count() as u64
        };
        key.entry.advance(from_ms, &key.settings, at(ms));
        key.entry.check_consistency(&key.settings, at(end_ms));
        for span in [seconds(1), seconds(30), minutes(5)] {
            assert_eq!(count(&key.entry, ms, span), naive(span.as_millis()), "{span} at {ms}");
        }
    }
}

/// The bytes of a key besides its slot, against the byte budgets of the benchmark.
#[test]
fn forms_stay_within_their_byte_budgets() {
    let weigh = |step_ms: i64, count: i64| {
        let mut key = Key::new();
        // Pseudo-random jitter: gaps take as many bytes as in practice.
        for n in 0..count {
            let jitter_ms = (n * 7_919) % step_ms.max(2);
            let ms = n * step_ms + jitter_ms;
            key.entry.add(at(ms), 1, &key.settings, at(ms)).expect("counted");
        }
        key.entry.heap_bytes()
    };
    let most = |bytes: usize, step_ms: i64, count: i64| {
        let weight = weigh(step_ms, count);
        assert!(weight <= bytes, "{weight} bytes, {bytes} at most, for {count} hits every {step_ms} ms");
    };
    most(0, 1, 1);
    most(320, 1_000, 300);
    most(352, 8_640_000, 70);
    // The rounding of buffer sizes adds forty bytes.
    most(2_280, 60_000, 10_080);
    most(4_000, 1_000, 604_800);
}
