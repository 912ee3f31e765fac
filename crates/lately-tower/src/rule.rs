//! A limit of the layer.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderValue;
use lately::{Lockout, Span};
use lately_keys::Exempt;
use lately_keys::quota::QuotaItem;

use crate::error::BuildError;
use crate::key::Key;
use crate::limits::MAX_NAME_BYTES;

/// A limit, and how often it denied.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) key: Key,
    pub(crate) max: u64,
    pub(crate) window: Span,
    /// How long a key is denied after a denial.
    pub(crate) lockout: Option<Lockout>,
    /// What the limit does not apply to.
    pub(crate) exempt: Vec<Exempt>,
    /// Whether it denies nothing.
    pub(crate) is_shadow: bool,
    pub(crate) denials: AtomicU64,
    /// The value of `RateLimit-Policy` when no other limit applies.
    pub(crate) policy: HeaderValue,
}

impl Rule {
    /// Checks the name, which is in headers, in JSON and in keys, and the name of a header.
    pub(crate) fn checked(self) -> Result<Rule, BuildError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_valid = (1..=MAX_NAME_BYTES).contains(&self.name.len()) && self.name.bytes().all(is_plain);
        if !is_valid {
            return Err(BuildError::Name { name: self.name });
        }
        let mut policy = String::new();
        self.item().add_policy(&mut policy);
        let policy = HeaderValue::try_from(policy).expect("the name is letters and digits");
        Ok(Rule { key: self.key.checked()?, policy, ..self })
    }

    /// The limit in headers, with all that it allows.
    pub(crate) fn item(&self) -> QuotaItem<'_> {
        let &Rule { ref name, max, window, .. } = self;
        QuotaItem { name, max, window_ms: window.as_millis(), remaining: max, more_after_ms: None }
    }

    /// The lockout that a denial starts. A limit in shadow starts none.
    pub(crate) fn starts(&self) -> Option<Lockout> {
        self.lockout.filter(|_| !self.is_shadow)
    }

    pub(crate) fn count_denial(&self) {
        self.denials.fetch_add(1, Relaxed);
    }
}
