//! Compares the library: each round is a process of `lately-probe`, which prints a figure per line.

use std::io::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Compared, Side};
use crate::options::Options;
use crate::rounds::{Contender, interleave};

/// A figure: its name, its unit, and its value.
type Figure = (String, String, f64);

pub(super) fn compare(options: &Options, before: &Side, now: &Side) -> Result<Vec<Compared>, Error> {
    let mut contenders =
        [("before", before), ("now", now)].map(|(name, side)| Contender::new(name, || figures(&side.probe)));
    let rounds = interleave(&mut contenders, options.rounds());
    let mut sides = rounds.into_iter().map(|rounds| rounds.into_iter().collect::<Result<Vec<_>, _>>());
    let (Some(before), Some(now)) = (sides.next(), sides.next()) else { return Ok(Vec::new()) };
    let (before, now) = (before?, now?);
    let first = before.first().into_iter().flatten();
    let compared = first.enumerate().map(|(row, (name, unit, _))| {
        let of = |rounds: &[Vec<Figure>]| -> Vec<f64> {
            rounds.iter().map(|figures| figures.get(row).map_or(f64::NAN, |&(.., figure)| figure)).collect()
        };
        let unit = if unit == "ns" { "ns" } else { "B" };
        Compared {
            name: format!("library: {name}"),
            unit,
            is_rate: false,
            before: of(&before),
            now: of(&now),
        }
    });
    Ok(compared.collect())
}

fn figures(probe: &Path) -> Result<Vec<Figure>, Error> {
    let output = Command::new(probe).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Option<Vec<Figure>> = text.lines().map(figure).collect();
    figures.filter(|figures| output.status.success() && !figures.is_empty()).ok_or_else(|| {
        Error::other(format!("{}: no figures: {}", probe.display(), String::from_utf8_lossy(&output.stderr)))
    })
}

fn figure(line: &str) -> Option<Figure> {
    let [name, unit, figure] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
    Some((name.to_owned(), unit.to_owned(), figure.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_probe() {
        assert_eq!(figure("a hit alone\tns\t12.5"), Some(("a hit alone".to_owned(), "ns".to_owned(), 12.5)));
        assert_eq!(figure("a hit alone\tns\tfast"), None);
        assert_eq!(figure("a hit alone"), None);
    }
}
