//! What totals count, and when alerts start and end.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lately::limits::MAX_TOTAL;
use lately::{
    Cursor, HitOnce, JointRequest, Limit, ManualClock, MemberHit, Request, SettingsBuilder, Throttle, minutes,
};

use super::*;
use crate::config::ClusterConfig;
use crate::config::Config;
use crate::protocol::fixture::service_at;
use crate::service::{Batch, CoolestWalk, ScanWalk};

const NOW_S: u64 = 1_700_000_040;

fn at(second: u64) -> Timestamp {
    Timestamp::from_seconds(second).expect("a time")
}

/// Alerts of this text, with a window of 10 s.
fn alerts(text: &str) -> Vec<Alert> {
    let texts = text.split('|').enumerate().map(|(index, one)| {
        format!("[[alert]]\nname = \"a{index}\"\nwindow = \"10s\"\n{}\n", one.trim().replace(", ", "\n"))
    });
    Config::parse(&texts.collect::<String>()).expect("valid").alerts
}

struct Fixture {
    service: Arc<Service>,
    clock: Arc<ManualClock>,
}

/// Runs a future that never waits for long.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return ready;
        }
    }
}

impl Fixture {
    fn new(alerts: Vec<Alert>) -> Fixture {
        Fixture::with(Config { alerts, ..Config::default() })
    }

    fn with(config: Config) -> Fixture {
        let clock = Arc::new(ManualClock::new(at(NOW_S)));
        let service = service_at(config, Arc::clone(&clock));
        Fixture { service, clock }
    }

    fn now(&self) -> Timestamp {
        self.service.now()
    }

    fn execute<'k>(&self, add: impl FnOnce(&mut Batch<'k>)) {
        let mut changes = Changes::default();
        let mut batch = Batch::default();
        add(&mut batch);
        let _entered = self.service.enter();
        self.service.execute(&mut batch, &mut changes, self.now());
        self.service.commit(&mut [&mut changes]);
    }

    fn hit(&self, key: &str, hits: u64) {
        self.execute(|batch| batch.hit(key.as_bytes(), hits, None));
    }

    fn set(&self, second: u64) {
        self.clock.set(at(second));
    }

    /// Evaluates the rules. Returns the alerts that started or ended, with the hits.
    fn evaluate(&self) -> Vec<String> {
        let changed = self.service.evaluate_alerts();
        let text = |notice: Notice| {
            let what = if notice.stage == Stage::Ended { "ended" } else { "started" };
            let notice = Notice { keys: run(self.service.causes(&notice)), ..notice };
            let text = format!("{} {what} {}", notice.rule().name, notice.hits);
            self.service.publish_alert(notice);
            text
        };
        changed.into_iter().map(text).collect()
    }

    /// The hits that a rule read last.
    fn total(&self, index: usize) -> u64 {
        self.evaluate();
        self.service.alert_figures()[index].reading.hits
    }
}

#[test]
fn an_alert_starts_with_the_hit_that_crosses_and_names_the_keys() {
    let it = Fixture::new(alerts("match = \"endpoint:*\", above = 10"));
    it.hit("endpoint:a", 8);
    it.hit("endpoint:b", 2);
    it.hit("other", 100);
    assert_eq!(it.evaluate(), [""; 0]);
    it.hit("endpoint:c", 1);
    assert_eq!(it.evaluate(), ["a0 started 11"]);
    assert_eq!(it.evaluate(), [""; 0]);
    let active = it.service.active_alerts();
    let keys: Vec<_> = active[0].keys.iter().map(|cause| (&*cause.key, cause.hits)).collect();
    assert_eq!(keys, [(&b"endpoint:a"[..], 8), (b"endpoint:b", 2), (b"endpoint:c", 1)]);
    assert!((active[0].keys[0].share - 8.0 / 11.0).abs() < 1e-9);
    // The hits leave the window.
    it.set(NOW_S + 9);
    assert_eq!(it.evaluate(), [""; 0]);
    it.set(NOW_S + 10);
    assert_eq!(it.evaluate(), ["a0 ended 0"]);
    assert!(it.service.active_alerts().is_empty());
}

/// Each way in which hits are counted adds what it counts, and nothing else does.
#[test]
fn totals_have_what_is_counted() {
    let class = SettingsBuilder::default().dedupe(minutes(5)).unique(true).build().expect("valid");
    let config = Config {
        alerts: alerts(
            "match = \"k*\", above = 1000000 | match = \"k:1\", above = 1000000 | match = \"*[12]\", above = 1000000",
        ),
        classes: vec![(Pattern::new(b"k*"), class)],
        ..Config::default()
    };
    let it = Fixture::with(config);
    let check = |what: &str, expected: [u64; 3]| {
        assert_eq!([0, 1, 2].map(|index| it.total(index)), expected, "{what}");
    };
    it.hit("k:1", 3);
    check("a hit", [3, 3, 3]);
    it.hit("k:3", 4);
    it.hit("other", 9);
    it.hit("k:", 0);
    check("other keys", [7, 3, 3]);
    it.execute(|batch| {
        (0..3).for_each(|_| batch.hit(b"k:1", 1, None));
        batch.hit(b"k:2", 5, None);
    });
    check("several in a batch", [15, 6, 11]);
    let once = |weight| HitOnce { key: b"k:1", weight, at: None, id: b"id" };
    it.execute(|batch| batch.hit_once(once(2)));
    it.execute(|batch| batch.hit_once(once(2)));
    check("an id counts once", [17, 8, 13]);
    let member = MemberHit { key: b"k:1", weight: 1, at: None, id: None, member: b"m" };
    it.execute(|batch| batch.hit_member(member));
    check("a member", [18, 9, 14]);
    let request = Request::new(b"k:9", 5, minutes(1), 4);
    it.execute(|batch| batch.limit(request));
    check("allowed", [22, 9, 14]);
    it.execute(|batch| batch.limit(request));
    it.execute(|batch| batch.limit(Request { is_peek: true, ..Request::new(b"k:8", 5, minutes(1), 1) }));
    check("denied, and a peek", [22, 9, 14]);
    let limit = |key| Limit { key, max: 100, window: minutes(1) };
    let limits = || vec![limit(&b"k:1"[..]), limit(b"k:7"), limit(b"k:1")];
    it.execute(|batch| batch.limit_all(JointRequest { limits: limits(), cost: 2, at: None, is_peek: false }));
    check("each key of a joint limit once", [26, 11, 16]);
    it.execute(|batch| batch.limit_all(JointRequest { limits: limits(), cost: 2, at: None, is_peek: true }));
    check("a peek of a joint limit", [26, 11, 16]);
    let rate = lately::Rate::new(4, 1, minutes(1)).expect("a rate");
    it.execute(|batch| batch.throttle(Throttle { key: b"k:6", rate, quantity: 2 }));
    it.execute(|batch| batch.throttle(Throttle { key: b"k:6", rate, quantity: 9 }));
    check("a rate", [28, 11, 16]);
    // A hit of another time is in the total at that time. A late one that is refused is not.
    let late = |seconds| at(NOW_S - seconds);
    it.execute(|batch| batch.hit(b"k:1", 1, Some(late(9))));
    it.execute(|batch| batch.hit(b"k:1", 1, Some(late(10))));
    it.execute(|batch| batch.hit(b"k:1", 1, Some(at(NOW_S - 30 * 86_400))));
    check("at a time", [29, 12, 17]);
    let mut changes = Changes::default();
    let source = lately::Source::new(b"log").expect("a name");
    let stretch = crate::service::Stretch { source, from: 0, to: 2 };
    let hits = [(&b"k:1"[..], 2, late(1)), (b"k:4", 3, late(2)), (b"k:1", 1, at(NOW_S - 30 * 86_400))];
    it.service.ingest(&stretch, hits.into_iter(), &mut changes, it.now()).expect("counted");
    it.service.commit(&mut [&mut changes]);
    check("a stretch of a log", [34, 14, 19]);
    it.service.ingest(&stretch, hits.into_iter(), &mut changes, it.now()).expect("known");
    check("a stretch that was counted before", [34, 14, 19]);
    // What comes in stays in the total when its key goes.
    assert_eq!(it.service.delete([&b"k:1"[..]].into_iter(), &mut changes, it.now()).ok(), Some(1));
    check("a key is deleted", [34, 14, 19]);
}

/// Symptom: `HIT` with the key of a total started an alert, and `DEL` ended one. Cause: any key of a client was taken. Fix: what would
/// change a total is refused.
#[test]
fn clients_cannot_change_a_total() {
    let it = Fixture::new(alerts("match = \"k\", above = 100"));
    it.hit("k", 3);
    let (key, now) = (&b"\0alert:k"[..], it.now());
    let request = Request::new(key, 5, minutes(1), 4);
    let joint = JointRequest {
        limits: vec![
            Limit { key: b"k", max: 9, window: minutes(1) },
            Limit { key, max: 9, window: minutes(1) },
        ],
        cost: 1,
        at: None,
        is_peek: false,
    };
    let rate = lately::Rate::new(4, 1, minutes(1)).expect("a rate");
    let ops = [
        Op::Hit { key, weight: 1, at: None },
        Op::Hit { key: b"k", weight: 1, at: None },
        Op::HitOnce { key, weight: 1, id: b"id" },
        Op::HitOnceAt(Box::new(HitOnce { key, weight: 1, at: Some(now), id: b"id" })),
        Op::HitMember(Box::new(MemberHit { key, weight: 1, at: None, id: None, member: b"m" })),
        Op::Limit { key, max: 5, window: minutes(1), cost: 1 },
        Op::Decide(Box::new(request)),
        Op::Refund(Box::new(request)),
        Op::Throttle { key, rate },
        Op::ThrottleBy(Box::new(Throttle { key, rate, quantity: -1 })),
        Op::LimitAll(Box::new(joint)),
        Op::Hit { key: b"k", weight: 1, at: None },
    ];
    let mut outcomes = Vec::new();
    it.service.apply(&ops, now, &mut outcomes, None);
    let refused = "the key is reserved: those that begin with a zero byte and 'alert:' have the totals of alerts: take another one";
    for (index, outcome) in outcomes.iter().enumerate() {
        let error = match outcome {
            Outcome::Hit(Err(error)) => error.to_string(),
            Outcome::Limit(Err(error)) | Outcome::LimitAll(Err(error)) => error.to_string(),
            _ => String::new(),
        };
        let is_mine = [1, 11].contains(&index);
        assert_eq!(error, if is_mine { "" } else { refused }, "{index}");
    }
    assert_eq!(outcomes.len(), ops.len());
    assert_eq!((&outcomes[1], &outcomes[11]), (&Outcome::Hit(Ok(4)), &Outcome::Hit(Ok(5))));
    assert_eq!(it.total(0), 3);
    let mut changes = Changes::default();
    let deleted = it.service.delete([&b"k"[..], key].into_iter(), &mut changes, now);
    assert_eq!(deleted.map_err(|error| error.to_string()), Err(refused.to_owned()));
    assert_eq!(it.service.existing([&b"k"[..]].into_iter(), now), 1);
    let source = lately::Source::new(b"log").expect("a name");
    let stretch = crate::service::Stretch { source, from: 0, to: 2 };
    let hits = [(&b"k"[..], 2, now), (key, 3, now)];
    // Whoever writes into a log cannot stop the counting of it.
    let ingested = it.service.ingest(&stretch, hits.into_iter(), &mut changes, now).expect("a stretch");
    assert_eq!((ingested.accepted, ingested.refused, it.total(0)), (2, 3, 5));
}

/// Symptom: a hit of the greatest weight, also with a time days ago, and no alert of that pattern started for eight days. Cause: the total was
/// full, and refused each further hit. Fix: a weight counts up to a bound, and a total that is full begins anew.
#[test]
fn no_hit_blinds_an_alert() {
    let it = Fixture::new(alerts("match = \"k:*\", above = 10"));
    it.hit("k:a", 1);
    it.hit("k:b", MAX_TOTAL);
    assert_eq!(it.evaluate(), [format!("a0 started {}", MAX_ALERT_WEIGHT + 1)]);
    it.set(NOW_S + 10);
    assert_eq!(it.evaluate(), ["a0 ended 0"]);
    let (total, early) = (total_key(&Pattern::new(b"k:*")), Some(at(NOW_S)));
    let rest = MAX_TOTAL - MAX_ALERT_WEIGHT - 1;
    let fill = Op::Hit { key: &total, weight: rest, at: early };
    it.service.store.apply(&[fill], it.now(), &mut Vec::new());
    it.hit("k:c", 11);
    assert_eq!(it.evaluate(), ["a0 started 11"]);
}

/// Symptom: after a rule was taken out of the config between two starts, `DBSIZE` had a key more, which nobody could see or delete. Cause: only
/// totals of rules were taken off. Fix: a start deletes the others.
#[test]
fn totals_without_a_rule_are_deleted_after_a_start() {
    let it = Fixture::new(alerts("match = \"k:*\", above = 1"));
    it.hit("k:a", 5);
    let old = total_key(&Pattern::new(b"old:*"));
    it.service.store.hit(&old, it.now()).expect("counted");
    assert_eq!(it.service.key_count(), 2);
    assert_eq!(it.service.forget_old_totals(Cursor::START), Cursor::START);
    assert_eq!((it.service.key_count(), it.total(0)), (1, 5));
}

/// Symptom: a restore into a server without keys was refused. Cause: totals were taken for keys. Fix: they are not.
#[test]
fn totals_are_not_in_the_way_of_a_restore() {
    let it = Fixture::new(alerts("match = \"*\", above = 1"));
    it.service.store.hit(&total_key(&Pattern::new(b"*")), it.now()).expect("counted");
    assert!(it.service.check_restore(false).is_ok());
    it.hit("k", 1);
    assert!(it.service.check_restore(false).is_err());
}

#[test]
fn totals_are_not_among_the_keys() {
    let it = Fixture::new(alerts("match = \"*\", above = 1 | match = \"k\", above = 1"));
    assert_eq!(it.service.key_count(), 0);
    it.hit("k", 5);
    assert_eq!((it.service.key_count(), it.service.store.len()), (1, 3));
    let mut scan = ScanWalk::new(Cursor::START.number(), 1_000_000, None, true);
    while !scan.step(&it.service, it.now()) {}
    assert_eq!(scan.page().1, [b"k"[..].into()]);
    let asked = TopQuestion { count: 10, window: None, prefix: b"", pattern: None };
    let (top, _held) = run(it.service.top(asked)).ok().expect("room");
    assert_eq!(top.rows.iter().map(|row| (&*row.key, row.hits)).collect::<Vec<_>>(), [(&b"k"[..], 5)]);
    let mut coolest = CoolestWalk::new(b"", 10, None, None);
    while !coolest.step(&it.service, it.now()) {}
    assert_eq!(coolest.into_rows().len(), 1);
}

/// Symptom that this prevents: with alerts, `TOP` walks over all keys.
#[test]
fn busy_keys_are_at_hand_beside_totals() {
    let top = SettingsBuilder::default().top(true).build().expect("valid");
    let config = Config {
        alerts: alerts("match = \"*\", above = 1"),
        classes: vec![(Pattern::new(b"*"), top)],
        ..Config::default()
    };
    let it = Fixture::with(config);
    it.hit("k", 5);
    assert!(it.service.store.busy_keys(None, b"", it.now()).is_some_and(|busy| busy.keys.len() == 1));
}

/// Symptom: `below` fired on all nodes that did not reach the engine. Cause: it was compared as of now, without the hits of others. Fix: it is
/// compared as of a little before these were read.
#[test]
fn below_in_a_cluster_waits_for_the_hits_of_others() {
    let cluster = ClusterConfig::new("a", &["redis://127.0.0.1:1"]).expect("a name");
    let alerts = alerts("match = \"host:*\", below = 1 | match = \"host:*\", above = 0");
    let it = Fixture::with(Config { alerts, cluster: Some(cluster), ..Config::default() });
    let read = || it.service.cluster.as_ref().expect("it has one").read_all(it.now());
    it.service.begin_alerts();
    it.hit("host:1", 1);
    assert_eq!(it.evaluate(), ["a1 started 1"]);
    // Others may have hit it: they were not read, or last before the window was empty.
    it.set(NOW_S + 30);
    assert_eq!(it.evaluate(), ["a1 ended 0"]);
    it.set(NOW_S + 31);
    read();
    it.hit("host:1", 1);
    assert_eq!(it.evaluate(), ["a0 started 0", "a1 started 1"]);
    // It ends when what was read is two seconds newer than the hit.
    it.set(NOW_S + 33);
    assert_eq!(it.evaluate(), [""; 0]);
    read();
    assert_eq!(it.evaluate(), ["a0 ended 1"]);
    // The engine is away: it stays as it is.
    it.set(NOW_S + 100);
    assert_eq!(it.evaluate(), ["a1 ended 0"]);
}

#[test]
fn below_waits_for_a_whole_window() {
    let it = Fixture::new(alerts("match = \"host:*\", below = 2"));
    it.service.begin_alerts();
    it.hit("host:1", 1);
    it.set(NOW_S + 9);
    assert_eq!(it.evaluate(), [""; 0]);
    it.set(NOW_S + 10);
    assert_eq!(it.evaluate(), ["a0 started 0"]);
    it.hit("host:2", 2);
    assert_eq!(it.evaluate(), ["a0 ended 2"]);
}

#[test]
fn a_spike_is_against_what_was_before() {
    let it = Fixture::new(alerts("match = \"k\", spike = 3.0, least = 20"));
    for window in 0..30 {
        it.set(NOW_S + 10 * window);
        it.hit("k", 10);
        assert_eq!(it.evaluate(), [""; 0], "{window}");
    }
    it.set(NOW_S + 300);
    it.hit("k", 40);
    assert_eq!(it.evaluate(), ["a0 started 40"]);
    let baseline = it.service.active_alerts()[0].baseline.expect("enough windows");
    assert!((9.0..11.0).contains(&baseline), "{baseline}");
}

#[test]
fn the_alerts_that_ended_last_are_known() {
    let it = Fixture::new(alerts("match = \"k\", above = 0"));
    for round in 0..=MAX_ENDED_ALERTS as u64 {
        it.set(NOW_S + 20 * round);
        it.hit("k", 1 + round);
        assert_eq!(it.evaluate(), [format!("a0 started {}", 1 + round)]);
        it.set(NOW_S + 20 * round + 10);
        assert_eq!(it.evaluate(), ["a0 ended 0"]);
    }
    let ended = it.service.ended_alerts();
    let peaks: Vec<u64> = ended.iter().map(|notice| notice.peak).collect();
    assert_eq!(peaks, (2..=1 + MAX_ENDED_ALERTS as u64).rev().collect::<Vec<_>>());
}

#[test]
fn a_reload_keeps_what_stays_and_ends_what_goes() {
    let it = Fixture::new(alerts("match = \"k\", above = 1 | match = \"l\", above = 1"));
    it.hit("k", 2);
    it.hit("l", 2);
    assert_eq!(it.evaluate(), ["a0 started 2", "a1 started 2"]);
    let mut feed = it.service.alerts.subscribe();
    // The first stays with another receiver, the second has another threshold and is gone, the third is new.
    let mut next = alerts("match = \"k\", above = 1 | match = \"l\", above = 5 | match = \"m\", above = 1");
    next[0].alertmanager = "http://127.0.0.1:1".parse().ok();
    it.service.replace_alerts(&next);
    let ended = feed.try_recv().expect("one");
    assert_eq!((&*ended.rule().name, ended.stage, ended.hits), ("a1", Stage::Ended, 2));
    assert!(feed.try_recv().is_err());
    assert_eq!(it.evaluate(), [""; 0]);
    let active = it.service.active_alerts();
    assert_eq!(active.iter().map(|one| &*one.rule().name).collect::<Vec<_>>(), ["a0"]);
    assert!(active[0].alert.alertmanager.is_some());
    // What was counted for the second stays.
    it.hit("l", 4);
    it.hit("m", 2);
    assert_eq!(it.evaluate(), ["a1 started 6", "a2 started 2"]);
    assert_eq!(it.service.alert_figures()[1].starts, 2);
    // Without rules nothing is counted, and the totals are gone.
    it.service.replace_alerts(&[]);
    assert_eq!((it.service.key_count(), it.service.store.len()), (3, 3));
    it.hit("k", 9);
    it.service.replace_alerts(&alerts("match = \"k\", above = 1"));
    assert_eq!(it.total(0), 0);
}

#[test]
fn totals_are_charged_to_the_ceiling() {
    let it = Fixture::new(alerts("match = \"k*\", above = 1"));
    let without = Fixture::new(Vec::new());
    for it in [&it, &without] {
        (0..100).for_each(|key| it.hit(&format!("k{key}"), 1));
    }
    let used = |it: &Fixture| it.service.memory().used_bytes;
    assert!(used(&it) > used(&without));
    it.service.check_consistency();
}
