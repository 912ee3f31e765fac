//! The page of `lately count --html`: one file of bounded size that loads nothing.
//!
//! The template is `templates/report.html`, which escapes every text.

use std::path::Path;

use askama::Template as _;
use lately::{Span, Timestamp};
use lately_logs::{Malformed, Row, Tally, Template};

use crate::chart::{Chart, Steps};
use crate::error::CliError;
use crate::limits::{MAX_REPORT_CHARTS, MAX_REPORT_NAMES, REPORT_TEXT_CHARACTERS, REPORT_TITLE_BYTES};
use crate::log_args::ReadLogs;
use crate::log_file;
use crate::table::{harmless, printable, utc};
use crate::words::{counted, grouped, per, shortened, span, time};

/// The most spaces between the times at the axis, in the chart of all hits and in that of a key.
const WIDE_SPACES: i64 = 8;
const NARROW_SPACES: i64 = 4;

/// The counts of the page.
pub(crate) struct Counted<'a> {
    pub(crate) read: &'a ReadLogs<'a>,
    /// The template of the keys.
    pub(crate) key: &'a Template,
    pub(crate) window: Span,
    pub(crate) tally: &'a Tally,
    /// The hits of all keys together.
    pub(crate) all: &'a Tally,
    /// The end of the window, if it is not the newest hit.
    pub(crate) at: Option<Timestamp>,
    /// The first keys, as they are ranked; at most [`crate::limits::MAX_REPORT_KEYS`].
    pub(crate) rows: &'a [Row],
}

/// The page.
#[derive(askama::Template)]
#[template(path = "report.html")]
struct Page {
    title: String,
    key: Text,
    window: String,
    /// The window in words: `5 minutes`, `day`.
    any_window: String,
    /// The totals of the log. `None` if it has no hit.
    log: Option<Log>,
    keys: String,
    /// A text about the keys in the table.
    shown: String,
    rows: Vec<KeyRow>,
    notes: Vec<String>,
    files: Vec<File>,
    files_left_out: Option<String>,
    conditions: Vec<Text>,
    lines: String,
    filtered: String,
    malformed: String,
    problems: Vec<Problem>,
    version: &'static str,
}

/// All keys together.
struct Log {
    from: Moment,
    to: Moment,
    end: Moment,
    figures: Figures,
    per: String,
    chart: Chart,
    steps: Vec<Step>,
}

/// The numbers of a key, or of all.
struct Figures {
    hits: String,
    peak: String,
    peak_at: Moment,
    total: String,
}

struct KeyRow {
    key: Text,
    figures: Figures,
    chart: Option<Chart>,
}

struct Step {
    start: Moment,
    hits: String,
}

struct File {
    name: Text,
    format: &'static str,
}

struct Problem {
    why: String,
    lines: String,
    first: Text,
}

/// A time for readers and for programs.
struct Moment {
    text: String,
    utc: String,
}

/// A text from outside: shortened, and with a longer part of it if it was shortened.
struct Text {
    short: String,
    full: Option<String>,
}

impl Text {
    /// The longer part. Its bytes in the page are bounded.
    fn new(text: &str, most_bytes: usize) -> Text {
        let short = shortened(text, REPORT_TEXT_CHARACTERS);
        let full = (short != text).then(|| cut(text, most_bytes));
        Text { short, full }
    }

    /// A text of a kind of which a page has only a few.
    fn some(text: &str) -> Text {
        Text::new(text, REPORT_TITLE_BYTES / (4 * MAX_REPORT_NAMES))
    }
}

impl Moment {
    fn new(at: Timestamp) -> Moment {
        Moment { text: time(at), utc: utc(at) }
    }
}

impl Figures {
    fn new(row: &Row) -> Figures {
        let [hits, peak, total] = [row.hits, row.peak, row.total].map(grouped);
        Figures { hits, peak, peak_at: Moment::new(row.peak_at), total }
    }
}

/// The start of a text that takes at most this many bytes in a page.
fn cut(text: &str, most_bytes: usize) -> String {
    let mut bytes = "…".len();
    let mut fits = |character: char| {
        bytes += if matches!(character, '&' | '<' | '>' | '"' | '\'') { 6 } else { character.len_utf8() };
        bytes <= most_bytes
    };
    let kept: String = text.chars().take_while(|character| fits(*character)).collect();
    if kept.len() < text.len() { kept + "…" } else { kept }
}

impl Counted<'_> {
    /// The page.
    ///
    /// # Errors
    /// None in practice: the page is written to memory.
    pub(crate) fn page(&self) -> Result<String, CliError> {
        self.contents().render().map_err(|error| CliError::new("--html", error, "use --json in its place"))
    }

    fn contents(&self) -> Page {
        let Counted { read, key, window, tally, all, .. } = self;
        let formats = read.formats();
        let total = all.rows(self.at, Some(1)).pop();
        let panes = total.as_ref().map(|total| all.panes(&total.key)).unwrap_or_default();
        let steps = panes
            .first()
            .zip(panes.last())
            .map(|((first, _), (last, _))| Steps::covering(*first, *last, all.pane()));
        let log = total.zip(steps).zip(all.newest()).map(|((total, steps), newest)| {
            let hits = steps.hits(&panes);
            let step = |(step, hits): (usize, &u64)| Step {
                start: Moment::new(steps.start(step)),
                hits: grouped(*hits),
            };
            Log {
                from: Moment::new(panes.first().map_or(newest, |(first, _)| *first)),
                to: Moment::new(newest),
                end: Moment::new(self.at.unwrap_or(newest)),
                figures: Figures::new(&total),
                per: per(steps.width()),
                chart: steps.chart(
                    "all".into(),
                    "Hits over time".into(),
                    &hits,
                    self.peak_window(&total),
                    WIDE_SPACES,
                ),
                steps: hits.iter().enumerate().map(step).collect(),
            }
        });
        let left_out = formats.len().saturating_sub(MAX_REPORT_NAMES);
        let file = |(path, format): &(&Path, Option<&'static str>)| File {
            name: Text::some(&log_file::name(path)),
            format: format.unwrap_or("nothing in it"),
        };
        let problem = |(why, lines, path, line): (Malformed, u64, &Path, u64)| Problem {
            why: why.to_string(),
            lines: grouped(lines),
            first: Text::some(&format!("{}:{line}", log_file::name(path))),
        };
        Page {
            title: title(formats),
            key: Text::some(&harmless(&key.to_string())),
            window: span(*window),
            any_window: per(*window),
            log,
            keys: counted(tally.keys() as u64, "key"),
            shown: if self.rows.len() < tally.keys() {
                format!(
                    "the first {} of {}",
                    grouped(self.rows.len() as u64),
                    counted(tally.keys() as u64, "key")
                )
            } else {
                counted(self.rows.len() as u64, "key")
            },
            rows: steps.map(|steps| self.key_rows(steps)).unwrap_or_default(),
            notes: self.notes(),
            files: formats.iter().take(MAX_REPORT_NAMES).map(file).collect(),
            files_left_out: (left_out > 0).then(|| grouped(left_out as u64)),
            conditions: self.conditions(),
            lines: grouped(read.lines()),
            filtered: grouped(read.filtered()),
            malformed: grouped(read.malformed_lines()),
            problems: read.problems().map(problem).collect(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// The rows, the first of them with charts.
    fn key_rows(&self, steps: Steps) -> Vec<KeyRow> {
        let texts = self.rows.len() + self.rows.len().min(MAX_REPORT_CHARTS);
        let row = |(index, row): (usize, &Row)| {
            let key = Text::new(&printable(&row.key), REPORT_TITLE_BYTES / texts);
            let chart = (index < MAX_REPORT_CHARTS).then(|| {
                let hits = steps.hits(&self.tally.panes(&row.key));
                let title = format!("Hits of {} over time", key.short);
                steps.chart(format!("key{index}"), title, &hits, self.peak_window(row), NARROW_SPACES)
            });
            KeyRow { key, figures: Figures::new(row), chart }
        };
        self.rows.iter().enumerate().map(row).collect()
    }

    /// The start and the end of the window with the peak, in milliseconds.
    fn peak_window(&self, row: &Row) -> (i64, i64) {
        let end_ms = row.peak_at.as_millis() + self.tally.pane().as_millis();
        (end_ms - self.window.as_millis(), end_ms)
    }

    /// Notes that a reader needs to understand the numbers.
    fn notes(&self) -> Vec<String> {
        let failure = self.read.failure().map(|failure| match failure {
            CliError::Failed { what, cause, .. } => {
                let what = shortened(&harmless(what), REPORT_TEXT_CHARACTERS);
                let cause = shortened(&harmless(cause), 2 * REPORT_TEXT_CHARACTERS);
                format!("{what} could not be read to its end ({cause}). The numbers count the part before.")
            }
            CliError::ClosedOutput => failure.to_string(),
        });
        let gap = self.all.gap().zip(self.all.newest()).filter(|_| self.at.is_none());
        let gap = gap.map(|(gap, newest)| {
            let (newest, gap) = (time(newest), span(gap));
            format!("The newest time, {newest} UTC, is {gap} after all others. Only its keys have hits in the window.")
        });
        failure.into_iter().chain(gap).collect()
    }

    /// The conditions on lines.
    fn conditions(&self) -> Vec<Text> {
        let (filters, since, until) = self.read.conditions();
        let filters = filters.iter().map(|filter| harmless(&filter.to_string()));
        let since = since.map(|since| format!("from {} UTC on", time(since)));
        let until = until.map(|until| format!("up to {} UTC", time(until)));
        filters.chain(since).chain(until).map(|condition| Text::some(&condition)).collect()
    }
}

/// The name of the log without its folders, and how many more there are.
fn title(formats: &[(&Path, Option<&'static str>)]) -> String {
    let Some(((first, _), more)) = formats.split_first() else { return "Hits".into() };
    let name = log_file::name(first);
    let name = shortened(name.rsplit('/').next().unwrap_or(&name), REPORT_TEXT_CHARACTERS);
    match more.len() {
        0 => format!("Hits in {name}"),
        1 => format!("Hits in {name} and another log"),
        more => format!("Hits in {name} and {more} more logs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_texts_fit_after_escaping() {
        let check = |text: &str, most, expected: &str| assert_eq!(cut(text, most), expected);
        check("abc", 6, "abc");
        check("abcd", 6, "abc…");
        check("<<", 15, "<<");
        check("<<<", 15, "<<…");
        check("é", 4, "…");
        check("", 0, "");
    }

    #[test]
    fn a_title_names_the_first_log() {
        let check = |paths: &[&str], expected: &str| {
            let formats: Vec<_> = paths.iter().map(|path| (Path::new(path), None)).collect();
            assert_eq!(title(&formats), expected);
        };
        check(&["/var/log/nginx/access.log"], "Hits in access.log");
        check(&["-", "b"], "Hits in standard input and another log");
        check(&["a\u{1b}", "b", "c"], r"Hits in a\u{1b} and 2 more logs");
    }
}
