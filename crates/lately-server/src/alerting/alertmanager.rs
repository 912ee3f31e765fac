//! Alertmanager of Prometheus, by its API of version 2. It forgets an alert that is not sent again, so all that fire are sent
//! again and again, and those that ended for a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::Uri;
use lately::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::client;
use crate::config::ALERTS_PATH;
use crate::limits::{
    ALERTMANAGER_ENDED, ALERTMANAGER_ENDS, ALERTMANAGER_EVERY, MAX_RETRY_PAUSE, RETRY_PAUSE,
};
use crate::log::Log;
use crate::service::notice::{Cause, Notice, Stage, rfc3339};
use crate::service::{Service, Stats};

/// An alert as Alertmanager takes it.
#[derive(Serialize)]
struct Posted {
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, String>,
    #[serde(rename = "startsAt")]
    starts_at: String,
    #[serde(rename = "endsAt")]
    ends_at: String,
}

impl Posted {
    fn of(notice: &Notice, now: Timestamp) -> Posted {
        let rule = notice.rule();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let cause =
            |cause: &Cause| format!("{} {} ({:.0} %)", text(&cause.key), cause.hits, 100.0 * cause.share);
        let labels = [
            ("alertname", rule.name.clone()),
            ("job", "lately".to_owned()),
            ("kind", rule.condition.name().to_owned()),
            ("match", text(rule.pattern.as_bytes())),
        ];
        let mut annotations = BTreeMap::from([("summary", notice.summary())]);
        if !notice.keys.is_empty() {
            annotations.insert("keys", notice.keys.iter().map(cause).collect::<Vec<_>>().join(", "));
        }
        // If the server goes away, the alert ends by itself.
        let ends = notice.ended.unwrap_or_else(|| now.saturating_add(ALERTMANAGER_ENDS));
        Posted {
            labels: labels.into(),
            annotations,
            starts_at: rfc3339(notice.since),
            ends_at: rfc3339(ends),
        }
    }
}

/// Where the alerts of version 2 go.
fn endpoint(url: &Uri) -> Result<Uri, hyper::http::Error> {
    let path = url.path().trim_end_matches('/');
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(format!("{path}{ALERTS_PATH}").parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Sends the alerts of an Alertmanager: at once when one starts or ends, and again every [`ALERTMANAGER_EVERY`]. Ends when its queue is
/// closed.
pub(super) async fn deliver(service: Arc<Service>, url: Uri, mut notices: Receiver<Arc<Notice>>, log: Log) {
    let Ok(endpoint) = endpoint(&url) else { return };
    let mut ended: BTreeMap<String, Arc<Notice>> = BTreeMap::new();
    let (mut next, mut pause, mut is_failing) = (ALERTMANAGER_EVERY, RETRY_PAUSE, false);
    loop {
        match tokio::time::timeout(next, notices.recv()).await {
            Ok(None) => return,
            Ok(Some(notice)) => {
                let name = notice.rule().name.clone();
                match notice.stage {
                    Stage::Ended => ended.insert(name, notice),
                    _ => ended.remove(&name),
                };
                if !notices.is_empty() {
                    continue;
                }
            }
            Err(_) => {}
        }
        let now = service.now();
        ended.retain(|_, notice| now < notice.as_of.saturating_add(ALERTMANAGER_ENDED));
        let active = service.active_alerts();
        let of_this = |notice: &&Notice| {
            notice.stage == Stage::Firing && notice.alert.alertmanager.as_ref() == Some(&url)
        };
        let active = active.iter().filter(of_this);
        let posted: Vec<Posted> = active
            .chain(ended.values().map(|notice| &**notice))
            .map(|notice| Posted::of(notice, now))
            .collect();
        if posted.is_empty() {
            next = ALERTMANAGER_EVERY;
            continue;
        }
        let json = serde_json::to_string(&posted).expect("its maps have texts as keys");
        match client::post(&endpoint, &[], ("application/json", json.into())).await {
            Ok(()) => {
                (next, pause) = (ALERTMANAGER_EVERY, RETRY_PAUSE);
                if std::mem::take(&mut is_failing) {
                    log(&format!("alerts: the Alertmanager at {url} takes them again"));
                }
            }
            Err(why) => {
                Stats::add(&service.stats.failed_deliveries, 1);
                if !std::mem::replace(&mut is_failing, true) {
                    log(&format!(
                        "alerts: the Alertmanager at {url} did not get them: {why}: they are sent again"
                    ));
                }
                next = pause;
                pause = (pause * 2).min(MAX_RETRY_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_below_the_url() {
        for (url, expected) in [
            ("http://a:9093", "http://a:9093/api/v2/alerts"),
            ("http://a:9093/", "http://a:9093/api/v2/alerts"),
            ("https://a/am/?x=1", "https://a/am/api/v2/alerts"),
        ] {
            let url = url.parse().expect("a URL");
            assert_eq!(endpoint(&url).expect("a URL").to_string(), expected);
        }
    }
}
