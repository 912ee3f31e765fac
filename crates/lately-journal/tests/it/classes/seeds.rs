//! Plays many seeds, and some bytes like the fuzzer's; and checks that mistakes are found.
//!
//! `LATELY_SIM_SEED` plays one seed, `LATELY_SIM_SEEDS` this number of them. `LATELY_SIM_SECONDS` plays new
//! ones each time, for this long.

use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;

use super::class::Classes;
use super::play::{Finding, Kind, play};
use super::script::{Act, Choices, Limit, Script, Step};
use super::shrink::shrink;
use super::world::World;

/// The default number of seeds.
const SEEDS: u64 = 1_000;
/// The number of findings of a kind that are shrunk and reported completely.
const REPORTED: usize = 3;

/// Reports a finding, and the shortest script with a finding of the same kind.
fn report(seed: u64, script: &Script, finding: Finding) {
    let Finding { kind, what, steps } = &finding;
    let mut report = format!("seed {seed}: {kind:?} after {steps} steps: {what}\n");
    // With a trace, only the steps of one script are wanted.
    if std::env::var_os("LATELY_SIM_TRACE").is_none() {
        let (script, finding) = shrink(script, finding, play);
        let Script { start_ms, classes, steps } = script;
        report += &format!("  shorter, from {start_ms} with {classes:?}:\n");
        steps.iter().for_each(|step| report += &format!("    {:?}\n", step.act));
        report += &format!("  {}\n", finding.what);
    }
    // This shows even if the output of tests is captured.
    let _ = std::io::stderr().write_all(report.as_bytes());
}

#[test]
fn answers_are_true_while_classes_change() {
    let (mut played, mut steps, mut found) = (0, 0, BTreeMap::<Kind, Vec<u64>>::new());
    for seed in test_support::seeds(SEEDS) {
        let script = Script::any(&mut Choices::of_seed(seed));
        if let Err(finding) = play(&script) {
            let seeds = found.entry(finding.kind).or_default();
            seeds.push(seed);
            if seeds.len() <= REPORTED {
                report(seed, &script, finding);
            }
        }
        (played, steps) = (played + 1, steps + script.steps.len());
    }
    let mut summary = String::new();
    for (kind, seeds) in &found {
        summary +=
            &format!("{kind:?}: {} of {played} seeds, {:?}\n", seeds.len(), &seeds[..seeds.len().min(10)]);
    }
    if let Some(seed) = found.values().flatten().min() {
        summary += &format!("seed {seed}\n");
    } else {
        summary += &format!("{played} seeds, {steps} steps\n");
    }
    let _ = std::io::stdout().write_all(summary.as_bytes());
    assert!(found.is_empty(), "answers that cannot be true, of {found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_are_true_for_scripts_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        super::check(&bytes);
    }
}

/// Some hits, and the finding after a change of the truth.
fn found_after(change: impl FnOnce(&mut World)) -> Option<Kind> {
    let mut world =
        World::begin(&Script { start_ms: 1_700_000_000_000, classes: Classes::default(), steps: Vec::new() })
            .expect("an empty disk");
    let limit = Limit { max: 1_000, window_ms: 60_000, cost: 1 };
    let acts = [
        Act::Hits { key: 0, times: 300, gap_ms: 700, weight: 1 },
        Act::Late { key: 0, times: 9, back_ms: 3_600_000, gap_ms: 1_000, weight: 1 },
        Act::Limit { key: 0, times: 5, gap_ms: 100, back_ms: 0, limit },
    ];
    for act in acts {
        world.step(&Step { act, salt: 7 }).expect("no finding");
    }
    change(&mut world);
    let mut choices = Choices::of_seed(1);
    (0..20).find_map(|_| world.check_key(0, &mut choices).err()).map(|(kind, _)| kind)
}

#[test]
fn mistakes_are_found() {
    assert_eq!(found_after(|_| ()), None);
    let now = |world: &World| world.now_ms;
    let lost = |world: &mut World| world.truths[0].counted.add(now(world), 1, &world.models[0]);
    assert_eq!(found_after(lost), Some(Kind::Bounds), "a hit that the store does not have");
    let too_many = |world: &mut World| {
        let now = world.now();
        world.server.store.hit(b"a:0", now).expect("it is counted");
    };
    assert_eq!(found_after(too_many), Some(Kind::Bounds), "a hit that was never sent");
    let late = |world: &mut World| world.truths[0].counted.add(now(world) - 50_000, 100, &world.models[0]);
    let found = found_after(late);
    assert!(matches!(found, Some(Kind::Bounds | Kind::LimitAdmits)), "{found:?}");
}

#[test]
fn a_seed_repeats_its_script() {
    let script = |seed| format!("{:?}", Script::any(&mut Choices::of_seed(seed)));
    assert_eq!(script(5), script(5));
    assert_ne!(script(5), script(6));
}
