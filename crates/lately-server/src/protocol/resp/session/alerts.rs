//! `ALERTS`, and the messages of a client that has subscribed to them.

use std::sync::Arc;

use lately_resp::command::{ALERTS_CHANNEL, CommandSpec, Verb};
use lately_resp::{ArgList, Encoder, Protocol};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::{Session, integer};
use crate::alerts::Condition;
use crate::service::notice::Notice;

/// The alerts that a client has not got yet.
pub(super) type Subscription = Receiver<Arc<Notice>>;

/// Why a client that has subscribed is disconnected: it does not take its messages, or it may not have them any more.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Unsubscribed;

impl Session {
    /// Whether the client has subscribed.
    #[inline]
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscription.is_some()
    }

    /// Whether the client may not send a command because it has subscribed.
    #[inline]
    pub(super) fn is_bound_to_subscription(&self, spec: &CommandSpec) -> bool {
        self.is_subscribed() && self.protocol == Protocol::V2 && !spec.runs_while_subscribed
    }

    pub(super) fn alerts(&self, out: &mut Vec<u8>) {
        let mut reply = Encoder::new(out, self.protocol);
        let alerts = self.service.active_alerts();
        reply.array(alerts.len());
        alerts.iter().for_each(|alert| write_alert(alert, &mut reply));
    }

    pub(super) fn subscribe(&mut self, channels: ArgList<'_>, out: &mut Vec<u8>) {
        self.subscription.get_or_insert_with(|| self.service.alerts.subscribe());
        let mut reply = Encoder::new(out, self.protocol);
        for channel in channels.iter() {
            write_subscription("subscribe", Some(channel), 1, &mut reply);
        }
    }

    pub(super) fn unsubscribe(&mut self, channels: ArgList<'_>, out: &mut Vec<u8>) {
        let was_subscribed = self.subscription.take().is_some();
        let mut reply = Encoder::new(out, self.protocol);
        if channels.is_empty() {
            let channel = was_subscribed.then_some(ALERTS_CHANNEL.as_bytes());
            write_subscription("unsubscribe", channel, 0, &mut reply);
        }
        for channel in channels.iter() {
            write_subscription("unsubscribe", Some(channel), 0, &mut reply);
        }
    }

    /// Writes the messages that have come for a client that has subscribed.
    ///
    /// # Errors
    /// The client is to be disconnected.
    pub(crate) fn messages(&mut self, out: &mut Vec<u8>) -> Result<(), Unsubscribed> {
        let Some(subscription) = &mut self.subscription else { return Ok(()) };
        loop {
            let notice = match subscription.try_recv() {
                Ok(notice) => notice,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => return Err(Unsubscribed),
            };
            let mut message = Encoder::new(out, self.protocol);
            message.push(3);
            message.bulk("message");
            message.bulk(ALERTS_CHANNEL);
            message.bulk(notice.event());
        }
        if out.is_empty() {
            return Ok(());
        }
        // The permissions of the user may have changed since.
        self.renew_principal();
        self.principal.check(Some(Verb::Read), |_| None::<Option<()>>).map_err(|_| Unsubscribed)
    }
}

fn write_subscription(what: &str, channel: Option<&[u8]>, count: i64, reply: &mut Encoder<'_>) {
    reply.push(3);
    reply.bulk(what);
    match channel {
        Some(channel) => reply.bulk(channel),
        None => reply.null(),
    }
    reply.integer(count);
}

/// An alert: a map, in RESP2 a list of its fields and values.
fn write_alert(alert: &Notice, reply: &mut Encoder<'_>) {
    let rule = alert.rule();
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let since = alert.since.as_millis() as f64 / 1_000.0;
    reply.map(10);
    for (name, value) in [("name", rule.name.as_bytes()), ("state", alert.stage.name().as_bytes())] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("match");
    reply.bulk(rule.pattern.as_bytes());
    reply.bulk("kind");
    reply.bulk(rule.condition.name());
    reply.bulk("threshold");
    match rule.condition {
        Condition::Above(hits) | Condition::Below(hits) => reply.integer(integer(hits)),
        Condition::Spike { factor, .. } => reply.double(factor),
    }
    reply.bulk("window");
    reply.bulk(rule.window.to_string());
    reply.bulk("hits");
    reply.integer(integer(alert.hits));
    reply.bulk("baseline");
    match alert.baseline {
        Some(baseline) => reply.double(baseline),
        None => reply.null(),
    }
    reply.bulk("since");
    reply.double(since);
    reply.bulk("keys");
    reply.array(alert.keys.len());
    for cause in alert.keys.iter() {
        reply.array(3);
        reply.bulk(&cause.key);
        reply.integer(integer(cause.hits));
        reply.double(cause.share);
    }
}
