//! Decides descriptors by the rules of envoyproxy/ratelimit. A reload replaces the whole set.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use super::Refused;
use lately::{
    Admission, Outcome, Pattern, Request, Retry, Settings, Span, hours, milliseconds, minutes, seconds,
};
use lately_ratelimit::{Found, Limit, Rule, RuleNumber, Rules, Unit};

use super::commit::Changes;
use super::descriptors::{self, Descriptor, Entry, with_domain};
use super::rule_tally::{NamedTally, RuleHits, RuleTallies, RuleTally};
use super::{Batch, DecideError, Decided, Service, Stats};
use crate::config::{RATELIMIT_PREFIX, RuleFolder};

/// The current set of rules.
#[derive(Default)]
pub(crate) struct CurrentRateLimits(RwLock<Arc<RateLimits>>);

/// A set of rules and their statistics.
#[derive(Default)]
pub(crate) struct RateLimits {
    rules: Arc<Rules>,
    pub(crate) tallies: RuleTallies,
    /// Those of each rule, by its index.
    of_rules: Vec<Arc<RuleTally>>,
}

/// The rules for the descriptors of a request.
pub(crate) struct RuleMatches {
    limits: Arc<RateLimits>,
    /// One for each descriptor. `None`: no rule is for it.
    each: Vec<Option<RuleMatch>>,
}

struct RuleMatch {
    /// `None` for a limit that the request brings along.
    number: Option<RuleNumber>,
    /// The limit and the key that it counts. `None` for an unlimited rule.
    limited: Option<(Limit, Vec<u8>)>,
    cost: i64,
    is_report: bool,
    tally: Arc<RuleTally>,
}

/// What the rules say about a descriptor.
pub(crate) enum RuleAnswer {
    /// There is no rule for it.
    NoRule,
    Unlimited,
    Limited {
        /// The name of the rule, or an empty one.
        name: Box<str>,
        limit: Limit,
        is_quota: bool,
        /// Whether the descriptor is over its limit. It never is in shadow.
        is_over: bool,
        decided: Decided,
    },
}

impl CurrentRateLimits {
    pub(crate) fn of(folder: &RuleFolder) -> CurrentRateLimits {
        let current = CurrentRateLimits::default();
        current.replace(Arc::clone(&folder.rules));
        current
    }

    pub(crate) fn get(&self) -> Arc<RateLimits> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the set. A rule whose domain and path stay keeps its statistics. Called by one thread.
    pub(crate) fn replace(&self, rules: Arc<Rules>) {
        let limits = Arc::new(self.get().replaced(rules));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}

impl RateLimits {
    /// The statistics by domain and name, at most this number at a time. No more of them are held, however slowly they are taken.
    pub(crate) fn pages(
        self: &Arc<RateLimits>,
        most: usize,
    ) -> impl Iterator<Item = Vec<NamedTally>> + use<> {
        let (limits, mut last) = (Arc::clone(self), None);
        std::iter::from_fn(move || {
            let page = limits.tallies.page(last.as_ref(), most);
            last = Some(page.last()?.clone());
            Some(page)
        })
    }

    /// The rule of an index that [`NamedTally`] has.
    pub(crate) fn rule(&self, index: usize) -> &Rule {
        &self.rules.all()[index]
    }

    fn replaced(&self, rules: Arc<Rules>) -> RateLimits {
        let (tallies, of_rules) = self.tallies.replaced(&rules);
        RateLimits { rules, tallies, of_rules }
    }

    /// The match of a limit that the request brings along, in place of all rules.
    fn given(&self, limit: Limit, domain: &str, descriptor: &Descriptor<'_>) -> RuleMatch {
        let entries = || descriptor.entries.iter().copied();
        let key = key_of((limit.unit, domain), entries());
        let tally = self.tallies.of(domain, &lately_ratelimit::path(entries())).unwrap_or_default();
        let &Descriptor { cost, is_report, .. } = descriptor;
        RuleMatch { number: None, limited: Some((limit, key)), cost, is_report, tally }
    }

    fn of(&self, found: Found<'_>, domain: &str, descriptor: &Descriptor<'_>) -> RuleMatch {
        let Found { number, shared, metric } = found;
        let limited = self.rules.rule(number).limit.map(|limit| {
            let values = descriptor.entries.iter().zip(shared);
            let values = values.map(|((name, value), shared)| (*name, shared.unwrap_or(value)));
            (limit, key_of((limit.unit, domain), values))
        });
        let tally = metric.and_then(|name| self.tallies.of(domain, &name));
        let tally = tally.unwrap_or_else(|| Arc::clone(&self.of_rules[number.index()]));
        let &Descriptor { cost, is_report, .. } = descriptor;
        RuleMatch { number: Some(number), limited, cost, is_report, tally }
    }
}

/// The key that a rule counts. The name of the unit is in its start, so that each unit is a class of keys.
fn key_of<'e>((unit, domain): (Unit, &str), entries: impl Iterator<Item = Entry<'e>>) -> Vec<u8> {
    let start = with_domain(&format!("{RATELIMIT_PREFIX}{}:", unit.name()), domain);
    descriptors::key_of(start, entries)
}

/// The classes of the keys that rules count: hits are kept for the unit.
pub(crate) fn classes() -> impl Iterator<Item = (Pattern, Settings)> {
    Unit::ALL.into_iter().map(|unit| {
        let resolution = match unit {
            Unit::Second => milliseconds(10),
            Unit::Minute => milliseconds(500),
            Unit::Hour => seconds(30),
            Unit::Day => minutes(10),
            Unit::Week => hours(1),
            Unit::Month => hours(6),
            Unit::Year => hours(24),
        };
        let window = window(unit);
        let settings =
            Settings::builder().resolution(resolution).window(window).exact(window).retain(window).build();
        let pattern = Pattern::new(format!("{RATELIMIT_PREFIX}{}:*", unit.name()).as_bytes());
        (pattern, settings.expect("they agree with each other"))
    })
}

/// The limit of a max and a window that a request brings along.
fn limit_of((max, window): (u64, Span)) -> Option<Limit> {
    let unit = Unit::ALL.into_iter().find(|unit| self::window(*unit) == window)?;
    Some(Limit { requests: u32::try_from(max).ok()?, unit })
}

pub(crate) fn window(unit: Unit) -> Span {
    seconds(unit.seconds().into())
}

impl RuleMatches {
    /// The keys that the request would count.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.each.iter().flatten().filter_map(|found| Some(&*found.limited.as_ref()?.1))
    }
}

impl Service {
    /// Replaces the rules. `None`: their files have a mistake, and the old ones stay.
    pub(crate) fn reload_rules(&self, rules: Option<Arc<Rules>>) {
        self.stats.are_rules_failing.store(rules.is_none(), Relaxed);
        match rules {
            Some(rules) => {
                self.rate_limits.replace(rules);
                Stats::add(&self.stats.rule_reloads, 1);
            }
            None => Stats::add(&self.stats.rule_errors, 1),
        }
    }

    /// Finds the rules for descriptors. `None` if no file is for the domain.
    pub(crate) fn match_rules(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Option<RuleMatches> {
        let limits = self.rate_limits.get();
        if !limits.rules.has_domain(domain) {
            return None;
        }
        let given: Vec<Option<Limit>> =
            descriptors.iter().map(|descriptor| descriptor.limit.and_then(limit_of)).collect();
        let find = |(descriptor, given): (&Descriptor<'_>, &Option<Limit>)| {
            given.is_none().then(|| limits.rules.find(domain, &descriptor.entries)).flatten()
        };
        let mut found: Vec<Option<Found<'_>>> = descriptors.iter().zip(&given).map(find).collect();
        limits.rules.drop_replaced(&mut found);
        let each =
            found.into_iter().zip(given).zip(descriptors).map(|((found, given), descriptor)| match given {
                Some(limit) => Some(limits.given(limit, domain, descriptor)),
                None => Some(limits.of(found?, domain, descriptor)),
            });
        let each = each.collect();
        Some(RuleMatches { each, limits })
    }

    /// Decides each descriptor on its own: one that is denied does not keep the others from being counted. Returns once
    /// what was counted is committed.
    ///
    /// # Errors
    /// [`DecideError`]: if it is [`DecideError::Limit`], other descriptors may have been counted.
    pub(crate) async fn decide_by_rules(
        self: &Arc<Service>,
        matches: &RuleMatches,
    ) -> Result<Vec<RuleAnswer>, DecideError> {
        let RuleMatches { limits, each } = matches;
        if each.iter().flatten().any(|found| found.cost < 0) {
            self.check_refund().map_err(DecideError::Refund)?;
        }
        let now = self.now();
        let mut changes = Changes::default();
        let (outcomes, commit) = {
            let mut batch = Batch::default();
            for found in each.iter().flatten() {
                let Some(request) = found.request(limits) else { continue };
                if found.cost < 0 { batch.refund(request) } else { batch.limit(request) }
            }
            let _entered = self.enter();
            self.execute(&mut batch, &mut changes, now);
            let outcomes: Result<Vec<Outcome>, Refused> = batch.outcomes().collect();
            if let Ok(outcomes) = &outcomes {
                let would_deny = |index| batch.would_deny(index);
                tally(limits, each, (outcomes, would_deny), &mut changes);
            }
            (outcomes, self.commit(&mut [&mut changes]))
        };
        // The change is committed before the first await: a client that disconnects cannot undo it.
        self.settled(commit, changes).await.map_err(DecideError::Refused)?;
        let mut outcomes = outcomes.map_err(DecideError::Refused)?.into_iter();
        let answer = |found: &Option<RuleMatch>| {
            let Some(found) = found else { return Ok(RuleAnswer::NoRule) };
            let Some(request) = found.request(limits) else { return Ok(RuleAnswer::Unlimited) };
            let Some(Outcome::Limit(decided)) = outcomes.next() else {
                unreachable!("a limit was asked for")
            };
            let decision = decided.map_err(DecideError::Limit)?;
            let more_after = match decision.retry {
                Retry::After(wait) => Some(wait),
                _ => {
                    self.more_after(Request::new(request.key, request.max, request.window, 1), &decision, now)
                }
            };
            let rule = found.number.map(|number| limits.rules.rule(number));
            let is_overdrawn = found.cost > 0 && decision.remaining < 0 && !request.is_shadow;
            Ok(RuleAnswer::Limited {
                name: rule.map(|rule| rule.name.clone()).unwrap_or_default(),
                limit: found.limited.as_ref().expect("it has a request").0,
                is_quota: rule.is_some_and(|rule| rule.is_quota),
                is_over: !decision.is_allowed() || is_overdrawn,
                decided: Decided { decision, window: request.window, more_after },
            })
        };
        each.iter().map(answer).collect()
    }
}

impl RuleMatch {
    /// `None` for an unlimited rule.
    fn request(&self, limits: &RateLimits) -> Option<Request<'_>> {
        let (limit, key) = self.limited.as_ref()?;
        let is_shadow = self.number.is_some_and(|number| limits.rules.rule(number).is_shadow);
        let cost = self.cost.unsigned_abs();
        // A report counts, and other hits if there is room for one. Whether they are over the limit is another question.
        let admission = match cost {
            _ if self.is_report => Admission::Spent,
            0 | 1 => Admission::Whole,
            _ => Admission::Overdraft,
        };
        let request = Request::new(key, u64::from(limit.requests), window(limit.unit), cost);
        Some(Request { is_peek: cost == 0, is_shadow, admission, ..request })
    }
}

/// Adds the hits to the statistics, at the commit. The function says which outcomes are of a rule in shadow that would have
/// denied.
fn tally(
    limits: &RateLimits,
    each: &[Option<RuleMatch>],
    (outcomes, would_deny): (&[Outcome], impl Fn(usize) -> bool),
    changes: &mut Changes,
) {
    let mut outcomes = outcomes.iter().enumerate();
    for found in each.iter().flatten() {
        let hits = match found.request(limits).and_then(|_| outcomes.next()) {
            // Hits that are given back are in no statistics.
            _ if found.cost < 0 => continue,
            None => RuleHits::unlimited(found.cost.unsigned_abs()),
            Some((index, Outcome::Limit(Ok(decision)))) => {
                let is_shadow = found.request(limits).is_some_and(|request| request.is_shadow);
                RuleHits::of(decision, found.cost.unsigned_abs(), (is_shadow, would_deny(index)))
            }
            Some(_) => continue,
        };
        changes.add_rule_hits(&found.tally, hits);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use futures_util::FutureExt;
    use lately::{ManualClock, Timestamp};
    use proptest::prelude::*;
    use test_support::{Choices, ModelEntries, ModelFound, model_file, model_find};

    use super::*;
    use crate::config::Config;
    use crate::protocol::grpc::is_over;

    fn service(text: &str) -> Arc<Service> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("d.yaml"), text).expect("room");
        let rule_folder =
            Some(RuleFolder::load(folder.path()).unwrap_or_else(|error| panic!("{error}\n{text}")));
        let now = Timestamp::from_seconds(1_700_000_000).expect("a time");
        let config = Config { rule_folder, ..Config::default() };
        Arc::new(Service::new(config, Arc::new(ManualClock::new(now))).expect("valid"))
    }

    /// What was counted.
    type Counts = HashMap<ModelEntries, u64>;

    /// Whether descriptors of this cost have it as hits of their own.
    fn is_report(cost: u64) -> bool {
        cost == 5
    }

    /// Whether the descriptor is over its limit, whatever the mode, and how many hits are left.
    fn decide(counts: &mut Counts, found: &ModelFound<'_>, (cost, is_report): (u64, bool)) -> (bool, u64) {
        let max = u64::from(found.rule.requests.expect("it is limited"));
        let count = counts.entry(found.counted.clone()).or_default();
        let is_over = *count + cost > max;
        // Hits count while there is room for one, and reports always.
        *count += if *count < max || is_report { cost } else { 0 };
        (is_over, max.saturating_sub(*count))
    }

    #[test]
    fn different_descriptors_count_different_keys() {
        let key = |domain: &str, entries: &[Entry<'_>]| {
            String::from_utf8(key_of((Unit::Hour, domain), entries.iter().copied())).expect("text")
        };
        assert_eq!(key("a:b%", &[("c", "1,2"), ("d=:", "")]), "ratelimit:hour:a%3ab%25:c=1%2c2,d%3d%3a=");
        assert_ne!(key("a:b", &[("c", "1")]), key("a", &[("b:c", "1")]));
        assert_ne!(key("a", &[("c", "1,d=2")]), key("a", &[("c", "1"), ("d", "2")]));
        assert_ne!(key("a", &[("c", "1"), ("d", "2")]), key("a", &[("d", "2"), ("c", "1")]));
        let long = "v".repeat(2_000);
        let hashed = key(&":".repeat(256), &[("c", &long)]);
        assert!(hashed.len() < 1_024 && hashed.contains(":sha256:"), "{hashed}");
        assert_ne!(hashed, key(&":".repeat(256), &[("d", &long)]));
    }

    #[test]
    fn keys_have_the_class_of_their_unit() {
        let service = service("domain: d");
        for (unit, (_, settings)) in Unit::ALL.into_iter().zip(classes()) {
            let key = key_of((unit, "d"), [("a", "1")].into_iter());
            assert_eq!(*service.store.settings_of(&key), settings, "{}", unit.name());
            assert_eq!([settings.window(), settings.retain(), settings.exact()], [window(unit); 3]);
        }
    }

    proptest! {
        /// Limits are by the hour, and the time stands still: a count per set of entries is the whole model.
        #[test]
        fn any_requests_are_decided_as_by_the_model(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut choices = Choices(&bytes);
            let descriptors = choices.descriptors();
            let service = service(&model_file("d", &descriptors));
            let mut counts = Counts::new();
            while !choices.is_empty() {
                let request = choices.request();
                let of_request: Vec<Descriptor<'_>> =
                    request.iter().map(|(entries, cost)| Descriptor { entries: entries.clone(), cost: i64::try_from(*cost).expect("little"), is_report: is_report(*cost), limit: None }).collect();
                let matches = service.match_rules("d", &of_request).expect("it has a file");
                let answers = service.decide_by_rules(&matches).now_or_never().expect("there is no disk").expect("room");
                let (mut denies, mut quotas, mut quotas_over) = (false, 0, 0);
                for ((found, answer), (entries, cost)) in model_find(&descriptors, &request).iter().zip(&answers).zip(&request) {
                    match (found, answer) {
                        (None, RuleAnswer::NoRule) => {}
                        (Some(found), RuleAnswer::Unlimited) => prop_assert_eq!(found.rule.requests, None),
                        (Some(found), RuleAnswer::Limited { decided, is_over: answer, .. }) => {
                            let (is_over, left) = decide(&mut counts, found, (*cost, is_report(*cost)));
                            let is_over = is_over && !found.rule.is_shadow;
                            prop_assert_eq!(*answer, is_over, "{:?}", entries);
                            prop_assert_eq!(decided.decision.left(), left, "{:?}", entries);
                            quotas += usize::from(found.rule.is_quota);
                            quotas_over += usize::from(found.rule.is_quota && is_over);
                            denies |= is_over && !found.rule.is_quota;
                        }
                        _ => prop_assert!(false, "{:?}", entries),
                    }
                }
                prop_assert_eq!(is_over(&answers), denies || (quotas > 0 && quotas == quotas_over));
            }
        }
    }
}
