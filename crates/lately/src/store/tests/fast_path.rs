//! The fast path gives the outcomes and the change records of the general path.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::delta::Delta;
use crate::gcra::Rate;
use crate::limit::Admission;
use crate::lockout::{Factor, Lockout};
use crate::store::executor::Executor;
use crate::time::milliseconds;

const KEYS: [&[u8]; 5] = [b"a", b"key", b"of:16:bytes:abcd", b"longer than sixteen bytes", &[b'x'; 40]];

/// A key, the kind of operation, a number for its details, and the milliseconds before it.
type Step = (usize, u8, u64, i64);

fn windows() -> [Span; 4] {
    [milliseconds(700), seconds(5), minutes(1), minutes(10)]
}

/// Three hits a second are not a whole number of milliseconds apart.
fn rate(number: u64) -> Rate {
    let count = [1, 3, 10][usize::try_from(number % 3).expect("small")];
    Rate::new(number % 7, count, seconds(1)).expect("a rate")
}

fn op((key, kind, number, _): Step, now: Timestamp) -> Op<'static> {
    let window = windows()[usize::try_from(number / 7 % 4).expect("small")];
    let (key, max, cost) = (KEYS[key], number % 12, 1 + number / 12 % 5 / 4);
    let past = Timestamp::from_millis(now.as_millis() - i64::try_from(number).expect("small"));
    let limit = |key| Limit { key, max, window };
    match kind {
        0..=29 => Op::Hit { key, weight: 1 + number / 12 % 9 / 8, at: None },
        30..=33 => Op::Hit { key, weight: number % 3 * 40, at: past.filter(|_| number % 2 == 0) },
        34..=44 => Op::Limit { key, max, window, cost },
        // The same limit again, so that denials are cached.
        45..=59 => Op::Limit { key, max: 2, window: seconds(5), cost: 1 },
        60..=69 => Op::Limit { key, max: max * 100, window, cost },
        70..=84 => Op::Throttle { key, rate: rate(number) },
        85..=92 => {
            let limits =
                if number % 4 == 0 { vec![limit(key), limit(key)] } else { vec![limit(key), limit(KEYS[0])] };
            Op::LimitAll(Box::new(JointRequest { limits, cost, at: None, is_peek: false }))
        }
        93..=95 => {
            let lockout = (number % 5 == 0).then(|| Lockout::of(seconds(1)));
            Op::of(Request { is_peek: number % 2 == 0, lockout, ..Request::new(key, max, window, cost) })
        }
        96 => {
            // Requests of the fast path come after them.
            let admission = match number % 4 {
                0 | 2 => Admission::Overdraft,
                1 => Admission::Exempt,
                _ => Admission::Spent,
            };
            let lockout = Lockout::growing(seconds(1), Factor::new(2.0).expect("a factor"), Some(seconds(9)));
            let lockout = Some(lockout.expect("it fits"));
            let request = Request { admission, lockout, ..Request::new(key, max, window, cost * 7) };
            if number % 7 == 0 { Op::Refund(Box::new(request)) } else { Op::of(request) }
        }
        97 => Op::Denied(Box::new(Question { key, window: Some(window), at: None })),
        _ => Op::Hits { key, window: Some(window), at: None },
    }
}

/// Change records by key, without the part and number of each, because a batch applies operations of
/// different keys in any order. Hits of a key at one time are merged, as a batch does if nothing is between
/// them.
fn by_key(batch: &DeltaBatch) -> BTreeMap<Vec<u8>, Vec<Delta<'_>>> {
    let mut records: BTreeMap<Vec<u8>, Vec<Delta<'_>>> = BTreeMap::new();
    for (_, delta) in batch.deltas().map(|delta| delta.expect("well formed")) {
        let of_key = records.entry(delta.key().to_vec()).or_default();
        match (of_key.last_mut(), delta) {
            (Some(Delta::Hits { at: before, hits: sum, .. }), Delta::Hits { at, hits, .. })
                if *before == at =>
            {
                *sum += hits;
            }
            _ => of_key.push(delta),
        }
    }
    records
}

fn later(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis() + ms).expect("a time")
}

fn stores() -> [Store; 2] {
    [(); 2].map(|()| Store::builder().build().expect("valid"))
}

fn answers(store: &Store, now: Timestamp) -> Vec<(Count, Count, Option<Span>)> {
    let counts = |key: &&[u8]| {
        let counted = store.hits(key, minutes(5), now);
        (counted, store.denied(key, Some(minutes(5)), None, now), store.time_to_live(key, now))
    };
    KEYS.iter().map(counts).collect()
}

proptest! {
    #[test]
    fn the_fast_path_agrees_with_the_general_path(
        steps in prop::collection::vec(
            (0..KEYS.len(), 0..100_u8, 0..420_u64, prop_oneof![4 => 0..40_i64, 2 => 0..3_000_i64, 1 => 0..400_000_i64]),
            1..160,
        ),
        batch in prop::sample::select(vec![1, 7, 40]),
        few_keys in 1..=KEYS.len(),
    ) {
        let [fast, general] = stores();
        let mut now = START;
        for steps in steps.chunks(batch) {
            now = later(now, steps[0].3);
            let ops: Vec<_> = steps.iter().map(|&(key, kind, n, ms)| op((key % few_keys, kind, n, ms), now)).collect();
            let [mut outcomes, mut expected] = [Vec::new(), Vec::new()];
            let [mut records, mut expected_records] = [DeltaBatch::default(), DeltaBatch::default()];
            fast.apply_into(&ops, now, &mut outcomes, &mut records);
            general.apply_staged(&ops, &mut expected, Executor::general(&general, now, &mut expected_records));
            prop_assert_eq!(outcomes, expected, "{:?}", ops);
            prop_assert_eq!(by_key(&records), by_key(&expected_records), "{:?}", ops);
        }
        prop_assert_eq!(answers(&fast, now), answers(&general, now));
        fast.check_consistency();
        general.check_consistency();
    }

    /// [`Store::hit`] has no batch and no change records.
    #[test]
    fn a_single_hit_agrees_with_the_general_path(
        steps in prop::collection::vec((0..KEYS.len(), 0..10_u8, 0..4_u64, 0..2_000_i64), 1..120),
    ) {
        let [fast, general] = stores();
        let mut now = START;
        for (key, kind, weight, ms) in steps {
            now = later(now, if kind < 7 { ms / 40 } else { ms });
            let ops = [Op::Hit { key: KEYS[key], weight, at: None }];
            let (mut expected, mut unused) = (Vec::new(), DeltaBatch::default());
            general.apply_staged(&ops, &mut expected, Executor::general(&general, now, &mut unused));
            prop_assert_eq!(vec![Outcome::Hit(fast.hit_n(KEYS[key], weight, None, now))], expected);
        }
        prop_assert_eq!(answers(&fast, now), answers(&general, now));
        fast.check_consistency();
    }
}
