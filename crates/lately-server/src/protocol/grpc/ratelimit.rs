//! Answers of Envoy's rate limit service by the rules of envoyproxy/ratelimit.

use lately_ratelimit::{Limit, Unit};
use tonic::Status;

use super::envoy::{code, reset_of};
use super::messages::envoy::RateLimitResponse;
use super::messages::envoy::rate_limit_response::rate_limit::Unit as UnitCode;
use super::messages::envoy::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::methods::Call;
use super::status::of_decide;
use crate::service::ratelimit::{RuleAnswer, RuleMatches};

pub(super) async fn answer(call: &Call, matches: RuleMatches) -> Result<RateLimitResponse, Status> {
    call.check(matches.keys())?;
    call.check_loaded()?;
    let answers = call.service.decide_by_rules(&matches).await.map_err(|error| of_decide(&error))?;
    Ok(RateLimitResponse {
        overall_code: code(!is_over(&answers)),
        statuses: answers.iter().map(status_of).collect(),
    })
}

/// Whether the request is denied: by a rule without `quota_mode`, or by all that have it.
pub(crate) fn is_over(answers: &[RuleAnswer]) -> bool {
    let (mut quotas, mut quotas_over) = (0, 0);
    for answer in answers {
        let &RuleAnswer::Limited { is_quota, is_over, .. } = answer else { continue };
        if is_quota {
            quotas += 1;
            quotas_over += usize::from(is_over);
        } else if is_over {
            return true;
        }
    }
    quotas > 0 && quotas == quotas_over
}

fn status_of(answer: &RuleAnswer) -> DescriptorStatus {
    let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    match answer {
        RuleAnswer::NoRule => ok,
        RuleAnswer::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..ok },
        RuleAnswer::Limited { name, limit: Limit { requests, unit }, is_over, decided, .. } => {
            DescriptorStatus {
                code: code(!is_over),
                current_limit: Some(RateLimit {
                    requests_per_unit: *requests,
                    unit: unit_code(*unit).into(),
                    name: name.to_string(),
                }),
                limit_remaining: u32::try_from(decided.decision.left()).unwrap_or(u32::MAX),
                duration_until_reset: reset_of(decided),
            }
        }
    }
}

fn unit_code(unit: Unit) -> UnitCode {
    match unit {
        Unit::Second => UnitCode::Second,
        Unit::Minute => UnitCode::Minute,
        Unit::Hour => UnitCode::Hour,
        Unit::Day => UnitCode::Day,
        Unit::Week => UnitCode::Week,
        Unit::Month => UnitCode::Month,
        Unit::Year => UnitCode::Year,
    }
}
