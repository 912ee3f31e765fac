//! Detects the format of a log from its first lines.

use crate::Malformed;
use crate::error::ScanError;
use crate::format::Format;
use crate::options::Options;
use crate::parser::{LineParser, Parsed};
use crate::wrapper;
use lately_keys::Template;

/// How many of the first lines fit a format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Score {
    /// Lines that also have the key.
    keyed: usize,
    /// Lines that have a time, with or without a zone, even without the key.
    parsed: usize,
    /// Lines with or without a time.
    shaped: usize,
    /// Lines that are not comments.
    lines: usize,
}

/// The first lines, or why they are not usable.
type Sample<'a> = [Result<&'a [u8], Malformed>];

/// The format of most of these lines, if it fits at least half of them.
pub(crate) fn detect(sample: &Sample<'_>, head: &[u8], options: &Options) -> Result<Format, ScanError> {
    if let Some(format) = inside_docker(sample, options) {
        return Ok(format);
    }
    let (score, format, lines) = best(sample, sample, options);
    if score.is_enough(&format) {
        return Ok(format);
    }
    Err(ScanError::Unknown {
        lines,
        best: (score.parsed > 0).then(|| (format.name(), score.parsed)),
        looks_like: looks_like(head),
    })
}

/// The format of lines whose time is not where the options say, if they have one without that.
pub(crate) fn but_for_its_time(sample: &Sample<'_>, options: &Options) -> Option<Format> {
    let without_time = Options { time: None, time_field: None, ..options.clone() };
    let (score, format, _) = best(sample, sample, &without_time);
    score.is_enough(&format).then_some(format)
}

/// The format of the texts inside docker's JSON records, if these texts are not JSON themselves. `None` if there are
/// none, or if only docker's own fields have the key.
fn inside_docker(sample: &Sample<'_>, options: &Options) -> Option<Format> {
    let is_plain = |line: &&[u8]| wrapper::docker_text(line).is_some_and(|text| text.first() != Some(&b'{'));
    let without_docker: Vec<_> = sample
        .iter()
        .map(|line| if line.is_ok_and(|line| is_plain(&line)) { Err(Malformed::Shape) } else { *line })
        .collect();
    if without_docker == sample {
        return None;
    }
    let (inside, format, _) = best(sample, &without_docker, options);
    // How many lines have the key by docker's own fields alone.
    let plain: Vec<_> =
        sample.iter().filter(|line| line.is_ok_and(|line| is_plain(&line))).copied().collect();
    let docker = score(&plain, &Format::Json, options);
    let has_key = docker.keyed == 0 || inside.keyed > docker.keyed;
    let has_key = options.key.fields().is_empty() || has_key;
    (inside.is_enough(&format) && has_key).then_some(format)
}

/// The format that fits most lines, its score, and the number of lines. JSON is scored on lines of its own.
fn best(sample: &Sample<'_>, for_json: &Sample<'_>, options: &Options) -> (Score, Format, usize) {
    let (mut best, mut best_format, mut lines) = (Score::default(), Format::Combined, 0);
    for format in Format::known() {
        let sample = if matches!(format, Format::Json) { for_json } else { sample };
        let score = score(sample, &format, options);
        lines = lines.max(score.lines);
        let numbers = |score: &Score| (score.keyed, score.parsed, score.shaped);
        if numbers(&score) > numbers(&best) {
            (best, best_format) = (score, format);
        }
    }
    (best, best_format, lines)
}

impl Score {
    fn is_enough(self, format: &Format) -> bool {
        // Nearly any text parses as logfmt, so logfmt also needs a time.
        let recognised =
            if matches!(format, Format::Logfmt) { self.parsed } else { self.shaped.max(self.parsed) };
        recognised > 0 && 2 * recognised >= self.lines
    }
}

fn score(sample: &Sample<'_>, format: &Format, options: &Options) -> Score {
    let every = "*".parse::<Template>().unwrap_or_default();
    let parser = |key| {
        let plain =
            Options { format: None, filters: Vec::new(), since: None, until: None, ..options.clone() };
        LineParser::new(format, &Options { key, ..plain })
    };
    let keyed = parser(options.key.clone());
    let has_key = keyed.is_ok();
    // A format without the given time field is not the format of this log.
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

/// Guesses the type of a file that is not a log, by its first bytes.
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
