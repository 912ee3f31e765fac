//! Access: what a client may do. Each way into the service checks a request before anything is executed: RESP when it has
//! read a request, HTTP when it has found the route.

use lately::Pattern;
use lately_resp::command::Verb;
use thiserror::Error;

/// A client, as far as its permissions go.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// The verbs it may use.
    pub(crate) verbs: &'static [Verb],
    /// The keys it may use them on. `None` is all keys.
    pub(crate) keys: Option<Pattern>,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum Forbidden {
    /// The client may not use the verb.
    #[error("this user has no permissions for this request")]
    Verb,
    /// The client may not use the verb on one of the keys.
    #[error("this user has no permissions to access this key")]
    Key,
}

impl Principal {
    /// May do everything. There are no users, so every client is this one.
    pub(crate) const ANYONE: Principal = Principal { verbs: Verb::ALL, keys: None };

    /// Checks a request by its verb and its keys. A request that names no keys, such as `SCAN` or a dump, is about all of
    /// them: then `keys` returns `None`. It is only called when it matters.
    ///
    /// # Errors
    /// The client may not do that. Nothing of the request may be executed, not even for the keys it may use.
    #[inline]
    pub(crate) fn check<K: AsRef<[u8]>>(
        &self,
        verb: Option<Verb>,
        keys: impl FnOnce() -> Option<Vec<K>>,
    ) -> Result<(), Forbidden> {
        let Some(verb) = verb else { return Ok(()) };
        if !self.verbs.contains(&verb) {
            return Err(Forbidden::Verb);
        }
        let Some(pattern) = &self.keys else { return Ok(()) };
        let is_allowed = keys().is_some_and(|keys| keys.iter().all(|key| pattern.matches(key.as_ref())));
        if is_allowed { Ok(()) } else { Err(Forbidden::Key) }
    }
    /// Checks a verb on one key.
    ///
    /// # Errors
    /// The client may not use the verb, or not on this key.
    pub(crate) fn check_key(&self, verb: Verb, key: &[u8]) -> Result<(), Forbidden> {
        self.check(Some(verb), || Some(vec![key]))
    }
}
