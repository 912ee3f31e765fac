//! `GET /v1/events`: server-sent events about the total rate, the state of the server, the alerts and the most-hit keys.
//!
//! All streams get the same bytes, which one task makes while there are streams. A stream that is behind gets the newest
//! events when its client has taken the ones before, and none of those between. Only an alert that starts or ends is an event
//! that no stream leaves out: one that is too far behind ends.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use lately::Timestamp;
use lately_resp::command::Verb;
use serde::Serialize;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, oneshot, watch};

use super::alerts;
use super::listener::{Link, Speaks};
use super::long_body::Piece;
use super::pace::Pace;
use super::problem::Problem;
use super::query::Query;
use super::requests::MayBeSilent;
use super::status::StatusAnswer;
use super::top::{TopHead, TopKeyAnswer};
use crate::json::seconds;
use crate::limits::{
    DEFAULT_SERIES_POINTS, EVENTS_EVERY, EVENTS_RATE_SECONDS, EVENTS_TOP_KEYS, EVENTS_TOP_SHARE,
    HISTORY_SECONDS,
};
use crate::pause::pause;
use crate::service::notice::Notice;
use crate::service::{PerSecond, SeriesWalk, Service, TopKeys, TopQuestion, TopRow, TopWalk};
use crate::stopper::Stopper;

/// The streams of a listener, and the task that makes their events.
pub(super) struct Events {
    service: Arc<Service>,
    stopper: Stopper,
    places: Arc<Semaphore>,
    most: usize,
    is_running: Mutex<bool>,
    /// A stream was opened, and waits for its first events.
    wanted: Notify,
    newest: watch::Sender<Newest>,
}

/// The newest events.
#[derive(Clone, Default)]
struct Newest {
    state: Numbered,
    alerts: Numbered,
    top: Numbered,
}

/// Events, and how many of their kind there were before. Nothing before the first.
#[derive(Clone, Default)]
struct Numbered {
    number: u64,
    bytes: Bytes,
}

impl Numbered {
    fn set(&mut self, bytes: Bytes) {
        *self = Numbered { number: self.number + 1, bytes };
    }
}

impl Events {
    pub(super) fn new(service: &Arc<Service>, stopper: Stopper) -> Arc<Events> {
        let most = Speaks::Http.most_events(&service.config);
        Arc::new(Events {
            service: Arc::clone(service),
            stopper,
            places: Arc::new(Semaphore::new(most)),
            most,
            is_running: Mutex::default(),
            wanted: Notify::new(),
            newest: watch::Sender::default(),
        })
    }

    /// The newest events, from those of now on.
    fn subscribe(self: &Arc<Events>) -> watch::Receiver<Newest> {
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = self.newest.subscribe();
        if *is_running {
            newest.mark_changed();
            self.wanted.notify_one();
        } else {
            *is_running = true;
            tokio::spawn(Arc::clone(self).make());
        }
        newest
    }

    /// Makes events while there are streams. It then goes on until the keys may be searched again, and makes none.
    async fn make(self: Arc<Events>) {
        let mut notices = self.service.alerts.subscribe();
        let mut rest = Duration::ZERO;
        loop {
            if self.has_streams() {
                let state = self.charged(self.state());
                self.newest.send_modify(|newest| newest.state.set(state));
                self.send_alerts();
                if rest.is_zero() && !self.service.is_loading() {
                    let (top, spent) = self.top().await;
                    self.newest.send_modify(|newest| newest.top.set(top));
                    rest = (spent * EVENTS_TOP_SHARE).max(EVENTS_EVERY);
                }
            } else {
                self.newest.send_modify(|newest| {
                    (newest.state.bytes, newest.alerts.bytes) = (Bytes::new(), Bytes::new());
                });
            }
            let mut next = pin!(pause(EVENTS_EVERY));
            let waited = loop {
                tokio::select! {
                    () = &mut next => break EVENTS_EVERY,
                    () = self.wanted.notified() => break Duration::ZERO,
                    // If too many came at once, some of them are there.
                    _ = notices.recv() => {
                        while !matches!(notices.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
                        if self.has_streams() {
                            self.send_alerts();
                        }
                    }
                    () = self.stopper.stopped() => return,
                }
            };
            rest = rest.saturating_sub(waited);
            let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
            if rest.is_zero() && !self.has_streams() {
                *is_running = false;
                self.newest.send_modify(|newest| {
                    for of in [&mut newest.state, &mut newest.alerts, &mut newest.top] {
                        of.bytes = Bytes::new();
                    }
                });
                return;
            }
        }
    }

    fn send_alerts(&self) {
        let alerts = self.charged(event("alerts", &alerts::json(&self.service)));
        self.newest.send_modify(|newest| newest.alerts.set(alerts));
    }

    fn has_streams(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    fn state(&self) -> String {
        let rate = RateAnswer::from(self.service.per_second(EVENTS_RATE_SECONDS));
        event("status", &json(&StatusAnswer::of(&self.service))) + &event("rate", &json(&rate))
    }

    /// The event about the most-hit keys, and how long it took to make.
    async fn top(&self) -> (Bytes, Duration) {
        let mut spent = Duration::ZERO;
        let keys = self.find_top(&mut spent).await;
        let begun = (self.service.moment)();
        let top = self.charged(event("top", &json(&TopEvent::new(&self.service, keys))));
        (top, spent + (self.service.moment)().duration_since(begun))
    }

    /// The most-hit keys. Other requests have their turns meanwhile.
    async fn find_top(&self, spent: &mut Duration) -> TopKeys {
        let service = &*self.service;
        let asked = TopQuestion { count: EVENTS_TOP_KEYS, window: None, prefix: b"", pattern: None };
        if let Some((wait, timeout)) = service.wait_for_top(asked, service.now()) {
            service.over(&wait, timeout).await;
        }
        let mut walk = TopWalk::new(service, asked, service.now());
        loop {
            let begun = (service.moment)();
            let is_done = walk.step(service, service.now());
            *spent += (service.moment)().duration_since(begun);
            if is_done {
                return walk.finish(service, service.now());
            }
            tokio::task::yield_now().await;
        }
    }

    fn charged(&self, text: String) -> Bytes {
        Bytes::from_owner(self.service.charged(text.into_bytes()))
    }
}

/// An event as text. JSON has no line breaks.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn json(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("it has no maps")
}

/// Hits in each of the last seconds.
#[derive(Serialize)]
struct RateAnswer {
    /// When the newest second ended.
    end: i64,
    hits: Vec<u64>,
    denied: Vec<u64>,
}

impl From<PerSecond> for RateAnswer {
    fn from(PerSecond { end, hits, denied }: PerSecond) -> RateAnswer {
        RateAnswer { end, hits, denied }
    }
}

#[derive(Serialize)]
struct TopEvent {
    #[serde(flatten)]
    head: TopHead,
    keys: Vec<TopKeyEvent>,
}

#[derive(Serialize)]
struct TopKeyEvent {
    #[serde(flatten)]
    key: TopKeyAnswer,
    /// The hits in each step of the window, oldest first. The last step is not over.
    points: Vec<u64>,
}

impl TopEvent {
    fn new(service: &Service, keys: TopKeys) -> TopEvent {
        let TopKeys { as_of, rows, others_upper } = keys;
        let with_points = |row: &TopRow| TopKeyEvent { key: row.into(), points: points(service, row, as_of) };
        TopEvent {
            head: TopHead { as_of: seconds(as_of), others_upper },
            keys: rows.iter().map(with_points).collect(),
        }
    }
}

/// The small chart of a key over its window.
fn points(service: &Service, row: &TopRow, as_of: Timestamp) -> Vec<u64> {
    let step = service.step_of(&row.key, row.window, DEFAULT_SERIES_POINTS);
    let Ok(mut walk) = SeriesWalk::new(service, &row.key, (row.window, step), as_of) else {
        return Vec::new();
    };
    walk.step(service, as_of).iter().map(|point| point.hits).collect()
}

/// A stream of events, until its client has gone.
struct EventStream {
    events: Arc<Events>,
    newest: watch::Receiver<Newest>,
    /// The alerts that have started or ended meanwhile.
    notices: broadcast::Receiver<Arc<Notice>>,
    /// The numbers of what was sent last.
    sent: [u64; 3],
    link: Link,
    pace: Arc<Pace>,
    /// What is to be sent.
    pieces: VecDeque<Bytes>,
    /// The bytes that the client has not taken yet, and how it is known that it has.
    untaken: Option<(usize, oneshot::Receiver<()>)>,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    /// The next piece. `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some((bytes, taken)) = self.untaken.take() {
            // An error is the end of the sender: the piece was dropped.
            let _ = taken.await;
            self.pace.moved(bytes);
            // Only a client that takes nothing for long is too slow.
            self.pace.renew();
        }
        while self.pieces.is_empty() {
            self.pace.is_at_us();
            tokio::select! {
                changed = self.newest.changed() => changed.ok()?,
                // One that is too far behind has missed some.
                notice = self.notices.recv() => {
                    let text = event("alert", &notice.ok()?.event());
                    self.pieces.push_back(self.events.charged(text));
                }
                () = self.events.stopper.stopped() => return None,
            }
            if !self.may_watch() {
                return None;
            }
            let Newest { state, alerts, top } = &*self.newest.borrow_and_update();
            for (sent, Numbered { number, bytes }) in self.sent.iter_mut().zip([state, alerts, top]) {
                if std::mem::replace(sent, *number) != *number && !bytes.is_empty() {
                    self.pieces.push_back(bytes.clone());
                }
            }
        }
        self.pace.is_at_the_client();
        let bytes = self.pieces.pop_front()?;
        let (sender, taken) = oneshot::channel();
        self.untaken = Some((bytes.len(), taken));
        Some(Bytes::from_owner(Piece::new(bytes, sender)))
    }

    /// Whether the client still has its permission. The users may have been replaced since the stream began, or its session has
    /// ended.
    fn may_watch(&self) -> bool {
        let service = &self.events.service;
        let standing = match self.link.session {
            Some(session) => Cow::Owned(service.principal_of_session(session, service.now())),
            None => self.link.standing(service),
        };
        standing.check::<()>(Some(Verb::Read), |_| None).is_ok()
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        // The connection has its least rate again.
        self.pace.is_at_the_client();
    }
}

/// Events about the server: each second `rate`, `status`, `alerts` and `top`; at once `alert` for one that starts or ends.
#[utoipa::path(
    get, path = "/v1/events", tag = "server",
    responses((status = 200, description = "Server-sent events.", body = String, content_type = "text/event-stream")),
)]
pub(super) async fn events(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    Extension(events): Extension<Arc<Events>>,
    uri: Uri,
) -> Result<Response, Problem> {
    Query::of(&uri, "none")?.end()?;
    let Ok(place) = Arc::clone(&events.places).try_acquire_owned() else {
        let detail = format!("{} other streams of events are open: close a page", events.most);
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail));
    };
    let pace = Pace::of_transfer(&link.pace);
    tokio::spawn(Pace::keep_up(Arc::downgrade(&pace)));
    let history = event("history", &json(&RateAnswer::from(service.per_second(HISTORY_SECONDS))));
    let stream = EventStream {
        newest: events.subscribe(),
        notices: service.alerts.subscribe(),
        sent: [0; 3],
        link,
        pace,
        pieces: VecDeque::from([events.charged(history)]),
        untaken: None,
        _place: place,
        events,
    };
    let pieces = unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((Ok::<_, Infallible>(piece), stream))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((Extension(MayBeSilent), headers, Body::from_stream(pieces)).into_response())
}

#[cfg(test)]
mod tests {
    use super::super::dumps::next_piece;
    use super::*;
    use lately::ManualClock;

    use crate::config::Config;
    use crate::limits::{HTTP_TIMEOUT, MAX_EVENT_STREAMS, MAX_UNREAD_ALERTS};
    use crate::protocol::fixture::{service, service_at};
    use crate::service::Batch;
    use crate::service::commit::Changes;
    use crate::service::sessions::tests::{service as service_with_users, user};

    /// Runs a test on paused time, which advances when nothing else can run.
    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime").block_on(test);
    }

    fn link() -> Link {
        Link::new(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into(), Speaks::Http)
    }

    async fn open(streams: &Arc<Events>, link: Link) -> Result<Body, Problem> {
        let service = State(Arc::clone(&streams.service));
        let streams = Extension(Arc::clone(streams));
        let uri = Uri::from_static("/v1/events");
        Ok(events(service, Extension(link), streams, uri).await?.into_body())
    }

    async fn piece(body: &mut Body) -> Option<String> {
        let piece = next_piece(body).await?.expect("it does not fail");
        Some(String::from_utf8(piece.to_vec()).expect("text"))
    }

    fn is_running(events: &Events) -> bool {
        *events.is_running.lock().expect("no panic")
    }

    #[test]
    fn all_streams_get_the_same_events() {
        run(async {
            let service = service();
            let add = |batch: &mut Batch<'_>| batch.hit(b"k", 7, None);
            service.execute_alone(&mut Changes::default(), service.now(), add).0.expect("counted");
            let events = Events::new(&service, Stopper::new());
            let mut bodies = Vec::new();
            for _ in 0..3 {
                bodies.push(open(&events, link()).await.ok().expect("a place"));
            }
            let mut all = Vec::new();
            for body in &mut bodies {
                let history = piece(body).await.expect("events");
                assert!(history.starts_with("event: history\ndata: {\"end\":0,"), "{history}");
                let state = piece(body).await.expect("events");
                assert!(
                    state.starts_with("event: status\n") && state.contains("\n\nevent: rate\n"),
                    "{state}"
                );
                let alerts = piece(body).await.expect("events");
                let none = "\"alerts\":[],\"ended\":[],\"rules\":[]}\n\n";
                assert!(alerts.starts_with("event: alerts\n") && alerts.ends_with(none), "{alerts}");
                let top = piece(body).await.expect("events");
                let row = "\"keys\":[{\"key\":\"k\",\"window\":\"5m\",\"hits\":7,";
                assert!(top.starts_with("event: top\n") && top.contains(row), "{top}");
                assert!(top.ends_with(",7]}]}\n\n"), "{top}");
                all.push((state, alerts, top));
            }
            assert!(all.iter().all(|events| *events == all[0]));
            assert!(is_running(&events));
            drop(bodies);
            pause(3 * EVENTS_EVERY).await;
            assert!(!is_running(&events), "nothing is made for nobody");
            assert_eq!(service.held_by_dumps(), 0);
            // The next one gets new events, and so does one that comes right after the last has gone.
            for _ in 0..2 {
                let mut body = open(&events, link()).await.ok().expect("a place");
                let mut names = Vec::new();
                for _ in 0..6 {
                    let piece = piece(&mut body).await.expect("events");
                    names.push(piece.lines().next().expect("a line").to_owned());
                }
                assert_eq!(names[..2], ["event: history", "event: status"]);
                assert!(names.contains(&"event: top".to_owned()), "{names:?}");
            }
        });
    }

    /// A service with an alert on more than 2 hits of `k`.
    fn service_with_an_alert() -> Arc<Service> {
        let text = "[[alert]]\nname = \"many\"\nmatch = \"k\"\nabove = 2\nwindow = \"10s\"\n";
        let Config { alerts, .. } = Config::parse(text).expect("valid");
        service_at(
            Config { alerts, ..Config::default() },
            Arc::new(ManualClock::new(Timestamp::from_seconds(1).expect("a time"))),
        )
    }

    /// Counts three hits, and publishes what the rules say.
    fn start_alert(service: &Arc<Service>) {
        let add = |batch: &mut Batch<'_>| batch.hit(b"k", 3, None);
        service.execute_alone(&mut Changes::default(), service.now(), add).0.expect("counted");
        service.evaluate_alerts().into_iter().for_each(|notice| service.publish_alert(notice));
    }

    #[test]
    fn an_alert_is_an_event_at_once() {
        run(async {
            let service = service_with_an_alert();
            let events = Events::new(&service, Stopper::new());
            let mut bodies = Vec::new();
            for _ in 0..2 {
                let mut body = open(&events, link()).await.ok().expect("a place");
                while !piece(&mut body).await.expect("events").starts_with("event: top\n") {}
                bodies.push(body);
            }
            let begun = tokio::time::Instant::now();
            start_alert(&service);
            for body in &mut bodies {
                let mut seen = Vec::new();
                while seen.len() < 2 {
                    let piece = piece(body).await.expect("events");
                    seen.extend(piece.starts_with("event: alert").then_some(piece));
                }
                seen.sort();
                let [edge, all] = &seen[..] else { panic!("two: {seen:?}") };
                let started = "event: alert\ndata: {\"type\":\"alert.started\",";
                assert!(edge.starts_with(started) && edge.contains("\"name\":\"many\""), "{edge}");
                let firing = "\"alerts\":[{\"name\":\"many\",\"state\":\"firing\",";
                assert!(all.starts_with("event: alerts\n") && all.contains(firing), "{all}");
                assert!(all.contains("\"hits\":3,\"baseline\":null,\"starts\":1}]}"), "{all}");
            }
            assert_eq!(begun.elapsed(), Duration::ZERO, "before the next second");
        });
    }

    /// A stream that takes nothing for long leaves out no alert: it ends.
    #[test]
    fn a_stream_that_misses_alerts_ends() {
        run(async {
            let service = service_with_an_alert();
            let events = Events::new(&service, Stopper::new());
            let mut body = open(&events, link()).await.ok().expect("a place");
            piece(&mut body).await.expect("events");
            start_alert(&service);
            let notice = service.active_alerts().remove(0);
            for _ in 1..MAX_UNREAD_ALERTS {
                service.publish_alert(notice.clone());
            }
            for _ in 0..MAX_UNREAD_ALERTS {
                while !piece(&mut body).await.expect("events").starts_with("event: alert\n") {}
            }
            for _ in 0..=MAX_UNREAD_ALERTS {
                service.publish_alert(notice.clone());
            }
            while piece(&mut body).await.is_some() {}
        });
    }

    #[test]
    fn there_are_few_streams() {
        run(async {
            // At a low ceiling they leave half of the places for connections to others.
            for (ceiling_bytes, most) in [(1 << 30, MAX_EVENT_STREAMS), (64 << 20, 14), (16 << 20, 12)] {
                let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(1).expect("a time")));
                let service = service_at(Config { ceiling_bytes, ..Config::default() }, clock);
                let events = Events::new(&service, Stopper::new());
                let mut bodies = Vec::new();
                for _ in 0..most {
                    bodies.push(open(&events, link()).await.ok().expect("a place"));
                }
                let refused = open(&events, link()).await.expect_err("one too many").into_response();
                assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
                bodies.pop();
                assert!(open(&events, link()).await.is_ok());
            }
        });
    }

    #[test]
    fn a_stream_ends_at_the_stop() {
        run(async {
            let stopper = Stopper::new();
            let events = Events::new(&service(), stopper.clone());
            let mut body = open(&events, link()).await.ok().expect("a place");
            piece(&mut body).await.expect("events");
            stopper.stop();
            while piece(&mut body).await.is_some() {}
        });
    }

    #[test]
    fn a_stream_ends_with_its_session() {
        run(async {
            let (service, _, _folder) = service_with_users();
            let service = Arc::new(service);
            let text = service.begin_session(&user(&service, "a"), service.now());
            let token = service.token_of(text.as_bytes());
            let events = Events::new(&service, Stopper::new());
            let link = Link { session: Some(token), ..link() };
            let mut body = open(&events, link).await.ok().expect("a place");
            for _ in 0..5 {
                piece(&mut body).await.expect("events");
            }
            service.end_session(token);
            while piece(&mut body).await.is_some() {}
        });
    }

    /// The client of a stream may wait for as long as it likes for events, but has to take them.
    #[test]
    fn a_client_that_takes_no_events_is_disconnected() {
        run(async {
            let events = Events::new(&service(), Stopper::new());
            let [quick, stuck] = [link(), link()];
            let mut body = open(&events, quick.clone()).await.ok().expect("a place");
            for _ in 0..100 {
                piece(&mut body).await.expect("events");
            }
            assert!(!quick.pace.is_ended());
            let mut body = open(&events, stuck.clone()).await.ok().expect("a place");
            let _untaken = next_piece(&mut body).await.expect("events");
            pause(HTTP_TIMEOUT / 2).await;
            assert!(!stuck.pace.is_ended());
            pause(HTTP_TIMEOUT).await;
            assert!(stuck.pace.is_ended());
        });
    }

    /// A walk over all keys takes long, so it is made less often.
    #[test]
    fn the_search_for_keys_takes_a_share_of_the_time() {
        run(async {
            let service = service();
            crate::protocol::fixture::set_slow(Duration::from_millis(50));
            let events = Events::new(&service, Stopper::new());
            let mut body = open(&events, link()).await.ok().expect("a place");
            let mut tops = 0;
            for _ in 0..60 {
                tops += usize::from(piece(&mut body).await.expect("events").starts_with("event: top\n"));
            }
            assert!((2..20).contains(&tops), "{tops}");
        });
    }
}
