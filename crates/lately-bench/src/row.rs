//! A row of a table: a figure, its bound, and the rivals' figures of the same run.

use crate::table::number;

/// Which side of a bound is good.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Must {
    /// The figure must be this or more, and should be the second number.
    AtLeast(f64, f64),
    /// The figure must be this or less, and should be the second number.
    AtMost(f64, f64),
    /// Printed for comparison only.
    Nothing,
}

/// One figure of the run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    /// The table it belongs to: `server`, `library`, `memory`.
    pub(crate) table: &'static str,
    /// The figure.
    pub(crate) name: String,
    /// The figure, a median over the rounds.
    pub(crate) value: f64,
    /// Its unit: `ns`, `bytes`, `×`.
    pub(crate) unit: &'static str,
    pub(crate) must: Must,
    /// The rival that relaxes the bound if it is slower than when the bound was set.
    pub(crate) rival: Option<Rival>,
    /// The figures of rivals or of the bare machine in the same run, for readers.
    pub(crate) note: String,
}

/// The figure of a rival in this run, and on the machine on which the bounds were set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rival {
    pub(crate) name: &'static str,
    pub(crate) here: f64,
    pub(crate) there: f64,
}

impl Rival {
    /// How much slower the rival is here, at least 1: a faster machine does not tighten the bound. For a
    /// figure that must be large, slower means smaller.
    fn slowness(self, must: Must) -> f64 {
        let slowness = match must {
            Must::AtLeast(..) => self.there / self.here,
            Must::AtMost(..) | Must::Nothing => self.here / self.there,
        };
        slowness.max(1.0)
    }

    /// `÷ governor 0.59 (must by ratio 0.63)`, of our figure and its must.
    fn note(self, ours: f64, bound: f64) -> String {
        let (ratio, must) = (number(ours / self.here), number(bound / self.there));
        format!("÷ {} {ratio} (must by ratio {must})", self.name)
    }
}

impl Row {
    /// A row without a note.
    pub(crate) fn new(
        table: &'static str,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        must: Must,
    ) -> Row {
        Row { table, name: name.into(), value, unit, must, rival: None, note: String::new() }
    }

    /// Adds to the note.
    pub(crate) fn note(mut self, note: impl AsRef<str>) -> Row {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// Sets the rival of a bound, and adds both ratios to the note.
    pub(crate) fn by(self, rival: Option<Rival>) -> Row {
        match (self.must, rival) {
            (Must::AtMost(bound, _) | Must::AtLeast(bound, _), Some(rival)) => {
                let note = rival.note(self.value, bound);
                Row { rival: Some(rival), ..self }.note(note)
            }
            _ => self,
        }
    }

    /// Whether the figure meets its bound, as it is or relative to the rival. NaN does not.
    pub(crate) fn holds(&self) -> bool {
        self.holds_within(self.rival.map_or(1.0, |rival| rival.slowness(self.must)))
    }

    /// Whether the figure meets its bound only relative to the rival.
    pub(crate) fn holds_by_ratio(&self) -> bool {
        self.holds() && !self.holds_within(1.0)
    }

    fn holds_within(&self, slowness: f64) -> bool {
        match self.must {
            Must::AtLeast(least, _) => self.value * slowness >= least,
            Must::AtMost(most, _) => self.value <= most * slowness,
            Must::Nothing => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_at_the_bound() {
        let holds = |value: f64, must: Must| Row::new("server", "x", value, "×", must).holds();
        assert!(holds(2.4, Must::AtLeast(2.4, 3.0)) && !holds(2.39, Must::AtLeast(2.4, 3.0)));
        assert!(holds(52.0, Must::AtMost(52.0, 42.0)) && !holds(52.1, Must::AtMost(52.0, 42.0)));
        assert!(!holds(f64::NAN, Must::AtMost(1.0, 1.0)) && holds(f64::NAN, Must::Nothing));
    }

    #[test]
    fn a_slower_rival_relaxes_the_bound() {
        let holds = |value: f64, must: Must, here: f64, there: f64| {
            let row = Row::new("library", "y", value, "ns", must).by(Some(Rival { name: "x", here, there }));
            (row.holds(), row.holds_by_ratio())
        };
        let row = |value: f64, here: f64| holds(value, Must::AtMost(100.0, 80.0), here, 200.0);
        assert_eq!(
            (row(100.0, 300.0), row(150.0, 300.0), row(151.0, 300.0)),
            ((true, false), (true, true), (false, false))
        );
        // A faster rival, or none.
        assert_eq!((row(100.0, 50.0), row(101.0, 50.0)), ((true, false), (false, false)));
        assert_eq!((row(100.0, f64::NAN), row(101.0, f64::NAN)), ((true, false), (false, false)));
        // A figure that must be large.
        let row = |value: f64, here: f64| holds(value, Must::AtLeast(1.75, 1.9), here, 2.0);
        assert_eq!(
            (row(1.75, 1.5), row(1.5, 1.6), row(1.5, 1.8)),
            ((true, false), (true, true), (false, false))
        );
        assert_eq!((row(1.7, 2.5), row(1.7, f64::NAN)), ((false, false), (false, false)));
        let rival = Rival { name: "x", here: 300.0, there: 200.0 };
        assert_eq!(rival.note(150.0, 100.0), "÷ x 0.5 (must by ratio 0.5)");
    }
}
