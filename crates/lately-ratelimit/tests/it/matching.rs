//! Any rules and any descriptors: what is found is what the model finds.
//!
//! The fuzz target `ratelimit_descriptors` includes this file; the property test at its end is the same without a fuzzer.

use lately_ratelimit::{Found, Rules};
use test_support::{Choices, ModelFound, model_file, model_find};

/// Draws a file and requests.
///
/// # Panics
/// When something else is found.
pub(crate) fn check(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let descriptors = choices.descriptors();
    let text = model_file("d", &descriptors);
    let rules = Rules::parse(&[("d.yaml", &text)]).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for _ in 0..MAX_REQUESTS {
        let request = choices.request();
        let mut found: Vec<_> = request.iter().map(|(entries, _)| rules.find("d", entries)).collect();
        assert!(request.iter().all(|(entries, _)| rules.find("other", entries).is_none()));
        rules.drop_replaced(&mut found);
        let expected = model_find(&descriptors, &request);
        for ((found, expected), (entries, _)) in found.iter().zip(&expected).zip(&request) {
            let what = format!("{entries:?} of {request:?}\n{text}");
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => compare(&rules, found, expected, entries, &what),
                _ => panic!("found {found:?}, expected {expected:?}: {what}"),
            }
        }
        if choices.is_empty() {
            break;
        }
    }
}

fn compare(
    rules: &Rules,
    found: &Found<'_>,
    expected: &ModelFound<'_>,
    entries: &[(&str, &str)],
    what: &str,
) {
    let (rule, model) = (rules.rule(found.number), expected.rule);
    assert_eq!(rule.limit.map(|limit| limit.requests), model.requests, "{what}");
    assert_eq!((&*rule.name, &*rule.domain), (model.name, "d"), "{what}");
    let flags = [rule.is_shadow, rule.is_quota, rule.has_detailed_metric];
    assert_eq!(flags, [model.is_shadow, model.is_quota, model.is_detailed], "{what}");
    let counted: Vec<_> = entries
        .iter()
        .zip(&found.shared)
        .map(|((key, value), shared)| (*key, shared.unwrap_or(value)))
        .collect();
    assert_eq!(counted, expected.counted, "{what}");
    assert_eq!(found.metric.as_deref().unwrap_or(&rule.path), expected.metric, "{what}");
    assert_ne!(found.metric.as_deref(), Some(&*rule.path), "{what}");
}

const MAX_REQUESTS: usize = 32;

#[cfg(test)]
proptest::proptest! {
    #[test]
    fn any_descriptor_gets_the_rule_of_the_model(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        check(&bytes);
    }
}
