//! What is wrong in a file, or not supported, is named with its line.

use lately_ratelimit::limits::{
    MAX_RULE_DEPTH, MAX_RULE_DESCRIPTORS, MAX_RULE_NAME_BYTES, MAX_RULE_PATH_BYTES, MAX_RULE_REPLACES,
    MAX_RULES_BYTES, MAX_YAML_DEPTH, MAX_YAML_NODES,
};
use lately_ratelimit::{Rules, RulesError};

fn parse(text: &str) -> Result<Rules, RulesError> {
    Rules::parse(&[("f", text)])
}

fn refused(text: &str, expected: &str) {
    let error = parse(text).map(|rules| rules.all().len()).expect_err(text);
    assert_eq!(error.to_string(), format!("f:{expected}"), "{text}");
}

/// Checks the error of a descriptor, whose first line is the third.
fn wrong(descriptor: &str, expected: &str) {
    refused(&format!("domain: d\ndescriptors:\n{descriptor}"), expected);
}

#[test]
fn files_need_a_domain_and_known_keys() {
    refused("", "1:1: an empty file: write its `domain`");
    refused("# a\n", "1:1: an empty file: write its `domain`");
    refused("descriptors: []", "1:1: a file needs a `domain`");
    refused("domain: ''", "1:1: a file needs a `domain`");
    refused("domain: ~", "1:1: a file needs a `domain`");
    refused("- a", "1:1: a file is a map: `key: value`");
    refused("domain: d\nname: x", "2:1: `name` has no effect in a file: it belongs into `rate_limit`");
    refused("domain: d\ndomian: e", "2:1: unknown key `domian`: a file has domain, descriptors");
    refused("domain: d\ndomain: d", "2:1: a second `domain`: remove one");
    refused("domain: [d]", "1:9: `domain` is a text, a number or a boolean");
    refused("domain: d\n? [a]\n: b", "2:3: a list or a map as a key");
    refused("domain: d\ndescriptors: d", "2:14: `descriptors` is a list: write - before each entry");
    refused("domain: d\n---\ndomain: e", "2:1: a second document: a file has one");
    refused("domain: !d d", "1:9: a tag: remove it");
    let error = parse("domain: d\ndescriptors:\n\t- key: a").expect_err("a tab");
    assert!(error.to_string().starts_with("f:3:"), "{error}");
    assert!(error.message.starts_with("not YAML: "), "{error}");
}

#[test]
fn descriptors_need_a_key_and_are_there_once() {
    wrong("- a", "3:3: a descriptor is a map: `key: value`");
    wrong("- value: a", "3:3: a descriptor needs a `key`");
    wrong("- key: ''", "3:3: a descriptor needs a `key`");
    wrong("- key: a*", "3:3: `*` in the key 'a*' is not supported: only values may have it");
    wrong(
        "- key: a\n- key: a\n  value: ''",
        "4:3: a second descriptor with the key 'a': the first is in line 3",
    );
    for value in ["x", "x*"] {
        wrong(
            &format!("- key: a\n  value: {value}\n- key: b\n- key: a\n  value: {value}"),
            &format!(
                "6:3: a second descriptor with the key 'a' and the value '{value}': the first is in line 3"
            ),
        );
    }
    wrong("- key: a\n  shadow_mode: 1", "4:16: `shadow_mode` is true or false");
    wrong("- key: a\n  shadow_mode: 'true'", "4:16: `shadow_mode` is true or false");
    let alone = "`share_threshold` is for a `value` with `*`: this one is counted alone anyway";
    wrong("- key: a\n  value: b\n  share_threshold: true", &format!("4:10: {alone}"));
    wrong("- key: a\n  share_threshold: true", &format!("3:3: {alone}"));
    wrong("- key: a\n  metadata: { a: b }", "4:3: `metadata` is not supported: remove it");
    wrong("- key: a\n  unit: day", "4:3: `unit` has no effect in a descriptor: it belongs into `rate_limit`");
    let known = "key, value, rate_limit, descriptors, shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric";
    wrong("- key: a\n  limit: 5", &format!("4:3: unknown key `limit`: a descriptor has {known}"));
}

#[test]
fn a_limit_needs_a_unit_and_a_number() {
    let limit = |limit: &str, expected: &str| wrong(&format!("- key: a\n  rate_limit: {limit}"), expected);
    let units = "second, minute, hour, day, week, month, year";
    limit("{}", &format!("4:15: `rate_limit` needs a `unit`: {units}"));
    limit("5", "4:15: `rate_limit` is a map: `key: value`");
    limit("{ unit: fortnight }", &format!("4:23: unknown unit 'fortnight': give one of {units}"));
    limit("{ unit: unknown }", &format!("4:23: unknown unit 'unknown': give one of {units}"));
    limit("{ unlimited: true, unit: day }", "4:40: an unlimited rule has no `unit`: remove one of them");
    limit("{ unlimited: 5 }", "4:28: `unlimited` is true or false");
    for number in ["-1", "1.5", "1e3", "4294967296", "'5'", "!!str 5", "five", "0x10", "010", "_1"] {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{ unit: day, requests_per_unit: {number} }}"
        );
        let error = parse(&text).expect_err(number).to_string();
        let expected = ": `requests_per_unit` is a whole number from 0 to 4294967295, without quotes";
        assert!(error.starts_with("f:4:") && error.ends_with(expected), "{number} {error}");
    }
    for number in ["0", "4294967295", "1_000"] {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{ unit: day, requests_per_unit: {number} }}"
        );
        assert!(parse(&text).is_ok(), "{number}");
    }
    limit(
        "{ unit: day, shadow_mode: true }",
        "4:28: `shadow_mode` has no effect in `rate_limit`: it belongs into a descriptor",
    );
    limit(
        "{ unit: day, unit_multiplier: 2 }",
        "4:28: unknown key `unit_multiplier`: `rate_limit` has unit, requests_per_unit, unlimited, name, replaces",
    );
    limit("{ unit: day, replaces: [{}] }", "4:39: an entry of `replaces` needs a `name`");
    limit("{ unit: day, replaces: [n] }", "4:39: an entry of `replaces` is a map: `key: value`");
    limit("{ unit: day, replaces: { name: n } }", "4:38: `replaces` is a list: write - before each entry");
    limit(
        "{ unit: day, name: n, replaces: [{ name: n }] }",
        "4:56: 'n' is this rule: it cannot replace itself",
    );
}

/// Messages go to a terminal and into logs.
#[test]
fn a_text_of_the_file_is_shown_in_one_short_line() {
    refused("\"a\\nb\\e\": 1", r"1:1: unknown key `a\nb\u{1b}`: a file has domain, descriptors");
    let long = "é".repeat(1_000);
    let shown = "é".repeat(80);
    refused(&format!("{long}: 1"), &format!("1:1: unknown key `{shown}`: a file has domain, descriptors"));
}

#[test]
fn a_domain_has_one_file() {
    let error = Rules::parse(&[("a", "domain: d"), ("b", "\ndomain: d")]).expect_err("twice").to_string();
    assert_eq!(error, "b:2:9: a second file for the domain 'd': the first is a");
}

#[test]
fn words_of_yaml_1_1_are_booleans() {
    for (word, expected) in
        [("true", true), ("Yes", true), ("ON", true), ("y", true), ("no", false), ("Off", false)]
    {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  shadow_mode: {word}\n  rate_limit: {{ unit: DAY }}"
        );
        assert_eq!(parse(&text).expect(word).all()[0].is_shadow, expected, "{word}");
    }
    wrong("- key: a\n  shadow_mode: tRUE", "4:16: `shadow_mode` is true or false");
}

#[test]
fn anchors_and_merge_keys_are_followed() {
    let text = "
domain: d
descriptors:
- key: a
  rate_limit: &limit { unit: hour, requests_per_unit: 5 }
- key: b
  rate_limit: *limit
- key: c
  rate_limit:
    <<: *limit
    requests_per_unit: 6
- key: e
  rate_limit:
    <<: [{ unit: day }, *limit]
";
    let rules = parse(text).expect("valid");
    let limits: Vec<_> = rules.all().iter().filter_map(|rule| rule.limit).collect();
    let shown: Vec<_> = limits.iter().map(|limit| (limit.requests, limit.unit.name())).collect();
    assert_eq!(shown, [(5, "hour"), (5, "hour"), (6, "hour"), (5, "day")]);
    refused("domain: d\ndescriptors: &x [*x]", "2:18: an alias within its own anchor");
}

#[test]
fn a_hostile_file_is_refused_early() {
    // Each list has ten of the one before: a billion in all.
    let mut text = "domain: d\nx0: &x0 [a]\n".to_owned();
    for level in 1..10 {
        let before = level - 1;
        text += &format!("x{level}: &x{level} [{}]\n", vec![format!("*x{before}"); 10].join(", "));
    }
    let error = parse(&text).expect_err("a billion").to_string();
    assert!(error.contains(": too much YAML: the files together have at most 400000"), "{error}");
    for open in ["- ", "? "] {
        let error = parse(&open.repeat(100_000)).expect_err("deep").to_string();
        assert!(error.contains("nested too deep: at most 70 lists and maps"), "{error}");
    }
    // The parser itself refuses brackets, because it reads ahead.
    for open in ["[", "{a: "] {
        let error = parse(&open.repeat(100_000)).expect_err("deep").to_string();
        assert!(error.contains("recursion limit") || error.contains("nested too deep"), "{error}");
    }
}

#[test]
fn nodes_and_their_depth_are_bounded() {
    let starts = |text: &str, expected: &str| {
        let error = parse(text).expect_err("no rules").to_string();
        assert!(error.starts_with(&format!("f:2:{expected}")), "{error}");
    };
    // The map, both keys, the domain and the list are five nodes.
    let list = |scalars: usize| format!("domain: d\ndescriptors: [{}]", ["a"].repeat(scalars).join(", "));
    starts(&list(MAX_YAML_NODES - 5), "15: a descriptor is a map");
    starts(&list(MAX_YAML_NODES - 4), "1200000: too much YAML");
    let lists = |depth: usize| format!("domain: d\ndescriptors:{}{}", " [".repeat(depth), "]".repeat(depth));
    starts(&lists(MAX_YAML_DEPTH - 1), "16: a descriptor is a map");
    starts(&lists(MAX_YAML_DEPTH), "152: nested too deep");
}

#[test]
fn files_are_bounded() {
    let pad = |text: &str, bytes: usize| text.to_owned() + &" ".repeat(bytes - text.len());
    assert!(parse(&pad("domain: d", MAX_RULES_BYTES)).is_ok());
    refused(
        &pad("domain: d", MAX_RULES_BYTES + 1),
        "1:1: too long: the files together have at most 8388608 bytes",
    );
    let half = pad("domain: d", MAX_RULES_BYTES / 2);
    let other = pad("domain: e", MAX_RULES_BYTES / 2 + 1);
    let error = Rules::parse(&[("a", &half), ("b", &other)]).expect_err("too long");
    assert_eq!(error.file, "b");

    let name = "n".repeat(MAX_RULE_NAME_BYTES);
    assert!(parse(&format!("domain: {name}")).is_ok());
    refused(&format!("domain: {name}n"), "1:9: `domain` is too long: at most 256 bytes");

    let value = "v".repeat(MAX_RULE_PATH_BYTES - 2);
    let descriptor =
        |value: &str| format!("domain: d\ndescriptors:\n- key: k\n  descriptors: [{{ key: {value} }}]");
    assert!(parse(&descriptor(&value)).is_ok());
    let long = "its keys and values from the top are too long: at most 1024 bytes together";
    refused(&descriptor(&format!("{value}v")), &format!("4:17: {long}"));

    let replaces = |count: usize| {
        let names: Vec<_> = (0..count).map(|number| format!("{{ name: n{number} }}")).collect();
        let names = names.join(", ");
        format!("domain: d\ndescriptors:\n- {{ key: a, rate_limit: {{ unit: day, replaces: [{names}] }} }}")
    };
    assert!(parse(&replaces(MAX_RULE_REPLACES)).is_ok());
    let error = parse(&replaces(MAX_RULE_REPLACES + 1)).expect_err("too many").to_string();
    assert!(error.ends_with(": a rule replaces at most 64 others"), "{error}");
}

#[test]
fn descriptors_are_bounded_in_number_and_depth() {
    let many = |count: usize| {
        let descriptors: String = (0..count).map(|number| format!("- key: k{number}\n")).collect();
        format!("domain: d\ndescriptors:\n{descriptors}")
    };
    assert!(parse(&many(MAX_RULE_DESCRIPTORS)).is_ok());
    refused(&many(MAX_RULE_DESCRIPTORS + 1), "20003:3: too many descriptors: at most 20000 in all files");

    let deep = |levels: usize| {
        let descriptor = |level: usize| format!("{}descriptors:\n{0}- key: a\n", "  ".repeat(level));
        let descriptors: String = (0..levels).map(descriptor).collect();
        let limit =
            format!("{}rate_limit: {{ unit: day, replaces: [{{ name: n }}] }}\n", "  ".repeat(levels));
        format!("domain: d\n{descriptors}{limit}")
    };
    let rules = parse(&deep(MAX_RULE_DEPTH)).expect("valid");
    assert!(rules.find("d", &[("a", ""); MAX_RULE_DEPTH]).is_some());
    let error = parse(&deep(MAX_RULE_DEPTH + 1)).expect_err("too deep").to_string();
    assert!(error.contains("nested too deep: at most 3"), "{error}");
}
