//! The figures of some contenders, and rows that compare two of them.

use super::TABLE;
use crate::rounds::{Contender, interleave, median_ratio};
use crate::row::{Must, Row};
use crate::server::measured::Measured;
use crate::table::number;

/// The figures of interleaved contenders.
pub(super) struct Figures {
    names: Vec<&'static str>,
    figures: Vec<Vec<Measured>>,
    pipeline: usize,
}

impl Figures {
    pub(super) fn of(
        mut contenders: Vec<Contender<'_, Measured>>,
        rounds: usize,
        pipeline: usize,
    ) -> Figures {
        let names = contenders.iter().map(|contender| contender.name).collect();
        Figures { names, figures: interleave(&mut contenders, rounds), pipeline }
    }

    fn rounds(&self, name: &str) -> &[Measured] {
        let at = self.names.iter().position(|candidate| *candidate == name);
        at.map_or(&[], |at| self.figures[at].as_slice())
    }

    /// `LIMIT 3.1 M/s, p50 0.9, p99 1.4, p99.9 1.8 ms; server CPU 0.31 µs`.
    fn described(&self, name: &str) -> String {
        let median = Measured::median(self.rounds(name));
        format!("{name} {} M/s, {}", number(median.per_second / 1e6), median.describe())
    }

    /// The ratio of two throughputs.
    pub(super) fn throughput(&self, ours: &str, theirs: &str, must: Must) -> Row {
        self.row(&format!("{ours} ÷ {theirs}"), (ours, theirs), |measured| measured.per_second, must)
    }

    /// The ratio of two processor times per decision.
    pub(super) fn cpu(&self, ours: &str, theirs: &str, must: Must) -> Row {
        self.row(
            &format!("server CPU per {ours} ÷ {theirs}"),
            (ours, theirs),
            |measured| measured.cpu_us,
            must,
        )
    }

    fn row(&self, name: &str, (ours, theirs): (&str, &str), of: fn(&Measured) -> f64, must: Must) -> Row {
        let each = |name: &str| self.rounds(name).iter().map(of).collect::<Vec<f64>>();
        let value = median_ratio(&each(ours), &each(theirs));
        let name = format!("{name}, pipeline {}", self.pipeline);
        let note = format!("{}; {}", self.described(ours), self.described(theirs));
        Row::new(TABLE, name, value, "×", must).note(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_the_rounds_ratios() {
        let measured = |per_second: f64| Measured { per_second, cpu_us: 1e6 / per_second, ..Measured::NONE };
        let contender = |name: &'static str, mut figures: Vec<f64>| {
            Contender::new(name, move || measured(figures.pop().expect("three rounds")))
        };
        let contenders = vec![contender("a", vec![2e6, 9e6, 4e6]), contender("b", vec![1e6, 3e6, 4e6])];
        let figures = Figures::of(contenders, 3, 64);
        let row = figures.throughput("a", "b", Must::AtLeast(2.0, 2.0));
        assert_eq!((row.name.as_str(), row.value), ("a ÷ b, pipeline 64", 2.0));
        assert!(row.holds() && row.note.contains("server CPU 0.25 µs; b 3 M/s, "), "{row:?}");
        let row = figures.cpu("a", "b", Must::AtMost(0.8, 0.8));
        assert_eq!((row.name.as_str(), row.value), ("server CPU per a ÷ b, pipeline 64", 0.5));
        let row = figures.throughput("a", "nobody", Must::AtLeast(0.0, 0.0));
        assert!(row.value.is_nan() && !row.holds());
    }
}
