//! `lately count` on a real or a generated access log, against an independent program.

use crate::common::{access_log, has, lately, python};

fn reference(log: &str, key: &str, window_s: &str, at: &str) -> String {
    let run = python("count_reference.py", &[log, key, window_s, at]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    run.out
}

#[test]
fn every_number_of_a_real_log_matches() {
    if !has("python3") {
        return;
    }
    let log = access_log();
    let log = log.path.as_str();
    for (key, window_s, at) in [
        ("ip", "300", "newest"),
        ("ip", "60", "1431900000"),
        ("ip", "86400", "1432029914"),
        ("path", "3600", "newest"),
        ("{ip} {status}", "1", "1431864303"),
    ] {
        let mut args = vec!["count", log, "--json", "--top", "0", "--key", key, "--window", window_s];
        if at != "newest" {
            args.extend(["--at", at]);
        }
        let run = lately(&args);
        assert_eq!(run.code, Some(0), "{}", run.err);
        let expected = reference(log, key, window_s, at);
        assert!(run.out.lines().count() > 10, "{key}: too few rows for a comparison");
        for (line, (found, expected)) in run.out.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{key} in {window_s} s at {at}, row {}", line + 1);
        }
        assert_eq!(run.out.lines().count(), expected.lines().count(), "{key} in {window_s} s at {at}");
    }
}
