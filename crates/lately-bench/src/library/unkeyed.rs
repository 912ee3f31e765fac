//! One counter without a key, on one thread.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use lately::HitCounter;
use lately_classics::{Cached, CountedQueue, Counter, ExactQueue, MultiLevel, Ring, RunningTotal, Sparse};

use super::keyed::list;
use super::rivals::{Direct, quota};
use super::scale::Scale;
use crate::clock::nanos_of;
use crate::memory::bytes_of_a_counter;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Rival, Row};
use crate::table::number;

/// Hits or reads per second of the clock.
const PER_SECOND: usize = 1_000;
/// Hits per read: some counters visit three hundred slots in a read.
const HITS_PER_READ: usize = 8;
/// The same for the counter that visits every hit.
const HITS_PER_LONG_READ: usize = 256;
/// The default window.
const WINDOW_S: u64 = 300;
/// The initial time.
const START_S: u64 = 1_700_000_000;

/// A counter of hits by the second.
trait Subject {
    fn hit(&mut self, second: u64);
    /// Hits in the five minutes that end with `second`.
    fn read(&mut self, second: u64) -> u64;
}

/// A counter under load, and its name.
struct Entrant {
    name: &'static str,
    /// The number of operations per read, if reads are timed.
    hits_per_read: usize,
    round: Box<dyn FnMut(Work) -> f64>,
}

/// The operations that a round times.
#[derive(Clone, Copy)]
enum Work {
    Hits(usize),
    Reads(usize),
}

impl Entrant {
    /// Filled with a window of hits.
    fn new(name: &'static str, mut subject: impl Subject + 'static) -> Entrant {
        let mut second = START_S;
        let mut work = move |work: Work| {
            let (ops, is_read) = match work {
                Work::Hits(ops) => (ops, false),
                Work::Reads(ops) => (ops, true),
            };
            let nanos = nanos_of(|| {
                for _ in 0..ops / PER_SECOND {
                    second += 1;
                    match is_read {
                        true => read_for_a_second(&mut subject, second),
                        false => (0..PER_SECOND).for_each(|_| subject.hit(black_box(second))),
                    }
                }
            });
            nanos / (ops / PER_SECOND * PER_SECOND) as f64
        };
        work(Work::Hits(usize::try_from(WINDOW_S).expect("small") * PER_SECOND));
        Entrant { name, hits_per_read: HITS_PER_READ, round: Box::new(work) }
    }

    /// A counter whose reads take long.
    fn reading_less(self) -> Entrant {
        Entrant { hits_per_read: HITS_PER_LONG_READ, ..self }
    }

    fn run(&mut self, work: Work) -> f64 {
        let work = match work {
            Work::Reads(ops) => Work::Reads((ops / self.hits_per_read).max(PER_SECOND)),
            hits @ Work::Hits(_) => hits,
        };
        (self.round)(work)
    }
}

/// A hit, so that the second has a pane and no cached answer is valid; then reads.
fn read_for_a_second(subject: &mut impl Subject, second: u64) {
    subject.hit(second);
    for _ in 0..PER_SECOND {
        black_box(subject.read(black_box(second)));
    }
}

/// Rows of ours, and one for each classic.
pub(crate) fn rows(scale: &Scale) -> Vec<Row> {
    let mut entrants = entrants();
    let hits = run(&mut entrants, scale.rounds, Work::Hits(scale.steps));
    let reads = run(&mut entrants, scale.rounds, Work::Reads(scale.steps));
    let row = |what: &str, name: &str, value: f64, must: Must| {
        Row::new("library", format!("un-keyed {what}: {name}"), value, "ns", must)
    };
    let governor = Rival { name: "governor", here: hits[2].1, there: 11.3 };
    let atomics = Rival { name: "300 atomics", here: reads[4].1, there: 147.0 };
    let mut rows = vec![
        row("hit", hits[0].0, hits[0].1, Must::AtMost(5.0, 3.0))
            .note(list(&hits[1..OURS_AND_RIVALS]))
            .note(format!("{} bytes", number(bytes_of_a_counter(hits[0].0))))
            .by(Some(governor)),
        row("read of the default window", reads[0].0, reads[0].1, Must::AtMost(10.0, 3.0))
            .note(list(&reads[3..OURS_AND_RIVALS]))
            .by(Some(atomics)),
    ];
    for (hit, read) in hits.iter().zip(&reads).skip(OURS_AND_RIVALS) {
        let bytes = number(bytes_of_a_counter(hit.0));
        let note = format!("read of the default window {}; {bytes} bytes", number(read.1));
        rows.push(row("hit and read, classic", hit.0, hit.1, Must::Nothing).note(note));
    }
    rows
}

/// The number of entrants at the start of the table that are not classics.
const OURS_AND_RIVALS: usize = 5;

/// Ours first, then rivals, then the classics, one line each. The two after ours have no window, so their
/// reads mean nothing.
fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::new("HitCounter", HitCounter::new()),
        Entrant::new("fetch_add, no window", Alone(AtomicU64::new(0))),
        Entrant::new("governor", Governor::new()),
        Entrant::new("Mutex<VecDeque>", Log::default()),
        Entrant::new("300 atomics, scanned", Atomics::new()),
        Entrant::new("exact queue", Classic(ExactQueue::keeping(WINDOW_S.cast_signed()))).reading_less(),
        Entrant::new("counted queue", Classic(CountedQueue::new(WINDOW_S.cast_signed()))),
        Entrant::new("ring", Classic(Ring::new(300))),
        Entrant::new("running total", Classic(RunningTotal::new(300))),
        Entrant::new("cached ring", Classic(Cached::new(Ring::new(300)))),
        Entrant::new("multi-level", Classic(MultiLevel::new())),
        Entrant::new("sparse", Classic(Sparse::new(WINDOW_S.cast_signed()))),
    ]
}

fn run(entrants: &mut [Entrant], rounds: usize, work: Work) -> Vec<(&'static str, f64)> {
    let names: Vec<_> = entrants.iter().map(|entrant| entrant.name).collect();
    let mut contenders: Vec<_> =
        entrants.iter_mut().map(|entrant| Contender::new(entrant.name, || entrant.run(work))).collect();
    let figures = interleave(&mut contenders, rounds);
    names.into_iter().zip(figures.iter().map(|figures| median(figures))).collect()
}

impl Subject for HitCounter {
    fn hit(&mut self, second: u64) {
        black_box(HitCounter::hit(self, second));
    }

    fn read(&mut self, second: u64) -> u64 {
        self.hits(second)
    }
}

struct Classic<C>(C);

impl<C: Counter> Subject for Classic<C> {
    fn hit(&mut self, second: u64) {
        black_box(self.0.hit(second.cast_signed(), 1));
    }

    fn read(&mut self, second: u64) -> u64 {
        self.0.hits(second.cast_signed())
    }
}

struct Alone(AtomicU64);

impl Subject for Alone {
    fn hit(&mut self, _: u64) {
        self.0.fetch_add(1, Relaxed);
    }

    fn read(&mut self, _: u64) -> u64 {
        self.0.load(Relaxed)
    }
}

/// governor's limiter without a key. Its clock is the mock; a real one would cost more.
struct Governor {
    limiter: Direct,
    clock: FakeRelativeClock,
    second: u64,
}

impl Governor {
    fn new() -> Governor {
        let clock = FakeRelativeClock::default();
        Governor { limiter: RateLimiter::direct_with_clock(quota(), clock.clone()), clock, second: START_S }
    }
}

impl Subject for Governor {
    fn hit(&mut self, second: u64) {
        if second != self.second {
            self.clock.advance(Duration::from_secs(second - self.second));
            self.second = second;
        }
        black_box(self.limiter.check().is_ok());
    }

    fn read(&mut self, _: u64) -> u64 {
        0
    }
}

/// The first version one writes: a log of the seconds of all hits, under a lock.
#[derive(Default)]
struct Log(Mutex<VecDeque<u64>>);

impl Log {
    fn with_live<T>(&self, second: u64, work: impl FnOnce(&mut VecDeque<u64>) -> T) -> T {
        let mut seconds = self.0.lock().expect("nobody panics with the lock");
        while seconds.front().is_some_and(|&oldest| oldest + WINDOW_S <= second) {
            seconds.pop_front();
        }
        work(&mut seconds)
    }
}

impl Subject for Log {
    fn hit(&mut self, second: u64) {
        self.with_live(second, |seconds| seconds.push_back(second));
    }

    fn read(&mut self, second: u64) -> u64 {
        self.with_live(second, |seconds| seconds.len() as u64)
    }
}

/// A slot for each second, with the second and its count in one word. A read visits all of them.
struct Atomics(Vec<AtomicU64>);

/// Bits of a count in a slot. The other bits are the second.
const COUNT_BITS: u32 = 32;

impl Atomics {
    fn new() -> Atomics {
        Atomics((0..WINDOW_S).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Subject for Atomics {
    fn hit(&mut self, second: u64) {
        let slot = &self.0[usize::try_from(second % WINDOW_S).expect("below 300")];
        let counted =
            |kept: u64| if kept >> COUNT_BITS == second { kept + 1 } else { (second << COUNT_BITS) + 1 };
        black_box(slot.fetch_update(Relaxed, Relaxed, |kept| Some(counted(kept))).is_ok());
    }

    fn read(&mut self, second: u64) -> u64 {
        let live = |kept: u64| second.wrapping_sub(kept >> COUNT_BITS) < WINDOW_S;
        let kept = self.0.iter().map(|slot| slot.load(Relaxed)).filter(|&kept| live(kept));
        kept.map(|kept| kept & ((1 << COUNT_BITS) - 1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut subject: impl Subject) {
        for second in START_S..START_S + 700 {
            subject.hit(second);
            subject.hit(second);
        }
        assert_eq!(subject.read(START_S + 699), 600);
        assert_eq!(subject.read(START_S + 799), 400);
    }

    #[test]
    fn counters_with_a_window_slide() {
        check(HitCounter::new());
        check(Log::default());
        check(Atomics::new());
        check(Classic(Ring::new(300)));
    }

    #[test]
    fn every_entrant_runs_a_round() {
        for mut entrant in entrants() {
            assert!(entrant.run(Work::Hits(2_000)) > 0.0, "{}", entrant.name);
            assert!(entrant.run(Work::Reads(1)) > 0.0, "{}", entrant.name);
        }
        assert_eq!(entrants()[OURS_AND_RIVALS].name, "exact queue");
    }
}
