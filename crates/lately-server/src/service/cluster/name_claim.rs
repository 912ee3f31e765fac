//! The claim of a server to the name of its node in an engine.

use std::time::Duration;

use lately_engines::{Engine, EngineError};

use super::worker::{ClusterError, parts};
use crate::limits::{CLAIM_EVERY, CLAIM_LASTS};
use crate::service::Service;

/// Whether this server has the name of its node.
pub(super) enum Claim {
    Ours,
    /// Another server has it by now, because this one stood still or was cut off for a while. Each counts under its own origin, so two with one name
    /// are no danger to the counts.
    Shared,
    /// A server that was killed may have it still.
    Wait,
    Taken(ClusterError),
}

/// The claim to a name.
#[derive(Default)]
pub(super) struct NameClaim {
    /// When the name was claimed last, once it was ours.
    claimed: Option<i64>,
    /// Whether another server had it then.
    is_shared: bool,
    /// Since when another server has it.
    refused_since: Option<i64>,
}

impl NameClaim {
    /// Whether this server had the name once.
    pub(super) fn was_ours(&self) -> bool {
        self.claimed.is_some()
    }

    /// Claims the name, from time to time. A server that was killed has it for a while longer.
    pub(super) async fn renew(
        &mut self,
        engine: &mut impl Engine,
        service: &Service,
    ) -> Result<Claim, EngineError> {
        let now_ms = service.now().as_millis();
        let passed = |since_ms: i64| Duration::from_millis(u64::try_from(now_ms - since_ms).unwrap_or(0));
        if self.claimed.is_none_or(|at_ms| passed(at_ms) >= CLAIM_EVERY) {
            let node = &parts(service).0.config.node;
            let holder = claim(engine, service, node, CLAIM_LASTS).await?;
            self.is_shared = holder.is_some();
            if holder.is_some() && !self.was_ours() {
                let since_ms = *self.refused_since.get_or_insert(now_ms);
                let is_over = passed(since_ms) >= 2 * CLAIM_LASTS;
                let taken = || Claim::Taken(ClusterError::NodeTaken { node: node.clone() });
                return Ok(if is_over { taken() } else { Claim::Wait });
            }
            self.claimed = Some(now_ms);
        }
        Ok(if self.is_shared { Claim::Shared } else { Claim::Ours })
    }

    /// Lets the next server of this name have it at once.
    pub(super) async fn release(&self, engine: &mut impl Engine, service: &Service) {
        // A claim that could not be released ends by itself.
        let _ = claim(engine, service, &parts(service).0.config.node, Duration::from_millis(1)).await;
    }
}

/// Claims a name for a while. Returns the holder, if that is another server.
pub(super) async fn claim(
    engine: &mut impl Engine,
    service: &Service,
    name: &str,
    lasts: Duration,
) -> Result<Option<String>, EngineError> {
    let outgoing = parts(service).1;
    let holder = outgoing.origin().to_string();
    // An earlier start of this server in this data folder.
    let is_former = |of: &str| of != holder && of.parse().is_ok_and(|of| outgoing.is_own(&of));
    engine.claim(name, &holder, &is_former, lasts).await
}
