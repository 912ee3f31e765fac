//! `lately count`: its errors and exit codes.

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
    refused(&["-"], "standard input", "no known format in the first 1 line");
    let run = lately_reading(&["count", "--key", "host", "-"], LINE.as_bytes());
    assert!(run.err.contains("standard input: no field 'host' in the combined format"), "{}", run.err);
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)));
    // The format is known. Its time is not in a field that can be named.
    for [option, value] in [["--time", "{at}"], ["--time-field", "at"]] {
        let run = lately_reading(&["count", option, value, "-"], LINE.as_bytes());
        assert!(run.err.contains("the combined format has its time in a fixed place"), "{}", run.err);
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)));
    }
}

const LINE: &str = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n";

#[test]
fn lines_that_do_not_parse_are_fatal_to_a_strict_count_only() {
    let log = format!("{LINE}hello\n");
    for (strict, code) in [(&[][..], 0), (&["--strict"], 2)] {
        let run = lately_reading(&[&["count", "-", "--json"], strict].concat(), log.as_bytes());
        assert!(run.out.starts_with("{\"key\":\"192.0.2.1\",\"hits\":1,"), "{}", run.out);
        assert_eq!(run.code, Some(code));
        let message = "lately: count: standard input is read as combined\n\
             lately: count: 1 of 2 lines does not parse: not of the format (1, line 2)\n";
        assert!(run.err.starts_with(message), "{}", run.err);
    }
}

/// Symptom: `count` printed nothing and succeeded when no line parsed. Fix: that is an error, which names the recognised
/// format.
#[test]
fn a_log_without_a_parsed_line_is_an_error() {
    let check = |args: &[&str], log: &[u8], cause: &str, hint: &str| {
        for command in [&["count"][..], &["backtest", "--limit", "5/1m"]] {
            let run = lately_reading(&[command, &["-"], args].concat(), log);
            assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{}", run.err);
            assert!(run.err.contains(cause) && run.err.contains(hint), "{}", run.err);
        }
    };
    let combined = &["--format", "combined"];
    check(
        combined,
        b"hello\n",
        "none of 1 line parses: not of the format (1, line 1)",
        "hint: describe the lines with --format and --key",
    );
    check(combined, b"1\0.\x002\0.\x003\0\n\0", "this is UTF-16, and none of 2 lines parses", "hint: ");
    check(&[], b"1\0.\x002\0.\x003\0\n\0", "this is UTF-16, not a log", "hint: ");
    check(&[], b"\x04\x22\x4d\x18abc", "this is lz4, not a log", "hint: ");
    let civil = b"{\"time\":\"2024-03-12T09:00:01\",\"ip\":\"a\"}\n";
    check(
        &[],
        civil,
        "none of 1 line parses: a time without a zone (1, line 1)",
        "hint: set the zone of the times, with --zone UTC",
    );
    let latency = b"{\"time\":0.037,\"at\":\"x\",\"ip\":\"a\"}\n";
    let tried = "tried time, timestamp, ts, @timestamp, time_iso8601, msec, time_local, eventTime, __REALTIME_TIMESTAMP; there are ";
    check(&[], latency, "a number that is no time from 1990 to tomorrow (1, line 1)", tried);
    // The fields of the lines are listed, escaped for a terminal.
    let fields = b"{\"time\":1710234000,\"who\":{\"name\":\"x\",\"tags\":[1]},\"a\\u001b[2J\":1}\n";
    let cause = "none of 1 line parses: no such field for the key (1, line 1)";
    check(
        &[],
        fields,
        cause,
        "hint: name the field of the key with --key: tried ip; there are a\\u{1b}[2J, time, who.name\n",
    );
    check(&["--key", "{who.name} {nam}"], fields, cause, "tried nam; there are ");
    check(&["--key", "nam"], b"time=1710234000 name=x\n", cause, "tried nam; there are time, name\n");
    let digits = b"20240312094422 a\n";
    check(
        &["--format", r"regex:(?<time>\d+) (?<ip>.)"],
        digits,
        "a number that is no time",
        "hint: set the format of the times with --time-format",
    );
}

/// Symptom: three comments hid the reason why all other lines did not parse. Fix: each reason has its number of lines and
/// its first line.
#[test]
fn each_reason_has_its_count_and_first_line() {
    let civil = "{\"time\":\"2024-03-12T09:00:01\",\"ip\":\"a\"}\n";
    let good = "{\"time\":1431857103,\"ip\":\"a\"}\n";
    let log = format!("#a\n#b\n#c\n{good}{civil}hello\n{civil}{good}");
    let run = lately_reading(&["count", "-", "--json"], log.as_bytes());
    assert_eq!(run.code, Some(0));
    let message = "lately: count: 3 of 5 lines do not parse: not of the format (1, line 6), a time without a zone (2, first line 5)\n\
         hint: set the zone of the times, with --zone UTC or --zone Europe/Berlin\n";
    assert!(run.err.ends_with(message), "{}", run.err);
    let run = lately_reading(&["count", "-", "--json", "--zone", "UTC"], log.as_bytes());
    assert!(
        run.out.starts_with("{\"key\":\"a\",\"hits\":2,\"peak\":2,\"peak_at\":1431857103,\"total\":4}"),
        "{}",
        run.out
    );
}

#[test]
fn invalid_options_are_refused() {
    let log = data("disordered.log");
    let cases: &[(&[&str], &str)] = &[
        (&[], "<FILE>..."),
        (&["--window", "5 min"], "invalid duration '5 min'"),
        (&["--window", "0"], "invalid duration '0'"),
        (&["--at", "noon"], "invalid time 'noon'"),
        (&["--top", "many"], "invalid value 'many' for '--top <K>': give a number of rows, 0 for all"),
        (&["--step", "0"], "invalid duration '0'"),
        (&["--top", "-3"], "invalid value '-3' for '--top <K>': give a number of rows, 0 for all"),
        (&["--at", "-1"], "invalid time '-1'"),
        (
            &["--at", "17/May/2015:12:05:03"],
            "give Unix seconds, RFC 3339 with a zone, 17/May/2015:10:05:03 +0000, or 2h",
        ),
        (&["--key", "{ip"], "is not closed"),
        (
            &["--format", "apache"],
            "unknown format 'apache': give auto, combined, common, vhost, json, logfmt,",
        ),
        (&["--format", "nginx:$status"], "invalid log format '$status': it has no time, $time_local"),
        (&["--zone", "Mars"], "unknown time zone 'Mars': give a name such as Europe/Berlin, UTC"),
        (&["--time-format", "%H"], "invalid time format '%H'"),
        (&["--where", "status"], "invalid condition 'status': it has no operator"),
        (
            &["--since", "2015-05-17T10:05:03"],
            "--since <TIME>: invalid time '2015-05-17T10:05:03': it has no zone; ",
        ),
        (&["--step", "1m", "--window", "5m"], "cannot be used with"),
        (&["--json", "--csv"], "cannot be used with"),
        (&["--format", "regex:("], "invalid regular expression: unclosed group"),
        (&["--colour"], "--colour"),
    ];
    for (args, cause) in cases {
        let file = if args.is_empty() { &[][..] } else { &[log.as_str()] };
        refused(&[args, file].concat(), "command line", cause);
    }
    refused(&["--format", "common", "--key", "agent", &log], "count", "it has ip, path, url, status");
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
    let run = lately_reading(&["count", "--strict", "-"], b"{\"time\":1431857103,\"ip\":\"a\"}\n\n");
    assert_eq!((run.code, run.err.as_str()), (Some(0), "lately: count: standard input is read as json\n"));
}

#[test]
fn help_goes_to_standard_output_and_errors_do_not() {
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
