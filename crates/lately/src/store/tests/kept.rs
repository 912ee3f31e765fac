//! Tests of deltas, parts and rollbacks.

use proptest::prelude::*;

use super::*;
use crate::delta::{Delta, Deltas, Forgotten};
use crate::gcra::Rate;
use crate::limit::Admission;
use crate::lockout::{Factor, Lockout};
use crate::merge::Cell;
use crate::store::executor::Executor;
use crate::time::{hours, milliseconds};

/// A replay into a store that has loaded all parts, without changes.
pub(super) fn replay(store: &Store, portion: Portion) -> Replay<'_> {
    let mut replay = Replay::new(store, portion);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, Timestamp::MIN).expect("a part"));
    replay
}

/// Applies the same commands to a store with deltas, and replays them on another.
fn replayed(commands: impl Fn(&Store, &mut DeltaBatch)) -> (Store, Store) {
    let (original, copy) = (store(), store());
    let mut batch = DeltaBatch::default();
    commands(&original, &mut batch);
    replay(&copy, Portion::ALL).record(batch.deltas()).expect("well formed");
    copy.check_consistency();
    (original, copy)
}

fn hit(store: &Store, key: &[u8], weight: u64, at: Timestamp, batch: &mut DeltaBatch) {
    let mut out = Vec::new();
    store.apply_into(&[Op::Hit { key, weight, at: Some(at) }], at, &mut out, batch);
    assert!(matches!(out[..], [Outcome::Hit(Ok(_))]), "{out:?}");
}

/// Takes back up to `hits` hits of each of the last three cells of a width.
fn take_back(store: &Store, key: &[u8], hits: u64, now: Timestamp, batch: &mut DeltaBatch) {
    let settings = store.settings_of(key);
    let levels = settings.levels().as_slice();
    let width_ms = levels[usize::from(hits > 3).min(levels.len() - 1)].width_ms;
    let cells = [0, 1, 2].map(|ago| (Cell::of(now.as_millis() - ago * width_ms, width_ms), hits));
    store.take_back(key, &cells, now, batch);
}

/// Symptom: after a start, used-up limits were open again and hits were lost, although little memory was used before. Cause: while a server
/// runs, a limit keeps the times of hits as a list. The replay knew of no limits, and made a ring of each key with many hits, a hundred times as
/// large, so it evicted keys. Fix: a replay makes no ring that is larger than the hits without it.
#[test]
fn a_replay_takes_no_more_memory_than_the_limits_before_it() {
    let fine = Settings::builder().resolution(milliseconds(10)).window(minutes(5));
    for cost in [1, 1_000, 1 << 40] {
        let stores = [(); 2].map(|()| Store::builder().settings(fine.clone()).build().expect("valid"));
        let [original, copy] = stores;
        let mut replay = replay(&copy, Portion::ALL);
        for step in 0..300 {
            let mut batch = DeltaBatch::default();
            let request = |key| Op::of(Request::new(key, u64::MAX, minutes(5), cost));
            let ops: Vec<_> = b"abcdefghijklmnopqrst".chunks(1).map(request).collect();
            original.apply_into(&ops, after(milliseconds(1 + 800 * step)), &mut Vec::new(), &mut batch);
            replay.record(batch.deltas()).expect("well formed");
        }
        copy.check_consistency();
        let [before, after] = [&original, &copy].map(|store| store.memory().used_bytes);
        assert!(after <= before + before / 4, "cost {cost}: {after} bytes, {before} before");
    }
}

/// Four hits at once, and one an hour.
fn rate() -> Rate {
    Rate::new(3, 1, hours(1)).expect("a rate")
}

/// Requests `cost` hits of a key by a limit and by a rate.
fn ask(store: &Store, key: &[u8], cost: u64, now: Timestamp, batch: &mut DeltaBatch) {
    let request = Request::new(key, 5, minutes(5), cost);
    let throttle = Throttle { key, rate: rate(), quantity: i64::try_from(cost).expect("small") };
    let ops = [Op::of(request), Op::of_throttle(throttle)];
    let mut out = Vec::new();
    store.apply_into(&ops, now, &mut out, batch);
    assert!(matches!(out[..], [Outcome::Limit(Ok(_)), Outcome::Limit(Ok(_))]), "{out:?}");
}

#[test]
fn replayed_deltas_give_the_same_answers() {
    let (original, copy) = replayed(|store, batch| {
        for step in 0..2_000 {
            hit(store, b"hot", 3, after(seconds(1 + step)), batch);
            hit(store, b"late", 1, after(seconds(2_001 - step)), batch);
        }
        hit(store, b"gone", 5, after(seconds(1)), batch);
        assert!(store.forget_into(b"gone", START, Some(batch)));
        hit(store, b"back", 5, after(seconds(1)), batch);
        assert!(store.forget_into(b"back", START, Some(batch)));
        hit(store, b"back", 2, after(seconds(2)), batch);
        store.limit_until(b"hot", after(days(1)), START, Some(batch));
    });
    let now = after(seconds(2_001));
    for key in [&b"hot"[..], b"late", b"gone", b"back"] {
        for window in [seconds(1), minutes(5), minutes(20), days(7), Span::MAX] {
            assert_eq!(copy.hits(key, window, now), original.hits(key, window, now));
        }
    }
    assert_eq!(copy.hits(b"back", minutes(60), now).estimate, 2);
    assert_eq!(copy.limited_until(b"hot", now), Some(after(days(1))));
    assert_eq!(copy.len(), original.len());
}

#[test]
fn sequences_of_a_key_rise() {
    let store = store();
    let mut batch = DeltaBatch::default();
    for n in 0..10 {
        hit(&store, b"k", 1, after(seconds(1 + n)), &mut batch);
    }
    store.forget_into(b"k", START, Some(&mut batch));
    let numbers: Vec<u64> = batch.deltas().map(|delta| delta.expect("well formed").0.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert_eq!(numbers.len(), 11);
}

/// Threads record their changes in any order: hits of a key after its deletion, or the deletion before the
/// hits that it deleted.
#[test]
fn changes_replay_in_any_order() {
    let original = store();
    let mut batches: Vec<DeltaBatch> = (0..60).map(|_| DeltaBatch::default()).collect();
    for (step, batch) in batches.iter_mut().enumerate() {
        let now = after(seconds(1 + u64::try_from(step).expect("small")));
        for key in 0..5_u8 {
            match (step + usize::from(key)) % 7 {
                0 => _ = original.forget_into(&[b'k', key], now, Some(batch)),
                1 => original.limit_until(&[b'k', key], after(days(1)), now, Some(batch)),
                _ => hit(&original, &[b'k', key], 1 + u64::from(key), now, batch),
            }
        }
    }
    let now = after(seconds(61));
    let wanted = answers(&original, now);
    // Orders of a local shuffle: the delay of one thread is unbounded.
    for stride in [1, 7, 13, 59] {
        let copy = store();
        let mut replays: Vec<_> = Portion::each(2).map(|portion| replay(&copy, portion)).collect();
        for replay in &mut replays {
            (0..60)
                .map(|n| n * stride % 60)
                .for_each(|n| replay.record(batches[n].deltas()).expect("well formed"));
        }
        assert_eq!(answers(&copy, now), wanted, "each {stride}th");
        // `settle` skips missing changes and applies the rest.
        let copy = store();
        let mut replay = replay(&copy, Portion::ALL);
        batches[1..].iter().for_each(|batch| replay.record(batch.deltas()).expect("well formed"));
        assert!(copy.len() < original.len());
        replay.settle(0).expect("well formed");
        assert_eq!(copy.len(), original.len());
        copy.check_consistency();
    }
}

#[test]
fn an_older_generation_changes_nothing() {
    let store = store();
    let hits =
        |generation, hits| Delta::Hits { key: b"k", generation: Generation(generation), at: START, hits };
    let forget =
        |generation| Delta::Forget { key: b"k", generation: Generation(generation), why: Forgotten::Deleted };
    let (mut replay, mut number) = (replay(&store, Portion::ALL), 0);
    let mut check = |delta, expected| {
        let mut batch = DeltaBatch::default();
        batch.advance(START);
        number += u64::from(!matches!(delta, Delta::Flush { .. }));
        batch.push(Sequence { part: 0, number }, delta);
        replay.record(batch.deltas()).expect("well formed");
        assert_eq!(store.hits(b"k", minutes(5), START).estimate, expected);
    };
    check(hits(3, 10), 10);
    check(hits(2, 100), 10);
    check(forget(2), 10);
    check(hits(4, 1), 1);
    check(Delta::Flush { below: Generation(4) }, 1);
    check(forget(4), 0);
    assert_eq!(store.hit(b"k", START), Ok(1));
    check(Delta::Flush { below: Generation(5) }, 1);
    check(Delta::Flush { below: Generation(6) }, 0);
}

#[test]
fn a_flush_forgets_all_and_starts_a_generation() {
    let store = store();
    let mut batch = DeltaBatch::default();
    hit(&store, b"before", 1, START, &mut batch);
    let mut flushed = Vec::new();
    assert!(store.flush_when(START, |deltas| {
        flushed.extend_from_slice(deltas.bytes());
        true
    }));
    assert!(store.is_empty());
    assert_eq!(store.memory().used_bytes, 0);
    hit(&store, b"after", 1, START, &mut batch);
    // Replayed late, the flush keeps what came after it. Replayed early, it deletes what came before it.
    for order in [[batch.bytes(), &flushed], [&flushed, batch.bytes()]] {
        let copy = self::store();
        let mut replay = replay(&copy, Portion::ALL);
        order.iter().for_each(|bytes| replay.record(Deltas::new(START, bytes)).expect("well formed"));
        assert!(copy.contains(b"after", START) && !copy.contains(b"before", START));
    }
}

/// Symptom: after a start a flood of new keys reopened limits that were used up. Cause: eviction guards were
/// in no checkpoint and no log. Fix: they are in both.
#[test]
fn a_flood_after_a_start_opens_no_limit() {
    const CEILING: u64 = 300_000;
    let store = || {
        let builder = Store::builder().retain(hours(2)).memory_ceiling(CEILING).seed(7);
        builder.build().expect("valid")
    };
    let limited = |n: usize| format!("limited:{n}").into_bytes();
    let throttled = |n: usize| format!("throttled:{n}").into_bytes();
    fn limit(key: &[u8]) -> Op<'_> {
        Op::of(Request::new(key, 3, hours(1), 1))
    }
    fn throttle(key: &[u8]) -> Op<'_> {
        Op::of_throttle(Throttle { key, rate: rate(), quantity: 1 })
    }
    let allowed = |store: &Store, op: Op<'_>, now, batch: &mut DeltaBatch| {
        let mut out = Vec::new();
        store.apply_into(&[op], now, &mut out, batch);
        matches!(&out[..], [Outcome::Limit(Ok(decision))] if decision.is_allowed())
    };
    let (original, mut batch) = (store(), DeltaBatch::default());
    for n in 0..100 {
        // The second and the third are a little later, so that the last guard is not the first.
        for s in [1, 2, 1_200] {
            assert!(allowed(&original, limit(&limited(n)), after(seconds(s)), &mut batch));
        }
        (0..4).for_each(|_| {
            assert!(allowed(&original, throttle(&throttled(n)), after(seconds(1_200)), &mut batch));
        });
        assert!(!allowed(&original, limit(&limited(n)), after(seconds(1_200)), &mut batch));
    }
    let from_log = store();
    replay(&from_log, Portion::ALL).record(batch.deltas()).expect("well formed");
    let from_parts = store();
    let mut bytes = Vec::new();
    for part in 0..Store::PARTS {
        bytes.clear();
        let written = original.write_part(part, after(seconds(1_200)), &mut bytes);
        from_parts.read_part(&bytes, written.now).expect("well formed");
    }
    for (how, started) in [("never stopped", original), ("log", from_log), ("checkpoint", from_parts)] {
        // At the end of the second flood all limits are still used up, and the first guards would have ended.
        for now in [after(seconds(1_210)), after(seconds(3_590))] {
            for n in 0..20_000_u32 {
                started.hit(format!("flood:{n}:{now}").as_bytes(), now).expect("a single hit goes");
            }
            let stats = started.memory();
            assert!(stats.evicted_keys > 10_000 && stats.used_bytes <= CEILING, "{how}: {stats:?}");
            for n in 0..100 {
                let batch = &mut DeltaBatch::default();
                assert!(!allowed(&started, limit(&limited(n)), now, batch), "{how}: limit {n} at {now}");
                assert!(!allowed(&started, throttle(&throttled(n)), now, batch), "{how}: rate {n} at {now}");
            }
        }
    }
}

/// Symptom: a flood reopened limits that hits without a limit had filled, as with `PEEK` and a `HIT` for each
/// failure. Cause: only decisions that count set an eviction guard. Fix: a peek sets one, too, and hits mark
/// it full.
#[test]
fn a_flood_opens_no_limit_that_hits_have_filled() {
    let store = Store::builder().retain(hours(2)).memory_ceiling(300_000).seed(7).build().expect("valid");
    let peek = |key: &[u8], now| {
        let request = Request { is_peek: true, ..Request::new(key, 4, hours(1), 1) };
        store.decide(request, now).expect("decided").is_allowed()
    };
    let key = |n: u32| format!("failed:{n}").into_bytes();
    for n in 0..100 {
        for s in 1..=4 {
            assert!(peek(&key(n), after(seconds(s))));
            store.hit(&key(n), after(seconds(s))).expect("counted");
        }
    }
    let now = after(seconds(10));
    for n in 0..20_000_u64 {
        // Several hits each, so that they are not evicted before the others.
        store.hit_n(format!("flood:{n}").as_bytes(), 1 + n % 3, None, now).expect("others go");
    }
    assert!(store.memory().evicted_keys > 10_000);
    assert!((0..100).all(|n| !peek(&key(n), now)));
}

/// Symptom: in a store of limited keys only, each first denial and each further hit took memory above the
/// ceiling. Cause: only new keys were refused. Fix: denials are not counted there, and hits are refused at a
/// sixteenth above the ceiling.
#[test]
fn keys_that_cannot_be_evicted_do_not_outgrow_the_ceiling() {
    const CEILING: u64 = 400_000;
    let store = Store::builder().retain(hours(2)).memory_ceiling(CEILING).seed(7).build().expect("valid");
    let key = |n: u32| format!("limited:{n}").into_bytes();
    let limit = |key: &[u8], now| store.decide(Request::new(key, 1, hours(1), 1), now);
    let keys = (0..).take_while(|&n| limit(&key(n), after(seconds(1))).is_ok()).count();
    let keys = u32::try_from(keys).expect("few");
    assert!(keys > 1_000, "{keys}");
    for s in 2..6 {
        for n in 0..keys {
            let decision = limit(&key(n), after(seconds(s)));
            assert!(decision.is_ok_and(|decision| !decision.is_allowed()), "denied as long as it is full");
            // A hit is refused if there is no room, late or not.
            let _ = store.hit(&key(n), after(seconds(s)));
            let _ = store.hit_at(&key(n), after(seconds(1)), after(seconds(s)));
        }
        let used = store.memory().used_bytes;
        assert!(used <= CEILING + CEILING / 8, "{used} bytes after {s} rounds");
    }
    assert_eq!(store.memory().evicted_keys, 0);
    assert!(matches!(store.hit(&key(0), after(seconds(6))), Err(HitError::OutOfMemory { .. })));
    store.check_consistency();
}

/// Symptom: a healthy folder could not be loaded. Cause: hits were counted after older ones had expired. In a
/// class with a longer retention, all of them together exceed the bound of a key. Fix: the oldest hits are
/// dropped.
#[test]
fn hits_past_the_bound_of_a_longer_retention_are_loaded() {
    const MOST: u64 = i64::MAX.unsigned_abs();
    let of = |retain| Store::builder().retain(retain).seed(7).build().expect("valid");
    let store = of(hours(1));
    let mut batch = DeltaBatch::default();
    let (first, second, third) = (after(seconds(1)), after(hours(2)), after(hours(4)));
    hit(&store, b"k", MOST, first, &mut batch);
    hit(&store, b"k", 5, second, &mut batch);
    hit(&store, b"k", MOST - 2, third, &mut batch);
    for at in [first, second, third] {
        let denied = Op::Decide(Box::new(Request::new(b"denied", 0, minutes(1), MOST - 2)));
        store.apply_into(&[denied], at, &mut Vec::new(), &mut batch);
    }
    for retain in [hours(1), hours(3), days(7)] {
        let copy = of(retain);
        replay(&copy, Portion::ALL).record(batch.deltas()).expect("well formed");
        let hits = |window| copy.hits(b"k", window, third);
        assert_eq!(hits(minutes(1)).estimate, MOST - 2, "{retain}");
        let kept = hits(retain);
        let all = MOST - 2 + if retain > hours(2) { 2 } else { 0 };
        assert_eq!((kept.lower, kept.estimate), (all, all), "{retain}");
        let denied = copy.denied(b"denied", Some(minutes(1)), None, third);
        assert_eq!(denied.estimate, MOST - 2, "{retain}");
        copy.check_consistency();
    }
}

/// Symptom: a key had two slots, one of them without its hits. Cause: a denial found the store full. When
/// another thread had made room a moment later, it took the key for new. Fix: the function that makes room
/// returns the place of the key.
#[test]
fn a_key_keeps_its_slot_when_room_is_made() {
    let store = Store::builder().memory_ceiling(300_000).seed(7).build().expect("valid");
    let now = after(seconds(1));
    let key = |n: u32| format!("key:{n}").into_bytes();
    store.decide(Request::new(b"limited", 1, hours(1), 1), now).expect("decided");
    let place_then = |store: &Store| {
        let hash = store.hash(b"limited");
        let mut executor = Executor::new(store, now, None);
        let place = executor.shard(hash).place_near(None, b"limited", hash);
        assert!(place.is_some());
        (executor.room_for((b"limited", hash), place), place)
    };
    let (found, place) = place_then(&store);
    assert_eq!(found, (true, place));
    // The same holds if other keys are evicted for it.
    let mut hits = 0;
    while store.memory().evicted_keys == 0 {
        store.hit(&key(hits), now).expect("others go");
        hits += 1;
    }
    store.charge(0, 1_000);
    let (found, place) = place_then(&store);
    assert_eq!(found, (true, place));
    store.check_consistency();
}

/// Symptom: joint requests took memory above the ceiling. Cause: they counted hits of existing keys without a
/// check. Fix: the check of a single limit.
#[test]
fn requests_with_several_limits_do_not_outgrow_the_ceiling() {
    const CEILING: u64 = 400_000;
    let store = Store::builder().retain(hours(2)).memory_ceiling(CEILING).seed(7).build().expect("valid");
    let key = |n: u32| format!("limited:{n}").into_bytes();
    let use_up = |n| store.decide(Request::new(&key(n), 1, hours(1), 1), after(seconds(1)));
    let keys = (0..).take_while(|&n| use_up(n).is_ok()).count();
    let keys = u32::try_from(keys).expect("few");
    assert!(keys > 1_000, "{keys}");
    let mut is_refused = false;
    for s in 2..7 {
        for n in 0..keys {
            let key = key(n);
            let limits = vec![Limit { key: &key, max: 1_000_000, window: hours(1) }];
            let request = JointRequest { limits, cost: 1, at: None, is_peek: false };
            let decided = store.decide_all(request, after(seconds(60 * s)));
            is_refused |= matches!(decided, Err(LimitError::Hit(HitError::OutOfMemory { .. })));
        }
        let used = store.memory().used_bytes;
        assert!(used <= CEILING + CEILING / 8, "{used} bytes after {s} rounds");
    }
    assert!(is_refused);
    store.check_consistency();
}

/// Keys of all forms, with limits and generations.
fn crowd(store: &Store, batch: &mut DeltaBatch) -> Timestamp {
    for n in 0..3_000_i64 {
        let key = format!("key:{}:{}", n % 700, "x".repeat(usize::try_from(n % 40).expect("small")));
        hit(store, key.as_bytes(), 1 + n.unsigned_abs() % 3, after(seconds(1 + n.unsigned_abs())), batch);
        if n % 7 == 0 {
            hit(store, b"hot", 1, after(seconds(1 + n.unsigned_abs())), batch);
        }
        if n % 3 == 0 {
            let key = format!("asked:{}", n % 50);
            ask(store, key.as_bytes(), 1 + n.unsigned_abs() % 4, after(seconds(1 + n.unsigned_abs())), batch);
        }
        if n % 50 == 0 {
            store.forget_into(key.as_bytes(), after(seconds(1 + n.unsigned_abs())), Some(batch));
        }
    }
    let now = after(seconds(3_001));
    store.limit_until(b"hot", after(days(1)), now, Some(batch));
    now
}

/// All answers about a key: counted and denied hits, and its limit state.
type Answers = (Box<[u8]>, Vec<Count>, (Option<Timestamp>, Option<Span>, Decision));

fn answers(store: &Store, now: Timestamp) -> Vec<Answers> {
    let mut keys = Vec::new();
    let mut cursor = Cursor::START;
    loop {
        let page = store.scan(cursor, None, 1_000, now);
        keys.extend(page.keys);
        cursor = page.next;
        if cursor == Cursor::START {
            break;
        }
    }
    keys.sort();
    let windows = [seconds(1), minutes(5), minutes(20), days(7), Span::MAX];
    let of = |key: Box<[u8]>| {
        let counted = windows.map(|window| store.hits(&key, window, now));
        let denied = windows.map(|window| store.denied(&key, Some(window), None, now));
        let throttle = Throttle { key: &key, rate: rate(), quantity: 0 };
        let throttled = store.throttle(throttle, now).expect("decided");
        let limits = (store.limited_until(&key, now), store.time_to_live(&key, now), throttled);
        (key, [counted, denied].concat(), limits)
    };
    keys.into_iter().map(of).collect()
}

#[test]
fn a_store_is_rebuilt_from_its_parts() {
    let original = store();
    let now = crowd(&original, &mut DeltaBatch::default());
    let copy = store();
    copy.reserve(original.len());
    let mut keys = 0;
    for part in 0..Store::PARTS {
        let mut bytes = Vec::new();
        let written = original.write_part(part, now, &mut bytes);
        assert_eq!((written.sequence.part, copy.read_part(&bytes, now)), (part, Ok(Vec::new())));
        assert_eq!(Store::check_part(&bytes), Ok(written.content));
        keys += written.content.keys;
    }
    copy.check_consistency();
    assert_eq!(keys, original.len() as u64);
    assert_eq!(answers(&copy, now), answers(&original, now));
}

/// Like a checkpoint: parts are written while hits continue, and the changes that a part includes are not
/// replayed.
#[test]
fn a_store_is_rebuilt_from_parts_and_later_changes() {
    let original = store();
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    let mut batch = DeltaBatch::default();
    let mut now = START;
    for round in 0..u64::from(Store::PARTS) {
        now = after(seconds(1 + round));
        for n in 0..8 {
            hit(&original, format!("key:{}", (round * 5 + n) % 900).as_bytes(), 1 + n, now, &mut batch);
        }
        if round % 3 == 0 {
            original.forget_into(format!("key:{}", round % 900).as_bytes(), now, Some(&mut batch));
        }
        if round % 200 == 0 {
            hit(&original, b"hot", 1, now, &mut batch);
        }
        ask(&original, format!("key:{}", round % 90).as_bytes(), 1 + round % 7, now, &mut batch);
        let part = original.write_part(u16::try_from(round).expect("few"), now, &mut bytes);
        parts.push(part.sequence.number);
    }
    let copy = store();
    copy.read_part(&bytes, now).expect("well formed");
    for portion in Portion::each(3) {
        let mut replay = Replay::new(&copy, portion);
        (0..).zip(&parts).for_each(|(part, &number)| replay.include(part, number, now).expect("a part"));
        replay.record(batch.deltas()).expect("well formed");
    }
    copy.check_consistency();
    assert_eq!(answers(&copy, now), answers(&original, now));
}

/// Symptom: after a start `HITS k 604400s` returned 1 and no longer 778, for hits at the edge of the
/// retention. Cause: keys were loaded as of the latest time of their shard. That may be the time of another
/// key's part that was further, or of a sweep during the start; the key had then expired before the hit that
/// kept it. Fix: each change is applied as of the time of its own part.
#[test]
fn changes_are_replayed_as_of_their_own_time() {
    let names = |prefix: &str, count: u32| (0..count).map(|n| format!("{prefix}:{n}").into_bytes()).collect();
    let (edge, others): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (names("edge", 300), names("other", 20_000));
    let window = Some(seconds(604_400));
    let (now, later) = (after(days(8)), after(days(8)).saturating_add(seconds(3)));
    for with_parts in [false, true] {
        let original = Store::builder().seed(1).build().expect("valid");
        let [mut old, mut new, mut late]: [DeltaBatch; 3] = Default::default();
        let mut out = Vec::new();
        let mut parts = Vec::new();
        let half = Store::PARTS / 2;
        let write = |numbers: std::ops::Range<u16>, now, parts: &mut Vec<_>| {
            for number in numbers.filter(|_| with_parts) {
                let mut bytes = Vec::new();
                parts.push((original.write_part(number, now, &mut bytes), bytes));
            }
        };
        write(0..half, now, &mut parts);
        for key in &edge {
            let at = Some(now.saturating_sub(seconds(604_799)));
            original.apply_into(&[Op::Hit { key, weight: 1_000, at }], now, &mut out, &mut old);
        }
        for key in &edge {
            original.apply_into(&[Op::Hit { key, weight: 1, at: None }], now, &mut out, &mut new);
        }
        for key in &others {
            original.apply_into(&[Op::Hit { key, weight: 1, at: None }], later, &mut out, &mut late);
        }
        assert!(out.iter().all(|outcome| matches!(outcome, Outcome::Hit(Ok(_)))));
        write(half..Store::PARTS, later, &mut parts);
        let counts = |store: &Store| -> Vec<Count> {
            edge.iter().map(|key| store.count(key, window, None, later)).collect()
        };
        let wanted = counts(&original);
        assert!(wanted.iter().all(|count| count.estimate > 1), "the old hits show in the cell of the edge");
        for threads in [1, 2] {
            // Other keys share their shards with these.
            let copy = Store::builder().seed(2).build().expect("valid");
            for (part, bytes) in &parts {
                copy.read_part(bytes, part.now).expect("well formed");
            }
            for portion in Portion::each(threads) {
                let mut replay = replay(&copy, portion);
                for (part, _) in &parts {
                    let Sequence { part: number, number: last } = part.sequence;
                    replay.include(number, last, part.now).expect("a part");
                }
                // The change of another thread, 3 s later, was recorded first.
                for batch in [&old, &late, &new] {
                    replay.record(batch.deltas()).expect("well formed");
                }
            }
            copy.set_now(later);
            copy.check_consistency();
            let differ = counts(&copy).iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count();
            assert_eq!(differ, 0, "{threads} threads, parts: {with_parts}");
        }
    }
}

/// Symptom: hits of a deleted key came back with a longer retention at the next start. Cause: the key had
/// expired, so there was nothing to delete, and nothing was written. Fix: a deletion is written in any case.
#[test]
fn a_longer_retention_does_not_restore_a_deleted_key() {
    for is_swept in [false, true] {
        let original = Store::builder().retain(hours(1)).build().expect("valid");
        let mut batches: [DeltaBatch; 3] = Default::default();
        hit(&original, b"k", 5, START, &mut batches[0]);
        let now = after(hours(2));
        if is_swept {
            sweep(&original, now);
        }
        assert_eq!(original.len(), usize::from(!is_swept));
        assert!(!original.forget_into(b"k", now, Some(&mut batches[1])), "nobody sees it any more");
        assert_eq!(original.len(), 0);
        hit(&original, b"k", 3, now, &mut batches[2]);
        for last in 1..=3 {
            let copy = store();
            let mut replay = replay(&copy, Portion::ALL);
            batches[..last].iter().for_each(|batch| replay.record(batch.deltas()).expect("well formed"));
            assert_eq!(copy.hits(b"k", days(7), now).estimate, [5, 0, 3][last - 1], "swept: {is_swept}");
        }
        // It can be rolled back like any other.
        original.roll_back(&mut batches[2]);
        original.roll_back(&mut batches[1]);
        assert!(!original.contains(b"k", now) && !original.is_mixed());
        original.check_consistency();
    }
    // An invalid key is not written.
    let (store, mut batch) = (store(), DeltaBatch::default());
    for name in [&[][..], &[b'k'; MAX_KEY_BYTES + 1]] {
        assert!(!store.forget_into(name, START, Some(&mut batch)));
    }
    assert!(batch.is_empty());
}

#[test]
fn a_rolled_back_batch_leaves_no_trace() {
    let (store, untouched) = (store(), self::store());
    let now = crowd(&store, &mut DeltaBatch::default());
    crowd(&untouched, &mut DeltaBatch::default());
    let mut batch = DeltaBatch::default();
    for key in [&b"new"[..], b"hot", b"key:1:x", b"hot"] {
        hit(&store, key, 3, now, &mut batch);
        hit(&store, key, 2, now.saturating_sub(minutes(30)), &mut batch);
    }
    for key in [&b"hot"[..], b"new", b"key:2:xx"] {
        assert!(store.forget_into(key, now, Some(&mut batch)));
        hit(&store, key, 5, now, &mut batch);
    }
    for key in [&b"asked:3"[..], b"hot", b"never asked"] {
        (1..7).for_each(|cost| ask(&store, key, cost, now, &mut batch));
    }
    assert!(store.forget_into(b"asked:9", now, Some(&mut batch)));
    ask(&store, b"asked:9", 9, now, &mut batch);
    store.roll_back(&mut batch);
    assert!(batch.is_empty());
    store.check_consistency();
    let without_limits = |answers: Vec<Answers>| {
        let known = answers.into_iter().map(|(key, counts, _)| (key, counts));
        known.filter(|(_, counts)| counts.iter().any(|count| count.estimate > 0)).collect::<Vec<_>>()
    };
    // What a rate granted stays used up: that allows too little, not too much.
    let used_up = |store: &Store, key: &[u8]| {
        let throttle = Throttle { key, rate: rate(), quantity: 0 };
        4 - store.throttle(throttle, now).expect("decided").remaining
    };
    for key in [&b"asked:3"[..], b"asked:9", b"hot"] {
        assert!(used_up(&store, key) >= used_up(&untouched, key));
    }
    let (found, wanted) = (without_limits(answers(&store, now)), without_limits(answers(&untouched, now)));
    found.iter().zip(&wanted).for_each(|(found, wanted)| assert_eq!(found, wanted));
    assert_eq!(found.len(), wanted.len());
}

/// Symptom: refused hits stayed. Cause: the end of a generation that continued in a later one was unknown
/// when hits of the first were rolled back.
#[test]
fn batches_that_deleted_the_same_key_roll_back_in_any_order() {
    for first in 0..2 {
        let store = store();
        let mut before = DeltaBatch::default();
        hit(&store, b"k", 100, START, &mut before);
        let mut batches = [DeltaBatch::default(), DeltaBatch::default()];
        // Each batch has hits of a generation, the deletion that ends it, and hits of the next generation.
        for (weight, batch) in (1..).zip(&mut batches) {
            hit(&store, b"k", weight, START, batch);
            assert!(store.forget_into(b"k", START, Some(batch)));
            hit(&store, b"k", 10 * weight, START, batch);
        }
        store.roll_back(&mut batches[first]);
        store.roll_back(&mut batches[1 - first]);
        assert_eq!(store.hits(b"k", minutes(5), START).estimate, 100, "{first}");
        store.end_rollback();
        store.check_consistency();
    }
}

#[test]
fn a_store_continues_generations_and_sequences() {
    let store = store();
    store.start_after(Generation(7), 100);
    let mut batch = DeltaBatch::default();
    hit(&store, b"k", 1, START, &mut batch);
    let (sequence, delta) = batch.deltas().next().expect("one").expect("well formed");
    assert_eq!(sequence.number, 101);
    assert!(matches!(delta, Delta::Hits { generation: Generation(7), .. }));
}

#[test]
fn a_flush_that_cannot_be_recorded_does_nothing() {
    let store = store();
    store.hit(b"k", START).expect("counted");
    assert!(!store.flush_when(START, |_| false));
    assert!(store.contains(b"k", START));
}

#[test]
fn imported_keys_replace_existing_ones() {
    let (other, here) = (store(), store());
    let now = crowd(&other, &mut DeltaBatch::default());
    let (mut before, mut brought) = (DeltaBatch::default(), DeltaBatch::default());
    hit(&here, b"hot", 1_000, now, &mut before);
    hit(&here, b"mine", 7, now, &mut before);
    let mut bytes = Vec::new();
    (0..Store::PARTS).for_each(|part| _ = other.write_part(part, now, &mut bytes));
    assert_eq!(here.bring_part(&bytes, now, &mut brought), Ok(other.len()));
    here.check_consistency();
    let wanted = answers(&other, now);
    let is_mine = |(key, ..): &Answers| &**key == b"mine";
    let (mine, found): (Vec<_>, Vec<_>) = answers(&here, now).into_iter().partition(is_mine);
    assert_eq!((found, mine.len()), (wanted, 1));
    // A third store has the same content after a replay.
    let copy = store();
    let mut replay = replay(&copy, Portion::ALL);
    for deltas in [&before, &brought] {
        replay.record(deltas.deltas()).expect("well formed");
    }
    assert_eq!(answers(&copy, now), answers(&here, now));
    // After the rollback, the old content is back.
    here.roll_back(&mut brought);
    here.check_consistency();
    assert_eq!((here.len(), here.hits(b"hot", minutes(5), now).estimate), (2, 1_000));
}

/// A replaced key keeps its slot and the memory of its name.
#[test]
fn repeated_imports_take_no_more_memory() {
    let (other, here) = (store(), store());
    for key in 0..20_000_usize {
        let len = [9, 30, 200, 900][key % 4];
        other.hit_n(format!("{key:x>len$}").as_bytes(), 1 + key as u64 % 3, None, START).expect("counted");
    }
    let mut bytes = Vec::new();
    (0..Store::PARTS).for_each(|part| _ = other.write_part(part, START, &mut bytes));
    let bring = || {
        here.bring_part(&bytes, START, &mut DeltaBatch::default()).expect("keys");
        here.check_consistency();
        here.memory().used_bytes
    };
    let used: Vec<u64> = (0..4).map(|_| bring()).collect();
    assert!(used[1] - used[0] <= 4 * 20_000, "{used:?}");
    assert_eq!((used[2], used[3]), (used[1], used[1]));
}

#[test]
fn an_unreadable_key_replaces_no_other() {
    let (other, here) = (store(), store());
    for store in [&other, &here] {
        store.hit(b"key", START).expect("counted");
    }
    let mut bytes = Vec::new();
    (0..Store::PARTS).for_each(|part| _ = other.write_part(part, START, &mut bytes));
    *bytes.last_mut().expect("a key") ^= 0xff;
    let mut deltas = DeltaBatch::default();
    here.bring_part(&bytes, START, &mut deltas).expect_err("it is no entry");
    here.check_consistency();
    here.roll_back(&mut deltas);
    assert_eq!((here.len(), here.hits(b"key", minutes(5), START).estimate), (1, 1));
}

/// Symptom: a refused hit counted. Cause: another thread had deleted the key before the hit was rolled back.
/// Then the deletion was rolled back, too, and restored the hit. Fix: a hit of an ended generation is
/// remembered as a debt.
#[test]
fn batches_of_several_threads_roll_back_in_any_order() {
    for first in [0, 1] {
        let store = store();
        let (mut before, mut hits, mut deletion) =
            (DeltaBatch::default(), DeltaBatch::default(), DeltaBatch::default());
        hit(&store, b"k", 5, START, &mut before);
        hit(&store, b"k", 2, START, &mut hits);
        hit(&store, b"new", 3, START, &mut hits);
        for key in [&b"k"[..], b"new"] {
            assert!(store.forget_into(key, START, Some(&mut deletion)));
        }
        let mut batches = [hits, deletion];
        batches.rotate_left(first);
        batches.iter_mut().for_each(|batch| store.roll_back(batch));
        store.end_rollback();
        assert_eq!(store.hits(b"k", minutes(5), START).estimate, 5, "{first}");
        assert!(!store.contains(b"new", START));
        store.check_consistency();
    }
}

/// The fast path decides most of these.
#[test]
fn every_request_is_recorded() {
    let (original, copy) = replayed(|store, batch| {
        for n in 0..40 {
            let now = after(crate::time::milliseconds(1 + 100 * n));
            ask(store, b"k", 1, now, batch);
            ask(store, b"other", 1 + n % 3, now, batch);
        }
    });
    let now = after(seconds(5));
    for key in [&b"k"[..], b"other"] {
        let seen = |store: &Store| {
            let denied = store.denied(key, Some(minutes(5)), None, now).estimate;
            (denied, store.hits(key, minutes(5), now).estimate, store.time_to_live(key, now))
        };
        assert!(seen(&original).0 > 20);
        assert_eq!(seen(&copy), seen(&original));
        let throttle = Throttle { key, rate: rate(), quantity: 0 };
        assert_eq!(copy.throttle(throttle, now), original.throttle(throttle, now));
    }
}

/// The source of this name.
fn source(name: &[u8]) -> Source<'_> {
    Source::new(name).expect("a name")
}

#[test]
fn positions_are_replayed_with_the_hits_before_them() {
    let (original, copy) = replayed(|store, batch| {
        for step in 1..=40_u64 {
            hit(store, b"k", 1, after(seconds(step)), batch);
            store.set_position(
                source(&[b's', u8::try_from(step % 3).expect("small")]),
                step,
                START,
                Some(batch),
            );
        }
    });
    for store in [&original, &copy] {
        let positions = [0, 1, 2, 3].map(|n| store.position(source(&[b's', n])));
        assert_eq!(positions, [Some(39), Some(40), Some(38), None]);
        assert_eq!(store.source_count(), 3);
    }
    // A replay of another portion leaves them out.
    let (mut batch, other) = (DeltaBatch::default(), store());
    original.set_position(source(b"more"), 1, START, Some(&mut batch));
    let portions: Vec<_> = Portion::each(2).collect();
    replay(&other, portions[1]).record(batch.deltas()).expect("well formed");
    assert_eq!(other.source_count(), 0);
}

#[test]
fn a_flush_leaves_positions() {
    let (original, copy) = replayed(|store, batch| {
        store.set_position(source(b"before"), 1, START, Some(batch));
        store.flush_when(START, |flush| {
            for delta in flush.deltas() {
                let (sequence, delta) = delta.expect("well formed");
                batch.push(sequence, delta);
            }
            true
        });
        store.set_position(source(b"after"), 2, START, Some(batch));
    });
    for store in [original, copy] {
        let positions = [&b"before"[..], b"after"].map(|name| store.position(source(name)));
        assert_eq!(positions, [Some(1), Some(2)]);
        store.check_consistency();
    }
}

#[test]
fn a_part_has_the_positions() {
    let original = store();
    hit(&original, b"k", 3, START, &mut DeltaBatch::default());
    (0..50_u8).for_each(|n| original.set_position(source(&[n]), u64::from(n) << 56 | 1, START, None));
    let (copy, brought) = (store(), store());
    brought.set_position(source(&[7]), 1, START, None);
    let mut deltas = DeltaBatch::default();
    for part in 0..Store::PARTS {
        let mut bytes = Vec::new();
        let written = original.write_part(part, START, &mut bytes);
        assert_eq!(Store::check_part(&bytes), Ok(written.content));
        assert_eq!(copy.read_part(&bytes, START), Ok(Vec::new()));
        brought.bring_part(&bytes, START, &mut deltas).expect("keys and positions");
    }
    let from_deltas = store();
    replay(&from_deltas, Portion::ALL).record(deltas.deltas()).expect("well formed");
    for n in 0..50_u8 {
        assert_eq!(copy.position(source(&[n])), Some(u64::from(n) << 56 | 1));
    }
    assert_eq!((copy.source_count(), copy.positions()), (50, original.positions()));
    // An import into a store that is counting leaves its positions alone.
    assert_eq!((brought.source_count(), brought.position(source(&[7]))), (1, Some(1)));
    assert_eq!(from_deltas.source_count(), 0);
    for store in [&copy, &brought, &from_deltas] {
        assert_eq!(store.hits(b"k", minutes(5), START).estimate, 3);
        store.check_consistency();
    }
    // Positions that were set can be rolled back, and so can the imported keys.
    for (name, position) in original.positions() {
        brought.set_position(source(&name), position, START, Some(&mut deltas));
    }
    assert_eq!(brought.positions(), original.positions());
    brought.roll_back(&mut deltas);
    let positions = [brought.position(source(&[7])), brought.position(source(&[8]))];
    assert_eq!((positions, brought.source_count()), ([Some(1), None], 1));
    brought.check_consistency();
}

/// A change that was rolled back before its batch was written keeps its number: otherwise a replay would wait
/// for it.
#[test]
fn a_partial_rollback_leaves_no_gap_in_the_sequence() {
    let (original, copy) = replayed(|store, batch| {
        hit(store, b"k", 1, START, batch);
        store.set_position(source(b"log"), 1, START, Some(batch));
        let mark = batch.mark();
        hit(store, b"k", 10, START, batch);
        hit(store, b"new", 10, START, batch);
        store.set_position(source(b"log"), 2, START, Some(batch));
        store.set_position(source(b"other"), 2, START, Some(batch));
        store.roll_back_since(batch, &mark);
        hit(store, b"k", 2, START, batch);
        store.set_position(source(b"log"), 3, START, Some(batch));
    });
    for store in [original, copy] {
        let hits = [&b"k"[..], b"new"].map(|key| store.hits(key, minutes(5), START).estimate);
        let positions = [&b"log"[..], b"other"].map(|name| store.position(source(name)));
        assert_eq!((hits, positions), ([3, 0], [Some(3), None]));
        store.check_consistency();
    }
}

/// A store that has loaded the parts of another.
fn loaded_from(store: &Store, now: Timestamp) -> Store {
    let loaded = self::store();
    for part in 0..Store::PARTS {
        let mut bytes = Vec::new();
        let written = store.write_part(part, now, &mut bytes);
        assert_eq!(loaded.read_part(&bytes, written.now), Ok(Vec::new()));
    }
    loaded
}

/// The growth of lockouts is in the change record and in snapshots.
#[test]
fn growing_lockouts_are_kept() {
    let growing = Lockout::growing(minutes(1), Factor::new(2.0).expect("a factor"), None).expect("it fits");
    let lock = |store: &Store, now: Timestamp, batch: &mut DeltaBatch| {
        let request = Request { lockout: Some(growing), ..Request::new(b"k", 0, seconds(1), 1) };
        let mut out = Vec::new();
        store.apply_into(&[Op::of(request)], now, &mut out, batch);
        let [Outcome::Limit(Ok(decision))] = out[..] else { panic!("{out:?}") };
        decision.reset_after
    };
    let (original, copy) = replayed(|store, batch| {
        assert_eq!(lock(store, START, batch), Some(minutes(1)));
        assert_eq!(lock(store, after(minutes(1)), batch), Some(minutes(2)));
    });
    let loaded = loaded_from(&original, after(minutes(2)));
    // Taking hits back leaves the limits of the key.
    hit(&original, b"k", 5, after(minutes(2)), &mut DeltaBatch::default());
    let width_ms = original.settings_of(b"k").levels().as_slice()[0].width_ms;
    let cell = Cell::of(after(minutes(2)).as_millis(), width_ms);
    original.take_back(b"k", &[(cell, 1)], after(minutes(2)), &mut DeltaBatch::default());
    assert_eq!(original.hits(b"k", minutes(5), after(minutes(2))).estimate, 4);
    for (name, store) in [("the original", &original), ("replayed", &copy), ("loaded", &loaded)] {
        let mut batch = DeltaBatch::default();
        assert_eq!(store.limited_until(b"k", after(minutes(2))), Some(after(minutes(3))), "{name}");
        assert_eq!(lock(store, after(minutes(3)), &mut batch), Some(minutes(4)), "{name}");
        store.check_consistency();
        let restored = loaded_from(store, after(hours(8)));
        assert_eq!(lock(&restored, after(hours(8)), &mut batch), Some(minutes(8)), "{name}");
    }
}

/// Symptom: lockouts did not grow any more once their longest length was lowered. Cause: the store kept the last one before that, which is
/// remembered for longer.
#[test]
fn lockouts_grow_on_when_the_longest_is_lowered() {
    let store = store();
    let mut now = START;
    let mut lengths = Vec::new();
    for longest in [days(1), seconds(10), seconds(10), seconds(10), milliseconds(500), milliseconds(500)] {
        let factor = Factor::new(2.0).expect("a factor");
        let lockout = Lockout::growing(milliseconds(100), factor, Some(longest)).expect("it fits");
        let request = Request { lockout: Some(lockout), ..Request::new(b"k", 0, seconds(1), 1) };
        store.decide(request, now).expect("valid");
        let until = store.limited_until(b"k", now).expect("it is locked out");
        lengths.push(until.as_millis() - now.as_millis());
        now = until;
    }
    assert_eq!(lengths, [100, 200, 400, 800, 500, 500]);
}

/// Symptom: hits that were refused were counted after a crash. Cause: hits that another node had deleted were taken back by a
/// change that had all hits of the key that are left, also those of batches that were not written yet. Fix: the change names
/// the hits that are taken back.
#[test]
fn taken_back_hits_are_written_without_hits_of_other_batches() {
    let (original, copy) = [(); 2].map(|()| Store::builder().build().expect("valid")).into();
    let now = after(minutes(2));
    let cell = Cell::of(now.as_millis(), original.settings_of(b"k").levels().as_slice()[0].width_ms);
    let mut batches: [DeltaBatch; 3] = Default::default();
    hit(&original, b"k", 5, now, &mut batches[0]);
    hit(&original, b"k", 7, now, &mut batches[1]);
    original.take_back(b"k", &[(cell, 2)], now, &mut batches[2]);
    assert_eq!(original.hits(b"k", minutes(5), now).estimate, 10);
    // The second batch is not written.
    original.roll_back(&mut batches[1]);
    original.end_rollback();
    let mut replay = replay(&copy, Portion::ALL);
    for batch in [&batches[0], &batches[2]] {
        replay.record(batch.deltas()).expect("well formed");
    }
    replay.settle(u64::from(u32::MAX)).expect("well formed");
    for store in [&original, &copy] {
        assert_eq!(store.hits(b"k", minutes(5), now).estimate, 3);
        store.check_consistency();
    }
}

/// A store whose keys `w…` have wide panes.
fn store_with_wide_panes() -> Store {
    let wide = Settings::builder().resolution(days(1)).retain(days(7)).build().expect("valid");
    Store::builder().class(Pattern::new(b"w*"), wide).build().expect("valid")
}

/// Symptom: after a start a limit admitted up to twice `max`, and lower bounds were too high. Cause: a refund was replayed onto older hits, whose
/// pane was wider than the window and so ended last. Fix: panes that begin in the window come first, as when it was made.
#[test]
fn a_refund_is_replayed_onto_the_hits_of_its_window() {
    let (original, copy) = (store_with_wide_panes(), store_with_wide_panes());
    let mut batch = DeltaBatch::default();
    let now = after(hours(5));
    let limit = |max, window, cost| Request::new(b"wide", max, window, cost);
    let ago = |span: Span| Timestamp::from_millis(now.as_millis() - span.as_millis()).expect("a time");
    let apply = |op: Op<'_>, batch: &mut DeltaBatch| {
        let mut out = Vec::new();
        original.apply_into(&[op], now, &mut out, batch);
    };
    for minute in 0..120 {
        apply(Op::Hit { key: b"wide", weight: 3, at: Some(ago(minutes(120 + minute))) }, &mut batch);
    }
    for ms in 0..100 {
        apply(Op::Hit { key: b"wide", weight: 1, at: Some(ago(milliseconds(3 * ms + 1))) }, &mut batch);
    }
    apply(Op::Refund(Box::new(limit(300, hours(1), 100))), &mut batch);
    replay(&copy, Portion::ALL).record(batch.deltas()).expect("well formed");
    for store in [&original, &copy] {
        let before = store.hits(b"wide", days(7), now);
        assert_eq!(before.estimate, 360);
        store.refund(limit(300, hours(1), 100), now).expect("valid");
        assert_eq!(store.hits(b"wide", days(7), now), before);
        assert!(!store.limit(b"wide", 300, hours(6), 1, now).expect("valid").is_allowed());
        store.check_consistency();
    }
}

proptest! {
    /// Batches of two threads, with refunds of hits of each other.
    #[test]
    fn refunds_of_two_batches_roll_back_in_any_order(
        steps in prop::collection::vec((0..2_usize, 0..15_u8, 1..6_u64, 0..3_000_u64), 1..60),
        first in 0..2_usize,
    ) {
        let original = store();
        let (mut before, mut batches) =
            (DeltaBatch::default(), [DeltaBatch::default(), DeltaBatch::default()]);
        hit(&original, b"k", 7, START, &mut before);
        let mut now = after(seconds(1));
        let counts = |now| {
            let denied = |window| original.denied(b"k", Some(window), None, now);
            [seconds(1), minutes(1), days(7)].map(|window| (original.hits(b"k", window, now), denied(window)))
        };
        for &(thread, kind, hits, ms) in &steps {
            now = now.saturating_add(milliseconds(1 + ms));
            let batch = &mut batches[thread];
            match kind {
                0 => _ = original.forget_into(b"k", now, Some(batch)),
                12.. => take_back(&original, b"k", hits, now, batch),
                1..=5 => hit(&original, b"k", hits, now, batch),
                6 => {
                    let op = Op::of(Request::new(b"k", 0, minutes(1), hits));
                    original.apply_into(&[op], now, &mut Vec::new(), batch);
                }
                _ => {
                    let op = Op::Refund(Box::new(Request::new(b"k", 0, days(7), 2 * hits)));
                    original.apply_into(&[op], now, &mut Vec::new(), batch);
                }
            }
        }
        batches.rotate_left(first);
        batches.iter_mut().for_each(|batch| original.roll_back(batch));
        original.end_rollback();
        let kept = store();
        self::replay(&kept, Portion::ALL).record(before.deltas()).expect("well formed");
        prop_assert_eq!(counts(now).map(|(hits, _)| hits), [seconds(1), minutes(1), days(7)].map(|window| kept.hits(b"k", window, now)));
        prop_assert!(counts(now).iter().all(|(_, denied)| denied.estimate == 0));
        original.check_consistency();
    }

    /// Refunds, and hits that are taken back, are in the change record, and are rolled back.
    #[test]
    fn refunds_are_replayed_and_rolled_back(
        steps in prop::collection::vec((0..6_u8, 0..16_u8, 1..6_u64, 0..40_000_u32), 1..80),
        kept in 0..80_usize,
    ) {
        let [original, copy, kept_copy] = [(); 3].map(|()| store_with_wide_panes());
        let kept = kept.min(steps.len());
        let mut batches = [DeltaBatch::default(), DeltaBatch::default()];
        let mut now = START;
        for (number, &(key, kind, hits, ms)) in steps.iter().enumerate() {
            let batch = &mut batches[usize::from(number >= kept)];
            now = now.saturating_add(milliseconds(1 + u64::from(ms)));
            let key = &[b"kw"[usize::from(key > 3)], key % 4][..];
            match kind {
                0 => _ = original.forget_into(key, now, Some(batch)),
                1..=4 => hit(&original, key, hits, now, batch),
                10..=12 => take_back(&original, key, hits, now, batch),
                // Hits of some hours before.
                13.. => {
                    let at = Timestamp::from_millis(now.as_millis() - i64::from(ms) * 400).expect("a time");
                    let op = Op::Hit { key, weight: hits, at: Some(at.max(Timestamp::MIN)) };
                    original.apply_into(&[op], now, &mut Vec::new(), batch);
                }
                _ => {
                    let window = [minutes(1), hours(1), hours(6)][usize::from(kind) % 3];
                    // Some refunds are of a time before other hits.
                    let back = milliseconds(u64::from(ms) * 300);
                    let at = (kind > 8).then(|| now.saturating_sub(back));
                    let request = Request { at, ..Request::new(key, 9, window, hits) };
                    let op = if kind < 7 { Op::of(request) } else { Op::Refund(Box::new(request)) };
                    original.apply_into(&[op], now, &mut Vec::new(), batch);
                }
            }
        }
        let mut replay = replay(&copy, Portion::ALL);
        batches.iter().for_each(|batch| replay.record(batch.deltas()).expect("well formed"));
        prop_assert_eq!(answers(&copy, now), answers(&original, now));
        copy.check_consistency();
        original.roll_back(&mut batches[1]);
        original.end_rollback();
        self::replay(&kept_copy, Portion::ALL).record(batches[0].deltas()).expect("well formed");
        let counts = |store: &Store| [b"k\0", b"k\x01", b"k\x02", b"w\0", b"w\x01"].map(|key| {
            let windows = [seconds(1), minutes(1), minutes(5), days(7)];
            windows.map(|window| (store.hits(key, window, now), store.denied(key, Some(window), None, now)))
        });
        prop_assert_eq!(counts(&original), counts(&kept_copy));
        original.check_consistency();
    }
}

/// Symptom: a flood reopened used-up limits. Cause: whether a limit was used up was noted when it was asked. Hits that
/// others counted later, and hits ahead of the clock, were not seen. Fix: eviction reads the key's hits.
#[test]
fn a_flood_opens_no_limit_whoever_used_it_up() {
    fn apply(store: &Store, op: Op<'_>, now: Timestamp) {
        store.apply_into(&[op], now, &mut Vec::new(), &mut DeltaBatch::default());
    }
    fn ask(store: &Store, request: Request<'_>, now: Timestamp) {
        apply(store, Op::Decide(Box::new(request)), now);
    }
    fn half(key: &[u8]) -> Request<'_> {
        Request::new(key, 4, hours(1), 2)
    }
    type Uses = fn(&Store, &[u8], Timestamp);
    let start = after(seconds(9));
    fn throttle(store: &Store, key: &[u8], burst: u64, now: Timestamp) {
        let rate = Rate::new(burst, 1, hours(1)).expect("a rate");
        apply(store, Op::of_throttle(Throttle { key, rate, quantity: 2 }), now);
    }
    let cases: [(&str, Uses, Span); 8] = [
        ("itself", |store, key, now| ask(store, Request { cost: 4, ..half(key) }, now), hours(1)),
        (
            "hits",
            |store, key, now| {
                ask(store, half(key), now);
                apply(store, Op::Hit { key, weight: 2, at: None }, now);
            },
            hours(1),
        ),
        (
            "another limit",
            |store, key, now| {
                ask(store, half(key), now);
                ask(store, Request { max: 1_000, window: minutes(1), ..half(key) }, now);
            },
            hours(1),
        ),
        (
            "a longer limit",
            |store, key, now| {
                ask(store, half(key), now);
                ask(store, Request { max: 9, window: hours(2), ..half(key) }, now);
            },
            hours(1),
        ),
        (
            "an exempt request",
            |store, key, now| {
                ask(store, half(key), now);
                ask(store, Request { admission: Admission::Exempt, ..half(key) }, now);
            },
            hours(1),
        ),
        (
            "a joint request",
            |store, key, now| {
                ask(store, half(key), now);
                let limits = vec![Limit { key, max: 100, window: minutes(1) }];
                let joint = JointRequest { limits, cost: 2, at: None, is_peek: false };
                apply(store, Op::LimitAll(Box::new(joint)), now);
            },
            hours(1),
        ),
        (
            "hits ahead of the clock",
            |store, key, now| {
                let at = Some(now.saturating_add(seconds(9)));
                ask(store, Request { cost: 4, window: seconds(2), at, ..half(key) }, now);
            },
            seconds(2),
        ),
        (
            "hits long after the limit was asked",
            |store, key, now| {
                ask(store, Request { window: seconds(8), ..half(key) }, now);
                let at = Some(now.saturating_add(seconds(9)));
                apply(store, Op::Hit { key, weight: 4, at }, now);
            },
            seconds(8),
        ),
    ];
    for (who, uses, window) in cases {
        let store = Store::builder().retain(hours(3)).memory_ceiling(300_000).seed(7).build().expect("valid");
        let key = |n: u32| format!("used up:{n}").into_bytes();
        (0..100).for_each(|n| uses(&store, &key(n), start));
        let now = start.saturating_add(seconds(10));
        for n in 0..20_000 {
            // Half of their limit is used, so that they are not evicted before the others.
            let flood = format!("flood:{n}");
            store.decide(half(flood.as_bytes()), now).expect("others go");
        }
        assert!(store.memory().evicted_keys > 10_000, "{who}");
        for n in 0..100 {
            let decision = store.decide(Request::new(&key(n), 4, window, 1), now).expect("decided");
            assert!(!decision.is_allowed(), "{who}: {n}");
        }
        store.check_consistency();
    }
    let store = Store::builder().retain(hours(3)).memory_ceiling(300_000).seed(7).build().expect("valid");
    let key = |n: u32| format!("used up:{n}").into_bytes();
    for n in 0..100 {
        throttle(&store, &key(n), 3, start);
        throttle(&store, &key(n), 999, start);
    }
    for n in 0..20_000 {
        throttle(&store, format!("flood:{n}").as_bytes(), 3, start);
    }
    assert!(store.memory().evicted_keys > 10_000);
    for n in 0..100 {
        let rate = Rate::new(3, 1, hours(1)).expect("a rate");
        let asked = Throttle { key: &key(n), rate, quantity: 1 };
        assert!(!store.throttle(asked, start).expect("decided").is_allowed(), "another rate: {n}");
    }
}

/// Symptom: 155 of 600 denials were left of the current hour. Cause: a pane of an hour was taken to reach to its end, ahead of the clock.
#[test]
fn denials_of_a_wide_pane_are_not_later_than_the_clock() {
    let hourly = Store::builder().resolution(crate::time::hours(1)).build().expect("valid");
    let now = after(minutes(16));
    for _ in 0..600 {
        assert!(!hourly.limit(b"k", 0, crate::time::hours(1), 1, now).expect("decided").is_allowed());
    }
    let fine = moved(&hourly, now);
    for window in [crate::time::hours(1), crate::time::hours(6), days(6)] {
        assert_eq!(fine.denied(b"k", Some(window), None, now).estimate, 600, "{window}");
    }
}

/// Symptom: a denied request ahead of the clock was in the lower bound of windows that end now, after a move from a class with wide panes to
/// one with narrow ones. Cause: only its pane was kept, and denials were taken not to be later than the clock. Fix: they count at the time of
/// the clock at the latest.
#[test]
fn denials_ahead_of_the_clock_count_as_of_now() {
    let hourly = Store::builder().resolution(crate::time::hours(1)).build().expect("valid");
    let now = after(minutes(16));
    let ahead = now.saturating_add(seconds(9));
    let request = Request { at: Some(ahead), ..Request::new(b"k", 0, crate::time::hours(1), 1) };
    assert!(!hourly.decide(request, now).expect("decided").is_allowed());
    let later = now.saturating_add(seconds(20));
    for (store, now) in [(&hourly, now), (&moved(&hourly, now), now), (&moved(&hourly, now), later)] {
        let Count { lower, upper, .. } = store.denied(b"k", Some(crate::time::hours(1)), None, now);
        assert_eq!((lower, upper), (1, Some(1)));
    }
    let fine = store();
    assert!(!fine.decide(request, now).expect("decided").is_allowed());
    assert_eq!(fine.denied(b"k", Some(seconds(1)), None, now).estimate, 1);
}

/// A store with the keys of another one, and other classes.
fn moved(from: &Store, now: Timestamp) -> Store {
    let (to, mut bytes) = (store(), Vec::new());
    for part in 0..Store::PARTS {
        bytes.clear();
        let written = from.write_part(part, now, &mut bytes);
        assert_eq!(to.read_part(&bytes, written.now), Ok(Vec::new()));
    }
    to.set_now(now);
    to
}
