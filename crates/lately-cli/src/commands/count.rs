//! `lately count`: hits of a log by event time.

use std::io::{self, Write};

use clap::Args;
use lately::{DEFAULT_WINDOW, Span, Timestamp};
use lately_logs::{Row, Tally};

use crate::error::{CliError, Outcome};
use crate::log_args::LogArgs;
use crate::output;
use crate::table;

/// Count the hits in a log by the times in its lines, per key.
///
/// For each key: the hits in the window that ends at --at, the peak (the most hits in any window of
/// that length, and when the earliest such window ended), and the total. Lines may be in any order.
/// Rows are sorted by hits, then peak, then total, most first, then key; keys without a hit in the
/// window are included. Without --json they are a table with a header and times in UTC, in which
/// unprintable bytes of keys are escaped.
///
/// The window ending at T has the hits of T's second and of the seconds before it, as many as the
/// window is long. For a window that is not whole seconds, time is cut into the widest of 500 100 50 10 2 1 ms
/// that divides it.
///
/// Lines that do not parse are skipped; their number, and where the first three are, goes to standard
/// error.
#[derive(Args)]
pub(crate) struct Count {
    /// Length of the window: seconds, or a number with ms, s, m, h, d or w.
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value_t = DEFAULT_WINDOW)]
    window: Span,

    /// Where the window ends: Unix seconds, RFC 3339 with a zone, or 17/May/2015:10:05:03 +0000
    /// [default: the newest time in the logs].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = time)]
    at: Option<Timestamp>,

    #[command(flatten)]
    logs: LogArgs,

    /// Print an object per line: key (key_b64 when it is no UTF-8), hits, peak, peak_at, total.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(count: &Count) -> Result<Outcome, CliError> {
    let mut tally = Tally::new(count.window);
    let read = count.logs.read("count", |key, at| tally.hit(key, at))?;
    let rows = tally.rows(count.at, count.logs.top());
    output::data(|out| if count.json { write_json(out, &rows) } else { write_table(out, &rows) })?;
    if !count.json && rows.len() < tally.keys() {
        let (shown, keys) = (rows.len(), output::keys(tally.keys()));
        output::message(&format_args!("lately: count: the first {shown} of {keys}; --top 0 prints all"));
    }
    read.outcome()
}

/// A time as the table shows it, or as logs have it.
fn time(text: &str) -> Result<Timestamp, String> {
    let cause = "give Unix seconds, RFC 3339 with a zone, or 17/May/2015:10:05:03 +0000";
    text.parse()
        .ok()
        .or_else(|| lately_logs::time(text))
        .ok_or_else(|| format!("invalid time '{text}': {cause}"))
}

fn write_json(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for Row { key, hits, peak, peak_at, total } in rows {
        let key = output::key_member(key);
        writeln!(out, "{{{key},\"hits\":{hits},\"peak\":{peak},\"peak_at\":{peak_at},\"total\":{total}}}")?;
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let cells = |row: &Row| {
        let key = table::printable(&row.key);
        [row.hits.to_string(), row.peak.to_string(), table::utc(row.peak_at), row.total.to_string(), key]
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    table::write(out, ["HITS", "PEAK", "PEAK AT (UTC)", "TOTAL", "KEY"], &cells)
}
