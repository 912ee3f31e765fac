//! Two stores with half of the keys each: the speed of two threads on this machine that share nothing.

use lately::Store;

use super::keys::{Key, Keys};
use super::subject::{Subject, hit_in_batches, ms_of};
use crate::clock::nanos_of_both;

pub(crate) struct Halves<'a>([Subject<'a>; 2]);

impl<'a> Halves<'a> {
    /// Stores in which every key has one hit, for `rounds` rounds of `ops` hits to both together.
    pub(crate) fn new(half: &'a Keys, rounds: usize, ops: usize) -> Halves<'a> {
        let halves = Halves([(); 2].map(|()| Subject::with_a_hit_each(half)));
        (0..rounds).for_each(|_| _ = halves.hit_on_threads(1, ops));
        halves
    }

    /// Hits in batches of 64, to one store after the other, or to both at once on two threads. Returns
    /// nanoseconds per hit.
    pub(crate) fn hit_on_threads(&self, threads: usize, ops: usize) -> f64 {
        let shares = self.0.each_ref().map(|half| (&half.store, half.stride(ops / 2), half.now_ms()));
        let hits: usize = shares.iter().map(|(_, keys, _)| keys.len()).sum();
        let work = |shares: &[(&Store, &[Key], i64)]| {
            shares.iter().for_each(|(store, keys, now_ms)| _ = hit_in_batches(store, keys, *now_ms));
        };
        let (one, other) = shares.split_at(shares.len() / threads);
        let both = nanos_of_both(|| work(one), || work(other));
        self.0.iter().for_each(|half| half.advance(ms_of(ops)));
        both.wall / hits as f64
    }

    #[cfg(test)]
    fn totals(&self) -> [u64; 2] {
        self.0.each_ref().map(|subject| subject.total(lately::minutes(5)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_count_their_hits() {
        let half = Keys::shuffled(500);
        let halves = Halves::new(&half, 2, 200);
        assert_eq!(halves.totals(), [700, 700]);
        assert!([1, 2].map(|threads| halves.hit_on_threads(threads, 100)).iter().all(|&nanos| nanos > 0.0));
        assert_eq!(halves.totals(), [800, 800]);
    }
}
