//! `lately top` in a pipe.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command};

use flate2::write::GzEncoder;
use lately::{Clock, SystemClock};

use crate::common::{Run, command, data, has, lately, lately_reading};

/// JSON lines, each with a key and its age in seconds, which is negative for a time ahead of the clock.
pub(crate) fn lines(of: &[(&str, i64)]) -> String {
    let now = SystemClock::new().now().as_millis() / 1_000;
    let line = |(key, ago): &(&str, i64)| format!("{{\"time\":{},\"ip\":\"{key}\"}}\n", now - ago);
    of.iter().map(line).collect()
}

/// Appends to a file. Creates it if it is missing.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file = File::options().append(true).create(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("room");
}

/// The rows without their times.
fn rows(run: &Run) -> Vec<String> {
    let row = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    run.out.lines().map(row).collect()
}

#[test]
fn standard_input_is_counted_to_its_end() {
    let log = lines(&[("a", 61), ("b", 4), ("a", 3), ("c", 2), ("a", 0), ("b", 1)]) + "hello\n";
    let run = lately_reading(&["top", "-", "--window", "1m"], log.as_bytes());
    let header = "(UTC) HITS RATE/s PEAK KEY";
    assert_eq!(rows(&run), [header, "2 0.03 2 a", "2 0.03 2 b", "1 0.02 1 c"], "{}", run.err);
    assert_eq!(run.code, Some(0));
    assert!(run.out.starts_with(" ") && run.out.contains("Z     2    0.03     2  a\n"), "{}", run.out);
    assert_eq!(
        run.err,
        "lately: top: standard input is read as json\n\
         lately: top: 1 of 7 lines does not parse: not of the format (1, line 7)\n"
    );
    let run = lately_reading(&["top", "-", "--strict"], log.as_bytes());
    assert_eq!((rows(&run).len(), run.code), (4, Some(2)));
    let run = lately_reading(&["top", "-"], b"");
    assert_eq!((run.out.as_str(), run.err.as_str(), run.code), ("", "", Some(0)));
}

/// Symptom: some pieces of a long standard input were not counted. Cause: the event after the last one of a round was
/// received and dropped. Fix: it is received only when it is handled.
#[test]
fn every_piece_of_a_long_standard_input_is_counted() {
    let line = lines(&[("a", 5)]);
    let count = (16 << 20) / line.len();
    let run = lately_reading(&["top", "-", "--json", "--window", "1h"], line.repeat(count).as_bytes());
    let last = run.out.lines().last().expect("a row");
    assert!(last.contains(&format!(",\"hits\":{count},")), "{count}: {last}");
    assert_eq!((run.err.as_str(), run.code), ("lately: top: standard input is read as json\n", Some(0)));
}

#[test]
fn top_takes_the_options_of_count() {
    let log =
        lines(&[("10.0.0.1", 2), ("10.0.0.2", 2), ("10.1.0.1", 2), ("192.0.2.1", 1), ("192.0.2.2", 400)]);
    let check = |args: &[&str], expected: &[&str]| {
        let run = lately_reading(&[&["top", "-"], args].concat(), log.as_bytes());
        assert_eq!(rows(&run)[1..], *expected, "{args:?}: {}", run.err);
        assert_eq!(run.code, Some(0), "{args:?}");
    };
    check(
        &["--key", "{ip/16/64}", "--window", "50"],
        &["2 0.04 2 10.0.0.0/16", "1 0.02 1 10.1.0.0/16", "1 0.02 1 192.0.0.0/16"],
    );
    check(
        &["--where", "ip~^192", "--format", "json", "--window", "1h"],
        &["1 0.00 1 192.0.2.1", "1 0.00 1 192.0.2.2"],
    );
    check(&["--top", "1", "--since", "5m"], &["1 0.00 1 10.0.0.1"]);
    check(&["--key", "*", "--window", "2h"], &["5 0.00 5 *"]);
}

#[test]
fn rows_can_be_json() {
    let log = lines(&[("a\\u001b", 3_000), ("a\\u001b", 2_999), ("a\\u001b", 0)]);
    let before = SystemClock::new().now().as_millis() / 1_000;
    let run = lately_reading(&["top", "-", "--json", "--window", "50"], log.as_bytes());
    let row: serde_json::Value = serde_json::from_str(&run.out).expect("an object");
    let at = row["at"].as_i64().expect("a time");
    assert!((before..before + 20).contains(&at), "{at}");
    let expected = format!("{{\"key\":\"a\\u001b\",\"at\":{at},\"hits\":1,\"rate\":0.02,\"peak\":2}}\n");
    assert_eq!((run.out, run.code), (expected, Some(0)));
}

#[test]
fn old_and_future_lines_are_reported() {
    let log = fs::read(data("guide/combined.log")).expect("test data");
    let run = lately_reading(&["top", "-"], &log);
    let note = "lately: top: the newest line, 2024-03-12T09:00:04Z, is older than the window; lately count shows old logs\n";
    assert_eq!((run.out.as_str(), run.code), ("", Some(0)));
    assert!(run.err.ends_with(note), "{}", run.err);
    let run = lately_reading(&["top", "-"], lines(&[("a", -600)]).as_bytes());
    assert_eq!((run.out.as_str(), run.code), ("", Some(0)));
    assert!(
        run.err.ends_with("lately: top: lines more than 10s ahead of the clock are not counted\n"),
        "{}",
        run.err
    );
}

#[test]
fn unreadable_input_is_an_error() {
    let check = |args: &[&str], expected: &str| {
        let run = lately(&[&["top"], args].concat());
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{args:?}");
        assert!(run.err.starts_with(&format!("lately: {expected}")), "{args:?}: {}", run.err);
        assert!(run.err.contains("\nhint: "), "{args:?}: {}", run.err);
    };
    check(&[env!("CARGO_MANIFEST_DIR")], &format!("{}: is a directory", env!("CARGO_MANIFEST_DIR")));
    check(&["-", "-"], "-: standard input cannot be read twice");
    check(
        &["x", "--window", "1500ms"],
        "command line: invalid value '1500ms' for '--window <W>': give whole seconds",
    );
    check(&["x", "--window", "0"], "command line: --window <W>: invalid duration '0'");
    check(
        &["x", "--every", "99ms"],
        "command line: invalid value '99ms' for '--every <D>': give 100ms or more",
    );
    check(
        &["x", "--format", "combined", "--key", "host"],
        "top: no field 'host' in the combined format: it has ip, ",
    );
    for (log, expected) in [
        ("hello\n", "standard input: no known format in the first 1 line"),
        (
            "{\"ip\":\"a\",\"time\":\"2015-05-17T10:05:03\"}\n",
            "top: none of 1 line parses: a time without a zone (1, line 1)",
        ),
    ] {
        let run = lately_reading(&["top", "-"], log.as_bytes());
        let error = run.err.lines().find(|line| line.starts_with(&format!("lately: {expected}")));
        assert!(error.is_some() && run.code == Some(2), "{}", run.err);
    }
    let args = ["top", "-", "--every", "100ms", "--window", "1s"];
    assert_eq!(lately_reading(&args, lines(&[("a", 0)]).as_bytes()).code, Some(0));
}

#[test]
fn compressed_files_and_pipes_are_read_to_their_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().expect("text");
    let (compressed, cut, pipe) = (path("log.gz"), path("cut.gz"), path("pipe"));
    let log = lines(&[("a", 1), ("b", 1), ("a", 2)]);
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    let bytes =
        encoder.write_all(log.as_bytes()).and_then(|()| encoder.finish()).expect("memory does not fail");
    fs::write(&compressed, &bytes).expect("room");
    fs::write(&cut, &bytes[..bytes.len() - 8]).expect("room");
    let run = lately(&["top", &compressed]);
    assert_eq!(
        (rows(&run)[1..].to_vec(), run.code),
        (vec!["2 0.01 2 a".into(), "1 0.00 1 b".into()], Some(0))
    );
    let run = lately(&["top", &cut]);
    assert_eq!((rows(&run).len(), run.code), (3, Some(2)));
    assert!(run.err.contains("hint: the compressed data is damaged or cut off"), "{}", run.err);
    if has("mkfifo") {
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
        let writer = {
            let (pipe, log) = (pipe.clone(), log.clone());
            std::thread::spawn(move || fs::write(pipe, log).expect("somebody reads"))
        };
        let run = lately(&["top", &pipe, &compressed]);
        writer.join().expect("it wrote");
        assert_eq!((rows(&run)[1].as_str(), run.code), ("4 0.01 4 a", Some(0)), "{}", run.err);
    }
}

/// `lately top`, ten times a second.
pub(crate) struct Following {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
    messages: String,
}

impl Following {
    pub(crate) fn new(args: &[&str]) -> Following {
        let mut child =
            command(&[&["top", "--json", "--every", "100ms"], args].concat()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let err = BufReader::new(child.stderr.take().expect("a pipe"));
        Following { child, out, err, messages: String::new() }
    }

    /// Waits until a key has this number of hits.
    pub(crate) fn wait(&mut self, key: &str, hits: u64) {
        let row = format!("{{\"key\":\"{key}\",\"at\":");
        let hits = format!(",\"hits\":{hits},");
        let mut line = String::new();
        for _ in 0..3_000 {
            line.clear();
            assert_ne!(self.out.read_line(&mut line).expect("text"), 0, "it ended without {row}{hits}");
            if line.starts_with(&row) && line.contains(&hits) {
                return;
            }
        }
        panic!("no {row}{hits}: {line}");
    }

    /// Waits for a message that contains `part`.
    pub(crate) fn wait_for_message(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(
                self.err.read_line(&mut line).expect("text"),
                0,
                "it ended without the message '{part}'"
            );
            self.messages += &line;
        }
    }

    /// Sends a signal. Returns the messages and the exit code.
    pub(crate) fn end(mut self, signal: &str) -> (String, Option<i32>) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
        let mut rest = Vec::new();
        self.out.read_to_end(&mut rest).expect("it ends");
        self.err.read_to_string(&mut self.messages).expect("text");
        (std::mem::take(&mut self.messages), self.child.wait().expect("it ends").code())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_log_is_followed_through_rotations() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    append(&log, &lines(&[("a", 30), ("a", 1)]));
    let name = log.to_str().expect("text");
    let mut following = Following::new(&[name]);
    following.wait("a", 2);
    // A line in two pieces.
    let line = lines(&[("a", 0)]);
    append(&log, &line[..10]);
    append(&log, &line[10..]);
    following.wait("a", 3);
    // A rotation by rename; the writer continues the old file.
    let mut writer = File::options().append(true).open(&log).expect("a file");
    fs::rename(&log, folder.path().join("log.1")).expect("a rename");
    writer.write_all(lines(&[("a", 0), ("a", 0)]).as_bytes()).expect("room");
    append(&log, &lines(&[("b", 0)]));
    following.wait("a", 5);
    following.wait("b", 1);
    writer.write_all(lines(&[("a", 0)]).as_bytes()).expect("room");
    following.wait("a", 6);
    // A rotation by copy and truncation, with lines that were not read yet. The first line differs from the earlier one,
    // because with the same bytes it would be the same file.
    append(&log, &lines(&[("b", 0), ("b", 0)]));
    fs::copy(&log, folder.path().join("log.2")).expect("a copy");
    File::options().write(true).truncate(true).open(&log).expect("a file");
    append(&log, &lines(&[("cc", 0)]));
    following.wait("b", 3);
    following.wait("cc", 1);
    // Deleted and made again.
    fs::remove_file(&log).expect("it is there");
    append(&log, &lines(&[("b", 0)]));
    following.wait("b", 4);
    let expected = format!("lately: top: {name} is read as json\n");
    assert_eq!(following.end("INT"), (expected, Some(0)));
}

/// Symptom: `lately top access.log*` counted each line again after a rotation.
#[test]
fn logs_and_their_rotated_files_are_counted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    append(&path("log"), &lines(&[("a", 30), ("a", 1)]));
    append(&path("log.1"), &lines(&[("a", 60)]));
    std::os::unix::fs::symlink("log", path("link")).expect("a link");
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    let old = lines(&[("a", 90)]);
    let bytes =
        encoder.write_all(old.as_bytes()).and_then(|()| encoder.finish()).expect("memory does not fail");
    fs::write(path("log.2.gz"), bytes).expect("room");
    let names = ["link", "log", "log.1", "log.2.gz", "log.2.gz"].map(|name| path(name).display().to_string());
    let mut following = Following::new(&names.each_ref().map(String::as_str));
    following.wait("a", 4);
    for round in 0..2 {
        fs::rename(path("log.1"), path("log.0")).expect("a rename");
        fs::rename(path("log"), path("log.1")).expect("a rename");
        append(&path("log.1"), &lines(&[("a", 0)]));
        append(&path("log"), &lines(&[("a", 0), ("b", 0)]));
        following.wait("a", 6 + 2 * round);
        following.wait("b", 1 + round);
    }
    // The numbers stay the same after several polls: a new key marks the time, and the others are unchanged.
    append(&path("log"), &lines(&[("c", 0)]));
    following.wait("c", 1);
    following.wait("a", 8);
    assert_eq!(following.end("TERM").1, Some(0));
}

/// The parts of a line, as written by a container runtime, are one line when the last part comes, even if a rotation is
/// between them.
#[test]
fn a_partial_line_is_counted_with_its_last_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let record = |tag: &str, text: &str| format!("2024-03-12T09:00:01.5Z stdout {tag} {text}\n");
    let whole = |key: &str| record("F", lines(&[(key, 0)]).trim_end());
    let line = lines(&[("a", 0)]);
    let (start, end) = line.trim_end().split_at(5);
    append(&log, &(whole("b") + &record("P", start)));
    // The runtime's time is long past.
    let mut following = Following::new(&[log.to_str().expect("text"), "--time-field", "time"]);
    following.wait("b", 1);
    // After a rotation.
    fs::rename(&log, folder.path().join("log.1")).expect("a rename");
    append(&log, &(record("F", end) + &whole("c") + &record("P", start)));
    following.wait("a", 1);
    following.wait("c", 1);
    let (messages, code) = following.end("TERM");
    assert!(!messages.contains("parse") && code == Some(0), "{messages}");
}

#[test]
fn a_problem_with_a_file_is_shown_while_it_lasts() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let name = log.to_str().expect("text");
    append(&log, &lines(&[("a", 1)]));
    let mut following = Following::new(&[name]);
    following.wait("a", 1);
    for (key, round) in [("bb", 1), ("ccc", 2)] {
        fs::remove_file(&log).and_then(|()| fs::create_dir(&log)).expect("a folder");
        following.wait_for_message("is no plain file");
        fs::remove_dir(&log).expect("it is empty");
        append(&log, &lines(&[(key, 1)]));
        following.wait(key, 1);
        fs::write(&log, lines(&[("d", 1)])).expect("room");
        following.wait("d", round);
    }
    let (messages, code) = following.end("TERM");
    assert!(
        messages
            .contains(&format!("lately: top: {name} was truncated without a copy: lines may be missing\n")),
        "{messages}"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn a_missing_log_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    append(&path("one"), &lines(&[("a", 1)]));
    let (one, two) = (path("one").display().to_string(), path("two").display().to_string());
    let mut following = Following::new(&[&one, &two]);
    following.wait("a", 1);
    append(&path("two"), &lines(&[("a", 1)]));
    following.wait("a", 2);
    let (messages, code) = following.end("TERM");
    let mut messages: Vec<&str> = messages.lines().collect();
    messages.sort_unstable();
    let mut expected = [
        format!("lately: top: {one} is read as json"),
        format!("lately: top: {two} is not there: waiting for it"),
        format!("lately: top: {two} is read as json"),
    ];
    expected.sort_unstable();
    assert_eq!((messages, code), (expected.iter().map(String::as_str).collect(), Some(0)));
}
