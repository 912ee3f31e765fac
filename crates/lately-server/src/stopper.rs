//! The stop signal that all parts of a server share.

use std::sync::Arc;

use tokio::sync::watch;

/// Stops a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    pub(crate) fn new() -> Stopper {
        Stopper(Arc::new(watch::Sender::new(false)))
    }

    /// Stops the server: listeners close, and requests that were already sent are answered.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the stop.
    pub async fn stopped(&self) {
        // The sender is in `self`: the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}
