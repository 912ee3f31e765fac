//! Checks templates of any text.

use lately_keys::{Part, Template};

/// Parses a text. Its parts, written again, are the same template.
///
/// # Panics
/// They are not.
pub(crate) fn check(text: &str) {
    let Ok(template) = text.parse::<Template>() else { return };
    assert_eq!(template.to_string(), text);
    let mut again = String::new();
    for part in template.parts() {
        match part {
            Part::Text(text) => again.push_str(&text.replace('{', "{{").replace('}', "}}")),
            Part::Field(field) => again.push_str(&format!("{{{}}}", template.fields()[*field])),
            Part::Network(field, prefix) => {
                let (v4_bits, v6_bits) = prefix.lengths();
                again.push_str(&format!("{{{}/{v4_bits}/{v6_bits}}}", template.fields()[*field]));
            }
        }
    }
    if template.fields().is_empty() {
        // The only one is `*`, the same key for all.
        assert_eq!((text, &*again), ("*", "*"));
        return;
    }
    let again: Template = again.parse().expect("it is a template");
    // A length for IPv6 that was left out is written as the whole.
    let same = |part: &Part| match part {
        Part::Network(field, prefix) => (Some((*field, prefix.lengths())), None),
        other => (None, Some(other.clone())),
    };
    assert!(again.parts().iter().map(same).eq(template.parts().iter().map(same)), "{text}");
    assert_eq!(again.fields(), template.fields(), "{text}");
    assert!(template.address_part().is_none_or(|part| part < template.parts().len()));
}
