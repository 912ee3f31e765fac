//! What is known of a key besides its hits: what limits denied, and what they would answer now.

use std::sync::Arc;

use lately::{Settings, Span, Timestamp};

use super::Service;
use super::decisions::{DecideError, Decided, LimitRequest, Limiting};
use super::named_limits::Rule;
use crate::limits::MAX_LIMITS_OF_KEY;

/// The answer of a named limit to the next request of a key.
pub(crate) struct LimitOfKey {
    pub(crate) name: String,
    pub(crate) is_shadow: bool,
    pub(crate) decided: Decided,
}

impl Service {
    /// The settings of the class of a key.
    pub(crate) fn settings_of(&self, key: &[u8]) -> &Settings {
        self.store.settings_of(key)
    }

    /// Until when a key is locked out.
    pub(crate) fn locked_until(&self, key: &[u8], now: Timestamp) -> Option<Timestamp> {
        self.store.limited_until(key, now).filter(|&until| until > now)
    }

    /// The hits of a key that limits denied in a window.
    pub(crate) fn denied(&self, key: &[u8], window: Span, now: Timestamp) -> u64 {
        self.store.denied(key, Some(window), None, now).estimate
    }

    /// What named limits would answer a request of this key: those whose `key` or descriptors make such keys, then those that
    /// have neither. There may be more than are returned.
    pub(crate) async fn limits_of_key(
        self: &Arc<Service>,
        key: &[u8],
    ) -> Result<Vec<LimitOfKey>, DecideError> {
        let rules = self.rules.get();
        let mut named: Vec<&Rule> = rules.iter().filter(|rule| may_be_of(rule, key).is_some()).collect();
        named.sort_by_key(|rule| may_be_of(rule, key) == Some(false));
        named.truncate(MAX_LIMITS_OF_KEY);
        let mut found = Vec::with_capacity(named.len());
        for rule in named {
            let limit = Limiting::Named(&rules, rule.limit.name.as_bytes());
            let asked = LimitRequest { key, limit, cost: 1, at: None, is_peek: true, address: None };
            match self.decide(&asked).await {
                Ok(decided) => found.push(LimitOfKey {
                    name: rule.limit.name.clone(),
                    is_shadow: rule.limit.is_shadow,
                    decided,
                }),
                // The window is longer than the hits of this key are kept.
                Err(DecideError::Limit(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Whether a limit is for keys like this one: true by its config, false if clients name it as they like.
fn may_be_of(rule: &Rule, key: &[u8]) -> Option<bool> {
    let limit = &rule.limit;
    let is_of_descriptor = || {
        let rest = limit.domain.as_ref().and_then(|_| key.strip_prefix(limit.name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&b':') && rest.contains(&b'='))
    };
    match &limit.key {
        Some(template) if template.may_make(key) => Some(true),
        _ if is_of_descriptor() => Some(true),
        None if limit.domain.is_none() => Some(false),
        _ => None,
    }
}
