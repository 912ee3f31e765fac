//! Rules of envoyproxy/ratelimit, over gRPC.

use lately_server::Config;
use lately_server::config::RuleFolder;

use crate::common::{Running, Wire, config, standing_clock};
use crate::grpc::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use crate::grpc::messages::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::grpc::{answer, asked, check, with_limits_and};
use crate::http::request_to;

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

/// A time without hits. The clock stands still.
const QUIET: &str = "reset 60.000";

#[test]
fn rules_of_all_kinds_answer_a_request() {
    let server = with_rules(
        "
- { key: off, rate_limit: { unlimited: true } }
- { key: none }
- { key: ban, rate_limit: { unit: week, requests_per_unit: 0 } }
- { key: soft, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1, name: soft } }
- { key: path, value: /a*, share_threshold: true, rate_limit: { unit: year, requests_per_unit: 2 } }
- { key: path, rate_limit: { unit: month, requests_per_unit: 9, name: each } }
- { key: vip, rate_limit: { unit: second, requests_per_unit: 5, replaces: [{ name: each }] } }
",
    );
    let check = |descriptors: &[&str], expected: &[&str]| check(&server, asked(descriptors), expected);
    let unlimited = "OK";
    check(&["off=1", "none=1", "none=1 more=2"], &["OK", unlimited, "OK", "OK"]);
    check(&["ban=1"], &["OVER_LIMIT", "OVER_LIMIT  0/WEEK left 0"]);
    let soft = format!("OK soft 1/MINUTE left 0 {QUIET}");
    for _ in 0..3 {
        check(&["soft=1"], &["OK", &soft]);
    }
    // All values of the wildcard share a count.
    check(&["path=/a1"], &["OK", "OK  2/YEAR left 1 reset 31536000.000"]);
    check(&["path=/a2"], &["OK", "OK  2/YEAR left 0 reset 31536000.000"]);
    let over = "OVER_LIMIT  2/YEAR left 0 reset 31536000.000";
    check(&["path=/a3", "path=/b"], &["OVER_LIMIT", over, "OK each 9/MONTH left 8 reset 2592000.000"]);
    // The rule of the second descriptor replaces that of the first, which counts nothing.
    check(&["path=/b", "vip=1"], &["OK", "OK", "OK  5/SECOND left 4 reset 1.000"]);
    check(&["path=/b"], &["OK", "OK each 9/MONTH left 7 reset 2592000.000"]);
    let mut keys = server.connect();
    keys.ask("HITS ratelimit:year:edge:path=/a*\r\n", ":2\r\n");
    keys.ask("HITS ratelimit:month:edge:path=/b\r\n", ":2\r\n");
}

/// `/v1/limits` has the rules and their values, with what they answered.
#[test]
fn the_limits_over_http_have_the_rules() {
    let server = with_rules(
        "
- { key: path, rate_limit: { unit: minute, requests_per_unit: 2 } }
- { key: soft, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
- { key: off, rate_limit: { unlimited: true } }
- { key: each, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
",
    );
    for _ in 0..3 {
        answer(&server, asked(&["path=/a", "soft=1", "off=1", "each=x"]));
    }
    // An answer of version 1.0 comes in one piece.
    let mut wire = Wire::connect(server.http);
    wire.send("GET /v1/limits HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let answer = String::from_utf8(wire.rest()).expect("text");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let body: serde_json::Value = serde_json::from_str(body).expect(body);
    let rule = |rule: &str, limit: serde_json::Value, is_shadow: bool, hits: [u64; 5]| {
        let [hits, within, near, over, over_in_shadow] = hits;
        serde_json::json!({
            "domain": "edge", "rule": rule, "max": limit[0], "unit": limit[1], "shadow": is_shadow, "hits": hits, "within": within,
            "near": near, "over": over, "over_in_shadow": over_in_shadow,
        })
    };
    let rules = [
        rule("each", serde_json::json!([5, "hour"]), false, [0; 5]),
        // It has a limit for each value, whose hits are counted one by one.
        rule("each_x", serde_json::json!([null, null]), false, [3, 3, 0, 0, 0]),
        rule("off", serde_json::json!([null, null]), false, [3, 3, 0, 0, 0]),
        rule("path", serde_json::json!([2, "minute"]), false, [3, 2, 1, 1, 0]),
        rule("soft", serde_json::json!([1, "day"]), true, [3, 1, 1, 2, 2]),
    ];
    assert_eq!((&body["limits"], &body["rules"]), (&serde_json::json!([]), &rules[..].into()));
}

#[test]
fn an_unlimited_rule_leaves_the_largest_number() {
    let server = with_rules("- { key: off, rate_limit: { unlimited: true } }");
    let answer = answer(&server, asked(&["off=1", "other=1"]));
    let left: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| (status.limit_remaining, status.current_limit.is_some()))
        .collect();
    assert_eq!(left, [(u32::MAX, false), (0, false)]);
}

#[test]
fn quotas_deny_when_all_of_a_request_are_used_up() {
    let server = with_rules(
        "
- { key: a, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
- { key: b, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
- { key: c, rate_limit: { unit: hour, requests_per_unit: 2 } }
",
    );
    let codes = |descriptors: &[&str]| {
        let answer = answer(&server, asked(descriptors));
        let codes = answer.statuses.iter().map(|status| status.code);
        [answer.overall_code].into_iter().chain(codes).map(|code| code == 2).collect::<Vec<_>>()
    };
    assert_eq!(codes(&["a=1", "b=1"]), [false, false, false]);
    // One is used up, and its status says so. The other is not.
    assert_eq!(codes(&["a=1", "b=1", "c=1"]), [false, true, false, false]);
    assert_eq!(codes(&["a=1", "b=1"]), [true, true, true]);
    // What has no quota denies by itself.
    assert_eq!(codes(&["a=2", "c=1"]), [false, false, false]);
    assert_eq!(codes(&["b=2", "c=1"]), [true, false, true]);
}

#[test]
fn other_domains_have_the_limits_of_the_config() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = "domain: rules\ndescriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1 } }]";
    std::fs::write(folder.path().join("rules.yaml"), file).expect("room");
    let rule_folder = Some(RuleFolder::load(folder.path()).expect("valid"));
    let limits = ["edge", "rules"].map(|domain| {
        format!("[[limit]]\nname = \"{domain}\"\ndomain = \"{domain}\"\ndescriptors = {{ path = \"*\" }}\nmax = 3\nwindow = \"1m\"\n")
    });
    let server = with_limits_and(&limits.concat(), rule_folder);
    let of =
        |domain: &str, descriptor| RateLimitRequest { domain: domain.to_owned(), ..asked(&[descriptor]) };
    check(&server, of("edge", "path=/"), &["OK", "OK edge 3/MINUTE left 2 reset 60.000"]);
    // A domain with a file has its rules only.
    check(&server, of("rules", "path=/"), &["OK", "OK  1/DAY left 0 reset 86400.000"]);
    check(&server, of("rules", "path=/ more=1"), &["OK", "OK"]);
}

/// The lines of `/metrics` about rules.
fn metrics(server: &Running) -> Vec<String> {
    let (status, _, body) = request_to(server, "localhost", "GET", "/metrics");
    assert_eq!(status, 200);
    let lines = body.lines().filter_map(|line| line.strip_prefix("lately_ratelimit_"));
    lines.map(str::to_owned).collect()
}

#[test]
fn rules_have_statistics() {
    let server = with_rules(
        "
- { key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }
- { key: b, value: '\"x\"', shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
- { key: c, rate_limit: { unlimited: true } }
",
    );
    for addend in [7, 2, 2, 1] {
        let with = RateLimitRequest { hits_addend: addend, ..asked(&["a=1", "b=\"x\"", "c=1"]) };
        answer(&server, with);
    }
    // Of the hits of `a`, the ninth and the tenth are near the limit.
    let expected = [
        ("total_hits", [12, 12, 12]),
        ("within_limit", [9, 0, 12]),
        ("near_limit", [2, 1, 0]),
        ("over_limit", [2, 11, 0]),
        ("shadow_mode", [0, 11, 0]),
    ];
    let of_rules = expected.iter().flat_map(|(metric, hits)| {
        let rules = ["a", r#"b_\"x\""#, "c"].into_iter().zip(hits);
        rules.map(move |(rule, hits)| format!("{metric}_total{{domain=\"edge\",rule=\"{rule}\"}} {hits}"))
    });
    let of_files = ["config_reloads_total 0", "config_errors_total 0", "config_failing 0"].map(str::to_owned);
    let expected: Vec<String> = of_files.into_iter().chain(of_rules).collect();
    assert_eq!(metrics(&server), expected);
    assert!(metrics(&Running::start()).is_empty());
}

#[test]
fn statistics_of_values_are_bounded() {
    let server = with_rules(
        "
- { key: a, detailed_metric: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
- { key: b, value_to_metric: true, descriptors: [{ key: c, rate_limit: { unit: hour, requests_per_unit: 5 } }] }
",
    );
    assert_eq!(request_to(&server, "evil.example", "GET", "/metrics").0, 200);
    let totals = || {
        let lines = metrics(&server);
        let totals =
            lines.iter().filter_map(|line| line.strip_prefix("total_hits_total{domain=\"edge\",rule=\""));
        totals.map(str::to_owned).collect::<Vec<_>>()
    };
    answer(&server, asked(&["a=1", "b=2 c=3", "b=2 c=4"]));
    assert_eq!(totals(), ["a\"} 0", "a_1\"} 1", "b.c\"} 0", "b_2.c\"} 2"]);
    // They may be names of users, and a page may give its name the address of this machine.
    assert_eq!(request_to(&server, "evil.example", "GET", "/metrics").0, 421);
    assert_eq!(request_to(&server, "evil.example", "GET", "/healthz").0, 200);
    let long = "v".repeat(lately_server::limits::MAX_RULE_LABEL_BYTES - 2);
    answer(&server, asked(&[&format!("a={long}"), &format!("a={long}v")]));
    assert_eq!(totals().iter().filter(|line| line.starts_with("a")).count(), 3);
    assert!(totals().contains(&"a\"} 1".to_owned()), "a name that is too long counts for the path");
    let values: Vec<String> = (0..lately_server::limits::MAX_DETAILED_RULE_SERIES + 50)
        .map(|value| format!("a=n{value}"))
        .collect();
    for values in values.chunks(64) {
        answer(&server, asked(&values.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    let totals = totals();
    assert_eq!(totals.len(), 2 + lately_server::limits::MAX_DETAILED_RULE_SERIES);
    // Those that found no place: 50, and the three that had one before.
    assert!(totals.contains(&"a\"} 54".to_owned()), "{:?}", &totals[..3]);
}

/// Costs that are known afterwards, as a proxy sends them for tokens: a check of 0 hits, and the cost at the end.
#[test]
fn hits_past_the_limit_count_and_deny_the_next_request() {
    let server = with_rules("- { key: model, rate_limit: { unit: minute, requests_per_unit: 10 } }");
    let with = |hits: u64, is_negative_hits: bool| {
        let mut asked = asked(&["model=a"]);
        asked.descriptors[0].hits_addend = Some(hits);
        asked.descriptors[0].is_negative_hits = is_negative_hits;
        asked
    };
    let ok = |left: u32| ["OK".to_owned(), format!("OK  10/MINUTE left {left} {QUIET}")];
    let over = ["OVER_LIMIT".to_owned(), format!("OVER_LIMIT  10/MINUTE left 0 {QUIET}")];
    let check = |asked, expected: &[String]| {
        check(&server, asked, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    check(with(4, false), &ok(6));
    check(with(0, false), &ok(6));
    // Ten of them do not fit.
    check(with(16, false), &over);
    check(with(0, false), &over);
    server.connect().ask("HITS ratelimit:minute:edge:model=a\r\n", ":20\r\n");
    // There is no room for one. The cost of the descriptor was spent all the same, that of the request was not.
    check(with(5, false), &over);
    let of_request = RateLimitRequest { hits_addend: 7, ..asked(&["model=a"]) };
    check(of_request, &over);
    server.connect().ask("HITS ratelimit:minute:edge:model=a\r\n", ":25\r\n");
    // Hits that are given back are never denied.
    let answer = answer(&server, with(20, true));
    assert_eq!((answer.overall_code, answer.statuses[0].limit_remaining), (1, 5));
    check(with(1, false), &ok(4));
    let expected = [
        r#"total_hits_total{domain="edge",rule="model"} 33"#,
        r#"within_limit_total{domain="edge",rule="model"} 5"#,
        r#"near_limit_total{domain="edge",rule="model"} 2"#,
        r#"over_limit_total{domain="edge",rule="model"} 22"#,
        r#"shadow_mode_total{domain="edge",rule="model"} 0"#,
    ];
    assert_eq!(metrics(&server)[3..], expected);
}

#[test]
fn a_limit_of_the_request_replaces_the_rule() {
    let server =
        with_rules("- { key: a, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 10 } }");
    let with = |descriptor: &str, requests_per_unit, unit| {
        let mut asked = asked(&[descriptor]);
        asked.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit, unit });
        asked
    };
    let hour = 3;
    check(&server, with("a=1", 1, hour), &["OK", "OK  1/HOUR left 0 reset 3600.000"]);
    check(&server, with("a=1", 1, hour), &["OVER_LIMIT", "OVER_LIMIT  1/HOUR left 0 reset 3600.000"]);
    // The rule counts on its own, and a descriptor without one has the limit, too.
    check(&server, asked(&["a=1"]), &["OK", "OK  10/MINUTE left 9 reset 60.000"]);
    check(&server, with("b=1 c=2", 3, hour), &["OK", "OK  3/HOUR left 2 reset 3600.000"]);
    let totals = metrics(&server);
    for (rule, hits) in [("a", 1), ("a_1", 2), ("b_1.c_2", 1)] {
        let line = format!("total_hits_total{{domain=\"edge\",rule=\"{rule}\"}} {hits}");
        assert!(totals.contains(&line), "{line} {totals:?}");
    }
}
