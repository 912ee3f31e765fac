//! Decodes any bytes as settings and a trace, and compares a store or a counter with the exact model.
//!
//! The fuzz target `store` includes this file; the property test at its end is the same without a fuzzer.
//!
//! A header of [`HEADER_BYTES`] selects the subject and its settings; missing bytes are zeros. The rest is a trace,
//! decoded by [`ops_from_bytes`].

use lately_classics::limits::MAX_TIME_MS;
use lately_classics::{ModelSettings, Op, RUNGS_MS, START_MS, drive_from, ops_from_bytes};

use crate::subject::{CounterSubject, Merging, StoreSubject};

const HEADER_BYTES: usize = 9;
const DAY_MS: i64 = 86_400_000;
const MOST_STEP_MS: [i64; 6] = [1, 2, 40, 1_200, 70_000, 4_000_000];

/// Decodes the bytes and runs the trace.
///
/// # Errors
/// The first difference.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let (header, rest) = bytes.split_at(HEADER_BYTES.min(bytes.len()));
    let byte = |index: usize| header.get(index).copied().unwrap_or(0);
    // From the low bits: the subject, whether the settings are the defaults, and the start time.
    let what = byte(0);
    let settings = if what & 0x04 == 0 { settings([1, 2, 3, 4, 5, 6].map(byte)) } else { default_settings() };
    let start_ms = [START_MS, 0, 1_000_123, MAX_TIME_MS - 1_000_123][usize::from(what >> 3 & 0x03)];
    let ops = warmed(&warm_up(byte(7), byte(8)), ops_from_bytes(rest));
    let merging = match what & 0x03 {
        0 => Merging::FromTrace,
        1 => Merging::Early,
        2 => Merging::Never,
        _ => {
            let ops = for_a_counter(&ops, &settings);
            return drive_from(start_ms, &mut CounterSubject::new(&settings), &settings, &ops);
        }
    };
    drive_from(start_ms, &mut StoreSubject::new(&settings, merging), &settings, &ops)
}

/// Puts hits before a trace, separated by the steps: enough to make a key hot.
pub(crate) fn warmed(steps_ms: &[i64], ops: Vec<Op>) -> Vec<Op> {
    let warm_up = steps_ms.iter().flat_map(|&ms| {
        [Op::Advance { ms }, Op::Hit { key: 0, offset_ms: 0, count: 1 + ms.unsigned_abs() % 3 }]
    });
    warm_up.chain(ops).collect()
}

fn default_settings() -> ModelSettings {
    ModelSettings { dedupe_ms: Some(600_000), unique: true, ..ModelSettings::default() }
}

/// Each byte selects a setting.
fn settings([resolution, window, slack, retain, precision, skew]: [u8; 6]) -> ModelSettings {
    let resolutions = RUNGS_MS.iter().filter(|&&rung_ms| rung_ms <= DAY_MS).count();
    let retain = 8 * i64::from(retain);
    let of_panes = ModelSettings::of_panes(
        RUNGS_MS[usize::from(resolution) % resolutions],
        [1 + i64::from(window), slack.into(), retain * retain],
    );
    let dedupe_ms = [None, Some(1_000), Some(600_000), Some(DAY_MS)][usize::from(skew >> 2) % 4];
    ModelSettings {
        dedupe_ms: dedupe_ms.map(|ms| ms.min(of_panes.retain_ms)),
        unique: skew & 0x30 != 0,
        precision_millionths: [100, 1_000, 10_000, 12_345, 50_000, 333_333, 500_000, 1_000_000]
            [usize::from(precision) % 8],
        max_skew_ms: [1, 1_000, 10_000, 3_600_000][usize::from(skew) % 4],
        ..of_panes
    }
}

/// The steps between some hundred hits; `pace` selects the longest. Most values of `hits` give none, which is faster.
fn warm_up(hits: u8, pace: u8) -> Vec<i64> {
    let most_ms = MOST_STEP_MS[usize::from(pace) % MOST_STEP_MS.len()];
    let hits = hits.checked_sub(192).map_or(0, |more| 260 + 2 * i64::from(more));
    // The factor is a prime, so that steps differ.
    (0..hits).map(|step| 1 + step * 2_654_435_761 % most_ms).collect()
}

/// Changes a trace so that a counter can run it, which has one key and its newest hit as the clock. No hit is ahead of
/// the clock, each step of the clock has a hit, and no step is so long that the model forgets the key.
pub(crate) fn for_a_counter(ops: &[Op], settings: &ModelSettings) -> Vec<Op> {
    let now = Op::Hit { key: 0, offset_ms: 0, count: 1 };
    let longest_ms = settings.retain_ms - settings.resolution_ms;
    let followed = ops.iter().flat_map(|op| match *op {
        Op::Hit { offset_ms, count, .. }
        | Op::HitOnce { offset_ms, count, .. }
        | Op::HitMember { offset_ms, count, .. } => {
            // A refused total would stop the counter's clock.
            [Some(Op::Hit { key: 0, offset_ms: offset_ms.min(0), count: count.min(u32::MAX.into()) }), None]
        }
        Op::Read { back_ms, window_ms, .. } => {
            [Some(Op::Read { key: 0, back_ms: back_ms.max(0), window_ms }), None]
        }
        Op::Advance { ms } => [Some(Op::Advance { ms: ms.min(longest_ms) }), Some(now)],
        Op::Jump { ms } => [Some(Op::Jump { ms: ms.min(longest_ms) }), Some(now)],
        Op::Unique { .. } | Op::Forget { .. } => [None, None],
        Op::Merge { .. } => [Some(Op::Merge { key: 0 }), None],
    });
    std::iter::once(now).chain(followed.flatten()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn traces_of_any_bytes(
            mut header in prop::array::uniform9(any::<u8>()),
            warm in prop::bool::weighted(0.3),
            rest in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            header[7] = if warm { header[7] | 0xc0 } else { 0 };
            check(&[&header[..], &rest].concat()).map_err(TestCaseError::fail)?;
        }
    }
}
