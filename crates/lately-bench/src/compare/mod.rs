//! Compares two revisions of ours: the same loads on both, interleaved, and the ratio of each figure.

mod probe;
mod servers;
mod side;

use std::io::Error;
use std::path::Path;

use crate::options::Options;
use crate::output;
use crate::rounds::{median, median_ratio};
use crate::table::number;
use side::Side;

/// A figure counts as worse beyond this share of the old one.
const TOLERANCE: f64 = 0.1;

/// A figure of both revisions, in each round.
struct Compared {
    name: String,
    unit: &'static str,
    /// Whether a higher figure is better.
    is_rate: bool,
    before: Vec<f64>,
    now: Vec<f64>,
}

impl Compared {
    /// The median of the ratios of the rounds: now to before.
    fn ratio(&self) -> f64 {
        median_ratio(&self.now, &self.before)
    }

    /// Whether it is worse by more than the tolerance, or was not measured.
    fn is_worse(&self) -> bool {
        let ratio = self.ratio();
        let holds = if self.is_rate { ratio >= 1.0 - TOLERANCE } else { ratio <= 1.0 + TOLERANCE };
        !holds
    }

    fn line(&self) -> String {
        let verdict = if self.is_worse() { "WORSE" } else { "" };
        let [before, now] = [&self.before, &self.now].map(|figures| number(median(figures)));
        format!("{:<52} {before:>9} {now:>9} {:<5} {:>6.2}  {verdict}\n", self.name, self.unit, self.ratio())
    }
}

/// Compares two folders, each with a `lately` and a `lately-probe`. True if no figure is worse.
pub(crate) fn run(options: &Options, before: &Path, now: &Path) -> Result<bool, Error> {
    let (before, now) = (Side::new(before)?, Side::new(now)?);
    let mut compared = Vec::new();
    if options.wants("library") {
        compared.extend(output::section("library", || probe::compare(options, &before, &now))?);
    }
    compared.extend(
        servers::compare(options, &before, &now).map_err(|failure| Error::other(failure.to_string()))?,
    );
    if compared.is_empty() {
        return Err(Error::other(format!("no section of that name; there are {}", options.sections())));
    }
    let header = format!("{:<52} {:>9} {:>9} {:<5} {:>6}\n", "figure", "before", "now", "", "ratio");
    output::data(&header)?;
    compared.iter().try_for_each(|compared| output::data(&compared.line()))?;
    let worse = compared.iter().filter(|compared| compared.is_worse()).count();
    output::data(&format!("\n{worse} of {} figures are more than 10 % worse\n", compared.len()))?;
    Ok(worse == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_percent_is_tolerated_in_both_directions() {
        let check = |is_rate: bool, now: f64, expected: bool| {
            let compared =
                Compared { name: "x".to_owned(), unit: "", is_rate, before: vec![100.0], now: vec![now] };
            assert_eq!(compared.is_worse(), expected, "{now}");
        };
        check(true, 90.0, false);
        check(true, 89.0, true);
        check(true, 300.0, false);
        check(false, 110.0, false);
        check(false, 111.0, true);
        check(false, 10.0, false);
        check(true, f64::NAN, true);
        check(false, f64::NAN, true);
    }
}
