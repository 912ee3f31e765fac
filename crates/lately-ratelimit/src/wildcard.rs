//! Values with `*`, which stands for any text.

/// A value with at least one `*`.
#[derive(Debug)]
pub(crate) struct Wildcard {
    pub(crate) text: Box<str>,
    /// The texts between the stars.
    parts: Box<[Box<str>]>,
    /// The bytes of all parts.
    bytes: usize,
}

impl Wildcard {
    /// `None` for a value without a `*`.
    pub(crate) fn new(value: &str) -> Option<Wildcard> {
        let parts: Box<[Box<str>]> = value.split('*').map(Into::into).collect();
        let bytes = parts.iter().map(|part| part.len()).sum();
        (parts.len() > 1).then(|| Wildcard { text: value.into(), parts, bytes })
    }

    pub(crate) fn matches(&self, value: &str) -> bool {
        let [first, middle @ .., last] = &*self.parts else { unreachable!("it has a star") };
        if value.len() < self.bytes {
            return false;
        }
        let inner = value.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
        let Some(mut rest) = inner else { return false };
        middle.iter().all(|part| {
            let found = rest.find(&**part);
            rest = found.map_or("", |at| &rest[at + part.len()..]);
            found.is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let check = |pattern: &str, value: &str, expected: bool| {
            let wildcard = Wildcard::new(pattern).expect("it has a star");
            assert_eq!(wildcard.matches(value), expected, "{pattern} {value}");
        };
        assert!(Wildcard::new("").is_none() && Wildcard::new("/a?").is_none());
        check("*", "", true);
        check("*", "é", true);
        check("/a*", "/a", true);
        check("/a*", "/ab", true);
        check("/a*", "/b", false);
        check("*.png", "/a.png", true);
        check("*.png", "png", false);
        check("/a*b", "/ab", true);
        check("/a*b", "/a*b", true);
        // The two ends may not share text.
        check("aba*aba", "aba", false);
        check("aba*aba", "ababa", false);
        check("aba*aba", "abaaba", true);
        check("a*b*c", "a-b-c", true);
        check("a*b*c", "a-c-b", false);
        check("a*bb*b", "abb", false);
        check("a*bb*b", "abbb", true);
        check("**", "x", true);
    }
}
