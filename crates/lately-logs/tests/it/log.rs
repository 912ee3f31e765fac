//! Any bytes as a log: what a scan sees is what its lines say one by one, to parsers without a past.
//!
//! The fuzz target `logs` includes this file; the property test at its end is the same without a fuzzer.

use std::io::{self, Read};
use std::sync::LazyLock;

use lately::limits::MAX_KEY_BYTES;
use lately_logs::limits::{MAX_LINE_BYTES, MAX_NAMED_LINES};
use lately_logs::{Format, LineParser, Malformed, Options, Scanned, scan};

/// Formats and keys; without a format, the first line tells.
const SETUPS: [(Option<&str>, &str); 10] = [
    (None, "ip"),
    (Some("combined"), "{ip} {user} {path}"),
    (Some("combined"), "{referer}{agent}"),
    (Some("common"), "{method}{protocol}{status}{bytes}"),
    (Some("common"), "request"),
    (Some("json"), "ip"),
    (Some("json"), "{a.b}/{ip}"),
    (Some(r"regex:^(?<time>\S+) (?<ip>\S+)(?: (?<user>.*))?$"), "ip"),
    (Some(r"regex:^(?<time>\S+) (?<ip>\S+)(?: (?<user>.*))?$"), "{ip}@{user}"),
    (Some(r"regex:(?<ip>[a-z]*)(?<time>.*)"), "ip"),
];

/// What lines are made of: bytes from 128 on stand for these when the header says so.
const PIECES: [&str; 25] = [
    "1.2.3.4 - jo ",
    "[17/May/2015:10:05:03 +0000]",
    "[17/May/2015:23:59:60 -0130]",
    "[29/Feb/2016:",
    "] ",
    " \"GET /a?b HTTP/1.1\" ",
    " \"-\" ",
    "200 12 ",
    "408 -",
    "\\\"",
    "\n",
    "\r\n",
    "\u{feff}",
    "{\"ip\":\"a\",",
    "\"time\":",
    "\"ts\":\"",
    "\"a\":{\"b\":",
    "\"a.b\":\"\\u00e9\"",
    "\"ip\":null}",
    "\"}",
    "2015-05-17T10:05:03Z ",
    "2015-05-17 10:05:03.25+02:00",
    "1431857103123 ",
    "1431857103.5e-0 ",
    "253402300799 ",
];

static OPTIONS: LazyLock<Vec<Options>> = LazyLock::new(|| {
    let options = SETUPS.map(|(format, key)| Options {
        format: format.map(|format| format.parse().expect("a format")),
        key: key.parse().expect("a template"),
        time_field: None,
    });
    options.to_vec()
});

/// Scans what follows a header of two bytes: one for the set-up, and whether lines are made of [`PIECES`]; one
/// for how many bytes the reader gives at once.
///
/// # Panics
/// When something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let [how, step, rest @ ..] = bytes else { return };
    let options = &OPTIONS[usize::from(how & 0x7f) % OPTIONS.len()];
    let log = if how & 0x80 == 0 { rest.to_vec() } else { from_pieces(rest) };
    if log.len() > MAX_LINE_BYTES {
        return;
    }
    let mut seen = Vec::new();
    let reader = Steps { rest: &log, most: 1 + usize::from(*step) };
    let scanned = scan(reader, options, |record| seen.push((record.at, record.key.into_owned())));
    let (expected, records) = line_by_line(&log, options);
    assert_eq!(scanned.expect("nothing fails"), expected);
    assert_eq!(seen, records);
    for (at, key) in seen {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()));
        assert!((0..=lately::Timestamp::MAX.as_millis()).contains(&at.as_millis()));
    }
}

/// The records of the log, and what a scan should say of it.
fn line_by_line(log: &[u8], options: &Options) -> (Scanned, Vec<(lately::Timestamp, Vec<u8>)>) {
    let log = log.strip_prefix(b"\xef\xbb\xbf").unwrap_or(log);
    let (mut scanned, mut records, mut format) = (Scanned::default(), Vec::new(), options.format.clone());
    for (number, line) in (1..).zip(log.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        scanned.lines += 1;
        let format = format.get_or_insert_with(|| Format::detect(line));
        let mut parser = LineParser::new(format, &options.key, None).expect("the key goes with the format");
        match parser.parse(line) {
            Ok(record) => records.push((record.at, record.key.into_owned())),
            Err(malformed) => {
                assert_ne!(malformed, Malformed::LineLength, "the whole log is shorter");
                scanned.malformed += 1;
                scanned.first_malformed.push((number, malformed));
            }
        }
    }
    scanned.first_malformed.truncate(MAX_NAMED_LINES);
    (scanned, records)
}

fn from_pieces(bytes: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    for &byte in bytes {
        match byte.checked_sub(128) {
            Some(index) => log.extend_from_slice(PIECES[usize::from(index) % PIECES.len()].as_bytes()),
            None => log.push(byte),
        }
    }
    log
}

/// Gives at most so many bytes at once.
struct Steps<'a> {
    rest: &'a [u8],
    most: usize,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.most.min(buffer.len());
        self.rest.read(&mut buffer[..most])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_024))]

        #[test]
        fn any_bytes_are_scanned(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            check(&bytes);
        }

        /// Of `PIECES` only: more of these lines parse.
        #[test]
        fn any_pieces_are_scanned(
            setup in 0x80_u8..,
            step in any::<u8>(),
            pieces in prop::collection::vec(0x80_u8.., 0..40),
        ) {
            check(&[&[setup, step][..], &pieces].concat());
        }
    }
}
