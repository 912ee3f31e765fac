//! Limits on descriptors, as Envoy sends them: lists of keys and values. A request has several, and each is decided on its
//! own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Refused;
use futures_util::future::join_all;
use lately::limits::MAX_KEY_BYTES;
use lately::{Outcome, Request, Retry, Span};
use lately_keys::{Prefix, push_escaped};

use super::commit::Changes;
use super::named_limits::{RuleNumber, Rules};
use super::owners::Verdict;
use super::{Batch, DecideError, Decided, NamedRequest, Service};
use crate::config::{DEFAULT_IPV4_PREFIX, DEFAULT_IPV6_PREFIX, DOMAIN_PREFIX};

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
    /// It has hits of its own, above 0. Envoy reports costs so once they are known, when the request has passed.
    pub(crate) is_report: bool,
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
    is_report: bool,
    /// The address of the client, as in the key. Empty if the descriptor has none.
    address: Vec<u8>,
}

impl Match {
    fn new(rules: &Rules, domain: &str, descriptor: &Descriptor<'_>) -> Option<Match> {
        let number = rules.find_by_descriptor(domain, &descriptor.entries);
        let rule = number.map(|number| &rules.rule(number).limit);
        let (max, window) = descriptor.limit.or(rule.map(|limit| (limit.max, limit.window)))?;
        let (start, prefix) = match rule {
            Some(limit) => (limit.name.clone().into_bytes(), limit.prefix),
            None => (with_domain(DOMAIN_PREFIX, domain), default_prefix()),
        };
        let mut entries = descriptor.entries.clone();
        entries.sort_unstable();
        let entries: Vec<(&str, Cow<'_, [u8]>)> =
            entries.into_iter().map(|(name, value)| (name, prefix.apply(value.as_bytes()))).collect();
        let address = entries.iter().rfind(|(name, _)| ADDRESSES.contains(name));
        let address = address.map(|(_, value)| value.to_vec()).unwrap_or_default();
        Some(Match {
            key: key_of(start, entries.into_iter()),
            number,
            max,
            window,
            cost: descriptor.cost,
            is_report: descriptor.is_report,
            address,
        })
    }

    /// The request, if the limit is one of the config.
    fn named<'m>(&'m self, rules: &'m Rules, is_exempt: bool) -> Option<NamedRequest<'m>> {
        let &Match { ref key, number, max, window, cost, is_report: is_spent, ref address } = self;
        let name = rules.rule(number?).limit.name.as_bytes();
        let (address, instead) = (Some(&**address), Some((max, window)));
        let (at, is_peek) = (None, cost == 0);
        Some(NamedRequest { key, name, cost, at, is_peek, address, instead, is_spent, is_exempt })
    }

    fn add_to<'m>(&'m self, batch: &mut Batch<'m>, rules: &'m Rules, is_exempt: bool, service: &Service) {
        match self.named(rules, is_exempt) {
            Some(named) => batch.limit_by_name(&named, service).expect("it is a limit of this set"),
            None => {
                let &Match { ref key, max, window, cost, .. } = self;
                let is_peek = cost == 0;
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

/// The start of the keys of a domain.
pub(super) fn with_domain(prefix: &str, domain: &str) -> Vec<u8> {
    let mut start = prefix.as_bytes().to_vec();
    push_escaped(&mut start, domain.as_bytes(), b":");
    start
}

/// The key that a descriptor counts: `START:NAME=VALUE,NAME=VALUE`. Different starts and entries have different keys: a start
/// has no `=`, so that the last `:` before the first `=` ends it, and no name has a `:`.
///
/// A key that is too long is replaced by its hash: an error would let the request pass where a proxy fails open.
pub(super) fn key_of<'e, V: AsRef<[u8]>>(
    start: Vec<u8>,
    entries: impl Iterator<Item = (&'e str, V)>,
) -> Vec<u8> {
    let start_bytes = start.len();
    let mut key = start;
    for (index, (name, value)) in entries.enumerate() {
        key.push(if index == 0 { b':' } else { b',' });
        push_escaped(&mut key, name.as_bytes(), b":,=");
        key.push(b'=');
        push_escaped(&mut key, value.as_ref(), b",=");
    }
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, &key);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let hashed = format!(":sha256:{hex}");
    key.truncate(start_bytes.min(MAX_KEY_BYTES - hashed.len()));
    key.extend_from_slice(hashed.as_bytes());
    key
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
    /// Whether it is over its limit: denied, or a report that came when there was no room.
    pub(crate) is_over: bool,
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
        let verdicts = self.verdicts_of_owners(matches).await;
        let now = self.now();
        let mut changes = Changes::default();
        let (outcomes, commit) = {
            let mut batch = Batch::default();
            batch.use_rules(Arc::clone(rules));
            for (found, verdict) in each.iter().zip(&verdicts) {
                let is_exempt = match verdict {
                    Some(Verdict::Decided(_) | Verdict::Refused { .. }) => continue,
                    Some(Verdict::Here { is_exempt }) => *is_exempt,
                    None => false,
                };
                found.iter().for_each(|found| found.add_to(&mut batch, rules, is_exempt, self));
            }
            let _entered = self.enter();
            self.execute(&mut batch, &mut changes, now);
            let outcomes: Result<Vec<Outcome>, Refused> = batch.outcomes().collect();
            (outcomes, self.commit(&mut [&mut changes]))
        };
        // The change is committed before the next await: a client that disconnects cannot undo it.
        self.settled(commit, changes).await.map_err(DecideError::Refused)?;
        let mut outcomes = outcomes.map_err(DecideError::Refused)?.into_iter();
        let decide = |(found, verdict): (&Option<Match>, Option<Verdict>)| {
            let Some(found) = found else { return Ok(None) };
            let (decision, told) = match verdict {
                Some(Verdict::Decided(Decided { decision, more_after, .. })) => (decision, Some(more_after)),
                Some(Verdict::Refused { code, error }) => return Err(DecideError::Owner { code, error }),
                Some(Verdict::Here { .. }) | None => {
                    let Some(Outcome::Limit(decided)) = outcomes.next() else {
                        unreachable!("a limit was asked for")
                    };
                    (decided.map_err(DecideError::Limit)?, None)
                }
            };
            let more_after = match (decision.retry, told) {
                (Retry::After(wait), _) => Some(wait),
                (_, Some(more_after)) => more_after,
                (_, None) => {
                    let request = Request::new(&found.key, found.max, found.window, 1);
                    self.more_after(request, &decision, now)
                }
            };
            let had_room = decision.remaining.saturating_add(found.cost) > 0;
            let is_shadow = found.number.is_some_and(|number| rules.rule(number).limit.is_shadow);
            let is_late = found.is_report && decision.remaining < 0 && !had_room && !is_shadow;
            let is_over = !decision.is_allowed() || is_late;
            let decided = Decided { decision, window: found.window, more_after };
            let name = found.number.map_or("", |number| &rules.rule(number).limit.name).to_owned();
            Ok(Some(DescriptorDecision { name, decided, is_over }))
        };
        each.iter().zip(verdicts).map(decide).collect()
    }

    /// What other nodes say of exact limits on descriptors. `None` where this node decides.
    async fn verdicts_of_owners(&self, Matches { rules, each }: &Matches) -> Vec<Option<Verdict>> {
        let verdict = async |found: &Option<Match>| {
            let found = found.as_ref()?;
            let limit = &rules.rule(found.number?).limit;
            self.decided_by_owner(limit, &found.named(rules, false)?).await
        };
        join_all(each.iter().map(verdict)).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn key(start: &str, entries: &[Entry<'_>]) -> String {
        String::from_utf8(key_of(start.into(), entries.iter().copied())).expect("text")
    }

    #[test]
    fn separators_in_entries_are_escaped() {
        assert_eq!(
            key("address", &[("remote_address", "2001:db8::/64")]),
            "address:remote_address=2001:db8::/64"
        );
        assert_eq!(key("n", &[("a", "1,b=2%"), ("c:d", "")]), "n:a=1%2cb%3d2%25,c%3ad=");
        assert_eq!(key("n", &[]), "n");
        // Both were `a:b:c=1`.
        assert_ne!(key("a", &[("b:c", "1")]), key("a:b", &[("c", "1")]));
        assert_eq!(with_domain("domain:", "a:b%=,"), b"domain:a%3ab%25=,");
    }

    /// The entries of a descriptor, with names and values.
    fn any_entries() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::vec(("[:,=%ab3]{0,4}", "[:,=%ab3]{0,4}"), 0..3)
    }

    proptest! {
        #[test]
        fn different_descriptors_have_different_keys(
            [start, other_start] in proptest::array::uniform2("[ab:]{1,3}"),
            [entries, other_entries] in proptest::array::uniform2(any_entries()),
            [domain, other_domain] in proptest::array::uniform2("[:,=%ab3]{0,4}"),
        ) {
            fn of(start: Vec<u8>, entries: &[(String, String)]) -> Vec<u8> {
                key_of(start, entries.iter().map(|(name, value)| (&**name, value)))
            }
            let is_same = start == other_start && entries == other_entries;
            prop_assert_eq!(of(start.into(), &entries) == of(other_start.into(), &other_entries), is_same);
            let of_domain = |domain: &str, entries| of(with_domain("domain:", domain), entries);
            let is_same = domain == other_domain && entries == other_entries;
            prop_assert_eq!(of_domain(&domain, &entries) == of_domain(&other_domain, &other_entries), is_same);
        }
    }

    #[test]
    fn a_long_key_is_hashed() {
        let long = |bytes| "x".repeat(bytes);
        let room = MAX_KEY_BYTES - "n:k=".len();
        assert_eq!(key("n", &[("k", &long(room))]), format!("n:k={}", long(room)));
        let hashed = key("n", &[("k", &long(room + 1))]);
        assert_eq!((hashed.len(), hashed.starts_with("n:sha256:")), (9 + 64, true));
        assert_ne!(hashed, key("n", &[("k", &long(room + 2))]));
        // The start is too long, too.
        let hashed = key(&long(2_000), &[("k", "1")]);
        assert_eq!((hashed.len(), hashed.starts_with("xxx")), (MAX_KEY_BYTES, true));
        assert_ne!(hashed, key(&long(2_000), &[("k", "2")]));
    }
}
