//! The options of all commands that read logs, and their report of lines that do not parse.

use std::path::{Path, PathBuf};

use clap::Args;
use lately::{Clock, SystemClock, Timestamp};
use lately_logs::{
    Filter, Format, FoundAs, Lacking, Malformed, Options, Record, ScanError, Scanned, Template, TimeFormat,
    Times, Zone,
};

use crate::error::{CliError, Outcome};
use crate::log_file;
use crate::output;
use crate::progress::Progress;
use crate::table;

/// The default of `--top`.
const DEFAULT_ROWS: usize = 10;

/// The logs to read, how to read them, and how many keys to print.
#[derive(Args)]
#[expect(rustdoc::invalid_html_tags, reason = "the help shows a regular expression as it is typed")]
pub(crate) struct LogArgs {
    /// Logs, which are read as one. - is standard input. gzip, zstd, bzip2 and xz are decompressed.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Exit with code 2 if a line does not parse. The rows are printed nevertheless.
    #[arg(long)]
    strict: bool,

    /// auto, combined, common, vhost, json, logfmt, w3c, alb, syslog, haproxy, envoy, nginx:FORMAT, apache:FORMAT or
    /// regex:RE. auto detects the format of each log from its first hundred lines, and logs it [default: auto].
    ///
    /// combined and common are the formats of Apache and nginx; vhost is combined after the name of the host. json is an
    /// object per line, an array of objects, or an object with such an array. w3c is the format of IIS and CloudFront,
    /// alb that of AWS load balancers. nginx:FORMAT and apache:FORMAT take the string of log_format and LogFormat as the
    /// configuration has it. RE is a regular expression with named groups, such as '^(?<ip>\S+) (?<time>\S+)'; it works
    /// on bytes. What syslog, containers (docker, CRI, compose), journald and grep -H put around a line is removed.
    /// Lines that start with # are comments.
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_default_value = true)]
    format: FormatArg,

    /// The key to count by: a field, a template such as '{ip} {path}' ({{ and }} are braces), or * for all lines
    /// [default: ip].
    ///
    /// Fields of combined: ip path url status method user request protocol bytes forwarded peer referer agent. common
    /// lacks referer and agent, vhost also has vhost. path has no query string. Fields of json are the names in the
    /// object, with dots for nested objects (user.id); ip path url status method user vhost are also found under the names
    /// that servers give them, such as remote_addr or request.client_ip, and so in logfmt. Fields of regex are its named groups. {ip/24/64} is the network of
    /// an address, with a /24 for IPv4 and a /64 for IPv6. A line does not parse if the field is missing, or if its key
    /// is empty or longer than 1024 bytes.
    #[arg(long, value_name = "TEMPLATE")]
    key: Option<Template>,

    /// Read only lines that meet this condition: FIELD=V, FIELD!=V, FIELD~RE, FIELD!~RE, FIELD>=N or FIELD<N. May be
    /// repeated: then all must hold. status=5xx matches a class.
    #[arg(long = "where", value_name = "CONDITION")]
    filters: Vec<Filter>,

    /// Read only lines from this time on: a time, or 2h for two hours ago.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    since: Option<String>,

    /// Read only lines up to this time: a time, or 2h for two hours ago.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    until: Option<String>,

    /// The zone of times without a zone: a name such as Europe/Berlin, UTC, or an offset such as +02:00.
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true)]
    zone: Option<Zone>,

    /// The format of times, as for strptime: '%Y%m%d%H%M%S' [default: Unix seconds, milliseconds, microseconds or
    /// nanoseconds from 1990 to a day ahead; ISO 8601, RFC 3339, RFC 2822, and the formats of access logs, syslog and C].
    #[arg(long, value_name = "STRPTIME")]
    time_format: Option<TimeFormat>,

    /// A template for a time in several fields: '{date} {time}'.
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "time_field")]
    time: Option<Template>,

    /// The field with the time, in formats with named fields (default: in json and logfmt the first of time, timestamp,
    /// ts, @timestamp, time_iso8601, msec, time_local, eventTime and __REALTIME_TIMESTAMP that is a time; in regex the
    /// group time).
    #[arg(long, value_name = "FIELD")]
    time_field: Option<String>,

    /// How many rows to print; 0 is all [default: 10].
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = rows)]
    top: Option<usize>,
}

/// A format, or `auto`.
#[derive(Clone)]
enum FormatArg {
    Auto,
    Of {
        format: Box<Format>,
        /// The value of `--format`.
        text: String,
    },
}

impl std::str::FromStr for FormatArg {
    type Err = lately_logs::SetupError;

    fn from_str(text: &str) -> Result<FormatArg, lately_logs::SetupError> {
        match text {
            "auto" => Ok(FormatArg::Auto),
            text => Ok(FormatArg::Of { format: Box::new(text.parse()?), text: text.to_owned() }),
        }
    }
}

/// The logs that were read, and their lines that do not parse.
pub(crate) struct ReadLogs<'a> {
    args: &'a LogArgs,
    command: &'static str,
    /// The logs, and the formats they were read in.
    formats: Vec<(&'a Path, Option<&'static str>)>,
    /// The logs with fields under other names.
    found_as: Vec<(&'a Path, Vec<FoundAs>)>,
    /// The logs without a field of a condition.
    missing: Vec<(&'a Path, Vec<String>)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lines: u64,
    filtered: u64,
    malformed: Vec<Reason<'a>>,
    without_time: Option<Lacking>,
    without_field: Option<Lacking>,
    looks_like: Option<&'static str>,
    failure: Option<CliError>,
}

/// The lines that do not parse for one reason.
struct Reason<'a> {
    why: Malformed,
    lines: u64,
    first_in: &'a Path,
    first_line: u64,
}

impl LogArgs {
    /// The number of rows to print. `None` is all.
    pub(crate) fn top(&self) -> Option<usize> {
        Some(self.top.unwrap_or(DEFAULT_ROWS)).filter(|&top| top > 0)
    }

    /// Whether `--top` is there.
    pub(crate) fn names_top(&self) -> bool {
        self.top.is_some()
    }

    /// The number of rows of `--top`, if it was given. `None` inside is all.
    pub(crate) fn named_top(&self) -> Option<usize> {
        self.top.filter(|&top| top > 0)
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// A hint about a faster way, if the options have a regular expression.
    fn faster(&self) -> Option<&'static str> {
        if matches!(&self.format, FormatArg::Of { format, .. } if matches!(**format, Format::Regex(_))) {
            return Some(
                r#"an expression that starts with ^ and has \S+ or [^"]* in place of .* is read in one pass; a known format, such as combined, is faster still"#,
            );
        }
        let filters = self.filters.iter().any(Filter::is_expression);
        filters.then_some("FIELD=V and FIELD!=V are faster than FIELD~RE; so is an expression that starts with ^ and has no .*")
    }

    /// The value of `--key`.
    pub(crate) fn key(&self) -> Option<&Template> {
        self.key.as_ref()
    }

    /// Whether `--key` was given.
    pub(crate) fn names_key(&self) -> bool {
        self.key.is_some()
    }

    /// The options that decide for which keys a line counts: the key, the conditions in any order, and a format with its own
    /// fields. Known formats are left out, because it does not matter whether they are named or detected.
    pub(crate) fn counted(&self, default_key: &Template) -> Vec<String> {
        let mut filters: Vec<_> = self.filters.iter().map(Filter::to_string).collect();
        filters.sort_unstable();
        let format = match &self.format {
            FormatArg::Of { text, .. } if text.contains(':') => text.clone(),
            _ => String::new(),
        };
        [vec![self.key.as_ref().unwrap_or(default_key).to_string(), format], filters].concat()
    }

    /// Whether the user gives the format or the fields of times.
    pub(crate) fn has_own_times(&self) -> bool {
        self.time_format.is_some() || self.time.is_some()
    }

    /// Parses the time of an option.
    pub(crate) fn time(&self, option: &str, text: &str) -> Result<Timestamp, CliError> {
        let times = self.times(SystemClock::new().now());
        // A date alone is its first moment. Seconds may be missing.
        let of = |text: &str| lately_logs::time(text, &times);
        let parsed = text.parse().or_else(|_| match of(text) {
            Err(Malformed::Time) => match of(&format!("{text}T00:00:00")) {
                Err(Malformed::Time) => of(&format!("{text}:00")),
                parsed => parsed,
            },
            parsed => parsed,
        });
        parsed.map_err(|why| {
            let why = if why == Malformed::Zone { "it has no zone; " } else { "" };
            let cause = format!(
                "{option} <TIME>: invalid time '{text}': {why}give Unix seconds, RFC 3339 with a zone, 17/May/2015:10:05:03 +0000, or 2h for two hours ago"
            );
            CliError::new("command line", cause, "--zone names the zone of times without one")
        })
    }

    fn times(&self, now: Timestamp) -> Times {
        Times { now, written: None, zone: self.zone.clone(), format: self.time_format.clone() }
    }

    /// The options for reading the logs. Without `--key`, the key is `default_key`.
    pub(crate) fn options(&self, default_key: &Template) -> Result<Options, CliError> {
        let time =
            |option, text: &Option<String>| text.as_ref().map(|text| self.time(option, text)).transpose();
        let (since, until) = (time("--since", &self.since)?, time("--until", &self.until)?);
        if since.zip(until).is_some_and(|(since, until)| since > until) {
            let [since, until] = [&self.since, &self.until].map(|text| text.as_deref().unwrap_or_default());
            let cause = format!("--since {since} is later than --until {until}: no line is between them");
            return Err(CliError::new("command line", cause, "--since is the earlier of the two"));
        }
        // `--time-format` is for the log, not for the command line.
        Ok(Options {
            format: match &self.format {
                FormatArg::Auto => None,
                FormatArg::Of { format, .. } => Some((**format).clone()),
            },
            key: self.key.clone().unwrap_or_else(|| default_key.clone()),
            time_field: self.time_field.clone(),
            time: self.time.clone(),
            filters: self.filters.clone(),
            since,
            until,
            times: self.times(SystemClock::new().now()),
        })
    }

    /// Checks the options and the files, then passes the record of each line to `visit`. Without `--key`, the key is
    /// `default_key`.
    pub(crate) fn read(
        &self,
        command: &'static str,
        default_key: &Template,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<ReadLogs<'_>, CliError> {
        let mut options = self.options(default_key)?;
        options.check().map_err(|error| CliError::new(command, error, setup_hint(command)))?;
        log_file::check(&self.files)?;
        let (files, again) = log_file::once(&self.files, |_| true);
        for path in again {
            let name = log_file::name(path);
            output::message(&format_args!(
                "lately: {command}: {name} is the same file as a log before it: it is read once"
            ));
        }
        let mut logs = self.reading(command);
        (logs.since, logs.until) = (options.since, options.until);
        {
            let mut progress = Progress::new();
            progress.warn_when_slow(command, self.faster());
            for path in files {
                options.times.written = log_file::written(path);
                let log = progress.watch(log_file::open(path)?);
                let scanned = lately_logs::scan(log, &options, |record| {
                    visit(&record);
                    progress.line();
                });
                let scanned = scanned.map_err(|error| scan_error(command, path, &error))?;
                logs.add(path, scanned);
            }
        }
        let detected = logs.formats.iter().filter(|_| options.format.is_none());
        for (path, format) in detected.filter_map(|(path, format)| Some((path, (*format)?))) {
            let name = log_file::name(path);
            output::message(&format_args!("lately: {command}: {name} is read as {format}"));
        }
        for (path, found) in
            logs.found_as.iter().flat_map(|(path, all)| all.iter().map(move |found| (path, found)))
        {
            let name = log_file::name(path);
            output::message(&format_args!("lately: {command}: {name}: {}", found_as(found)));
        }
        for (path, field) in
            logs.missing.iter().flat_map(|(path, all)| all.iter().map(move |field| (path, field)))
        {
            let (name, field) = (log_file::name(path), table::printable(field.as_bytes()));
            output::message(&format_args!(
                "lately: {command}: {name}: no line has the field {field} of --where"
            ));
        }
        Ok(logs)
    }

    /// The report before anything is read.
    pub(crate) fn reading(&self, command: &'static str) -> ReadLogs<'_> {
        ReadLogs {
            args: self,
            command,
            formats: Vec::new(),
            found_as: Vec::new(),
            missing: Vec::new(),
            since: None,
            until: None,
            lines: 0,
            filtered: 0,
            malformed: Vec::new(),
            without_time: None,
            without_field: None,
            looks_like: None,
            failure: None,
        }
    }
}

impl<'a> ReadLogs<'a> {
    /// The logs, and the formats they were read in, if they have lines.
    pub(crate) fn formats(&self) -> &[(&'a Path, Option<&'static str>)] {
        &self.formats
    }

    /// The number of lines that are neither empty nor comments.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// The number of lines that conditions or times left out.
    pub(crate) fn filtered(&self) -> u64 {
        self.filtered
    }

    /// The conditions, the earliest and the latest time of the options.
    pub(crate) fn conditions(&self) -> (&'a [Filter], Option<Timestamp>, Option<Timestamp>) {
        (&self.args.filters, self.since, self.until)
    }

    /// For each reason, the number of lines, and the first of them.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (Malformed, u64, &'a Path, u64)> {
        self.malformed.iter().map(|reason| (reason.why, reason.lines, reason.first_in, reason.first_line))
    }

    /// The error of a log that could not be read to its end.
    pub(crate) fn failure(&self) -> Option<&CliError> {
        self.failure.as_ref()
    }

    /// Logs the number of lines that do not parse, the reasons, and the first line of each reason. With `--strict` that is
    /// an error.
    pub(crate) fn outcome(self) -> Result<Outcome, CliError> {
        let malformed = self.malformed_lines();
        if self.filtered > 0 && self.filtered + malformed == self.lines {
            let cause = format!("--where, --since and --until leave none of {}", self.all_lines());
            output::message(&format_args!("lately: {}: {cause}", self.command));
        }
        if malformed > 0 {
            let parse = if malformed == 1 { "does not parse" } else { "do not parse" };
            let cause = format!("{malformed} of {} {parse}: {}", self.all_lines(), self.reasons());
            let hint = self.hint();
            if self.args.strict && self.failure.is_none() {
                let hint = hint.unwrap_or_else(|| "the rows count the other lines; --format may help".into());
                return Err(CliError::new(self.command, cause, hint));
            }
            output::message(&format_args!("lately: {}: {cause}", self.command));
            if let Some(hint) = hint {
                output::message(&format_args!("hint: {hint}"));
            }
        }
        self.failure.map_or(Ok(Outcome::Done), Err)
    }

    /// Returns an error if there are lines and none parses, because an empty answer would mislead.
    pub(crate) fn check_some(&mut self) -> Result<(), CliError> {
        if self.lines == 0 {
            return self.failure.take().map_or(Ok(()), Err);
        }
        if self.malformed_lines() < self.lines {
            return Ok(());
        }
        let mut cause = format!("none of {} parses: {}", self.all_lines(), self.reasons());
        if let Some(what) = self.looks_like {
            cause = format!("this is {what}, and {cause}");
        }
        Err(CliError::new(self.command, cause, self.hint().unwrap_or_else(|| setup_hint(self.command))))
    }

    /// The number of lines that do not parse.
    pub(crate) fn malformed_lines(&self) -> u64 {
        self.malformed.iter().map(|reason| reason.lines).sum()
    }

    /// `1 line`, `2 lines`.
    fn all_lines(&self) -> String {
        format!("{} {}", self.lines, if self.lines == 1 { "line" } else { "lines" })
    }

    /// Adds the result of a log.
    pub(crate) fn add(&mut self, path: &'a Path, scanned: Scanned) {
        self.formats.push((path, scanned.format));
        self.lines += scanned.lines;
        self.filtered += scanned.filtered;
        for (why, lines, first_line) in scanned.malformed {
            match self.malformed.iter_mut().find(|reason| reason.why == why) {
                Some(reason) => reason.lines += lines,
                None => self.malformed.push(Reason { why, lines, first_in: path, first_line }),
            }
        }
        self.without_time = self.without_time.take().or(scanned.without_time);
        self.without_field = self.without_field.take().or(scanned.without_field);
        self.found_as.push((path, scanned.found_as));
        self.missing.push((path, scanned.missing));
        self.looks_like = self.looks_like.or(scanned.looks_like);
        if self.failure.is_none() {
            self.failure = scanned.failure.map(|error| log_file::unreadable(path, &error));
        }
    }

    /// `not of the format (1, line 7), no time (2, first line 9)`, with the log's name when there are several.
    fn reasons(&self) -> String {
        let reason = |Reason { why, lines, first_in, first_line }: &Reason<'_>| {
            let first = if *lines == 1 { "" } else { "first " };
            match &self.args.files[..] {
                [_] => format!("{why} ({lines}, {first}line {first_line})"),
                _ => format!("{why} ({lines}, {first}{}:{first_line})", log_file::name(first_in)),
            }
        };
        self.malformed.iter().map(reason).collect::<Vec<_>>().join(", ")
    }

    /// A hint against the most frequent reason, if there is one.
    fn hint(&self) -> Option<String> {
        let most = self.malformed.iter().max_by_key(|reason| reason.lines)?;
        let is_all = self.malformed_lines() == self.lines;
        let is_most = 2 * most.lines > self.malformed_lines();
        let lacking = match most.why {
            Malformed::Time | Malformed::Number => &self.without_time,
            Malformed::Field => &self.without_field,
            _ => &None,
        };
        match (most.why, lacking) {
            (Malformed::Zone, _) => {
                Some("set the zone of the times, with --zone UTC or --zone Europe/Berlin".into())
            }
            (why, Some(Lacking { tried, there })) if is_most => {
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                let name = if why == Malformed::Field {
                    "name the field of the key with --key"
                } else {
                    "name the field with the time with --time-field"
                };
                Some(format!("{name}: tried {}; there are {there}", tried.join(", ")))
            }
            (Malformed::Number, _) => {
                Some("set the format of the times with --time-format, such as '%Y%m%d%H%M%S'".into())
            }
            _ if is_all => Some(setup_hint(self.command)),
            _ => None,
        }
    }
}

/// `ip is remote_addr`, or `ip is client_ip (5 lines), remote_addr (1 line)`.
fn found_as(found: &FoundAs) -> String {
    let FoundAs { field, names } = found;
    let with_lines = |(name, lines): &(String, u64)| {
        format!("{name} ({lines} {})", if *lines == 1 { "line" } else { "lines" })
    };
    match &names[..] {
        [(name, _)] => format!("{field} is {name}"),
        names => format!("{field} is {}", names.iter().map(with_lines).collect::<Vec<_>>().join(", ")),
    }
}

fn rows(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "give a number of rows, 0 for all")
}

pub(crate) fn setup_hint(command: &str) -> String {
    format!("describe the lines with --format and --key, see lately {command} --help")
}

pub(crate) fn scan_error(command: &str, path: &Path, error: &ScanError) -> CliError {
    CliError::new(log_file::name(path), error, setup_hint(command))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        logs: LogArgs,
    }

    #[test]
    fn only_user_expressions_get_a_hint_about_speed() {
        let check = |args: &[&str], expected: Option<&str>| {
            let only = Only::try_parse_from([&["lately", "a.log"], args].concat());
            let hint = only.unwrap_or_else(|error| panic!("{error}")).logs.faster();
            assert_eq!(hint.is_some(), expected.is_some(), "{args:?}");
            assert!(hint.is_none_or(|hint| hint.contains(expected.unwrap_or_default())), "{args:?}");
        };
        check(&["--format", "regex:^(?<ip>.*) (?<time>.*)"], Some("in place of .*"));
        check(&["--format", "regex:(?<time>.*)", "--where", "ip~1"], Some("in place of .*"));
        check(&["--where", "path~^/api", "--where", "status=5xx"], Some("FIELD=V"));
        check(&["--where", "path!~^/api"], Some("FIELD=V"));
        check(&["--where", "status=5xx"], None);
        check(&["--format", "alb"], None);
        check(&["--format", "nginx:$remote_addr [$time_local]"], None);
    }
}
