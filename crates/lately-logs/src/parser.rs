//! One line to one record: what every format comes down to.

use std::borrow::Cow;

use lately::Timestamp;
use lately::limits::MAX_KEY_BYTES;

use crate::access::{ACCESS_FIELDS, AccessField, AccessLine, COMMON_FIELDS};
use crate::error::{Malformed, SetupError};
use crate::format::Format;
use crate::json;
use crate::pattern::Pattern;
use crate::template::{Part, Template};
use crate::time::{self, TimeReader};

/// What a line says: one hit on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When.
    pub at: Timestamp,
    /// On what: 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: Cow<'a, [u8]>,
}

/// Makes records of lines of one format.
///
/// It is a pure function of the line: what it remembers only saves work.
#[derive(Clone, Debug)]
pub struct LineParser {
    source: Source,
    parts: Vec<Part>,
    times: TimeReader,
    key: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Source {
    Access(Vec<AccessField>),
    /// The fields of the key, then those the time may be in.
    Json {
        wanted: Vec<String>,
        key_fields: usize,
    },
    Regex(Pattern),
}

impl LineParser {
    /// A parser for lines of `format`.
    ///
    /// The fields of `key` are, for combined: `ip path status method user request protocol bytes
    /// referer agent`, of which common lacks the last two; `path` is the target of the request up to
    /// its `?`. For JSON they are any names, for regex its named groups. The time of these two is in
    /// `time_field`; without one, in the first of `time timestamp ts @timestamp` that a JSON object
    /// has, and in the group `time`. It is an access-log date, RFC 3339 with a zone, or Unix seconds;
    /// a number from 10^11 on is milliseconds, from 10^14 microseconds, from 10^17 nanoseconds.
    ///
    /// # Errors
    /// When the format has no such field.
    pub fn new(format: &Format, key: &Template, time_field: Option<&str>) -> Result<LineParser, SetupError> {
        let source = match format {
            Format::Combined => access_source(format, &ACCESS_FIELDS, key, time_field)?,
            Format::Common => access_source(format, &ACCESS_FIELDS[..COMMON_FIELDS], key, time_field)?,
            Format::Json => {
                let mut wanted = key.fields().to_vec();
                match time_field {
                    Some(field) => wanted.push(field.into()),
                    None => wanted.extend(json::TIME_FIELDS.map(String::from)),
                }
                Source::Json { wanted, key_fields: key.fields().len() }
            }
            Format::Regex(regex) => {
                Source::Regex(Pattern::new(regex, key.fields(), time_field.unwrap_or("time"))?)
            }
        };
        Ok(LineParser { source, parts: key.parts.clone(), times: TimeReader::new(), key: Vec::new() })
    }

    /// The record of `line`, which is given without its line end.
    ///
    /// # Errors
    /// When the line does not parse, with the reason.
    pub fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let LineParser { source, parts, times, key } = self;
        let (at, key) = match source {
            Source::Access(fields) => {
                let access = AccessLine::parse(line)?;
                let at = times.log_date(access.date).ok_or(Malformed::Time)?;
                (at, build(parts, key, |index| access.field(fields[index]).map(Cow::Borrowed)))
            }
            Source::Json { wanted, key_fields } => {
                let found = json::find(line, wanted).ok_or(Malformed::Shape)?;
                let at = json_time(times, &found[*key_fields..]).ok_or(Malformed::Time)?;
                (at, build(parts, key, |index| json::scalar(found[index]?)))
            }
            Source::Regex(pattern) => {
                let groups = pattern.read(line).ok_or(Malformed::Shape)?;
                let at = groups.time().and_then(|text| times.text(text)).ok_or(Malformed::Time)?;
                (at, build(parts, key, |index| groups.field(index).map(Cow::Borrowed)))
            }
        };
        let key = key.ok_or(Malformed::Field)?;
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(Malformed::KeyLength);
        }
        Ok(Record { at, key })
    }
}

fn access_source(
    format: &Format,
    known: &[(&'static str, AccessField)],
    key: &Template,
    time_field: Option<&str>,
) -> Result<Source, SetupError> {
    if time_field.is_some() {
        return Err(SetupError::FixedTime { format: format.name() });
    }
    let field = |name: &String| {
        let found = known.iter().find(|(known, _)| known == name).map(|(_, field)| *field);
        found.ok_or_else(|| SetupError::Field {
            field: name.clone(),
            format: format.name(),
            known: known.iter().map(|(name, _)| (*name).into()).collect(),
        })
    };
    key.fields().iter().map(field).collect::<Result<_, _>>().map(Source::Access)
}

/// The time in the first of these fields that there is; null is as good as missing.
fn json_time(times: &mut TimeReader, fields: &[Option<&str>]) -> Option<Timestamp> {
    let raw = fields.iter().flatten().find(|raw| **raw != "null")?;
    let text = json::scalar(raw)?;
    // A bare number is only ever a number.
    if raw.starts_with('"') { times.text(&text) } else { time::number(&text) }
}

/// The key of a template: a lone field is borrowed from the line, what has several parts is put
/// together in `buffer`.
fn build<'a>(
    parts: &[Part],
    buffer: &'a mut Vec<u8>,
    field: impl Fn(usize) -> Option<Cow<'a, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    if let [Part::Field(index)] = parts {
        return field(*index);
    }
    buffer.clear();
    for part in parts {
        match part {
            Part::Text(text) => buffer.extend_from_slice(text.as_bytes()),
            Part::Field(index) => buffer.extend_from_slice(&field(*index)?),
        }
    }
    Some(Cow::Borrowed(buffer))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parser(format: &str, key: &str) -> Result<LineParser, SetupError> {
        LineParser::new(&format.parse()?, &key.parse()?, None)
    }

    fn check(format: &str, key: &str, line: &[u8], expected: Result<(&str, &[u8]), Malformed>) {
        let mut parser = parser(format, key).expect("a good set-up");
        let record = parser.parse(line).map(|record| (record.at.to_string(), record.key.into_owned()));
        let expected = expected.map(|(at, key)| (at.to_owned(), key.to_vec()));
        assert_eq!(record, expected, "{format} {key} {}", line.escape_ascii());
    }

    #[test]
    fn access_lines() {
        let line = br#"1.2.3.4 - jo [17/May/2015:12:05:03 +0200] "GET /a HTTP/1.1" 200 12 "-" "agent""#;
        let at = "1431857103";
        check("combined", "ip", line, Ok((at, b"1.2.3.4")));
        check("common", "{ip} {path}", line, Ok((at, b"1.2.3.4 /a")));
        check("combined", "{{{status}}} {user}", line, Ok((at, b"{200} jo")));
        check("combined", "agent", line, Ok((at, b"agent")));
        let line = b"\xff\xfe - - [17/May/2015:10:05:03 +0000] \"-\" 408 -";
        check("combined", "ip", line, Ok((at, b"\xff\xfe")));
        check("combined", "user", line, Ok((at, b"-")));
        check("combined", "path", line, Err(Malformed::Field));
        check("combined", "{ip} {path}", line, Err(Malformed::Field));
        check("combined", "agent", line, Err(Malformed::Field));
        check("combined", "ip", b"x - - [40/May/2015:10:05:03 +0000] \"-\" 408 -", Err(Malformed::Time));
        check("combined", "ip", b"x - - -", Err(Malformed::Shape));
    }

    #[test]
    fn json_lines() {
        let json = |key, line: &str, expected| check("json", key, line.as_bytes(), expected);
        json("ip", r#"{"ip":"a","time":5}"#, Ok(("5", b"a")));
        json("ip", r#"{"ip":"a","time":"5.25"}"#, Ok(("5.25", b"a")));
        json("ip", r#"{"ip":"a","ts":1431857103123}"#, Ok(("1431857103.123", b"a")));
        json("ip", r#"{"@timestamp":"2015-05-17T10:05:03Z","ip":"a"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ip":"a","time":"17/May/2015:10:05:03 +0000"}"#, Ok(("1431857103", b"a")));
        json("ip", r#"{"ts":3,"timestamp":2,"time":1,"ip":"a"}"#, Ok(("1", b"a")));
        json("ip", r#"{"@timestamp":4,"ts":3,"timestamp":null,"ip":"a"}"#, Ok(("3", b"a")));
        json("{a.b}/{c}", r#"{"time":1,"a":{"b":"x\ty"},"c":true}"#, Ok(("1", b"x\ty/true")));
        json("n", r#"{"time":1,"n":1.0}"#, Ok(("1", b"1.0")));
        json("ip", r#"{"ip":"a","time":"soon","ts":3}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":"a"}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":"a","time":true}"#, Err(Malformed::Time));
        json("ip", r#"{"ip":null,"time":1}"#, Err(Malformed::Field));
        json("ip", r#"{"time":1}"#, Err(Malformed::Field));
        json("ip", r#"{"ip":"","time":1}"#, Err(Malformed::KeyLength));
        json("ip", "ip=a time=1", Err(Malformed::Shape));
    }

    #[test]
    fn the_time_field_can_be_named() {
        let key = Template::default();
        let mut parser = LineParser::new(&Format::Json, &key, Some("when.at")).expect("any name does");
        let record = parser.parse(br#"{"time":1,"ip":"a","when":{"at":2}}"#).expect("parses");
        assert_eq!(record.at.to_string(), "2");
        let regex: Format = "regex:(?<ip>.) (?<when>.*)".parse().expect("compiles");
        let mut parser = LineParser::new(&regex, &key, Some("when")).expect("a group");
        assert_eq!(parser.parse(b"a 3").expect("parses").at.to_string(), "3");
        assert!(LineParser::new(&regex, &key, None).is_err(), "no group 'time'");
        let fixed = LineParser::new(&Format::Common, &key, Some("time")).map(|_| ());
        assert_eq!(fixed, Err(SetupError::FixedTime { format: "common" }));
    }

    #[test]
    fn regex_lines() {
        let regex = r"regex:^(?<time>\S+) (?<ip>\S+)(?: (?<user>.+))?$";
        check(regex, "ip", b"1431857103.5 a", Ok(("1431857103.5", b"a")));
        check(regex, "{user}@{ip}", b"2015-05-17T10:05:03Z a \xe9 x", Ok(("1431857103", b"\xe9 x@a")));
        check(regex, "user", b"1 a", Err(Malformed::Field));
        check(regex, "ip", b"soon a", Err(Malformed::Time));
        check(regex, "ip", b"1", Err(Malformed::Shape));
    }

    #[test]
    fn unknown_fields_are_refused_with_the_known_ones() {
        let check = |format: &str, key: &str, expected: &str| {
            let error = parser(format, key).map(|_| ()).expect_err(key);
            assert_eq!(error.to_string(), expected);
        };
        check(
            "common",
            "{ip} {agent}",
            "no field 'agent' in the common format: it has ip, path, status, method, user, request, protocol, bytes",
        );
        check("regex:(?<time>.)(?<host>.)", "ip", "no field 'ip' in the regex format: it has time, host");
        check("regex:.", "ip", "no field 'time' in the regex format: it has no named groups");
        assert!(parser("combined", "agent").is_ok());
        assert!(parser("json", "whatever").is_ok());
    }

    #[test]
    fn keys_are_bounded() {
        for (bytes, fits) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
            let line = format!("{{\"time\":1,\"ip\":\"{}\"}}", "x".repeat(bytes));
            let mut parser = parser("json", "ip").expect("a good set-up");
            let expected = if fits { None } else { Some(Malformed::KeyLength) };
            assert_eq!(parser.parse(line.as_bytes()).err(), expected);
        }
    }

    /// Lines of every format with bytes cut out, put in and changed.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let whole = prop_oneof![
            Just(&br#"::1 - jo [17/May/2015:12:05:03 +0200] "GET /a?b HTTP/1.1" 200 12 "-" "a \"b\"""#[..]),
            Just(&br#"{"ip":"1.2.3.4","time":1431857103.25,"a":{"path":"x\u00e9"},"n":[1,{}]}"#[..]),
            Just(&b"2015-05-17T10:05:03Z 1.2.3.4 jo"[..]),
        ];
        let change = (0..80_usize, 0..4_usize, proptest::collection::vec(any::<u8>(), 0..4));
        (whole, proptest::collection::vec(change, 0..4)).prop_map(|(whole, changes)| {
            let mut line = whole.to_vec();
            for (at, len, bytes) in changes {
                let from = at.min(line.len());
                let to = (from + len).min(line.len());
                line.splice(from..to, bytes);
            }
            line
        })
    }

    proptest! {
        #[test]
        fn damaged_lines_parse_or_do_not_and_always_the_same(
            lines in proptest::collection::vec(damaged(), 1..20),
        ) {
            for (format, key) in [
                ("combined", "{ip}{user}{method}{path}{protocol}"),
                ("combined", "{referer}{agent}"),
                ("json", "{ip}{a.path}"),
                (r"regex:^(?<time>\S+) (?<ip>\S+) (?<user>.*)$", "{ip}{user}"),
            ] {
                let mut kept = parser(format, key).expect("a good set-up");
                for line in &lines {
                    let mut fresh = parser(format, key).expect("a good set-up");
                    let record = kept.parse(line);
                    prop_assert_eq!(&record, &fresh.parse(line));
                    prop_assert!(record.is_err() || record.is_ok_and(|record| !record.key.is_empty()));
                }
            }
        }
    }
}
