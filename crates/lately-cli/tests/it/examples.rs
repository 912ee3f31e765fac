//! Runs the examples of `examples/` against servers, and compares what they print with `examples/README.md`.

use std::path::Path;
use std::process::Command;

use crate::common::{has, installed};

/// Runs an example through `examples/run.sh`.
fn check(name: &str) {
    let Some(python) = installed("LATELY_TEST_PYTHON") else { return };
    if !has("redis-cli") || !has("curl") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the list of the examples");
    let typed = format!("```console\n$ examples/run.sh {name}\n");
    let (_, rest) = readme.split_once(&typed).expect(name);
    let (shown, _) = rest.split_once("```").expect("a block ends");
    let mut command = Command::new(folder.join("run.sh"));
    command.arg(name).env("LATELY", env!("CARGO_BIN_EXE_lately")).env("PYTHON", python);
    let output = command.output().expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((&*out, &*err, output.status.code()), (shown, "", Some(0)), "{name}");
}

#[test]
fn ad_impressions_are_counted_once() {
    check("ad-impressions");
}

#[test]
fn three_wrong_passwords_lock_an_account() {
    check("login-lockout");
}

#[test]
fn a_silent_host_is_noticed() {
    check("heartbeat");
}

#[test]
fn the_least_loaded_server_gets_the_request() {
    check("least-loaded");
}

#[test]
fn the_use_of_a_feature_is_counted_by_day_and_week() {
    check("feature-usage");
}

#[test]
fn a_spike_starts_workers() {
    check("autoscaling");
}

/// Each file of the folder is listed, and its first line says what it is.
#[test]
fn all_examples_are_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the list of the examples");
    let mut found = 0;
    for entry in std::fs::read_dir(&folder).expect("examples") {
        let name = entry.expect("a file").file_name().into_string().expect("text");
        assert!(name == "README.md" || readme.contains(&format!("]({name})")), "{name} is not listed");
        found += 1;
    }
    assert!(found >= 9, "{found}");
}
