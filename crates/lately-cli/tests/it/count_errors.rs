//! `lately count`: what it refuses, with which code and words.

use crate::common::{data, lately, lately_reading};

/// Runs `count` and expects exit code 2, nothing on standard output, `lately: {what}: …` with `cause`
/// in it, and a hint.
fn refused(args: &[&str], what: &str, cause: &str) {
    let run = lately_reading(&[&["count"], args].concat(), b"hello\n");
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{args:?}: {}", run.err);
    let lines: Vec<&str> = run.err.lines().collect();
    assert!(lines[0].starts_with(&format!("lately: {what}: ")), "{args:?}: {}", run.err);
    assert!(lines[0].contains(cause), "{args:?}: {}", run.err);
    assert!(lines.last().is_some_and(|line| line.starts_with("hint: ")), "{args:?}: {}", run.err);
}

#[test]
fn logs_that_cannot_be_read() {
    let log = data("disordered.log");
    refused(&[&log, "missing.log"], "missing.log", "No such file");
    refused(&[&data("")], &data(""), "is a directory");
    refused(&["-", "-"], "-", "twice");
    refused(&["-", "--strict"], "count", "1 of 1 line does not parse: line 1 (not of the format)");
    refused(&["--key", "host", "-"], "standard input", "no field 'host' in the combined format");
}

#[test]
fn lines_that_do_not_parse_are_fatal_to_a_strict_count_only() {
    for (strict, code) in [(&[][..], 0), (&["--strict"], 2)] {
        let run = lately_reading(&[&["count", "-"], strict].concat(), b"hello\n");
        assert_eq!((run.out.as_str(), run.code), ("", Some(code)));
        assert_eq!(
            run.err,
            "lately: count: 1 of 1 line does not parse: line 1 (not of the format)\n\
             hint: --format and --key say what the lines are like, see lately count --help\n"
        );
    }
    let run = lately_reading(&["count", "-"], b"{\"time\":1,\"ip\":\"a\"}\nhello\n");
    assert!(run.err.starts_with("lately: count: 1 of 2 lines does not parse: "), "{}", run.err);
}

#[test]
fn options_that_cannot_be_meant() {
    let log = data("disordered.log");
    let cases: &[(&[&str], &str)] = &[
        (&[], "<FILE>..."),
        (&["--window", "5 min"], "invalid duration '5 min'"),
        (&["--window", "0"], "invalid duration '0'"),
        (&["--at", "noon"], "invalid time 'noon'"),
        (&["--top", "many"], "invalid value 'many' for '--top <K>': give a number of rows, 0 for all"),
        (&["--top", "-3"], "invalid value '-3' for '--top <K>': give a number of rows, 0 for all"),
        (&["--at", "-1"], "invalid time '-1'"),
        (
            &["--at", "17/May/2015:12:05:03"],
            "give Unix seconds, RFC 3339 with a zone, or 17/May/2015:10:05:03 +0000",
        ),
        (&["--key", "{ip"], "is not closed"),
        (&["--format", "apache"], "unknown format 'apache': give combined, common, json or regex:RE"),
        (&["--format", "regex:("], "invalid regular expression: unclosed group"),
        (&["--colour"], "--colour"),
    ];
    for (args, cause) in cases {
        let file = if args.is_empty() { &[][..] } else { &[log.as_str()] };
        refused(&[args, file].concat(), "command line", cause);
    }
    refused(&["--format", "common", "--key", "agent", &log], "count", "it has ip, path, status");
    refused(&["--format", "regex:(?<time>.)", &log], "count", "no field 'ip'");
    refused(&["--format", "regex:(?<ip>.)", &log], "count", "no field 'time'");
    refused(&["--format", "common", "--time-field", "at", &log], "count", "fixed place");
}

#[test]
fn strict_prints_the_rows_and_fails() {
    let log = data("disordered.log");
    let lax = lately(&["count", "--json", &log]);
    let strict = lately(&["count", "--json", "--strict", &log]);
    assert_eq!((strict.code, strict.out), (Some(2), lax.out));
    assert!(strict.err.starts_with(&lax.err) && strict.err.contains("\nhint: "), "{}", strict.err);
    let run = lately_reading(&["count", "--strict", "-"], b"{\"time\":1,\"ip\":\"a\"}\n\n");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
}

#[test]
fn help_is_data_and_bad_usage_is_not() {
    for args in [&["--help"][..], &["count", "--help"], &["--version"]] {
        let run = lately(args);
        assert_eq!((run.code, run.err.as_str(), run.out.is_empty()), (Some(0), "", false), "{args:?}");
    }
    for (args, expected) in [
        (&[][..], "lately: command line: no command is given\nhint: lately --help lists the commands\n"),
        (
            &["cuont"],
            "lately: command line: unrecognized subcommand 'cuont'\nhint: a similar subcommand exists: 'count'\n",
        ),
    ] {
        let run = lately(args);
        assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(2), "", expected), "{args:?}");
    }
}
