//! Parses logs into hits: formats, keys and event times. Counts a whole log, or replays it against limits.
//!
//! Nothing here opens a file or reads a clock: bytes come from a [`std::io::Read`], the current time from the
//! [`Options`]. [`scan()`] cuts the bytes into lines and passes them to a [`Feed`], which detects the format from the
//! first lines. A [`LineParser`] parses each line into a [`Record`] (a time and a key). The caller counts it, for
//! instance in a [`Tally`] or a [`Backtest`]. A caller that already has lines, such as those of a growing log, passes
//! them to a [`Feed`] directly.

mod access;
mod backtest;
mod by_key;
mod cutter;
mod detect;
mod documents;
mod error;
mod feed;
mod fields;
mod filter;
mod format;
mod joiner;
mod json;
mod layout;
mod limit;
pub mod limits;
mod lines;
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
mod time;
mod w3c;
mod wanted;
mod wrapper;

pub use backtest::{Backtest, Replay, Verdict};
pub use cutter::Cutter;
pub use error::{Malformed, ScanError, SeriesError, SetupError};
pub use feed::Feed;
pub use fields::FoundAs;
pub use filter::Filter;
pub use format::Format;
pub use joiner::CutLines;
pub use lately_keys::{Exempt, KeyError, Network, Prefix, Template};
pub use layout::Layout;
pub use limit::Limit;
pub use lines::Line;
pub use options::Options;
pub use parser::{LineParser, Parsed, Record};
pub use scan::scan;
pub use scanned::{Lacking, Scanned};
pub use series::{Curve, Series};
pub use tally::{Row, Tally, TallyBuilder};
pub use time::{TimeFormat, Times, Zone, time};
