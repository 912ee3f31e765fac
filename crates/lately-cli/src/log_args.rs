//! What `count` and `backtest` have in common: which logs they read and how, and the lines that do
//! not parse.

use std::path::{Path, PathBuf};

use clap::Args;
use lately::Timestamp;
use lately_logs::{Format, Malformed, Options, ScanError, Scanned, Template};

use crate::error::{CliError, Outcome};
use crate::log_file;
use crate::output;
use crate::progress::Progress;

/// Which logs to read, how, and how many keys to print.
#[derive(Args)]
#[expect(rustdoc::invalid_html_tags, reason = "the help shows a regular expression as it is typed")]
pub(crate) struct LogArgs {
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

    /// How many rows to print; 0 is all.
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = 10, value_parser = rows)]
    top: usize,
}

/// What was read, and which of its lines do not parse.
pub(crate) struct ReadLogs<'a> {
    args: &'a LogArgs,
    command: &'static str,
    lines: u64,
    malformed: u64,
    first: Vec<(&'a Path, u64, Malformed)>,
}

impl LogArgs {
    /// How many rows to print; none is all.
    pub(crate) fn top(&self) -> Option<usize> {
        Some(self.top).filter(|&top| top > 0)
    }

    /// Checks the options and the files, then shows each line's key and time to `visit`.
    pub(crate) fn read(
        &self,
        command: &'static str,
        mut visit: impl FnMut(&[u8], Timestamp),
    ) -> Result<ReadLogs<'_>, CliError> {
        let options = Options {
            format: self.format.clone(),
            key: self.key.clone(),
            time_field: self.time_field.clone(),
        };
        options.check().map_err(|error| CliError::new(command, error, setup_hint(command)))?;
        log_file::check(&self.files)?;
        let mut logs = ReadLogs { args: self, command, lines: 0, malformed: 0, first: Vec::new() };
        let progress = Progress::new();
        for path in &self.files {
            let log = progress.watch(log_file::open(path)?);
            let scanned = lately_logs::scan(log, &options, |record| {
                visit(&record.key, record.at);
                progress.line();
            });
            logs.add(path, scanned.map_err(|error| scan_error(command, path, &error))?);
        }
        Ok(logs)
    }
}

impl<'a> ReadLogs<'a> {
    /// Says how many lines do not parse, and where the first ones are; an error where none may be.
    pub(crate) fn outcome(&self) -> Result<Outcome, CliError> {
        if self.malformed == 0 {
            return Ok(Outcome::Done);
        }
        let parse = if self.malformed == 1 { "does not parse" } else { "do not parse" };
        let cause = format!("{} of {} {parse}: {}", self.malformed, self.all_lines(), self.places());
        let hint_of_none = (self.malformed == self.lines).then(|| setup_hint(self.command));
        if self.args.strict {
            let hint = hint_of_none.unwrap_or_else(|| "the rows are of the others; --format may help".into());
            return Err(CliError::new(self.command, cause, hint));
        }
        output::message(&format_args!("lately: {}: {cause}", self.command));
        if let Some(hint) = hint_of_none {
            output::message(&format_args!("hint: {hint}"));
        }
        Ok(Outcome::Done)
    }

    /// An error when there are lines and none parses: what there is to say of none misleads.
    pub(crate) fn check_some(&self) -> Result<(), CliError> {
        if self.lines == 0 || self.malformed < self.lines {
            return Ok(());
        }
        let cause = format!("none of {} parses: {}", self.all_lines(), self.places());
        Err(CliError::new(self.command, cause, setup_hint(self.command)))
    }

    /// `1 line`, `2 lines`.
    fn all_lines(&self) -> String {
        format!("{} {}", self.lines, if self.lines == 1 { "line" } else { "lines" })
    }

    fn add(&mut self, path: &'a Path, scanned: Scanned) {
        self.lines += scanned.lines;
        self.malformed += scanned.malformed;
        self.first.extend(scanned.first_malformed.into_iter().map(|(line, why)| (path, line, why)));
        self.first.truncate(lately_logs::limits::MAX_NAMED_LINES);
    }

    /// `line 7 (no time), …`, or `access.log:7 (no time), …` when there are several logs.
    fn places(&self) -> String {
        let place = |(path, line, why): &(&Path, u64, Malformed)| match &self.args.files[..] {
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

fn rows(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "give a number of rows, 0 for all")
}

fn setup_hint(command: &str) -> String {
    format!("--format and --key say what the lines are like, see lately {command} --help")
}

fn scan_error(command: &str, path: &Path, error: &ScanError) -> CliError {
    match error {
        ScanError::Read(error) => log_file::unreadable(path, error),
        other => CliError::new(log_file::name(path), other, setup_hint(command)),
    }
}
