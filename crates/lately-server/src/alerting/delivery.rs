//! Takes alerts that start or end from the feed, logs them, and gives each to the tasks of its receivers. It waits for none of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::webhook::Message;
use super::{alertmanager, line, webhook};
use crate::config::{Alert, Webhook};
use crate::limits::{ALERTMANAGER_EVERY, MAX_QUEUED_ALERTS};
use crate::log::Log;
use crate::service::notice::Notice;
use crate::service::{Service, Stats};
use crate::stopper::Stopper;

/// The queues of the receivers, by where they are.
struct Delivery {
    service: Arc<Service>,
    log: Log,
    webhooks: BTreeMap<Webhook, Sender<Message>>,
    alertmanagers: BTreeMap<String, Sender<Arc<Notice>>>,
    tasks: JoinSet<()>,
    /// Messages so far.
    messages: u64,
}

/// Delivers until the server stops. What was not delivered then is dropped.
pub(super) async fn keep(service: Arc<Service>, mut feed: Receiver<Arc<Notice>>, stopper: Stopper, log: Log) {
    let mut delivery = Delivery {
        service,
        log,
        webhooks: BTreeMap::new(),
        alertmanagers: BTreeMap::new(),
        tasks: JoinSet::new(),
        messages: 0,
    };
    let mut ticks = tokio::time::interval(ALERTMANAGER_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // A reload may have named an Alertmanager for an alert that fires.
            _ = ticks.tick() => delivery.keep_receivers(&delivery.service.alerts.rules()),
            notice = feed.recv() => match notice {
                Ok(notice) => delivery.take(&notice),
                Err(RecvError::Lagged(missed)) => delivery.drop_some(missed, "too many at once"),
                Err(RecvError::Closed) => return,
            },
            // Its result is nothing; a panic has been reported.
            Some(_) = delivery.tasks.join_next() => {}
            () = stopper.stopped() => return,
        }
    }
}

impl Delivery {
    fn take(&mut self, notice: &Arc<Notice>) {
        (self.log)(&line(notice));
        let rules = self.service.alerts.rules().into_iter();
        self.keep_receivers(&rules.chain([Arc::clone(&notice.alert)]).collect::<Vec<_>>());
        self.messages += 1;
        let Alert { webhook, alertmanager, .. } = &*notice.alert;
        let mut failed = None;
        if let Some(queue) = webhook.as_ref().and_then(|webhook| self.webhooks.get(webhook)) {
            let id = format!("msg_{}_{}", self.service.run_id, self.messages);
            let message = Message { id, notice: Arc::clone(notice) };
            failed = queue.try_send(message).err().map(|error| why(&error));
        }
        if let Some(queue) = alertmanager.as_ref().and_then(|url| self.alertmanagers.get(&url.to_string())) {
            failed = failed.or(queue.try_send(Arc::clone(notice)).err().map(|error| why(&error)));
        }
        if let Some(why) = failed {
            self.drop_some(1, why);
        }
    }

    /// Starts the tasks of the receivers of these alerts that have none. Those of other receivers end once their queue is empty.
    fn keep_receivers(&mut self, alerts: &[Arc<Alert>]) {
        let urls: Vec<(String, &hyper::Uri)> = alerts
            .iter()
            .filter_map(|alert| alert.alertmanager.as_ref())
            .map(|url| (url.to_string(), url))
            .collect();
        self.webhooks.retain(|webhook, _| alerts.iter().any(|alert| alert.webhook.as_ref() == Some(webhook)));
        self.alertmanagers.retain(|known, _| urls.iter().any(|(url, _)| url == known));
        for webhook in alerts.iter().filter_map(|alert| alert.webhook.as_ref()) {
            if !self.webhooks.contains_key(webhook) {
                let (sender, messages) = mpsc::channel(MAX_QUEUED_ALERTS);
                self.webhooks.insert(webhook.clone(), sender);
                let (service, log) = (Arc::clone(&self.service), Arc::clone(&self.log));
                self.tasks.spawn(webhook::deliver(service, webhook.clone(), messages, log));
            }
        }
        for (text, url) in urls {
            if let Entry::Vacant(place) = self.alertmanagers.entry(text) {
                let (sender, notices) = mpsc::channel(MAX_QUEUED_ALERTS);
                place.insert(sender);
                let (service, log) = (Arc::clone(&self.service), Arc::clone(&self.log));
                self.tasks.spawn(alertmanager::deliver(service, url.clone(), notices, log));
            }
        }
    }

    fn drop_some(&self, dropped: u64, why: &str) {
        Stats::add(&self.service.stats.failed_deliveries, dropped);
        (self.log)(&format!("alerts: {dropped} not sent: {why}"));
    }
}

fn why<T>(error: &TrySendError<T>) -> &'static str {
    match error {
        TrySendError::Full(_) => "the receiver takes none, and too many wait for it",
        TrySendError::Closed(_) => "its task has ended",
    }
}
