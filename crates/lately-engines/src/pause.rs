//! Waiting.

use std::future::pending;
use std::time::Duration;

use tokio::time::timeout;

/// Waits this long.
pub(crate) async fn pause(span: Duration) {
    let _ = timeout(span, pending::<()>()).await;
}
