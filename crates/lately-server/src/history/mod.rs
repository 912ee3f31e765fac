//! History: sends the hits of closed panes to time series databases, by Prometheus remote write or OTLP.
//!
//! A pane is sent when it is closed, and the next one when the receiver has it and the data folder says so. So after a start at most one
//! pane is sent again, with the same hits at the same time. The store is the queue: nothing waits in memory but one pane.

mod keys;
mod message;
mod plan;
mod position;
mod receiver;
mod sender;

/// The messages, as `cargo xtask proto` made them of a file in `proto`.
#[expect(unreachable_pub, reason = "it is generated")]
mod generated {
    include!("../protocol/grpc/generated/prometheus.rs");
}

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::join_all;

use crate::log::Log;
use crate::service::Service;
use crate::stopper::Stopper;

pub(crate) use receiver::authorization;

/// Sends all histories until the server stops.
pub(crate) async fn keep(service: Arc<Service>, stopper: Stopper, log: Log) {
    let senders = service.config.histories.iter().zip(&service.histories).map(|(history, state)| {
        let sender = sender::Sender::new(history, Arc::clone(state), Arc::clone(&service), Arc::clone(&log));
        tokio::spawn(sender.keep(stopper.clone()))
    });
    // A panic has been reported.
    let _ = join_all(senders.collect::<Vec<_>>()).await;
}
