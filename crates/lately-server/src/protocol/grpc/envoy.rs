//! `envoy.service.ratelimit.v3.RateLimitService`: whether a request to a proxy may pass, by the limits on its descriptors.

use lately::limits::MAX_TOTAL;
use lately::{Retry, Span, days, hours, minutes, seconds};
use prost_types::Duration;
use tonic::Status;

use super::messages::descriptor::RateLimitDescriptor;
use super::messages::descriptor::rate_limit_descriptor::RateLimitOverride;
use super::messages::envoy::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::messages::envoy::{RateLimitRequest, RateLimitResponse};
use super::methods::Call;
use super::status::of_decide;
use crate::limits::{MAX_DESCRIPTOR_ENTRIES, MAX_DESCRIPTORS};
use crate::service::Decided;
use crate::service::descriptors::{Descriptor, DescriptorDecision};

/// The windows that have a unit of their own.
const UNITS: [(Span, Unit); 7] = [
    (seconds(1), Unit::Second),
    (minutes(1), Unit::Minute),
    (hours(1), Unit::Hour),
    (days(1), Unit::Day),
    (days(7), Unit::Week),
    (days(30), Unit::Month),
    (days(365), Unit::Year),
];

pub(super) async fn should_rate_limit(
    call: Call,
    asked: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let descriptors = descriptors(&asked)?;
    if let Some(matches) = call.service.match_rules(&asked.domain, &descriptors) {
        return super::ratelimit::answer(&call, matches).await;
    }
    let matches = call.service.match_descriptors(&asked.domain, &descriptors);
    call.check(matches.keys())?;
    call.check_loaded()?;
    let decided = call.service.decide_descriptors(&matches).await.map_err(|error| of_decide(&error))?;
    let statuses: Vec<_> = decided.iter().map(|decided| status_of(decided.as_ref())).collect();
    let is_over = statuses.iter().any(|status| status.code == i32::from(Code::OverLimit));
    Ok(RateLimitResponse { overall_code: code(!is_over), statuses })
}

/// Checks a request.
fn descriptors(asked: &RateLimitRequest) -> Result<Vec<Descriptor<'_>>, Status> {
    let refuse = |why: &str| Err(Status::invalid_argument(why));
    let RateLimitRequest { domain, descriptors, hits_addend } = asked;
    if domain.is_empty() {
        return refuse("the domain is empty");
    }
    if descriptors.is_empty() {
        return refuse("there are no descriptors");
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return refuse(&format!(
            "{} descriptors: a request has at most {MAX_DESCRIPTORS}",
            descriptors.len()
        ));
    }
    let entries = descriptors.iter().map(|descriptor| descriptor.entries.len()).max().unwrap_or(0);
    if entries > MAX_DESCRIPTOR_ENTRIES {
        return refuse(&format!("{entries} entries: a descriptor has at most {MAX_DESCRIPTOR_ENTRIES}"));
    }
    descriptors.iter().map(|descriptor| descriptor_of(descriptor, *hits_addend)).collect()
}

fn descriptor_of(descriptor: &RateLimitDescriptor, hits_addend: u32) -> Result<Descriptor<'_>, Status> {
    let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
    let hits = descriptor.hits_addend.unwrap_or(u64::from(hits_addend.max(1)));
    let hits = i64::try_from(hits).ok().filter(|hits| hits.unsigned_abs() <= MAX_TOTAL);
    let hits = hits.ok_or_else(|| {
        let given = descriptor.hits_addend.unwrap_or(0);
        Status::invalid_argument(format!("invalid hits_addend {given}: give 0 to {MAX_TOTAL}"))
    })?;
    let cost = if descriptor.is_negative_hits { -hits } else { hits };
    let limit = descriptor.limit.as_ref().map(limit_of).transpose()?;
    let is_report = cost > 0 && descriptor.hits_addend.is_some();
    Ok(Descriptor { entries, cost, is_report, limit })
}

/// The max and the window of a limit that a descriptor brings along.
fn limit_of(limit: &RateLimitOverride) -> Result<(u64, Span), Status> {
    // Both enumerations have the same numbers.
    let unit = UNITS.iter().find(|(_, unit)| i32::from(*unit) == limit.unit);
    let (window, _) = unit.ok_or_else(|| {
        Status::invalid_argument(format!(
            "invalid unit {} of a limit: give SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
            limit.unit
        ))
    })?;
    Ok((u64::from(limit.requests_per_unit), *window))
}

fn status_of(decided: Option<&DescriptorDecision>) -> DescriptorStatus {
    let Some(DescriptorDecision { name, decided, is_over }) = decided else {
        return DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    };
    let Decided { decision, window, .. } = decided;
    let unit = UNITS.iter().find(|(span, _)| span == window).map_or(Unit::Unknown, |(_, unit)| *unit);
    let [max, remaining] = [decision.max, decision.left()].map(|count| count.try_into().unwrap_or(u32::MAX));
    DescriptorStatus {
        code: code(!is_over),
        current_limit: Some(RateLimit { requests_per_unit: max, unit: unit.into(), name: name.clone() }),
        limit_remaining: remaining,
        duration_until_reset: reset_of(decided),
    }
}

/// The time until there is more.
pub(super) fn reset_of(decided: &Decided) -> Option<Duration> {
    let reset = match decided.decision.retry {
        Retry::After(wait) => Some(wait),
        Retry::Now | Retry::Never => decided.more_after,
    };
    reset.map(duration)
}

pub(super) fn code(is_allowed: bool) -> i32 {
    if is_allowed { Code::Ok } else { Code::OverLimit }.into()
}

fn duration(span: Span) -> Duration {
    let ms = span.as_millis();
    let nanos = i32::try_from(ms % 1_000).expect("it is less than a thousand") * 1_000_000;
    Duration { seconds: ms / 1_000, nanos }
}
