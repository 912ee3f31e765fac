//! Ten million new keys: the longest hit.

use std::hint::black_box;

use super::keyed::MILLION;
use super::keys::{Key, Keys};
use super::scale::Scale;
use super::subject::{START_MS, Subject, timestamp};
use crate::clock::{nanos_between, now};
use crate::rounds::least;
use crate::row::{Must, Row};
use crate::table::numbers;

/// Hits per millisecond.
const HITS_PER_MS: usize = 1_024;

pub(super) fn rows(scale: &Scale) -> Vec<Row> {
    let keys = Keys::shuffled(10 * MILLION);
    let (mut growing, mut looking) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let subject = Subject::new(&keys);
        growing.push(longest_ms(keys.bytes(), |key, at_ms| {
            black_box(subject.store.hit(key, timestamp(at_ms)).expect("a hit now is in time"));
        }));
        looking.push(longest_ms(keys.bytes(), |key, at_ms| _ = black_box((key, at_ms))));
        if !scale.is_whole && row(&growing, &looking).holds() {
            break;
        }
    }
    vec![row(&growing, &looking)]
}

/// The row of several rounds. Pauses of the machine come at random; pauses of growth come in every round.
fn row(growing: &[f64], looking: &[f64]) -> Row {
    let name = "longest hit of 10 M keys that come one by one";
    Row::new("library", name, least(growing), "ms", Must::Nothing).note(format!(
        "the least of the rounds, {}; looking at the clock only {}",
        numbers(growing),
        numbers(looking)
    ))
}

/// The longest time that `work` took with one of the keys, in milliseconds.
fn longest_ms(keys: &[Key], mut work: impl FnMut(&Key, i64)) -> f64 {
    let (mut longest, mut before, mut at_ms) = (0.0, now(), START_MS);
    for (index, key) in keys.iter().enumerate() {
        at_ms += i64::from(index % HITS_PER_MS == 0);
        work(key, at_ms);
        let after = now();
        longest = nanos_between(before, after).max(longest);
        before = after;
    }
    longest / 1e6
}
