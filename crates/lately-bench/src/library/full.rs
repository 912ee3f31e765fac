//! Keys with many panes: sixty seconds of hits, and a week of them.

use std::cell::RefCell;

use lately::{Op, minutes};

use super::bare::Bare;
use super::keyed::{MILLION, WINDOWS, reads};
use super::keys::{Key, Keys};
use super::scale::Scale;
use super::subject::{START_MS, Subject, hit_in_batches, share, timestamp};
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};

/// The panes of a full key.
const PANES: i64 = 60;
const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
/// Passes over the keys in a round, if there are few keys.
const PASSES: u32 = 16;
/// A hit a minute for as long as the default retention.
const MINUTES: i64 = 7 * 24 * 60;

/// A million keys, each hit in each of the past sixty seconds.
pub(crate) fn rows(scale: &Scale, bare: Bare) -> Vec<Row> {
    let keys = Keys::shuffled(MILLION);
    let subject = Subject::new(&keys);
    fill(&subject, &keys);
    assert_eq!(
        subject.total(minutes(5)),
        u64::from(MILLION) * PANES.unsigned_abs(),
        "hits sent are hits counted"
    );
    let same_second = RefCell::new(Vec::new());
    // A second passes between rounds: the first hit of a key then opens a pane.
    let next_second = || subject.advance(SECOND_MS - subject.now_ms() % SECOND_MS);
    let mut contenders = [
        Contender::new("single", || {
            next_second();
            subject.hit_one_by_one(scale.ops)
        }),
        Contender::new("batch", || {
            next_second();
            let keys = subject.stride(scale.ops);
            let nanos = subject.hit_again_in_batches(keys);
            same_second.borrow_mut().push(subject.hit_again_in_batches(keys));
            nanos
        }),
    ];
    let figures = interleave(&mut contenders, scale.rounds);
    drop(contenders);
    const MOST: f64 = 110.0;
    let row = |what: &str, figures: &[f64], must: Must| {
        let name = format!("hit, {what}, 1 M keys with {PANES} live panes");
        let value = median(figures);
        Row::new("library", name, value, "ns", must).by(Some(bare.of_a_batch())).note(bare.note())
    };
    let must = Must::AtMost(MOST, 75.0);
    let mut rows = vec![
        row("batches of 64, a new second", &figures[1], must),
        row("batches of 64, the same second", &same_second.borrow(), must),
        row("one at a time, a new second", &figures[0], Must::Nothing),
    ];
    rows.extend(reads(&subject, &format!("1 M keys with {PANES} live panes"), scale, bare));
    rows
}

/// A hit to each key in each of the past seconds, on both cores, one key after the other. That is faster than
/// second by second, and leaves the same entries.
fn fill(subject: &Subject<'_>, keys: &Keys) {
    let (store, start_ms) = (&subject.store, subject.now_ms());
    let now = timestamp(start_ms + PANES * SECOND_MS - 1);
    let order: Vec<Key> = keys.fill_order().map(|place| keys.bytes()[place]).collect();
    let fill = |keys: &[Key]| {
        let mut outcomes = Vec::new();
        for key in keys {
            let at = |second: i64| Some(timestamp(start_ms + second * SECOND_MS));
            let ops: Vec<Op<'_>> =
                (0..PANES).map(|second| Op::Hit { key, weight: 1, at: at(second) }).collect();
            outcomes.clear();
            store.apply(&ops, now, &mut outcomes);
        }
    };
    share(&order, 2, fill);
    subject.advance(PANES * SECOND_MS);
}

/// Keys that are hit at equal intervals until their form is full. Compares a read of a long window with a
/// hit.
struct Steady {
    keys: u32,
    every_ms: i64,
    hits: i64,
    name: &'static str,
}

/// Keys hit once a minute for a week.
pub(crate) fn week_rows(scale: &Scale) -> Vec<Row> {
    let name = "keys with a hit a minute for 7 d";
    Steady { keys: scale.week_keys, every_ms: MINUTE_MS, hits: MINUTES, name }.rows(scale)
}

/// Keys that are hit once a second, whose newest hits are a ring, and once in ten seconds, whose newest hits
/// are a list; with panes before them.
pub(crate) fn steady_rows(scale: &Scale) -> Vec<Row> {
    let second =
        Steady { keys: 200_000, every_ms: SECOND_MS, hits: 480, name: "keys with a hit a second for 8 min" };
    let ten_seconds = Steady {
        keys: 100_000,
        every_ms: 10 * SECOND_MS,
        hits: 480,
        name: "keys with a hit each 10 s for 80 min",
    };
    [second, ten_seconds].iter().flat_map(|steady| steady.rows(scale)).collect()
}

impl Steady {
    fn rows(&self, scale: &Scale) -> Vec<Row> {
        let keys = Keys::shuffled(self.keys);
        let subject = Subject::new(&keys);
        for _ in 0..self.hits {
            hit_in_batches(&subject.store, keys.bytes(), subject.now_ms());
            subject.advance(self.every_ms);
        }
        assert_eq!(subject.now_ms(), START_MS + self.hits * self.every_ms);
        let subject = &subject;
        let mut contenders = vec![Contender::new("hit", || {
            mean_of_passes(|| {
                subject.advance(self.every_ms);
                subject.hit_in_batches(scale.ops)
            })
        })];
        for (name, window) in WINDOWS {
            contenders.push(Contender::new(name, move || {
                mean_of_passes(|| subject.read_in_batches(window, scale.ops))
            }));
        }
        let figures = interleave(&mut contenders, scale.rounds);
        let what = format!("{} {}", self.keys, self.name);
        let hit = Row::new(
            "library",
            format!("hit, batches of 64, {what}"),
            median(&figures[0]),
            "ns",
            Must::Nothing,
        );
        let read = |(index, (name, _)): (usize, &(&str, _))| {
            let (hit, read) = (&figures[0], &figures[index + 1]);
            let name = format!("read of {name}, batches of 64, {what}");
            let note = format!("throughput ÷ that of hits to the same keys {:.2}", median_ratio(hit, read));
            Row::new("library", name, median(read), "ns", Must::Nothing).note(note)
        };
        std::iter::once(hit).chain(WINDOWS.iter().enumerate().map(read)).collect()
    }
}

/// The mean of some passes, because one over these few keys is short.
fn mean_of_passes(pass: impl Fn() -> f64) -> f64 {
    (0..PASSES).map(|_| pass()).sum::<f64>() / f64::from(PASSES)
}
