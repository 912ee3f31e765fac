//! The named limits of the config. They are found by name, and each has statistics. A reload replaces the whole set.
//!
//! A batch takes the current set when its first request names a limit, and uses that set to its end. A reload neither
//! waits for batches nor blocks them.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use lately_resp::limits::MAX_ECHOED_BYTES;

use super::descriptors::{DescriptorPattern, Entry};
use crate::config::NamedLimit;
use crate::limits::MAX_LISTED_LIMITS;

/// The current set of named limits.
#[derive(Default)]
pub(crate) struct CurrentRules(RwLock<Arc<Rules>>);

/// A set of named limits, in the order of the config.
#[derive(Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    numbers: HashMap<Box<[u8]>, RuleNumber>,
    /// Limits on descriptors, by their domain.
    domains: HashMap<Box<str>, Vec<(DescriptorPattern, RuleNumber)>>,
}

/// The index of a limit in its set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleNumber(u16);

/// A named limit.
pub(crate) struct Rule {
    pub(crate) limit: NamedLimit,
    pub(crate) tally: Arc<LimitTally>,
}

/// The answers of a limit, counted by request, since the start or since the limit was added.
#[derive(Default)]
pub(crate) struct LimitTally {
    allowed: AtomicU64,
    denied: AtomicU64,
    would_deny: AtomicU64,
}

/// The answer of a limit to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitAnswer {
    Allowed,
    Denied,
    /// Allowed, because the limit is in shadow. It would have been denied.
    WouldDeny,
}

impl CurrentRules {
    pub(crate) fn new(limits: &[NamedLimit]) -> CurrentRules {
        let current = CurrentRules::default();
        current.replace(limits);
        current
    }

    pub(crate) fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the set. A name that stays keeps its statistics. Called by one thread.
    pub(crate) fn replace(&self, limits: &[NamedLimit]) {
        let rules = Arc::new(self.get().replaced(limits));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}

impl Rules {
    fn replaced(&self, limits: &[NamedLimit]) -> Rules {
        let mut next = Rules::default();
        for limit in limits {
            let name = limit.name.as_bytes();
            let tally = self.find(name).map(|number| Arc::clone(&self.rule(number).tally));
            let number = u16::try_from(next.rules.len()).expect("a config has at most MAX_LIMITS of them");
            next.numbers.insert(name.into(), RuleNumber(number));
            if let Some(domain) = &limit.domain {
                let pattern = DescriptorPattern::of(&limit.descriptors);
                let of_domain = next.domains.entry(domain.as_str().into()).or_default();
                of_domain.push((pattern, RuleNumber(number)));
            }
            next.rules.push(Rule { limit: limit.clone(), tally: tally.unwrap_or_default() });
        }
        next
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<RuleNumber> {
        self.numbers.get(name).copied()
    }

    /// The limit on a descriptor: of those that match, the most specific one. Of several such, the first in the config.
    pub(super) fn find_by_descriptor(&self, domain: &str, entries: &[Entry<'_>]) -> Option<RuleNumber> {
        let matching = self.domains.get(domain)?.iter().rev();
        let matching =
            matching.filter_map(|(pattern, number)| Some((pattern.specificity(entries)?, *number)));
        matching.max_by_key(|(specificity, _)| *specificity).map(|(_, number)| number)
    }

    pub(crate) fn rule(&self, number: RuleNumber) -> &Rule {
        &self.rules[usize::from(number.0)]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The error about an unknown name.
    pub(crate) fn unknown(&self, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(&name[..name.len().min(MAX_ECHOED_BYTES)]);
        let listed: Vec<&str> =
            self.rules.iter().take(MAX_LISTED_LIMITS).map(|rule| rule.limit.name.as_str()).collect();
        let there_are = match self.rules.len() {
            0 => "none".to_owned(),
            all if all > listed.len() => format!("{} and {} more", listed.join(", "), all - listed.len()),
            _ => listed.join(", "),
        };
        match &*name {
            "" => format!("the name of the limit is missing: the config has {there_are}"),
            name => format!("no such limit '{name}': the config has {there_are}"),
        }
    }
}

impl LimitTally {
    fn counter(&self, answer: LimitAnswer) -> &AtomicU64 {
        match answer {
            LimitAnswer::Allowed => &self.allowed,
            LimitAnswer::Denied => &self.denied,
            LimitAnswer::WouldDeny => &self.would_deny,
        }
    }

    pub(crate) fn count(&self, answer: LimitAnswer) {
        self.counter(answer).fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self, answer: LimitAnswer) -> u64 {
        self.counter(answer).load(Relaxed)
    }
}

impl LimitAnswer {
    /// All answers, with their names in `INFO` and `/metrics`.
    pub(crate) const ALL: [(LimitAnswer, &str); 3] = [
        (LimitAnswer::Allowed, "allowed"),
        (LimitAnswer::Denied, "denied"),
        (LimitAnswer::WouldDeny, "would_deny"),
    ];
}

#[cfg(test)]
pub(crate) mod tests {
    use lately::minutes;

    use super::*;

    /// A limit of one hit a minute.
    pub(crate) fn limit(name: &str) -> NamedLimit {
        NamedLimit {
            name: name.to_owned(),
            max: 1,
            window: minutes(1),
            lockout: None,
            is_overdraft: false,
            exempt: Vec::new(),
            is_shadow: false,
            exact: None,
            key: None,
            deny: crate::config::Deny::default(),
            prefix: lately_keys::Prefix::new(32, 64).expect("lengths"),
            domain: None,
            descriptors: [].into(),
        }
    }

    fn tally(rules: &Rules, name: &str) -> [u64; 3] {
        let rule = rules.rule(rules.find(name.as_bytes()).expect(name));
        LimitAnswer::ALL.map(|(answer, _)| rule.tally.get(answer))
    }

    #[test]
    fn an_unchanged_name_keeps_its_tally() {
        let current = CurrentRules::new(&[limit("a"), limit("b")]);
        let before = current.get();
        let count = |name: &[u8], answer| before.rule(before.find(name).expect("there")).tally.count(answer);
        count(b"a", LimitAnswer::Allowed);
        count(b"b", LimitAnswer::Denied);
        current.replace(&[limit("c"), NamedLimit { max: 9, ..limit("b") }]);
        // A batch that still uses the old set counts, too.
        count(b"b", LimitAnswer::WouldDeny);
        let after = current.get();
        assert_eq!(tally(&after, "b"), [0, 1, 1]);
        assert_eq!(tally(&after, "c"), [0, 0, 0]);
        let b = after.find(b"b").expect("there");
        assert_eq!(
            (after.rule(b).limit.max, before.rule(before.find(b"b").expect("there")).limit.max),
            (9, 1)
        );
        assert!(after.find(b"a").is_none() && after.find(b"B").is_none());
        // A name that is removed and added again starts at 0.
        current.replace(&[limit("a")]);
        assert_eq!(tally(&current.get(), "a"), [0, 0, 0]);
    }

    #[test]
    fn the_error_for_an_unknown_limit_lists_the_known_ones() {
        let check = |names: &[&str], asked: &[u8], expected: &str| {
            let limits: Vec<_> = names.iter().map(|name| limit(name)).collect();
            assert_eq!(CurrentRules::new(&limits).get().unknown(asked), expected);
        };
        check(&[], b"x", "no such limit 'x': the config has none");
        check(&["b", "a"], b"", "the name of the limit is missing: the config has b, a");
        let eight = ["1", "2", "3", "4", "5", "6", "7", "8"];
        check(&eight, b"x", "no such limit 'x': the config has 1, 2, 3, 4, 5, 6, 7, 8");
        let ten = [&eight[..], &["9", "10"]].concat();
        check(&ten, b"x", "no such limit 'x': the config has 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
        let long = [&b"x"[..]; 200].concat();
        check(&["a"], &long, &format!("no such limit '{}': the config has a", "x".repeat(128)));
    }
}
