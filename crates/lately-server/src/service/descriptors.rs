//! Limits on descriptors, as Envoy sends them: lists of keys and values. A request has several, and each is decided on its
//! own.

use std::collections::BTreeMap;
use std::sync::Arc;

use lately::limits::MAX_KEY_BYTES;
use lately::{Outcome, Request, Retry, Span};
use lately_journal::Refused;
use lately_keys::Prefix;

use super::commit::Changes;
use super::named_limits::{RuleNumber, Rules};
use super::{Batch, DecideError, Decided, NamedRequest, Service};
use crate::config::{DEFAULT_IPV4_PREFIX, DEFAULT_IPV6_PREFIX};

/// A key and its value.
pub(crate) type Entry<'r> = (&'r str, &'r str);

/// The descriptors that a limit is for.
pub(crate) struct DescriptorPattern(Box<[(Box<str>, ValuePattern)]>);

enum ValuePattern {
    Exact(Box<str>),
    /// Any value that starts so.
    Prefix(Box<str>),
}

/// How closely a pattern describes a descriptor: the number of exact values, then the bytes of prefixes.
pub(super) type Specificity = (usize, usize);

impl DescriptorPattern {
    pub(super) fn of(descriptors: &BTreeMap<String, String>) -> DescriptorPattern {
        let pattern = |(key, value): (&String, &String)| {
            let value = match value.strip_suffix('*') {
                Some(prefix) => ValuePattern::Prefix(prefix.into()),
                None => ValuePattern::Exact(value.as_str().into()),
            };
            (key.as_str().into(), value)
        };
        DescriptorPattern(descriptors.iter().map(pattern).collect())
    }

    /// How closely it describes a descriptor, in whatever order its entries are. `None` if it does not match.
    pub(super) fn specificity(&self, entries: &[Entry<'_>]) -> Option<Specificity> {
        if entries.len() != self.0.len() {
            return None;
        }
        self.0.iter().try_fold((0, 0), |(exact, prefix), (key, pattern)| {
            let (_, value) = entries.iter().find(|(name, _)| *name == &**key)?;
            match pattern {
                ValuePattern::Exact(text) => (*value == &**text).then_some((exact + 1, prefix)),
                ValuePattern::Prefix(start) => {
                    value.starts_with(&**start).then_some((exact, prefix + start.len()))
                }
            }
        })
    }
}

/// A descriptor of a request.
pub(crate) struct Descriptor<'r> {
    pub(crate) entries: Vec<Entry<'r>>,
    /// Hits that it takes. 0 only checks. Below 0, hits are given back.
    pub(crate) cost: i64,
    /// A max and a window that the request brings along, in place of those of the config.
    pub(crate) limit: Option<(u64, Span)>,
}

/// The entries whose value is the address of a client.
const ADDRESSES: [&str; 2] = ["remote_address", "masked_remote_address"];

/// The limit on a descriptor, and the key that it counts.
pub(crate) struct Match {
    pub(crate) key: Vec<u8>,
    /// The limit of the config. Without one, the request brought its limit along.
    number: Option<RuleNumber>,
    max: u64,
    window: Span,
    cost: i64,
    /// The address of the client, as in the key. Empty if the descriptor has none.
    address: Vec<u8>,
}

impl Match {
    fn new(rules: &Rules, domain: &str, descriptor: &Descriptor<'_>) -> Option<Match> {
        let number = rules.find_by_descriptor(domain, &descriptor.entries);
        let rule = number.map(|number| &rules.rule(number).limit);
        let (max, window) = descriptor.limit.or(rule.map(|limit| (limit.max, limit.window)))?;
        let (name, prefix) = match rule {
            Some(limit) => (limit.name.as_str(), limit.prefix),
            None => (domain, default_prefix()),
        };
        let mut entries = descriptor.entries.clone();
        entries.sort_unstable();
        let mut address = Vec::new();
        let mut key = name.as_bytes().to_vec();
        for (index, (entry, value)) in entries.into_iter().enumerate() {
            let value = prefix.apply(value.as_bytes());
            key.push(if index == 0 { b':' } else { b',' });
            push_escaped(&mut key, entry.as_bytes());
            key.push(b'=');
            push_escaped(&mut key, &value);
            if ADDRESSES.contains(&entry) {
                address = value.into_owned();
            }
        }
        Some(Match {
            key: shortened(key, name.as_bytes()),
            number,
            max,
            window,
            cost: descriptor.cost,
            address,
        })
    }

    fn add_to<'m>(&'m self, batch: &mut Batch<'m>, rules: &'m Rules, service: &Service) {
        let &Match { ref key, number, max, window, cost, ref address } = self;
        let is_peek = cost == 0;
        match number {
            Some(number) => {
                let name = rules.rule(number).limit.name.as_bytes();
                let (address, instead) = (Some(&**address), Some((max, window)));
                let named = NamedRequest { key, name, cost, at: None, is_peek, address, instead };
                batch.limit_by_name(&named, service).expect("it is a limit of this set");
            }
            None => {
                let request = Request::new(key, max, window, cost.unsigned_abs());
                let request = Request { is_peek, ..request };
                if cost < 0 { batch.refund(request) } else { batch.limit(request) }
            }
        }
    }
}

/// The addresses in keys of limits that have no other prefix.
fn default_prefix() -> Prefix {
    Prefix::new(DEFAULT_IPV4_PREFIX, DEFAULT_IPV6_PREFIX).expect("constants")
}

/// Adds a key or a value. Their separators are escaped, so that different descriptors have different keys.
pub(super) fn push_escaped(key: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'%' | b',' | b'=' => key.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => key.push(byte),
        }
    }
}

/// A key that is too long is replaced by its hash: an error would let the request pass where a proxy fails open.
pub(super) fn shortened(key: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, &key);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    [name, b":sha256:", hex.as_bytes()].concat()
}

/// The limits on the descriptors of a request.
pub(crate) struct Matches {
    rules: Arc<Rules>,
    /// One for each descriptor. `None`: no limit is for it.
    each: Vec<Option<Match>>,
}

/// The decision about a descriptor.
pub(crate) struct DescriptorDecision {
    /// The name of its limit. Empty if the request brought the limit along, and the config has none for the descriptor.
    pub(crate) name: String,
    /// A limit in shadow allows everything.
    pub(crate) decided: Decided,
}

impl Matches {
    /// The keys that the request would count.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.each.iter().flatten().map(|found| &*found.key)
    }
}

impl Service {
    /// Finds the limits on descriptors.
    pub(crate) fn match_descriptors(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Matches {
        let rules = self.rules.get();
        let each = descriptors.iter().map(|descriptor| Match::new(&rules, domain, descriptor)).collect();
        Matches { rules, each }
    }

    /// Decides each descriptor on its own: one that is denied does not keep the others from being counted. Returns once
    /// what was counted is committed. There are at most [`crate::limits::MAX_DESCRIPTORS`].
    ///
    /// # Errors
    /// [`DecideError`]: if it is [`DecideError::Limit`], other descriptors may have been counted.
    pub(crate) async fn decide_descriptors(
        self: &Arc<Service>,
        matches: &Matches,
    ) -> Result<Vec<Option<DescriptorDecision>>, DecideError> {
        let Matches { rules, each } = matches;
        if each.iter().flatten().any(|found| found.cost < 0) {
            self.check_refund().map_err(DecideError::Refund)?;
        }
        let now = self.now();
        let mut changes = Changes::default();
        let (outcomes, commit) = {
            let mut batch = Batch::default();
            batch.use_rules(Arc::clone(rules));
            for found in each.iter().flatten() {
                found.add_to(&mut batch, rules, self);
            }
            let _entered = self.enter();
            self.execute(&mut batch, &mut changes, now);
            let outcomes: Result<Vec<Outcome>, Refused> =
                batch.responses().map(|response| response.outcome.cloned().map_err(Clone::clone)).collect();
            (outcomes, self.commit(&mut [&mut changes]))
        };
        // The change is committed before the first await: a client that disconnects cannot undo it.
        self.settled(commit, changes).await.map_err(DecideError::Refused)?;
        let mut outcomes = outcomes.map_err(DecideError::Refused)?.into_iter();
        let decide = |found: &Option<Match>| {
            let Some(found) = found else { return Ok(None) };
            let Some(Outcome::Limit(decided)) = outcomes.next() else {
                unreachable!("a limit was asked for")
            };
            let decision = decided.map_err(DecideError::Limit)?;
            let more_after = match decision.retry {
                Retry::After(wait) => Some(wait),
                _ => {
                    let request = Request::new(&found.key, found.max, found.window, 1);
                    self.more_after(request, &decision, now)
                }
            };
            let decided = Decided { decision, window: found.window, more_after };
            let name = found.number.map_or("", |number| &rules.rule(number).limit.name).to_owned();
            Ok(Some(DescriptorDecision { name, decided }))
        };
        each.iter().map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(entries: &[(&str, &str)]) -> DescriptorPattern {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        DescriptorPattern::of(&entries.collect())
    }

    #[test]
    fn a_pattern_matches_all_entries_in_any_order() {
        let check = |patterns: &[(&str, &str)], entries: &[Entry<'_>], expected: Option<Specificity>| {
            assert_eq!(pattern(patterns).specificity(entries), expected, "{patterns:?} {entries:?}");
        };
        check(&[], &[], Some((0, 0)));
        check(&[], &[("a", "1")], None);
        check(&[("a", "*")], &[], None);
        check(&[("a", "*")], &[("a", "1")], Some((0, 0)));
        check(&[("a", "*")], &[("a", "")], Some((0, 0)));
        check(&[("a", "*")], &[("b", "1")], None);
        check(&[("a", "1*")], &[("a", "12")], Some((0, 1)));
        check(&[("a", "1*")], &[("a", "2")], None);
        check(&[("a", "1")], &[("a", "1")], Some((1, 0)));
        check(&[("a", "1")], &[("a", "12")], None);
        check(&[("a", "1"), ("b", "x*")], &[("b", "xy"), ("a", "1")], Some((1, 1)));
        // The depth must match.
        check(&[("a", "1")], &[("a", "1"), ("b", "2")], None);
        check(&[("a", "1"), ("b", "2")], &[("a", "1"), ("a", "1")], None);
    }

    #[test]
    fn different_descriptors_have_different_keys() {
        let key = |entries: &[Entry<'_>]| {
            let mut key = Vec::new();
            for (name, value) in entries {
                push_escaped(&mut key, name.as_bytes());
                key.push(b'=');
                push_escaped(&mut key, value.as_bytes());
                key.push(b',');
            }
            String::from_utf8(key).expect("text")
        };
        assert_eq!(key(&[("a", "1,b=2%")]), "a=1%2cb%3d2%25,");
        assert_ne!(key(&[("a", "1,b=2")]), key(&[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn a_long_key_is_hashed() {
        let long = |bytes| vec![b'x'; bytes];
        assert_eq!(shortened(long(MAX_KEY_BYTES), b"n"), long(MAX_KEY_BYTES));
        let hashed = String::from_utf8(shortened(long(MAX_KEY_BYTES + 1), b"n")).expect("text");
        assert_eq!((hashed.len(), hashed.starts_with("n:sha256:")), (9 + 64, true));
        assert_ne!(hashed.into_bytes(), shortened(long(MAX_KEY_BYTES + 2), b"n"));
    }
}
