//! One counter for several threads: hits and reads on one thread, and on two.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use lately::{AtomicCounter, HitCounter, Store, StripedCounter, Timestamp, minutes};
use lately_classics::{
    AtomicRing, BucketLocked, Locked, ReadWriteLocked, RunningTotal, SequenceLocked, SharedCounter,
};

use super::keyed::list;
use super::rivals::quota;
use super::scale::Scale;
use super::subject::{START_MS, hit_in_batches, ms_of, timestamp};
use crate::clock::{Both, nanos_of, nanos_of_both};
use crate::memory::bytes_of_a_counter;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Rival, Row};
use crate::table::number;

/// Hits between two advances of the time, by a second each: about some tens of microseconds of a core. With a
/// thousand, half of the cost of a hit on two threads would be the exchange of new panes.
const PER_SECOND: usize = 10_000;
const START_S: i64 = START_MS / 1_000;
/// The default window.
const WINDOW_S: i64 = 300;
/// Hits per read: some counters visit three hundred slots in a read.
const HITS_PER_READ: usize = 8;
/// The key both threads hit.
const HOT: [u8; 16] = *b"key:000000000000";

/// A counter that any thread may hit and read.
trait Subject: Sync {
    fn hit(&self, now: Moment);
    /// Hits in the five minutes that end now.
    fn read(&self, now: Moment) -> u64;
}

/// The time in the form of each counter.
#[derive(Clone, Copy)]
struct Moment {
    second: i64,
    at: Timestamp,
}

impl Moment {
    fn new(second: i64) -> Moment {
        Moment { second, at: timestamp(second * 1_000) }
    }
}

/// A counter under test, its name, and its time.
struct Entrant {
    name: &'static str,
    second: i64,
    subject: Box<dyn Rounds>,
}

/// The rounds of a counter, each with a loop compiled for it.
trait Rounds {
    fn hits(&self, threads: usize, ops: usize, start_s: i64) -> Both;
    fn reads(&self, threads: usize, ops: usize, second: i64) -> Both;
}

impl<S: Subject> Rounds for S {
    fn hits(&self, threads: usize, ops: usize, start_s: i64) -> Both {
        on_threads(threads, ops, start_s, |now| self.hit(now))
    }

    /// On two threads, the other one hits while this one reads.
    fn reads(&self, threads: usize, ops: usize, second: i64) -> Both {
        let now = Moment::new(second);
        self.hit(now);
        let over = AtomicBool::new(false);
        let read = || {
            (0..ops).for_each(|_| _ = black_box(self.read(black_box(now))));
            over.store(true, Relaxed);
        };
        let hit = || {
            while !over.load(Relaxed) {
                self.hit(black_box(now));
            }
        };
        let both = if threads == 1 { alone(read) } else { nanos_of_both(read, hit) };
        each(both, ops)
    }
}

/// The operations that a round times.
#[derive(Clone, Copy)]
enum Work {
    Hits,
    Reads,
}

impl Entrant {
    /// Filled with a window of hits.
    fn new(name: &'static str, subject: impl Subject + 'static) -> Entrant {
        (START_S - WINDOW_S..START_S).for_each(|second| subject.hit(Moment::new(second)));
        Entrant { name, second: START_S, subject: Box::new(subject) }
    }

    fn run(&mut self, work: Work, threads: usize, steps: usize) -> Both {
        let start_s = self.second;
        let seconds = match work {
            Work::Hits => steps.div_ceil(PER_SECOND),
            Work::Reads => 1,
        };
        self.second += i64::try_from(seconds).expect("a benchmark is short");
        match work {
            Work::Hits => self.subject.hits(threads, steps, start_s),
            Work::Reads => self.subject.reads(threads, (steps / HITS_PER_READ).max(1), start_s),
        }
    }
}

/// Rivals first, then ours, then the classics.
fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::new("fetch_add, no window", AtomicU64::new(0)),
        Entrant::new(
            "governor",
            Limiter(RateLimiter::direct_with_clock(quota(), FakeRelativeClock::default())),
        ),
        Entrant::new("HitCounter in a mutex", Mutex::new(HitCounter::new())),
        Entrant::new("AtomicCounter", AtomicCounter::new()),
        Entrant::new(STRIPED, StripedCounter::new()),
        Entrant::new("global mutex, classic", Classic(Locked::new(RunningTotal::new(300)))),
        Entrant::new("reader-writer lock, classic", Classic(ReadWriteLocked::new(300))),
        Entrant::new("sequence lock, classic", Classic(SequenceLocked::new(300))),
        Entrant::new("lock per bucket, classic", Classic(BucketLocked::new(300))),
        Entrant::new("atomic ring, classic", Classic(AtomicRing::new(300))),
    ]
}

const STRIPED: &str = "StripedCounter";
/// The number of entrants at the start without a window: they are not read.
const NOT_READ: usize = 2;

/// A row for each: nanoseconds of a hit on one thread, of a hit on each of two, and of reads.
pub(crate) fn rows(scale: &Scale) -> Vec<Row> {
    let mut entrants = entrants();
    let one = run(&mut entrants, Work::Hits, 1, scale);
    let two = run(&mut entrants, Work::Hits, 2, scale);
    let reads = run(&mut entrants[NOT_READ..], Work::Reads, 1, scale);
    let reads_during_hits = run(&mut entrants[NOT_READ..], Work::Reads, 2, scale);
    let mut rows = vec![striped(&two)];
    for (index, &(name, hit, _)) in one.iter().enumerate() {
        let mut note = format!("on either of two threads {}", number(two[index].1));
        if let Some(read) = index.checked_sub(NOT_READ) {
            note.push_str(&format!(
                "; read of the default window {}, while another thread hits {}; {} bytes",
                number(reads[read].1),
                number(reads_during_hits[read].1),
                number(bytes_of_a_counter(name))
            ));
        }
        rows.push(Row::new("library", format!("shared hit: {name}"), hit, "ns", Must::Nothing).note(note));
    }
    let plain = two.iter().take(NOT_READ + 1).map(|&(name, hit, _)| (name, hit)).chain(stores(scale));
    rows.extend(plain.map(|(name, hit)| {
        Row::new("library", format!("two threads on one counter: {name}"), hit, "ns", Must::Nothing)
    }));
    rows
}

/// The row with a bound. Its figure is wall time, which includes what other processes do to two threads;
/// processor time does not.
fn striped(two: &[Figure]) -> Row {
    let of = |name: &str| two.iter().find(|(other, ..)| *other == name).copied();
    let of = |name: &str| of(name).map_or((f64::NAN, f64::NAN), |(_, hit, busy)| (hit, busy));
    let ((hit, busy), (governor, _)) = (of(STRIPED), of("governor"));
    let others = two.iter().filter(|(name, ..)| *name != STRIPED).map(|&(name, hit, _)| (name, hit));
    let others: Vec<_> = others.take(4).collect();
    let name = "two threads on one un-keyed counter, striped";
    let rival = Rival { name: "governor", here: governor, there: 87.0 };
    let note = format!(
        "from a hit of a thread to its next, by the time on a core {busy:.1}, by the hits of both {:.1}; {}",
        hit / 2.0,
        list(&others)
    );
    Row::new("library", name, hit, "ns", Must::AtMost(6.0, 3.0)).note(note).by(Some(rival))
}

/// The name, the wall time, and the processor time.
type Figure = (&'static str, f64, f64);

fn run(entrants: &mut [Entrant], work: Work, threads: usize, scale: &Scale) -> Vec<Figure> {
    let names: Vec<_> = entrants.iter().map(|entrant| entrant.name).collect();
    let contender = |entrant| {
        let entrant: &mut Entrant = entrant;
        Contender::new(entrant.name, || entrant.run(work, threads, scale.steps))
    };
    let mut contenders: Vec<_> = entrants.iter_mut().map(contender).collect();
    let figures = interleave(&mut contenders, scale.rounds);
    let of = |figures: &[Both], of: fn(&Both) -> f64| median(&figures.iter().map(of).collect::<Vec<f64>>());
    let figure = |(name, figures): (&'static str, &Vec<Both>)| {
        (name, of(figures, |both| both.wall), of(figures, |both| both.busy))
    };
    names.into_iter().zip(&figures).map(figure).collect()
}

/// A store in which both threads hit one key.
fn stores(scale: &Scale) -> Vec<(&'static str, f64)> {
    let ops = scale.steps;
    let store = Store::builder().build().expect("the defaults are valid");
    let hot = vec![HOT; ops];
    let mut second = START_S;
    let mut batch_ms = START_MS;
    let batches = Store::builder().build().expect("the defaults are valid");
    let mut contenders = [
        Contender::new("Store, one key, one at a time", || {
            let start_s = second;
            second += i64::try_from(ops.div_ceil(PER_SECOND)).expect("a benchmark is short");
            on_threads(2, ops, start_s, |now| _ = black_box(store.hit(&HOT, now.at).is_ok())).wall
        }),
        Contender::new("Store, one key, batches of 64", || {
            let start_ms = batch_ms;
            batch_ms += ms_of(ops);
            let hit = || _ = hit_in_batches(&batches, &hot, start_ms);
            nanos_of_both(hit, hit).wall / ops as f64
        }),
    ];
    let names = contenders.each_ref().map(|contender| contender.name);
    let figures = interleave(&mut contenders, scale.rounds);
    names.into_iter().zip(figures.iter().map(|figures| median(figures))).collect()
}

/// `ops` hits on each thread. Returns nanoseconds between two hits of a thread.
fn on_threads(threads: usize, ops: usize, start_s: i64, hit: impl Fn(Moment) + Sync) -> Both {
    let work = || {
        for (second, first) in (start_s..).zip((0..ops).step_by(PER_SECOND)) {
            let now = black_box(Moment::new(second));
            (first..ops.min(first + PER_SECOND)).for_each(|_| hit(now));
        }
    };
    let both = if threads == 1 { alone(work) } else { nanos_of_both(work, work) };
    each(both, ops)
}

/// On one thread, waiting does not count.
fn alone(work: impl FnOnce()) -> Both {
    let busy = nanos_of(work);
    Both { wall: busy, busy }
}

fn each(both: Both, ops: usize) -> Both {
    let ops = ops as f64;
    Both { wall: both.wall / ops, busy: both.busy / ops }
}

impl Subject for AtomicU64 {
    fn hit(&self, _: Moment) {
        self.fetch_add(1, Relaxed);
    }

    fn read(&self, _: Moment) -> u64 {
        self.load(Relaxed)
    }
}

/// governor's limiter without a key. Its clock stands still. It has no count.
struct Limiter(super::rivals::Direct);

impl Subject for Limiter {
    fn hit(&self, _: Moment) {
        black_box(self.0.check().is_ok());
    }

    fn read(&self, _: Moment) -> u64 {
        0
    }
}

impl Subject for Mutex<HitCounter> {
    fn hit(&self, now: Moment) {
        let mut counter = self.lock().expect("nobody panics with the lock");
        black_box(counter.hit(now.second.cast_unsigned()));
    }

    fn read(&self, now: Moment) -> u64 {
        self.lock().expect("nobody panics with the lock").hits(now.second.cast_unsigned())
    }
}

impl Subject for AtomicCounter {
    fn hit(&self, now: Moment) {
        black_box(AtomicCounter::hit(self, now.at).is_ok());
    }

    fn read(&self, now: Moment) -> u64 {
        self.hits(minutes(5), now.at)
    }
}

impl Subject for StripedCounter {
    fn hit(&self, now: Moment) {
        black_box(StripedCounter::hit(self, now.at).is_ok());
    }

    fn read(&self, now: Moment) -> u64 {
        self.hits(minutes(5), now.at)
    }
}

struct Classic<C>(C);

impl<C: SharedCounter> Subject for Classic<C> {
    fn hit(&self, now: Moment) {
        black_box(self.0.hit(now.second, 1));
    }

    fn read(&self, now: Moment) -> u64 {
        self.0.hits(now.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    #[test]
    fn both_threads_hit() {
        let hits = AtomicU64::new(0);
        let last = AtomicI64::new(0);
        on_threads(2, 25_000, START_S, |now| {
            hits.fetch_add(1, Relaxed);
            last.fetch_max(now.second, Relaxed);
        });
        assert_eq!((hits.into_inner(), last.into_inner()), (50_000, START_S + 2));
    }

    #[test]
    fn every_round_is_later_than_the_one_before() {
        let counter = StripedCounter::new();
        let mut entrant = Entrant::new(STRIPED, counter);
        for work in [Work::Hits, Work::Reads, Work::Hits] {
            for threads in [1, 2] {
                assert!(entrant.run(work, threads, 25_000).wall > 0.0);
            }
        }
        assert_eq!(entrant.second, START_S + 4 * 3 + 2);
    }

    #[test]
    fn counters_with_a_window_slide() {
        fn check(subject: &impl Subject) {
            for second in START_S..START_S + 700 {
                subject.hit(Moment::new(second));
                subject.hit(Moment::new(second));
            }
            assert_eq!(subject.read(Moment::new(START_S + 699)), 600);
        }
        check(&AtomicCounter::new());
        check(&StripedCounter::new());
        check(&Mutex::new(HitCounter::new()));
        check(&Classic(SequenceLocked::new(300)));
    }
}
