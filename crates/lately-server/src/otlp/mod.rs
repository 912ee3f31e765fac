//! OTLP over HTTP: sends all metrics now and then, and the spans of requests soon after they end, to a collector of OpenTelemetry. Nothing
//! waits for a receiver. What it does not take is not sent again: counters are sums, so the next message has them; spans are lost.

mod message;

/// The messages, as `cargo xtask proto` made them of a file in `proto`.
#[expect(unreachable_pub, reason = "it is generated")]
pub(crate) mod generated {
    include!("../protocol/grpc/generated/opentelemetry.rs");
}

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::Uri;
use prost::Message;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client;
use crate::config::Otlp;
use crate::limits::{LAST_EXPORT_TIMEOUT, SPANS_A_MESSAGE, SPANS_EVERY};
use crate::log::Log;
use crate::service::metrics::parts;
use crate::service::{Service, Stats};
use crate::stopper::Stopper;

/// Sends until the server stops, and once more then.
pub(crate) async fn keep(service: Arc<Service>, stopper: Stopper, log: Log) {
    let Some(Otlp { metrics, every, traces, .. }) = service.config.otlp.clone() else { return };
    let send = async |url: Option<Uri>, sends: Sends, every: Duration| {
        let Some(url) = url else { return };
        let receiver =
            Receiver { url, sends, service: Arc::clone(&service), log: Arc::clone(&log), is_failing: false };
        // A panic has been reported.
        let _ = tokio::spawn(receiver.keep(every, stopper.clone())).await;
    };
    tokio::join!(send(metrics, Sends::Metrics, every), send(traces, Sends::Spans, SPANS_EVERY));
}

#[derive(Clone, Copy)]
enum Sends {
    Metrics,
    Spans,
}

struct Receiver {
    url: Uri,
    sends: Sends,
    service: Arc<Service>,
    log: Log,
    is_failing: bool,
}

impl Receiver {
    async fn keep(mut self, every: Duration, stopper: Stopper) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let round = async {
                ticks.tick().await;
                self.send().await;
            };
            tokio::select! {
                () = round => {}
                () = stopper.stopped() => break,
            }
        }
        // An error has been logged; a receiver that hangs does not hold up the stop.
        let _ = timeout(LAST_EXPORT_TIMEOUT, self.send()).await;
    }

    async fn send(&mut self) {
        match self.sends {
            Sends::Metrics => self.send_metrics().await,
            Sends::Spans => self.send_spans().await,
        }
    }

    async fn send_metrics(&mut self) {
        let service = Arc::clone(&self.service);
        let mut parts = parts(&service).peekable();
        let now = service.now();
        // One message after the other, so that little is held.
        while parts.peek().is_some() {
            let message = message::metrics(&service, &mut parts, now);
            if !self.takes(&message).await {
                return;
            }
        }
    }

    async fn send_spans(&mut self) {
        let service = Arc::clone(&self.service);
        let Some(tracer) = &service.tracer else { return };
        let spans = tracer.take();
        let mut lost = spans.len();
        for some in spans.chunks(SPANS_A_MESSAGE) {
            if !self.takes(&message::spans(&service, some)).await {
                break;
            }
            lost -= some.len();
        }
        tracer.dropped.fetch_add(lost as u64, Relaxed);
    }

    /// Sends a message. Returns whether it was taken.
    async fn takes(&mut self, message: &impl Message) -> bool {
        let (url, body) = (&self.url, message.encode_to_vec());
        match client::post(url, &[], ("application/x-protobuf", body.into())).await {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    (self.log)(&format!("otlp: {url} takes messages again"));
                }
                true
            }
            Err(why) => {
                Stats::add(&self.service.stats.failed_exports, 1);
                if !std::mem::replace(&mut self.is_failing, true) {
                    (self.log)(&format!("otlp: {url} did not take a message: {why}"));
                }
                false
            }
        }
    }
}
