//! Parses the lines of one log into records. [`crate::scan()`] and followers of growing logs drive it.

use lately::Timestamp;

use crate::detect::{but_for_its_time, detect};
use crate::error::{Malformed, ScanError, SetupError};
use crate::format::Format;
use crate::joiner::{CutLines, Joined, Joiner};
use crate::limits::{SAMPLE_BYTES, SAMPLE_LINES};
use crate::lines::Line;
use crate::options::Options;
use crate::parser::{LineParser, Parsed, Record};
use crate::scanned::Scanned;
use crate::time::Times;

/// Parses the lines of one log, in order. Without a given format it keeps the first lines until it has detected one.
#[derive(Debug)]
pub struct Feed<'o> {
    options: &'o Options,
    joiner: Joiner,
    parser: Option<LineParser>,
    sample: Sample,
    scanned: Scanned,
    number: u64,
    now: Timestamp,
}

/// The first lines and their numbers.
#[derive(Debug, Default)]
struct Sample {
    lines: Vec<Joined>,
    bytes: usize,
}

impl Sample {
    fn lines(&self) -> Vec<Result<&[u8], Malformed>> {
        self.lines.iter().map(|(_, line)| line.as_deref().map_err(|why| *why)).collect()
    }
}

impl<'o> Feed<'o> {
    /// A feed for one log.
    ///
    /// # Errors
    /// Those of [`LineParser::new`].
    pub fn new(options: &'o Options) -> Result<Feed<'o>, SetupError> {
        let parser = options.format.as_ref().map(|format| LineParser::new(format, options)).transpose()?;
        let format = options.format.as_ref().map(Format::name);
        let scanned = Scanned { format, ..Scanned::default() };
        let (joiner, sample) = (Joiner::new(), Sample::default());
        Ok(Feed { options, joiner, parser, sample, scanned, number: 0, now: options.times.now })
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// The first lines are of no known format, or the format has no such key.
    #[inline]
    pub fn line(&mut self, line: Line<'_>, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        self.number += 1;
        let line = match line {
            Line::Whole(line) if self.number == 1 => {
                let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
                // A writer that continues at its old offset in a truncated file leaves a hole.
                let hole = line.iter().take_while(|byte| **byte == 0).count();
                Line::Whole(&line[hole..])
            }
            line => line,
        };
        let number = self.number;
        match line {
            Line::Whole(line) if line.trim_ascii_start().is_empty() => Ok(()),
            Line::Whole(line) if self.joiner.may_be_part(line, number) => {
                let whole = self.joiner.take(line, number);
                self.joined(whole, visit)
            }
            Line::Whole(line) => self.whole(Ok(line), number, visit),
            Line::TooLong => self.whole(Err(Malformed::LineLength), number, visit),
        }
    }

    /// Parses lines that were joined from parts.
    #[cold]
    fn joined(&mut self, lines: Vec<Joined>, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        for (number, line) in lines {
            self.whole(line.as_deref().map_err(|why| *why), number, visit)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn whole(
        &mut self,
        line: Result<&[u8], Malformed>,
        number: u64,
        visit: &mut impl FnMut(Record<'_>),
    ) -> Result<(), ScanError> {
        match &mut self.parser {
            Some(parser) => {
                parse(parser, &mut self.scanned, line, number, visit);
                Ok(())
            }
            None => self.keep(line, number, visit),
        }
    }

    /// Drops the start of a line whose other parts will not come.
    pub fn drop_partial(&mut self) {
        self.joiner.clear();
    }

    /// The lines that are incomplete at the current end of the log.
    #[must_use]
    pub fn cut_lines(&self) -> CutLines {
        self.joiner.cut_lines()
    }

    /// Continues the incomplete lines of the previous log. Must be called before the first line.
    pub fn resume(&mut self, cut: CutLines) {
        self.joiner.resume(cut);
    }

    /// Advances the clock of [`crate::Times::now`], for a log that is read while it is written.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
        if let Some(parser) = &mut self.parser {
            parser.set_now(now);
        }
    }

    /// Detects the format from the lines so far, for a log whose next line may take a while. If no format fits them,
    /// they are kept for a later attempt.
    ///
    /// # Errors
    /// The format does not have the fields of the key.
    /// When the key does not go with the format.
    pub fn detect_early(&mut self, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        if self.parser.is_some() || self.sample.lines.is_empty() {
            return Ok(());
        }
        match self.detect(&[]) {
            Ok(format) => self.use_format(&format, visit),
            Err(ScanError::Unknown { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether lines wait because their format is not known yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.parser.is_none() && !self.sample.lines.is_empty()
    }

    /// What was found in the lines so far.
    #[must_use]
    pub fn scanned(&self) -> &Scanned {
        &self.scanned
    }

    /// Ends the log. `head` has its first bytes, for a guess about a file that is not a log.
    ///
    /// # Errors
    /// The lines are of no known format, or the format has no such key.
    pub fn finish(mut self, head: &[u8], visit: &mut impl FnMut(Record<'_>)) -> Result<Scanned, ScanError> {
        let whole = self.joiner.finish();
        self.joined(whole, visit)?;
        if self.parser.is_none() && !self.sample.lines.is_empty() {
            self.parse_sample(head, visit)?;
        }
        self.scanned.found_as = self.parser.as_ref().map(LineParser::found_as).unwrap_or_default();
        self.scanned.missing = self.parser.as_ref().map(LineParser::missing).unwrap_or_default();
        self.scanned
            .malformed
            .sort_by_key(|(why, ..)| Malformed::ALL.iter().position(|reason| reason == why));
        Ok(self.scanned)
    }

    fn keep(
        &mut self,
        line: Result<&[u8], Malformed>,
        number: u64,
        visit: &mut impl FnMut(Record<'_>),
    ) -> Result<(), ScanError> {
        self.sample.bytes += line.map_or(0, <[u8]>::len);
        self.sample.lines.push((number, line.map(<[u8]>::to_vec)));
        if self.sample.lines.len() >= SAMPLE_LINES || self.sample.bytes >= SAMPLE_BYTES {
            let head = self.sample.lines.iter().find_map(|(_, line)| line.clone().ok()).unwrap_or_default();
            self.parse_sample(&head[..head.len().min(crate::lines::HEAD_BYTES)], visit)?;
        }
        Ok(())
    }

    /// Detects the format and parses the lines that were kept.
    fn parse_sample(&mut self, head: &[u8], visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        // The parser of the format says what is wrong with the time.
        let format = self
            .detect(head)
            .or_else(|unknown| but_for_its_time(&self.sample.lines(), &self.options_now()).ok_or(unknown))?;
        self.use_format(&format, visit)
    }

    fn detect(&self, head: &[u8]) -> Result<Format, ScanError> {
        detect(&self.sample.lines(), head, &self.options_now())
    }

    /// Parses the kept lines in this format, and all later lines, too.
    fn use_format(&mut self, format: &Format, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        let parser = LineParser::new(format, &self.options_now())?;
        let parser = self.parser.insert(parser);
        self.scanned.format = Some(format.name());
        for (number, line) in std::mem::take(&mut self.sample).lines {
            parse(parser, &mut self.scanned, line.as_deref().map_err(|why| *why), number, visit);
        }
        Ok(())
    }

    fn options_now(&self) -> Options {
        let times = Times { now: self.now, ..self.options.times.clone() };
        Options { times, ..self.options.clone() }
    }
}

#[inline(always)]
fn parse(
    parser: &mut LineParser,
    scanned: &mut Scanned,
    line: Result<&[u8], Malformed>,
    number: u64,
    visit: &mut impl FnMut(Record<'_>),
) {
    let parsed = match line {
        Ok(line) => parser.parse(line),
        Err(why) => Err(why),
    };
    scanned.lines += 1;
    match parsed {
        Ok(Parsed::Hit(record)) => visit(record),
        Ok(Parsed::Filtered) => scanned.filtered += 1,
        Ok(Parsed::Comment) => scanned.lines -= 1,
        Err(why) => {
            scanned.add_malformed(why, number);
            let lacking = match why {
                Malformed::Time | Malformed::Number => &mut scanned.without_time,
                Malformed::Field => &mut scanned.without_field,
                _ => return,
            };
            if lacking.is_none()
                && let Ok(line) = line
            {
                *lacking = parser.lacking(line, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{days, seconds};

    use super::*;

    fn start() -> Timestamp {
        Timestamp::from_seconds(1_710_234_000).expect("a time")
    }

    fn options() -> Options {
        Options { times: Times { now: start(), ..Times::default() }, ..Options::default() }
    }

    fn give(feed: &mut Feed<'_>, line: &str) -> usize {
        let mut records = 0;
        feed.line(Line::Whole(line.as_bytes()), &mut |_| records += 1).expect("no format to refuse");
        feed.detect_early(&mut |_| records += 1).expect("no format to refuse");
        records
    }

    #[test]
    fn the_format_is_detected_early_when_lines_are_slow() {
        let options = options();
        let mut feed = Feed::new(&options).expect("reads");
        assert_eq!((give(&mut feed, "hello"), give(&mut feed, "hello")), (0, 0));
        assert_eq!((feed.scanned().format, feed.scanned().lines), (None, 0));
        assert_eq!(give(&mut feed, "{\"time\":1710234000,\"ip\":\"a\"}"), 0, "one of three");
        assert_eq!(give(&mut feed, "{\"time\":1710234000,\"ip\":\"a\"}"), 2, "two of four");
        assert_eq!(give(&mut feed, "{\"time\":1710234000,\"ip\":\"b\"}"), 1);
        let scanned = feed.finish(&[], &mut |_| {}).expect("reads");
        assert_eq!((scanned.format, scanned.lines, scanned.malformed_lines()), (Some("json"), 5, 2));
    }

    #[test]
    fn zeros_before_the_first_line_are_skipped() {
        let options = options();
        let mut feed = Feed::new(&options).expect("valid");
        let line = r#"{"time":"2024-03-12T08:00:04Z","ip":"a"}"#;
        let records = give(&mut feed, &format!("{}{line}", "\0".repeat(4_096))) + give(&mut feed, line);
        let mut finished = records;
        let scanned = feed.finish(b"", &mut |_| finished += 1).expect("lines");
        assert_eq!((finished, scanned.malformed_lines()), (2, 0));
    }

    #[test]
    fn a_line_whose_time_is_not_in_the_field_is_no_reason_to_stop_early() {
        let options = Options { time_field: Some("at".to_owned()), ..options() };
        let mut feed = Feed::new(&options).expect("reads");
        let combined = "a - - [12/Mar/2024:09:00:04 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
        assert_eq!(give(&mut feed, combined), 0);
        assert_eq!(give(&mut feed, "{\"at\":1710234000,\"ip\":\"a\"}"), 1);
        // At the end it is.
        let mut feed = Feed::new(&options).expect("reads");
        give(&mut feed, combined);
        let refused = feed.finish(&[], &mut |_| {}).expect_err("its time has a fixed place");
        assert!(refused.to_string().contains("combined"), "{refused}");
        let mut feed = Feed::new(&options).expect("reads");
        give(&mut feed, "time=2024-03-12T09:00:04Z ip=1.2.3.4");
        let scanned = feed.finish(&[], &mut |_| {}).expect("it is known");
        assert_eq!((scanned.format, scanned.malformed_lines()), (Some("logfmt"), 1));
    }

    #[test]
    fn the_next_log_goes_on_with_a_line_that_was_cut() {
        let options = options();
        let [mut first, mut next, mut alone] = [(); 3].map(|()| Feed::new(&options).expect("reads"));
        assert_eq!(give(&mut first, "2024-03-12T09:00:04Z stdout P {\"time\":17102"), 0);
        next.resume(first.cut_lines());
        let rest = "2024-03-12T09:00:04Z stdout F 34000,\"ip\":\"a\"}";
        assert_eq!((give(&mut next, rest), give(&mut alone, rest)), (1, 0));
    }

    /// Symptom: a reader that ran for more than a day took the numbers of new lines for no times. Cause: the day from now on
    /// was that from its start on. Fix: its clock moves.
    #[test]
    fn the_clock_of_a_long_run_moves() {
        let line = |days_later: u64| {
            format!(
                "{{\"time\":{},\"ip\":\"a\"}}",
                start().as_millis() / 1_000 + (days_later * 86_400).cast_signed()
            )
        };
        let options = options();
        let mut early = Feed::new(&options).expect("reads");
        let mut late = Feed::new(&options).expect("reads");
        assert_eq!((give(&mut early, &line(0)), give(&mut early, &line(3))), (1, 0));
        for feed in [&mut early, &mut late] {
            feed.set_now(start().saturating_add(days(3)).saturating_add(seconds(1)));
            assert_eq!(give(feed, &line(3)), 1);
        }
    }
}
