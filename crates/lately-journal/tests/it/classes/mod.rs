//! Servers whose classes change: from one start to the next, and where a dump is restored.
//!
//! A [`Script`] is a sequence of steps over a few keys: hits now and late, limits, checkpoints, ends and starts,
//! dumps and restores. [`play`] runs it on a store, a journal and a simulated disk, and after each step holds
//! answers against the [`Truth`](lately_classics::Truth) of all hits. The first answer that cannot be true is the
//! finding. A script is made of a seed, or of any bytes: the fuzz target `classes` includes these files.

mod check;
mod class;
mod play;
mod restore;
mod script;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod shrink;
mod world;

pub(crate) use play::check;
