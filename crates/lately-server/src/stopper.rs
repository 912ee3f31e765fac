//! What tells all parts of a server to stop.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells a server to stop; cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    pub(crate) fn new() -> Stopper {
        Stopper(Arc::new(watch::Sender::new(false)))
    }

    /// Stops the server: listeners close, what clients had sent is answered.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Ends when the server is to stop.
    pub(crate) async fn stopped(&self) {
        // The sender is in `self`: the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}
