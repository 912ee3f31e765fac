//! Load for a server that speaks the Redis protocol, and a check that it counted what was sent.
//!
//! A generator that costs more than the server would measure itself. So requests are encoded once, and only
//! the digits of their keys change. A batch is one write and mostly one read, in one thread. In replies only
//! line ends are parsed, and decisions. The sequence of keys depends only on the [`Plan`], so it can be
//! repeated after the run: [`Counts`] compares the hits of each key with the counts of the server.

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
pub use plan::{Answer, Ending, Login, Plan, Times};
pub use report::Report;
pub use request::{Request, Word};
pub use run::run;
