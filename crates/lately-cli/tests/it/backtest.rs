//! `lately backtest`: its decisions and its output.

use crate::common::{Run, data, lately, lately_reading};

const UNPARSED: &str =
    "lately: backtest: 2 of 13 lines do not parse: not of the format (1, line 4), no time (1, line 10)\n";

/// The message about a log whose format was detected.
fn detected(log: &str, format: &str) -> String {
    format!("lately: backtest: {log} is read as {format}\n")
}

const START: f64 = 946_684_800.0;

/// Runs `lately backtest`, which must exit with 0.
fn backtest(args: &[&str], input: &str) -> Run {
    let run = lately_reading(&[&["backtest"], args].concat(), input.as_bytes());
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.err);
    run
}

/// JSON lines with one request each. Times are seconds since the start of 2000.
fn requests(keys_and_times: &[(&str, &str)]) -> String {
    let line = |(key, time): &(&str, &str)| {
        let seconds = START + time.parse::<f64>().expect("a number");
        format!("{{\"ip\":\"{key}\",\"time\":{seconds:.3}}}\n")
    };
    keys_and_times.iter().map(line).collect()
}

#[test]
fn a_disordered_log_is_replayed_by_its_times() {
    let run = backtest(&[&data("disordered.log"), "--limit", "2/1m", "--lockout", "5m"], "");
    assert_eq!(
        run.out,
        "DENIED  ALLOWED    FIRST DENIED (UTC)  KEY\n\
         \u{20}    4        2  2015-05-17T10:05:03Z  192.0.2.1\n\
         \u{20}    0        3                     -  192.0.2.9\n\
         \u{20}    0        2                     -  2001:db8::7\n"
    );
    let sums = "lately: backtest: 4 of 11 requests and 1 of 3 keys would have been denied, with 1 lockout\n";
    let detected_format = detected(&data("disordered.log"), "combined");
    assert_eq!(run.err, format!("{detected_format}{sums}{UNPARSED}"));
    // Without the lockout, the requests five minutes later are allowed.
    let run = backtest(&[&data("disordered.log"), "--limit", "2/1m", "--top", "1"], "");
    assert!(run.out.ends_with("\n     2        4  2015-05-17T10:05:03Z  192.0.2.1\n"), "{}", run.out);
    let sums = "lately: backtest: 2 of 11 requests and 1 of 3 keys would have been denied\n";
    assert_eq!(run.err, format!("{detected_format}{sums}{UNPARSED}"));
}

#[test]
fn json_is_exactly_this() {
    let log = requests(&[("b", "7.25"), ("b", "7.2"), ("a\\n", "1"), ("b", "7.249"), ("c", "9"), ("c", "8")]);
    let run = backtest(&["-", "--json", "--limit", "1/50ms"], &log);
    assert_eq!(
        run.out,
        concat!(
            r#"{"key":"b","allowed":2,"denied":1,"first_denied_at":946684807.249}"#,
            "\n",
            r#"{"key":"c","allowed":2,"denied":0,"first_denied_at":null}"#,
            "\n",
            r#"{"key":"a\n","allowed":1,"denied":0,"first_denied_at":null}"#,
            "\n"
        )
    );
    let sums = "lately: backtest: 1 of 6 requests and 1 of 3 keys would have been denied\n";
    assert_eq!(run.err, detected("standard input", "json") + sums);
}

#[test]
fn sums_are_in_words() {
    let check = |args: &[&str], log: &[(&str, &str)], expected: &str| {
        let run = backtest(&[&["-", "--limit", "0/1"], args].concat(), &requests(log));
        let detected = if log.is_empty() { String::new() } else { detected("standard input", "json") };
        assert_eq!(run.err, format!("{detected}lately: backtest: {expected}\n"), "{args:?}");
    };
    check(&[], &[], "0 of 0 requests and 0 of 0 keys would have been denied");
    check(&[], &[("a", "1")], "1 of 1 request and 1 of 1 key would have been denied");
    let two = [("a", "1"), ("a", "3")];
    check(
        &["--lockout", "2s"],
        &two,
        "2 of 2 requests and 1 of 1 key would have been denied, with 2 lockouts",
    );
    check(
        &["--lockout", "3s"],
        &two,
        "2 of 2 requests and 1 of 1 key would have been denied, with 1 lockout",
    );
}

#[test]
fn all_limits_have_to_allow() {
    let log = requests(&[("a", "0"), ("a", "1"), ("a", "2"), ("a", "70"), ("a", "71"), ("a", "131")]);
    let check = |limits: &[&str], allowed: u64, denied: u64| {
        let mut args = vec!["-", "--json"];
        limits.iter().for_each(|limit| args.extend(["--limit", limit]));
        let run = backtest(&args, &log);
        let expected = format!("{{\"key\":\"a\",\"allowed\":{allowed},\"denied\":{denied},");
        assert!(run.out.starts_with(&expected), "{limits:?}: {}", run.out);
    };
    check(&["2/1m"], 5, 1);
    check(&["4/1h"], 4, 2);
    check(&["2/1m", "3/1h"], 3, 3);
    check(&["3/3600", "2/60"], 3, 3);
    check(&["100/1m", "0/250ms"], 0, 6);
}

#[test]
fn keys_are_bytes() {
    let log = data("disordered.log");
    let run = backtest(&[&log, "--json", "--limit", "0/1m", "--key", "path", "--top", "0"], "");
    // "/caf\xe9" in base64.
    assert!(run.out.contains("{\"key_b64\":\"L2NhZuk=\",\"allowed\":0,\"denied\":1,"), "{}", run.out);
    let run = backtest(&[&log, "--limit", "1/1m", "--key", "path", "--top", "0"], "");
    assert!(run.out.contains(" -  /caf\\xe9\n"), "{}", run.out);
}

#[test]
fn top_cuts_the_rows_but_not_the_sums() {
    let times = |key: usize| (0..=key).map(move |time| (format!("k{key}"), time.to_string()));
    let all: Vec<(String, String)> = (0..15).flat_map(times).collect();
    let log = requests(&all.iter().map(|(key, time)| (key.as_str(), time.as_str())).collect::<Vec<_>>());
    let with = |args: &[&str]| backtest(&[&["-", "--json", "--limit", "3/1h"], args].concat(), &log);
    let everything = with(&["--top", "0"]);
    assert_eq!(everything.out.lines().count(), 15);
    for (args, rows) in [(&[][..], 10), (&["--top", "3"], 3), (&["--top", "100"], 15)] {
        let run = with(args);
        assert_eq!(run.out, everything.out.split_inclusive('\n').take(rows).collect::<String>(), "{args:?}");
        assert_eq!(run.err, everything.err, "{args:?}");
    }
    assert!(everything.err.contains("78 of 120 requests and 12 of 15 keys"), "{}", everything.err);
}

#[test]
fn several_logs_are_replayed_as_one() {
    let (access, events) = (data("disordered.log"), data("events.jsonl"));
    let run = lately(&["backtest", &access, &events, "--json", "--top", "1", "--limit", "2/1m"]);
    // The requests of 10:04:58 and 10:04:59 fill the window. Four more are denied: two at 10:05:03, one 250 ms and one
    // 400 ms later.
    assert_eq!(
        run.out,
        "{\"key\":\"192.0.2.1\",\"allowed\":4,\"denied\":4,\"first_denied_at\":1431857103}\n"
    );
    let unparsed = format!(
        "lately: backtest: 4 of 19 lines do not parse: not of the format (2, first {access}:4), no time (2, first {access}:10)\n"
    );
    let sums = "lately: backtest: 4 of 15 requests and 1 of 5 keys would have been denied\n";
    let detected = detected(&access, "combined") + &detected(&events, "json");
    assert_eq!((run.err, run.code), (format!("{detected}{sums}{unparsed}"), Some(0)));
}

#[test]
fn an_alert_of_the_config_is_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    let alerts = "[[alert]]\nname = \"busy\"\nmatch = \"host:*\"\nabove = 2\nwindow = \"1s\"\n\
        [[alert]]\nname = \"silent\"\nmatch = \"host:a\"\nbelow = 1\nwindow = \"2s\"\n";
    std::fs::write(&path, alerts).expect("room");
    let config = path.to_str().expect("text");
    let log = requests(&[
        ("a", "0"),
        ("a", "1"),
        ("b", "1.5"),
        ("a", "1.75"),
        ("a", "1.9"),
        ("c", "2.25"),
        ("b", "9"),
    ]);
    let args = ["-", "--key", "host:{ip}", "--config", config];
    let run = backtest(&[&args[..], &["--alert", "busy", "--json"]].concat(), &log);
    assert_eq!(
        run.out,
        concat!(
            r#"{"started_at":946684801.799,"ended_at":946684802.799,"hits":3,"baseline":null,"peak":4,"keys":["#,
            r#"{"key":"host:a","hits":2,"share":0.6666666666666666},{"key":"host:b","hits":1,"share":0.3333333333333333}]}"#,
            "\n"
        )
    );
    let found = "lately: backtest: standard input is read as json\n";
    let summary = "lately: backtest: alert busy starts 1 time: 7 hits of host:*, 0 of other keys\n";
    assert_eq!(run.err, format!("{found}{summary}"));
    let run = backtest(&[&args[..], &["--alert", "silent"]].concat(), &log);
    assert_eq!(
        run.out,
        "           STARTED (UTC)  ENDED (UTC)  HITS  PEAK  MOST BY\n\
         2000-01-01T00:00:03.999Z            -     0     0  \n"
    );
    let refused = |more: &[&str]| {
        let run = lately_reading(&[&["backtest"], more].concat(), log.as_bytes());
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{more:?}");
        run.err
    };
    assert_eq!(
        refused(&[&args[..], &["--alert", "no"]].concat()),
        "lately: --alert: no alert is named 'no': the config has busy, silent\nhint: give the name of an [[alert]]\n"
    );
    assert!(refused(&["-", "--alert", "busy"]).contains("--config"));
    assert!(refused(&[&args[..], &["--alert", "busy", "--limit", "1/s"]].concat()).contains("--limit"));
}
