//! Listeners: sockets on the outside, the engine inside.

use std::time::Duration;

mod batch;
mod commit_group;
mod connection;
mod connections;
mod counts;
mod event_loop;
#[cfg(test)]
mod fixture;
mod guard;
pub(crate) mod http;
mod pace;
mod pending_replies;
mod places;
mod problem;
pub(crate) mod resp;
mod stream;
mod transfer;

/// Ends after `span`.
pub(crate) async fn pause(span: Duration) {
    // A timeout around a future that never ends is the one way to wait that is not a sleep.
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}
