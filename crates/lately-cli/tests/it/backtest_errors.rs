//! `lately backtest`: its errors and exit codes.

use lately_logs::limits::MAX_LIMITS;

use crate::common::{data, lately, lately_reading};

/// Runs `lately backtest`. Expects exit code 2, nothing on standard output, and exactly these two lines.
fn refused(args: &[&str], error: &str, hint: &str) {
    let run = lately_reading(&[&["backtest"], args].concat(), b"hello\n");
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{args:?}: {}", run.err);
    assert_eq!(run.err, format!("lately: {error}\nhint: {hint}\n"), "{args:?}");
}

#[test]
fn bad_options_of_backtest_are_refused() {
    let log = data("disordered.log");
    let shape = "give MAX/WINDOW, such as 100/1m".to_owned();
    let max = |max: &str| {
        format!("invalid MAX '{max}': give a whole number from 0 to 9223372036854775807, as in 100/1m")
    };
    let window = |window: &str| {
        format!(
            "WINDOW: invalid duration '{window}': give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s"
        )
    };
    for (bad, wrong) in [
        ("100", shape.clone()),
        ("", shape.clone()),
        ("-5", shape),
        ("/1m", max("")),
        ("many/1m", max("many")),
        ("x/1m", max("x")),
        ("+5/1m", max("+5")),
        ("1m/5m", max("1m")),
        ("100/", window("")),
        ("5/1min", window("1min")),
        ("5/0", window("0")),
    ] {
        refused(
            &[&log, "--limit", bad],
            &format!("command line: --limit <MAX/WINDOW>: invalid limit '{bad}': {wrong}"),
            "see lately backtest --help",
        );
    }
    let usage = "usage: lately backtest <--limit <MAX/WINDOW>|--alert <NAME>> <FILE>...";
    let missing = "command line: the following required arguments were not provided:";
    refused(&[&log], &format!("{missing} <--limit <MAX/WINDOW>|--alert <NAME>>"), usage);
    refused(&["--limit", "5/1m"], &format!("{missing} <FILE>..."), usage);
    refused(
        &[&log, "--limit", "5/1m", "--lockout", "soon"],
        "command line: --lockout <D>: invalid duration 'soon': give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s",
        "see lately backtest --help",
    );
    let limits = ["--limit", "5/1m"].repeat(MAX_LIMITS + 1);
    let most = &limits[2..];
    refused(
        &[&[log.as_str()], &limits[..]].concat(),
        "--limit: 17 limits are too many: give at most 16",
        "see lately backtest --help",
    );
    assert_eq!(lately(&[&["backtest", &log], most].concat()).code, Some(0));
}

#[test]
fn logs_and_options_are_refused_as_by_count() {
    let with =
        |args: &[&str], error: &str, hint: &str| refused(&[&["--limit", "5/1m"], args].concat(), error, hint);
    let like = "describe the lines with --format and --key, see lately backtest --help";
    with(
        &["missing.log"],
        "missing.log: No such file or directory (os error 2)",
        "give the path of a log, or - for standard input",
    );
    let fields = "no field 'host' in the combined format: it has ip, path, url, status, method, user, request, protocol, bytes, forwarded, peer, referer, agent";
    with(&["-"], "standard input: no known format in the first 1 line", like);
    with(&["--key", "host", "--format", "combined", "-"], &format!("backtest: {fields}"), like);
}

#[test]
fn lines_that_do_not_parse_fail_a_strict_backtest_only() {
    let log = data("disordered.log");
    let lax = lately(&["backtest", "--limit", "2/1m", &log]);
    let strict = lately(&["backtest", "--limit", "2/1m", "--strict", &log]);
    assert_eq!((lax.code, strict.code, strict.out), (Some(0), Some(2), lax.out));
    let hint = "hint: the rows count the other lines; --format may help\n";
    assert_eq!(strict.err, format!("{}{hint}", lax.err));
}
