//! Every answer equals that of the exact log read on the same grid, whenever panes were merged.

use lately_classics::strategies::{disordered_ops, ordered_ops, settings};
use lately_classics::{ModelSettings, Op, drive, drive_from};
use proptest::prelude::*;

use crate::subject::{Merging, StoreSubject};
use crate::trace::warmed;

/// Runs a trace three times: panes are merged where the trace has a merge, before every operation, and only by the
/// store itself.
fn check(settings: &ModelSettings, ops: &[Op]) -> Result<(), TestCaseError> {
    for merging in [Merging::FromTrace, Merging::Early, Merging::Never] {
        let mut subject = StoreSubject::new(settings, merging);
        drive(&mut subject, settings, ops)
            .map_err(|difference| TestCaseError::fail(format!("merged {merging:?}: {difference}")))?;
    }
    Ok(())
}

fn warm_up() -> impl Strategy<Value = Vec<i64>> {
    (prop::sample::select(vec![2_i64, 40, 1_200, 70_000, 4_000_000]), 260_usize..400)
        .prop_flat_map(|(most_ms, hits)| prop::collection::vec(1..=most_ms, hits))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn ordered_traces(settings in settings(), ops in ordered_ops()) {
        check(&settings, &ops)?;
    }

    #[test]
    fn disordered_traces(settings in settings(), ops in disordered_ops()) {
        check(&settings, &ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn traces_of_a_hot_key(settings in settings(), steps in warm_up(), ops in disordered_ops()) {
        check(&settings, &warmed(&steps, ops))?;
    }

    #[test]
    fn traces_near_the_start_of_time(settings in settings(), ops in disordered_ops(), start in 0_i64..1_000_000) {
        let mut subject = StoreSubject::new(&settings, Merging::FromTrace);
        drive_from(start, &mut subject, &settings, &ops).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn traces_over_restarts_and_restores(
        settings in settings(),
        steps in prop_oneof![Just(Vec::new()), warm_up()],
        ops in disordered_ops(),
        merging in prop::sample::select(vec![Merging::Restarted, Merging::Carried]),
    ) {
        drive(&mut StoreSubject::new(&settings, merging), &settings, &warmed(&steps, ops))
            .map_err(|difference| TestCaseError::fail(format!("{merging:?}: {difference}")))?;
    }
}

/// A key goes through every form and back: a few hits, a list, a ring, a quiet ring, a list again.
#[test]
fn every_change_of_form_keeps_the_answers() {
    let hit = |count| Op::Hit { key: 0, offset_ms: 0, count };
    let reads = [1_000, 60_000, 300_000, 360_000, 3_600_000, 604_800_000, 1_000_000_000_000]
        .map(|window_ms| [0, 500, 61_000, 400_000].map(|back_ms| Op::Read { key: 0, back_ms, window_ms }));
    let mut ops = Vec::new();
    for (hits, gap_ms) in [
        (3, 10_000),
        (1, 1),
        (255, 300_000),
        (400, 900),
        (2_000, 7),
        (1, 361_000),
        (5, 1),
        (300, 1_000),
        (1, 86_400_000),
        (300, 1_000),
    ] {
        for step in 0..hits {
            ops.extend([Op::Advance { ms: gap_ms }, hit(1 + step % 5)]);
            if step % 97 == 0 {
                ops.extend(reads.iter().flatten());
            }
        }
        ops.extend(reads.iter().flatten());
        ops.push(Op::Hit { key: 0, offset_ms: -45_000, count: 2 });
        ops.push(Op::Hit { key: 0, offset_ms: -5_000_000, count: 2 });
        ops.extend(reads.iter().flatten());
    }
    check(&ModelSettings::default(), &ops).expect("no difference");
}

/// After every operation, `check_consistency` verifies the bound of the panes.
#[test]
fn a_week_of_a_hit_each_ten_seconds() {
    let mut ops = Vec::new();
    for step in 0..60_480 {
        ops.extend([Op::Advance { ms: 10_000 }, Op::Hit { key: 0, offset_ms: 0, count: 1 }]);
        if step % 2_000 == 0 {
            for window_ms in [300_000, 7_200_000, 86_400_000, 604_800_000] {
                ops.push(Op::Read { key: 0, back_ms: 0, window_ms });
            }
        }
    }
    let settings = ModelSettings::default();
    drive(&mut StoreSubject::new(&settings, Merging::Never), &settings, &ops).expect("no difference");
}

/// A key is hit in the pane in which its last hits leave the retention. The key is not replaced, and a wide cell at
/// the edge of the retention shows its share before and after the hit.
#[test]
fn a_hit_just_past_the_retention_agrees_with_a_read() {
    let of_panes = ModelSettings::of_panes(1_000, [374, 111, 0]);
    let settings = ModelSettings { retain_ms: 654_000, precision_millionths: 508_162, ..of_panes };
    let gap_ms = settings.retain_ms;
    let hit = |count| Op::Hit { key: 0, offset_ms: 0, count };
    let read = |window_ms| Op::Read { key: 0, back_ms: 0, window_ms };
    for early_ms in [0, 200_000, 290_000] {
        let reads = [read(gap_ms), read(gap_ms + 400_000)];
        let mut ops = vec![Op::Advance { ms: 1 + early_ms }, hit(100), Op::Advance { ms: gap_ms }];
        ops.extend(reads.iter().copied().chain([hit(1)]).chain(reads.iter().copied()));
        ops.extend([Op::Advance { ms: 150_000 }].into_iter().chain(reads.iter().copied()));
        check(&settings, &ops).expect("as the model");
    }
}
