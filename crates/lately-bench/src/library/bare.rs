//! The bare machine's figures for the least possible work, as a scale for the other figures.

use std::hint::black_box;

use super::scale::Scale;
use crate::clock::nanos_of;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Rival, Row};

/// Loads that are prefetched together: as many as a batch has operations.
const BATCH: usize = 64;
/// A cache line of numbers.
type Line = [u64; 8];

/// The machine's own figures, in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Bare {
    /// A load that depends on the one before, in 512 MiB.
    miss: f64,
    /// One of 64 independent loads, in 512 MiB.
    miss_together: f64,
}

impl Bare {
    /// The rival for figures of a batch of uncached keys. One of 64 loads took 11 ns on the machine on which
    /// the bounds were set.
    pub(crate) fn of_a_batch(&self) -> Rival {
        Rival { name: "bare miss of 64 together", here: self.miss_together, there: 11.0 }
    }

    /// The note for figures of uncached keys.
    pub(crate) fn note(&self) -> String {
        format!("bare miss {:.0}, of 64 together {:.1}", self.miss, self.miss_together)
    }
}

/// Measures the machine.
pub(crate) fn measure(scale: &Scale) -> (Bare, Vec<Row>) {
    let (near, far) = (Lines::of_mebibytes(64), Lines::of_mebibytes(512));
    let steps = scale.steps;
    let mut contenders = [
        Contender::new("loop, nothing in it", || {
            per_step(steps, || {
                (0..steps).for_each(|step| {
                    black_box(step);
                });
            })
        }),
        Contender::new("cache miss, 64 MiB", || per_step(steps, || near.chase(steps))),
        Contender::new("cache miss, 512 MiB", || per_step(steps, || far.chase(steps))),
        Contender::new("cache miss, 64 together, 64 MiB", || per_step(steps, || near.gather(steps))),
        Contender::new("cache miss, 64 together, 512 MiB", || per_step(steps, || far.gather(steps))),
    ];
    let figures = interleave(&mut contenders, scale.rounds);
    let medians: Vec<f64> = figures.iter().map(|figures| median(figures)).collect();
    let row = |(contender, &value): (&Contender<'_>, &f64)| {
        Row::new("library", format!("bare machine: {}", contender.name), value, "ns", Must::Nothing)
    };
    let rows = contenders.iter().zip(&medians).map(row).collect();
    (Bare { miss: medians[2], miss_together: medians[4] }, rows)
}

fn per_step(steps: usize, work: impl FnOnce()) -> f64 {
    nanos_of(work) / steps as f64
}

/// A power of two of cache lines. Each has the index of another, and they form one ring through all of them,
/// in an order that no prefetcher predicts.
struct Lines(Vec<Line>);

impl Lines {
    fn of_mebibytes(mebibytes: usize) -> Lines {
        Lines::new(mebibytes * (1 << 20) / size_of::<Line>())
    }

    fn new(count: usize) -> Lines {
        assert!(count.is_power_of_two(), "the ring is a generator modulo a power of two, not {count}");
        Lines((0..count).map(|line| [next(line, count) as u64; 8]).collect())
    }

    /// Each load depends on the one before.
    fn chase(&self, steps: usize) {
        let line =
            (0..steps).fold(0, |line: usize, _| usize::try_from(self.0[line][0]).expect("a line's number"));
        black_box(line);
    }

    /// All loads of a batch are independent.
    fn gather(&self, steps: usize) {
        let mask = self.0.len() - 1;
        let mut line = 0;
        for _ in 0..steps / BATCH {
            let sum = (0..BATCH).fold(0, |sum: u64, _| {
                line = next(line, mask + 1);
                sum.wrapping_add(self.0[line][0])
            });
            // The next batch waits for this one: the added value is 0, but that is only known after the
            // loads.
            line = (line + usize::from(sum == u64::MAX)) & mask;
        }
        black_box(line);
    }
}

/// A generator with full period (Hull and Dobell, 1962): odd increment, multiplier 1 modulo 4. The multiplier
/// is large, so that neighbours end up far apart.
fn next(line: usize, count: usize) -> usize {
    line.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F) & (count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_passes_through_every_line() {
        let lines = Lines::new(1 << 10);
        let mut seen = vec![false; lines.0.len()];
        let mut line = 0;
        for _ in 0..lines.0.len() {
            assert!(!std::mem::replace(&mut seen[line], true));
            line = usize::try_from(lines.0[line][0]).expect("small");
        }
        assert_eq!(line, 0);
    }
}
