//! Webhooks after Standard Webhooks: each has a queue and a task, and gets one request after the other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::Uri;
use ring::hmac::{HMAC_SHA256, Key, sign};
use tokio::sync::mpsc::Receiver;

use crate::client;
use crate::config::{FileError, Webhook, read_file};
use crate::limits::{DELIVERED_WITHIN, MAX_RETRY_PAUSE, RETRY_PAUSE, WEBHOOK_SECRET_BYTES};
use crate::log::Log;
use crate::pause::pause;
use crate::service::notice::Notice;
use crate::service::{Service, Stats};

/// The start of a secret, as Standard Webhooks has it.
const SECRET: &str = "whsec_";

/// A message for a webhook.
#[derive(Clone)]
pub(super) struct Message {
    /// Its unique id, the same in each try.
    pub(super) id: String,
    pub(super) notice: Arc<Notice>,
}

/// Reads the secret of a webhook.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn load_secret(path: &Path) -> Result<Key, FileError> {
    let content = read_file(path)?;
    let text = std::str::from_utf8(&content).unwrap_or_default();
    // Some editors begin a file with this mark.
    let text = text.trim_start_matches('\u{feff}').trim();
    let text = text.strip_prefix(SECRET).unwrap_or(text);
    let secret = BASE64_STANDARD.decode(text).ok();
    let secret = secret.filter(|secret| WEBHOOK_SECRET_BYTES.contains(&secret.len()));
    let (least, most) = (WEBHOOK_SECRET_BYTES.start(), WEBHOOK_SECRET_BYTES.end());
    let wrong = || {
        let right = format!(
            "no secret of a webhook: write {SECRET} and {least} to {most} bytes in base64, as from `openssl rand -base64 32`"
        );
        FileError::new(path, right)
    };
    Ok(Key::new(HMAC_SHA256, &secret.ok_or_else(wrong)?))
}

/// The headers of a request.
fn headers(secret: Option<&Key>, id: &str, timestamp_s: i64, body: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![("webhook-id", id.to_owned()), ("webhook-timestamp", timestamp_s.to_string())];
    if let Some(secret) = secret {
        let signature = sign(secret, format!("{id}.{timestamp_s}.{body}").as_bytes());
        headers.push(("webhook-signature", format!("v1,{}", BASE64_STANDARD.encode(signature))));
    }
    headers
}

/// Sends the messages of a queue, until it is closed and empty.
pub(super) async fn deliver(
    service: Arc<Service>,
    webhook: Webhook,
    mut messages: Receiver<Message>,
    log: Log,
) {
    let Ok(url) = webhook.url.parse::<Uri>() else { return };
    let mut is_failing = false;
    while let Some(message) = messages.recv().await {
        let mut fail = |why: &str| {
            // Once, until it takes messages again.
            if !std::mem::replace(&mut is_failing, true) {
                log(&format!("alerts: the webhook {url} did not take a message: {why}: it is sent again"));
            }
        };
        let delivered = deliver_one(&service, &webhook, &url, &message, &mut fail).await;
        if delivered.is_ok() && std::mem::take(&mut is_failing) {
            log(&format!("alerts: the webhook {url} takes messages again"));
        }
        if let Err(why) = delivered {
            Stats::add(&service.stats.failed_deliveries, 1);
            let name = &message.notice.rule().name;
            let change = message.notice.stage.change();
            log(&format!("alert {name}: the webhook {url} did not get that it {change}: {why}"));
        }
    }
}

/// Sends a message, again and again until the webhook takes it or [`DELIVERED_WITHIN`] is over. Each
/// failure goes to `fail`.
async fn deliver_one(
    service: &Service,
    webhook: &Webhook,
    url: &Uri,
    message: &Message,
    mut fail: impl FnMut(&str),
) -> Result<(), String> {
    let body = message.notice.event();
    let (mut waited, mut next) = (Duration::ZERO, RETRY_PAUSE);
    loop {
        let secret = match webhook.secret_file.clone() {
            // Reading may block on a slow disk.
            Some(path) => tokio::task::spawn_blocking(move || load_secret(&path).map(Some)).await,
            None => Ok(Ok(None)),
        };
        let sent = match secret.expect("a panic is a bug that has been reported") {
            Ok(secret) => {
                let now_s = service.now().as_millis() / 1_000;
                let headers = headers(secret.as_ref(), &message.id, now_s, &body);
                client::post(url, &headers, ("application/json", body.clone().into())).await
            }
            Err(error) => Err(error.to_string()),
        };
        match sent {
            Ok(()) => return Ok(()),
            Err(why) if waited >= DELIVERED_WITHIN => return Err(why),
            Err(why) => {
                fail(&why);
                pause(next).await;
            }
        }
        (waited, next) = (waited + next, (next * 2).min(MAX_RETRY_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn requests_are_signed_as_standard_webhooks_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let secret = |text: &str| {
            std::fs::write(&path, text).expect("room");
            load_secret(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
        };
        let body = r#"{"test": 2432232314}"#;
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for text in [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            " MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
            "\u{feff}whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\r\n",
        ] {
            let key = secret(text).expect("a secret");
            let headers = headers(Some(&key), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
            assert_eq!(
                headers,
                [
                    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned()),
                    ("webhook-timestamp", "1614265330".to_owned()),
                    ("webhook-signature", expected.to_owned()),
                ]
            );
        }
        let wrong = "FILE: no secret of a webhook: write whsec_ and 24 to 64 bytes in base64, as from `openssl rand -base64 32`";
        let of = |bytes: usize| BASE64_STANDARD.encode(vec![1; bytes]);
        assert!([24, 64].into_iter().all(|bytes| secret(&of(bytes)).is_ok()));
        for text in ["", "secret", "whsec_", &of(23), &of(65)] {
            assert_eq!(secret(text).err().as_deref(), Some(wrong), "{text}");
        }
    }
}
