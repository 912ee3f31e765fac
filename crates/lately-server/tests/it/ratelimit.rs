//! Rules of envoyproxy/ratelimit, over gRPC.

use lately_server::Config;
use lately_server::config::RuleFolder;

use crate::common::{Running, config, standing_clock};
use crate::grpc::{asked, check};

/// A server with a file of rules for the domain `edge`.
fn with_rules(descriptors: &str) -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("edge.yaml"), format!("domain: edge\ndescriptors:\n{descriptors}"))
        .expect("room");
    let rule_folder = Some(RuleFolder::load(folder.path()).expect("valid"));
    Running::with(Config { rule_folder, ..config() }, standing_clock())
}

#[test]
fn a_rule_limits_each_value_on_its_own() {
    let server = with_rules("- { key: path, rate_limit: { unit: minute, requests_per_unit: 2 } }");
    check(&server, asked(&["path=/a"]), &["OK", "OK  2/MINUTE left 1 reset 60.000"]);
    check(&server, asked(&["path=/a"]), &["OK", "OK  2/MINUTE left 0 reset 60.000"]);
    check(&server, asked(&["path=/a"]), &["OVER_LIMIT", "OVER_LIMIT  2/MINUTE left 0 reset 60.000"]);
    check(&server, asked(&["path=/b"]), &["OK", "OK  2/MINUTE left 1 reset 60.000"]);
    check(&server, asked(&["other=/b"]), &["OK", "OK"]);
    server.connect().ask("HITS ratelimit:minute:edge:path=/a\r\n", ":2\r\n");
}
