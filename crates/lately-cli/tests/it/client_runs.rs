//! The binary as a client of a running server.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use crate::common::Run;
use crate::running::Running;

/// Runs `lately` with the server's address in the environment.
pub(crate) fn ask(server: &str, args: &[&OsStr]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lately"));
    let output = command.args(args).env("LATELY_SERVER", server).output().expect("the binary runs");
    Run {
        out: String::from_utf8(output.stdout).expect("data is UTF-8"),
        err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        code: output.status.code(),
    }
}

pub(crate) fn words(line: &str) -> Vec<&OsStr> {
    line.split(' ').map(OsStr::new).collect()
}

pub(crate) fn check(server: &Running, line: &str, expected: &str) {
    let run = ask(&server.resp, &words(line));
    assert_eq!((run.out.as_str(), run.err.as_str(), run.code), (expected, "", Some(0)), "{line}");
}

/// Compares the printed objects, one per line.
pub(crate) fn check_json(server: &Running, args: &[&OsStr], expected: &[Value]) {
    let run = ask(&server.resp, args);
    assert_eq!((run.err.as_str(), run.code), ("", Some(0)));
    let objects: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(objects, expected);
}

pub(crate) fn check_refused(server: &str, line: &str, error: &str, hint: &str) {
    let run = ask(server, &words(line));
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{line}");
    let (first, second) = run.err.trim_end().split_once('\n').expect("two lines");
    assert!(first.starts_with(&format!("lately: {error}")), "{line}: {first}");
    assert_eq!(second, format!("hint: {hint}"), "{line}");
}
