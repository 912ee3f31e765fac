//! An example for each feature that the project's README describes.

use lately_ratelimit::{Rules, Unit};

const FILE: &str = r#"
domain: library
descriptors:
# By value, and any other value.
- key: reader
  rate_limit: { unit: minute, requests_per_unit: 40 }
- key: reader
  value: crawler
  rate_limit: { unit: minute, requests_per_unit: 0 }
# Nested.
- key: action
  value: reserve
  descriptors:
  - key: book
    rate_limit: { unit: week, requests_per_unit: 3 }
# Without a limit, and with an unlimited one.
- key: librarian
- key: kiosk
  rate_limit: { unlimited: true }
# Named, replaced.
- key: shelf
  value: new
  rate_limit: { name: new-books, unit: day, requests_per_unit: 20 }
- key: member
  value: friend
  rate_limit: { unit: day, requests_per_unit: 90, replaces: [{ name: new-books }] }
# Wildcards, also below others.
- key: page
  value: /books/*
  share_threshold: true
  rate_limit: { unit: second, requests_per_unit: 200 }
- key: page
  value: /search*all
  rate_limit: { unit: second, requests_per_unit: 9 }
- key: branch
  value: north-*
  descriptors:
  - key: desk
    value: "*-info"
    value_to_metric: true
    rate_limit: { unit: hour, requests_per_unit: 60 }
  - key: desk
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 30 }
- key: print
  shadow_mode: true
  rate_limit: { unit: month, requests_per_unit: 500 }
- key: scan
  quota_mode: true
  rate_limit: { unit: year, requests_per_unit: 900 }
"#;

fn rules() -> Rules {
    Rules::parse(&[("library.yaml", FILE)]).expect("valid")
}

/// The limit of a descriptor such as `a=1 b=2`, and what is counted if that is not what it says.
fn shown(rules: &Rules, descriptor: &str) -> String {
    let entries: Vec<_> =
        descriptor.split_whitespace().map(|entry| entry.split_once('=').expect("a value")).collect();
    let Some(found) = rules.find("library", &entries) else { return "none".to_owned() };
    let rule = rules.rule(found.number);
    let limit = rule
        .limit
        .map_or("unlimited".to_owned(), |limit| format!("{}/{}", limit.requests, limit.unit.name()));
    let shared: String = found.shared.iter().flatten().map(|shared| format!(" as {shared}")).collect();
    format!("{limit}{shared} {}", found.metric.as_deref().unwrap_or(&rule.path))
}

#[test]
fn each_feature_of_the_format_works() {
    let rules = rules();
    for (descriptor, expected) in [
        ("reader=ann", "40/minute reader"),
        ("reader=crawler", "0/minute reader_crawler"),
        ("reader=", "40/minute reader"),
        ("Reader=ann", "none"),
        ("action=reserve book=7", "3/week action_reserve.book"),
        ("action=reserve", "none"),
        ("action=return book=7", "none"),
        // The depth must be that of the rule.
        ("reader=ann book=7", "none"),
        ("book=7 action=reserve", "none"),
        ("librarian=eve", "none"),
        ("kiosk=1", "unlimited kiosk"),
        ("page=/books/1", "200/second as /books/* page_/books/*"),
        ("page=/books", "none"),
        ("page=/search-them-all", "9/second page_/search*all"),
        ("page=/search", "none"),
        ("branch=north-1 desk=2-info", "60/hour branch_north-*.desk_2-info"),
        ("branch=north-1 desk=loans", "30/hour branch_north-1.desk_loans"),
        ("branch=south-1 desk=loans", "none"),
        ("print=a4", "500/month print"),
        ("scan=a4", "900/year scan"),
        ("", "none"),
    ] {
        assert_eq!(shown(&rules, descriptor), expected, "{descriptor}");
    }
    let flags: Vec<_> =
        rules.all().iter().rev().take(2).map(|rule| (rule.is_shadow, rule.is_quota)).collect();
    assert_eq!(flags, [(false, true), (true, false)]);
}

#[test]
fn a_rule_replaces_those_it_names_in_the_same_request() {
    let rules = rules();
    let find = |entries: &[(&str, &str)]| rules.find("library", entries);
    let check = |member: &str, expected: [bool; 2]| {
        let mut found = [find(&[("shelf", "new")]), find(&[("member", member)])];
        rules.drop_replaced(&mut found);
        assert_eq!(found.map(|found| found.is_some()), expected, "{member}");
    };
    check("friend", [false, true]);
    check("none", [true, false]);
}

#[test]
fn units_have_their_lengths() {
    let hours: Vec<u32> = Unit::ALL.iter().map(|unit| unit.seconds() / 3_600).collect();
    assert_eq!(hours, [0, 0, 1, 24, 168, 720, 8_760]);
}
