//! Rounds: all contenders run one after the other, repeatedly. The figure is the median of each.
//!
//! The machine is shared, and its speed varies. Interleaved contenders vary together, so their ratios are
//! reliable where a single time is not.

/// A contender: its name, and a function that runs one round and returns its figure.
pub(crate) struct Contender<'a, T = f64> {
    pub(crate) name: &'static str,
    pub(crate) round: Box<dyn FnMut() -> T + 'a>,
}

impl<'a, T> Contender<'a, T> {
    pub(crate) fn new(name: &'static str, round: impl FnMut() -> T + 'a) -> Contender<'a, T> {
        Contender { name, round: Box::new(round) }
    }
}

/// Runs `rounds` rounds of all contenders. Returns the figures of each, in the order of the rounds.
pub(crate) fn interleave<T>(contenders: &mut [Contender<'_, T>], rounds: usize) -> Vec<Vec<T>> {
    let mut figures: Vec<Vec<T>> = contenders.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        // Every other round runs backwards, so that no contender always follows the same one.
        let order: Vec<usize> = match round % 2 {
            0 => (0..contenders.len()).collect(),
            _ => (0..contenders.len()).rev().collect(),
        };
        for index in order {
            figures[index].push((contenders[index].round)());
        }
    }
    figures
}

/// The median; NaN if there are no figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (_, _) if sorted.is_empty() => f64::NAN,
        (half, 1) => sorted[half],
        (half, _) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// The least figure; NaN if one of them is NaN.
pub(crate) fn least(figures: &[f64]) -> f64 {
    figures
        .iter()
        .copied()
        .reduce(|least, figure| if figure >= least { least } else { figure })
        .unwrap_or(f64::NAN)
}

/// The median of the ratios of each round. A disturbance of a round affects both sides.
pub(crate) fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(median_ratio(&[2.0, 9.0, 4.0], &[1.0, 3.0, 4.0]), 2.0);
    }

    #[test]
    fn contenders_take_turns() {
        let log = std::cell::RefCell::new(String::new());
        let contender = |name: &'static str| {
            let log = &log;
            Contender::new(name, move || {
                log.borrow_mut().push_str(name);
                f64::from(u32::try_from(log.borrow().len()).expect("short"))
            })
        };
        let figures = interleave(&mut [contender("a"), contender("b")], 3);
        assert_eq!(*log.borrow(), "abbaab");
        assert_eq!(figures, [[1.0, 4.0, 5.0], [2.0, 3.0, 6.0]]);
    }
}
