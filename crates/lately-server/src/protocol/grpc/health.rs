//! `grpc.health.v1.Health`: whether the server has loaded its counts and is not stopping.

use futures_util::{Stream, stream};
use tonic::Status;

use super::messages::health::health_check_response::ServingStatus;
use super::messages::health::{HealthCheckRequest, HealthCheckResponse};
use super::methods::Call;
use crate::limits::WATCH_EVERY;
use crate::pause::pause;

/// The services that have a health; the empty name is the server.
const SERVICES: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "lately.v1.Lately"];

pub(super) async fn check(call: Call, asked: HealthCheckRequest) -> Result<HealthCheckResponse, Status> {
    if !SERVICES.contains(&&*asked.service) {
        return Err(Status::not_found("there is no such service"));
    }
    Ok(response(now(&call)))
}

/// Sends the health, and again whenever it has changed. Ends when the server stops.
pub(super) fn watch(
    call: Call,
    HealthCheckRequest { service }: HealthCheckRequest,
) -> Result<impl Stream<Item = Result<HealthCheckResponse, Status>>, Status> {
    let is_known = SERVICES.contains(&&*service);
    let next = move |last: Option<ServingStatus>| {
        let call = call.clone();
        async move {
            loop {
                let now = if is_known { now(&call) } else { ServingStatus::ServiceUnknown };
                if last != Some(now) {
                    return Some((Ok(response(now)), Some(now)));
                }
                // Once the counts are loaded, the health changes no more.
                let may_change = now == ServingStatus::NotServing;
                tokio::select! {
                    () = pause(WATCH_EVERY), if may_change => {}
                    () = call.stopper.stopped() => return None,
                }
            }
        }
    };
    Ok(stream::unfold(None, next))
}

fn now(call: &Call) -> ServingStatus {
    if call.service.is_loading() { ServingStatus::NotServing } else { ServingStatus::Serving }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
