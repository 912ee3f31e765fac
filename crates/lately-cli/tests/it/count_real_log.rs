//! `lately count` on a real access log, against an independent program.

use std::path::Path;
use std::process::Command;

use crate::common::{beside, lately};

/// Where the log is: `LATELY_TEST_LOG`, or beside the repository.
fn log() -> Option<String> {
    let beside = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/apache_access.log");
        path.is_file().then(|| path.display().to_string())
    };
    std::env::var("LATELY_TEST_LOG").ok().or_else(beside)
}

fn reference(log: &str, key: &str, window_s: &str, at: &str) -> String {
    let output = Command::new("python3")
        .arg(beside("count_reference.py"))
        .args([log, key, window_s, at])
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the reference prints UTF-8")
}

#[test]
fn every_number_of_a_real_log() {
    let Some(log) = log() else {
        let name = "every_number_of_a_real_log";
        return crate::common::skip(name, "no log: set LATELY_TEST_LOG to a combined access log");
    };
    for (key, window_s, at) in [
        ("ip", "300", "newest"),
        ("ip", "60", "1431900000"),
        ("ip", "86400", "1432029914"),
        ("path", "3600", "newest"),
        ("{ip} {status}", "1", "1431864303"),
    ] {
        let mut args = vec!["count", &log, "--json", "--top", "0", "--key", key, "--window", window_s];
        if at != "newest" {
            args.extend(["--at", at]);
        }
        let run = lately(&args);
        assert_eq!(run.code, Some(0), "{}", run.err);
        let expected = reference(&log, key, window_s, at);
        assert!(run.out.lines().count() > 10, "{key}: too few rows to tell");
        for (line, (found, expected)) in run.out.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{key} in {window_s} s at {at}, row {}", line + 1);
        }
        assert_eq!(run.out.lines().count(), expected.lines().count(), "{key} in {window_s} s at {at}");
    }
}
