//! Access-log lines to hits: formats, keys, event times, and over a whole log a tally, or what limits
//! would have decided.
//!
//! Nothing here opens a file: bytes come from the [`std::io::Read`] that is given. The way of a line:
//! [`scan`] cuts the bytes into lines, a [`LineParser`] makes each a [`Record`] (a time and a key),
//! and whoever called counts it, for instance in a [`Tally`] or a [`Backtest`].

mod access;
mod backtest;
mod by_key;
mod error;
mod format;
mod json;
mod limit;
pub mod limits;
mod lines;
mod parser;
mod pattern;
mod ranking;
mod runs;
mod scan;
mod tally;
mod template;
mod time;

pub use backtest::{Backtest, Replay, Verdict};
pub use error::{Malformed, ScanError, SetupError};
pub use format::Format;
pub use limit::Limit;
pub use parser::{LineParser, Record};
pub use scan::{Options, Scanned, scan};
pub use tally::{Row, Tally};
pub use template::Template;
pub use time::time;
