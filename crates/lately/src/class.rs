//! Classes of keys: patterns over key bytes, each with its settings.

use crate::error::SettingsError;
use crate::limits::MAX_CLASSES;
use crate::settings::Settings;

/// A pattern over bytes, with the syntax of Redis: `*` matches any run of bytes, `?` any byte, `[a-z]` or `[^a-z]` a set,
/// and `\` takes the next byte literally.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(Box<[u8]>);

impl Pattern {
    /// Parses a pattern. Every text is valid: an open set ends at the end of the text.
    #[must_use]
    pub fn new(text: &[u8]) -> Pattern {
        Pattern(text.into())
    }

    /// The text of the pattern.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The literal start of all keys that match, and the rest of the pattern.
    #[must_use]
    pub fn head(&self) -> (&[u8], &[u8]) {
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        self.0.split_at(self.0.iter().position(is_special).unwrap_or(self.0.len()))
    }

    /// Whether the whole of `key` matches.
    ///
    /// It takes time proportional to the product of both lengths: after a mismatch only the last `*` is tried again, one
    /// byte further on.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        self.matches_for(key, &mut 0)
    }

    /// Whether some key matches both patterns.
    #[must_use]
    pub fn meets(&self, other: &Pattern) -> bool {
        let [these, those] = [self, other].map(Pattern::elements);
        // Pairs of places that some text leads to, each visited once. A star ends there, or has one more byte.
        let mut seen = vec![false; (these.len() + 1) * (those.len() + 1)];
        let mut open = vec![(0, 0)];
        while let Some((i, j)) = open.pop() {
            if std::mem::replace(&mut seen[i * (those.len() + 1) + j], true) {
                continue;
            }
            match (these.get(i), those.get(j)) {
                (None, None) => return true,
                (Some(Element::Any), those) => {
                    open.push((i + 1, j));
                    open.extend(those.map(|_| (i, j + 1)));
                }
                (these, Some(Element::Any)) => {
                    open.push((i, j + 1));
                    open.extend(these.map(|_| (i + 1, j)));
                }
                (Some(Element::One(these)), Some(Element::One(those))) => {
                    let is_shared = these.iter().zip(those.iter()).any(|(one, other)| *one && *other);
                    open.extend(is_shared.then_some((i + 1, j + 1)));
                }
                (Some(Element::One(_)), None) | (None, Some(Element::One(_))) => {}
            }
        }
        false
    }

    fn elements(&self) -> Vec<Element> {
        let (mut elements, mut p) = (Vec::new(), 0);
        while p < self.0.len() {
            if self.0[p] == b'*' {
                elements.push(Element::Any);
                p += 1;
                continue;
            }
            let mut bytes = Box::new([false; 256]);
            for (byte, is_in) in (0..=u8::MAX).zip(bytes.iter_mut()) {
                *is_in = match_one(&self.0, p, byte).0;
            }
            elements.push(Element::One(bytes));
            p = match_one(&self.0, p, 0).1;
        }
        elements
    }

    /// Matches like [`Pattern::matches`], and adds the number of comparisons with a byte of the pattern to `work`.
    pub(crate) fn matches_for(&self, key: &[u8], work: &mut u64) -> bool {
        let pattern = &self.0[..];
        let (mut p, mut k) = (0, 0);
        // Where to continue after a mismatch: behind the last star, and the next byte that it would match.
        let mut retry = None;
        while k < key.len() {
            if pattern.get(p) == Some(&b'*') {
                p += 1;
                retry = Some((p, k));
                continue;
            }
            let (is_matched, next) = match_one(pattern, p, key[k]);
            *work += (next - p) as u64;
            if is_matched {
                (p, k) = (next, k + 1);
                continue;
            }
            let Some((star_p, star_k)) = retry else { return false };
            (p, k) = (star_p, star_k + 1);
            retry = Some((star_p, k));
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
}

/// An element of a pattern.
enum Element {
    /// Any run of bytes.
    Any,
    /// One byte of these.
    One(Box<[bool; 256]>),
}

/// Whether `byte` matches the element at `p`, and the place after the element.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> (bool, usize) {
    match pattern.get(p) {
        None => (false, p),
        Some(b'?') => (true, p + 1),
        Some(b'[') => match_set(pattern, p + 1, byte),
        Some(b'\\') if p + 1 < pattern.len() => (pattern[p + 1] == byte, p + 2),
        Some(&literal) => (literal == byte, p + 1),
    }
}

/// Whether `byte` matches the set whose first member is at `p`, and the place after the set.
fn match_set(pattern: &[u8], mut p: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    while let Some(&member) = pattern.get(p) {
        match member {
            b']' => {
                p += 1;
                break;
            }
            b'\\' if p + 1 < pattern.len() => {
                found |= pattern[p + 1] == byte;
                p += 2;
            }
            low if pattern.get(p + 1) == Some(&b'-') && p + 2 < pattern.len() => {
                let high = pattern[p + 2];
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                p += 3;
            }
            literal => {
                found |= literal == byte;
                p += 1;
            }
        }
    }
    (found != negated, p)
}

/// The index of a class in a store. The default class comes last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassId(u8);

impl ClassId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// The classes of a store. A key belongs to the first whose pattern matches, else to the default.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    patterns: Box<[Pattern]>,
    /// One more than there are patterns: the last is the default.
    settings: Box<[Settings]>,
}

impl Classes {
    pub(crate) fn new(named: Vec<(Pattern, Settings)>, default: Settings) -> Result<Classes, SettingsError> {
        if named.len() > MAX_CLASSES {
            return Err(SettingsError::Classes { most: MAX_CLASSES });
        }
        let (patterns, settings): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let settings = settings.into_iter().chain([default]).collect();
        Ok(Classes { patterns: patterns.into(), settings })
    }

    /// The classes that keys with this prefix may have, without hidden ones.
    pub(crate) fn of_prefix(&self, prefix: &[u8]) -> impl Iterator<Item = ClassId> {
        let mut is_taken = false;
        self.each().map(|(class, _)| class).filter(move |class| {
            let Some(pattern) = self.patterns.get(usize::from(class.0)) else { return !is_taken };
            let (head, rest) = pattern.head();
            let common = head.len().min(prefix.len());
            let may = !is_taken && head[..common] == prefix[..common];
            is_taken |= may && head.len() == common && rest == b"*";
            may && !self.settings(*class).hidden()
        })
    }

    /// The classes with their settings, the default last.
    pub(crate) fn each(&self) -> impl Iterator<Item = (ClassId, &Settings)> {
        (0..=u8::MAX).map(ClassId).zip(&self.settings)
    }

    pub(crate) fn of(&self, key: &[u8]) -> ClassId {
        let place = self.patterns.iter().position(|pattern| pattern.matches(key));
        ClassId(u8::try_from(place.unwrap_or(self.patterns.len())).expect("the number of classes is bounded"))
    }

    /// The pattern of each class but the default.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The settings of each class, the default last.
    pub(crate) fn all(&self) -> &[Settings] {
        &self.settings
    }

    #[inline]
    pub(crate) fn settings(&self, class: ClassId) -> &Settings {
        &self.settings[usize::from(class.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{milliseconds, seconds};

    #[test]
    fn patterns_that_share_a_key_meet() {
        let check = |one: &str, other: &str, expected: bool| {
            let [one, other] = [one, other].map(|text| Pattern::new(text.as_bytes()));
            assert_eq!(one.meets(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.meets(&one), expected, "{other:?} {one:?}");
        };
        for (one, other, expected) in [
            ("", "", true),
            ("", "*", true),
            ("", "?", false),
            ("a*", "b*", false),
            ("a*", "*b", true),
            ("a*b", "a*c", false),
            ("a*b", "ab", true),
            ("a*b", "a", false),
            ("*", "x:?", true),
            ("*a*", "*b*", true),
            ("[a-c]x", "[d-f]x", false),
            ("[a-c]x", "[c-f]?", true),
            ("[^a]", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("??*", "a", false),
            ("a**", "*?a", true),
        ] {
            check(one, other, expected);
        }
        // Pairs that are slow without a memory of the places.
        let [many, none] = ["*a".repeat(200), "*b".repeat(200) + "c"];
        check(&many, &none, false);
    }

    #[test]
    fn patterns_match_as_in_redis() {
        let check = |pattern: &str, key: &str, expected: bool| {
            let matched = Pattern::new(pattern.as_bytes()).matches(key.as_bytes());
            assert_eq!(matched, expected, "{pattern} on {key}");
        };
        for (pattern, key, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("**", "abc", true),
            ("ad:*", "ad:1", true),
            ("ad:*", "ad:", true),
            ("ad:*", "aad:1", false),
            ("*:x", "a:x:x", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[ab", "a", true),
            ("[ab", "c", false),
            ("a\\", "a\\", true),
            ("[a-]", "-", false),
        ] {
            check(pattern, key, expected);
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = Pattern::new("a*".repeat(200).as_bytes());
        assert!(!pattern.matches(&[b"a".repeat(1_000), b"b".to_vec()].concat()[1_000..]));
        assert!(!Pattern::new(&[b"*a".repeat(200), b"b".to_vec()].concat()).matches(&b"a".repeat(1_000)));
    }

    #[test]
    fn the_first_matching_class_counts() {
        let with = |span| Settings::builder().resolution(span).build().expect("valid");
        let classes = vec![
            (Pattern::new(b"ad:slow:*"), with(seconds(10))),
            (Pattern::new(b"ad:*"), with(milliseconds(100))),
        ];
        let classes = Classes::new(classes, Settings::default()).expect("few classes");
        let resolution = |key: &[u8]| classes.settings(classes.of(key)).resolution();
        assert_eq!(resolution(b"ad:slow:1"), seconds(10));
        assert_eq!(resolution(b"ad:1"), milliseconds(100));
        assert_eq!(resolution(b"user:1"), seconds(1));
    }

    #[test]
    fn classes_are_bounded() {
        let classes = |n| vec![(Pattern::new(b"a"), Settings::default()); n];
        assert!(Classes::new(classes(MAX_CLASSES), Settings::default()).is_ok());
        assert!(Classes::new(classes(MAX_CLASSES + 1), Settings::default()).is_err());
    }
}
