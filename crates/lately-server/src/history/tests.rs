//! Receivers that take samples, refuse them, or do not answer. Time is that of tokio, and passes when all wait; the clock of the server
//! is set by hand.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lately::{ManualClock, Outcome, Timestamp};
use prost::Message;
use tokio::net::TcpListener;

use super::generated::WriteRequest;
use super::*;
use crate::config::{Config, Storage};
use crate::pause::pause;
use crate::protocol::fixture::service_at;
use crate::service::commit::Changes;
use crate::service::history::HistoryState;

/// A key, its hits, and the time of the sample in seconds after [`START_S`], rounded up.
type Row = (String, u64, i64);

/// The start of a day.
const START_S: i64 = 1_700_006_400;

/// What a receiver answers to a request; it hangs without an answer.
type Answer = Box<dyn FnMut(&[Row]) -> Option<Response> + Send>;

/// A receiver, and the requests that it got.
#[derive(Clone)]
struct Fake {
    answer: Arc<Mutex<Answer>>,
    got: Arc<Mutex<Vec<Vec<Row>>>>,
    url: String,
}

fn status(status: StatusCode) -> Option<Response> {
    Some(status.into_response())
}

impl Fake {
    async fn new(answer: impl FnMut(&[Row]) -> Option<Response> + Send + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/write", listener.local_addr().expect("bound"));
        let fake = Fake { answer: Arc::new(Mutex::new(Box::new(answer))), got: Arc::default(), url };
        let router = Router::new().fallback(post(Fake::take)).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    async fn taking() -> Fake {
        Fake::new(|_| status(StatusCode::NO_CONTENT)).await
    }

    async fn take(State(fake): State<Fake>, headers: HeaderMap, body: Bytes) -> Response {
        assert_eq!(headers["x-prometheus-remote-write-version"], "0.1.0");
        let body = snap::raw::Decoder::new().decompress_vec(&body).expect("Snappy");
        let request = WriteRequest::decode(&body[..]).expect("a message");
        let row = |series: &super::generated::TimeSeries| {
            let [sample] = &series.samples[..] else { panic!("{series:?}") };
            let key = series.labels.iter().find(|label| label.name == "key").expect("a key");
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it was a whole number"
            )]
            let hits = sample.value as u64;
            (key.value.clone(), hits, (sample.timestamp + 1) / 1_000 - START_S)
        };
        let mut rows: Vec<Row> = request.timeseries.iter().map(row).collect();
        rows.sort();
        let answer = (fake.answer.lock().expect("no panic"))(&rows);
        fake.got.lock().expect("no panic").push(rows);
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    fn answer(&self, answer: impl FnMut(&[Row]) -> Option<Response> + Send + 'static) {
        *self.answer.lock().expect("no panic") = Box::new(answer);
    }

    /// The requests that came, once there are that many.
    async fn first(&self, count: usize) -> Vec<Vec<Row>> {
        for _ in 0..10_000 {
            let got = self.got.lock().expect("no panic").clone();
            if got.len() >= count {
                return got;
            }
            pause(Duration::from_millis(100)).await;
        }
        panic!("only {:?}", self.got.lock().expect("no panic"));
    }

    fn take_got(&self) -> Vec<Vec<Row>> {
        std::mem::take(&mut self.got.lock().expect("no panic"))
    }
}

struct Fixture {
    service: Arc<Service>,
    clock: Arc<ManualClock>,
    lines: Arc<Mutex<Vec<String>>>,
    stopper: Stopper,
    task: tokio::task::JoinHandle<()>,
}

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_S * 1_000 + ms).expect("a time")
}

fn at(s: i64) -> Timestamp {
    at_ms(s * 1_000)
}

impl Fixture {
    /// A server that starts at this second, with hits that it had before: a key, how many, and when.
    async fn start(
        fake: &Fake,
        more: &str,
        folder: Option<&Path>,
        (now_s, hits): (i64, &[(&str, u64, i64)]),
    ) -> Fixture {
        let server = Fixture::without_history(fake, more, folder, now_s);
        hits.iter().for_each(|(key, hits, at_s)| server.hit(key, *hits, at(*at_s)));
        server.with_history().await
    }

    /// A server that starts at this second, whose history does not run yet.
    fn without_history(fake: &Fake, more: &str, folder: Option<&Path>, now_s: i64) -> Fixture {
        // Tests set the clock late.
        let class = "[[class]]\nmatch = \"k*\"\nmax_skew = \"1h\"\n";
        let text =
            format!("{class}[[history]]\nname = \"a\"\nurl = \"{}\"\nmatch = \"k*\"\n{more}", fake.url);
        let Config { histories, classes, .. } =
            Config::parse(&text).unwrap_or_else(|problem| panic!("{problem:?}"));
        let storage = folder.map(|folder| Storage { path: folder.to_owned(), ..Storage::default() });
        let clock = Arc::new(ManualClock::new(at(now_s)));
        let service = service_at(
            Config { histories, classes, storage, ..Config::default() },
            Arc::<ManualClock>::clone(&clock),
        );
        service.loaded_nothing();
        let task = tokio::spawn(std::future::ready(()));
        Fixture { task, service, clock, lines: Arc::default(), stopper: Stopper::new() }
    }

    async fn with_history(self) -> Fixture {
        let written = Arc::clone(&self.lines);
        let log: Log = Arc::new(move |line| written.lock().expect("no panic").push(line.to_owned()));
        let task = tokio::spawn(keep(Arc::clone(&self.service), self.stopper.clone(), log));
        let server = Fixture { task, ..self };
        while server.state().sent_to_ms.load(Relaxed) == 0 && server.lines().is_empty() {
            pause(Duration::from_millis(10)).await;
        }
        server
    }

    fn hit(&self, key: &str, hits: u64, at: Timestamp) {
        let mut changes = Changes::default();
        let (outcome, _) = self.service.execute_alone(&mut changes, self.service.now(), |batch| {
            batch.hit(key.as_bytes(), hits, Some(at));
        });
        assert!(matches!(outcome, Ok(Outcome::Hit(Ok(_)))), "{key} {at:?}");
    }

    fn go_to(&self, s: i64) {
        self.clock.set(at(s));
    }

    fn state(&self) -> &HistoryState {
        &self.service.histories[0]
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic").clone()
    }

    /// Waits until the receiver has all panes before this second.
    async fn sent_to(&self, s: i64) {
        for _ in 0..10_000 {
            if self.state().sent_to_ms.load(Relaxed) >= at(s).as_millis() {
                return;
            }
            pause(Duration::from_millis(100)).await;
        }
        panic!("it was sent to {} only: {:?}", self.state().sent_to_ms.load(Relaxed), self.lines());
    }

    async fn stop(self) {
        self.stopper.stop();
        self.task.await.expect("it ends");
    }
}

fn row(key: &str, hits: u64, s: i64) -> Row {
    (key.to_owned(), hits, s)
}

const LONG: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn a_pane_is_sent_once_it_is_closed() {
    let fake = Fake::taking().await;
    // Of the pane of the first start, hits from before it count, too.
    let it = Fixture::start(&fake, "", None, (70, &[("k:a", 2, 65), ("other", 1, 65), ("k:b", 1, 50)])).await;
    it.hit("k:a", 1, at_ms(119_999));
    it.hit("k:c", 1, at(120));
    it.go_to(129);
    pause(LONG).await;
    assert!(fake.take_got().is_empty(), "hits may be late");
    it.go_to(130);
    // The pane before has had a hit of k:b.
    assert_eq!(fake.first(1).await, [vec![row("k:a", 3, 120), row("k:b", 0, 120)]]);
    it.go_to(260);
    it.sent_to(240).await;
    // Nothing was hit in the last minute: a chart ends with a zero.
    assert_eq!(
        fake.take_got()[1..],
        [vec![row("k:a", 0, 180), row("k:c", 1, 180)], vec![row("k:c", 0, 240)]]
    );
    it.go_to(400);
    it.sent_to(360).await;
    assert!(fake.take_got().is_empty());
    assert_eq!((it.state().samples.load(Relaxed), it.state().keys.load(Relaxed)), (5, 3));
    assert_eq!((it.lines(), it.state().lag_ms(at(400))), (Vec::new(), Some(0)));
    it.stop().await;
}

/// Symptom: hits of the first second of a server were missing in its history, now and then. Cause: the first pane was that in which the history
/// had read its file, which took a while. Fix: it is that in which the server started.
#[tokio::test(start_paused = true)]
async fn the_first_pane_is_that_in_which_the_server_started() {
    let fake = Fake::taking().await;
    let it = Fixture::without_history(&fake, "", None, 59);
    it.hit("k:a", 3, at(59));
    it.go_to(60);
    let it = it.with_history().await;
    it.go_to(130);
    it.sent_to(120).await;
    assert_eq!(fake.take_got(), [[row("k:a", 3, 60)], [row("k:a", 0, 120)]]);
    it.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_where_the_last_one_ended() {
    let (fake, folder) = (Fake::taking().await, tempfile::tempdir().expect("a folder"));
    let hits = [("k:a", 1, 10), ("k:a", 2, 70), ("k:a", 4, 130), ("k:a", 8, 190)];
    let it = Fixture::start(&fake, "", Some(folder.path()), (0, &hits)).await;
    it.go_to(130);
    it.sent_to(120).await;
    it.stop().await;
    assert_eq!(fake.take_got(), [[row("k:a", 1, 60)], [row("k:a", 2, 120)]]);
    // The answer to the third pane is lost.
    fake.answer(|_| None);
    let it = Fixture::start(&fake, "", Some(folder.path()), (200, &hits)).await;
    assert_eq!(fake.first(1).await, [[row("k:a", 4, 180)]]);
    it.stop().await;
    fake.answer(|_| status(StatusCode::OK));
    let it = Fixture::start(&fake, "", Some(folder.path()), (260, &hits)).await;
    it.sent_to(240).await;
    // The same sample again, and the next one.
    let got = fake.take_got();
    assert_eq!(got[got.len() - 2..], [[row("k:a", 4, 180)], [row("k:a", 8, 240)]]);
    it.stop().await;
    // Panes of another width begin where the others ended.
    let wide = [&hits[..], &[("k:a", 16, 250)]].concat();
    let it = Fixture::start(&fake, "interval = \"5m\"", Some(folder.path()), (310, &wide)).await;
    it.sent_to(300).await;
    assert_eq!(fake.take_got(), [[row("k:a", 16, 300)]]);
    it.stop().await;
}

/// A receiver that refuses a request may refuse one sample of it.
#[tokio::test(start_paused = true)]
async fn a_refused_sample_is_found() {
    let fake = Fake::new(|rows| match rows.iter().any(|(key, ..)| key == "k:bad") {
        true => Some((StatusCode::BAD_REQUEST, "out of order sample\n").into_response()),
        false => status(StatusCode::NO_CONTENT),
    })
    .await;
    let keys: Vec<String> = (0..99).map(|number| format!("k:{number}")).collect();
    let hits: Vec<(&str, u64, i64)> =
        keys.iter().map(|key| (key.as_str(), 1, 1)).chain([("k:bad", 1, 1)]).collect();
    let it = Fixture::start(&fake, "", None, (2, &hits)).await;
    it.go_to(70);
    it.sent_to(60).await;
    assert_eq!((it.state().samples.load(Relaxed), it.state().refused_samples.load(Relaxed)), (99, 1));
    let got = fake.take_got();
    let taken: Vec<&Row> =
        got.iter().filter(|rows| rows.iter().all(|row| row.0 != "k:bad")).flatten().collect();
    assert_eq!(taken.len(), 99, "each is taken once");
    assert!(got.len() < 20, "{}", got.len());
    let url = &fake.url;
    assert_eq!(
        it.lines(),
        [format!(
            "history a: {url} refused 1 of 100 samples of a pane, the first of the key k:bad or after it: it answered 400 Bad Request: out of order sample"
        )]
    );
    it.stop().await;
}

/// One that refuses all is not asked a thousand times.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_refuses_everything_is_asked_a_bounded_number_of_times() {
    let fake = Fake::new(|_| status(StatusCode::BAD_REQUEST)).await;
    let keys: Vec<String> = (0..2_500).map(|number| format!("k:{number}")).collect();
    let hits: Vec<(&str, u64, i64)> = keys.iter().map(|key| (key.as_str(), 1, 1)).collect();
    let it = Fixture::start(&fake, "", None, (2, &hits)).await;
    it.go_to(70);
    it.sent_to(60).await;
    assert_eq!((it.state().samples.load(Relaxed), it.state().refused_samples.load(Relaxed)), (0, 2_500));
    assert_eq!(fake.take_got().len(), 3 + 2 * crate::limits::SPLITS_A_PANE);
    // Nor is the log full of it.
    it.hit("k:1", 1, at(65));
    it.go_to(200);
    it.sent_to(180).await;
    assert_eq!(it.lines().len(), 1, "{:?}", it.lines());
    it.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_away_gets_all_panes_later() {
    let fake =
        Fake::new(|_| Some((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "30")]).into_response())).await;
    let it = Fixture::start(&fake, "", None, (0, &[("k:a", 1, 10)])).await;
    for minute in 1..5 {
        it.go_to(60 * minute);
        it.hit("k:a", 10, at(60 * minute));
    }
    it.go_to(310);
    let begun = tokio::time::Instant::now();
    fake.first(3).await;
    assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(it.state().lag_ms(at(310)), Some(240_000));
    fake.answer(|_| status(StatusCode::NO_CONTENT));
    fake.take_got();
    it.sent_to(300).await;
    let sums: u64 = fake.take_got().iter().flatten().map(|(_, hits, _)| hits).sum();
    assert_eq!(sums, 41);
    let url = &fake.url;
    let failed = format!(
        "history a: {url} did not take samples: it answered 503 Service Unavailable: it is tried again"
    );
    assert_eq!(it.lines(), [failed, format!("history a: {url} takes samples again")]);
    assert!(it.state().failures.load(Relaxed) >= 3);
    it.stop().await;
}

/// After hours the panes are wider. Their sums are exact all the same.
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_panes_are_wider_and_exact() {
    let (fake, folder) = (Fake::taking().await, tempfile::tempdir().expect("a folder"));
    let it = Fixture::start(&fake, "", Some(folder.path()), (0, &[])).await;
    it.sent_to(0).await;
    it.stop().await;
    // A hit every 7 seconds for 14 hours.
    let hits: Vec<(&str, u64, i64)> = (0..7_200).map(|number| ("k:a", 1, 7 * number)).collect();
    let it = Fixture::start(&fake, "", Some(folder.path()), (50_410, &hits)).await;
    it.sent_to(50_400).await;
    let got = fake.take_got();
    let ends: Vec<i64> = got.iter().map(|rows| rows[0].2).collect();
    let sum: u64 = got.iter().flatten().map(|(_, hits, _)| hits).sum();
    assert_eq!((got.iter().all(|rows| rows.len() == 1), sum), (true, 7_200));
    assert!(ends.is_sorted_by(|one, next| one < next));
    assert_eq!((ends[0], ends[ends.len() - 1] - ends[ends.len() - 2]), (300, 60));
    assert_eq!((it.lines(), it.state().skipped_ms.load(Relaxed)), (Vec::new(), 0));
    it.stop().await;
    // Past the retention, hits are lost; the log and a metric say for how long.
    let it = Fixture::start(&fake, "", Some(folder.path()), (8 * 86_400, &[])).await;
    it.sent_to(8 * 86_400 - 60).await;
    assert!(it.state().skipped_ms.load(Relaxed) >= 1_000 * (86_400 - 50_400));
    assert!(
        it.lines()[0].contains(" s are not sent: their panes were merged into wider ones, or"),
        "{:?}",
        it.lines()
    );
    it.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_past_the_most_are_left_out() {
    let fake = Fake::taking().await;
    let it = Fixture::start(&fake, "max_keys = 2", None, (0, &[("k:a", 1, 1), ("k:b", 1, 1)])).await;
    it.go_to(65);
    it.hit("k:c", 5, at(65));
    it.hit("k:d", 6, at(65));
    it.hit("k:a", 7, at(65));
    it.go_to(130);
    it.sent_to(120).await;
    // Keys stay: b is at 0, and has its place.
    assert_eq!(fake.take_got()[1], [row("k:a", 7, 120), row("k:b", 0, 120)]);
    assert_eq!(it.state().left_out_hits.load(Relaxed), 11);
    let left_out = "history a: 2 keys are left out: there are more than max_keys, which is 2: raise it, or have match name fewer keys";
    assert_eq!(it.lines(), [left_out]);
    assert!(it.state().held_bytes.load(Relaxed) > 0);
    it.service.charge_journal_and_dumps();
    assert_eq!(
        it.service.stats.history_bytes.load(Relaxed),
        it.state().held_bytes.load(Relaxed) as u64,
        "the ceiling counts the keys"
    );
    // After an hour without hits they make room.
    it.hit("k:c", 5, at(3_725));
    it.go_to(3_800);
    it.sent_to(3_780).await;
    assert_eq!(fake.take_got().last(), Some(&vec![row("k:c", 5, 3_780)]));
    it.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hits_in_panes_that_were_sent_are_counted_as_late() {
    let fake = Fake::taking().await;
    let it = Fixture::start(&fake, "", None, (0, &[("k:a", 1, 1)])).await;
    it.go_to(69);
    it.hit("k:a", 2, at(2));
    assert_eq!(it.state().late_hits.load(Relaxed), 0, "it was sent within the delay");
    it.go_to(70);
    it.sent_to(60).await;
    it.hit("k:a", 4, at(3));
    it.hit("other", 8, at(3));
    it.hit("k:a", 16, at(61));
    assert_eq!(it.state().late_hits.load(Relaxed), 4);
    it.go_to(130);
    it.sent_to(120).await;
    assert_eq!(fake.take_got(), [[row("k:a", 3, 60)], [row("k:a", 16, 120)]]);
    it.stop().await;
}

/// Without its position a pane might be sent twice. So it waits.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_position_cannot_be_kept() {
    let (fake, folder) = (Fake::taking().await, tempfile::tempdir().expect("a folder"));
    let gone = folder.path().join("data");
    std::fs::create_dir(&gone).expect("room");
    let it = Fixture::start(&fake, "", Some(&gone), (0, &[("k:a", 1, 1), ("k:a", 2, 61)])).await;
    it.sent_to(0).await;
    std::fs::remove_dir_all(&gone).expect("it is there");
    it.go_to(130);
    fake.first(1).await;
    pause(LONG).await;
    assert_eq!(fake.first(1).await, [[row("k:a", 1, 60)]]);
    assert!(it.lines()[0].contains("history-a: No such file") && it.lines().len() == 1, "{:?}", it.lines());
    std::fs::create_dir(&gone).expect("room");
    it.sent_to(120).await;
    assert_eq!(fake.take_got(), [[row("k:a", 1, 60)], [row("k:a", 2, 120)]]);
    it.stop().await;
    // A damaged one is not guessed.
    std::fs::write(gone.join("history-a"), "1700006400000 12345678\n").expect("room");
    let it = Fixture::start(&fake, "", Some(&gone), (200, &[("k:a", 1, 130)])).await;
    pause(LONG).await;
    assert!(fake.take_got().is_empty());
    assert!(it.lines()[0].starts_with("history a: nothing is sent: "), "{:?}", it.lines());
    it.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_position_ahead_of_the_clock_is_waited_for_or_dropped() {
    let (fake, folder) = (Fake::taking().await, tempfile::tempdir().expect("a folder"));
    let it = Fixture::start(&fake, "", Some(folder.path()), (600, &[])).await;
    it.sent_to(600).await;
    it.stop().await;
    // The clock was set back by a few minutes: these panes may have been sent.
    let it = Fixture::start(&fake, "", Some(folder.path()), (300, &[("k:a", 1, 300)])).await;
    it.sent_to(600).await;
    it.hit("k:a", 1, at(301));
    it.hit("k:a", 2, at(610));
    it.go_to(680);
    it.sent_to(660).await;
    assert_eq!(fake.take_got(), [[row("k:a", 2, 660)]]);
    assert_eq!(it.state().late_hits.load(Relaxed), 1);
    it.stop().await;
    // It had been ahead by hours.
    let it = Fixture::start(&fake, "", Some(folder.path()), (-86_400, &[("k:a", 4, -86_399)])).await;
    it.go_to(-86_330);
    it.sent_to(-86_340).await;
    assert_eq!(fake.first(1).await, [[row("k:a", 4, -86_340)]]);
    assert!(it.lines()[0].contains("when the clock was wrong: it goes on from now"), "{:?}", it.lines());
    it.stop().await;
}
