//! Access: what a client may do. Each way into the service checks a request before anything is executed: RESP when it has
//! read a request, HTTP when it has found the route.

use std::sync::Arc;

use lately::Pattern;
use lately_resp::command::Verb;

use super::users::User;

/// A client, as far as its permissions go.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    /// May do everything: there are no users.
    Anyone,
    /// Has to log in before it may do anything.
    Nobody,
    /// May do what its user may.
    User(Arc<User>),
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Forbidden<K> {
    /// The client has to log in.
    Login,
    /// The user may not use the verb.
    Verb,
    /// The user may not use the verb on this key.
    Key(K),
    /// The request is about all keys, and the user may use the verb on some of them.
    AllKeys,
}

impl Principal {
    /// Checks a request by its verb and its keys. `find` returns the first of its keys that is not among those it is given.
    /// Of a request that names no keys, such as `SCAN` or a dump, it returns `None`: the request is about all of them. It
    /// is only called when it matters.
    ///
    /// # Errors
    /// The client may not do that. Nothing of the request may be executed, not even for the keys it may use.
    #[inline]
    pub(crate) fn check<K>(
        &self,
        verb: Option<Verb>,
        find: impl FnOnce(&Keys) -> Option<Option<K>>,
    ) -> Result<(), Forbidden<K>> {
        let (Principal::User(user), Some(verb)) = (self, verb) else {
            let is_nobody = matches!(self, Principal::Nobody) && verb.is_some();
            return if is_nobody { Err(Forbidden::Login) } else { Ok(()) };
        };
        if !user.verbs.has(verb) {
            return Err(Forbidden::Verb);
        }
        if user.keys.is_all() {
            return Ok(());
        }
        match find(&user.keys) {
            Some(None) => Ok(()),
            Some(Some(key)) => Err(Forbidden::Key(key)),
            None => Err(Forbidden::AllKeys),
        }
    }

    /// Whether the client may use a key with the verbs that it has.
    #[inline]
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        match self {
            Principal::Anyone => true,
            Principal::Nobody => false,
            Principal::User(user) => user.keys.has(key),
        }
    }

    /// Its user, if it has logged in.
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        match self {
            Principal::User(user) => Some(user),
            Principal::Anyone | Principal::Nobody => None,
        }
    }

    /// The name of its user, for errors and `ACL WHOAMI`.
    pub(crate) fn name(&self) -> &str {
        self.user().map_or(crate::config::DEFAULT_USER, |user| &user.name)
    }

    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Principal::Nobody)
    }
}

/// Some verbs, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verbs(u8);

impl Verbs {
    pub(crate) fn of(verbs: &[Verb]) -> Verbs {
        Verbs(verbs.iter().fold(0, |bits, &verb| bits | bit(verb)))
    }

    #[inline]
    fn has(self, verb: Verb) -> bool {
        self.0 & bit(verb) != 0
    }
}

#[inline]
fn bit(verb: Verb) -> u8 {
    1 << verb as u8
}

/// The keys that match one of some patterns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keys(Box<[Test]>);

/// A pattern, in the form that is tested fastest. Most are a prefix and a star.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    All,
    Prefix(Box<[u8]>),
    Key(Box<[u8]>),
    Pattern(Pattern),
}

impl Keys {
    pub(crate) fn of(patterns: &[Pattern]) -> Keys {
        let tests: Vec<Test> = patterns.iter().map(Test::of).collect();
        Keys(if tests.contains(&Test::All) { Box::new([Test::All]) } else { tests.into() })
    }

    #[inline]
    fn is_all(&self) -> bool {
        matches!(self.0[..], [Test::All])
    }

    #[inline]
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.0.iter().any(|test| test.has(key))
    }
}

impl Test {
    fn of(pattern: &Pattern) -> Test {
        let text = pattern.as_bytes();
        let is_literal = |bytes: &[u8]| !bytes.iter().any(|byte| b"*?[\\".contains(byte));
        let stars = text.iter().rev().take_while(|&&byte| byte == b'*').count();
        match text.split_at(text.len() - stars) {
            (b"", _) if stars > 0 => Test::All,
            (start, _) if !is_literal(start) => Test::Pattern(pattern.clone()),
            (start, b"") => Test::Key(start.into()),
            (start, _) => Test::Prefix(start.into()),
        }
    }

    #[inline]
    fn has(&self, key: &[u8]) -> bool {
        match self {
            Test::All => true,
            Test::Prefix(start) => key.starts_with(start),
            Test::Key(only) => *key == **only,
            Test::Pattern(pattern) => pattern.matches(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_those_that_a_pattern_matches(
            patterns in prop::collection::vec("[ab*?\\[\\]\\\\]{1,5}", 1..4),
            key in "[ab*\\[]{0,5}",
        ) {
            let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::new(text.as_bytes())).collect();
            let keys = Keys::of(&patterns);
            let expected = patterns.iter().any(|pattern| pattern.matches(key.as_bytes()));
            prop_assert_eq!(keys.has(key.as_bytes()), expected);
            prop_assert!(!keys.is_all() || expected);
        }
    }

    #[test]
    fn usual_patterns_are_tested_without_a_search() {
        let check = |pattern: &str, expected: Test| {
            assert_eq!(Test::of(&Pattern::new(pattern.as_bytes())), expected, "{pattern}");
        };
        check("*", Test::All);
        check("**", Test::All);
        check("app:*", Test::Prefix((*b"app:").into()));
        check("app:1", Test::Key((*b"app:1").into()));
        check("app:?", Test::Pattern(Pattern::new(b"app:?")));
        check("app\\*", Test::Pattern(Pattern::new(b"app\\*")));
    }
}
