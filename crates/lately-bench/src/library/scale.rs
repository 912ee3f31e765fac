//! How much is measured.

use crate::options::Options;

/// The size of a run.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) quick: bool,
    /// Rounds of each contender; the figure is their median.
    pub(crate) rounds: usize,
    /// Operations of a round where each misses the cache.
    pub(crate) ops: usize,
    /// Operations of a round where none does.
    pub(crate) steps: usize,
}

impl Scale {
    pub(crate) fn of(options: &Options) -> Scale {
        match options.quick {
            true => Scale { quick: true, rounds: 3, ops: 1 << 17, steps: 1 << 20 },
            false => Scale { quick: false, rounds: 7, ops: 1 << 18, steps: 1 << 22 },
        }
    }
}
