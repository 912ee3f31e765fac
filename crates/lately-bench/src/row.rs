//! A row of the table: one figure, what it must be, and what stood beside it in the same run.

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
    /// What was measured.
    pub(crate) name: String,
    /// The figure, a median over the rounds.
    pub(crate) value: f64,
    /// Its unit: `ns`, `bytes`, `×`.
    pub(crate) unit: &'static str,
    pub(crate) must: Must,
    /// The rivals' or the bare machine's figures of the same run, for people to read.
    pub(crate) beside: String,
}

impl Row {
    /// A row, nothing beside it.
    pub(crate) fn new(
        table: &'static str,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        must: Must,
    ) -> Row {
        Row { table, name: name.into(), value, unit, must, beside: String::new() }
    }

    /// Says what stood beside the figure.
    pub(crate) fn beside(mut self, beside: impl Into<String>) -> Row {
        self.beside = beside.into();
        self
    }

    /// Whether the figure is what it must be. One that is no number is not.
    pub(crate) fn holds(&self) -> bool {
        match self.must {
            Must::AtLeast(least, _) => self.value >= least,
            Must::AtMost(most, _) => self.value <= most,
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
}
