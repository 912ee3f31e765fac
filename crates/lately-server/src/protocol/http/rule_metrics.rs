//! The statistics of rules of envoyproxy/ratelimit in `/metrics`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::metrics::escaped;
use crate::limits::RULES_A_PIECE;
use crate::service::Service;
use crate::service::rule_tally::{NamedTally, RuleTally};

/// Nothing without `--ratelimit-config`. The metrics of the reloads, then each counter with a line for each rule.
pub(super) fn pieces(service: &Service) -> impl Iterator<Item = String> + Send + use<> {
    let reloads = service.config.rule_folder.as_ref().map(|_| reloads(service));
    let all: Arc<[_]> = service.rate_limits.get().tallies.all().into();
    let counters = if all.is_empty() { 0 } else { RuleTally::ALL.len() };
    reloads.into_iter().chain((0..counters).flat_map(move |counter| {
        let (name, help) = RuleTally::ALL[counter];
        let head = format!("# HELP {name} {help}\n# TYPE {name} counter\n");
        let all = Arc::clone(&all);
        let starts = (0..all.len()).step_by(RULES_A_PIECE);
        [head]
            .into_iter()
            .chain(starts.map(move |start| lines(counter, all[start..].iter().take(RULES_A_PIECE))))
    }))
}

fn reloads(service: &Service) -> String {
    let stats = &service.stats;
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    metric(
        "lately_ratelimit_config_reloads_total",
        "counter",
        "How often the rules were reloaded.",
        stats.rule_reloads.load(Relaxed),
    );
    metric(
        "lately_ratelimit_config_errors_total",
        "counter",
        "How often the rules were not reloaded, because of a mistake in their files.",
        stats.rule_errors.load(Relaxed),
    );
    metric(
        "lately_ratelimit_config_failing",
        "gauge",
        "1 while the files have a mistake, and the old rules stay.",
        u64::from(stats.are_rules_failing.load(Relaxed)),
    );
    text
}

/// The lines of some rules.
fn lines<'r>(counter: usize, rules: impl Iterator<Item = &'r NamedTally>) -> String {
    let (name, _) = RuleTally::ALL[counter];
    let mut text = String::new();
    for NamedTally { domain, name: rule, tally, .. } in rules {
        let (domain, rule, value) = (escaped(domain), escaped(rule), tally.get(counter));
        let _ = writeln!(text, "{name}{{domain=\"{domain}\",rule=\"{rule}\"}} {value}");
    }
    text
}
