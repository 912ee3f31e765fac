//! Lines of one log to records. [`crate::scan()`] drives it, and so does what follows a log that grows.

use crate::detect::detect;
use crate::error::{Malformed, ScanError, SetupError};
use crate::limits::{SAMPLE_BYTES, SAMPLE_LINES};
use crate::lines::Line;
use crate::options::Options;
use crate::parser::{LineParser, Parsed, Record};
use crate::scanned::{Scanned, WithoutTime};

/// Takes the lines of one log in their order. Without a format it keeps the first lines until it can tell.
#[derive(Debug)]
pub struct Feed<'o> {
    options: &'o Options,
    parser: Option<LineParser>,
    sample: Sample,
    scanned: Scanned,
    number: u64,
}

/// The first lines, with their numbers.
#[derive(Debug, Default)]
struct Sample {
    lines: Vec<(u64, Option<Vec<u8>>)>,
    bytes: usize,
}

impl<'o> Feed<'o> {
    /// For a log that is read so.
    ///
    /// # Errors
    /// Those of [`LineParser::new`].
    pub fn new(options: &'o Options) -> Result<Feed<'o>, SetupError> {
        let parser = options.format.as_ref().map(|format| LineParser::new(format, options)).transpose()?;
        let format = options.format.as_ref().map(crate::Format::name);
        let scanned = Scanned { format, ..Scanned::default() };
        Ok(Feed { options, parser, sample: Sample::default(), scanned, number: 0 })
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// When the format is not told by the lines so far, or the key does not go with it.
    #[inline]
    pub fn line(&mut self, line: Line<'_>, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        self.number += 1;
        let line = match line {
            Line::Whole(line) if self.number == 1 => {
                Line::Whole(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line))
            }
            line => line,
        };
        if let Line::Whole(line) = line
            && line.trim_ascii_start().is_empty()
        {
            return Ok(());
        }
        match &mut self.parser {
            Some(parser) => {
                parse(parser, &mut self.scanned, line, self.number, visit);
                Ok(())
            }
            None => self.keep(line, visit),
        }
    }

    /// Ends the log. `head` are its first bytes, which say what it is when it is none.
    ///
    /// # Errors
    /// As [`Feed::line`].
    pub fn finish(mut self, head: &[u8], visit: &mut impl FnMut(Record<'_>)) -> Result<Scanned, ScanError> {
        if self.parser.is_none() && !self.sample.lines.is_empty() {
            self.tell(head, visit)?;
        }
        self.scanned
            .malformed
            .sort_by_key(|(why, ..)| Malformed::ALL.iter().position(|reason| reason == why));
        Ok(self.scanned)
    }

    fn keep(&mut self, line: Line<'_>, visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        let kept = match line {
            Line::Whole(line) => Some(line.to_vec()),
            Line::TooLong => None,
        };
        self.sample.bytes += kept.as_ref().map_or(0, Vec::len);
        self.sample.lines.push((self.number, kept));
        if self.sample.lines.len() >= SAMPLE_LINES || self.sample.bytes >= SAMPLE_BYTES {
            let head = self.sample.lines.iter().find_map(|(_, line)| line.clone()).unwrap_or_default();
            self.tell(&head[..head.len().min(crate::lines::HEAD_BYTES)], visit)?;
        }
        Ok(())
    }

    /// Tells the format and reads the lines that were kept.
    fn tell(&mut self, head: &[u8], visit: &mut impl FnMut(Record<'_>)) -> Result<(), ScanError> {
        let sample = std::mem::take(&mut self.sample).lines;
        let lines: Vec<Line<'_>> =
            sample.iter().map(|(_, kept)| kept.as_deref().map_or(Line::TooLong, Line::Whole)).collect();
        let format = detect(&lines, head, self.options)?;
        self.scanned.format = Some(format.name());
        let parser = self.parser.insert(LineParser::new(&format, self.options)?);
        for (line, (number, _)) in lines.into_iter().zip(&sample) {
            parse(parser, &mut self.scanned, line, *number, visit);
        }
        Ok(())
    }
}

#[inline]
fn parse(
    parser: &mut LineParser,
    scanned: &mut Scanned,
    line: Line<'_>,
    number: u64,
    visit: &mut impl FnMut(Record<'_>),
) {
    let parsed = match line {
        Line::Whole(line) => parser.parse(line),
        Line::TooLong => Err(Malformed::LineLength),
    };
    scanned.lines += 1;
    match parsed {
        Ok(Parsed::Hit(record)) => visit(record),
        Ok(Parsed::Filtered) => scanned.filtered += 1,
        Ok(Parsed::Comment) => scanned.lines -= 1,
        Err(why) => {
            scanned.add_malformed(why, number);
            if scanned.without_time.is_none()
                && matches!(why, Malformed::Time | Malformed::Number)
                && let Line::Whole(line) = line
                && let Some((tried, there)) = parser.time_fields(line)
            {
                scanned.without_time = Some(WithoutTime { tried, there });
            }
        }
    }
}
