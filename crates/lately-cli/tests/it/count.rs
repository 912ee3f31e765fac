//! `lately count`: its counts and its output.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::{Run, command, data, lately, lately_reading};

/// The lines of `--json` as short rows: `key hits peak peak_at total`.
fn rows(run: &Run) -> Vec<String> {
    let row = |line: &str| {
        let pairs = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')).expect("an object");
        let values = pairs.split(',').map(|pair| pair.split_once(':').expect("a pair"));
        let (names, _): (Vec<_>, Vec<_>) = values.clone().unzip();
        assert_eq!(names[1..], ["\"hits\"", "\"peak\"", "\"peak_at\"", "\"total\""], "{line}");
        // Keys of these logs have colons (IPv6), but no comma.
        let key = values.clone().next().expect("a key").1.trim_matches('"');
        let numbers: Vec<&str> = values.skip(1).map(|(_, value)| value).collect();
        format!("{key} {}", numbers.join(" "))
    };
    run.out.lines().map(row).collect()
}

fn count(args: &[&str], expected: &[&str]) -> Run {
    let run = lately(&[&["count", "--json"], args].concat());
    assert_eq!(rows(&run), expected, "{args:?}: {}", run.err);
    assert_eq!(run.code, Some(0), "{args:?}");
    run
}

#[test]
fn a_disordered_log_with_many_zones() {
    let log = data("disordered.log");
    // The fifth hit of the first key is 300 s before 10:09:58, one second outside the window.
    let run = count(
        &[&log],
        &["192.0.2.1 4 4 1431857103 6", "2001:db8::7 2 2 1431857400 2", "192.0.2.9 0 2 1431856800 3"],
    );
    assert_eq!(
        run.err,
        format!(
            "lately: count: {log} is read as combined\nlately: count: 2 of 13 lines do not parse: not of the format (1, line 4), no time (1, line 10)\n"
        )
    );
    count(
        &[&log, "--at", "1431857103.9", "--window", "10s"],
        &["192.0.2.1 4 4 1431857103 6", "192.0.2.9 1 1 1431856501 3", "2001:db8::7 0 2 1431857400 2"],
    );
    for at in ["2015-05-17T10:05:03Z", "2015-05-17T12:05:03+02:00", "17/May/2015:10:05:03 +0000"] {
        count(&[&log, "--at", at, "--window", "10s", "--top", "1"], &["192.0.2.1 4 4 1431857103 6"]);
    }
    count(&[&log, "--top", "1", "--window", "3h"], &["192.0.2.1 6 6 1431857400 6"]);
    count(&[&log, "--at", "0", "--top", "1"], &["192.0.2.1 0 4 1431857103 6"]);
}

#[test]
fn a_cut_table_reports_the_number_of_keys() {
    let log = data("disordered.log");
    let stderr = |top: &str| lately(&["count", "--top", top, &log]).err;
    let first = "lately: count: the first 2 of 3 keys; --top 0 prints all\n";
    assert!(stderr("2").contains(first), "{}", stderr("2"));
    for all in ["0", "3", "9"] {
        assert!(!stderr(all).contains("the first"), "{all}: {}", stderr(all));
    }
}

#[test]
fn keys_of_an_access_log() {
    let log = data("disordered.log");
    let check = |key: &str, expected: &[&str]| {
        let run = lately(&["count", "--json", "--window", "1h", "--top", "0", "--key", key, &log]);
        let short = |row: String| {
            let mut words = row.split(' ').rev();
            let (total, key) = (words.next().expect("a total"), words.skip(3).collect::<Vec<_>>());
            format!("{} {total}", key.into_iter().rev().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(rows(&run).into_iter().map(short).collect::<Vec<_>>(), expected, "{key}");
    };
    check("status", &["200 6", "304 1", "400 1", "401 1", "404 1", "408 1"]);
    check("method", &["GET 7", "HEAD 1", "POST 1"]);
    check("user", &["- 9", "jo 1", "jo van dam 1"]);
    check("protocol", &["HTTP/1.1 8", "HTTP/1.0 1"]);
    check(
        "{user}@{{{ip}}}",
        &[
            "-@{192.0.2.1} 5",
            "-@{192.0.2.9} 3",
            "-@{2001:db8::7} 1",
            "jo van dam@{2001:db8::7} 1",
            "jo@{192.0.2.1} 1",
        ],
    );
}

#[test]
fn keys_are_bytes() {
    let log = data("disordered.log");
    let run = lately(&["count", "--json", "--key", "path", "--top", "0", &log]);
    // "/caf\xe9" in base64, and a path with an escaped quote as the server wrote it.
    assert!(run.out.contains("{\"key_b64\":\"L2NhZuk=\",\"hits\":1,"), "{}", run.out);
    assert!(run.out.contains(r#"{"key":"/a\\\"b","hits":1,"#), "{}", run.out);
    let run = lately(&["count", "--key", "path", "--top", "0", &log]);
    assert!(run.out.contains("/caf\\xe9\n"), "{}", run.out);
}

#[test]
fn json_lines() {
    let log = data("events.jsonl");
    let run = count(
        &[&log, "--window", "250ms", "--at", "1431857103.499"],
        &["192.0.2.1 2 2 1431857103.4 2", "192.0.2.2 1 1 1431857103.45 1", "café\\n 0 1 1431857104 1"],
    );
    assert_eq!(
        run.err,
        format!(
            "lately: count: {log} is read as json\nlately: count: 2 of 6 lines do not parse: not of the format (1, line 6), no time (1, line 5)\n"
        )
    );
    count(&[&log, "--key", "user.id"], &["7 3 3 1431857104 3", "8 1 1 1431857103 1"]);
    count(&[&log, "--key", "{ok}/{user.name}"], &["true/Jo 1 1 1431857103 1"]);
    count(&[&log, "--time-field", "ts", "--key", "ip"], &["192.0.2.1 1 1 1431857103 1"]);
}

#[test]
fn lines_of_a_regular_expression() {
    let log =
        b"at=1431857100 who=a\nat=1431857101.5 who=b\nat=1431857399 who=a\nat=1431857400 who=a\nnoise\n";
    let run = lately_reading(
        &["count", "-", "--json", "--format", r"regex:^at=(?<time>\S+) who=(?<who>\w+)", "--key", "who"],
        log,
    );
    assert_eq!(rows(&run), ["a 2 2 1431857399 3", "b 1 1 1431857101 1"]);
    assert_eq!(run.code, Some(0));
}

#[test]
fn json_is_exactly_this() {
    let log = b"{\"ip\":\"66.249.73.135\",\"time\":1431900000}\n{\"ip\":\"\\u0001\\\"\xc3\xa9\",\"time\":1431900000}";
    let run = lately_reading(&["count", "--json", "-"], log);
    assert_eq!(
        run.out,
        concat!(
            r#"{"key":"\u0001\"é","hits":1,"peak":1,"peak_at":1431900000,"total":1}"#,
            "\n",
            r#"{"key":"66.249.73.135","hits":1,"peak":1,"peak_at":1431900000,"total":1}"#,
            "\n"
        )
    );
    assert_eq!(run.err, "lately: count: standard input is read as json\n");
}

#[test]
fn a_table_for_people() {
    let run = lately_reading(&["count", "-"], b"{\"ip\":\"a\\u001b[2J\",\"time\":1431900000}\n");
    assert_eq!(
        run.out,
        "HITS  PEAK         PEAK AT (UTC)  TOTAL  KEY\n   1     1  2015-05-17T22:00:00Z      1  a\\u{1b}[2J\n"
    );
}

#[test]
fn gzip_is_detected_by_its_first_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut plain = std::fs::read(data("disordered.log")).expect("test data");
    plain.push(b'\n');
    // The file has two members, like logs that are compressed in pieces and concatenated.
    let (first, second) = plain.split_at(plain.len() / 2);
    let compressed = [first, second].map(gzip).concat();
    let expected = lately(&["count", "--json", &data("disordered.log")]);
    for name in ["access.log.gz", "access.log.1"] {
        let path = folder.path().join(name);
        std::fs::write(&path, &compressed).expect("a file");
        let run = lately(&["count", "--json", path.to_str().expect("a readable path")]);
        assert_eq!((&run.out, run.code), (&expected.out, expected.code), "{name}");
    }
    let run = lately_reading(&["count", "--json", "-"], &compressed);
    assert_eq!(run.out, expected.out, "standard input");
    let padded = [&compressed[..], &[0; 70_000]].concat();
    for (bytes, what) in
        [(padded.clone(), "zeros behind"), ([&padded[..], &gzip(b"")].concat(), "zeros between")]
    {
        let run = lately_reading(&["count", "--json", "-"], &bytes);
        assert_eq!((&run.out, run.code), (&expected.out, expected.code), "{what}");
    }
    let run = lately_reading(&["count", "--json", "-"], &[&padded[..], b"junk"].concat());
    assert_eq!((&run.out, run.code), (&expected.out, Some(2)), "junk behind");
    let run = lately_reading(&["count", "--json", "-"], &compressed[..compressed.len() - 20]);
    assert_eq!((run.out.is_empty(), run.code), (false, Some(2)), "cut off");
    assert!(run.err.contains("hint: the compressed data is damaged or cut off"), "{}", run.err);
}

/// A member of a gzip file.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory does not fail")
}

#[test]
fn several_logs_are_counted_as_one() {
    let (access, events) = (data("disordered.log"), data("events.jsonl"));
    let run = count(
        &[&access, &events, "--top", "2"],
        &["192.0.2.1 6 6 1431857103 8", "2001:db8::7 2 2 1431857400 2"],
    );
    let expected = format!(
        "lately: count: {access} is read as combined\nlately: count: {events} is read as json\nlately: count: 4 of 19 lines do not parse: not of the format (2, first {access}:4), no time (2, first {access}:10)\n"
    );
    assert_eq!(run.err, expected);
}

#[test]
fn an_empty_log_has_no_rows() {
    for input in ["", "\n", "\r\n  \n"] {
        for args in [&["count", "-"][..], &["count", "--json", "-"], &["count", "--strict", "-"]] {
            let run = lately_reading(args, input.as_bytes());
            let said = (run.out.as_str(), run.err.as_str(), run.code);
            assert_eq!(said, ("", "lately: count: there are no lines\n", Some(0)), "{args:?}");
        }
    }
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let log: String = (0..50_000).map(|n| format!("{{\"time\":1431857103,\"ip\":\"host-{n}\"}}\n")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    std::fs::write(&path, log).expect("a file");
    let mut child = command(&["count", "--json", "--top", "0", path.to_str().expect("a readable path")])
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(0) && message.ends_with(" is read as json\n"), "{message}");
}
