//! A whole log, from bytes to records.

use std::io::Read;

use crate::error::{Malformed, ScanError};
use crate::format::Format;
use crate::limits::MAX_NAMED_LINES;
use crate::lines::{Line, LineReader};
use crate::parser::{LineParser, Record};
use crate::template::Template;

/// How to read a log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; `None` tells it by the first line, see [`Format::detect`].
    pub format: Option<Format>,
    /// What a key is made of.
    pub key: Template,
    /// Where the time is, see [`LineParser::new`].
    pub time_field: Option<String>,
}

/// What was in a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// Lines with something in them.
    pub lines: u64,
    /// Lines of these that do not parse.
    pub malformed: u64,
    /// The number in the log, from 1, of the first [`MAX_NAMED_LINES`] that do not parse, and why.
    pub first_malformed: Vec<(u64, Malformed)>,
}

impl Options {
    /// Whether key and time field go with the format, when that is known.
    ///
    /// # Errors
    /// Those of [`LineParser::new`].
    pub fn check(&self) -> Result<(), crate::SetupError> {
        self.format.as_ref().map_or(Ok(()), |format| self.parser(format).map(|_| ()))
    }

    fn parser(&self, format: &Format) -> Result<LineParser, crate::SetupError> {
        LineParser::new(format, &self.key, self.time_field.as_deref())
    }
}

/// Reads a log to its end and shows every record to `visit`, in the order of the lines. Lines of
/// nothing but blanks are skipped; lines that do not parse are counted.
///
/// # Errors
/// When the reader fails, or the key does not go with the format. Records seen before stay seen.
pub fn scan<R: Read>(
    reader: R,
    options: &Options,
    mut visit: impl FnMut(Record<'_>),
) -> Result<Scanned, ScanError> {
    let mut parser = match &options.format {
        Some(format) => Some(options.parser(format)?),
        None => None,
    };
    let mut scanned = Scanned::default();
    let mut lines = LineReader::new(reader);
    let mut number = 0;
    while let Some(line) = lines.next_line()? {
        number += 1;
        let record = match line {
            Line::Whole(line) => {
                let line =
                    if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
                if line.trim_ascii_start().is_empty() {
                    continue;
                }
                let parser = match &mut parser {
                    Some(parser) => parser,
                    None => parser.insert(options.parser(&Format::detect(line))?),
                };
                parser.parse(line)
            }
            Line::TooLong => Err(Malformed::LineLength),
        };
        scanned.lines += 1;
        match record {
            Ok(record) => visit(record),
            Err(malformed) => {
                scanned.malformed += 1;
                if scanned.first_malformed.len() < MAX_NAMED_LINES {
                    scanned.first_malformed.push((number, malformed));
                }
            }
        }
    }
    Ok(scanned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_LINE_BYTES;

    fn keys(log: &[u8], key: &str) -> Result<(Vec<String>, Scanned), ScanError> {
        let options = Options { key: key.parse()?, ..Options::default() };
        let mut keys = Vec::new();
        let scanned =
            scan(log, &options, |record| keys.push(String::from_utf8_lossy(&record.key).into_owned()))?;
        Ok((keys, scanned))
    }

    #[test]
    fn the_format_is_told_by_the_first_line_with_something_in_it() {
        let (found, scanned) =
            keys(b"\xef\xbb\xbf\r\n  \n{\"time\":1,\"ip\":\"a\"}\n\n{\"time\":2,\"ip\":\"b\"}", "ip")
                .expect("reads");
        assert_eq!(found, ["a", "b"]);
        assert_eq!(scanned, Scanned { lines: 2, ..Scanned::default() });
        let (found, _) = keys(b"\xef\xbb\xbf{\"time\":1,\"ip\":\"a\"}", "ip").expect("reads");
        assert_eq!(found, ["a"]);
        let error = keys(b"\nhello\n", "host").expect_err("combined has no such field");
        assert!(matches!(error, ScanError::Setup(_)), "{error}");
        assert!(keys(b"\n\n", "host").is_ok(), "nothing to read, nothing to refuse");
    }

    #[test]
    fn lines_that_do_not_parse_are_counted_and_the_first_are_named() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let log =
            [b"{\"time\":1,\"ip\":\"a\"}\n\n", &long[..], b"\n{}\nx\ny\n{\"time\":1,\"ip\":\"b\"}"].concat();
        let (found, scanned) = keys(&log, "ip").expect("reads");
        assert_eq!(found, ["a", "b"]);
        assert_eq!((scanned.lines, scanned.malformed), (6, 4));
        let first = [(3, Malformed::LineLength), (4, Malformed::Time), (5, Malformed::Shape)];
        assert_eq!(scanned.first_malformed, first);
        assert_eq!(first.len(), MAX_NAMED_LINES);
    }
}
