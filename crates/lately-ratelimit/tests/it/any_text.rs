//! Any text as files of rules: it is read or refused, with a place in the text, and never panics.
//!
//! The fuzz target `ratelimit_rules` includes this file; the property test at its end is the same without a fuzzer.

use lately_ratelimit::Rules;
use lately_ratelimit::limits::{MAX_RULE_DESCRIPTORS, MAX_RULE_PATH_BYTES};

/// Takes files, with a zero byte between them.
///
/// # Panics
/// When something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files: Vec<_> = text.split('\0').enumerate().map(|(index, text)| (index.to_string(), text)).collect();
    let rules = match Rules::parse(&files) {
        Ok(rules) => rules,
        Err(error) => {
            let (_, text) = files.iter().find(|(name, _)| *name == error.file).expect("a file of these");
            let lines = text.split(['\n', '\r']).count();
            assert!((1..=lines + 1).contains(&error.line) && error.column > 0, "{error}");
            assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error}");
            return;
        }
    };
    assert!(rules.all().len() <= MAX_RULE_DESCRIPTORS);
    for rule in rules.all() {
        assert!(rules.has_domain(&rule.domain) && rule.path.len() <= MAX_RULE_PATH_BYTES);
        assert!(!rule.replaces.contains(&rule.name), "{rule:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::check;

    /// Pieces of YAML, right and wrong ones.
    const PIECES: [&str; 46] = [
        "domain: d\n",
        "domain: e\n",
        "descriptors:\n",
        "- key: a\n",
        "  key: b\n",
        "  value: x*\n",
        "  value: y\n",
        "  rate_limit:\n",
        "  rate_limit: ",
        "{ unit: day, requests_per_unit: 5 }\n",
        "    unit: second\n",
        "    requests_per_unit: 7\n",
        "    unlimited: true\n",
        "    name: n\n",
        "    replaces:\n",
        "    - name: m\n",
        "  shadow_mode: true\n",
        "  quota_mode: yes\n",
        "  share_threshold: on\n",
        "  detailed_metric: no\n",
        "  value_to_metric: y\n",
        "  descriptors:\n",
        "  - key: c\n",
        "  ",
        "&x ",
        "*x",
        "\n",
        "<<: *x\n",
        "<<: [*x, *x]\n",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        ": ",
        "\"",
        "'",
        "|\n",
        "---\n",
        "...\n",
        "!!str ",
        "!t ",
        "#",
        "\0",
        "\t",
    ];

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check(&bytes);
        }

        #[test]
        fn any_pieces_are_read_or_refused(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..60)) {
            check(pieces.concat().as_bytes());
        }
    }
}
