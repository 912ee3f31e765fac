//! The dashboard in a real Chromium: all views, at three widths and in both themes.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::{has, installed};
use crate::running::{Running, serve_with};

/// Runs a scenario of `tests/clients/page.mjs`, which makes its own checks and prints their number.
fn run(scenario: &str, server: impl FnOnce() -> (Running, TempDir)) {
    let (Some(node), Some(_)) = (installed("LATELY_TEST_NODE"), installed("LATELY_TEST_NODE_MODULES")) else {
        return;
    };
    if !has("chromium") {
        return;
    }
    let (server, _folder) = server();
    let (host, port) = server.resp.rsplit_once(':').expect("a port");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/page.mjs");
    let mut command = Command::new(node);
    command.arg(script).args([host, port, &server.http, scenario]);
    let output = command.stdin(Stdio::null()).output().expect("node runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{scenario}: {out}{err}");
    assert!(out.starts_with("ok ") && out.ends_with(" checks\n"), "{scenario}: {out}");
}

/// A server with this config, and files for its passwords. The folder has them, and is removed when it is dropped.
fn with_config(text: &str, passwords: &[(&str, &str)]) -> (Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (user, password) in passwords {
        std::fs::write(path(user), password).expect("room");
    }
    let text = text.replace("FOLDER", folder.path().to_str().expect("text"));
    std::fs::write(path("lately.toml"), text).expect("room");
    let server = serve_with(&["--config", path("lately.toml").to_str().expect("text")]);
    (server, folder)
}

const LIMITS: &str = "[[limit]]\nname = \"login\"\nmax = 5\nwindow = \"1h\"\nlockout = \"15m\"\nkey = \"login:{client}\"\n\
    [[limit]]\nname = \"api\"\nmax = 7\nwindow = \"1h\"\nshadow = true\n\
    [[limit]]\nname = \"unused\"\nmax = 10\nwindow = \"1m\"\ndomain = \"edge\"\ndescriptors = { a = \"*\" }\n\
    [[class]]\nmatch = \"ad:*\"\nunique = true\n\
    [[alert]]\nname = \"many-users\"\nmatch = \"user:*\"\nabove = 100\nwindow = \"5m\"\n\
    [[alert]]\nname = \"no-backup\"\nmatch = \"backup\"\nbelow = 1\nwindow = \"500ms\"\n\
    [[alert]]\nname = \"many-ads\"\nmatch = \"ad:*\"\nabove = 5\nwindow = \"1h\"\nfor = \"1h\"\n\
    [[alert]]\nname = \"odd\"\nmatch = \"login:*\"\nspike = 4.0\nwindow = \"1m\"\n";

const RULES: &str = "domain: edge\ndescriptors:\n- { key: path, rate_limit: { unit: minute, requests_per_unit: 2 } }\n\
    - { key: user, value: guest, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }\n";

#[test]
fn each_view_of_a_busy_server_is_whole_and_accessible() {
    run("busy", || {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("lately.toml"), LIMITS).expect("room");
        let rules = folder.path().join("rules");
        std::fs::create_dir(&rules).expect("room");
        std::fs::write(rules.join("edge.yaml"), RULES).expect("room");
        let path = |name: &str| folder.path().join(name).into_os_string().into_string().expect("text");
        let (config, rules) = (path("lately.toml"), path("rules"));
        (serve_with(&["--config", &config, "--ratelimit-config", &rules]), folder)
    });
}

#[test]
fn each_view_of_an_empty_server_is_whole_and_accessible() {
    run("empty", || with_config("", &[]));
}

#[test]
fn each_view_of_a_server_without_its_engine_is_whole_and_accessible() {
    let cluster = "[cluster]\nengine = \"redis\"\nurls = [\"redis://127.0.0.1:1\"]\nnode = \"a\"\n";
    run("degraded", || with_config(cluster, &[]));
}

#[test]
fn the_page_is_live_and_shows_any_key() {
    run("live", || with_config("", &[]));
}

#[test]
fn the_page_shows_an_alert_that_starts_and_ends() {
    let alerts = "[[alert]]\nname = \"burst\"\nmatch = \"burst:*\"\nabove = 9\nwindow = \"1h\"\n\
        [[alert]]\nname = \"odd\"\nmatch = \"k\"\nspike = 3.0\nwindow = \"10s\"\n";
    run("alerts", || with_config(alerts, &[]));
}

#[test]
fn the_page_scrolls_ten_thousand_keys() {
    run("many", || with_config("", &[]));
}

#[test]
fn users_of_the_page_log_in_and_see_what_they_may() {
    let users = "[[user]]\nname = \"all\"\npassword_file = \"FOLDER/all\"\nkeys = [\"*\"]\nverbs = [\"read\", \"hit\"]\n\
        [[user]]\nname = \"some\"\npassword_file = \"FOLDER/some\"\nkeys = [\"web:*\"]\nverbs = [\"read\"]\n";
    run("login", || with_config(users, &[("all", "a-secret"), ("some", "s-secret")]));
}

#[test]
fn the_page_of_a_server_that_is_gone_says_so() {
    run("away", || with_config("", &[]));
}
