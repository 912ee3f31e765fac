//! How many members hit these cells, by maximum likelihood.
//!
//! With `n` members, a cell that takes a share `q` of them was hit with the probability 1 - exp(-nq). So the derivative of
//! the likelihood is 0 where the sum of q / (exp(nq) - 1) over the cells that were hit equals the sum of q over the others.
//! The standard error is what the Fisher information of all cells says (Pettie and Wang, "Information theoretic limits of
//! cardinality estimation", 2021).

use super::cells::{LEVELS, Tally};

/// Bounds are this many standard errors away: 99.7 % of the estimates are nearer.
const BOUND_ERRORS: f64 = 3.0;

/// An estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub(super) members: f64,
    standard_error: f64,
}

/// The share of the members that a level has.
fn share(level: usize) -> f64 {
    let last = LEVELS - 1;
    0.5_f64.powi(i32::try_from(last.min(level + 1)).unwrap_or(i32::MAX))
}

impl Estimate {
    pub(super) fn of(tallies: &[Tally; LEVELS]) -> Estimate {
        let shares: [f64; LEVELS] =
            std::array::from_fn(|level| share(level) / f64::from(tallies[level].cells));
        let levels = || tallies.iter().zip(shares);
        let hit: u32 = tallies.iter().map(|tally| tally.hit).sum();
        if hit == 0 {
            return Estimate { members: 0.0, standard_error: 0.0 };
        }
        let not_hit: f64 = levels().map(|(tally, share)| f64::from(tally.cells - tally.hit) * share).sum();
        // The derivative and its own falls with the number of members, and it is convex. So Newton's method from below
        // approaches the root from below.
        let mut members = f64::from(hit);
        for _ in 0..64 {
            let (mut derivative, mut slope) = (-not_hit, 0.0);
            for (tally, share) in levels().filter(|(tally, _)| tally.hit > 0) {
                let hit = f64::from(tally.hit);
                let more = (members * share).exp_m1();
                derivative += hit * share / more;
                slope -= hit * share * share / (more * (-members * share).exp_m1());
            }
            let step = derivative / slope;
            if !step.is_finite() {
                break;
            }
            members += step;
            if step.abs() < 1e-6 * members {
                break;
            }
        }
        let information: f64 = levels()
            .map(|(tally, share)| f64::from(tally.cells) * share * share / (members * share).exp_m1())
            .sum();
        Estimate { members, standard_error: information.sqrt().recip() }
    }

    /// The lower bound.
    pub(super) fn lower(self) -> u64 {
        rounded((self.members - BOUND_ERRORS * self.standard_error).max(0.0))
    }

    /// The upper bound.
    pub(super) fn upper(self) -> u64 {
        rounded(self.members + BOUND_ERRORS * self.standard_error)
    }
}

/// The nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is not negative, and bounded by the hash"
)]
pub(super) fn rounded(members: f64) -> u64 {
    members.round() as u64
}
