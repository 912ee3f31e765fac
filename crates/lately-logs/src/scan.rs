//! Reads a whole log, from bytes to records.

use std::io::Read;

use crate::detect::looks_like;
use crate::documents::Documents;
use crate::error::ScanError;
use crate::feed::Feed;
use crate::format::Format;
use crate::lines::LineReader;
use crate::options::Options;
use crate::parser::Record;
use crate::scanned::Scanned;

/// Reads a log to its end and passes every record to `visit`, in the order of the lines. Blank lines are skipped, and
/// lines that do not parse are counted. If the reader fails, the records before the error are visited, and the error
/// is in the result.
///
/// # Errors
/// No format fits the lines, or it does not have the fields of the key. No record was visited then.
pub fn scan<R: Read>(
    reader: R,
    options: &Options,
    mut visit: impl FnMut(Record<'_>),
) -> Result<Scanned, ScanError> {
    let mut documents = Documents::new(reader, options.format.as_ref());
    let as_json = documents.is_cut().then(|| Options { format: Some(Format::Json), ..options.clone() });
    let mut lines = LineReader::new(documents);
    let mut feed = Feed::new(as_json.as_ref().unwrap_or(options))?;
    let failure = loop {
        match lines.next_line() {
            Ok(Some(line)) => feed.line(line, &mut visit)?,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let head = lines.head();
    let mut scanned = match feed.finish(head, &mut visit) {
        Ok(scanned) => scanned,
        // The error of the reader is more useful than the format of the lines before it.
        Err(ScanError::Unknown { .. }) if failure.is_some() => Scanned::default(),
        Err(error) => return Err(error),
    };
    if scanned.parsed() == 0 {
        scanned.looks_like = looks_like(head);
    }
    scanned.failure = failure;
    Ok(scanned)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::error::Malformed;
    use crate::limits::{
        MAX_LINE_BYTES, MAX_LISTED_CHARACTERS, MAX_LISTED_FIELDS, MAX_WRAPPERS, SAMPLE_BYTES, SAMPLE_LINES,
    };

    fn keys(log: impl Read, key: &str) -> Result<(Vec<String>, Scanned), ScanError> {
        let options = Options { key: key.parse()?, ..Options::default() };
        let mut keys = Vec::new();
        let scanned =
            scan(log, &options, |record| keys.push(String::from_utf8_lossy(record.key).into_owned()))?;
        Ok((keys, scanned))
    }

    #[test]
    fn the_format_is_that_of_most_lines() {
        let (found, scanned) = keys(
            &b"\xef\xbb\xbf\r\n  \n{\"time\":1431857103,\"ip\":\"a\"}\n\n{\"time\":1431857103,\"ip\":\"b\"}"
                [..],
            "ip",
        )
        .expect("reads");
        assert_eq!(found, ["a", "b"]);
        assert_eq!((scanned.lines, scanned.parsed(), scanned.format), (2, 2, Some("json")));
        let line = "1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";
        let mixed = |good: usize, bad: usize| line.repeat(good) + &"hello\n".repeat(bad);
        assert_eq!(keys(mixed(1, 1).as_bytes(), "ip").expect("half of them").0.len(), 1);
        let error = keys(mixed(1, 2).as_bytes(), "ip").expect_err("fewer than half").to_string();
        assert_eq!(error, "no known format in the first 3 lines: 1 could be combined");
        // Lines after the first hundred do not matter.
        assert_eq!(keys(mixed(SAMPLE_LINES, 900).as_bytes(), "ip").expect("reads").0.len(), SAMPLE_LINES);
        assert!(keys(mixed(49, 0).as_bytes(), "host").is_err(), "combined has no such field");
        assert!(keys(&b"\n\n"[..], "host").is_ok(), "nothing to read, nothing to refuse");
        assert!(
            keys(&b"# nothing\n"[..], "ip").is_err_and(|error| error.to_string().contains("no known format"))
        );
    }

    #[test]
    fn input_that_is_no_log_is_named() {
        let check = |bytes: &[u8], what: &str| {
            let error = keys(bytes, "ip").expect_err(what).to_string();
            assert_eq!(error, format!("this is {what}, not a log"));
        };
        check(b"\xff\xfe1\0.\x002\0\n\0", "UTF-16");
        check(b"1\0.\x002\0.\x003\0\n\0", "UTF-16");
        check(b"PK\x03\x04abc", "a zip archive");
        check(b"\x28\xb5\x2f\xfdabc", "zstd");
        check(b"\x7fELF\0\x01\x02", "binary data");
        check(b"[1,2]\n", "a JSON array without objects");
        let options = Options { format: Some(crate::Format::Combined), ..Options::default() };
        let scanned = scan(&b"\x28\xb5\x2f\xfdabc"[..], &options, |_| {}).expect("reads");
        assert_eq!(scanned.looks_like, Some("zstd"));
    }

    #[test]
    fn lines_that_do_not_parse_are_counted_by_their_reasons() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let good = b"{\"time\":1431857103,\"ip\":\"a\"}\n".repeat(5);
        let log =
            [&good, &b"\n"[..], &long, b"\n{\"a\":1}\nx\n# comment\ny\n{\"time\":\"2015-05-17T10:05:03\"}"]
                .concat();
        let (found, scanned) = keys(&log[..], "ip").expect("reads");
        assert_eq!((found.len(), scanned.lines, scanned.malformed_lines()), (5, 10, 5));
        let expected = [
            (Malformed::Shape, 2, 9),
            (Malformed::Time, 1, 8),
            (Malformed::Zone, 1, 12),
            (Malformed::LineLength, 1, 7),
        ];
        assert_eq!(scanned.malformed, expected);
        assert_eq!(scanned.without_time.expect("a line without a time").there, ["a"]);
    }

    /// Gives its bytes, then fails.
    struct Broken<'a>(&'a [u8]);

    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn lines_before_a_read_error_are_counted() {
        let log = b"{\"time\":1431857103,\"ip\":\"a\"}\n{\"time\":14318";
        let (found, scanned) = keys(Broken(log), "ip").expect("reads");
        assert_eq!(found, ["a"]);
        assert_eq!(
            (scanned.lines, scanned.failure.map(|error| error.kind())),
            (1, Some(io::ErrorKind::UnexpectedEof))
        );
        let (found, scanned) = keys(Broken(b"hello\n"), "ip").expect("reads");
        assert!(found.is_empty() && scanned.failure.is_some());
    }

    #[test]
    fn long_lines_detect_the_format_earlier() {
        let long = |line: &str| format!("{{\"ip\":\"a\",{line}\"x\":\"{}\"}}\n", "x".repeat(1 << 19));
        let good = long("\"time\":1431857103,");
        // Eight lines are the sample; those behind it, which outnumber them, do not count.
        let log = good.repeat(SAMPLE_BYTES >> 19) + &"hello\n".repeat(20);
        let (found, scanned) = keys(log.as_bytes(), "ip").expect("reads");
        assert_eq!((found.len(), scanned.malformed_lines()), (8, 20));
        let short = good.repeat(7) + &"hello\n".repeat(20);
        assert!(keys(short.as_bytes(), "ip").is_err());
    }

    #[test]
    fn wrappers_around_wrappers_have_a_bound() {
        let log = |wrappers: usize| {
            let line = "1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";
            line.to_owned() + &"web-1  | ".repeat(wrappers) + line
        };
        assert_eq!(keys(log(MAX_WRAPPERS).as_bytes(), "ip").expect("reads").0.len(), 2);
        assert_eq!(keys(log(MAX_WRAPPERS + 1).as_bytes(), "ip").expect("reads").0.len(), 1);
    }

    #[test]
    fn the_fields_of_a_hint_have_a_bound() {
        let there = |fields: usize| {
            let members: Vec<String> = (0..fields).map(|field| format!("\"f{field}\":1")).collect();
            let (_, scanned) = keys(format!("{{{}}}", members.join(",")).as_bytes(), "ip").expect("reads");
            scanned.without_time.expect("no time").there.len()
        };
        assert_eq!(
            (there(MAX_LISTED_FIELDS), there(MAX_LISTED_FIELDS + 1)),
            (MAX_LISTED_FIELDS, MAX_LISTED_FIELDS)
        );
    }

    #[test]
    fn the_names_in_a_hint_have_a_bound() {
        let there = |characters: usize| {
            let name = "é".repeat(characters);
            let (_, scanned) = keys(format!("{{\"{name}\":1}}").as_bytes(), "ip").expect("reads");
            scanned.without_time.expect("no time").there.remove(0).chars().count()
        };
        assert_eq!(
            (there(MAX_LISTED_CHARACTERS), there(MAX_LISTED_CHARACTERS + 1)),
            (MAX_LISTED_CHARACTERS, MAX_LISTED_CHARACTERS)
        );
    }

    #[test]
    fn a_line_without_a_field_names_those_it_has() {
        let check = |line: &str, key: &str, tried: &[&str], there: &[&str]| {
            let (_, scanned) = keys(line.as_bytes(), key).expect(line);
            let lacking = scanned.without_field.expect("a field is missing");
            assert_eq!(lacking.tried, tried, "{line}");
            assert_eq!(lacking.there, there, "{line}");
        };
        let json = r#"{"time":1431857103,"who":{"id":7,"ip":null},"path":"/a"}"#;
        for front in ["", "web-1  | ", "2024-03-12T09:00:01.5Z stdout F "] {
            check(&format!("{front}{json}"), "ip", &["ip"], &["path", "time", "who.id"]);
            check(&format!("{front}{json}"), "{path} {who.id} {x}", &["x"], &["path", "time", "who.id"]);
            let logfmt = format!("{front}time=2015-05-17T10:05:03Z path=/a");
            check(&logfmt, "{path} {ip}", &["ip"], &["time", "path"]);
        }
        let nginx = r#"{"time":1431857103,"agent":"\x22","path":"/a"}"#;
        check(nginx, "{path} {ip}", &["ip"], &["agent", "path", "time"]);
        let log = serde_json::Value::from(json);
        check(
            &format!("{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03Z\"}}"),
            "ip",
            &["ip"],
            &["path", "time", "who.id"],
        );
    }

    #[test]
    fn json_of_other_shapes() {
        let array = b"[{\"time\":1431857103,\"ip\":\"a\"},\n {\"time\":1431857103,\n \"ip\":\"b\"}]";
        assert_eq!(keys(&array[..], "ip").expect("reads").0, ["a", "b"]);
        let records = b"{\"Records\":[{\"eventTime\":\"2015-05-17T10:05:03Z\",\"sourceIPAddress\":\"a\"}]}";
        assert_eq!(keys(&records[..], "sourceIPAddress").expect("reads").0, ["a"]);
        let pretty = b"{\n  \"time\": 1431857103,\n  \"ip\": \"a\"\n}\n{\n  \"time\": 1431857103,\n  \"ip\": \"b\"\n}\n";
        assert_eq!(keys(&pretty[..], "ip").expect("reads").0, ["a", "b"]);
        let cut = &array[..array.len() - 5];
        let (found, scanned) = keys(cut, "ip").expect("reads");
        assert_eq!((found.len(), scanned.malformed), (1, vec![(Malformed::Shape, 1, 2)]));
    }
}
