//! A limit of the layer.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lately::Span;

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
    /// Whether it denies nothing.
    pub(crate) is_shadow: bool,
    pub(crate) denials: AtomicU64,
}

impl Rule {
    /// Checks the name, which is in headers, in JSON and in keys, and the name of a header.
    pub(crate) fn checked(self) -> Result<Rule, BuildError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_valid = (1..=MAX_NAME_BYTES).contains(&self.name.len()) && self.name.bytes().all(is_plain);
        if !is_valid {
            return Err(BuildError::Name { name: self.name });
        }
        Ok(Rule { key: self.key.checked()?, ..self })
    }

    pub(crate) fn count_denial(&self) {
        self.denials.fetch_add(1, Relaxed);
    }
}
