//! Any bytes as a log: what a scan sees is what its lines say one by one, to parsers without a past.
//!
//! The fuzz targets `logs` and `logs_*` include this file; the property tests at its end are the same without a fuzzer.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use lately::limits::MAX_KEY_BYTES;
use lately_logs::limits::MAX_LINE_BYTES;
use lately_logs::{Format, LineParser, Malformed, Options, Parsed, ScanError, scan};
use serde::de::IgnoredAny;

/// Formats and keys; without a format, the first line tells.
const SETUPS: [(Option<&str>, &str); 26] = [
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
    (None, "*"),
    (Some("vhost"), "{vhost}{ip/24/64}"),
    (Some("vhost"), "{forwarded}{peer}"),
    (Some("logfmt"), "ip"),
    (Some("alb"), "{ip} {path}"),
    (Some("syslog"), "{host}{app}"),
    (Some("haproxy"), "{ip}{path}"),
    (Some("envoy"), "{ip}{url}"),
    (Some("nginx:$remote_addr - $remote_user [$time_local] \"$request\" $status"), "{ip}{user}{path}"),
    (Some("nginx:$msec $http_x_forwarded_for $remote_user"), "{forwarded}{user}"),
    (Some("apache:%h %l %u %t \"%r\" %>s %b"), "{ip}{user}{request}"),
    (Some("apache:%v:%p %{X-Forwarded-For}i %t"), "{vhost}{forwarded}"),
    (Some("w3c"), "ip"),
    (Some("w3c"), "{cs-method}{path}"),
    (Some("json"), "{a.b.c/24/64}"),
    (Some("logfmt"), "{ip}{msg}"),
];

/// What lines are made of: bytes from 128 on stand for these when the header says so.
const PIECES: [&str; 48] = [
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
    "www.example.com:443 ",
    "1.2.3.4, 5.6.7.8 - - ",
    "1.2.3.4 (5.6.7.8) - - ",
    "Mar 12 09:00:01 web1 app[7]: ",
    "<34>1 2024-03-12T09:00:01Z web1 app 7 - - ",
    "2024-03-12T09:00:01.5Z stdout F ",
    "web-1  | ",
    "ip=1.2.3.4 time=2024-03-12T09:00:01Z ",
    "msg=\"a b\" ",
    "#Fields: date time c-ip\n",
    "#Fields:\ttime date cs-method c-ip cs-uri-stem\n",
    "#Fields: c-ip c-ip time\r\n",
    "#Fields:\n",
    "#Date: ",
    "2024-03-12 09:00:01 1.2.3.4",
    "2024-03-12\t09:00:01\t1.2.3.4",
    "09:00:01.5 2024-03-12 GET 1.2.3.4 /a",
    "[",
    "{\"Records\":[",
    "{\"time\":1431857103,\"ip\":\"a\"}",
    "]}",
    "{\"log\":\"",
    "\\n\",\"stream\":\"stdout\",\"time\":\"2024-03-12T09:00:01Z\"}",
];

static OPTIONS: LazyLock<Vec<Options>> = LazyLock::new(|| {
    let options = SETUPS.map(|(format, key)| Options {
        format: format.map(|format| format.parse().expect("a format")),
        key: key.parse().expect("a template"),
        ..Options::default()
    });
    options.to_vec()
});

/// Scans what follows a header of two bytes: one for the set-up, and whether lines are made of [`PIECES`]; one
/// for how many bytes the reader gives at once. The set-ups are those of formats with these names, or all.
///
/// # Panics
/// When something does not hold.
pub(crate) fn check(formats: &[&str], bytes: &[u8]) {
    let [how, step, rest @ ..] = bytes else { return };
    let is_meant = |options: &&Options| {
        let name = options.format.as_ref().map(Format::name);
        formats.is_empty() || name.is_some_and(|name| formats.contains(&name))
    };
    let meant: Vec<&Options> = OPTIONS.iter().filter(is_meant).collect();
    let options = meant[usize::from(how & 0x7f) % meant.len()];
    let log = if how & 0x80 == 0 { rest.to_vec() } else { from_pieces(rest) };
    if log.len() > MAX_LINE_BYTES {
        return;
    }
    let mut seen = Vec::new();
    let reader = Steps { rest: &log, most: 1 + usize::from(*step) };
    let scanned = match scan(reader, options, |record| seen.push((record.at, record.key.to_vec()))) {
        Ok(scanned) => scanned,
        Err(ScanError::Unknown { .. } | ScanError::Setup(_)) => {
            assert!(
                options.format.is_none() && seen.is_empty(),
                "only a format that is not named is not told"
            );
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (at, key) in &seen {
        assert!((1..=MAX_KEY_BYTES).contains(&key.len()));
        assert!((0..=lately::Timestamp::MAX.as_millis()).contains(&at.as_millis()));
    }
    assert_eq!(scanned.parsed(), seen.len() as u64 + scanned.filtered);
    // JSON of another shape is made into lines before, and so are parts of lines.
    let is_json = scanned.format == Some("json");
    let is_by_lines = scanned.format.is_some() && !may_have_parts(&log) && (!is_json || has_json_lines(&log));
    let format = options.format.clone().or_else(|| scanned.format?.parse().ok());
    if let Some(format) = format.filter(|_| is_by_lines) {
        let (malformed, records) = line_by_line(&log, &format, options);
        assert_eq!((scanned.malformed, seen), (malformed, records));
    }
}

/// Whether the log starts as one of an object per line, in which case it is read so to its end.
fn has_json_lines(log: &[u8]) -> bool {
    let log = log.strip_prefix(b"\xef\xbb\xbf").unwrap_or(log).trim_ascii_start();
    let first = log.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match log.first() {
        Some(b'{') => {
            // An object that is alone may be one with an array of objects.
            let is_alone = log[first.len()..].trim_ascii().is_empty();
            let is_object = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(first).is_ok();
            is_object && !(is_alone && first.contains(&b'['))
        }
        first => first != Some(&b'['),
    }
}

/// Whether there may be a line in the log that docker or CRI cut.
fn may_have_parts(log: &[u8]) -> bool {
    let has = |part: &[u8]| log.windows(part.len()).any(|window| window == part);
    has(b"\"log\":") || has(b" stdout P") || has(b" stderr P")
}

/// The key that a w3c line of these fields has, by definition; `None` when it has another number of fields, or no client.
fn w3c_client<'l>(fields: &[&[u8]], line: &'l [u8]) -> Option<&'l [u8]> {
    let place = |name: &[u8]| fields.iter().position(|field| field.eq_ignore_ascii_case(name));
    let separator = if line.contains(&b'\t') { b'\t' } else { b' ' };
    let values: Vec<&[u8]> = line.split(|byte| *byte == separator).collect();
    (values.len() == fields.len())
        .then(|| place(b"ip").or_else(|| place(b"c-ip")))?
        .map(|place| values[place])
}

type Seen = Vec<(lately::Timestamp, Vec<u8>)>;

/// The records of the log, and the lines that do not parse, each line read by a parser without a past, but that one of
/// w3c has seen the lines before with `#Fields:` in them.
fn line_by_line(log: &[u8], format: &Format, options: &Options) -> (Vec<(Malformed, u64, u64)>, Seen) {
    let log = log.strip_prefix(b"\xef\xbb\xbf").unwrap_or(log);
    // A writer that goes on at its old offset in a file that was truncated leaves zeros before its first line.
    let log = &log[log.iter().take_while(|byte| **byte == 0).count()..];
    let (mut malformed, mut records) = (Vec::<(Malformed, u64, u64)>::new(), Vec::new());
    let is_w3c = format.name() == "w3c";
    let has_fields = |line: &[u8]| line.windows(8).any(|part| part == b"#Fields:");
    let mut headers: Vec<&[u8]> = Vec::new();
    for (number, line) in (1..).zip(log.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut parser = LineParser::new(format, options).expect("the key goes with the format");
        for header in &headers {
            _ = parser.parse(header);
        }
        let parsed = parser.parse(line);
        // The names of a header in a wrapper are not known here.
        if is_w3c
            && headers.iter().all(|header| header.starts_with(b"#Fields:"))
            && let (Ok(Parsed::Hit(record)), ["ip"]) =
                (&parsed, &options.key.fields().iter().map(String::as_str).collect::<Vec<_>>()[..])
        {
            let header =
                headers.iter().rev().find_map(|header| header.strip_prefix(b"#Fields:")).expect("a header");
            let fields: Vec<&[u8]> =
                header.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
            if let Some(client) = w3c_client(&fields, line) {
                assert_eq!(record.key, client);
            }
        }
        if is_w3c && has_fields(line) {
            headers.push(line);
        }
        match parsed {
            Ok(Parsed::Hit(record)) => records.push((record.at, record.key.to_vec())),
            Ok(_) => {}
            Err(why) => match malformed.iter_mut().find(|(known, ..)| *known == why) {
                Some((_, lines, _)) => *lines += 1,
                None => malformed.push((why, 1, number)),
            },
        }
    }
    malformed.sort_by_key(|(why, ..)| Malformed::ALL.iter().position(|known| known == why));
    (malformed, records)
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

/// A reader that returns at most this many bytes at once.
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

    /// Whole lines of w3c: headers, comments, lines that go with one of the headers, and lines that go with none.
    const W3C_LINES: [&str; 14] = [
        "#Fields: date time c-ip",
        "#Fields:\ttime date cs-method c-ip cs-uri-stem\r",
        "#Fields: c-ip C-IP time date",
        "#Fields: date time ip c-ip",
        "#Fields:",
        "#Date: 2024-03-12",
        "web-1  | #Fields: time date c-ip",
        "2024-03-12 09:00:01 192.0.2.1",
        "2024-03-12\t09:00:02\t192.0.2.2",
        "09:00:01.5 2024-03-12 GET 192.0.2.3 /a",
        "192.0.2.4 192.0.2.5 09:00:03 2024-03-12",
        "2024-03-12 09:00:04 192.0.2.6 192.0.2.7",
        "",
        "2024-03-12",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_024))]

        #[test]
        fn any_bytes_are_scanned(
            setup in any::<u8>(),
            step in any::<u8>(),
            zeros in 0..4_usize,
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            check(&[], &[&[setup, step][..], &[0; 4][..zeros], &bytes].concat());
        }

        /// Of `PIECES` only: more of these lines parse.
        #[test]
        fn any_pieces_are_scanned(
            setup in 0x80_u8..,
            step in any::<u8>(),
            pieces in prop::collection::vec(0x80_u8.., 0..40),
        ) {
            check(&[], &[&[setup, step][..], &pieces].concat());
        }

        #[test]
        fn lines_of_w3c_are_read_by_the_header_before_them(
            setup in 0..2_u8,
            step in any::<u8>(),
            lines in prop::collection::vec(prop::sample::select(&W3C_LINES[..]), 0..20),
        ) {
            check(&["w3c"], &[&[setup, step][..], lines.join("\n").as_bytes()].concat());
        }

        /// Of the formats whose lines depend on those before them.
        #[test]
        fn any_pieces_are_scanned_with_what_comes_before(
            setup in 0x80_u8..,
            step in any::<u8>(),
            pieces in prop::collection::vec(0x80_u8.., 0..40),
        ) {
            check(&["w3c", "json"], &[&[setup, step][..], &pieces].concat());
        }
    }
}
