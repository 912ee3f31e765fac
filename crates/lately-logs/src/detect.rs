//! Which format a log has, by its first lines.

use crate::Malformed;
use crate::error::ScanError;
use crate::format::Format;
use crate::options::Options;
use crate::parser::{LineParser, Parsed};
use crate::template::Template;

/// How many of the first lines are of one format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Score {
    /// Those that have the key, too.
    keyed: usize,
    /// Those that have a time, with or without a zone, whatever the key.
    parsed: usize,
    /// Those whose time is missing as well.
    shaped: usize,
    /// Those that are no comments.
    lines: usize,
}

/// The format of most of these lines, if it is that of at least half of them.
pub(crate) fn detect(
    sample: &[Result<&[u8], Malformed>],
    head: &[u8],
    options: &Options,
) -> Result<Format, ScanError> {
    let mut best: Option<(Score, Format)> = None;
    let mut lines = 0;
    for format in Format::known() {
        let score = score(sample, &format, options);
        lines = lines.max(score.lines);
        if best.as_ref().is_none_or(|(before, _)| {
            (score.keyed, score.parsed, score.shaped) > (before.keyed, before.parsed, before.shaped)
        }) {
            best = Some((score, format));
        }
    }
    match best {
        Some((score, format)) if score.is_enough(&format) => Ok(format),
        Some((score, format)) => Err(ScanError::Unknown {
            lines,
            best: (score.parsed > 0).then(|| (format.name(), score.parsed)),
            looks_like: looks_like(head),
        }),
        None => Err(ScanError::Unknown { lines, best: None, looks_like: looks_like(head) }),
    }
}

impl Score {
    fn is_enough(self, format: &Format) -> bool {
        // Nearly any text is logfmt but for its time.
        let recognised =
            if matches!(format, Format::Logfmt) { self.parsed } else { self.shaped.max(self.parsed) };
        recognised > 0 && 2 * recognised >= self.lines
    }
}

fn score(sample: &[Result<&[u8], Malformed>], format: &Format, options: &Options) -> Score {
    let every = "*".parse::<Template>().unwrap_or_default();
    let parser = |key| {
        let plain =
            Options { format: None, filters: Vec::new(), since: None, until: None, ..options.clone() };
        LineParser::new(format, &Options { key, ..plain })
    };
    let keyed = parser(options.key.clone());
    let has_key = keyed.is_ok();
    // A format that cannot have its time where it was said to be is not that of the log.
    let Ok(mut parser) = keyed.or_else(|_| parser(every)) else { return Score::default() };
    let mut score = Score::default();
    for line in sample {
        let parsed = match line {
            Ok(line) => parser.parse(line),
            Err(why) => Err(*why),
        };
        match parsed {
            Ok(Parsed::Comment) => continue,
            Ok(_) => {
                score.keyed += usize::from(has_key);
                score.parsed += 1;
            }
            Err(Malformed::Zone | Malformed::Field | Malformed::KeyLength) => score.parsed += 1,
            Err(Malformed::Time | Malformed::Number) => score.shaped += 1,
            Err(_) => {}
        }
        score.lines += 1;
    }
    score.shaped += score.parsed;
    score
}

/// What the first bytes are, when they are of no log.
pub(crate) fn looks_like(head: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 11] = [
        (b"\xff\xfe\0\0", "UTF-32"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xfe\xff", "UTF-16"),
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "a zip archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\x1f\x9d", "compress (.Z)"),
    ];
    let magic = MAGIC.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| name);
    let is_wide = |first: usize| head.len() >= 8 && head.iter().skip(first).step_by(2).all(|byte| *byte == 0);
    magic.or_else(|| match head.trim_ascii_start().first() {
        _ if is_wide(0) || is_wide(1) => Some("UTF-16"),
        _ if head.contains(&0) => Some("binary data"),
        Some(b'[') if head.trim_ascii_start().get(1).is_some_and(|byte| b"\"[0123456789".contains(byte)) => {
            Some("a JSON array without objects")
        }
        _ => None,
    })
}
