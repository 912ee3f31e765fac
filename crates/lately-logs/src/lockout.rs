//! The duration of lockouts: how long a denied key is denied everything.

use std::str::FromStr;

use lately::Span;

use crate::error::SetupError;

/// The lockouts of a key: the first duration, and how the next ones grow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lockout {
    /// The duration of the first lockout of a key.
    pub first: Span,
    /// The factor between a lockout and the next.
    pub factor: Factor,
    /// The maximum duration.
    pub longest: Span,
}

/// A number from 1 on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Factor(f64);

impl Lockout {
    /// Lockouts that all have this length.
    #[must_use]
    pub fn of(length: Span) -> Lockout {
        Lockout { first: length, factor: Factor(1.0), longest: Span::MAX }
    }

    /// The duration of a key's lockout after `before` earlier ones, in whole milliseconds.
    pub(crate) fn length_ms(&self, before: u64) -> i64 {
        let longest_ms = self.longest.as_millis();
        let mut length_ms = self.first.as_millis().min(longest_ms);
        if self.factor.0 == 1.0 {
            return length_ms;
        }
        for _ in 0..before {
            let next = length_ms as f64 * self.factor.0;
            if next >= longest_ms as f64 {
                return longest_ms;
            }
            #[expect(clippy::cast_possible_truncation, reason = "it is below the longest span")]
            let next_ms = next as i64;
            // A factor that is too close to 1 to change anything will not change it later, either.
            if next_ms == length_ms {
                return length_ms;
            }
            length_ms = next_ms;
        }
        length_ms
    }
}

impl FromStr for Factor {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Factor, SetupError> {
        let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor >= 1.0);
        factor.map(Factor).ok_or_else(|| SetupError::Factor { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use lately::{milliseconds, seconds};

    use super::*;

    #[test]
    fn lockouts_grow_by_their_factor() {
        let check = |factor: &str, longest: Span, expected: &[i64]| {
            let factor = factor.parse().expect("a factor");
            let lockout = Lockout { first: milliseconds(100), factor, longest };
            let found: Vec<i64> =
                (0..).take(expected.len()).map(|before| lockout.length_ms(before)).collect();
            assert_eq!(found, expected);
        };
        check("1", Span::MAX, &[100, 100, 100]);
        check("2", Span::MAX, &[100, 200, 400, 800]);
        check("1.5", Span::MAX, &[100, 150, 225, 337]);
        check("10", seconds(1), &[100, 1_000, 1_000]);
        check("2", milliseconds(50), &[50, 50]);
        check("1.001", Span::MAX, &[100, 100]);
        let lockout = Lockout { first: milliseconds(1), factor: Factor(2.0), longest: Span::MAX };
        assert_eq!(lockout.length_ms(u64::MAX), Span::MAX.as_millis());
    }

    #[test]
    fn factors_are_from_1_on() {
        for bad in ["", "0.5", "-2", "nan", "inf", "two"] {
            assert_eq!(bad.parse::<Factor>(), Err(SetupError::Factor { text: bad.into() }));
        }
    }
}
