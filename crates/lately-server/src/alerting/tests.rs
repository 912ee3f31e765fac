//! Receivers that take alerts, answer with an error, hang, or never read. Time is that of tokio, and passes when all wait.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lately::{ManualClock, Span, Timestamp, seconds};
use ring::hmac;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::Config;
use crate::limits::{
    ALERTMANAGER_ENDED, ALERTMANAGER_EVERY, DELIVERED_WITHIN, DELIVERY_TIMEOUT, MAX_QUEUED_ALERTS,
};
use crate::pause::pause;
use crate::protocol::fixture::service_at;

const NOW_S: u64 = 1_700_000_040;

/// What a receiver does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Status(&'static str),
    /// It reads the request and never answers.
    Hang,
    /// It never reads.
    NeverRead,
    Close,
}

const OK: Answer = Answer::Status("204 No Content");

/// A request: its path, its headers and its body.
#[derive(Clone, Debug)]
struct Got {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    /// When it came.
    at: tokio::time::Instant,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// A receiver of requests, in a task of its own.
struct Receiver {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    /// A receiver that answers the first requests as listed, and all others as the last.
    async fn new(answers: &'static [Answer]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let all = Arc::clone(&got);
        tokio::spawn(async move {
            let mut open = Vec::new();
            for number in 0.. {
                let (mut socket, _) = listener.accept().await.expect("a client");
                let answer = answers[number.min(answers.len() - 1)];
                if answer != Answer::NeverRead {
                    let request = read(&mut socket).await;
                    all.lock().expect("no panic").push(request);
                }
                match answer {
                    Answer::Status(status) => {
                        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                        socket.write_all(answer.as_bytes()).await.expect("it reads");
                    }
                    Answer::Hang | Answer::NeverRead => open.push(socket),
                    Answer::Close => {}
                }
            }
        });
        Receiver { url, got }
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no panic").clone()
    }

    /// The first `count` requests.
    async fn first(&self, count: usize) -> Vec<Got> {
        while self.got().len() < count {
            pause(Duration::from_millis(10)).await;
        }
        self.got()
    }
}

async fn read(socket: &mut TcpStream) -> Got {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.split("\r\n");
            let first = lines.next().expect("a line");
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            let path =
                first.strip_prefix("POST ").and_then(|rest| rest.split(' ').next()).expect(first).to_owned();
            let got = Got { path, headers, body: body.to_owned(), at: tokio::time::Instant::now() };
            if got.header("content-length").parse() == Ok(body.len()) {
                assert_eq!(got.header("content-type"), "application/json");
                return got;
            }
        }
        let mut part = [0; 4_096];
        let count = socket.read(&mut part).await.expect("a request");
        assert!(count > 0, "{text}");
        bytes.extend_from_slice(&part[..count]);
    }
}

/// A server with alerts whose delivery runs.
struct Fixture {
    service: Arc<Service>,
    clock: Arc<ManualClock>,
    log: Arc<Mutex<Vec<String>>>,
    stopper: Stopper,
}

impl Fixture {
    fn new(more: &str) -> Fixture {
        let text = format!("[[alert]]\nname = \"a\"\nmatch = \"k:*\"\nabove = 2\nwindow = \"10s\"\n{more}\n");
        let Config { alerts, .. } = Config::parse(&text).expect("valid");
        let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(NOW_S).expect("a time")));
        let service = service_at(Config { alerts, ..Config::default() }, Arc::clone(&clock));
        let (log, stopper) = (Arc::<Mutex<Vec<String>>>::default(), Stopper::new());
        let lines = Arc::clone(&log);
        let write: Log = Arc::new(move |line| lines.lock().expect("no panic").push(line.to_owned()));
        tokio::spawn(keep(Arc::clone(&service), stopper.clone(), write));
        Fixture { service, clock, log, stopper }
    }

    fn hit(&self, hits: u64) {
        let mut batch = crate::service::Batch::default();
        batch.hit(b"k:1", hits, None);
        self.service.execute(&mut batch, &mut crate::service::commit::Changes::default(), self.service.now());
    }

    /// Has time pass, for the server and for its clock.
    async fn pass(&self, span: Span) {
        let step = Duration::from_secs(1);
        let mut left = Duration::from_millis(span.as_millis().unsigned_abs());
        while left > Duration::ZERO {
            pause(step.min(left)).await;
            self.clock.advance(Span::from_millis(1_000).expect("a second"));
            left = left.saturating_sub(step);
        }
    }

    fn failures(&self) -> u64 {
        self.service.stats.failed_deliveries.load(Relaxed)
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_gets_signed_events_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret_file = folder.path().join("secret");
    let secret = BASE64_STANDARD.encode([7; 32]);
    std::fs::write(&secret_file, format!("whsec_{secret}\n")).expect("room");
    let receiver = Receiver::new(&[OK]).await;
    let more = format!("webhook = \"{}\"\nwebhook_secret_file = \"{}\"", receiver.url, secret_file.display());
    let it = Fixture::new(&more);
    it.hit(3);
    receiver.first(1).await;
    it.pass(seconds(11)).await;
    let got = receiver.first(2).await;
    let kinds: Vec<_> = got.iter().map(|got| got.json()["type"].clone()).collect();
    assert_eq!(kinds, ["alert.started", "alert.ended"]);
    assert_eq!(got[0].json()["data"]["keys"], serde_json::json!([{"key": "k:1", "hits": 3, "share": 1.0}]));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    for got in &got {
        assert_eq!(got.path, "/hook");
        let signed = format!("{}.{}.{}", got.header("webhook-id"), got.header("webhook-timestamp"), got.body);
        let signature = got.header("webhook-signature").strip_prefix("v1,").expect("a version");
        let signature = BASE64_STANDARD.decode(signature).expect("base64");
        assert!(hmac::verify(&key, signed.as_bytes(), &signature).is_ok(), "{got:?}");
    }
    assert_eq!(got[0].header("webhook-timestamp"), NOW_S.to_string());
    assert!(got[0].header("webhook-id") != got[1].header("webhook-id"));
    assert_eq!(it.failures(), 0);
    let log = it.log();
    assert_eq!(log[0], "alert a: started: 3 hits of k:* in 10s, more than 2: most by k:1 100 %");
    assert_eq!(log[1], "alert a: ended: 0 hits of k:* in 10s, more than 2");
    it.stopper.stop();
}

/// Symptom: while the keys of alerts that had started were searched, other alerts were missed. Cause: the search held up the evaluation. Fix:
/// it has a task of its own.
#[tokio::test(start_paused = true)]
async fn rules_are_evaluated_while_the_keys_of_an_alert_are_searched() {
    let it = Fixture::new("[[alert]]\nname = \"b\"\nmatch = \"b\"\nabove = 2\nwindow = \"1s\"");
    // No walk over the keys may begin.
    let turns = it.service.all_walks().await;
    it.hit(3);
    it.pass(seconds(1)).await;
    let mut batch = crate::service::Batch::default();
    batch.hit(b"b", 3, None);
    it.service.execute(&mut batch, &mut crate::service::commit::Changes::default(), it.service.now());
    it.pass(seconds(5)).await;
    let starts = || it.service.alert_figures().iter().map(|alert| alert.starts).collect::<Vec<_>>();
    assert_eq!((starts(), it.log().len()), (vec![1, 1], 0));
    drop(turns);
    it.pass(seconds(10)).await;
    let log = it.log();
    let begins: Vec<_> = log.iter().map(|line| &line[..line.len().min(17)]).collect();
    assert_eq!(
        begins,
        ["alert a: started:", "alert b: started:", "alert b: ended: 0", "alert a: ended: 0"],
        "{log:?}"
    );
    assert!(log[0].ends_with("most by k:1 100 %"), "{log:?}");
    it.stopper.stop();
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_gets_the_same_message_again() {
    let receiver =
        Receiver::new(&[Answer::Status("500 Internal Server Error"), Answer::Hang, Answer::Close, OK]).await;
    let it = Fixture::new(&format!("webhook = \"{}\"", receiver.url));
    it.hit(3);
    let got = receiver.first(4).await;
    assert!(
        got.iter()
            .all(|other| other.body == got[0].body
                && other.header("webhook-id") == got[0].header("webhook-id"))
    );
    assert_eq!(got[0].header("webhook-signature"), "");
    // The pauses double, and a receiver that hangs is left after a while.
    let waited: Vec<u64> = got.windows(2).map(|two| (two[1].at - two[0].at).as_secs()).collect();
    assert_eq!(waited, [1, 2 + DELIVERY_TIMEOUT.as_secs(), 4]);
    assert_eq!(it.failures(), 0);
    // It got that one, and then gets the next.
    it.pass(seconds(12)).await;
    assert_eq!(receiver.first(5).await[4].json()["type"], "alert.ended");
    // The first failure is logged at once.
    let log = it.log();
    let of_webhook: Vec<_> = log.iter().filter(|line| line.contains("the webhook")).collect();
    assert_eq!(of_webhook.len(), 2, "{log:?}");
    assert!(
        of_webhook[0]
            .ends_with("did not take a message: it answered 500 Internal Server Error: it is sent again"),
        "{log:?}"
    );
    assert!(of_webhook[1].ends_with("takes messages again"), "{log:?}");
}

/// Hits are counted at once, whatever a receiver does. What waits for it is bounded, and is given up in the end.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_takes_nothing_holds_up_nothing() {
    for answer in [&[Answer::Hang], &[Answer::NeverRead], &[Answer::Status("503 Service Unavailable")]] {
        let (receiver, other) = (Receiver::new(answer).await, Receiver::new(&[OK]).await);
        let it = Fixture::new(&format!(
            "webhook = \"{}\"\n[[alert]]\nname = \"b\"\nmatch = \"k:*\"\nabove = 2\nwindow = \"1s\"\nwebhook = \"{}\"",
            receiver.url, other.url
        ));
        it.hit(3);
        // The other receiver gets its message.
        other.first(1).await;
        assert_eq!(it.service.active_alerts().len(), 2);
        let notice = it.service.active_alerts().remove(0);
        for _ in 0..MAX_QUEUED_ALERTS + 10 {
            it.service.publish_alert(notice.clone());
            pause(Duration::from_millis(1)).await;
        }
        // One is being sent, and the queue is full.
        assert_eq!(it.failures(), 10);
        assert!(
            it.log()
                .iter()
                .any(|line| line == "alerts: 1 not sent: the receiver takes none, and too many wait for it")
        );
        pause(DELIVERED_WITHIN * 3).await;
        assert!(it.failures() > 10, "{}", it.failures());
        assert!(
            it.log().iter().any(|line| line.starts_with("alert a: the webhook http://127.0.0.1:")),
            "{:?}",
            it.log()
        );
        it.stopper.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn an_alertmanager_gets_alerts_again_and_again() {
    let receiver = Receiver::new(&[OK, OK, Answer::Status("500 Internal Server Error"), OK]).await;
    let it = Fixture::new(&format!("alertmanager = \"{}\"", receiver.url));
    it.hit(3);
    let first = receiver.first(1).await.remove(0);
    assert_eq!(first.path, "/hook/api/v2/alerts");
    let expected = serde_json::json!([{
        "labels": {"alertname": "a", "job": "lately", "kind": "above", "match": "k:*"},
        "annotations": {"summary": "3 hits of k:* in 10s, more than 2", "keys": "k:1 3 (100 %)"},
        "startsAt": "2023-11-14T22:14:00Z",
        "endsAt": "2023-11-14T22:18:00Z",
    }]);
    assert_eq!(first.json(), expected);
    // It fires on, and is sent again.
    for _ in 0..6 {
        it.pass(seconds(9)).await;
        it.hit(3);
    }
    it.pass(seconds(7)).await;
    it.hit(3);
    let second = receiver.first(2).await.remove(1);
    assert_eq!((second.at - first.at).as_secs(), ALERTMANAGER_EVERY.as_secs());
    assert_eq!(second.json()[0]["startsAt"], expected[0]["startsAt"]);
    assert!(second.json()[0]["endsAt"].as_str() > first.json()[0]["endsAt"].as_str());
    // It ends. That is sent at once, again after an error, and then for a while.
    it.pass(seconds(11)).await;
    let got = receiver.first(4).await;
    let ended = got[2].json()[0]["endsAt"].clone();
    assert_eq!(got[3].json()[0]["endsAt"], ended);
    assert_eq!((got[3].at - got[2].at).as_secs(), 1);
    assert_eq!(it.failures(), 1);
    it.pass(Span::from_millis(ALERTMANAGER_ENDED.as_millis() * 2).expect("a span")).await;
    let count = receiver.got().len();
    assert!((17..=20).contains(&count), "{count}");
    assert!(
        it.log()
            .iter()
            .any(|line| line.ends_with("it answered 500 Internal Server Error: they are sent again"))
    );
    assert!(it.log().iter().any(|line| line.ends_with("takes them again")));
}
