//! The size of a run.

use crate::options::Options;

/// The size of a run.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds of each contender; the figure is their median.
    pub(crate) rounds: usize,
    /// Operations of a round with cache misses.
    pub(crate) ops: usize,
    /// Operations of a round without cache misses.
    pub(crate) steps: usize,
    /// Keys that get a hit a minute for a week: ten thousand hits each.
    pub(crate) week_keys: u32,
    /// Whether rows without a bound are measured, too; and whether rounds continue after a figure has met its
    /// bound, if it can only improve.
    pub(crate) is_whole: bool,
}

impl Scale {
    pub(crate) fn of(options: &Options) -> Scale {
        Scale {
            rounds: options.rounds(),
            ops: options.pick(1 << 18, 1 << 17),
            steps: options.pick(1 << 20, 1 << 18),
            week_keys: options.pick(2_000, 500),
            is_whole: options.pick(true, false),
        }
    }
}
