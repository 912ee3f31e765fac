//! `lately count`: hits of a log by event time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lately::{DEFAULT_WINDOW, Span};
use lately_logs::{Curve, Record, Row, Series, Tally, Template};

use crate::error::{CliError, Outcome};
use crate::limits::MAX_REPORT_KEYS;
use crate::log_args::{LogArgs, ReadLogs};
use crate::new_file::{self, NewFile};
use crate::output;
use crate::report::Counted;
use crate::table;

/// The mode of a page, before the umask.
const PAGE_MODE: u32 = 0o666;

/// Count the hits of each key in a log, by the times in its lines.
///
/// It prints for each key the hits in the window that ends at --at, the peak (the most hits in any window of that
/// length, and when the earliest such window ended), and the total. Lines may be in any order. Rows are sorted by hits,
/// then peak, then total, most first, then by key. Keys without a hit in the window are included. Tables have times in
/// UTC, and escape unprintable bytes of keys.
///
/// A window of N seconds that ends at T counts the second of T and the N - 1 seconds before it. If the window is not a
/// whole number of seconds, time is divided into the widest panes of 500 100 50 10 2 1 ms that divide it.
///
/// With --step it prints the hits in each step of time, from the first hit to the last, with empty steps.
///
/// Lines that do not parse are skipped. Their number, the reasons, and the first line of each reason go to standard
/// error. If no line parses, that is an error.
#[derive(Args)]
pub(crate) struct Count {
    /// Length of the window: seconds, or a number with ms, s, m, h, d or w.
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value_t = DEFAULT_WINDOW)]
    window: Span,

    /// The end of the window: Unix seconds, RFC 3339 with a zone, 17/May/2015:10:05:03 +0000, or 2h for two hours ago
    /// [default: the newest time in the logs].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    at: Option<String>,

    /// Print a series: the hits in each step of this length. It counts all lines together, or with --key the keys with
    /// the highest totals. Steps start at multiples of their length.
    #[arg(long, value_name = "D", allow_negative_numbers = true, conflicts_with_all = ["window", "at"])]
    step: Option<Span>,

    #[command(flatten)]
    logs: LogArgs,

    /// Print a JSON object per line: key (key_b64 when it is no UTF-8), hits, peak, peak_at, total. With --step: key (if
    /// --key is given), at, hits.
    #[arg(long)]
    json: bool,

    /// Print comma-separated values with a header, with the same fields as --json. Keys are not escaped.
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write an HTML page: hits over time, the first keys with their charts and peaks, and the lines that do not parse.
    /// - is standard output.
    ///
    /// The page is one file below 200 kB that loads nothing. It has at most 100 keys, 12 of them with a chart, and
    /// chooses the steps of the charts itself. An existing file is replaced once the page is complete.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "step"])]
    html: Option<PathBuf>,
}

pub(crate) fn run(count: &Count) -> Result<Outcome, CliError> {
    match (&count.html, count.step) {
        (Some(file), _) => report(count, file),
        (None, Some(step)) => series(count, step),
        (None, None) => windows(count),
    }
}

fn windows(count: &Count) -> Result<Outcome, CliError> {
    let at = count.at.as_ref().map(|at| count.logs.time("--at", at)).transpose()?;
    let mut tally = Tally::builder(count.window);
    let mut read =
        count.logs.read("count", &Template::default(), |record| tally.hit(record.key, record.at))?;
    check_some(&mut read)?;
    let tally = tally.build();
    let rows = tally.rows(at, count.logs.top());
    output::data(|out| {
        if count.json {
            write_json(out, &rows)
        } else if count.csv {
            write_csv(out, &rows)
        } else {
            write_table(out, &rows)
        }
    })?;
    if !count.json && !count.csv {
        report_cut(rows.len(), tally.keys());
    }
    if at.is_none() {
        report_gap(&tally);
    }
    read.outcome()
}

fn report(count: &Count, path: &Path) -> Result<Outcome, CliError> {
    let at = count.at.as_ref().map(|at| count.logs.time("--at", at)).transpose()?;
    let target = new_file::resolved(path);
    if count.logs.files().iter().any(|log| new_file::resolved(log) == target) && path.as_os_str() != "-" {
        return Err(CliError::new("--html", "the page would replace the log", "name another file"));
    }
    // The file is opened before a long log is read, so that an error comes early.
    let file = (path.as_os_str() != "-").then(|| NewFile::create(path, PAGE_MODE)).transpose()?;
    let (mut tally, mut all) = (Tally::builder(count.window), Tally::builder(count.window));
    let default_key = Template::default();
    let mut read = count.logs.read("count", &default_key, |&Record { key, at, .. }| {
        tally.hit(key, at);
        all.hit(b"*", at);
    })?;
    check_some(&mut read)?;
    let (tally, all) = (tally.build(), all.build());
    let top = count.logs.top().unwrap_or(usize::MAX).min(MAX_REPORT_KEYS);
    let rows = tally.rows(at, Some(top));
    let key = count.logs.key().unwrap_or(&default_key);
    let window = count.window;
    let page = Counted { read: &read, key, window, tally: &tally, all: &all, at, rows: &rows }.page()?;
    match file {
        None => output::data(|out| out.write_all(page.as_bytes()))?,
        Some(mut file) => {
            let written = file.file().write_all(page.as_bytes());
            written.map_err(|error| new_file::failure(path, &error))?;
            file.finish()?;
        }
    }
    if rows.len() < tally.keys() {
        let keys = output::keys(tally.keys());
        let hint = if top < MAX_REPORT_KEYS { "; --top 100 shows more" } else { "" };
        output::message(&format_args!(
            "lately: count: the page has the first {} of {keys}{hint}",
            rows.len()
        ));
    }
    if at.is_none() {
        report_gap(&tally);
    }
    read.outcome()
}

/// Refuses input in which no line parses. Says when there are no lines.
fn check_some(read: &mut ReadLogs<'_>) -> Result<(), CliError> {
    read.check_some()?;
    if read.lines() == 0 {
        output::message(&format_args!("lately: count: there are no lines"));
    }
    Ok(())
}

/// Logs that the newest time is far ahead of the others.
fn report_gap(tally: &Tally) {
    if let (Some(gap), Some(newest)) = (tally.gap(), tally.newest()) {
        let newest = table::utc(newest);
        output::message(&format_args!(
            "lately: count: the newest time, {newest}, is {gap} after all others, so that only its keys have hits; --at ends the window elsewhere"
        ));
    }
}

fn series(count: &Count, step: Span) -> Result<Outcome, CliError> {
    let mut series = Series::new(step);
    let all: Template =
        "*".parse().map_err(|error| CliError::new("--key", error, "see lately count --help"))?;
    let mut read = count.logs.read("count", &all, |record| series.hit(record.key, record.at))?;
    check_some(&mut read)?;
    let curves = series.curves(count.logs.top());
    let curves = curves.map_err(|error| CliError::new("--step", error, "give longer steps"))?;
    let with_key = count.logs.names_key();
    output::data(|out| {
        if count.json {
            write_curves_json(out, &curves, with_key)
        } else if count.csv {
            write_curves_csv(out, &curves, with_key)
        } else {
            write_curves_table(out, &curves, with_key)
        }
    })?;
    if !count.json && !count.csv {
        report_cut(curves.len(), series.keys());
    }
    read.outcome()
}

/// Logs that not all keys are shown.
fn report_cut(shown: usize, keys: usize) {
    if shown < keys {
        let keys = output::keys(keys);
        output::message(&format_args!("lately: count: the first {shown} of {keys}; --top 0 prints all"));
    }
}

fn write_json(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for Row { key, hits, peak, peak_at, total } in rows {
        let key = output::key_member(key);
        writeln!(out, "{{{key},\"hits\":{hits},\"peak\":{peak},\"peak_at\":{peak_at},\"total\":{total}}}")?;
    }
    Ok(())
}

fn write_csv(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["key", "hits", "peak", "peak_at", "total"])?;
    for Row { key, hits, peak, peak_at, total } in rows {
        let numbers = [hits.to_string(), peak.to_string(), peak_at.to_string(), total.to_string()];
        csv.write_record(std::iter::once(&key[..]).chain(numbers.iter().map(String::as_bytes)))?;
    }
    csv.flush()
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

fn write_curves_json(out: &mut dyn Write, curves: &[Curve], with_key: bool) -> io::Result<()> {
    for Curve { key, steps } in curves {
        let key = if with_key { output::key_member(key) + "," } else { String::new() };
        for (at, hits) in steps {
            writeln!(out, "{{{key}\"at\":{at},\"hits\":{hits}}}")?;
        }
    }
    Ok(())
}

fn write_curves_csv(out: &mut dyn Write, curves: &[Curve], with_key: bool) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let skipped = usize::from(!with_key);
    csv.write_record(["key", "at", "hits"].iter().skip(skipped))?;
    for Curve { key, steps } in curves {
        for (at, hits) in steps {
            let (at, hits) = (at.to_string(), hits.to_string());
            csv.write_record([&key[..], at.as_bytes(), hits.as_bytes()].iter().skip(skipped))?;
        }
    }
    csv.flush()
}

fn write_curves_table(out: &mut dyn Write, curves: &[Curve], with_key: bool) -> io::Result<()> {
    let rows = |of: &Curve| {
        let key = table::printable(&of.key);
        of.steps.iter().map(|(at, hits)| (table::utc(*at), hits.to_string(), key.clone())).collect::<Vec<_>>()
    };
    let rows = curves.iter().flat_map(rows);
    match (curves.is_empty(), with_key) {
        (true, _) => Ok(()),
        (_, true) => {
            let cells: Vec<_> = rows.map(|(at, hits, key)| [at, hits, key]).collect();
            table::write(out, ["AT (UTC)", "HITS", "KEY"], &cells)
        }
        (_, false) => {
            let cells: Vec<_> = rows.map(|(at, hits, _)| [at, hits]).collect();
            table::write(out, ["AT (UTC)", "HITS"], &cells)
        }
    }
}
