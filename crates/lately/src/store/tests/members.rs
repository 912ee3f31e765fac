//! Hits with members: what is counted, and what members survive.

use super::*;
use crate::limits::MAX_MEMBER_BYTES;
use crate::settings::Settings;
use crate::store::{MemberHit, SentMembers, Tier};

fn builder() -> StoreBuilder {
    Store::builder().seed(1).settings(Settings::builder().unique(true).dedupe(minutes(10)))
}

fn store() -> Store {
    builder().build().expect("valid")
}

fn of<'a>(key: &'a [u8], member: &'a [u8]) -> MemberHit<'a> {
    MemberHit { key, weight: 1, at: None, id: None, member }
}

fn unique(store: &Store, key: &[u8], window: Span, now: Timestamp) -> u64 {
    store.unique(key, Some(window), now).expect("the class counts them").estimate
}

/// Applies hits with a change record.
fn apply(store: &Store, hits: &[MemberHit<'_>], now: Timestamp, deltas: &mut DeltaBatch) -> Vec<Outcome> {
    let ops: Vec<_> = hits.iter().map(|hit| Op::HitMember(Box::new(*hit))).collect();
    let mut out = Vec::new();
    store.apply_into(&ops, now, &mut out, deltas);
    out
}

#[test]
fn distinct_members_are_counted_in_any_window() {
    let store = store();
    for (second, member) in [(10, b"a"), (20, b"b"), (30, b"a"), (40, b"c")] {
        let now = after(seconds(second));
        assert_eq!(store.hit_member(of(b"k", member), now), Ok(second / 10));
    }
    let now = after(seconds(40));
    for (window, expected) in [(1, 1), (11, 2), (20, 2), (21, 3), (300, 3)] {
        assert_eq!(unique(&store, b"k", seconds(window), now), expected, "{window}");
    }
    assert_eq!(store.unique(b"k", None, now).map(|count| (count.lower, count.upper)), Ok((3, Some(3))));
    assert_eq!(unique(&store, b"other", minutes(5), now), 0);
    assert_eq!(unique(&store, b"k", minutes(5), after(minutes(6))), 0);
    store.check_consistency();
}

/// Symptom: `UNIQ` counted a member after all hits were given back. Cause: a denial had kept the key, and only its ids ended. Fix: its
/// members go, too.
#[test]
fn members_go_with_the_last_hit_though_the_key_stays() {
    let (original, copy) = (store(), store());
    let mut deltas = DeltaBatch::default();
    apply(&original, &[of(b"k", b"a"), of(b"k", b"b")], START, &mut deltas);
    let limit = |max, cost| Request::new(b"k", max, hours(1), cost);
    let denied = Op::Limit { key: b"k", max: 1, window: hours(1), cost: 1 };
    for (op, left) in
        [(denied, 2), (Op::Refund(Box::new(limit(9, 1))), 2), (Op::Refund(Box::new(limit(9, 1))), 0)]
    {
        original.apply_into(&[op], START, &mut Vec::new(), &mut deltas);
        assert_eq!(unique(&original, b"k", minutes(5), START), left);
    }
    super::kept::replay(&copy, Portion::ALL).record(deltas.deltas()).expect("well formed");
    for store in [&original, &copy] {
        assert_eq!(store.denied(b"k", Some(hours(1)), None, START).estimate, 1);
        assert_eq!(unique(store, b"k", minutes(5), START), 0);
        store.hit(b"k", START).expect("it counts");
        assert_eq!(unique(store, b"k", minutes(5), START), 0);
        store.check_consistency();
    }
}

#[test]
fn hits_that_count_nothing_leave_no_member() {
    let store = store();
    let with = |weight, id, member| MemberHit { key: b"k", weight, at: None, id, member };
    assert_eq!(store.hit_member(with(0, None, b"a"), START), Ok(0));
    assert_eq!(store.hit_member(with(2, Some(b"1"), b"a"), START), Ok(2));
    assert_eq!(store.hit_member(with(2, Some(b"1"), b"b"), START), Ok(2));
    assert_eq!(unique(&store, b"k", minutes(5), START), 1);
    assert_eq!(store.hit_member(with(1, Some(b"2"), b"b"), START), Ok(3));
    assert_eq!(unique(&store, b"k", minutes(5), START), 2);
}

#[test]
fn members_and_their_lack_are_checked() {
    let (store, without) = (store(), super::store());
    let long = [b'm'; MAX_MEMBER_BYTES + 1];
    let hit = |member| store.hit_member(of(b"k", member), START);
    assert_eq!(hit(b""), Err(HitError::MemberLength { bytes: 0 }));
    assert_eq!(hit(&long), Err(HitError::MemberLength { bytes: long.len() }));
    assert!(store.is_empty());
    assert_eq!(hit(&long[1..]), Ok(1));
    assert_eq!(without.hit_member(of(b"k", b"m"), START), Err(HitError::NoMembers));
    assert_eq!(without.unique(b"k", None, START), Err(HitError::NoMembers));
    assert!(without.is_empty());
}

/// Whichever way a key goes, its members go with it, and their memory is free.
#[test]
fn a_deleted_key_has_no_members() {
    let store = store();
    for forget in [|store: &Store| assert!(store.forget(b"k", START)), Store::flush] {
        for number in 0..1_000_u32 {
            store.hit_member(of(b"k", &number.to_le_bytes()), START).expect("counted");
        }
        let used_bytes = store.memory().used_bytes;
        store.check_consistency();
        forget(&store);
        assert_eq!(unique(&store, b"k", minutes(5), START), 0);
        assert!(store.memory().used_bytes + 4_000 < used_bytes);
        store.check_consistency();
    }
}

#[test]
fn members_move_with_their_keys_and_leave_with_the_retention() {
    let store = store();
    // Enough keys for the tables to grow.
    for key in 0..40_000_u32 {
        for member in 0..=(key % 3) {
            store.hit_member(of(&key.to_le_bytes(), &member.to_le_bytes()), START).expect("counted");
        }
    }
    store.check_consistency();
    for key in 0..40_000_u32 {
        assert_eq!(unique(&store, &key.to_le_bytes(), minutes(5), START), u64::from(key % 3) + 1);
    }
    let (before_bytes, after_all) = (store.memory().used_bytes, after(days(8)));
    for key in (0..40_000_u32).step_by(2) {
        store.hit(&key.to_le_bytes(), after_all).expect("counted");
    }
    sweep(&store, after_all);
    store.check_consistency();
    assert!(store.memory().used_bytes + 1_000_000 < before_bytes);
    assert_eq!(unique(&store, &0_u32.to_le_bytes(), days(7), after_all), 0);
}

#[test]
fn members_are_known_after_a_restart() {
    let store = store();
    let replayed = builder().seed(3).build().expect("valid");
    let mut replay = Replay::new(&replayed, Portion::ALL);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, START).expect("a part"));
    let of_key = |key: u32| if key == 7 { 20_000 } else { key % 9 };
    for step in 0..20_000_u32 {
        let (name, now) = (step.to_le_bytes(), after(milliseconds(u64::from(step) * 10 + 1)));
        let mut deltas = DeltaBatch::default();
        for key in (0..500_u32).filter(|&key| step < of_key(key)) {
            apply(&store, &[of(&key.to_le_bytes(), &name)], now, &mut deltas);
        }
        replay.record(deltas.deltas()).expect("changes");
    }
    drop(replay);
    let now = after(seconds(200));
    let check = |other: &Store| {
        for key in 0..500_u32 {
            for window in [seconds(1), seconds(60), minutes(5), hours(1)] {
                let [own, others] =
                    [&store, other].map(|store| store.unique(&key.to_le_bytes(), Some(window), now));
                assert_eq!(own, others, "{key} {window}");
            }
        }
        let key = 7_u32.to_le_bytes();
        assert!((19_000..21_000).contains(&unique(other, &key, minutes(5), now)));
        assert_eq!(unique(other, &1_u32.to_le_bytes(), minutes(5), now), 1);
        other.check_consistency();
    };
    let loaded = builder().seed(2).build().expect("valid");
    let mut part = Vec::new();
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, now, &mut part);
        Store::check_part(&part).expect("a part");
        assert!(loaded.read_part(&part, now).expect("a part").is_empty());
    }
    check(&loaded);
    check(&replayed);
    let (restored, mut brought) = (builder().seed(4).build().expect("valid"), DeltaBatch::default());
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, now, &mut part);
        restored.bring_part(&part, now, &mut brought).expect("a part");
    }
    check(&restored);
    // What was restored is in the change record, too.
    let replayed = builder().seed(5).build().expect("valid");
    let mut replay = Replay::new(&replayed, Portion::ALL);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, now).expect("a part"));
    replay.record(brought.deltas()).expect("changes");
    check(&replayed);
    // A class that counts no members drops them.
    let without = Store::builder().seed(6).build().expect("valid");
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, now, &mut part);
        assert!(without.read_part(&part, now).expect("a part").is_empty());
    }
    assert_eq!(without.hits(&7_u32.to_le_bytes(), minutes(5), now).estimate, 20_000);
    assert!(without.memory().used_bytes < store.memory().used_bytes - 10_000);
}

/// Stores that learn the members of each other count those of all.
#[test]
fn members_of_other_stores_count_once() {
    let new_stores = || [1, 2, 3].map(|seed| builder().seed(seed).build().expect("valid"));
    let mut stores = new_stores();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for members in [20_000, 50] {
        let mut last: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
        let key = b"k";
        stores = new_stores();
        for step in 0..2 * members {
            let ms = step * 400_000 / members;
            let member = next(members);
            let store = &stores[usize::try_from(next(3)).expect("small")];
            store.hit_member(of(key, &member.to_le_bytes()), after(milliseconds(ms + 1))).expect("counted");
            last.insert(member, ms / 1_000);
        }
        let now = after(seconds(800));
        let sent: Vec<_> =
            stores.iter().map(|store| store.own_members(key, now).expect("it has some").bytes).collect();
        for (number, store) in stores.iter().enumerate() {
            let others = sent.iter().enumerate().filter(|(of, _)| *of != number);
            let others: Vec<_> =
                others.map(|(_, bytes)| SentMembers { bytes, deleted_until: None }).collect();
            // Again, and in another order.
            for others in [others.clone(), others.iter().rev().chain(&others).copied().collect()] {
                assert_eq!(store.learn_members(key, Tier::Local, others.into_iter(), now).malformed, 0);
            }
            for window_s in [10, 60, 300, 1_000] {
                let exact = last.values().filter(|second| **second + window_s > 800).count() as u64;
                let count = store.unique(key, Some(seconds(window_s)), now).expect("the class counts them");
                if exact < 100 {
                    assert_eq!(count.estimate, exact, "{window_s} s of {members}");
                } else {
                    assert!(count.lower <= exact && Some(exact) <= count.upper, "{count:?}: {exact}");
                }
            }
            store.check_consistency();
        }
    }
    let [one, other, _] = stores;
    let now = after(seconds(801));
    let malformed = [&b""[..], b"\xff", b"members"].map(|bytes| SentMembers { bytes, deleted_until: None });
    let learned = one.learn_members(b"new", Tier::Local, malformed.into_iter(), now);
    assert_eq!((learned.malformed, learned.known_bytes), (3, 0));
    // The members that nobody sends any more are gone; others stay, also over a sweep.
    let own = one.own_members(b"k", now).expect("it has some").bytes;
    let of_one = SentMembers { bytes: &own, deleted_until: Some(now) };
    assert_eq!(other.learn_members(b"k", Tier::Local, [of_one].into_iter(), now).known_bytes, 0);
    let of_one = SentMembers { deleted_until: None, ..of_one };
    assert!(other.learn_members(b"new", Tier::Upstream, [of_one].into_iter(), now).known_bytes > 0);
    sweep(&other, now);
    assert!(unique(&other, b"new", hours(1), now) > 10);
    sweep(&other, after(days(8)));
    assert_eq!(unique(&other, b"new", days(7), after(days(8))), 0);
    other.check_consistency();
}

#[test]
fn members_that_another_node_has_deleted_stay_away_after_a_restart() {
    let (store, mut deltas) = (store(), DeltaBatch::default());
    apply(&store, &[of(b"k", b"a"), of(b"k", b"b")], START, &mut deltas);
    let (deleted, later) = (after(seconds(5)), after(seconds(9)));
    store.drop_members(b"k", deleted, later, &mut deltas);
    store.drop_members(b"other", deleted, later, &mut deltas);
    apply(&store, &[of(b"k", b"b")], later, &mut deltas);
    let replayed = builder().seed(3).build().expect("valid");
    super::kept::replay(&replayed, Portion::ALL).record(deltas.deltas()).expect("changes");
    let since = |store: &Store| store.own_members(b"k", later).map(|own| own.since);
    // Replayed changes have the time of their batch, which is no later.
    assert_eq!((since(&store), since(&replayed)), (Some(later), Some(START)));
    for store in [store, replayed] {
        assert_eq!(
            (unique(&store, b"k", hours(1), later), store.hits(b"k", hours(1), later).estimate),
            (1, 3)
        );
        assert!(store.own_members(b"other", later).is_none());
        store.check_consistency();
    }
}

#[test]
fn it_is_known_since_when_a_key_has_members_unless_some_were_merged() {
    let (store, mut deltas) = (store(), DeltaBatch::default());
    let since = |store: &Store| store.own_members(b"k", START).map(|own| own.since);
    assert_eq!(since(&store), None);
    // A late hit: it is the time of the call that counts.
    let late = MemberHit {
        at: Some(Timestamp::from_millis(START.as_millis() - 60_000).expect("a time")),
        ..of(b"k", b"a")
    };
    apply(&store, &[late], START, &mut deltas);
    apply(&store, &[of(b"k", b"b")], after(seconds(1)), &mut deltas);
    assert_eq!(since(&store), Some(START));
    assert!(store.forget(b"k", START));
    apply(&store, &[of(b"k", b"b")], after(seconds(2)), &mut deltas);
    assert_eq!(since(&store), Some(after(seconds(2))));
}

/// Symptom: `UNIQ` lost a member when the disk refused a hit, and another hit of the member in the same pane was kept. Cause:
/// it was taken back with the first one. Fix: members stay until their key goes or they leave the window.
#[test]
fn a_member_of_a_hit_that_is_kept_stays() {
    let (store, later) = (store(), after(seconds(60)));
    for at in [START, later] {
        let [mut kept, mut refused, mut deletion] = [(); 3].map(|()| DeltaBatch::default());
        apply(&store, &[of(b"k", b"a"), of(b"gone", b"a")], START, &mut kept);
        apply(&store, &[of(b"k", b"b"), of(b"gone", b"b"), of(b"new", b"b")], START, &mut refused);
        apply(&store, &[of(b"k", b"b")], at, &mut kept);
        assert!(store.forget_into(b"gone", later, Some(&mut deletion)));
        store.roll_back(&mut refused);
        store.roll_back(&mut deletion);
        store.end_rollback();
        for (key, least, most) in [(b"k".as_slice(), 2, 2), (b"gone", 1, 2), (b"new", 0, 0)] {
            let members = unique(&store, key, hours(1), later);
            assert!((least..=most).contains(&members), "{}: {members}", key.escape_ascii());
        }
        store.check_consistency();
        store.flush();
    }
}

/// Symptom: `UNIQ` lost a member when a refund could not be written. Cause: the rest of the key expired before the rollback, and its
/// members with it. Fix: they are kept with the hits that were given back.
#[test]
fn members_of_hits_that_were_given_back_come_back() {
    let (store, later) = (store(), after(seconds(60)));
    let mut refused = DeltaBatch::default();
    let late = START.saturating_sub(days(7)).saturating_add(seconds(30));
    assert_eq!(store.hit_at(b"k", late, START), Ok(1));
    apply(&store, &[of(b"k", b"a")], START, &mut DeltaBatch::default());
    let refund = Op::Refund(Box::new(Request::new(b"k", 0, hours(1), 1)));
    store.apply_into(&[refund], START, &mut Vec::new(), &mut refused);
    assert_eq!((store.hits(b"k", days(7), later).estimate, unique(&store, b"k", hours(1), later)), (0, 0));
    store.roll_back(&mut refused);
    store.end_rollback();
    assert_eq!((store.hits(b"k", days(7), later).estimate, unique(&store, b"k", hours(1), later)), (1, 1));
    store.check_consistency();
}

#[test]
fn members_are_within_the_ceiling() {
    let store = builder().memory_ceiling(2 << 20).build().expect("valid");
    for number in 0..200_000_u32 {
        let key = (number % 50).to_le_bytes();
        store.hit_member(of(&key, &number.to_le_bytes()), START).expect("there is room, or it is made");
        let key = number.to_le_bytes();
        store.hit_member(of(&key, b"m"), START).expect("there is room, or it is made");
    }
    let memory = store.memory();
    assert!(memory.used_bytes <= 2 << 20 && memory.evicted_keys > 1_000, "{memory:?}");
    store.check_consistency();
}

/// Hits of a clock that was ahead count as of now, and so do their members.
#[test]
fn members_of_a_clock_that_was_ahead_count_as_of_now() {
    let (store, ahead) = (store(), after(days(3_000)));
    let mut deltas = DeltaBatch::default();
    for number in 0..300_u32 {
        apply(&store, &[of(b"many", &number.to_le_bytes())], ahead, &mut deltas);
    }
    apply(&store, &[of(b"k", b"a"), of(b"k", b"b")], ahead, &mut deltas);
    let check = |repaired: &Store| {
        repaired.repair_clock(None);
        for (now, few, least) in [(START, 2, 290), (after(minutes(6)), 0, 0)] {
            assert_eq!(unique(repaired, b"k", minutes(5), now), few);
            let many = unique(repaired, b"many", minutes(5), now);
            assert!(many >= least && many <= least + 20, "{many}");
        }
        repaired.check_consistency();
    };
    let loaded = builder().seed(2).build().expect("valid");
    loaded.repair_clock(Some((after(days(1)), START)));
    let mut part = Vec::new();
    for index in 0..Store::PARTS {
        part.clear();
        store.write_part(index, ahead, &mut part);
        assert!(loaded.read_part(&part, ahead).expect("a part").is_empty());
    }
    check(&loaded);
    let replayed = builder().seed(3).build().expect("valid");
    replayed.repair_clock(Some((after(days(1)), START)));
    let mut replay = Replay::new(&replayed, Portion::ALL);
    (0..Store::PARTS).for_each(|part| replay.include(part, 0, ahead).expect("a part"));
    replay.record(deltas.deltas()).expect("changes");
    check(&replayed);
}
