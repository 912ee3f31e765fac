//! Servers whose classes change: from one start to the next, and when a dump is restored.
//!
//! A [`Script`] is a sequence of steps over a few keys: hits now and late, limits, checkpoints, stops and
//! starts, dumps and restores. [`play`] runs it on a store, a journal and a simulated disk. After each step
//! it compares answers with the [`Truth`](lately_classics::Truth) of all hits. The first impossible answer is
//! the finding. A script is generated from a seed, or decoded from any bytes: the fuzz target `classes`
//! includes these files.

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
