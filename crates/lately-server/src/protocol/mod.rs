//! The protocols: each translates requests of its clients for the service, and responses of the service into replies.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod grpc;
pub(crate) mod http;
#[cfg(test)]
mod permissions;
pub(crate) mod resp;

use std::time::Duration;

/// Ends after `span`.
pub(crate) async fn pause(span: Duration) {
    // A timeout around a future that never ends is the one way to wait that is not a sleep.
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}
