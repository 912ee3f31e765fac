//! The keys of requests: an endless, reproducible stream.

use crate::limits::ZIPF_DRAWN;

/// The order of keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// One after the other, cyclically.
    Sequential,
    /// All in turn, each far from the previous one.
    Permuted,
    /// Random, with equal probabilities: of N draws among N keys, a third of the keys is never drawn.
    Uniform,
    /// Random: the probability of the key of rank r is r^-s times that of the first.
    Zipf(f64),
}

/// The stream.
pub(crate) enum Keys {
    /// Steps that are coprime to the number of keys, and so reach all of them.
    Step {
        key: u64,
        step: u64,
        keys: u64,
    },
    Uniform {
        state: u64,
        keys: u64,
    },
    /// Drawn in advance, because drawing costs more than a request.
    Drawn {
        keys: Vec<u32>,
        at: usize,
    },
}

/// The seed of the draws.
const SEED: u64 = 0x1a7e_1b0a_d5ee_d001;

impl Keys {
    /// Over `keys` keys, at least one.
    pub(crate) fn new(order: Order, keys: u64) -> Keys {
        match order {
            Order::Sequential => Keys::Step { key: 0, step: 1 % keys, keys },
            Order::Permuted => Keys::Step { key: 0, step: far_step(keys), keys },
            Order::Uniform => Keys::Uniform { state: SEED, keys },
            Order::Zipf(exponent) => Keys::Drawn { keys: draw_zipf(exponent, keys), at: 0 },
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Keys::Step { key, step, keys } => {
                let this = *key;
                let next = this + *step;
                *key = if next >= *keys { next - *keys } else { next };
                this
            }
            Keys::Uniform { state, keys } => below(random(state), *keys),
            Keys::Drawn { keys, at } => {
                let key = keys[*at];
                *at = if *at + 1 == keys.len() { 0 } else { *at + 1 };
                u64::from(key)
            }
        }
    }
}

/// About 0.618 of the number of keys, and coprime to it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "any number does"
)]
fn far_step(keys: u64) -> u64 {
    let near = (keys as f64 * 0.618_033_988_75) as u64;
    (near..keys).find(|&step| common_divisor(step, keys) == 1).unwrap_or(1 % keys)
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[inline]
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `bound`, in proportion to `random`.
#[inline]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Random keys by rank: counts the draws below each rank.
#[expect(clippy::cast_precision_loss, reason = "draws need no more than 53 bits")]
fn draw_zipf(exponent: f64, keys: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut state = SEED;
    let mut draw = || {
        let share = (random(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = up_to.partition_point(|&up_to| up_to <= share * sum).min(up_to.len() - 1);
        u32::try_from(rank).unwrap_or(u32::MAX)
    };
    (0..ZIPF_DRAWN).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(order: Order, keys: u64, draws: usize) -> Vec<usize> {
        let mut stream = Keys::new(order, keys);
        let mut tally = vec![0; usize::try_from(keys).expect("few")];
        for _ in 0..draws {
            tally[usize::try_from(stream.next()).expect("few")] += 1;
        }
        tally
    }

    #[test]
    fn in_turn_every_key_is_named_as_often() {
        for keys in [1, 2, 3, 6, 1_000, 1_024, 65_537] {
            for order in [Order::Sequential, Order::Permuted] {
                let rounds = usize::try_from(keys).expect("few");
                assert!(tally(order, keys, 3 * rounds).iter().all(|&count| count == 3), "{order:?} {keys}");
            }
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let mut stream = Keys::new(Order::Permuted, 1_000_000);
        let (first, second) = (stream.next(), stream.next());
        assert!(second.abs_diff(first) > 300_000, "{first} {second}");
    }

    #[test]
    fn uniform_draws_are_even() {
        let tally = tally(Order::Uniform, 100, 100_000);
        assert!(tally.iter().all(|&count| (800..1_200).contains(&count)), "{tally:?}");
    }

    #[test]
    fn drawn_by_rank() {
        let tally = tally(Order::Zipf(1.0), 1_000, 100_000);
        // The harmonic number of 1,000 is 7.485.
        assert!(tally[0].abs_diff(13_360) < 600 && tally[9].abs_diff(1_336) < 200, "{tally:?}");
        assert_eq!(Keys::new(Order::Zipf(1.0), 1).next(), 0);
    }

    #[test]
    fn the_stream_is_the_same_again() {
        for order in [Order::Permuted, Order::Uniform, Order::Zipf(0.8)] {
            let mut streams = [Keys::new(order, 1_000), Keys::new(order, 1_000)];
            let [first, second] = &mut streams;
            assert!((0..10_000).all(|_| first.next() == second.next()), "{order:?}");
        }
    }
}
