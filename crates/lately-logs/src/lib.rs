//! Access-log lines to hits: formats, keys, event times, and over a whole log a tally, or what limits
//! would have decided.
//!
//! Nothing here opens a file or reads a clock: bytes come from the [`std::io::Read`] that is given, the
//! time of day with the [`Options`]. The way of a line: [`scan()`] cuts the bytes into lines and hands them
//! to a [`Feed`], which tells the format by the first of them; a [`LineParser`] makes each a [`Record`]
//! (a time and a key), and the caller counts it, for instance in a [`Tally`] or a [`Backtest`]. Who has
//! lines already, such as of a log that grows, gives them to a [`Feed`] directly.

mod access;
mod address;
mod backtest;
mod by_key;
mod cutter;
mod detect;
mod documents;
mod error;
mod exempt;
mod feed;
mod filter;
mod format;
mod joiner;
mod json;
mod layout;
mod limit;
pub mod limits;
mod lines;
mod lockout;
mod logfmt;
mod options;
mod parser;
mod pattern;
mod ranking;
mod request;
mod runs;
mod scan;
mod scanned;
mod series;
mod tally;
mod template;
mod time;
mod w3c;
mod wrapper;

pub use address::Network;
pub use backtest::{Backtest, Replay, Verdict};
pub use cutter::Cutter;
pub use error::{Malformed, ScanError, SeriesError, SetupError};
pub use exempt::Exempt;
pub use feed::Feed;
pub use filter::Filter;
pub use format::Format;
pub use layout::Layout;
pub use limit::Limit;
pub use lines::Line;
pub use lockout::{Factor, Lockout};
pub use options::Options;
pub use parser::{LineParser, Parsed, Record};
pub use scan::scan;
pub use scanned::{Scanned, WithoutTime};
pub use series::{Curve, Series};
pub use tally::{Row, Tally};
pub use template::Template;
pub use time::{TimeFormat, Times, Zone, time};
