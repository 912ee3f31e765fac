//! Listeners: sockets on the outside, the engine inside.

use std::time::Duration;

mod batch;
mod connection;
#[cfg(test)]
mod fixture;
mod group;
mod guard;
mod held;
pub(crate) mod http;
mod pace;
mod places;
mod problem;
mod queue;
pub(crate) mod resp;
mod roster;
mod transfer;

/// Ends after `span`.
pub(crate) async fn pause(span: Duration) {
    // A timeout around a future that never ends is the one way to wait that is not a sleep.
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}
