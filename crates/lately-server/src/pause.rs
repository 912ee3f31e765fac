//! Waiting for a time to pass.

use std::time::Duration;

/// Ends after `span`.
pub(crate) async fn pause(span: Duration) {
    // A timeout around a future that never ends is the one way to wait that is not a sleep.
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}
