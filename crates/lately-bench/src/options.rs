//! The options: what to measure, and for how long.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Parser;

/// Rounds of a full and of a quick run. An odd number, for medians.
const FULL_ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

/// Lately and its rivals side by side.
///
/// Print a row for each figure: its value, its bound (must), its goal (aim), and the rivals in the same run. Exit code 0:
/// every figure meets its bound. 1: a figure misses it, or could not be measured. 2: an error.
#[derive(Parser, Debug)]
#[command(name = "lately-bench")]
pub(crate) struct Options {
    /// Three short rounds instead of five long ones, and only figures with a bound: under four minutes for everything.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only the sections whose name contains this, such as library, memory or server/pipeline.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,

    /// The binary `lately` [default: the one beside this binary].
    #[arg(long, value_name = "FILE")]
    pub(crate) lately: Option<PathBuf>,

    /// Run the server without work on a free port, and print its address. Its throughput is an upper bound for the other
    /// servers.
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) nothing: Option<crate::server::nothing::Way>,

    /// Write all rows to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,

    /// Compare two revisions of ours: two folders, each with a `lately` and a `lately-probe`. Exit code 1 when a figure of the second
    /// is more than 10 % worse.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "NOW"], conflicts_with = "write")]
    pub(crate) compare: Option<Vec<PathBuf>>,

    /// The names of all sections that `wants` was called for.
    #[arg(skip)]
    sections: Mutex<Vec<String>>,
}

impl Options {
    /// The number of rounds for a median.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { QUICK_ROUNDS } else { FULL_ROUNDS }
    }

    /// `full`, or `quick` in a quick run.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether to run a section without bounds. A quick run of everything leaves it out.
    pub(crate) fn wants_to_compare(&self, section: &str) -> bool {
        self.wants(section) && !(self.quick && self.only.is_none())
    }

    /// Whether to run a section, such as `server/hot key`.
    pub(crate) fn wants(&self, section: &str) -> bool {
        self.lock().push(section.to_owned());
        self.only.as_deref().is_none_or(|only| section.contains(only))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all sections, after the run.
    pub(crate) fn sections(&self) -> String {
        self.lock().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_chosen_by_a_part_of_their_name() {
        let options = |words: &[&str]| Options::try_parse_from(words).expect("good words");
        let all = options(&["bench"]);
        assert!(all.wants("server/hot key") && all.rounds() == FULL_ROUNDS && all.pick(1, 2) == 1);
        let some = options(&["bench", "--quick", "--only", "hot"]);
        assert!(some.wants("server/hot key") && !some.wants("memory"));
        assert!(some.rounds() == QUICK_ROUNDS && some.pick(1, 2) == 2);
        assert_eq!(some.sections(), "server/hot key, memory");
    }
}
