//! `lately count`: hits of a log by event time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lately::{DEFAULT_WINDOW, Span, TimeError, Timestamp};
use lately_logs::{Format, Malformed, Options, Row, ScanError, Scanned, Tally, Template};

use crate::error::{CliError, Outcome};
use crate::log_file;
use crate::output;
use crate::progress::Progress;
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
#[expect(rustdoc::invalid_html_tags, reason = "the help shows a regular expression as it is typed")]
pub(crate) struct Count {
    /// Logs to read, as one; - is standard input. What is gzip inside is decompressed.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Exit with code 2 when a line does not parse. The rows are printed all the same.
    #[arg(long)]
    strict: bool,

    /// combined, common, json or regex:RE. Without it each log's first line decides between
    /// json and combined, which takes common lines too.
    ///
    /// combined and common are the formats of Apache and nginx. json is an object per line. RE is a
    /// regular expression with named groups, such as '^(?<ip>\S+) (?<time>\S+)'; it works on bytes.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// What to count by: a field, or a template such as '{ip} {path}' ({{ and }} are braces).
    ///
    /// Fields of combined: ip path status method user request protocol bytes referer agent; common has
    /// no referer and agent. path is without the query string. Fields of json: names in the object, with
    /// dots for nested objects (user.id). Fields of regex: its named groups. A line without the field
    /// does not parse, nor does one whose key is empty or longer than 1024 bytes.
    #[arg(long, value_name = "TEMPLATE", default_value = "ip")]
    key: Template,

    /// Where the time is in json and regex lines. Without it: json, the first present of time,
    /// timestamp, ts and @timestamp; regex, the group time.
    ///
    /// A time is Unix seconds, RFC 3339 with a zone, or 17/May/2015:10:05:03 +0000. By its size a number
    /// is taken for milliseconds (from 10^11), microseconds (from 10^14) or nanoseconds (from 10^17).
    #[arg(long, value_name = "FIELD")]
    time_field: Option<String>,

    /// Length of the window: seconds, or a number with ms, s, m, h, d or w.
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value_t = DEFAULT_WINDOW)]
    window: Span,

    /// Where the window ends: Unix seconds, RFC 3339 with a zone, or 17/May/2015:10:05:03 +0000
    /// [default: the newest time in the logs].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = time)]
    at: Option<Timestamp>,

    /// How many rows to print; 0 is all.
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = 10)]
    top: usize,

    /// Print an object per line: key (key_b64 when it is no UTF-8), hits, peak, peak_at, total.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(count: &Count) -> Result<Outcome, CliError> {
    let options = Options {
        format: count.format.clone(),
        key: count.key.clone(),
        time_field: count.time_field.clone(),
    };
    options.check().map_err(|error| CliError::new("count", error, SETUP_HINT))?;
    log_file::check(&count.files)?;
    let mut tally = Tally::new(count.window);
    let mut skipped = Skipped::default();
    let progress = Progress::new();
    for path in &count.files {
        let log = progress.watch(log_file::open(path)?);
        let scanned = lately_logs::scan(log, &options, |record| {
            tally.hit(&record.key, record.at);
            progress.line();
        });
        skipped.add(path, scanned.map_err(|error| scan_error(path, &error))?);
    }
    drop(progress);
    let rows = tally.rows(count.at, Some(count.top).filter(|&top| top > 0));
    output::data(|out| if count.json { write_json(out, &rows) } else { write_table(out, &rows) })?;
    if skipped.malformed == 0 {
        return Ok(Outcome::Done);
    }
    let lines = if skipped.malformed == 1 { "line does not parse" } else { "lines do not parse" };
    let places = skipped.places(&count.files);
    let cause = format!("{} of {} {lines}: {places}", skipped.malformed, skipped.lines);
    if count.strict {
        return Err(CliError::new("count", cause, "the rows are of the others; --format may help"));
    }
    output::message(&format_args!("lately: count: {cause}"));
    if skipped.malformed == skipped.lines {
        output::message(&format_args!("hint: {SETUP_HINT}"));
    }
    Ok(Outcome::Done)
}

const SETUP_HINT: &str = "--format and --key say what the lines are like, see lately count --help";

fn scan_error(path: &Path, error: &ScanError) -> CliError {
    match error {
        ScanError::Read(error) => log_file::unreadable(path, error),
        other => CliError::new(log_file::name(path), other, SETUP_HINT),
    }
}

/// A time as the table shows it, or as logs have it.
fn time(text: &str) -> Result<Timestamp, TimeError> {
    text.parse().or_else(|error| lately_logs::time(text).ok_or(error))
}

/// The lines of all logs that do not parse.
#[derive(Default)]
struct Skipped {
    lines: u64,
    malformed: u64,
    first: Vec<(PathBuf, u64, Malformed)>,
}

impl Skipped {
    fn add(&mut self, path: &Path, scanned: Scanned) {
        self.lines += scanned.lines;
        self.malformed += scanned.malformed;
        let named = scanned.first_malformed.into_iter().map(|(line, why)| (path.to_owned(), line, why));
        self.first.extend(named);
        self.first.truncate(lately_logs::limits::MAX_NAMED_LINES);
    }

    /// `line 7 (no time), …`, or `access.log:7 (no time), …` when there are several logs.
    fn places(&self, files: &[PathBuf]) -> String {
        let place = |(path, line, why): &(PathBuf, u64, Malformed)| match files {
            [_] => format!("line {line} ({why})"),
            _ => format!("{}:{line} ({why})", log_file::name(path)),
        };
        let mut places = self.first.iter().map(place).collect::<Vec<_>>().join(", ");
        if self.malformed > self.first.len() as u64 {
            places.push_str(", …");
        }
        places
    }
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
        [row.hits.to_string(), row.peak.to_string(), utc(row.peak_at), row.total.to_string(), key]
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    table::write(out, ["HITS", "PEAK", "PEAK AT (UTC)", "TOTAL", "KEY"], &cells)
}

/// `2015-05-17T22:00:00Z`. The last hours of the year 9999, which are beyond the calendar, are
/// Unix seconds.
fn utc(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis()).map_or_else(|_| at.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable_to_the_end_of_time() {
        let check = |time: &str, expected: &str| assert_eq!(utc(time.parse().expect("a time")), expected);
        check("1431900000", "2015-05-17T22:00:00Z");
        check("0.25", "1970-01-01T00:00:00.25Z");
        check("253402300799", "253402300799");
    }
}
