//! Load for a server that speaks the Redis protocol, and a check that it counted what was sent.
//!
//! A load generator that costs more than the server measures itself. Here requests are rendered once
//! and only the digits of their keys change; a batch is one write and mostly one read, in one thread;
//! of the replies only the line ends are looked at, and of decisions what they are. The stream of keys depends on nothing but the
//! [`Plan`], so it can be gone through again after the run to know how many hits each key was sent:
//! [`Counts`] compares that with what the server has.

mod clock;
mod connection;
mod counts;
mod decisions;
mod error;
mod keys;
pub mod limits;
mod lines;
mod numbers;
mod plan;
mod reply_pattern;
mod report;
mod request;
mod run;
mod schedule;
mod tally;

pub use clock::Stopwatch;
pub use counts::{Checked, Counted, Counts};
pub use error::LoadError;
pub use keys::Order;
pub use plan::{Answer, Ending, Plan, Times};
pub use report::Report;
pub use request::{Request, Word};
pub use run::run;
