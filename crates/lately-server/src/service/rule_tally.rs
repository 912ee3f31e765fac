//! Statistics of the rules of envoyproxy/ratelimit.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lately::Decision;
use lately_ratelimit::{Rule, Rules};

use crate::limits::{MAX_DETAILED_RULE_SERIES, MAX_RULE_LABEL_BYTES};

/// The statistics of all rules, by domain and name. Rules with the same path have one.
pub(crate) struct RuleTallies(Mutex<Series>);

struct Series {
    by_name: BTreeMap<(Arc<str>, Arc<str>), Named>,
    /// How many more names there may be beside the paths of the rules.
    left: usize,
}

#[derive(Clone)]
struct Named {
    tally: Arc<RuleTally>,
    /// The index of the first rule whose path it is.
    rule: Option<usize>,
}

/// The statistics of a domain and a name.
#[derive(Clone)]
pub(crate) struct NamedTally {
    pub(crate) domain: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) tally: Arc<RuleTally>,
    /// The index of the first rule whose path the name is.
    pub(crate) rule: Option<usize>,
}

/// Hits by their answer.
#[derive(Default)]
pub(crate) struct RuleTally([AtomicU64; 5]);

/// Hits of a request by their answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RuleHits([u64; 5]);

/// What is counted, by index.
const TOTAL: usize = 0;
const WITHIN: usize = 1;
const NEAR: usize = 2;
const OVER: usize = 3;
const SHADOW: usize = 4;

/// A hit that leaves less than this share of the limit is near it: a fifth.
const NEAR_SHARE: u64 = 5;

impl RuleTally {
    /// What is counted, with the name and the help of its metric.
    pub(crate) const ALL: [(&str, &str); 5] = [
        ("lately_ratelimit_total_hits_total", "Hits of descriptors by their rule."),
        ("lately_ratelimit_within_limit_total", "Hits of descriptors that were within the limit."),
        ("lately_ratelimit_near_limit_total", "Hits from 0.8 of the limit up to it."),
        ("lately_ratelimit_over_limit_total", "Hits past the limit, those in shadow included."),
        ("lately_ratelimit_shadow_mode_total", "Hits past the limit of a rule in shadow."),
    ];

    pub(crate) fn add(&self, hits: RuleHits) {
        for (counter, more) in self.0.iter().zip(hits.0).filter(|(_, more)| *more > 0) {
            counter.fetch_add(more, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> [u64; 5] {
        self.0.each_ref().map(|counter| counter.load(Relaxed))
    }

    /// By the index of [`RuleTally::ALL`].
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0[index].load(Relaxed)
    }
}

impl RuleHits {
    /// Hits by an unlimited rule.
    pub(crate) fn unlimited(cost: u64) -> RuleHits {
        let mut hits = RuleHits::default();
        (hits.0[TOTAL], hits.0[WITHIN]) = (cost, cost);
        hits
    }

    /// Hits by a rule with a limit. The answer of a rule in shadow is always allowed: `would_deny` says whether there was no
    /// room for one hit. Several hits count if there is room for one; those past the limit are over it.
    pub(crate) fn of(decision: &Decision, cost: u64, (is_shadow, would_deny): (bool, bool)) -> RuleHits {
        let max = decision.max;
        let over = if decision.is_allowed() && !would_deny {
            decision.remaining.min(0).unsigned_abs().min(cost)
        } else {
            cost
        };
        let mut hits = RuleHits::default();
        hits.0[TOTAL] = cost;
        hits.0[OVER] = over;
        hits.0[SHADOW] = if is_shadow { over } else { 0 };
        hits.0[WITHIN] = if over == 0 { cost } else { 0 };
        // The hits up to the limit that are past the share.
        let near = max - max.div_ceil(NEAR_SHARE);
        hits.0[NEAR] = (max - decision.left()).saturating_sub(near).min(cost - over);
        hits
    }
}

impl Default for RuleTallies {
    fn default() -> RuleTallies {
        RuleTallies(Mutex::new(Series { by_name: BTreeMap::new(), left: MAX_DETAILED_RULE_SERIES }))
    }
}

impl RuleTallies {
    /// Statistics for these rules, and those of each rule by its index. A domain and a name that stay keep their counts.
    pub(crate) fn replaced(&self, rules: &Rules) -> (RuleTallies, Vec<Arc<RuleTally>>) {
        let old = self.lock();
        let mut by_name = BTreeMap::new();
        let of_path = |(index, rule): (usize, &Rule)| {
            let name = (Arc::from(&*rule.domain), Arc::from(&*rule.path));
            let tally = old.by_name.get(&name).map(|named| Arc::clone(&named.tally)).unwrap_or_default();
            let named = by_name.entry(name).or_insert(Named { tally, rule: Some(index) });
            Arc::clone(&named.tally)
        };
        let of_paths = rules.all().iter().enumerate().map(of_path).collect();
        let mut left = MAX_DETAILED_RULE_SERIES;
        for (name, named) in &old.by_name {
            if named.rule.is_none() && rules.has_domain(&name.0) && !by_name.contains_key(name) {
                by_name.insert(name.clone(), named.clone());
                left -= 1;
            }
        }
        (RuleTallies(Mutex::new(Series { by_name, left })), of_paths)
    }

    /// The statistics of a name that is not the path of its rule. `None` if the name is too long, or one too many.
    pub(crate) fn of(&self, domain: &str, name: &str) -> Option<Arc<RuleTally>> {
        if name.len() > MAX_RULE_LABEL_BYTES {
            return None;
        }
        let name = (Arc::from(domain), Arc::from(name));
        let mut series = self.lock();
        if let Some(named) = series.by_name.get(&name) {
            return Some(Arc::clone(&named.tally));
        }
        series.left = series.left.checked_sub(1)?;
        let tally = Arc::<RuleTally>::default();
        series.by_name.insert(name, Named { tally: Arc::clone(&tally), rule: None });
        Some(tally)
    }

    /// Whether there are names with values of requests.
    pub(crate) fn names_values(&self) -> bool {
        self.lock().left < MAX_DETAILED_RULE_SERIES
    }

    /// The next ones by domain and name, at most this number, after the last one of the page before.
    pub(crate) fn page(&self, last: Option<&NamedTally>, most: usize) -> Vec<NamedTally> {
        let each = |((domain, name), named): (&(Arc<str>, Arc<str>), &Named)| NamedTally {
            domain: Arc::clone(domain),
            name: Arc::clone(name),
            tally: Arc::clone(&named.tally),
            rule: named.rule,
        };
        let from = last.map_or(Bound::Unbounded, |last| {
            Bound::Excluded((Arc::clone(&last.domain), Arc::clone(&last.name)))
        });
        self.lock().by_name.range((from, Bound::Unbounded)).take(most).map(each).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_each_name_once() {
        let tallies = RuleTallies::default();
        let names: Vec<_> =
            (0..25).map(|number| (format!("d{}", number % 3), format!("n{number}"))).collect();
        for (domain, name) in &names {
            assert!(tallies.of(domain, name).is_some(), "{name}");
        }
        let mut listed: Vec<NamedTally> = Vec::new();
        loop {
            let page = tallies.page(listed.last(), 10);
            let is_last = page.is_empty();
            assert!(page.len() == 10 || is_last || listed.len() + page.len() == names.len());
            listed.extend(page);
            if is_last {
                break;
            }
        }
        let listed = listed.iter().map(|of| (of.domain.to_string(), of.name.to_string()));
        let mut names = names;
        names.sort();
        assert_eq!(listed.collect::<Vec<_>>(), names);
    }
}
