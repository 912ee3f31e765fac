//! Alerts while the server runs: evaluates the rules, and has the alerts that start or end sent.

mod alertmanager;
mod delivery;
mod webhook;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lately::Cursor;
use lately_resp::command::Verb;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::MissedTickBehavior;

use crate::limits::{ALERTS_EVERY, MAX_QUEUED_ALERTS};
use crate::log::Log;
use crate::pause::pause;
use crate::service::Service;
use crate::service::notice::{Cause, Notice, Stage};
use crate::stopper::Stopper;

pub(crate) use webhook::load_secret;

/// Evaluates the rules and delivers the alerts, until the server stops.
pub(crate) async fn keep(service: Arc<Service>, stopper: Stopper, log: Log) {
    // Before the first evaluation: what starts in it is delivered, too.
    let feed = service.alerts.subscribe();
    let delivery = tokio::spawn(delivery::keep(Arc::clone(&service), feed, stopper.clone(), log));
    let (sender, changed) = mpsc::unbounded_channel();
    let published = tokio::spawn(publish(Arc::clone(&service), changed));
    let tidied = tokio::spawn(tidy(Arc::clone(&service)));
    evaluate(service, stopper, sender).await;
    tidied.abort();
    // A panic has been reported.
    let _ = (published.await, delivery.await);
}

/// Deletes totals that nothing reads, once the keys are loaded. In a cluster other nodes may read them.
async fn tidy(service: Arc<Service>) {
    while service.is_loading() {
        pause(Duration::from_millis(50)).await;
    }
    let mut next = Cursor::START;
    while service.cluster.is_none() {
        next = service.forget_old_totals(next);
        if next == Cursor::START {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Evaluates the rules until the server stops. Each alert that starts or ends goes to `changed`.
async fn evaluate(service: Arc<Service>, stopper: Stopper, changed: UnboundedSender<Notice>) {
    if service.refusal(Some(Verb::Read)).is_some() {
        // It counts for the alerts of other nodes, and does not know all hits itself.
        return stopper.stopped().await;
    }
    let mut ticks = tokio::time::interval(ALERTS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_begun = false;
    loop {
        tokio::select! {
            _ = ticks.tick(), if service.alerts.has_any() => {}
            () = service.alerts.replaced.notified() => {}
            () = stopper.stopped() => return,
        }
        if service.is_loading() {
            continue;
        }
        if !std::mem::replace(&mut has_begun, true) {
            service.begin_alerts();
        }
        for notice in service.evaluate_alerts() {
            // What takes them ends later than this.
            let _ = changed.send(notice);
        }
    }
}

/// Publishes alerts that start and end, in their order. Of those that start, the keys that contributed most are found first: that takes
/// a walk over all keys, and the rules are evaluated meanwhile. If too many wait, it is left out.
async fn publish(service: Arc<Service>, mut changed: UnboundedReceiver<Notice>) {
    let mut notices = Vec::new();
    while changed.recv_many(&mut notices, MAX_QUEUED_ALERTS).await > 0 {
        let is_behind = changed.len() > MAX_QUEUED_ALERTS;
        let whole = notices.drain(..).map(async |notice: Notice| match notice.stage {
            Stage::Firing if !is_behind => Notice { keys: service.causes(&notice).await, ..notice },
            _ => notice,
        });
        for notice in join_all(whole).await {
            service.publish_alert(notice);
        }
    }
}

/// A line for the log.
fn line(notice: &Notice) -> String {
    let cause = |cause: &Cause| {
        format!("{} {:.0} %", String::from_utf8_lossy(&cause.key).escape_debug(), 100.0 * cause.share)
    };
    let started = notice.stage == Stage::Firing;
    let causes: Vec<String> = notice.keys.iter().filter(|_| started).map(cause).collect();
    let most = if causes.is_empty() { String::new() } else { format!(": most by {}", causes.join(", ")) };
    format!("alert {}: {}: {}{most}", notice.rule().name, notice.stage.change(), notice.summary())
}
