//! A million or ten million keys with one hit or a few: the common case.

use std::cell::RefCell;

use lately::{Span, days, hours, minutes};

use super::bare::Bare;
use super::halves::Halves;
use super::keys::{Key, Keys, Walk};
use super::rivals::{self, Governor};
use super::scale::Scale;
use super::subject::{Subject, build_batches, share};
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Rival, Row};
use crate::table::number;

/// Windows that are read, and their names.
pub(crate) const WINDOWS: [(&str, Span); 3] = [("5m", minutes(5)), ("24h", hours(24)), ("7d", days(7))];

/// The rows of `keys` uncached keys.
pub(crate) struct Many {
    pub(crate) keys: u32,
    pub(crate) name: &'static str,
    /// The bound and the aim of a hit in nanoseconds.
    pub(crate) single: (f64, f64),
    pub(crate) batch: (f64, f64),
    /// The time of an addition in an array with a number per key, on the machine on which the bounds were
    /// set.
    pub(crate) floor: f64,
    /// Whether all rivals take part, or only the floor.
    pub(crate) all_rivals: bool,
}

impl Many {
    pub(crate) fn rows(&self, scale: &Scale, bare: Bare) -> Vec<Row> {
        let keys = Keys::shuffled(self.keys);
        let subject = Subject::with_a_hit_each(&keys);
        let ops = scale.ops;
        // All of ours before the rivals, and each with its own stride, so that a key gets few hits.
        let mut contenders = vec![
            Contender::new("single", || subject.hit_one_by_one(ops)),
            Contender::new("batch", || subject.hit_in_batches(ops)),
            Contender::new("loop alone", || build_batches(subject.stride(ops))),
        ];
        let ours = contenders.len();
        match self.all_rivals {
            true => contenders.extend(rivals::contenders(&keys, ops)),
            false => contenders.push(rivals::floor(&keys, ops)),
        }
        let figures = interleave(&mut contenders, scale.rounds);
        let medians: Vec<f64> = figures.iter().map(|figures| median(figures)).collect();
        let named = contenders.iter().map(|contender| contender.name).zip(medians.iter().copied());
        let others: Vec<_> = named.skip(ours).collect();
        drop(contenders);
        let (name, here) = others[others.len() - 1];
        let floor = Rival { name, here, there: self.floor };
        let row = |what: &str, value: f64, (most, aim): (f64, f64), (floor, note): (Rival, String)| {
            let name = format!("{what}, {} keys", self.name);
            let row = Row::new("library", name, value, "ns", Must::AtMost(most, aim));
            row.note(note).by(Some(floor)).note(bare.note())
        };
        let building = format!("building the batch {:.1}", medians[2]);
        let mut rows = vec![
            row("hit, one at a time", medians[0], self.single, (floor, list(&others))),
            row("hit, batches of 64", medians[1], self.batch, (bare.of_a_batch(), building)),
        ];
        rows.extend(reads(&subject, &format!("{} keys", self.name), scale, bare));
        rows.push(self.two_threads(&subject, &keys, scale));
        check(&subject, keys.len(), scale);
        rows
    }

    fn two_threads(&self, subject: &Subject<'_>, keys: &Keys, scale: &Scale) -> Row {
        let has_must = self.keys == MILLION;
        // The processor time is a note; the figure is the wall time.
        let busy: [RefCell<Vec<f64>>; 2] = Default::default();
        let ours = |threads: usize| {
            let both = subject.hit_on_threads(threads, scale.ops);
            busy[threads - 1].borrow_mut().push(both.busy);
            both.wall
        };
        let governor = self.all_rivals.then(|| {
            let governor = Governor::of_bytes();
            keys.fill_order().for_each(|place| governor.check(&keys.bytes()[place]));
            governor
        });
        let walk = Walk::new(keys.len());
        let governor_on = |governor: &Governor<Key>, threads: usize| {
            let keys = &keys.bytes()[walk.stride(scale.ops)];
            share(keys, threads, |keys| keys.iter().for_each(|key| governor.check(key))).wall
        };
        // As many hits per key as ours.
        let half = has_must.then(|| Keys::shuffled(self.keys / 2));
        let apart = half.as_ref().map(|half| Halves::new(half, 2 * scale.rounds, scale.ops));
        let mut contenders = vec![Contender::new("one", || ours(1)), Contender::new("two", || ours(2))];
        if let Some(apart) = &apart {
            contenders.push(Contender::new("apart, one", || apart.hit_on_threads(1, scale.ops)));
            contenders.push(Contender::new("apart, two", || apart.hit_on_threads(2, scale.ops)));
        }
        if let Some(governor) = &governor {
            contenders.push(Contender::new("governor, one", || governor_on(governor, 1)));
            contenders.push(Contender::new("governor, two", || governor_on(governor, 2)));
        }
        let figures = interleave(&mut contenders, scale.rounds);
        let of = |name: &str| {
            let one = contenders.iter().position(|contender| contender.name == name)?;
            Some(median_ratio(&figures[one], &figures[one + 1]))
        };
        let must = if has_must { Must::AtLeast(1.75, 1.9) } else { Must::Nothing };
        let ratio = median_ratio(&figures[0], &figures[1]);
        let note = |who: &str, ratio: Option<f64>| {
            ratio.map_or_else(String::new, |ratio| format!("; {who} {ratio:.2} ×"))
        };
        let (governors, apart) = (of("governor, one"), of("apart, one"));
        let name = format!("two threads ÷ one, hits in batches of 64, {} keys", self.name);
        let row = Row::new("library", name, ratio, "×", must).note(format!(
            "one thread {:.1} ns, two {:.1}; by the time on a core {:.2} ×{}{}",
            median(&figures[0]),
            median(&figures[1]),
            median_ratio(&busy[0].borrow(), &busy[1].borrow()),
            note("governor", governors),
            note(APART, apart),
        ));
        row.by(apart.map(|here| Rival { name: APART, here, there: 2.0 }))
    }
}

/// Two threads that share nothing.
const APART: &str = "a store with half of the keys each";

/// The number of keys that has the most bounds.
pub(crate) const MILLION: u32 = 1_000_000;

/// Reads of each window, single and in batches, if comparisons are wanted.
pub(crate) fn reads(subject: &Subject<'_>, keys: &str, scale: &Scale, bare: Bare) -> Vec<Row> {
    if !scale.is_whole {
        return Vec::new();
    }
    let mut contenders = Vec::new();
    for (name, window) in WINDOWS {
        contenders.push(Contender::new(name, move || subject.read_one_by_one(window, scale.ops)));
        contenders.push(Contender::new(name, move || subject.read_in_batches(window, scale.ops)));
    }
    let figures = interleave(&mut contenders, scale.rounds);
    let row = |(pair, figures): (&[Contender<'_>], &[Vec<f64>])| {
        let name = format!("read of {}, batches of 64, {keys}", pair[0].name);
        let note = format!("one at a time {:.1}; {}", median(&figures[0]), bare.note());
        Row::new("library", name, median(&figures[1]), "ns", Must::Nothing).note(note)
    };
    contenders.chunks(2).zip(figures.chunks(2)).map(row).collect()
}

/// Names and figures on one line.
pub(crate) fn list(figures: &[(&str, f64)]) -> String {
    let figures: Vec<String> =
        figures.iter().map(|(name, figure)| format!("{name} {}", number(*figure))).collect();
    figures.join(", ")
}

/// Checks that the counts equal the hits of this run: a fast wrong answer is worthless.
fn check(subject: &Subject<'_>, keys: usize, scale: &Scale) {
    // Single, batch, one thread, two threads: a round of each hits `ops` keys.
    let sent = keys + 4 * scale.rounds * scale.ops.min(keys);
    assert_eq!(subject.total(minutes(5)), sent as u64, "hits sent are hits counted");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_in_a_line() {
        assert_eq!(list(&[("one", 1.25), ("two", 3_000.4)]), "one 1.25, two 3,000");
        assert_eq!(list(&[]), "");
    }
}
