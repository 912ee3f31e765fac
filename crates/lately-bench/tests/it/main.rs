//! Compares decisions with those of other libraries, and tests features that their users asked for. Nothing is timed.

mod redis_cell;
mod throttlecrab;
