//! The hits of a whole log in each step of time.

use lately::{Span, Timestamp};

use crate::by_key::ByKey;
use crate::error::SeriesError;
use crate::limits::MAX_STEPS;
use crate::ranking::Ranking;

/// Counts hits by key and step, and answers at the end. Steps start at multiples of their length from the epoch on.
#[derive(Clone, Debug)]
pub struct Series {
    step_ms: i64,
    first_step: i64,
    last_step: i64,
    hits: ByKey,
}

/// The hits of one key in every step from the first to the last of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// The key.
    pub key: Vec<u8>,
    /// The starts of the steps and the hits in each. Their sum is all hits of the key.
    pub steps: Vec<(Timestamp, u64)>,
}

impl Series {
    /// An empty series of steps of this length.
    #[must_use]
    pub fn new(step: Span) -> Series {
        Series {
            step_ms: step.as_millis(),
            first_step: i64::MAX,
            last_step: i64::MIN,
            hits: ByKey::default(),
        }
    }

    /// Counts one hit. Panics past four billion distinct keys.
    pub fn hit(&mut self, key: &[u8], at: Timestamp) {
        let step = at.as_millis() / self.step_ms;
        self.first_step = self.first_step.min(step);
        self.last_step = self.last_step.max(step);
        self.hits.hit(key, step);
    }

    /// Distinct keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.hits.len()
    }

    /// The curves of the first `top` keys, or of all, sorted by hits (most first), then by key bytes.
    ///
    /// # Errors
    /// There are more than [`MAX_STEPS`] steps from the first to the last hit.
    pub fn curves(&self, top: Option<usize>) -> Result<Vec<Curve>, SeriesError> {
        if self.hits.len() == 0 {
            return Ok(Vec::new());
        }
        let steps = usize::try_from(self.last_step - self.first_step + 1).unwrap_or(usize::MAX);
        if steps > MAX_STEPS {
            return Err(SeriesError { steps });
        }
        let mut found = Vec::new();
        let order = |a: &(u64, u32), b: &(u64, u32)| {
            b.0.cmp(&a.0).then_with(|| self.hits.key(a.1).cmp(self.hits.key(b.1)))
        };
        let mut ranking = Ranking::new(top, order);
        for (key, runs) in self.hits.iter() {
            runs.sorted_into(&mut found);
            ranking.push((found.iter().map(|(_, hits)| hits).sum(), key));
        }
        let best = ranking.into_best();
        Ok(best.into_iter().map(|(_, key)| self.curve(key)).collect())
    }

    fn curve(&self, key: u32) -> Curve {
        let mut found = Vec::new();
        self.hits.runs(key).sorted_into(&mut found);
        let mut found = found.into_iter().peekable();
        let steps = (self.first_step..=self.last_step).map(|step| {
            let at =
                Timestamp::from_millis(step * self.step_ms).expect("a step starts no later than its hits");
            (at, found.next_if(|(with_hits, _)| *with_hits == step).map_or(0, |(_, hits)| hits))
        });
        Curve { steps: steps.collect(), key: self.hits.key(key).to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use lately::{milliseconds, minutes, seconds};
    use proptest::prelude::*;

    use super::*;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).expect("in range")
    }

    #[test]
    fn steps_without_hits_are_there() {
        let mut series = Series::new(minutes(1));
        for (key, at_ms) in [(b"b", 200_000), (b"a", 60_000), (b"b", 59_999), (b"b", 61_000)] {
            series.hit(key, time(at_ms));
        }
        let curve = |key: &[u8; 1], hits: [u64; 4]| Curve {
            key: key.to_vec(),
            steps: (0..4).map(|step| time(step * 60_000)).zip(hits).collect(),
        };
        assert_eq!(series.curves(None), Ok(vec![curve(b"b", [1, 1, 0, 1]), curve(b"a", [0, 1, 0, 0])]));
        assert_eq!(series.curves(Some(1)), Ok(vec![curve(b"b", [1, 1, 0, 1])]));
        assert_eq!(Series::new(seconds(1)).curves(None), Ok(Vec::new()));
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        let last = i64::try_from(MAX_STEPS).expect("small");
        let mut series = Series::new(milliseconds(1));
        series.hit(b"a", time(1));
        series.hit(b"a", time(last));
        assert_eq!(series.curves(None).map(|curves| curves[0].steps.len()), Ok(MAX_STEPS));
        series.hit(b"a", time(0));
        assert_eq!(series.curves(None), Err(SeriesError { steps: MAX_STEPS + 1 }));
    }

    proptest! {
        #[test]
        fn a_series_adds_up_to_the_total(
            hits in proptest::collection::vec((0..4_u8, 0..20_000_i64), 1..200),
            step_ms in 1..3_000_i64,
        ) {
            let mut series = Series::new(Span::from_millis(step_ms).expect("in range"));
            hits.iter().for_each(|&(key, at_ms)| series.hit(&[key], time(at_ms)));
            for curve in series.curves(None).expect("few steps") {
                for (at, count) in curve.steps {
                    let inside = |hit: &&(u8, i64)| [hit.0] == curve.key[..] && hit.1 / step_ms * step_ms == at.as_millis();
                    prop_assert_eq!(count, hits.iter().filter(inside).count() as u64);
                }
            }
        }
    }
}
