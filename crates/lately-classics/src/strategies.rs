//! Random traces and settings for property tests.
//!
//! A trace has a pace: its clock advances by milliseconds, seconds, minutes, hours, days or all of them. So
//! some traces fill one second, and in others hits grow old. Many reads are aimed: an edge of their window is
//! close to a hit, which shows mistakes about edges and cells.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::drive::START_MS;
use crate::limits::{IDS, KEYS, MAX_TIME_MS, MAX_TRACE_OPS, MAX_WINDOW_MS, MEMBERS};
use crate::model_settings::{ModelSettings, RUNGS_MS};
use crate::op::Op;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Traces of a server with a correct clock: hits come now, and the clock only advances. Reads may be of
/// earlier times.
pub fn ordered_ops() -> impl Strategy<Value = Vec<Op>> {
    (paces(), counts()).prop_flat_map(|(steps, counts)| {
        let op = prop_oneof![
            12 => hit(Just(0).boxed(), counts.clone()).prop_map(Draft::Op),
            4 => hit_once(Just(0).boxed(), counts.clone()).prop_map(Draft::Op),
            4 => hit_member(Just(0).boxed(), counts).prop_map(Draft::Op),
            2 => unique().prop_map(Draft::Op),
            4 => aimed(),
            3 => read(prop_oneof![2 => Just(0), 1 => span_ms()].boxed()).prop_map(Draft::Op),
            6 => steps.prop_map(|ms| Draft::Op(Op::Advance { ms })),
            1 => tidy().prop_map(Draft::Op),
        ];
        vec(op, 1..=MAX_TRACE_OPS).prop_map(finish)
    })
}

/// Traces with late hits, hits and reads in the future, and a clock that is set.
pub fn disordered_ops() -> impl Strategy<Value = Vec<Op>> {
    (paces(), counts()).prop_flat_map(|(steps, counts)| {
        let around = prop_oneof![
            4 => Just(0),
            2 => span_ms().prop_map(|ms| -ms),
            1 => -20 * SECOND_MS..20 * SECOND_MS,
            1 => steps.clone().prop_map(|ms| -ms),
        ];
        let jump = prop_oneof![
            4 => -MINUTE_MS..MINUTE_MS,
            2 => steps.clone().prop_map(|ms| -ms),
            1 => span_ms().prop_map(|ms| -ms),
        ];
        let op = prop_oneof![
            12 => hit(around.clone().boxed(), counts.clone()).prop_map(Draft::Op),
            6 => hit_once(around.clone().boxed(), counts.clone()).prop_map(Draft::Op),
            6 => hit_member(around.clone().boxed(), counts).prop_map(Draft::Op),
            2 => unique().prop_map(Draft::Op),
            4 => aimed(),
            3 => read(around.prop_map(|ms: i64| -ms).boxed()).prop_map(Draft::Op),
            6 => steps.prop_map(|ms| Draft::Op(Op::Advance { ms })),
            1 => jump.prop_map(|ms| Draft::Op(Op::Jump { ms })),
            1 => tidy().prop_map(Draft::Op),
        ];
        vec(op, 1..=MAX_TRACE_OPS).prop_map(finish)
    })
}

/// Consistent settings: the exact span has the window and 60 panes or a minute more; the retention is whole
/// panes and at least the exact span. The default is among them.
pub fn settings() -> impl Strategy<Value = ModelSettings> {
    let resolutions = RUNGS_MS.into_iter().filter(|&rung| rung <= DAY_MS).collect::<Vec<i64>>();
    let resolution = prop_oneof![1 => Just(SECOND_MS), 1 => select(resolutions)];
    let panes = (1_i64..400, 0_i64..100, 0_i64..2_000);
    let precision = prop_oneof![
        2 => Just(10_000_i64),
        2 => select(vec![100, 1_000, 50_000, 500_000, 1_000_000]),
        1 => 100_i64..=1_000_000,
    ];
    let skew = select(vec![1, SECOND_MS, 10 * SECOND_MS, HOUR_MS]);
    let dedupe = prop_oneof![1 => Just(None), 4 => span_ms().prop_map(|ms| Some(ms.max(1)))];
    let unique = weighted(0.8, Just(()));
    let made = (resolution, panes, precision, skew, dedupe, unique).prop_map(
        |(resolution_ms, (window, slack, retain), precision_millionths, max_skew_ms, dedupe_ms, unique)| {
            let panes = ModelSettings::of_panes(resolution_ms, [window, slack, retain * retain]);
            let dedupe_ms = dedupe_ms.map(|ms: i64| ms.min(panes.retain_ms));
            let unique = unique.is_some();
            ModelSettings { precision_millionths, max_skew_ms, dedupe_ms, unique, ..panes }
        },
    );
    let dedupe_ms = Some(10 * MINUTE_MS);
    prop_oneof![1 => Just(ModelSettings { dedupe_ms, unique: true, ..ModelSettings::default() }), 2 => made]
}

/// An operation, or a read that is aimed once the hits before it are known.
#[derive(Clone, Debug)]
enum Draft {
    Op(Op),
    Aimed { far: Aim, near: Option<Aim> },
}

/// An earlier hit, and the distance from it, in millionths of its age.
#[derive(Clone, Debug)]
struct Aim {
    hit: Index,
    offset_millionths: i64,
}

fn aimed() -> impl Strategy<Value = Draft> {
    let aim = || {
        let offset = prop_oneof![1 => Just(0_i64), 3 => -10_000_i64..10_000, 1 => -500_000_i64..500_000];
        (any::<Index>(), offset).prop_map(|(hit, offset_millionths)| Aim { hit, offset_millionths })
    };
    (aim(), weighted(0.4, aim())).prop_map(|(far, near)| Draft::Aimed { far, near })
}

/// Aims the reads: goes through the trace like the driver, and records the times of its hits.
fn finish(drafts: Vec<Draft>) -> Vec<Op> {
    let mut now_ms: i64 = START_MS;
    let mut hits: Vec<(u8, i64)> = Vec::new();
    let finished = drafts.into_iter().map(|draft| {
        let op = match draft {
            Draft::Op(op) => op,
            Draft::Aimed { .. } if hits.is_empty() => Op::Read { key: 0, back_ms: 0, window_ms: 1 },
            Draft::Aimed { far, near } => {
                let ago_ms = |aim: &Aim| {
                    let age_ms = now_ms - aim.hit.get(&hits).1;
                    let offset_ms = i128::from(age_ms) * i128::from(aim.offset_millionths) / 1_000_000;
                    age_ms + i64::try_from(offset_ms).expect("less than the age")
                };
                let (far_ms, near_ms) = (ago_ms(&far), near.as_ref().map_or(0, ago_ms));
                let window_ms = (far_ms - near_ms).abs().clamp(1, MAX_WINDOW_MS);
                Op::Read { key: far.hit.get(&hits).0, back_ms: far_ms.min(near_ms), window_ms }
            }
        };
        match op {
            Op::Hit { key, offset_ms, .. }
            | Op::HitOnce { key, offset_ms, .. }
            | Op::HitMember { key, offset_ms, .. } => {
                hits.push((key, now_ms + offset_ms));
            }
            Op::Advance { ms } | Op::Jump { ms } => now_ms = (now_ms + ms).clamp(0, MAX_TIME_MS),
            Op::Read { .. } | Op::Unique { .. } | Op::Forget { .. } | Op::Merge { .. } => {}
        }
        op
    });
    finished.collect()
}

/// The step of the clock, for each pace. Some steps are very long.
fn paces() -> impl Strategy<Value = BoxedStrategy<i64>> {
    select(vec![5, 3 * SECOND_MS, 3 * MINUTE_MS, 3 * HOUR_MS, 3 * DAY_MS, 0]).prop_map(|most_ms| {
        if most_ms == 0 {
            return span_ms().boxed();
        }
        prop_oneof![60 => 0..=most_ms, 10 => whole_steps(most_ms), 1 => span_ms()].boxed()
    })
}

/// Steps that end on borders, or a millisecond beside them.
fn whole_steps(most_ms: i64) -> impl Strategy<Value = i64> {
    let borders = RUNGS_MS.into_iter().filter(|&rung| rung <= most_ms).collect::<Vec<i64>>();
    (select(borders), -1_i64..=1).prop_map(|(border_ms, offset_ms)| (border_ms + offset_ms).max(0))
}

/// A span of any length; short ones are more frequent.
fn span_ms() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        8 => 0..SECOND_MS,
        8 => 0..MINUTE_MS,
        6 => 0..10 * MINUTE_MS,
        4 => 0..DAY_MS,
        3 => 0..10 * DAY_MS,
        1 => 0..=MAX_WINDOW_MS,
    ]
}

fn key() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0), 1 => 0..KEYS]
}

fn hit(offset: BoxedStrategy<i64>, count: BoxedStrategy<u64>) -> impl Strategy<Value = Op> {
    (key(), offset, count).prop_map(|(key, offset_ms, count)| Op::Hit { key, offset_ms, count })
}

fn hit_once(offset: BoxedStrategy<i64>, count: BoxedStrategy<u64>) -> impl Strategy<Value = Op> {
    (hit(offset, count), 0..IDS).prop_map(|(hit, id)| match hit {
        Op::Hit { key, offset_ms, count } => Op::HitOnce { key, offset_ms, count, id },
        op => op,
    })
}

fn hit_member(offset: BoxedStrategy<i64>, count: BoxedStrategy<u64>) -> impl Strategy<Value = Op> {
    let member = prop_oneof![1 => 0..IDS, 1 => 0..MEMBERS];
    (hit(offset, count), member).prop_map(|(hit, member)| match hit {
        Op::Hit { key, offset_ms, count } => Op::HitMember { key, offset_ms, count, member },
        op => op,
    })
}

fn unique() -> impl Strategy<Value = Op> {
    (key(), span_ms()).prop_map(|(key, ms)| Op::Unique { key, window_ms: ms.max(1) })
}

/// Mostly small counts, some wider than a stored count may be. One trace of five also has counts that fill a
/// key. Not all traces, because a full key refuses every hit.
fn counts() -> impl Strategy<Value = BoxedStrategy<u64>> {
    const MOST: u64 = i64::MAX.unsigned_abs();
    const U32_MOST: u64 = u32::MAX as u64;
    let ordinary = prop_oneof![
        24 => 1_u64..5,
        2 => Just(0_u64),
        2 => 10_u64..300,
        1 => 65_000_u64..66_000,
        1 => U32_MOST - 2..=U32_MOST + 2,
    ];
    let huge = prop_oneof![MOST - 300..=MOST, MOST / 4..=MOST, MOST + 1..=u64::MAX];
    weighted(0.2, Just(())).prop_map(move |with_huge| match with_huge {
        Some(()) => prop_oneof![30 => ordinary.clone(), 1 => huge.clone()].boxed(),
        None => ordinary.clone().boxed(),
    })
}

fn read(back: BoxedStrategy<i64>) -> impl Strategy<Value = Op> {
    let named = vec![1, SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 6 * MINUTE_MS, HOUR_MS, DAY_MS, 7 * DAY_MS];
    let window = prop_oneof![2 => select(named), 3 => span_ms()];
    (key(), back, window, weighted(0.1, -1_i64..=1)).prop_map(|(key, back_ms, window_ms, offset)| {
        let window_ms = (window_ms + offset.unwrap_or(0)).clamp(1, MAX_WINDOW_MS);
        Op::Read { key, back_ms, window_ms }
    })
}

fn tidy() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => key().prop_map(|key| Op::Forget { key }),
        4 => key().prop_map(|key| Op::Merge { key }),
    ]
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::ExactLog;

    proptest! {
        #[test]
        fn settings_fit_together(settings in settings()) {
            let ModelSettings { resolution_ms, window_ms, exact_ms, retain_ms, .. } = settings;
            prop_assert!(exact_ms >= window_ms + (60 * resolution_ms).min(MINUTE_MS));
            prop_assert!(exact_ms <= retain_ms && retain_ms <= MAX_WINDOW_MS);
            prop_assert_eq!(retain_ms % resolution_ms, 0);
        }
    }

    /// Without aim, fewer than one read in a thousand has a hit in an edge cell. With it, one in twenty or
    /// more.
    #[test]
    fn reads_meet_hits_in_their_edge_cells() {
        let (reads, met) = (Cell::new(0), Cell::new(0));
        let run = TestRunner::deterministic().run(&ordered_ops(), |ops| {
            let mut log = ExactLog::new(ModelSettings::default());
            let mut now_ms = START_MS;
            for op in ops {
                match op {
                    Op::Hit { key, offset_ms, count } => {
                        log.hit(key, now_ms + offset_ms, count, now_ms);
                    }
                    Op::HitOnce { key, offset_ms, count, id } => {
                        log.hit_once(key, now_ms + offset_ms, count, id, now_ms);
                    }
                    Op::HitMember { key, offset_ms, count, member } => {
                        log.hit_member(key, now_ms + offset_ms, count, member, now_ms);
                    }
                    Op::Read { key, back_ms, window_ms } => {
                        let read = log.read(key, now_ms - back_ms, window_ms, now_ms);
                        reads.set(reads.get() + 1);
                        met.set(met.get() + u32::from(read.upper.is_some_and(|upper| upper > read.lower)));
                    }
                    Op::Advance { ms } => now_ms += ms,
                    Op::Jump { .. } | Op::Unique { .. } | Op::Forget { .. } | Op::Merge { .. } => {}
                }
            }
            Ok(())
        });
        assert!(run.is_ok(), "{run:?}");
        assert!(met.get() * 20 > reads.get(), "{} of {}", met.get(), reads.get());
    }
}
