//! Hits with ids: what counts once, and what an id survives.

use super::*;
use crate::merge::Cell;
use crate::settings::Settings;
use crate::store::HitOnce;

fn dedupe(span: Span) -> StoreBuilder {
    Store::builder().seed(1).settings(Settings::builder().dedupe(span))
}

fn store() -> Store {
    dedupe(minutes(10)).build().expect("valid")
}

fn hit(store: &Store, key: &[u8], id: &[u8], now: Timestamp) -> Result<u64, HitError> {
    store.hit_once(HitOnce { key, weight: 1, at: None, id }, now)
}

fn hits(store: &Store, key: &[u8], now: Timestamp) -> u64 {
    store.hits(key, hours(1), now).estimate
}

/// Applies operations with a change record.
fn apply(store: &Store, ops: &[Op<'_>], now: Timestamp, deltas: &mut DeltaBatch) -> Vec<Outcome> {
    let mut out = Vec::new();
    store.apply_into(ops, now, &mut out, deltas);
    out
}

fn once<'a>(key: &'a [u8], id: &'a [u8]) -> Op<'a> {
    Op::of_once(HitOnce { key, weight: 1, at: None, id })
}

#[test]
fn an_id_belongs_to_its_key() {
    let store = store();
    for key in [b"a", b"b"] {
        assert_eq!((hit(&store, key, b"1", START), hit(&store, key, b"1", START)), (Ok(1), Ok(1)));
    }
    assert_eq!(hit(&store, b"a", b"2", START), Ok(2));
    store.check_consistency();
}

#[test]
fn a_repeated_hit_changes_nothing() {
    let store = store();
    let mut deltas = DeltaBatch::default();
    apply(&store, &[once(b"k", b"1")], START, &mut deltas);
    let (memory, mut after) = (store.memory(), DeltaBatch::default());
    let again = HitOnce { key: b"k", weight: 5, at: Some(after_start(1)), id: b"1" };
    let out = apply(&store, &[Op::of_once(again)], after_start(1), &mut after);
    assert_eq!(out, [Outcome::Repeated(1)]);
    let changes: Vec<_> = after.deltas().map(|delta| delta.expect("well formed").1).collect();
    assert_eq!((changes, store.memory()), (vec![Delta::Void], memory));
    let many: Vec<_> = (0..64).map(|_| once(b"k", b"2")).collect();
    let out = apply(&store, &many, after_start(1), &mut after);
    assert_eq!(out[0], Outcome::Hit(Ok(2)));
    assert!(out[1..].iter().all(|outcome| *outcome == Outcome::Repeated(2)), "{out:?}");
    assert_eq!(hits(&store, b"k", after_start(1)), 2);
}

fn after_start(s: u64) -> Timestamp {
    after(seconds(s))
}

#[test]
fn ids_and_their_lack_are_checked() {
    let (store, without) = (store(), super::store());
    let long = [b'i'; crate::limits::MAX_ID_BYTES + 1];
    assert_eq!(hit(&store, b"k", b"", START), Err(HitError::IdLength { bytes: 0 }));
    assert_eq!(hit(&store, b"k", &long, START), Err(HitError::IdLength { bytes: long.len() }));
    assert_eq!(hit(&store, b"k", &long[1..], START), Ok(1));
    assert_eq!(hit(&without, b"k", b"1", START), Err(HitError::NoDedupe));
    assert!(without.is_empty());
}

/// Whichever way a key goes, its ids go with it.
#[test]
fn a_deleted_key_has_no_ids() {
    let store = store();
    for forget in [|store: &Store| assert!(store.forget(b"k", START)), Store::flush] {
        assert_eq!((hit(&store, b"k", b"1", START), hit(&store, b"k", b"1", START)), (Ok(1), Ok(1)));
        forget(&store);
        assert_eq!(hits(&store, b"k", START), 0);
        assert_eq!(hit(&store, b"k", b"1", START), Ok(1));
        store.check_consistency();
    }
}

/// Symptom: a hit that was given back, and sent again, did not count. Cause: its key had a denied request or a rate, so it stayed, with
/// its ids. Fix: ids end with the last hit of their key.
#[test]
fn a_key_without_hits_has_no_ids() {
    let request = |max, cost| Box::new(Request::new(b"k", max, hours(1), cost));
    let stays = [
        Op::Decide(request(0, 1)),
        Op::Throttle { key: b"k", rate: crate::gcra::Rate::new(5, 1, hours(1)).expect("a rate") },
    ];
    for op in stays {
        let (store, copy) = (store(), store());
        let mut batch = DeltaBatch::default();
        apply(&store, &[once(b"k", b"1"), op.clone()], START, &mut batch);
        let (mark, before) = (batch.mark(), hits(&store, b"k", START));
        apply(&store, &[Op::Refund(request(0, 9))], START, &mut batch);
        let mut replay = super::kept::replay(&copy, Portion::ALL);
        replay.record(batch.deltas()).expect("well formed");
        for store in [&store, &copy] {
            assert_eq!((hits(store, b"k", START), store.len()), (0, 1), "{op:?}");
            assert!(!is_known(store, b"1", START), "{op:?}");
            store.check_consistency();
        }
        assert_eq!(hit(&copy, b"k", b"1", START), Ok(1), "{op:?}");
        store.roll_back_since(&mut batch, &mark);
        store.end_rollback();
        assert!(is_known(&store, b"1", START), "{op:?}");
        assert_eq!(hits(&store, b"k", START), before, "{op:?}");
        store.check_consistency();
    }
}

/// Symptom: a repeated hit counted after a restart. Cause: a refund took as many hits as the key has in the log, because the disk
/// had refused its others; so the replay took the key for empty, and its ids ended. Fix: the change says whether they ended.
#[test]
fn ids_do_not_end_for_want_of_hits_that_were_refused() {
    let (store, copy) = (store(), store());
    let [mut kept, mut refused] = [(); 2].map(|()| DeltaBatch::default());
    let request = |cost| Box::new(Request::new(b"k", 0, hours(1), cost));
    // A denied request keeps the key when it has no hits.
    apply(&store, &[once(b"k", b"1"), Op::Decide(request(1))], START, &mut kept);
    apply(&store, &[Op::Hit { key: b"k", weight: 3, at: None }], START, &mut refused);
    apply(&store, &[Op::Refund(request(1)), Op::Hit { key: b"k", weight: 1, at: None }], START, &mut kept);
    store.roll_back(&mut refused);
    store.end_rollback();
    let mut replay = super::kept::replay(&copy, Portion::ALL);
    replay.record(kept.deltas()).expect("well formed");
    replay.settle(0).expect("well formed");
    for store in [&store, &copy] {
        assert_eq!((hits(store, b"k", START), is_known(store, b"1", START)), (1, true));
        store.check_consistency();
    }
}

/// Symptom: a repeated hit counted after a restart. Cause: the disk had refused a refund of all hits of its key, and kept hits with ids
/// that came after it. Those have another salt, which replaced that of the ids before. Fix: the key has the ids of both.
#[test]
fn ids_before_a_refund_that_was_refused_stay_known() {
    let (store, copy) = (store(), store());
    let [mut kept, mut refused] = [(); 2].map(|()| DeltaBatch::default());
    let request = |cost| Box::new(Request::new(b"k", 0, hours(1), cost));
    apply(&store, &[once(b"k", b"1"), Op::Decide(request(1))], START, &mut kept);
    apply(&store, &[Op::Refund(request(1))], START, &mut refused);
    apply(&store, &[once(b"k", b"2")], START, &mut kept);
    store.roll_back(&mut refused);
    store.end_rollback();
    let mut replay = super::kept::replay(&copy, Portion::ALL);
    replay.record(kept.deltas()).expect("well formed");
    replay.settle(0).expect("well formed");
    for store in [&store, &copy] {
        assert_eq!(hits(store, b"k", START), 2);
        assert_eq!([b"1", b"2", b"3"].map(|id| is_known(store, id, START)), [true, true, false]);
        store.check_consistency();
    }
}

#[test]
fn ids_are_known_after_a_restart() {
    let store = store();
    let mut deltas = DeltaBatch::default();
    for key in 0..2_000_u32 {
        let ids: Vec<_> = (0..5_u32).map(u32::to_le_bytes).collect();
        let ops: Vec<_> = ids.iter().map(|id| once(&[0; 4], id)).collect();
        let key = key.to_le_bytes();
        let ops = ops.iter().filter_map(Op::as_once).map(|hit| Op::of_once(HitOnce { key: &key, ..hit }));
        apply(&store, &ops.collect::<Vec<_>>(), START, &mut deltas);
    }
    let check = |store: &Store| {
        let later = after_start(300);
        for key in 0..2_000_u32 {
            for id in 0..6_u32 {
                let counted = hit(store, &key.to_le_bytes(), &id.to_le_bytes(), later);
                // The sixth is new.
                assert_eq!(
                    counted.map(|_| hits(store, &key.to_le_bytes(), later)),
                    Ok(5 + u64::from(id == 5))
                );
            }
        }
        store.check_consistency();
    };
    let loaded = dedupe(minutes(10)).seed(2).build().expect("valid");
    let mut part = Vec::new();
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, START, &mut part);
        let content = Store::check_part(&part).expect("a part");
        assert!(loaded.read_part(&part, START).expect("a part").is_empty());
        assert_eq!(content.hits, 5 * content.keys);
    }
    check(&loaded);
    let replayed = dedupe(minutes(10)).seed(3).build().expect("valid");
    let mut replay = Replay::new(&replayed, Portion::ALL);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, START).expect("a part"));
    replay.record(deltas.deltas()).expect("changes");
    check(&replayed);
    let restored = dedupe(minutes(10)).seed(4).build().expect("valid");
    let mut deltas = DeltaBatch::default();
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, START, &mut part);
        restored.bring_part(&part, START, &mut deltas).expect("a part");
    }
    check(&restored);
    let again = dedupe(minutes(10)).seed(5).build().expect("valid");
    let mut replay = Replay::new(&again, Portion::ALL);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, START).expect("a part"));
    replay.record(deltas.deltas()).expect("changes");
    check(&again);
}

/// Symptom: hits that came after a dump, and were sent again after it was restored, did not count. Cause: a restored key has the salt
/// that it had, so the ids that came after the dump matched again. Fix: the ids of a restored key are of an owner of their own.
#[test]
fn a_restored_key_has_the_ids_of_its_dump_alone() {
    for way in ["replaced", "deleted", "flushed"] {
        let (store, copy) = (store(), store());
        let mut replay = super::kept::replay(&copy, Portion::ALL);
        let mut record = |batch: &DeltaBatch| replay.record(batch.deltas()).expect("well formed");
        let [mut before, mut restored, mut after] = [(); 3].map(|()| DeltaBatch::default());
        apply(&store, &[once(b"k", b"1")], START, &mut before);
        let mut dump = vec![Vec::new(); Store::PARTS.into()];
        dump.iter_mut().zip(0..).for_each(|(part, index)| _ = store.write_part(index, START, part));
        apply(&store, &[once(b"k", b"2"), once(b"k", b"3")], START, &mut before);
        if way == "deleted" {
            assert!(store.forget_into(b"k", START, Some(&mut before)));
        }
        record(&before);
        if way == "flushed" {
            store.flush_when(START, |batch| {
                record(batch);
                true
            });
        }
        for part in &dump {
            store.bring_part(part, START, &mut restored).expect("a part");
        }
        record(&restored);
        apply(&store, &[once(b"k", b"1"), once(b"k", b"3")], START, &mut after);
        record(&after);
        replay.settle(0).expect("well formed");
        for store in [&store, &copy] {
            assert_eq!(hits(store, b"k", START), 2, "{way}");
            let known = [b"1", b"2", b"3"].map(|id| is_known(store, id, START));
            assert_eq!(known, [true, false, true], "{way}");
            store.check_consistency();
        }
        assert_eq!(hit(&copy, b"k", b"2", START), Ok(3), "{way}");
        // What was before the restore comes back with the hits.
        store.roll_back(&mut after);
        store.roll_back(&mut restored);
        store.end_rollback();
        store.check_consistency();
        let comes_back = way == "replaced";
        assert_eq!(hits(&store, b"k", START), if comes_back { 3 } else { 0 }, "{way}");
        for id in [b"1", b"2", b"3"] {
            assert_eq!(is_known(&store, id, START), comes_back, "{way}");
        }
    }
}

#[test]
fn a_rollback_takes_ids_back_with_their_hits() {
    let store = store();
    let mut kept = DeltaBatch::default();
    apply(&store, &[once(b"k", b"1"), once(b"gone", b"1")], START, &mut kept);
    let mut failed = DeltaBatch::default();
    apply(&store, &[once(b"k", b"1"), once(b"k", b"2"), once(b"new", b"1")], START, &mut failed);
    store.forget_into(b"gone", START, Some(&mut failed));
    apply(&store, &[once(b"gone", b"1")], START, &mut failed);
    store.roll_back(&mut failed);
    store.end_rollback();
    store.check_consistency();
    // Those that were taken back count now; those before do not count again.
    let expected = [(b"k", b"1", 1), (b"k", b"2", 2)];
    for (key, id, count) in expected {
        assert_eq!(hit(&store, key, id, START), Ok(count));
    }
    assert_eq!((hit(&store, b"new", b"1", START), hit(&store, b"gone", b"1", START)), (Ok(1), Ok(1)));
}

/// Symptom: after a failed write, a hit that had been kept counted again. Cause: two batches had deleted its key, and were rolled
/// back in the order in which they were applied, so that the second deletion brought its own ids back in place of those of the
/// first. Fix: the key has the ids of both, and those of hits that are rolled back are removed.
#[test]
fn ids_of_the_first_generation_come_back() {
    for is_reversed in [false, true] {
        let store = store();
        hit(&store, b"k", b"kept", START).expect("counted");
        let mut failed = [DeltaBatch::default(), DeltaBatch::default()];
        for (batch, id) in failed.iter_mut().zip([b"1", b"2"]) {
            store.forget_into(b"k", START, Some(&mut *batch));
            apply(&store, &[once(b"k", id)], START, batch);
        }
        if is_reversed {
            failed.reverse();
        }
        failed.iter_mut().for_each(|batch| store.roll_back(batch));
        store.end_rollback();
        assert_eq!(hit(&store, b"k", b"kept", START), Ok(1), "{is_reversed}");
        assert_eq!((hit(&store, b"k", b"1", START), hit(&store, b"k", b"2", START)), (Ok(2), Ok(3)));
        store.check_consistency();
    }
}

/// The hit with this id counts nothing.
fn is_known(store: &Store, id: &[u8], now: Timestamp) -> bool {
    store.is_repeated(&HitOnce { key: b"k", weight: 1, at: None, id }, now)
}

/// What takes a key with hits away: a deletion, or a refund of its newest hit, so that it expires within a minute.
const ENDS: [fn(&Store, &mut DeltaBatch); 3] = [
    |store, batch| assert!(store.forget_into(b"k", START, Some(batch))),
    |store, batch| {
        apply(store, &[Op::Refund(Box::new(Request::new(b"k", 0, hours(1), 1)))], START, batch);
        assert_eq!(store.hits(b"k", days(7), after_start(60)).estimate, 0, "the key has expired");
    },
    |store, batch| {
        let cell = Cell::of(START.as_millis(), 1);
        store.take_back(b"k", &[(cell, 1)], START, batch);
        assert_eq!(store.hits(b"k", days(7), after_start(60)).estimate, 0, "the key has expired");
    },
];

/// A key with a hit that expires within a minute, and one of now with an id.
fn expiring_key() -> Store {
    let store = store();
    let late = START.saturating_sub(days(7)).saturating_add(seconds(30));
    assert_eq!(store.hit_at(b"k", late, START), Ok(1));
    assert_eq!(hit(&store, b"k", b"kept", START), Ok(1));
    store
}

/// Symptom: after a failed write, a hit that had been kept counted again. Cause: the other hits of its key had been given back, so the
/// key expired, and its salt with it. The rollback made the key again, without a salt. Fix: the salt is kept with the hits that
/// were given back.
#[test]
fn a_rollback_brings_the_ids_of_an_expired_key_back() {
    for (end, is_reversed) in ENDS.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (store, later) = (expiring_key(), after_start(60));
        let mut failed = [DeltaBatch::default(), DeltaBatch::default()];
        end(&store, &mut failed[0]);
        apply(&store, &[once(b"k", b"new")], later, &mut failed[1]);
        if is_reversed {
            failed.reverse();
        }
        failed.iter_mut().rev().for_each(|batch| store.roll_back(batch));
        store.end_rollback();
        store.check_consistency();
        assert!(is_known(&store, b"kept", later) && !is_known(&store, b"new", later), "{is_reversed}");
        assert_eq!(hits(&store, b"k", later), 1);
    }
}

/// Symptom: a hit that was written counted again, after another thread could not write the deletion of its key. Cause: the salt of
/// the deleted key took the place of the new one. Fix: such a key has the ids of both salts, also after a restart.
#[test]
fn a_rollback_keeps_the_ids_of_hits_after_it() {
    for (end, is_other_generation) in ENDS.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (store, later) = (expiring_key(), after_start(60));
        let mut failed = DeltaBatch::default();
        end(&store, &mut failed);
        if is_other_generation {
            store.forget_into(b"another", later, Some(&mut DeltaBatch::default()));
        }
        assert_eq!(hit(&store, b"k", b"new", later), Ok(1));
        store.roll_back(&mut failed);
        assert!(store.is_mixed(), "a replay would lose ids");
        store.end_rollback();
        store.check_consistency();
        let loaded = dedupe(minutes(10)).seed(2).build().expect("valid");
        let mut part = Vec::new();
        for index in 0..Store::PARTS {
            part.clear();
            store.write_part(index, later, &mut part);
            assert!(loaded.read_part(&part, later).expect("a part").is_empty());
        }
        for store in [&store, &loaded] {
            assert!(
                is_known(store, b"kept", later) && is_known(store, b"new", later),
                "{is_other_generation}"
            );
            assert_eq!((hits(store, b"k", later), hit(store, b"k", b"more", later)), (2, Ok(3)));
            assert!(is_known(store, b"more", later));
            store.check_consistency();
        }
        // Nothing is left of ids that are over.
        let over = after_start(60 + 601);
        (0..20).for_each(|_| sweep(&store, over));
        assert_eq!((store.memory().ids, store.memory().id_bytes), (0, 0));
        store.check_consistency();
    }
}

/// Past their part of the ceiling, the oldest ids are forgotten, and counted. Keys stay.
#[test]
fn the_oldest_ids_are_forgotten_first() {
    let ceiling = 4 << 20;
    let store = dedupe(hours(1)).memory_ceiling(ceiling).build().expect("valid");
    let at = |n: u32| START.saturating_add(Span::from_millis(i64::from(n) + 1).expect("a span"));
    let (count, keys) = (200_000_u32, 100);
    for n in 0..count {
        hit(&store, &(n % keys).to_le_bytes(), &n.to_le_bytes(), at(n)).expect("there is room");
        assert!(store.memory().used_bytes <= ceiling, "{:?}", store.memory());
    }
    let stats = store.memory();
    assert!(stats.id_bytes <= ceiling / 2 + ceiling / 16, "{stats:?}");
    assert_eq!((store.len(), store.memory().evicted_keys), (keys as usize, 0));
    store.check_consistency();
    let now = at(count);
    let known: Vec<u32> = (0..count)
        .filter(|n| {
            let key = (n % keys).to_le_bytes();
            let mut deltas = DeltaBatch::default();
            apply(&store, &[once(&key, &n.to_le_bytes())], now, &mut deltas);
            let is_known = deltas.deltas().flatten().all(|(_, delta)| delta == Delta::Void);
            store.roll_back(&mut deltas);
            is_known
        })
        .collect();
    let first = count - u32::try_from(known.len()).expect("fewer");
    assert!(known.iter().copied().eq(first..count), "the newest {} are known", known.len());
    assert!(known.len() > 40_000, "{}", known.len());
    // The probes above forget some, too.
    assert!(stats.forgotten_ids > 0 && store.memory().forgotten_ids >= u64::from(first) - 5_000, "{stats:?}");
}

/// Symptom: hits that were sent again counted twice, after a dump was restored again and again, or keys with many ids were deleted. Cause: the
/// ids of the keys before pushed those of living keys out. Fix: ids that no key has any more go first.
#[test]
fn the_ids_of_forgotten_keys_are_dropped_first() {
    let store = dedupe(hours(6)).memory_ceiling(4 << 20).build().expect("valid");
    for n in 0..5_000_u32 {
        hit(&store, b"kept", &n.to_le_bytes(), START).expect("there is room");
    }
    for round in 1..20_u64 {
        for n in 0..20_000_u32 {
            hit(&store, b"gone", &n.to_le_bytes(), after_start(round)).expect("there is room");
        }
        assert!(store.forget(b"gone", after_start(round)));
    }
    assert_eq!(store.memory().forgotten_ids, 0);
    let mut dump = vec![Vec::new(); Store::PARTS.into()];
    dump.iter_mut().zip(0..).for_each(|(part, index)| _ = store.write_part(index, after_start(20), part));
    for round in 20..200 {
        for part in &dump {
            store.bring_part(part, after_start(round), &mut DeltaBatch::default()).expect("a part");
        }
    }
    let later = after_start(300);
    for n in 0..5_000_u32 {
        assert_eq!(
            hit(&store, b"kept", &n.to_le_bytes(), later),
            Ok(0),
            "its window is over, and it is known"
        );
    }
    assert_eq!(
        (store.memory().forgotten_ids, store.count(b"kept", Some(hours(6)), None, later).estimate),
        (0, 5_000)
    );
    store.check_consistency();
}

#[test]
fn ids_keep_to_a_lower_ceiling_after_a_restart() {
    let (store, ceiling) = (store(), 1 << 20);
    for n in 0..50_000_u32 {
        let now = START.saturating_add(Span::from_millis(i64::from(n) + 1).expect("a span"));
        hit(&store, &(n % 500).to_le_bytes(), &n.to_le_bytes(), now).expect("counted");
    }
    assert!(store.memory().used_bytes > ceiling);
    let small = dedupe(minutes(10)).memory_ceiling(ceiling).build().expect("valid");
    let mut part = Vec::new();
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, store.now(), &mut part);
        assert!(small.read_part(&part, store.now()).expect("a part").is_empty());
        assert!(small.memory().id_bytes <= ceiling / 2, "{:?}", small.memory());
    }
    let memory = small.memory();
    assert_eq!((small.len(), memory.evicted_keys), (500, 0));
    assert!(memory.ids > 10_000 && memory.forgotten_ids == 50_000 - memory.ids, "{memory:?}");
    small.check_consistency();
}

/// Ids that are over take no memory for long.
#[test]
fn ids_that_are_over_are_dropped() {
    let store = dedupe(minutes(1)).build().expect("valid");
    let empty = store.memory().used_bytes;
    for n in 0..100_000_u32 {
        hit(&store, b"k", &n.to_le_bytes(), START).expect("counted");
    }
    let full = store.memory();
    let each = full.id_bytes as f64 / full.ids as f64;
    assert!(full.ids == 100_000 && each < 34.0, "{each} bytes for each id");
    // As others come.
    for n in 0..50_000_u32 {
        hit(&store, b"k", &n.to_le_bytes(), after_start(61)).expect("counted");
    }
    assert!(store.memory().ids < 70_000, "{:?}", store.memory());
    // And by the sweep.
    let later = after_start(200);
    (0..20).for_each(|_| sweep(&store, later));
    let memory = store.memory();
    assert_eq!((memory.ids, memory.id_bytes), (0, 0));
    assert!(store.memory().used_bytes < empty + 10_000);
    store.check_consistency();
}

#[test]
fn the_salts_of_saved_ids_are_checked() {
    let saved = |salt: u64| {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        bytes.extend(salt.to_le_bytes());
        crate::leb128::push(&mut bytes, u64::MAX);
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend([1, 2]);
        bytes
    };
    let ids = crate::store::ids::read_saved(&saved(9)).expect("an id of the second salt");
    assert!(matches!(ids[..], [crate::delta::CountedId { salt: 9, fingerprint: 5, .. }]), "{ids:?}");
    assert!(crate::store::ids::read_saved(&saved(0)).is_none());
}
